//! What an FD+tree adds to the suite of all methods (`tests/methods.rs`): retired entries that
//! wait, loads beside writers, estimates, long keys, openings.

use super::*;
use std::collections::BTreeSet;
use std::sync::atomic::AtomicU64;
use strandline_base::rng::Rng;
use strandline_storage::level_blocks::MemoryBlocks;

/// An index with tiny blocks.
struct Tested {
    index: FdIndex,
    blocks: Arc<MemoryBlocks>,
    oldest: Arc<AtomicU64>,
}

impl Tested {
    fn over(blocks: Arc<MemoryBlocks>, parts: PartOrder) -> Self {
        let oldest = Arc::new(AtomicU64::new(10));
        let snapshot = oldest.clone();
        let oldest_snapshot = Arc::new(move || CommitTs(snapshot.load(Relaxed)));
        let mut settings = FdIndexSettings::new(vec![parts], oldest_snapshot);
        settings.tree = Settings {
            head_bytes: 2000,
            head_blocks: 8,
            ratio: 3,
            batch_bytes: 4096,
            ..Settings::default()
        };
        let index = FdIndex::open(blocks.clone(), settings).unwrap();
        Self {
            index,
            blocks,
            oldest,
        }
    }

    fn new() -> Self {
        Self::over(Arc::new(MemoryBlocks::new(256)), PartOrder::default())
    }

    fn key(&self, number: u64) -> KeyBytes {
        self.index.encode(&[Value::BigInt(number as i64)])
    }

    fn load(&self, entries: impl IntoIterator<Item = (u64, u64)>) -> BTreeSet<(KeyBytes, RowId)> {
        let mut load = self.index.bulk_load_unique();
        for (number, row) in entries {
            let key = [Value::BigInt(number as i64)];
            load.push(&key, RowId(row), &mut Vec::new()).unwrap();
        }
        let met = load.collisions().unwrap();
        load.finish().unwrap();
        met.into_iter().map(|met| (met.key, met.row)).collect()
    }

    fn seen(&self, direction: Direction) -> Vec<(KeyBytes, RowId)> {
        let mut cursor = self.index.cursor(&KeyRange::default(), direction).unwrap();
        std::iter::from_fn(|| cursor.next().unwrap()).collect()
    }

    fn verify(&self, model: &BTreeSet<(u64, u64)>) {
        let entries = model.iter();
        let mut expected: Vec<_> = entries
            .map(|(number, row)| (self.key(*number), RowId(*row)))
            .collect();
        assert_eq!(self.seen(Direction::Forward), expected);
        expected.reverse();
        assert_eq!(self.seen(Direction::Backward), expected);
        assert_eq!(self.index.len(), model.len());
        let mut damage = Vec::new();
        self.index.check(&mut damage).unwrap();
        assert_eq!(damage, Vec::<String>::new());
    }
}

/// A retired entry stays until the oldest snapshot is new enough, and for good if it is added
/// again.
#[test]
fn retired_entries_wait_for_the_oldest_snapshot() {
    let tested = Tested::new();
    for row in 1..=4 {
        assert!(tested.index.add(&tested.key(7), RowId(row)).unwrap());
    }
    let rows = || {
        let mut rows = Vec::new();
        tested.index.lookup(&tested.key(7), &mut rows).unwrap();
        rows.into_iter().map(|row| row.0).collect::<Vec<_>>()
    };
    let retire = |row, since| {
        let retired = tested
            .index
            .retire(&tested.key(7), RowId(row), CommitTs(since));
        retired.unwrap();
    };
    retire(1, 0);
    retire(2, 20);
    retire(3, 20);
    retire(4, 30);
    assert_eq!(rows(), [2, 3, 4]);
    assert!(!tested.index.add(&tested.key(7), RowId(3)).unwrap());
    tested.oldest.store(19, Relaxed);
    tested.index.compact_step().unwrap();
    assert_eq!(rows(), [2, 3, 4]);
    tested.oldest.store(20, Relaxed);
    tested.index.compact_step().unwrap();
    assert_eq!(rows(), [3, 4], "3 was added again");
    tested.oldest.store(90, Relaxed);
    tested.index.retain(&mut |_, _| true).unwrap();
    assert_eq!(rows(), [3], "a sweep removes what is expired");
    assert_eq!(tested.index.retired.memory_bytes(), 0);
}

/// A retired entry that a load adds again stays; the others go.
#[test]
fn a_load_keeps_what_was_retired() {
    let tested = Tested::new();
    tested.load((0..400).map(|number| (number, 1)));
    for number in 100..200 {
        let retired = tested
            .index
            .retire(&tested.key(number), RowId(1), CommitTs(20));
        retired.unwrap();
    }
    tested.load((0..150).map(|number| (number, 1)));
    tested.oldest.store(20, Relaxed);
    tested.index.retain(&mut |_, _| true).unwrap();
    tested.verify(&(0..150).chain(200..400).map(|number| (number, 1)).collect());
}

/// Retired entries take a bounded memory; those beyond are left to the sweep.
#[test]
fn retired_entries_are_bounded() {
    let retired = Retired::new(1000);
    for number in 0..100_u64 {
        retired.put(&number.to_be_bytes(), CommitTs(5));
        assert!(retired.memory_bytes() <= 1000);
    }
    let expired = retired.expired(CommitTs(5), 1000);
    assert_eq!(expired.len(), 1000 / (2 * 8 + 80));
    for entry in expired {
        assert!(!retired.take(&entry, CommitTs(4)) && retired.take(&entry, CommitTs(5)));
    }
    assert_eq!(retired.memory_bytes(), 0);
}

