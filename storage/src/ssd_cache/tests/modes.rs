//! The modes: batches, lazy cleaning, off, and changes between them.

use super::*;

fn with_mode(mode: Mode, slots: u32) -> Settings {
    Settings {
        mode,
        ..settings(slots)
    }
}

/// A cache of 16 slots of which 12 have fresh blocks and 4 are kept free.
fn three_quarters_fresh(mode: Mode) -> (Machine, SsdCache) {
    let machine = Machine::new(1);
    let settings = Settings {
        free_slots: 4,
        ..with_mode(mode, 16)
    };
    let cache = machine.open_with(settings).unwrap();
    for n in 0..12 {
        evict_dirty(&cache, block(1, n), 1);
    }
    checkpoint(&cache);
    run_steps(&cache);
    assert_eq!(cache.stats().copied_out, 0);
    (machine, cache)
}

#[test]
fn pc2_copies_a_batch_out_for_the_first_slot_that_is_short() {
    let counts = |mode| {
        let (_machine, cache) = three_quarters_fresh(mode);
        let before = cache.stats();
        for n in 12..20 {
            evict_dirty(&cache, block(1, n), 1);
            run_steps(&cache);
        }
        let after = cache.stats();
        let syncs = after.capacity_syncs - before.capacity_syncs;
        (syncs, after.copied_out - before.copied_out)
    };
    assert_eq!((counts(Mode::Pc), counts(Mode::Pc2)), ((8, 8), (2, 8)));
}

#[test]
fn pc_copies_out_a_fresh_victim_for_each_admission_under_one_sync() {
    let (_machine, cache) = three_quarters_fresh(Mode::Pc);
    for admissions in 1..=4 {
        let before = cache.stats();
        for n in 0..admissions {
            evict_dirty(&cache, block(1, 100 * admissions + n), 1);
        }
        assert!(cache.is_step_due());
        cache.step().unwrap();
        let after = cache.stats();
        assert_eq!(after.copied_out - before.copied_out, admissions);
        assert_eq!(after.capacity_syncs - before.capacity_syncs, 1);
        assert_eq!(after.bypasses, 0);
        // The admissions were not listed when the round chose its victims.
        run_steps(&cache);
        assert_eq!(cache.stats().free_slots, 4);
    }
}

/// Block `n` of those that adjoin each other in their file.
fn adjacent(n: u64) -> BlockKey {
    BlockKey {
        offset: n * u64::from(LEN),
        ..block(1, 0)
    }
}

#[test]
fn a_fresh_victim_takes_its_fresh_neighbours_along_which_stay() {
    let machine = Machine::new(1);
    let settings = Settings {
        free_slots: 1,
        ..with_mode(Mode::Pc, 16)
    };
    let cache = machine.open_with(settings).unwrap();
    // Block 5 is the first one in, so the first victim; 3 to 8 adjoin it, 1 and 10 do not.
    for n in [5, 3, 4, 6, 7, 8, 1, 10] {
        evict_dirty(&cache, adjacent(n), n);
    }
    for n in 20..28 {
        evict_clean(&cache, block(1, n), 0);
    }
    checkpoint(&cache);
    let before = cache.stats();
    run_steps(&cache);
    let after = cache.stats();
    assert_eq!(after.evictions - before.evictions, 1);
    assert_eq!(after.copied_out - before.copied_out, 6);
    assert_eq!(after.capacity_syncs - before.capacity_syncs, 1);
    assert_eq!(after.fresh_blocks, 2, "1 and 10");
    let changes = after.directory_changes - before.directory_changes;
    assert_eq!(changes, 1, "the victim's removal");
    for n in 3..=8 {
        assert_eq!(machine.on_capacity(adjacent(n)), Some(n));
        let expected = (n != 5).then_some(n);
        assert_eq!(cached(&cache, adjacent(n)), expected);
    }
    assert_eq!(machine.on_capacity(adjacent(1)), None);
    // The directory lists a neighbour as fresh still: its next dirty version may overwrite it.
    evict_dirty(&cache, adjacent(4), 9);
    checkpoint(&cache);
    assert_eq!(cache.stats().overwrites, before.overwrites + 1);
    let cache = machine.after_crash(1, 2).open_with(settings).unwrap();
    assert_eq!(newest(&cache, adjacent(4)), 9);
    assert_eq!(newest(&cache, adjacent(6)), 6);
}

#[test]
fn a_neighbour_that_is_not_listed_is_not_copied_out() {
    let machine = Machine::new(1);
    let settings = Settings {
        free_slots: 1,
        ..with_mode(Mode::Pc, 8)
    };
    let cache = machine.open_with(settings).unwrap();
    for n in 0..7 {
        evict_dirty(&cache, adjacent(2 * n), 1);
    }
    checkpoint(&cache);
    // It comes after the checkpoint that lists the others.
    evict_dirty(&cache, adjacent(1), 1);
    cache.step().unwrap();
    assert_eq!(machine.on_capacity(adjacent(0)), Some(1), "the victim");
    assert_eq!(machine.on_capacity(adjacent(1)), None);
    assert_eq!(machine.on_capacity(adjacent(2)), None);
}

