//! Readers, drops of files and a writer at the same time.

use std::sync::atomic::AtomicU64;

use strandline_base::rng::Rng;

use super::*;

#[test]
fn threads_read_right_bytes_while_segments_are_overwritten() {
    let rig = Rig::new();
    let cache = rig.open(settings(4));
    let dropped = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let (cache, dropped) = (&cache, &dropped);
        let writer = scope.spawn(move || {
            while cache.wait_for_segment() {
                cache.step().unwrap();
            }
        });
        let readers: Vec<_> = (0..4)
            .map(|thread| {
                scope.spawn(move || {
                    let mut rng = Rng::new(thread);
                    for round in 0..4_000 {
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
    assert!(stats.hits > 0 && stats.writes > 10, "{stats:?}");
    assert_eq!(stats.damaged, 0, "an overwritten segment is no damage");
    assert_eq!(stats.hits + stats.misses, 16_000);
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
