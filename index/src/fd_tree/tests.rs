mod ascending;
mod blocks;
mod crash;
mod filters;
mod heads;
mod interleaved;
mod loads;
mod lookup;
mod read_ahead;
mod writers;

use super::*;
use crate::access_method::Direction;
use std::collections::BTreeSet;
use std::sync::Arc;
use strandline_base::rng::Rng;
use strandline_storage::level_blocks::{LevelBlocks, MemoryBlocks};
use strandline_storage::pool::Pool;

fn small(mode: Mode) -> Settings {
    Settings {
        tree: 7,
        mode,
        head_bytes: 40 * 20,
        head_blocks: 2,
        ratio: 2,
        block_entries_max: 4,
        batch_bytes: 4 * 256,
        filter_bits: 0,
        filter_of: FilterOf::Keys,
    }
}

/// One of the forms of filters for each seed.
fn filter_of(seed: u64) -> FilterOf {
    [FilterOf::Keys, FilterOf::Entries][seed as usize / 2 % 2]
}

fn key(number: u64) -> [u8; 16] {
    (u128::from(number) << 64).to_be_bytes()
}

fn all(tree: &FdTree, direction: Direction) -> Vec<u64> {
    let mut found = Vec::new();
    let each = |entry: &[u8]| {
        found.push((u128::from_be_bytes(entry.try_into().unwrap()) >> 64) as u64);
        true
    };
    tree.scan(&[], None, direction, each).unwrap();
    found
}

fn verify(tree: &FdTree, model: &BTreeSet<u64>, keys: u64, what: &str) {
    let ascending: Vec<u64> = model.iter().copied().collect();
    assert_eq!(all(tree, Direction::Forward), ascending, "{what}");
    let descending: Vec<u64> = model.iter().rev().copied().collect();
    assert_eq!(all(tree, Direction::Backward), descending, "{what}");
    for number in 0..keys {
        let has = tree.contains(&key(number)).unwrap();
        assert_eq!(has, model.contains(&number), "{what}, key {number}");
    }
    assert_eq!(tree.len(), model.len(), "{what}");
    check_whole(tree, what);
}

fn check_whole(tree: &FdTree, what: &str) {
    let mut damage = Vec::new();
    tree.check(&mut damage).unwrap();
    assert!(damage.is_empty(), "{what}: {damage:?} {:?}", tree.levels());
}

fn run_model(mode: Mode, seed: u64) {
    let mut rng = Rng::new(seed);
    let settings = Settings {
        filter_bits: 5 * seed as usize,
        filter_of: filter_of(seed + mode as u64),
        ..small(mode)
    };
    let pool = Pool::new(4000 * seed as usize);
    let tree = FdTree::open(settings, Arc::new(MemoryBlocks::new(256)), pool).unwrap();
    // The last seed's filters are read by block, most of them.
    let memory = if seed == 2 { 200 } else { usize::MAX };
    let tree = tree.with_filter_memory(Arc::new(FilterMemory::new(memory)));
    let mut model = BTreeSet::new();
    let keys = 50 + rng.below(400);
    for step in 0..900 {
        let what = format!("{mode:?}, seed {seed}, step {step}");
        let phase = step / 300;
        let number = rng.below(keys);
        let is_add = rng.below(10) < [8, 5, 2][phase];
        match is_add {
            true => assert_eq!(
                tree.add(&key(number)).unwrap(),
                model.insert(number),
                "{what}"
            ),
            false => assert_eq!(
                tree.remove(&key(number)).unwrap(),
                model.remove(&number),
                "{what}"
            ),
        }
        if rng.below(4) == 0 {
            tree.compact_step().unwrap();
        }
        check_whole(&tree, &what);
        if step % 101 == 0 {
            verify(&tree, &model, keys, &what);
        }
    }
    while tree.compact_step().unwrap() {}
    verify(&tree, &model, keys, "the end");
    let state = tree.shared.state.lock();
    let (inserts, deletes) = (state.inserts, state.deletes);
    drop(state);
    assert!(
        deletes < 16 || deletes * 3 <= inserts,
        "{deletes} deletes, {inserts} inserts (I5)"
    );
    tree.checkpoint().unwrap();
    let blocks: u64 = tree.levels().iter().map(|(_, blocks, _)| blocks).sum();
    let blocks = blocks + tree.filter_blocks();
    assert_eq!(tree.blocks() as u64, blocks, "no block is lost");
}

#[test]
fn equals_a_set_in_every_mode() {
    for mode in [
        Mode::Xm,
        Mode::Fc,
        Mode::Ds,
        Mode::FcNoSharing,
        Mode::FcTuple,
    ] {
        for seed in 0..3 {
            run_model(mode, seed);
        }
    }
}

