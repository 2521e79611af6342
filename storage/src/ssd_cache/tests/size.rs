//! Changes of the size at run time.

use super::*;

fn bytes_of(slots: u64) -> u64 {
    slots * u64::from(SLOT_BYTES)
}

#[test]
fn a_reduced_cache_empties_itself_and_gives_the_space_back() {
    let machine = Machine::new(1);
    let cache = machine.open(16);
    for n in 0..14 {
        evict_dirty(&cache, block(1, n), 1);
    }
    checkpoint(&cache);
    cache.resize(bytes_of(4)).unwrap();
    assert!(cache.is_step_due());
    assert!((0..14).all(|n| cached(&cache, block(1, n)) == Some(1)));
    run_steps(&cache);
    assert_eq!(
        machine.fast.content(SLOTS_FILE).unwrap().len() as u64,
        bytes_of(4)
    );
    assert!((0..14).all(|n| newest(&cache, block(1, n)) == 1));
    let machine = machine.after_crash(0, 0);
    let cache = machine.open(4);
    assert!((0..14).all(|n| newest(&cache, block(1, n)) == 1));
    cache.resize(bytes_of(0)).unwrap();
    run_steps(&cache);
    assert_eq!(cache.stats().blocks, 0);
    assert_eq!(evict_clean(&cache, block(1, 0), 1), Evicted::Dropped);
    assert_eq!(evict_dirty(&cache, block(1, 0), 2), Evicted::Written);
    cache.resize(bytes_of(8)).unwrap();
    checkpoint(&cache);
    assert_eq!(evict_clean(&cache, block(1, 0), 2), Evicted::Cached);
    assert_eq!(cache.stats().free_slots, 7);
}

#[test]
fn shrinking_goes_on_under_load() {
    let machine = Machine::new(1);
    let cache = machine.open(32);
    let mut versions = [0_u64; 40];
    for turn in 1..=400_u64 {
        let n = turn * 7 % 40;
        versions[n as usize] = turn;
        evict_dirty(&cache, block(1, n), turn);
        if turn == 100 {
            cache.resize(bytes_of(6)).unwrap();
        }
        if turn == 250 {
            cache.resize(bytes_of(20)).unwrap();
        }
        if turn % 3 == 0 {
            cache.step().unwrap();
        }
        if turn % 50 == 0 {
            checkpoint(&cache);
        }
        let read = turn * 11 % 40;
        assert_eq!(newest(&cache, block(1, read)), versions[read as usize]);
    }
    assert_eq!(cache.stats().slots, 20);
    checkpoint(&cache);
    let cache = machine.after_crash(0, 0).open(20);
    for n in 0..40 {
        assert_eq!(newest(&cache, block(1, n)), versions[n as usize]);
    }
}

#[test]
fn a_smaller_cache_at_an_opening_keeps_its_blocks_until_steps_move_them() {
    let machine = Machine::new(1);
    let cache = machine.open(16);
    for n in 0..14 {
        evict_dirty(&cache, block(1, n), 1);
    }
    checkpoint(&cache);
    drop(cache);
    let cache = machine.open(4);
    assert!((0..14).all(|n| cached(&cache, block(1, n)) == Some(1)));
    run_steps(&cache);
    assert_eq!(cache.stats().blocks, 3);
    assert!((0..14).all(|n| newest(&cache, block(1, n)) == 1));
}
