//! Changes of the size and of the admission while the cache is used.

use super::*;
use strandline_base::SqlState;
use strandline_base::rng::Rng;

fn bytes_of(segments: u64) -> u64 {
    4_096 + segments * u64::from(SEGMENT_BYTES)
}

fn file_bytes(rig: &Rig) -> u64 {
    rig.disk.content(BLOCK_CACHE_FILE).unwrap().len() as u64
}

#[test]
fn a_smaller_cache_keeps_part_of_its_blocks_and_gives_the_space_back() {
    let rig = Rig::new();
    let cache = rig.open(settings(12));
    fill(&cache, 0..80);
    let before = cache.stats();
    cache.resize(bytes_of(3)).unwrap();
    assert_eq!(file_bytes(&rig), bytes_of(3));
    let stats = cache.stats();
    assert_eq!(stats.cache_bytes, 3 * u64::from(SEGMENT_BYTES));
    assert!(stats.blocks > 5 && stats.blocks < before.blocks / 2);
    assert_eq!(stats.admissions, stats.blocks + stats.evictions);
    let warm = hits(&cache, 0..80) as u64;
    assert_eq!(warm, stats.blocks, "all that is indexed is there");
    // It goes on as any cache of its size, now and when it is opened again.
    fill(&cache, 100..200);
    assert!(is_cached(&cache, block(1, 199)));
    cache.flush().unwrap();
    let last = cache.stats();
    assert_eq!((last.damaged, last.failed_writes), (0, 0));
    drop(cache);
    let cache = rig.open(settings(3));
    assert_eq!(cache.stats().blocks, last.blocks, "warm");
}

#[test]
fn a_larger_cache_keeps_all_its_blocks_and_fills_the_new_space_first() {
    let rig = Rig::new();
    let cache = rig.open(settings(2));
    fill(&cache, 0..40);
    let kept: Vec<u64> = (0..40)
        .filter(|&n| is_cached(&cache, block(1, n)))
        .collect();
    let evictions = cache.stats().evictions;
    cache.resize(bytes_of(10)).unwrap();
    assert_eq!(file_bytes(&rig), bytes_of(10));
    fill(&cache, 100..120);
    assert!(kept.iter().all(|&n| is_cached(&cache, block(1, n))));
    assert_eq!(hits(&cache, 100..120), 20);
    assert_eq!(cache.stats().evictions, evictions);
}

#[test]
fn a_cache_of_no_bytes_holds_nothing_and_may_grow_again() {
    let rig = Rig::new();
    let cache = rig.open(settings(4));
    fill(&cache, 0..20);
    read_through(&cache, block(1, 50));
    cache.resize(0).unwrap();
    let stats = cache.stats();
    assert_eq!((stats.blocks, stats.bytes, stats.cache_bytes), (0, 0, 0));
    assert_eq!(stats.admissions, stats.evictions);
    assert_eq!(file_bytes(&rig), 4_096);
    assert_eq!(rig.taken_bytes.load(Ordering::Relaxed), 0);
    fill(&cache, 0..20);
    cache.flush().unwrap();
    let stats = cache.stats();
    assert_eq!((stats.blocks, stats.refusals), (0, 0), "no attempt is made");
    assert_eq!(stats.memory_bytes, 0);
    cache.resize(bytes_of(4)).unwrap();
    fill(&cache, 0..20);
    assert_eq!(hits(&cache, 0..20), 20);
    assert!(rig.taken_bytes.load(Ordering::Relaxed) > 3 * SEGMENT_BYTES as usize);
}

#[test]
fn without_room_the_size_stays_and_nothing_is_lost() {
    let rig = Rig::new();
    let cache = rig.open(settings(4));
    fill(&cache, 0..20);
    let before = cache.stats();
    rig.disk.limit_capacity(Some(rig.disk.used_bytes() + 10));
    let refused = cache.resize(bytes_of(8)).unwrap_err();
    assert_eq!(refused.sqlstate(), SqlState::DISK_FULL, "{refused}");
    let stats = cache.stats();
    assert_eq!(
        (stats.cache_bytes, stats.blocks),
        (before.cache_bytes, before.blocks)
    );
    assert_eq!(hits(&cache, 0..20), 20);
    // A full disk is no reason not to shrink.
    cache.resize(bytes_of(2)).unwrap();
    assert_eq!(file_bytes(&rig), bytes_of(2));
}

