//! Failing writes and syncs, and full tiers.

use strandline_base::{ErrorKind, SqlState};

use super::*;

#[test]
fn failed_syncs_end_all_writing_and_reads_go_on() {
    for disk in [0, 1] {
        let machine = Machine::new(1);
        let cache = machine.open(8);
        evict_dirty(&cache, block(1, 0), 1);
        checkpoint(&cache);
        evict_dirty(&cache, block(1, 0), 2);
        let bytes = content(block(1, 1), 1);
        let sequential = cache.evict(block(1, 1), &bytes, true, Access::Sequential);
        assert_eq!(sequential.unwrap(), Evicted::Written);
        [&machine.fast, &machine.large][disk].fail_sync(1);
        let error = cache.checkpoint().finish().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
        assert_eq!(error.sqlstate(), SqlState::IO_ERROR);
        cache.checkpoint().finish().unwrap_err();
        cache.step().unwrap_err();
        let evicted = cache.evict(block(1, 2), &bytes, true, Access::Random);
        assert_eq!(evicted.unwrap_err().kind(), ErrorKind::Closed);
        assert_eq!(evict_clean(&cache, block(1, 3), 0), Evicted::Dropped);
        assert_eq!(newest(&cache, block(1, 0)), 2);
        // After reopening the log's blocks are dirty again.
        drop(cache);
        let cache = machine.open(8);
        evict_dirty(&cache, block(1, 0), 2);
        evict_dirty(&cache, block(1, 1), 1);
        checkpoint(&cache);
        let cache = machine.after_crash(0, 0).open(8);
        let versions = [0, 1].map(|n| newest(&cache, block(1, n)));
        assert_eq!(versions, [2, 1]);
    }
}

#[test]
fn a_failed_sync_while_copying_out_loses_no_victim() {
    let machine = Machine::new(1);
    let cache = machine.open(4);
    for n in 0..4 {
        evict_dirty(&cache, block(1, n), 1);
    }
    checkpoint(&cache);
    machine.large.fail_sync(1);
    cache.step().unwrap_err();
    assert!((0..4).all(|n| cached(&cache, block(1, n)) == Some(1)));
    let cache = machine.after_crash(0, 0).open(4);
    assert!((0..4).all(|n| cached(&cache, block(1, n)) == Some(1)));
}

#[test]
fn a_failed_directory_write_is_repaired_by_a_new_directory() {
    // The frame, its sync, and the frame that says it is durable.
    for operation in 2..=4 {
        for seed in 0..4 {
            let machine = Machine::new(1);
            let cache = machine.open(8);
            evict_dirty(&cache, block(1, 0), 1);
            checkpoint(&cache);
            evict_dirty(&cache, block(1, 1), 1);
            machine.fast.fail_operation(operation);
            let error = cache.checkpoint().finish().unwrap_err();
            assert_ne!(error.kind(), ErrorKind::Closed, "{error}");
            assert_eq!(newest(&cache, block(1, 1)), 1);
            let crashed = machine.after_crash(seed, seed).open(8);
            assert_eq!(newest(&crashed, block(1, 0)), 1);
            checkpoint(&cache);
            assert_eq!(cache.stats().directory_rewrites, 2);
            let cache = machine.after_crash(0, 0).open(8);
            assert_eq!([0, 1].map(|n| cached(&cache, block(1, n))), [Some(1); 2]);
        }
    }
}

#[test]
fn slots_stay_taken_while_their_removal_is_not_durable() {
    for seed in 0..6 {
        let machine = Machine::new(1);
        let cache = machine.open(4);
        for n in 0..4 {
            evict_dirty(&cache, block(1, n), 1);
        }
        checkpoint(&cache);
        // The copy, its sync, the sync of the slots, and then the frame.
        machine.fast.fail_operation(4);
        cache.step().unwrap_err();
        assert_eq!(cache.stats().free_slots, 0);
        assert_eq!(evict_dirty(&cache, block(1, 9), 1), Evicted::Written);
        let crashed = machine.after_crash(seed, seed).open(4);
        assert!((0..4).all(|n| newest(&crashed, block(1, n)) == 1));
        run_steps(&cache);
        assert_eq!(evict_dirty(&cache, block(1, 9), 2), Evicted::Cached);
    }
}

