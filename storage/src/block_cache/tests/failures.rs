//! Devices that fail or are full: reads go on, admission pauses, and everything comes back.

use super::*;

/// Offers so many new blocks, from `from` on, and writes.
fn offer(cache: &BlockCache, from: u64, count: u64) -> u64 {
    let before = cache.stats().admissions;
    for n in from..from + count {
        read_through(cache, block(2, n));
        let _ = cache.step();
    }
    cache.stats().admissions - before
}

#[test]
fn failing_writes_pause_admission_ever_longer_and_reads_go_on() {
    let rig = Rig::new();
    let cache = rig.open(settings(6));
    fill(&cache, 0..20);
    cache.flush().unwrap();
    rig.disk.fail_writes(BLOCK_CACHE_FILE);
    let before = hits(&cache, 0..20);
    let mut from = 0;
    let mut pauses = Vec::new();
    for _ in 0..3 {
        while cache.stats().paused == 0 {
            offer(&cache, from, 1);
            from += 1;
        }
        pauses.push(cache.stats().paused);
        let paused = cache.stats().paused;
        assert_eq!(offer(&cache, from, paused), 0, "refused");
        from += paused;
    }
    assert_eq!(pauses, [128, 256, 512]);
    let stats = cache.stats();
    assert_eq!(stats.failed_writes, 3);
    assert_eq!(stats.refusals, 128 + 256 + 512);
    assert!(
        hits(&cache, 0..20) * 2 > before,
        "a failure costs one segment"
    );
    rig.disk.mend_writes();
    assert!(offer(&cache, from, 50) > 40);
    assert_eq!(cache.stats().paused, 0);
    assert!(is_cached(&cache, block(2, from + 49)));
    // The next failure begins with the shortest pause again.
    rig.disk.fail_write(1);
    let from = from + 50;
    for n in from.. {
        offer(&cache, n, 1);
        if cache.stats().paused > 0 {
            break;
        }
    }
    assert_eq!(cache.stats().paused, 128);
}

/// Nothing of a segment that could not be written is found any more, also when the next segments
/// are in its place in memory.
#[test]
fn blocks_of_a_failed_write_are_gone_and_come_back() {
    let rig = Rig::new();
    let cache = rig.open(settings(6));
    rig.disk.fail_writes(BLOCK_CACHE_FILE);
    let mut lost = 0;
    while cache.stats().paused == 0 {
        read_through(&cache, block(2, lost));
        lost += 1;
        let _ = cache.step();
    }
    rig.disk.mend_writes();
    let kept = (0..lost)
        .filter(|&n| is_cached(&cache, block(2, n)))
        .count();
    assert!(
        kept <= 1,
        "the block that did not fit is in the next segment: {kept}"
    );
    let paused = cache.stats().paused;
    for n in 0..paused {
        read_through(&cache, block(3, n));
    }
    // Two segments in memory, one of which waits as the lost one did.
    read_all(&cache, 0..40);
    assert!(cache.stats().blocks > 5);
    for n in 0..lost {
        is_cached(&cache, block(2, n));
    }
    cache.flush().unwrap();
    offer(&cache, 0, lost);
    assert!(
        (0..lost).all(|n| is_cached(&cache, block(2, n))),
        "admitted again"
    );
}

/// A segment that could not be written is written over later.
#[test]
fn a_failed_write_costs_no_room() {
    let rig = Rig::new();
    let cache = rig.open(settings(4));
    for from in 0..6 {
        rig.disk.fail_write(2);
        offer(&cache, 1_000 * from, 200);
        assert_eq!(cache.stats().failed_writes, from + 1);
    }
    offer(&cache, 9_000, 1_000);
    assert_eq!(cache.segments().len(), 4);
    assert_eq!(rig.inspect().segments.len(), 4);
}

/// A write that succeeds ends the pause at once.
#[test]
fn a_flush_that_succeeds_ends_the_pause() {
    let rig = Rig::new();
    let cache = rig.open(settings(6));
    rig.disk.fail_writes(BLOCK_CACHE_FILE);
    for n in 0.. {
        offer(&cache, n, 1);
        if cache.stats().paused > 0 {
            break;
        }
    }
    rig.disk.mend_writes();
    assert!(cache.stats().blocks > 0, "one that did not fit");
    cache.flush().unwrap();
    assert_eq!(cache.stats().paused, 0);
    assert!(offer(&cache, 100, 10) == 10);
}

