//! Readers, evictions, steps, checkpoints and changes of the size at the same time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use strandline_base::rng::Rng;

use super::*;

const BLOCKS: u64 = 48;

/// Each block has one writer; all threads read all blocks and see versions that never go back.
#[test]
fn threads_see_every_block_go_forward_only() {
    let machine = Machine::new(1);
    for mode in [Mode::Pc, Mode::Pc2, Mode::Lc] {
        let settings = Settings {
            mode,
            ..settings(24)
        };
        let cache = machine.open_with(settings).unwrap();
        let written: Vec<AtomicU64> = (0..BLOCKS)
            .map(|n| AtomicU64::new(newest(&cache, block(1, n))))
            .collect();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (cache, written, is_over) = (&cache, &written, &is_over);
            let background = scope.spawn(move || {
                let mut rng = Rng::new(9);
                while !is_over.load(Ordering::Acquire) {
                    cache.step().unwrap();
                    match rng.below(20) {
                        0 => checkpoint(cache),
                        1 => drop(cache.clean_idle(4).unwrap()),
                        2 => {
                            let slots = 8 + rng.below(16);
                            cache.resize(slots * u64::from(SLOT_BYTES)).unwrap();
                        }
                        _ => {}
                    }
                }
            });
            let writers: Vec<_> = (0..3)
                .map(|thread| {
                    scope.spawn(move || {
                        let mut rng = Rng::new(thread);
                        for _ in 0..1_500 {
                            let n = rng.below(BLOCKS);
                            let before = written[n as usize].load(Ordering::Acquire);
                            let key = block(1, n);
                            // The pool's latch: only the writer of a block evicts it.
                            if n % 3 == thread {
                                let found = newest(cache, key);
                                assert_eq!(found, before, "{key}");
                                if rng.one_in(2) {
                                    evict_dirty(cache, key, found + 1);
                                    written[n as usize].store(found + 1, Ordering::Release);
                                } else {
                                    evict_clean(cache, key, found);
                                }
                            } else if let Some(found) = cached(cache, key) {
                                assert!(found >= before, "{key}: {found} after {before}");
                            }
                        }
                    })
                })
                .collect();
            writers
                .into_iter()
                .for_each(|writer| writer.join().unwrap());
            is_over.store(true, Ordering::Release);
            background.join().unwrap();
        });
        checkpoint(&cache);
        drop(cache);
        let cache = machine.after_crash(0, 0).open_with(settings).unwrap();
        for n in 0..BLOCKS {
            let expected = written[n as usize].load(Ordering::Acquire);
            assert_eq!(newest(&cache, block(1, n)), expected, "{mode:?}");
        }
    }
}
