//! The crash cases of the thesis [SSD-DB §2.4.8], each by its name. A machine is set up so that one
//! step evicts a fresh block and lists a new one, and crashes at each operation of that step in
//! turn. A crash leaves everything, nothing, or a part of what is not synced, on each disk.

use std::collections::BTreeSet;

use super::*;

/// What a crash leaves on the fast and on the large disk.
const OUTCOMES: [(u64, u64); 7] = [(0, 0), (0, 1), (1, 0), (1, 1), (2, 3), (4, 5), (6, 7)];

/// The block that the step evicts; version 1 is on the SSD only.
fn victim() -> BlockKey {
    block(1, 0)
}

/// The block that waits for its listing, in version 1.
fn newcomer() -> BlockKey {
    block(1, 9)
}

/// A cache in which the next step evicts [`victim`] and lists [`newcomer`].
fn full_cache(machine: &Machine) -> SsdCache {
    let cache = machine.open(4);
    evict_dirty(&cache, victim(), 1);
    for n in [1, 2] {
        evict_clean(&cache, block(1, n), 0);
    }
    checkpoint(&cache);
    for n in [1, 2] {
        cached(&cache, block(1, n));
    }
    evict_dirty(&cache, newcomer(), 1);
    cache
}

/// Operations of the step by what they are: the position in the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    CopyOut,
    SyncOfCopy,
    SyncOfSlots,
    Listing,
    SyncOfListing,
    After,
}

const MOMENTS: [Moment; 6] = [
    Moment::CopyOut,
    Moment::SyncOfCopy,
    Moment::SyncOfSlots,
    Moment::Listing,
    Moment::SyncOfListing,
    Moment::After,
];

/// Crashes the step at `moment`, and gives every machine that may be found to `look`.
fn crash_at(moment: Moment, mut look: impl FnMut(&SsdCache, &Machine)) {
    let at = MOMENTS.iter().position(|&known| known == moment).unwrap() as u64;
    for (fast, large) in OUTCOMES {
        let machine = Machine::new(1);
        let cache = full_cache(&machine);
        assert_eq!(cache.stats().free_slots, 0);
        // The frame that says that the listing is durable comes last, and nothing depends on it.
        let at = at + u64::from(moment == Moment::After);
        machine.fast.crash_at(machine.fast.operations() + 1 + at);
        assert_eq!(cache.step().is_err(), moment != Moment::After);
        machine.fast.crash();
        let machine = machine.after_crash(fast, large);
        let cache = machine.open(4);
        // What was durable stays, whatever the moment is.
        assert_eq!(newest(&cache, victim()), 1);
        assert_eq!(newest(&cache, block(1, 1)), 0);
        assert!(newest(&cache, newcomer()) <= 1);
        look(&cache, &machine);
        // The log has the newcomer's change; the cache goes on.
        evict_dirty(&cache, newcomer(), 1);
        run_steps(&cache);
        checkpoint(&cache);
        drop(cache);
        let cache = machine.after_crash(0, 0).open(4);
        let versions = [victim(), block(1, 1), newcomer()].map(|block| newest(&cache, block));
        assert_eq!(versions, [1, 0, 1]);
    }
}

#[test]
fn the_step_has_the_operations_that_the_cases_name() {
    let machine = Machine::new(1);
    let cache = full_cache(&machine);
    let counts = |machine: &Machine| {
        let [fast, large] = [&machine.fast, &machine.large];
        [large.writes(), large.syncs(), fast.writes(), fast.syncs()]
    };
    let before = counts(&machine);
    cache.step().unwrap();
    let after = counts(&machine);
    let done: Vec<_> = after.iter().zip(before).map(|(a, b)| a - b).collect();
    // One copy and its sync; the frame and the one that says it is durable; slots and directory.
    assert_eq!(done, [1, 1, 2, 2]);
    assert_eq!(cached(&cache, victim()), None);
}

#[test]
fn crash_while_the_victim_is_copied_to_disk() {
    let mut torn = 0;
    crash_at(Moment::CopyOut, |cache, machine| {
        assert_eq!(cached(cache, victim()), Some(1));
        assert_eq!(cached(cache, newcomer()), None);
        torn += u64::from(machine.on_capacity(victim()) != Some(0));
    });
    crash_at(Moment::SyncOfCopy, |cache, machine| {
        assert_eq!(cached(cache, victim()), Some(1));
        torn += u64::from(machine.on_capacity(victim()).is_none());
    });
    assert!(torn > 0, "the copy on disk was torn or whole, and not read");
}

#[test]
fn crash_after_the_copy_and_before_the_invalidation() {
    crash_at(Moment::SyncOfSlots, |cache, machine| {
        assert_eq!(cached(cache, victim()), Some(1));
        assert_eq!(machine.on_capacity(victim()), Some(1));
    });
}

#[test]
fn crash_during_the_invalidation() {
    let mut found = BTreeSet::new();
    for moment in [Moment::Listing, Moment::SyncOfListing] {
        crash_at(moment, |cache, machine| {
            // Removal and listing are one frame: both or none.
            let (gone, here) = (cached(cache, victim()), cached(cache, newcomer()));
            assert_eq!(gone.is_none(), here.is_some());
            assert_eq!(machine.on_capacity(victim()), Some(1));
            found.insert(gone.is_none());
        });
    }
    assert_eq!(found.len(), 2, "done and not done");
}

#[test]
fn crash_directly_after_the_invalidation() {
    crash_at(Moment::After, |cache, machine| {
        assert_eq!(cached(cache, victim()), None);
        assert_eq!(machine.on_capacity(victim()), Some(1));
    });
}