#[test]
fn lazy_cleaning_copies_everything_out_at_a_checkpoint_and_keeps_nothing_over_a_crash() {
    let machine = Machine::new(1);
    let cache = machine.open_with(with_mode(Mode::Lc, 16)).unwrap();
    for n in 0..6 {
        evict_dirty(&cache, block(1, n), 1);
        evict_dirty(&cache, block(1, n), 2);
    }
    assert_eq!(cache.stats().fresh_blocks, 6);
    let before = cache.stats();
    checkpoint(&cache);
    let after = cache.stats();
    assert_eq!(after.copied_out - before.copied_out, 6);
    assert_eq!((after.fresh_blocks, after.blocks), (0, 6));
    assert_eq!(after.directory_writes, 0);
    let next = content(block(1, 0), 3);
    let checkpoint = cache.checkpoint();
    assert_eq!(
        checkpoint.write(block(1, 0), &next).unwrap(),
        Evicted::Written
    );
    checkpoint.finish().unwrap();
    assert_eq!(cached(&cache, block(1, 0)), Some(3));
    let machine = machine.after_crash(0, 0);
    let cache = machine.open_with(with_mode(Mode::Lc, 16)).unwrap();
    assert_eq!(cache.stats().blocks, 0);
    assert_eq!(newest(&cache, block(1, 0)), 3);
    assert!((1..6).all(|n| newest(&cache, block(1, n)) == 2));
}

/// A checkpoint that leaves a block out would let the caller cut the log that can repair it.
#[test]
fn lazy_cleaning_ends_no_checkpoint_while_a_fresh_slot_is_damaged() {
    let machine = Machine::new(1);
    let cache = machine.open_with(with_mode(Mode::Lc, 16)).unwrap();
    evict_dirty(&cache, block(1, 0), 1);
    machine.fast.flip_bits(SLOTS_FILE, 50, 1);
    for _ in 0..3 {
        let error = cache.checkpoint().finish().unwrap_err();
        assert!(error.message().contains("file 1, offset 0"), "{error}");
    }
    evict_dirty(&cache, block(1, 0), 2);
    checkpoint(&cache);
    assert_eq!(machine.on_capacity(block(1, 0)), Some(2));
}

#[test]
fn lazy_cleaning_begins_above_its_threshold() {
    let machine = Machine::new(1);
    let cache = machine.open_with(with_mode(Mode::Lc, 16)).unwrap();
    for n in 0..8 {
        evict_dirty(&cache, block(1, n), 1);
    }
    run_steps(&cache);
    assert_eq!(cache.stats().copied_out, 0);
    evict_dirty(&cache, block(1, 8), 1);
    assert!(cache.is_step_due());
    run_steps(&cache);
    let stats = cache.stats();
    assert!(stats.copied_out > 0 && stats.fresh_blocks <= 8, "{stats:?}");
    assert_eq!(stats.blocks, 9, "cleaned blocks stay");
}

#[test]
fn off_passes_everything_on_and_makes_no_file() {
    let machine = Machine::new(1);
    let cache = machine.open_with(with_mode(Mode::Off, 16)).unwrap();
    assert_eq!(evict_dirty(&cache, block(1, 0), 1), Evicted::Written);
    assert_eq!(evict_clean(&cache, block(1, 1), 0), Evicted::Dropped);
    let bytes = content(block(1, 2), 1);
    let checkpoint = cache.checkpoint();
    assert_eq!(
        checkpoint.write(block(1, 2), &bytes).unwrap(),
        Evicted::Written
    );
    checkpoint.finish().unwrap();
    assert!(!cache.is_step_due() && !cache.step().unwrap());
    assert_eq!(cached(&cache, block(1, 0)), None);
    let machine = machine.after_crash(0, 0);
    assert!(machine.fast.device().list().unwrap().is_empty());
    assert_eq!(
        [0, 2].map(|n| machine.on_capacity(block(1, n))),
        [Some(1); 2]
    );
}

#[test]
fn leaving_a_persistent_mode_copies_fresh_blocks_out_first() {
    for mode in [Mode::Lc, Mode::Off] {
        for at in 1.. {
            let machine = Machine::new(2);
            let cache = machine.open(16);
            for n in 0..6 {
                evict_dirty(&cache, block(1 + n % 2, n), 1);
            }
            checkpoint(&cache);
            drop(cache);
            machine.fast.crash_at(machine.fast.operations() + at);
            let is_done = machine.open_with(with_mode(mode, 16)).is_ok();
            for (fast, large) in [(0, 0), (1, 0), (0, 1), (1, 1), (5, 6)] {
                let machine = machine.after_crash(fast, large);
                let cache = machine.open(16);
                assert!((0..6).all(|n| newest(&cache, block(1 + n % 2, n)) == 1));
            }
            if is_done {
                let names = machine.fast.device();
                let machine = machine.after_crash(0, 0);
                assert!((0..6).all(|n| machine.on_capacity(block(1 + n % 2, n)) == Some(1)));
                drop(names);
                break;
            }
        }
    }
}

#[test]
fn another_slot_size_waits_until_nothing_is_fresh() {
    let machine = Machine::new(1);
    let cache = machine.open(16);
    evict_dirty(&cache, block(1, 0), 1);
    evict_clean(&cache, block(1, 1), 0);
    checkpoint(&cache);
    drop(cache);
    let larger = Settings {
        slot_bytes: 1_024,
        ..settings(16)
    };
    let cache = machine.open_with(larger).unwrap();
    assert_eq!(cached(&cache, block(1, 0)), Some(1));
    assert_eq!(cached(&cache, block(1, 1)), Some(0));
    drop(cache);
    let off = with_mode(Mode::Off, 16);
    drop(machine.open_with(off).unwrap());
    let cache = machine.open_with(larger).unwrap();
    assert_eq!(newest(&cache, block(1, 0)), 1);
    assert_eq!(cache.stats().slots, 8);
}

#[test]
fn a_wrong_slot_size_is_refused() {
    let machine = Machine::new(1);
    for slot_bytes in [0, 100, 513] {
        let wrong = Settings {
            slot_bytes,
            ..settings(8)
        };
        let error = machine.open_with(wrong).unwrap_err();
        assert!(error.message().contains(&slot_bytes.to_string()), "{error}");
    }
}