#[test]
fn failing_reads_are_misses_and_leave_with_their_blocks() {
    let rig = Rig::new();
    let cache = rig.open(settings(6));
    fill(&cache, 0..20);
    cache.flush().unwrap();
    let blocks = cache.stats().blocks;
    rig.disk.fail_reads(BLOCK_CACHE_FILE);
    assert!((0..20).all(|n| !is_cached(&cache, block(1, n))));
    assert_eq!(cache.stats().damaged, blocks);
    rig.disk.mend_reads();
    fill(&cache, 0..20);
    assert!((0..20).all(|n| is_cached(&cache, block(1, n))));
}

#[test]
fn unreadable_blocks_are_not_reinserted() {
    let rig = Rig::new();
    let cache = rig.open(settings(2));
    fill(&cache, 0..10);
    cache.flush().unwrap();
    hits(&cache, 0..10);
    rig.disk.fail_reads(BLOCK_CACHE_FILE);
    for n in 20..60 {
        cache.admit(block(1, n), &content(block(1, n)));
        cache.step().unwrap();
    }
    assert_eq!(cache.stats().reinsertions, 0);
    rig.disk.mend_reads();
    assert!(!is_cached(&cache, block(1, 0)));
    assert!(is_cached(&cache, block(1, 59)));
}

#[test]
fn on_a_full_disk_the_cache_has_what_is_there_and_grows_later() {
    let rig = Rig::new();
    // Nothing at all.
    rig.disk.limit_capacity(Some(100));
    let cache = rig.open(settings(4));
    assert_eq!(cache.stats().cache_bytes, 0);
    assert_eq!(cache.smaller_than_wanted(), Some(0));
    assert_eq!(offer(&cache, 0, 300).min(1), 1, "two segments in memory");
    let stats = cache.stats();
    assert!(stats.failed_writes > 0 && stats.refusals > 0, "{stats:?}");
    rig.disk.limit_capacity(None);
    let paused = cache.stats().paused;
    offer(&cache, 1_000, paused + 50);
    assert_eq!(cache.stats().cache_bytes, 4 * u64::from(SEGMENT_BYTES));
    assert_eq!(cache.smaller_than_wanted(), None);
    assert!(is_cached(&cache, block(2, 1_000 + paused + 49)));
    cache.flush().unwrap();
    drop(cache);
    // A new one has what fits.
    let other = Rig::new();
    let room = 40 * u64::from(SEGMENT_BYTES);
    other
        .disk
        .limit_capacity(Some(other.disk.used_bytes() + room));
    let small = other.open(settings(1_000));
    let bytes = small.stats().cache_bytes;
    assert!((room / 4..=room * 3 / 4).contains(&bytes), "{bytes}");
    assert_eq!(small.smaller_than_wanted(), Some(bytes));
    assert!(offer(&small, 0, 300) > 0);
    drop(small);
    // A larger cache that finds no space has the old size.
    let used = rig.disk.used_bytes();
    rig.disk.limit_capacity(Some(used + 10));
    let cache = rig.open(settings(8));
    assert!(cache.stats().blocks > 5, "warm");
    assert_eq!(cache.stats().cache_bytes, 4 * u64::from(SEGMENT_BYTES));
    assert!(offer(&cache, 5_000, 50) > 40);
    rig.disk.limit_capacity(None);
    assert!(offer(&cache, 6_000, 50) > 40);
    assert_eq!(cache.stats().cache_bytes, 8 * u64::from(SEGMENT_BYTES));
}

/// An operation of an opening that fails is an error of the opening, or costs the content.
#[test]
fn openings_survive_the_failure_of_any_operation() {
    for is_warm in [false, true] {
        for wanted in [2, 3, 4] {
            for at in 1..8 {
                let rig = Rig::new();
                if is_warm {
                    let cache = rig.open(settings(3));
                    fill(&cache, 0..30);
                    cache.flush().unwrap();
                }
                rig.disk.fail_operation(at);
                if let Ok(cache) = rig.try_open(settings(wanted), FILES_END) {
                    offer(&cache, 0, 400);
                    hits(&cache, 0..30);
                }
                let cache = rig.open(settings(wanted));
                fill(&cache, 50..60);
                assert!(is_cached(&cache, block(1, 59)));
            }
        }
    }
}
