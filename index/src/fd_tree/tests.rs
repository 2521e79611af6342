use super::*;
use crate::access_method::Direction;
use std::collections::BTreeSet;
use std::sync::Arc;
use strandline_base::rng::Rng;
use strandline_storage::level_blocks::{FileBlocks, LevelBlocks, MemoryBlocks};

fn small(mode: Mode) -> Settings {
    Settings {
        tree: 7,
        mode,
        head_bytes: 32 * 20,
        head_blocks: 2,
        ratio: 2,
        block_entries_max: 4,
        batch_bytes: 4 * 256,
    }
}

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

fn all(tree: &FdTree, direction: Direction) -> Vec<u64> {
    let mut found = Vec::new();
    let each = |entry: &[u8]| {
        found.push(u64::from_be_bytes(entry.try_into().unwrap()));
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
    let mut damage = Vec::new();
    tree.check(&mut damage).unwrap();
    assert!(damage.is_empty(), "{what}: {damage:?} {:?}", tree.levels());
}

fn run_model(mode: Mode, seed: u64) {
    let mut rng = Rng::new(seed);
    let tree = FdTree::open(small(mode), Arc::new(MemoryBlocks::new(256))).unwrap();
    let mut model = BTreeSet::new();
    let keys = 50 + rng.below(400);
    for step in 0..1500 {
        let what = format!("{mode:?}, seed {seed}, step {step}");
        let phase = step / 300 % 3;
        let number = rng.below(keys);
        let is_add = rng.below(10) < [8, 5, 2][phase];
        match is_add {
            true => assert_eq!(tree.add(&key(number)).unwrap(), model.insert(number), "{what}"),
            false => assert_eq!(tree.remove(&key(number)).unwrap(), model.remove(&number), "{what}"),
        }
        if rng.below(4) == 0 {
            tree.compact_step().unwrap();
        }
        if step % 37 == 0 {
            verify(&tree, &model, keys, &what);
        }
    }
    while tree.compact_step().unwrap() {}
    verify(&tree, &model, keys, "the end");
    tree.checkpoint().unwrap();
    let blocks: u64 = tree.levels().iter().map(|(_, blocks, _)| blocks).sum();
    assert_eq!(tree.blocks() as u64, blocks, "no block is lost");
}

#[test]
fn equals_a_set_in_every_mode() {
    for mode in [Mode::Xm, Mode::Fc, Mode::Ds, Mode::FcNoSharing, Mode::FcTuple] {
        for seed in 0..20 {
            run_model(mode, seed);
        }
    }
}
