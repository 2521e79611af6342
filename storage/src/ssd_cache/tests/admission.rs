//! Which blocks are taken, the clock, the directory's occasions, warmth after a restart.

use super::*;

#[test]
fn random_blocks_enter_and_sequential_ones_do_not() {
    let machine = Machine::new(1);
    let cache = machine.open(16);
    let sequential = |n, dirty, version| {
        let bytes = content(block(1, n), version);
        let access = Access::Sequential;
        cache.evict(block(1, n), &bytes, dirty, access).unwrap()
    };
    assert_eq!(evict_clean(&cache, block(1, 0), 0), Evicted::Cached);
    assert_eq!(evict_dirty(&cache, block(1, 1), 1), Evicted::Cached);
    assert_eq!(sequential(2, false, 0), Evicted::Dropped);
    assert_eq!(sequential(3, true, 1), Evicted::Written);
    assert_eq!(machine.on_capacity(block(1, 3)), Some(1));
    // A dirty sequential block with an older version in the cache stays there.
    assert_eq!(sequential(1, true, 2), Evicted::Cached);
    assert_eq!(sequential(0, true, 1), Evicted::Cached);
    assert_eq!(machine.on_capacity(block(1, 1)), Some(0));
    let versions = [0, 1, 2, 3].map(|n| cached(&cache, block(1, n)));
    assert_eq!(versions, [Some(1), Some(2), None, None]);
    let stats = cache.stats();
    assert_eq!((stats.hits, stats.misses), (2, 2));
    assert_eq!(
        (stats.blocks, stats.fresh_blocks, stats.bypasses),
        (2, 2, 1)
    );
    cache.set_admission(Admission::Nothing);
    assert_eq!(evict_dirty(&cache, block(1, 5), 1), Evicted::Written);
    assert_eq!(evict_dirty(&cache, block(1, 1), 3), Evicted::Cached);
    cache.set_admission(Admission::Everything);
    assert_eq!(sequential(6, false, 0), Evicted::Cached);
}

/// Admission, eviction, and the first dirty version of a clean block; nothing else.
#[test]
fn the_directory_is_written_on_three_occasions_only() {
    let machine = Machine::new(1);
    let cache = machine.open(8);
    let changes = || cache.stats().directory_changes;
    evict_clean(&cache, block(1, 0), 0);
    evict_dirty(&cache, block(1, 1), 1);
    checkpoint(&cache);
    assert_eq!(changes(), 2, "admissions");
    for version in 2..10 {
        cached(&cache, block(1, 0));
        evict_clean(&cache, block(1, 0), 0);
        evict_dirty(&cache, block(1, 1), version);
        let next = content(block(1, 1), version);
        cache.checkpoint().write(block(1, 1), &next).unwrap();
        checkpoint(&cache);
    }
    assert_eq!(cache.clean_idle(10).unwrap(), 0, "it was touched");
    assert_eq!(changes(), 2, "hits and overwriting in place");
    evict_dirty(&cache, block(1, 0), 1);
    checkpoint(&cache);
    assert_eq!(changes(), 3, "the first dirty version of a clean block");
    evict_dirty(&cache, block(1, 0), 2);
    checkpoint(&cache);
    assert_eq!(changes(), 3);
    // Cleaning does not write it, and the next dirty version neither.
    evict_dirty(&cache, block(1, 2), 1);
    checkpoint(&cache);
    assert_eq!((cache.clean_idle(10).unwrap(), changes()), (1, 4));
    assert_eq!(machine.on_capacity(block(1, 2)), Some(1));
    evict_dirty(&cache, block(1, 2), 2);
    checkpoint(&cache);
    assert_eq!((cache.stats().fresh_blocks, changes()), (3, 4));
    for n in 3..8 {
        evict_clean(&cache, block(1, n), 0);
    }
    run_steps(&cache);
    assert!(cache.stats().evictions > 0);
    let stats = cache.stats();
    let one_change_each = stats.admissions + stats.evictions;
    assert_eq!(stats.directory_changes, one_change_each, "{stats:?}");
}

#[test]
fn the_clock_spares_what_was_touched_and_evicts_the_rest_in_order() {
    let machine = Machine::new(1);
    let cache = machine.open(8);
    for n in 0..8 {
        assert_eq!(evict_clean(&cache, block(1, n), 0), Evicted::Cached);
    }
    assert_eq!(evict_clean(&cache, block(1, 8), 0), Evicted::Dropped);
    assert_eq!(cache.stats().refusals, 1);
    checkpoint(&cache);
    cached(&cache, block(1, 0));
    cached(&cache, block(1, 2));
    assert!(cache.is_step_due());
    run_steps(&cache);
    assert!(!cache.is_step_due());
    assert_eq!(cache.stats().free_slots, 2);
    let kept = (0..8).filter(|&n| cached(&cache, block(1, n)).is_some());
    assert_eq!(kept.collect::<Vec<_>>(), [0, 2, 4, 5, 6, 7]);
}

#[test]
fn a_fresh_victim_is_copied_out_and_a_clean_one_is_not() {
    let machine = Machine::new(1);
    let cache = machine.open(4);
    evict_dirty(&cache, block(1, 0), 1);
    for n in 1..4 {
        evict_clean(&cache, block(1, n), 0);
    }
    checkpoint(&cache);
    assert_eq!(machine.on_capacity(block(1, 0)), Some(0));
    run_steps(&cache);
    assert_eq!(machine.on_capacity(block(1, 0)), Some(1));
    let stats = cache.stats();
    assert_eq!((stats.evictions, stats.copied_out), (1, 1));
    assert_eq!(newest(&cache, block(1, 0)), 1);
}

