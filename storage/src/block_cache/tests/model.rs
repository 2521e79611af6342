//! Random operations against a model: a hit has the block's bytes and was admitted, and counters
//! and memory agree with what happened.

use std::collections::BTreeSet;

use strandline_base::rng::Rng;

use super::*;

#[test]
fn random_operations_agree_with_a_model() {
    for seed in 0..40 {
        let rig = Rig::new();
        let mut rng = Rng::new(seed);
        let settings = Settings {
            admission: match rng.one_in(2) {
                true => Admission::FirstRead,
                false => Admission::SecondRead,
            },
            ..settings(2 + rng.below(5))
        };
        let mut cache = rig.open(settings);
        // Every block that may be cached.
        let mut model: BTreeSet<BlockKey> = BTreeSet::new();
        // Counters begin anew with each opening: hits and writes of those before.
        let (mut hits, mut writes) = (0, 0);
        let mut next_file = 4;
        let mut files = vec![1, 2, 3];
        for _ in 0..1_500 {
            let file = files[rng.below(files.len() as u64) as usize];
            match rng.below(100) {
                0 => {
                    cache.forget_file(file);
                    model.retain(|block| block.file != file);
                    files.retain(|&of| of != file);
                    files.push(next_file);
                    next_file += 1;
                }
                1 => {
                    cache.flush().unwrap();
                    let before = cache.stats();
                    assert_no_fault(before);
                    (hits, writes) = (hits + before.hits, writes + before.writes);
                    drop(cache);
                    assert_eq!(
                        rig.taken_bytes.load(Ordering::Relaxed),
                        0,
                        "all is returned"
                    );
                    let known = KnownFiles {
                        end: FILES_END,
                        is_live: &|file| files.contains(&file),
                    };
                    let device = rig.disk.device();
                    cache = BlockCache::open(&*device, settings, known, &rig.taken_bytes).unwrap();
                    let after = cache.stats();
                    let content = |stats: Stats| (stats.blocks, stats.bytes);
                    assert_eq!(content(after), content(before), "warm, seed {seed}");
                }
                2..20 => drop(cache.step().unwrap()),
                _ => {
                    let block = block(file, rng.below(30));
                    let is_hit = is_cached(&cache, block);
                    assert!(!is_hit || model.contains(&block), "{block}, seed {seed}");
                    if !is_hit {
                        cache.admit(block, &content(block));
                        model.insert(block);
                    }
                }
            }
            let stats = cache.stats();
            assert!(stats.blocks as usize <= model.len());
            assert!(stats.bytes <= stats.cache_bytes + 2 * u64::from(SEGMENT_BYTES));
        }
        let stats = cache.stats();
        assert_no_fault(stats);
        let (hits, writes) = (hits + stats.hits, writes + stats.writes);
        assert!(hits > 0 && writes > 0, "seed {seed}: {hits} {writes}");
    }
}

fn assert_no_fault(stats: Stats) {
    let faults = (stats.damaged, stats.replaced, stats.failed_writes);
    assert_eq!(faults, (0, 0, 0), "{stats:?}");
}

/// Between two openings every block is in the index, was evicted, or was forgotten.
#[test]
fn the_counters_account_for_every_block() {
    let rig = Rig::new();
    let cache = rig.open(settings(4));
    let mut rng = Rng::new(7);
    for _ in 0..3_000 {
        read_through(&cache, block(1 + rng.below(4), rng.below(40)));
        cache.step().unwrap();
        if rng.one_in(200) {
            cache.forget_file(1 + rng.below(4));
        }
        let stats = cache.stats();
        let accounted = stats.blocks + stats.evictions + stats.forgotten;
        assert_eq!(stats.admissions, accounted, "{stats:?}");
    }
    let stats = cache.stats();
    assert_eq!(stats.hits + stats.misses, 3_000);
    assert!(stats.reinsertions > 0 && stats.evictions > 0 && stats.forgotten > 0);
    assert_eq!(
        rig.disk.writes(),
        stats.writes + 1,
        "segments and the header"
    );
}