/// Loads into an empty tree and into one with entries, some of them the same, some under the same
/// key, with deletes in the head.
#[test]
fn loads_equal_a_set_and_report_collisions() {
    for seed in 0..12 {
        let (tested, mut rng) = (Tested::new(), Rng::new(seed));
        let mut model = BTreeSet::new();
        for round in 0..4 {
            for _ in 0..rng.below(60) {
                let (number, row) = (rng.below(300), rng.below(3));
                let key = tested.key(number);
                match rng.one_in(2) {
                    true => {
                        tested.index.add(&key, RowId(row)).unwrap();
                        model.insert((number, row));
                    }
                    false => {
                        let retired = tested.index.retire(&key, RowId(row), CommitTs::ZERO);
                        retired.unwrap();
                        model.remove(&(number, row));
                    }
                }
            }
            let count = [5, 200, 2500][rng.below(3) as usize];
            let entries = (0..count).map(|_| (rng.below(300 * (round + 1)), rng.below(3)));
            let entries: BTreeSet<(u64, u64)> = entries.collect();
            let met = tested.load(entries.iter().copied());
            let new: Vec<_> = entries.difference(&model).copied().collect();
            model.extend(&new);
            let others = |number: u64| model.range((number, 0)..(number, 9)).count() - 1;
            let collided = new.iter().filter(|(number, _)| others(*number) > 0);
            let is_met = |number: u64, row| met.contains(&(tested.key(number), RowId(row)));
            let missed: Vec<u64> = collided
                .filter(|(number, row)| !is_met(*number, *row))
                .map(|(number, _)| *number)
                .collect();
            // Of a key's entries in several runs the first was alone when it was added.
            let is_one_run = entries.len() < 1000;
            assert!(missed.is_sorted_by(|a, b| a < b), "{missed:?}");
            assert!(missed.is_empty() || !is_one_run, "{missed:?}");
            let too_many = met.iter().filter(|(key, _)| {
                let number = |number: &u64| tested.key(*number) == *key;
                (0..1200).filter(number).all(|number| others(number) == 0)
            });
            assert_eq!(too_many.count(), 0);
            tested.verify(&model);
        }
        tested.index.checkpoint().unwrap();
        Tested::over(tested.blocks.clone(), PartOrder::default()).verify(&model);
    }
}

/// A load among writers of the same entries: real threads.
#[test]
fn a_load_among_writers_loses_nothing() {
    for seed in 0..6 {
        let tested = Tested::new();
        let mut rng = Rng::new(seed);
        for _ in 0..300 {
            let _ = tested.index.add(&tested.key(rng.below(900)), RowId(1));
        }
        std::thread::scope(|scope| {
            scope.spawn(|| tested.load((0..900).map(|number| (number, 1))));
            scope.spawn(|| {
                for number in (0..900).rev() {
                    tested.index.add(&tested.key(number), RowId(1)).unwrap();
                    tested.index.add(&tested.key(number), RowId(2)).unwrap();
                }
            });
        });
        let rows = |number| [(number, 1), (number, 2)];
        tested.verify(&(0..900).flat_map(rows).collect());
    }
}

/// A load writes an empty tree in one pass: about as many blocks as the entries need, no level
/// without data above a small one.
#[test]
fn a_load_writes_each_block_once() {
    let tested = Tested::new();
    tested.load((0..900).map(|number| (number, number)));
    let levels = tested.index.tree().levels();
    let data = levels.last().unwrap();
    assert!(!data.2 && data.1 < 100, "{levels:?}");
    assert!(tested.index.memory_bytes() < 20_000);
}

/// Estimates are exact for few entries, and near for many, also during a compaction.
#[test]
fn estimates_are_near() {
    let tested = Tested::new();
    tested.load((0..3000).map(|number| (number, 1)));
    for step in 0..60 {
        let number = 7919 * step % 3000;
        tested.index.add(&tested.key(number), RowId(2)).unwrap();
        let range = |from, before| KeyRange {
            from: Some(tested.key(from)),
            before: Some(tested.key(before)),
        };
        let estimate = |from, before| tested.index.estimate(&range(from, before)).unwrap();
        assert!((100..=110).contains(&estimate(500, 600)));
        assert_eq!(estimate(600, 500), 0);
        for (from, before) in [(0, 3000), (500, 2500), (100, 1100)] {
            let (near, exact) = (estimate(from, before), (before - from) as usize);
            assert!(
                near * 4 > exact * 3 && near * 3 < exact * 4,
                "{near}, {exact}"
            );
        }
    }
}

/// Keys that a block cannot hold are refused by every way in, and change nothing.
#[test]
fn long_keys_are_refused() {
    let tested = Tested::new();
    let long = [Value::from("x".repeat(300))];
    let key = tested.index.encode(&long);
    let error = tested.index.insert(&key, RowId(1), &mut Vec::new());
    assert_eq!(
        error.unwrap_err().sqlstate(),
        SqlState::PROGRAM_LIMIT_EXCEEDED
    );
    assert!(tested.index.add(&key, RowId(1)).is_err());
    let mut load = tested.index.bulk_load();
    assert!(load.push(&long, RowId(1), &mut Vec::new()).is_err());
    load.push(&[Value::from("x".repeat(150))], RowId(2), &mut Vec::new())
        .unwrap();
    load.finish().unwrap();
    assert_eq!(tested.index.len(), 1);
    // The longest that fits, with a fence before it, in every block.
    for number in 0..40 {
        let text = format!("{number:02}{}", "y".repeat(176));
        let key = tested.index.encode(&[Value::from(text)]);
        assert!(tested.index.add(&key, RowId(3)).unwrap());
    }
    tested.index.tree().compact().unwrap();
    assert_eq!(tested.seen(Direction::Forward).len(), 41);
}