#[test]
fn crash_while_the_new_page_is_copied_in() {
    for (fast, large) in OUTCOMES {
        let machine = Machine::new(1);
        let cache = full_cache(&machine);
        cache.step().unwrap();
        // The slot that the victim has left is written over.
        machine.fast.crash_at(machine.fast.operations() + 1);
        let evicted = cache.evict(block(1, 5), &content(block(1, 5), 1), true, Access::Random);
        evicted.unwrap_err();
        let machine = machine.after_crash(fast, large);
        let cache = machine.open(4);
        assert_eq!(cached(&cache, block(1, 5)), None);
        assert_eq!(newest(&cache, block(1, 5)), 0, "the log has version 1");
        assert_eq!(newest(&cache, victim()), 1);
        assert_eq!(newest(&cache, newcomer()), 1);
    }
}

#[test]
fn crash_after_copying_in_and_before_the_validation() {
    for (fast, large) in OUTCOMES {
        let machine = Machine::new(1);
        let cache = full_cache(&machine);
        cache.step().unwrap();
        assert_eq!(evict_dirty(&cache, block(1, 5), 1), Evicted::Cached);
        let cache = machine.after_crash(fast, large).open(4);
        assert_eq!(newest(&cache, block(1, 5)), 0, "the log has version 1");
        assert_eq!(newest(&cache, victim()), 1);
    }
}

#[test]
fn crash_after_the_validation() {
    crash_at(Moment::After, |cache, machine| {
        assert_eq!(cached(cache, newcomer()), Some(1));
        assert_eq!(machine.on_capacity(newcomer()), Some(0));
    });
}

#[test]
fn crash_while_a_fresh_page_is_overwritten_in_place() {
    let mut found = BTreeSet::new();
    for seed in 0..60 {
        let machine = Machine::new(1);
        let cache = full_cache(&machine);
        machine.fast.crash_at(machine.fast.operations() + 1);
        let bytes = content(victim(), 2);
        let evicted = cache.evict(victim(), &bytes, true, Access::Random);
        evicted.unwrap_err();
        let cache = machine.after_crash(seed, seed).open(4);
        match cache.read(victim(), Access::Random) {
            Ok(bytes) => {
                found.insert(version(victim(), &bytes.unwrap()));
            }
            Err(error) => {
                assert!(error.to_string().contains("file 1, offset 0"), "{error}");
                found.insert(None);
                // The image in the log repairs it.
                evict_dirty(&cache, victim(), 2);
                assert_eq!(cached(&cache, victim()), Some(2));
            }
        }
    }
    assert_eq!(found, [None, Some(1), Some(2)].into());
}

#[test]
fn crash_at_the_first_dirty_version_of_a_clean_page() {
    let clean = block(1, 1);
    for at in 1.. {
        let mut is_done = false;
        for (fast, large) in OUTCOMES {
            let machine = Machine::new(1);
            let cache = full_cache(&machine);
            cache.step().unwrap();
            machine.fast.crash_at(machine.fast.operations() + at);
            let evicted = cache.evict(clean, &content(clean, 1), true, Access::Random);
            is_done = evicted.is_ok() && cache.checkpoint().finish().is_ok();
            let machine = machine.after_crash(fast, large);
            let cache = machine.open(4);
            let expected = if is_done { 1..=1 } else { 0..=1 };
            let found = newest(&cache, clean);
            assert!(expected.contains(&found), "operation {at}");
            // A slot listed as clean equals the capacity tier.
            let entries = inspect(&*machine.device()).unwrap().unwrap().blocks;
            if entries.contains(&(clean, false)) {
                assert_eq!(machine.on_capacity(clean), Some(found));
            }
        }
        if is_done {
            return;
        }
    }
}

#[test]
fn crash_at_every_operation_of_an_opening() {
    for at in 1.. {
        let mut is_done = false;
        for (fast, large) in OUTCOMES {
            let machine = Machine::new(1);
            let cache = full_cache(&machine);
            checkpoint(&cache);
            drop(cache);
            machine.fast.crash_at(machine.fast.operations() + at);
            is_done = machine.open_with(settings(4)).is_ok();
            let machine = machine.after_crash(fast, large);
            let cache = machine.open(4);
            let versions = [victim(), block(1, 1), newcomer()].map(|block| cached(&cache, block));
            assert_eq!(versions, [Some(1), Some(0), Some(1)], "operation {at}");
        }
        if is_done {
            return;
        }
    }
}

/// A second crash comes while the directory that the first one has left is replaced.
#[test]
fn crash_at_every_operation_of_two_openings() {
    let opening = |machine: &Machine, at| {
        machine.fast.crash_at(machine.fast.operations() + at);
        machine.open_with(settings(4)).is_ok()
    };
    let first = Machine::new(1);
    let cache = full_cache(&first);
    checkpoint(&cache);
    drop(cache);
    for at in 1.. {
        let first = first.after_crash(0, 0);
        let is_done = opening(&first, at);
        for (fast, large) in OUTCOMES {
            for again in 1.. {
                let second = first.after_crash(fast, large);
                let is_opened = opening(&second, again);
                let cache = second.after_crash(large, fast).open(4);
                let versions = [victim(), newcomer()].map(|block| cached(&cache, block));
                assert_eq!(versions, [Some(1), Some(1)], "operations {at} and {again}");
                if is_opened {
                    break;
                }
            }
        }
        if is_done {
            return;
        }
    }
}
