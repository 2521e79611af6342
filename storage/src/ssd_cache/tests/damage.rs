//! Damage of every byte, lost and stale files.

use strandline_base::{ErrorKind, SqlState};

use super::*;

/// A closed cache with a clean block 0, a fresh block 1, and a block 2 whose listing is the last.
fn closed(machine: &Machine, has_fresh: bool) {
    let cache = machine.open(8);
    evict_clean(&cache, block(1, 0), 0);
    checkpoint(&cache);
    if has_fresh {
        evict_dirty(&cache, block(1, 1), 1);
        checkpoint(&cache);
    }
    evict_clean(&cache, block(1, 2), 0);
    checkpoint(&cache);
}

/// Reads all blocks: each is right, or refused. Returns whether one was refused.
fn all_right_or_refused(machine: &Machine, has_fresh: bool, place: &str) -> bool {
    let cache = match machine.open_with(settings(8)) {
        Ok(cache) => cache,
        Err(error) => {
            let known = [ErrorKind::Corrupt, ErrorKind::Unsupported];
            assert!(known.contains(&error.kind()), "{place}: {error}");
            assert!(
                has_fresh || error.kind() == ErrorKind::Unsupported,
                "{place}: {error}"
            );
            return true;
        }
    };
    let mut is_refused = false;
    for n in 0..4 {
        match cache.read_through(block(1, n), Access::Random) {
            Ok(bytes) => {
                let expected = u64::from(n == 1 && has_fresh);
                assert_eq!(version(block(1, n), &bytes), Some(expected), "{place}");
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{place}: {error}");
                let offset = block(1, 1).offset;
                let name = format!("file 1, offset {offset}");
                assert!(error.message().contains(&name), "{place}: {error}");
                is_refused = true;
            }
        }
    }
    is_refused
}

#[test]
fn damage_of_every_byte_is_found_or_harmless() {
    for has_fresh in [true, false] {
        let machine = Machine::new(1);
        closed(&machine, has_fresh);
        for (disk, name) in [
            (&machine.fast, SLOTS_FILE),
            (&machine.fast, DIRECTORY_FILE),
            (&machine.large, MARKER_FILE),
        ] {
            let bytes = disk.content(name).unwrap().len().min(2_048) as u64;
            let mut refused = 0;
            for at in 0..bytes {
                let copy = machine.after_crash(0, 0);
                let disk = match name == MARKER_FILE {
                    true => &copy.large,
                    false => &copy.fast,
                };
                disk.flip_bits(name, at, 1 << (at % 8));
                let place = format!("{name}, byte {at}");
                refused += u64::from(all_right_or_refused(&copy, has_fresh, &place));
            }
            match name {
                SLOTS_FILE if has_fresh => assert!(refused >= u64::from(LEN), "{refused}"),
                DIRECTORY_FILE if has_fresh => assert!(refused > 64, "{refused}"),
                // The version is outside of what damage can be told from.
                _ => assert!(refused <= 8, "{name}: {refused}"),
            }
        }
    }
}