#[test]
fn a_long_directory_is_written_anew() {
    let machine = Machine::new(1);
    let cache = machine.open(8);
    let mut n = 0;
    while cache.stats().directory_rewrites < 2 {
        n += 1;
        evict_dirty(&cache, block(1, n % 40), n);
        checkpoint(&cache);
        run_steps(&cache);
        assert!(n < 5_000);
    }
    drop(cache);
    let cache = machine.after_crash(0, 0).open(8);
    for back in 0..40.min(n) {
        let at = n - back;
        assert_eq!(newest(&cache, block(1, at % 40)), at);
    }
}

#[test]
fn a_failed_slot_write_falls_back_to_the_capacity_tier() {
    let machine = Machine::new(1);
    let cache = machine.open(8);
    machine.fast.fail_write(1);
    assert_eq!(evict_clean(&cache, block(1, 0), 0), Evicted::Dropped);
    machine.fast.fail_write(1);
    assert_eq!(evict_dirty(&cache, block(1, 1), 1), Evicted::Written);
    assert_eq!(cache.stats().free_slots, 6, "the slots are given up");
    evict_clean(&cache, block(1, 2), 0);
    evict_dirty(&cache, block(1, 3), 1);
    checkpoint(&cache);
    // The clean version stays listed until the capacity tier has the dirty one.
    machine.fast.fail_write(1);
    assert_eq!(evict_dirty(&cache, block(1, 2), 1), Evicted::Written);
    // Overwriting in place.
    machine.fast.fail_write(1);
    assert_eq!(evict_dirty(&cache, block(1, 3), 2), Evicted::Written);
    assert_eq!(cached(&cache, block(1, 3)), None);
    checkpoint(&cache);
    let cache = machine.after_crash(0, 0).open(8);
    let versions = [0, 1, 2, 3].map(|n| newest(&cache, block(1, n)));
    assert_eq!(versions, [0, 1, 1, 2]);
}

#[test]
fn a_slot_that_can_be_read_again_is_evicted_again() {
    let machine = Machine::new(1);
    let cache = machine.open(4);
    evict_dirty(&cache, block(1, 0), 1);
    evict_clean(&cache, block(1, 1), 0);
    checkpoint(&cache);
    machine.fast.fail_reads(SLOTS_FILE);
    let error = cache.read(block(1, 0), Access::Random).unwrap_err();
    assert_eq!(error.sqlstate(), SqlState::IO_ERROR);
    assert_eq!(
        cached(&cache, block(1, 1)),
        None,
        "the capacity tier has it"
    );
    cache.clean_idle(4).unwrap();
    assert_eq!(cache.stats().fresh_blocks, 1);
    machine.fast.mend_reads();
    let bytes = cache.read(block(1, 0), Access::Sequential).unwrap();
    assert_eq!(version(block(1, 0), &bytes.unwrap()), Some(1));
    cache.resize(0).unwrap();
    run_steps(&cache);
    assert_eq!((cache.stats().blocks, newest(&cache, block(1, 0))), (0, 1));
}

#[test]
fn both_writes_failing_is_an_error_and_no_stale_read() {
    let machine = Machine::new(1);
    let cache = machine.open(8);
    evict_dirty(&cache, block(1, 0), 1);
    checkpoint(&cache);
    machine.fast.fail_write(1);
    machine.large.fail_write(1);
    let bytes = content(block(1, 0), 2);
    let evicted = cache.evict(block(1, 0), &bytes, true, Access::Random);
    evicted.unwrap_err();
    match cache.read(block(1, 0), Access::Random) {
        Ok(bytes) => assert!(bytes.is_some(), "not the capacity tier's older version"),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt),
    }
    evict_dirty(&cache, block(1, 0), 2);
    checkpoint(&cache);
    assert_eq!(newest(&machine.after_crash(0, 0).open(8), block(1, 0)), 2);
}