/// A tree may have been written with a greater size ratio.
#[test]
fn the_ratio_may_fall_between_openings() {
    let mut rng = Rng::new(3);
    let blocks = Arc::new(MemoryBlocks::new(256));
    let (mut model, keys) = (BTreeSet::new(), 900);
    for (round, ratio) in [4, 4, 3, 3, 2, 2].into_iter().enumerate() {
        let settings = Settings {
            ratio,
            filter_bits: 5,
            ..small(Mode::Fc)
        };
        let tree = FdTree::open(settings, blocks.clone(), Pool::new(0)).unwrap();
        check_whole(&tree, &format!("round {round}"));
        for step in 0..400 {
            let number = rng.below(keys);
            match rng.below(10) < 8 {
                true => assert_eq!(tree.add(&key(number)).unwrap(), model.insert(number)),
                false => assert_eq!(tree.remove(&key(number)).unwrap(), model.remove(&number)),
            }
            check_whole(&tree, &format!("round {round}, step {step}"));
        }
        verify(&tree, &model, keys, "before the checkpoint");
        // The first round of a ratio may end within a compaction.
        while round % 2 == 1 && tree.compact_step().unwrap() {}
        tree.checkpoint().unwrap();
    }
}

/// FD+FC takes no second copy of the tree.
#[test]
fn space_is_not_doubled() {
    let blocks = Arc::new(MemoryBlocks::new(256));
    let tree = FdTree::open(small(Mode::Fc), blocks.clone(), Pool::new(0)).unwrap();
    for number in 0..4000 {
        tree.add(&key(number * 7919 % 4001)).unwrap();
    }
    tree.compact().unwrap();
    let before = blocks.used();
    let mut most = 0;
    for number in 0..4000 {
        tree.remove(&key(number)).unwrap();
        tree.add(&key(number)).unwrap();
        tree.compact_step().unwrap();
        most = most.max(blocks.used());
    }
    assert!(
        most < before + before / 4 + 32,
        "{most} blocks, before {before}"
    );
}

/// Deletes shrink the tree (I4, I5).
#[test]
fn shrinks() {
    let tree = FdTree::open(
        small(Mode::Fc),
        Arc::new(MemoryBlocks::new(256)),
        Pool::new(0),
    )
    .unwrap();
    for number in 0..2000 {
        tree.add(&key(number)).unwrap();
    }
    tree.compact().unwrap();
    let high = tree.levels().last().unwrap().0;
    for number in 0..1990 {
        tree.remove(&key(number)).unwrap();
        while tree.compact_step().unwrap() {}
    }
    tree.compact().unwrap();
    let low = tree.levels().last().map_or(0, |level| level.0);
    assert!(high >= 5 && low <= 2, "from {high} to {low}");
    let model = (1990..2000).collect();
    verify(&tree, &model, 2000, "after deletes");
}

/// Real threads: entries that nobody changes are found by lookups and cursors, once and in order,
/// beside a writer and the compactions.
#[test]
fn readers_go_on_beside_compactions() {
    use std::sync::atomic::{AtomicBool, Ordering};
    for mode in [Mode::Fc, Mode::Xm, Mode::Ds] {
        let blocks = Arc::new(MemoryBlocks::new(256));
        let tree = FdTree::open(small(mode), blocks, Pool::new(0)).unwrap();
        for number in 0..300 {
            tree.add(&key(2 * number)).unwrap();
        }
        let is_over = AtomicBool::new(false);
        /// Ends the compactions, also if the writer panics.
        struct Over<'a>(&'a AtomicBool);
        impl Drop for Over<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    tree.compact_step().unwrap();
                }
            });
            scope.spawn(|| {
                for direction in [Direction::Forward, Direction::Backward].repeat(10) {
                    let mut found = all(&tree, direction);
                    found.retain(|number| number % 2 == 0);
                    if direction == Direction::Backward {
                        found.reverse();
                    }
                    assert!(found.into_iter().eq((0..300).map(|number| 2 * number)));
                    for number in 0..300 {
                        assert!(tree.contains(&key(2 * number)).unwrap());
                    }
                }
            });
            scope.spawn(|| {
                let _over = Over(&is_over);
                for round in 0..2 {
                    for number in 0..300 {
                        let changed = match round {
                            0 => tree.add(&key(2 * number + 1)).unwrap(),
                            _ => tree.remove(&key(2 * number + 1)).unwrap(),
                        };
                        assert!(changed);
                    }
                }
            });
        });
        tree.compact().unwrap();
        let model = (0..300).map(|number| 2 * number).collect();
        verify(&tree, &model, 600, &format!("{mode:?}"));
    }
}
