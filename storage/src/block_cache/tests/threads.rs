//! Readers, drops of files and a writer at the same time.

use std::sync::atomic::AtomicU64;

use strandline_base::rng::Rng;

use super::*;

/// Rounds of a reader: it goes on until segments have been overwritten beside it, however late the
/// writer's thread gets a processor.
const ROUNDS: u64 = 4_000;
/// A cache that is not written ends the test by then.
const ROUNDS_MAX: u64 = 400_000;

#[test]
fn threads_read_right_bytes_while_segments_are_overwritten() {
    let rig = Rig::new();
    let cache = rig.open(settings(4));
    let (dropped, reads) = (AtomicU64::new(0), AtomicU64::new(0));
    let is_overwritten = |stats: Stats| stats.hits > 0 && stats.writes > 10;
    std::thread::scope(|scope| {
        let (cache, dropped, reads) = (&cache, &dropped, &reads);
        let writer = scope.spawn(move || {
            while cache.wait_for_segment() {
                cache.step().unwrap();
            }
        });
        let readers: Vec<_> = (0..4)
            .map(|thread| {
                scope.spawn(move || {
                    let mut rng = Rng::new(thread);
                    for round in 0..ROUNDS_MAX {
                        if round >= ROUNDS && is_overwritten(cache.stats()) {
                            break;
                        }
                        reads.fetch_add(1, Ordering::Relaxed);
                        let first = dropped.load(Ordering::Acquire) + 1;
                        read_through(cache, block(first + rng.below(3), rng.below(30)));
                        if thread == 0 && round % 500 == 499 {
                            // Later reads of it are of a reader that still has it.
                            cache.forget_file(first);
                            dropped.store(first, Ordering::Release);
                        }
                    }
                })
            })
            .collect();
        readers
            .into_iter()
            .for_each(|reader| reader.join().unwrap());
        cache.close();
        writer.join().unwrap();
    });
    let stats = cache.stats();
    assert!(is_overwritten(stats), "{stats:?}");
    assert_eq!(stats.damaged, 0, "an overwritten segment is no damage");
    assert_eq!(stats.hits + stats.misses, reads.into_inner());
}

#[test]
fn a_closed_cache_ends_the_waiting_and_serves_on() {
    let rig = Rig::new();
    let cache = rig.open(settings(4));
    cache.close();
    assert!(!cache.wait_for_segment());
    fill(&cache, 0..20);
    assert!(!cache.wait_for_segment(), "also with a segment that waits");
    assert!(is_cached(&cache, block(1, 0)));
}