#[test]
fn a_cut_file_is_found() {
    let machine = Machine::new(1);
    closed(&machine, true);
    for (name, share) in [(SLOTS_FILE, 8), (DIRECTORY_FILE, 2), (DIRECTORY_FILE, 200)] {
        for cut in [0, 1] {
            let copy = machine.after_crash(0, 0);
            let file = copy.fast.device().open(name).unwrap();
            file.set_len(file.len().unwrap() / share * cut).unwrap();
            let error = copy.open_with(settings(8)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            assert!(error.message().contains("files 1"), "{error}");
        }
    }
}

#[test]
fn a_lost_cache_is_replaced_only_if_nothing_in_it_was_fresh() {
    for name in [SLOTS_FILE, DIRECTORY_FILE] {
        let machine = Machine::new(1);
        closed(&machine, false);
        machine.fast.device().remove(name).unwrap();
        let cache = machine.open(8);
        assert_eq!(cache.stats().replaced, 1);
        assert_eq!((cache.stats().blocks, newest(&cache, block(1, 0))), (0, 0));
        drop(cache);
        assert_eq!(machine.open(8).stats().replaced, 0);

        let machine = Machine::new(1);
        closed(&machine, true);
        machine.fast.device().remove(name).unwrap();
        let error = machine.open_with(settings(8)).unwrap_err();
        assert_eq!(error.sqlstate(), SqlState::DATA_CORRUPTED);
        let block_name = block(1, 1).to_string();
        assert!(error.message().contains(&block_name), "{error}");
        assert!(error.detail().is_some() && error.hint().is_some());
        // Nothing was changed: the same again, until the operator gives the newer versions up.
        machine.open_with(settings(8)).unwrap_err();
        let settings = Settings {
            on_loss: OnLoss::Discard,
            ..settings(8)
        };
        let cache = machine.open_with(settings).unwrap();
        assert_eq!(newest(&cache, block(1, 1)), 0);
        drop(cache);
        machine.open(8);
    }
}

#[test]
fn both_files_lost_names_the_files_of_the_marker() {
    let machine = Machine::new(1);
    closed(&machine, true);
    for name in [SLOTS_FILE, DIRECTORY_FILE] {
        machine.fast.device().remove(name).unwrap();
    }
    let error = machine.open_with(settings(8)).unwrap_err();
    assert!(error.message().contains("files 1"), "{error}");
}

#[test]
fn what_was_fresh_and_is_copied_out_may_be_lost() {
    let machine = Machine::new(1);
    closed(&machine, true);
    let cache = machine.open(8);
    assert_eq!(cache.clean_idle(8).unwrap(), 1);
    checkpoint(&cache);
    drop(cache);
    machine.fast.device().remove(SLOTS_FILE).unwrap();
    machine.fast.device().remove(DIRECTORY_FILE).unwrap();
    let cache = machine.open(8);
    assert_eq!(
        (cache.stats().replaced, newest(&cache, block(1, 1))),
        (1, 1)
    );
}

#[test]
fn a_stale_copy_a_foreign_cache_and_a_missing_marker_are_refused() {
    let machine = Machine::new(1);
    closed(&machine, true);
    let copy = machine.after_crash(0, 0);
    drop(machine.open(8));
    let mixed = Machine {
        fast: copy.fast.clone(),
        large: machine.large.after_crash(0),
    };
    let error = mixed.open_with(settings(8)).unwrap_err();
    assert!(error.detail().unwrap().contains("an old copy"), "{error}");

    let other = Settings {
        identity: 7,
        ..settings(8)
    };
    let error = machine.open_with(other).unwrap_err();
    assert!(
        error.detail().unwrap().contains("another database"),
        "{error}"
    );

    machine.large.device().remove(MARKER_FILE).unwrap();
    let error = machine.open_with(settings(8)).unwrap_err();
    assert!(error.detail().unwrap().contains("is missing"), "{error}");
}

#[test]
fn a_damaged_clean_slot_is_read_from_the_capacity_tier_and_counted() {
    let machine = Machine::new(1);
    closed(&machine, true);
    // Block 0 is in the first slot, block 1 in the second one.
    for slot in [0, 1] {
        let at = slot * u64::from(SLOT_BYTES) + 60;
        machine.fast.flip_bits(SLOTS_FILE, at, 4);
    }
    let found = inspect(&*machine.device()).unwrap().expect("a cache");
    assert_eq!(found.problems.len(), 2, "{:?}", found.problems);
    let cache = machine.open(8);
    assert_eq!(newest(&cache, block(1, 0)), 0);
    assert_eq!(newest(&cache, block(1, 0)), 0);
    assert_eq!(cache.stats().damaged_clean, 1);
    let error = cache.read(block(1, 1), Access::Random).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert_eq!(cache.stats().damaged_fresh, 1);
    // It never leaves silently: neither as a victim nor by cleaning.
    for n in 2..20 {
        evict_clean(&cache, block(1, n), 0);
        run_steps(&cache);
    }
    cache.read(block(1, 1), Access::Random).unwrap_err();
    evict_dirty(&cache, block(1, 1), 2);
    assert_eq!(newest(&cache, block(1, 1)), 2);
}

#[test]
fn a_block_in_another_slot_is_damage() {
    let machine = Machine::new(1);
    closed(&machine, true);
    let file = machine.fast.device().open(SLOTS_FILE).unwrap();
    let mut slot = vec![0; SLOT_BYTES as usize];
    file.read_exact_at(&mut slot, u64::from(SLOT_BYTES))
        .unwrap();
    let slots =
        crate::ssd_cache::slots::SlotFile::open(&*machine.device(), IDENTITY, SLOT_BYTES).unwrap();
    slots.read(1, block(1, 1)).unwrap();
    file.write_all_at(&slot, 5 * u64::from(SLOT_BYTES)).unwrap();
    let error = slots.read(5, block(1, 1)).unwrap_err();
    assert!(error.message().contains("checksum"), "{error}");
}
