//! The index against a map of sets, edge cases, and two threads that add entries.

use super::*;
use crate::hash_integer;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Barrier;
use strandline_base::rng::Rng;

fn sorted(mut rows: Vec<RowId>) -> Vec<RowId> {
    rows.sort();
    rows
}

fn insert(index: &HashIndex, hash: u64, row: RowId) -> Vec<RowId> {
    let mut others = Vec::new();
    index.insert(hash, row, &mut others);
    sorted(others)
}

fn lookup(index: &HashIndex, hash: u64) -> Vec<RowId> {
    let mut rows = Vec::new();
    index.lookup(hash, &mut rows);
    sorted(rows)
}

#[test]
fn agrees_with_a_map_of_sets() {
    for seed in 0..40 {
        println!("seed {seed}");
        let mut rng = Rng::new(seed);
        let index = HashIndex::new();
        let mut model: BTreeMap<u64, BTreeSet<RowId>> = BTreeMap::new();
        // Few hashes with many rows each. Some have the same shard and tag and differ in the lowest
        // bit.
        let hashes: Vec<u64> = (0..1 + rng.below(40))
            .map(|i| hash_integer(i as i64 / 2) ^ (i & 1))
            .collect();
        for _ in 0..2_000 {
            let hash = hashes[rng.below(hashes.len() as u64) as usize];
            let row = RowId(rng.below(30));
            let rows = model.entry(hash).or_default();
            match rng.below(5) {
                0 | 1 => {
                    let others: Vec<RowId> = rows.iter().copied().filter(|r| *r != row).collect();
                    assert_eq!(insert(&index, hash, row), others);
                    rows.insert(row);
                }
                2 | 3 => {
                    index.remove(hash, row);
                    rows.remove(&row);
                }
                _ => assert_eq!(lookup(&index, hash), Vec::from_iter(rows.iter().copied())),
            }
        }
        assert_eq!(index.len(), model.values().map(BTreeSet::len).sum());
        for (hash, rows) in &model {
            assert_eq!(lookup(&index, *hash), Vec::from_iter(rows.iter().copied()));
            rows.iter().for_each(|row| index.remove(*hash, *row));
        }
        assert!(index.is_empty());
    }
}

#[test]
fn appends_to_what_the_caller_has() {
    let index = HashIndex::new();
    let mut rows = vec![RowId(99)];
    index.insert(5, RowId(1), &mut rows);
    index.insert(5, RowId(2), &mut rows);
    index.lookup(6, &mut rows);
    assert_eq!(rows, [RowId(99), RowId(1)]);
    index.lookup(5, &mut rows);
    assert_eq!(rows.len(), 4);
}

#[test]
fn extreme_hashes_and_rows() {
    let index = HashIndex::new();
    for hash in [0, 1, u64::MAX, 1 << 63, 1 << 51] {
        for row in [RowId(0), RowId(u64::MAX)] {
            insert(&index, hash, row);
        }
        assert_eq!(lookup(&index, hash), [RowId(0), RowId(u64::MAX)]);
    }
    assert_eq!(index.len(), 10);
}

#[test]
fn memory_is_counted_and_reserved() {
    let index = HashIndex::new();
    let empty = index.memory_bytes();
    index.reserve(90_000);
    let reserved = index.memory_bytes();
    assert!(reserved - empty >= 90_000 * 17, "{reserved} bytes");
    for i in 0..90_000 {
        insert(&index, hash_integer(i), RowId(i as u64));
    }
    assert_eq!(index.memory_bytes(), reserved);
    assert_eq!(index.len(), 90_000);
    index.trim();
    assert_eq!(index.memory_bytes(), reserved);
    let unused = HashIndex::new();
    unused.reserve(90_000);
    assert!(unused.memory_bytes() >= reserved);
    unused.trim();
    assert!(unused.memory_bytes() <= empty + SHARDS * (ROOM_MIN + 8) * 17 * 2);
}

#[test]
fn of_two_concurrent_adders_one_sees_the_other() {
    let index = HashIndex::new();
    let barrier = Barrier::new(2);
    let add = |row: u64| {
        (0..2_000)
            .map(|key| {
                barrier.wait();
                !insert(&index, hash_integer(key), RowId(row)).is_empty()
            })
            .collect::<Vec<bool>>()
    };
    let (a, b) = std::thread::scope(|scope| {
        let other = scope.spawn(|| add(1));
        let mine = add(2);
        (mine, other.join().expect("the adder does not panic"))
    });
    assert!(
        a.iter().zip(&b).all(|(a, b)| a ^ b),
        "exactly one of each pair came second"
    );
}

#[test]
fn memory_follows_the_entries_and_is_counted() {
    let memory = Arc::new(Counter::new(0));
    let counted = || memory.load(Ordering::Relaxed);
    let index = HashIndex::counted(memory.clone());
    let other = HashIndex::counted(memory.clone());
    let empty = index.memory_bytes();
    assert_eq!(counted(), 2 * empty);
    let hash = |n: u64| hash_integer(n as i64);
    for n in 0..200_000 {
        assert!(index.insert(hash(n), RowId(n), &mut Vec::new()));
        assert!(!index.insert(hash(n), RowId(n), &mut Vec::new()));
    }
    let full = index.memory_bytes();
    assert!(full > 200_000 * 16 && counted() == full + empty);
    // Most entries are removed at once, and then the rest one by one.
    index.retain(|key, row| {
        assert_eq!(key, hash(row.0));
        row.0 % 20 == 0
    });
    assert_eq!(
        (index.len(), counted()),
        (10_000, index.memory_bytes() + empty)
    );
    assert!(
        index.memory_bytes() < full / 4,
        "{} of {full}",
        index.memory_bytes()
    );
    for n in (0..200_000).step_by(20) {
        assert_eq!(lookup(&index, hash(n)), [RowId(n)]);
        assert!(lookup(&index, hash(n + 1)).is_empty());
    }
    (0..200_000).for_each(|n| index.remove(hash(n), RowId(n)));
    assert!(index.is_empty());
    assert!(index.memory_bytes() <= empty + SHARDS * (ROOM_MIN + 8) * 17 * 2);
    assert_eq!(counted(), index.memory_bytes() + empty);
    index.reserve(50_000);
    assert_eq!(counted(), index.memory_bytes() + empty);
    drop(index);
    assert_eq!(counted(), empty);
    drop(other);
    assert_eq!(counted(), 0);
}