#[test]
fn a_block_whose_write_to_disk_is_not_synced_is_not_admitted_clean() {
    let machine = Machine::new(1);
    let cache = machine.open(8);
    let bytes = content(block(1, 0), 1);
    let written = cache.evict(block(1, 0), &bytes, true, Access::Sequential);
    assert_eq!(written.unwrap(), Evicted::Written);
    assert_eq!(evict_clean(&cache, block(1, 0), 1), Evicted::Dropped);
    checkpoint(&cache);
    assert_eq!(evict_clean(&cache, block(1, 0), 1), Evicted::Cached);
}

#[test]
fn a_full_fast_tier_makes_a_smaller_cache_and_refuses_growth() {
    let machine = Machine::new(1);
    machine.fast.limit_capacity(Some(1_000));
    // Without room for a directory the cache is opened, and nothing of it becomes durable.
    let cache = machine.open(8);
    assert_eq!(cache.stats().slots, 0);
    assert_eq!(evict_dirty(&cache, block(1, 0), 1), Evicted::Written);
    let error = cache.checkpoint().finish().unwrap_err();
    assert_eq!(error.sqlstate(), SqlState::DISK_FULL);
    machine.fast.limit_capacity(None);
    checkpoint(&cache);
    drop(cache);
    let cache = machine.open(8);
    evict_dirty(&cache, block(1, 0), 1);
    checkpoint(&cache);
    machine.fast.limit_capacity(Some(machine.fast.used_bytes()));
    let error = cache.resize(100 * u64::from(SLOT_BYTES)).unwrap_err();
    assert_eq!(error.sqlstate(), SqlState::DISK_FULL);
    assert_eq!(cache.stats().slots, 8);
    for n in 0..20 {
        evict_dirty(&cache, block(1, n), 2);
        run_steps(&cache);
    }
    checkpoint(&cache);
    drop(cache);
    machine
        .fast
        .limit_capacity(Some(machine.fast.used_bytes() + 1_000_000));
    let cache = machine.open(10_000);
    let (slot, slots) = (u64::from(SLOT_BYTES), cache.stats().slots);
    let most = 8 + 1_000_000 / slot;
    assert!((most / 2..=most * 3 / 4).contains(&slots), "{slots}");
    assert_eq!(cache.smaller_than(10_000 * slot), Some(slots * slot));
    assert_eq!(cache.smaller_than((slots + 1) * slot - 1), None);
    evict_dirty(&cache, block(1, 20), 2);
    checkpoint(&cache);
    assert!((0..20).all(|n| newest(&cache, block(1, n)) == 2));
}

#[test]
fn a_full_capacity_tier_keeps_victims_in_the_cache() {
    let machine = Machine::new(1);
    let cache = machine.open(4);
    let far = |n| block(1, FILE_BLOCKS + n);
    for n in 0..4 {
        evict_dirty(&cache, far(n), 1);
    }
    checkpoint(&cache);
    machine
        .large
        .limit_capacity(Some(machine.large.used_bytes()));
    let error = cache.step().unwrap_err();
    assert_eq!(error.sqlstate(), SqlState::DISK_FULL);
    let bytes = content(far(5), 1);
    let evicted = cache.evict(far(5), &bytes, true, Access::Random);
    assert_eq!(evicted.unwrap_err().sqlstate(), SqlState::DISK_FULL);
    assert!((0..4).all(|n| cached(&cache, far(n)) == Some(1)));
    assert_eq!(evict_dirty(&cache, far(0), 2), Evicted::Cached);
    machine.large.limit_capacity(None);
    run_steps(&cache);
    assert_eq!(evict_dirty(&cache, far(5), 1), Evicted::Cached);
    checkpoint(&cache);
    let cache = machine.after_crash(0, 0).open(4);
    let versions = [0, 1, 2, 3, 5].map(|n| newest(&cache, far(n)));
    assert_eq!(versions, [2, 1, 1, 1, 1]);
}