#[test]
fn a_size_that_the_file_cannot_follow_holds_all_the_same() {
    let rig = Rig::new();
    let cache = rig.open(settings(6));
    fill(&cache, 0..40);
    rig.disk.fail_operation(1);
    assert!(cache.resize(bytes_of(2)).is_err());
    assert_eq!(cache.stats().cache_bytes, 2 * u64::from(SEGMENT_BYTES));
    fill(&cache, 100..140);
    assert!(is_cached(&cache, block(1, 139)));
    drop(cache);
    let cache = rig.open(settings(2));
    hits(&cache, 0..140);
    assert_eq!(file_bytes(&rig), bytes_of(2));
    assert_eq!(cache.stats().damaged, 0);
}

#[test]
fn the_admission_can_be_changed() {
    let rig = Rig::new();
    let cache = rig.open(settings(4));
    cache.set_admission(Admission::SecondRead);
    assert!(!read_through(&cache, block(1, 0)) && !read_through(&cache, block(1, 0)));
    assert!(
        read_through(&cache, block(1, 0)),
        "the second read has admitted it"
    );
    cache.set_admission(Admission::FirstRead);
    assert!(!read_through(&cache, block(1, 1)));
    assert!(read_through(&cache, block(1, 1)));
}

/// Work that changes the size often; the last size that was asked for.
fn work(rig: &Rig, seed: u64) -> Result<u64> {
    let mut rng = Rng::new(seed);
    let cache = rig.open(settings(4));
    let mut segments = 4;
    for n in 0..200 {
        if n % 12 == 11 {
            segments = [0, 2, 3, 5, 9][rng.below(5) as usize];
            cache.resize(bytes_of(segments))?;
        }
        read_through(&cache, block(1, rng.below(80)));
        cache.step()?;
    }
    Ok(segments.max(2))
}

#[test]
fn after_a_crash_at_any_operation_of_a_change_every_hit_is_right() {
    for seed in 0..4 {
        let rig = Rig::new();
        work(&rig, seed).unwrap();
        let operations = rig.disk.operations();
        let mut hit = 0;
        for at in 2..=operations {
            let rig = Rig::new();
            rig.disk.crash_at(at);
            let _ = work(&rig, seed);
            for (round, segments) in [4, 2, 9].into_iter().enumerate() {
                let found = Rig::on(rig.disk.after_crash(at + round as u64));
                let cache = found.open(settings(segments));
                hit += hits(&cache, 0..80);
                fill(&cache, 100..110);
                assert!(
                    is_cached(&cache, block(1, 109)),
                    "seed {seed}, crash at {at}"
                );
            }
        }
        assert!(hit > 0, "seed {seed}");
    }
}

#[test]
fn threads_read_right_bytes_while_the_size_changes() {
    let rig = Rig::new();
    let cache = rig.open(settings(4));
    std::thread::scope(|scope| {
        let cache = &cache;
        let writer = scope.spawn(move || {
            while cache.wait_for_segment() {
                cache.step().unwrap();
            }
        });
        let readers = [1, 2, 3].map(|thread| {
            scope.spawn(move || {
                let mut rng = Rng::new(thread);
                for _ in 0..4_000 {
                    read_through(cache, block(rng.below(3), rng.below(30)));
                }
            })
        });
        let mut rng = Rng::new(9);
        for _ in 0..300 {
            cache.resize(bytes_of(rng.below(8))).unwrap();
        }
        cache.resize(bytes_of(4)).unwrap();
        readers
            .into_iter()
            .for_each(|reader| reader.join().unwrap());
        cache.close();
        writer.join().unwrap();
    });
    let stats = cache.stats();
    assert_eq!(stats.hits + stats.misses, 12_000);
    assert_eq!(stats.failed_writes, 0);
    assert_eq!(stats.damaged, 0, "a segment that is cut off is no damage");
    assert_eq!(stats.admissions, stats.blocks + stats.evictions);
}