#[test]
fn a_checkpoint_fills_then_overwrites_in_place_then_goes_to_the_capacity_tier() {
    let machine = Machine::new(1);
    let cache = machine.open(8);
    let checkpoint = cache.checkpoint();
    let write = |n, version| {
        let bytes = content(block(1, n), version);
        checkpoint.write(block(1, n), &bytes).unwrap()
    };
    for n in 0..6 {
        assert_eq!(write(n, 1), Evicted::Cached, "filling, {n}");
    }
    assert_eq!(write(6, 1), Evicted::Written, "the slots kept ahead");
    assert_eq!(write(0, 2), Evicted::Cached, "in place");
    checkpoint.finish().unwrap();
    assert_eq!(cache.stats().copied_out, 0, "nothing from the SSD to disk");
    assert_eq!(cache.stats().overwrites, 1);
    let machine = machine.after_crash(0, 0);
    let cache = machine.open(8);
    assert_eq!(newest(&cache, block(1, 0)), 2);
    assert_eq!(newest(&cache, block(1, 5)), 1);
    assert_eq!(newest(&cache, block(1, 6)), 1);
}

#[test]
fn many_clean_blocks_become_dirty_in_one_checkpoint() {
    let machine = Machine::new(1);
    let cache = machine.open(16);
    for n in 0..14 {
        evict_clean(&cache, block(1, n), 0);
    }
    run_steps(&cache);
    let checkpoint = cache.checkpoint();
    for n in 0..14 {
        let bytes = content(block(1, n), 1);
        assert_eq!(
            checkpoint.write(block(1, n), &bytes).unwrap(),
            Evicted::Cached,
            "a round gives the slots of the clean versions back"
        );
    }
    checkpoint.finish().unwrap();
    assert_eq!(cache.stats().bypasses, 0);
    let cache = machine.after_crash(0, 0).open(16);
    assert!((0..14).all(|n| cached(&cache, block(1, n)) == Some(1)));
}

#[test]
fn the_cache_is_warm_after_a_restart_and_after_a_crash() {
    let machine = Machine::new(1);
    let cache = machine.open(16);
    for n in 0..5 {
        evict_clean(&cache, block(1, n), 0);
    }
    for n in 5..10 {
        evict_dirty(&cache, block(1, n), 1);
    }
    checkpoint(&cache);
    drop(cache);
    for machine in [machine.clone(), machine.after_crash(0, 0)] {
        let cache = machine.open(16);
        let stats = cache.stats();
        assert_eq!((stats.blocks, stats.fresh_blocks), (10, 5));
        assert!((0..10).all(|n| cached(&cache, block(1, n)) == Some(u64::from(n >= 5))));
        let found = inspect(&*machine.device()).unwrap().expect("a cache");
        assert_eq!((found.blocks.len(), found.fresh_files), (10, vec![1]));
        assert!(found.problems.is_empty(), "{:?}", found.problems);
    }
}

#[test]
fn large_blocks_take_adjacent_slots_and_get_them_in_a_full_cache() {
    let machine = Machine::new(1);
    let cache = machine.open(16);
    let large = BlockKey {
        len: 1_900,
        ..block(1, 40)
    };
    for n in 0..16 {
        evict_clean(&cache, block(1, n), 0);
    }
    run_steps(&cache);
    // Every second block stays.
    let bytes = content(large, 0);
    let evict = || cache.evict(large, &bytes, false, Access::Random).unwrap();
    assert_eq!(evict(), Evicted::Dropped);
    for _ in 0..8 {
        (0..16)
            .step_by(2)
            .for_each(|n| _ = cached(&cache, block(1, n)));
        cache.step().unwrap();
        if evict() == Evicted::Cached {
            break;
        }
    }
    assert_eq!(newest(&cache, large), 0);
    assert!(cache.read(large, Access::Random).unwrap().is_some());
    checkpoint(&cache);
    let cache = machine.after_crash(0, 0).open(16);
    assert!(cache.read(large, Access::Random).unwrap().is_some());
    let too_large = BlockKey {
        len: 9_000,
        ..block(1, 50)
    };
    let bytes = content(too_large, 1);
    let evicted = cache.evict(too_large, &bytes, true, Access::Random);
    assert_eq!(evicted.unwrap(), Evicted::Written);
}

#[test]
fn a_forgotten_file_is_gone_also_after_a_crash() {
    let machine = Machine::new(2);
    let cache = machine.open(16);
    for file in [1, 2] {
        evict_clean(&cache, block(file, 0), 0);
        evict_dirty(&cache, block(file, 1), 1);
    }
    checkpoint(&cache);
    evict_dirty(&cache, block(1, 2), 1);
    evict_dirty(&cache, block(1, 0), 1);
    cache.forget_file(1);
    assert_eq!(cache.files().into_iter().collect::<Vec<_>>(), [2]);
    assert_eq!(cache.stats().fresh_blocks, 1);
    checkpoint(&cache);
    assert_eq!(cache.stats().free_slots, 14);
    let machine = machine.after_crash(0, 0);
    let cache = machine.open(16);
    assert_eq!(cache.files().into_iter().collect::<Vec<_>>(), [2]);
    let found = inspect(&*machine.device()).unwrap().expect("a cache");
    assert_eq!(found.fresh_files, [2]);
}
