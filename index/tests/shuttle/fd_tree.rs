//! Models of the FD+tree: lookups, cursors and writers beside the steps of compactions, which
//! replace blocks and free them.

use crate::explore;
use shuttle::thread;
use std::sync::Arc;
use strandline_base::{CommitTs, RowId, Value};
use strandline_index::{
    AccessMethod, Direction, FdIndex, FdIndexSettings, FdTree, FdTreeMode, FdTreeSettings,
    PartOrder,
};
use strandline_storage::level_blocks::MemoryBlocks;
use strandline_storage::pool::Pool;

/// Blocks of two entries, so that a few make a tree of several levels.
fn tree(mode: FdTreeMode, numbers: impl IntoIterator<Item = u8>) -> Arc<FdTree> {
    let settings = FdTreeSettings {
        mode,
        head_bytes: 400,
        head_blocks: 1,
        ratio: 2,
        block_entries_max: 2,
        batch_bytes: 64,
        filter_bits: 0,
        ..FdTreeSettings::default()
    };
    let blocks = Arc::new(MemoryBlocks::new(64));
    let tree = FdTree::open(settings, blocks, Pool::new(0)).expect("in memory");
    for number in numbers {
        assert!(tree.add(&[number]).expect("in memory"));
    }
    tree.compact().expect("in memory");
    Arc::new(tree)
}

fn numbers(tree: &FdTree, direction: Direction) -> Vec<u8> {
    let mut found = Vec::new();
    let seen = tree.scan(&[], None, direction, |entry| {
        found.push(entry[0]);
        true
    });
    seen.expect("in memory");
    found
}

fn assert_whole(tree: &FdTree, expected: &[u8]) {
    let mut damage = Vec::new();
    tree.check(&mut damage).expect("in memory");
    assert_eq!(
        damage,
        Vec::<String>::new(),
        "{:?} {}",
        tree.levels(),
        tree.is_compacting()
    );
    assert_eq!(numbers(tree, Direction::Forward), expected);
    assert_eq!(tree.len(), expected.len());
}

/// Compacts from one state to another, whole and by steps, beside everybody else.
fn compact(tree: &Arc<FdTree>) -> thread::JoinHandle<()> {
    let tree = tree.clone();
    thread::spawn(move || {
        tree.compact().expect("in memory");
        for _ in 0..3 {
            tree.compact_step().expect("in memory");
        }
    })
}

/// A lookup finds what nobody changes, whatever block of its path is replaced and freed meanwhile.
#[test]
fn lookups_find_what_stays_during_compactions() {
    for mode in [FdTreeMode::Fc, FdTreeMode::Ds] {
        explore(move || {
            let tree = tree(mode, (0..12).map(|number| 10 * number));
            let compactor = compact(&tree);
            let writer = {
                let tree = tree.clone();
                thread::spawn(move || {
                    for number in [15, 95, 35] {
                        assert!(tree.add(&[number]).expect("in memory"));
                    }
                    for number in [50, 35] {
                        assert!(tree.remove(&[number]).expect("in memory"));
                    }
                })
            };
            for number in [0, 40, 60, 110] {
                assert!(tree.contains(&[number]).expect("not freed"), "{number}");
                assert!(!tree.contains(&[number + 1]).expect("not freed"));
            }
            writer.join().expect("it does not panic");
            compactor.join().expect("it does not panic");
            let left = [0, 10, 15, 20, 30, 40, 60, 70, 80, 90, 95, 100, 110];
            assert_whole(&tree, &left);
            tree.compact().expect("in memory");
            tree.checkpoint().expect("in memory");
            assert_whole(&tree, &left);
            assert_eq!(tree.unfreed_blocks(), 0, "no reader is left");
        });
    }
}

/// A cursor sees every entry that stays once and in order, on either side of the wavefront.
#[test]
fn cursors_see_what_stays_during_compactions() {
    for direction in [Direction::Forward, Direction::Backward] {
        explore(move || {
            let stay = [10, 20, 30, 40, 50, 60, 70];
            let tree = tree(FdTreeMode::Fc, stay);
            let compactor = compact(&tree);
            let writer = {
                let tree = tree.clone();
                thread::spawn(move || {
                    for number in [25, 65] {
                        assert!(tree.add(&[number]).expect("in memory"));
                    }
                    assert!(tree.remove(&[25]).expect("in memory"));
                })
            };
            let mut found = numbers(&tree, direction);
            if direction == Direction::Backward {
                found.reverse();
            }
            assert!(found.is_sorted_by(|a, b| a < b), "{found:?}");
            found.retain(|number| number % 10 == 0);
            assert_eq!(found, stay);
            writer.join().expect("it does not panic");
            compactor.join().expect("it does not panic");
            assert_whole(&tree, &[10, 20, 30, 40, 50, 60, 65, 70]);
        });
    }
}

/// Of several threads that add or remove one entry, the kinds alternate: exactly one more has added
/// than removed it, or as many.
#[test]
fn adders_and_removers_of_one_entry_alternate() {
    explore(|| {
        let tree = tree(FdTreeMode::Fc, [10, 20, 30, 40]);
        let compactor = compact(&tree);
        let changers = [true, false, true].map(|is_adder| {
            let tree = tree.clone();
            thread::spawn(move || {
                let changed = match is_adder {
                    true => tree.add(&[25]),
                    false => tree.remove(&[25]),
                };
                (is_adder, changed.expect("in memory"))
            })
        });
        let mut present = 0;
        for changer in changers {
            match changer.join().expect("it does not panic") {
                (true, true) => present += 1,
                (false, true) => present -= 1,
                (_, false) => {}
            }
        }
        compactor.join().expect("it does not panic");
        assert_eq!(present == 1, tree.contains(&[25]).expect("in memory"));
        let expected: &[u8] = match present {
            1 => &[10, 20, 25, 30, 40],
            0 => &[10, 20, 30, 40],
            _ => panic!("added more than once: {present}"),
        };
        assert_whole(&tree, expected);
    });
}

/// An index with blocks of two entries, all of one key but the neighbours.
fn index(entries: impl IntoIterator<Item = (i64, u64)>) -> Arc<FdIndex> {
    let oldest = Arc::new(|| CommitTs::ZERO);
    let mut settings = FdIndexSettings::new(vec![PartOrder::default()], oldest);
    settings.tree = FdTreeSettings {
        head_bytes: 600,
        head_blocks: 4,
        ratio: 2,
        block_entries_max: 2,
        batch_bytes: 64,
        filter_bits: 0,
        ..FdTreeSettings::default()
    };
    let index = FdIndex::open(Arc::new(MemoryBlocks::new(128)), settings).expect("in memory");
    for (v, row) in entries {
        let is_new = index.add(&index.encode(&[Value::BigInt(v)]), RowId(row));
        assert!(is_new.expect("in memory"));
    }
    index.tree().compact().expect("in memory");
    Arc::new(index)
}

/// Two rows get the same key during a compaction: exactly one of them sees the other.
#[test]
fn of_two_adders_to_an_fd_index_one_sees_the_other() {
    explore(|| {
        let index = index([(1, 1), (5, 1), (5, 2), (9, 1)]);
        let adders = [10, 20].map(|row| {
            let index = index.clone();
            thread::spawn(move || {
                let (key, mut others) = (index.encode(&[Value::BigInt(5)]), Vec::new());
                let is_new = index.insert(&key, RowId(row), &mut others);
                assert!(is_new.expect("in memory"));
                others
            })
        });
        index.tree().compact().expect("in memory");
        let [a, b] = adders.map(|adder| adder.join().expect("it does not panic"));
        assert!(
            a.contains(&RowId(20)) ^ b.contains(&RowId(10)),
            "{a:?} {b:?}"
        );
        assert!(a.len() + b.len() == 5, "{a:?} {b:?}");
    });
}

/// A load of entries that writers add and remove, too: nothing is lost or there twice, and of a
/// load and an adder of one key at least one sees the other.
#[test]
fn a_load_into_an_fd_index_loses_nothing() {
    explore(|| {
        let index = index([(2, 1), (4, 1)]);
        let key = {
            let index = index.clone();
            move |v| index.encode(&[Value::BigInt(v)])
        };
        let adder = {
            let (index, key) = (index.clone(), key.clone());
            thread::spawn(move || {
                let mut others = Vec::new();
                for (v, row) in [(3, 1), (3, 2)] {
                    others.clear();
                    let inserted = index.insert(&key(v), RowId(row), &mut others);
                    inserted.expect("in memory");
                }
                others.contains(&RowId(1))
            })
        };
        let remover = {
            let (index, key) = (index.clone(), key.clone());
            thread::spawn(move || {
                let retired = index.retire(&key(4), RowId(1), CommitTs::ZERO);
                retired.expect("in memory");
            })
        };
        let mut load = index.bulk_load_unique();
        for v in 0..10 {
            let pushed = load.push(&[Value::BigInt(v)], RowId(1), &mut Vec::new());
            pushed.expect("in memory");
        }
        let met = load.collisions().expect("in memory");
        load.finish().expect("in memory");
        let adder_sees = adder.join().expect("it does not panic");
        remover.join().expect("it does not panic");
        let load_sees = met.iter().any(|met| met.others.contains(&RowId(2)));
        assert!(adder_sees || load_sees, "{met:?}");
        let mut damage = Vec::new();
        index.check(&mut damage).expect("in memory");
        assert_eq!(damage, Vec::<String>::new());
        for (v, rows) in [(2, vec![1]), (3, vec![1, 2]), (9, vec![1])] {
            let mut found = Vec::new();
            index.lookup(&key(v), &mut found).expect("in memory");
            assert!(found.iter().map(|row| row.0).eq(rows), "{v}: {found:?}");
        }
        assert!((10..=11).contains(&index.len()), "{}", index.len());
    });
}

/// Writers that wait for room or for work, and nobody else who drives: each is admitted in the end.
/// A lost wake-up is a deadlock here.
#[test]
fn writers_drive_a_compaction_for_each_other() {
    for mode in [FdTreeMode::Fc, FdTreeMode::Ds] {
        explore(move || {
            let tree = tree(mode, (0..8).map(|number| 10 * number));
            let writers: Vec<_> = (1..4)
                .map(|writer| {
                    let tree = tree.clone();
                    thread::spawn(move || {
                        for number in 0..6 {
                            let entry = [10 * number + writer];
                            assert!(tree.add(&entry).expect("in memory"));
                        }
                    })
                })
                .collect();
            for writer in writers {
                writer.join().expect("it does not panic");
            }
            let written = (0..6).flat_map(|tens| (0..4).map(move |number| 10 * tens + number));
            let expected: Vec<u8> = written.chain([60, 70]).collect();
            assert_whole(&tree, &expected);
        });
    }
}

/// Writers wait while a checkpoint, a check and a load have the compaction or wait for it. Whoever
/// ends leaves nobody behind who waits, and nobody is passed over for ever.
#[test]
fn writers_and_other_callers_do_not_starve_each_other() {
    explore(|| {
        let tree = tree(FdTreeMode::Fc, (0..8).map(|number| 10 * number));
        let writers: Vec<_> = (1..3)
            .map(|writer| {
                let tree = tree.clone();
                thread::spawn(move || {
                    for number in 0..8 {
                        let entry = [10 * number + writer];
                        assert!(tree.add(&entry).expect("in memory"));
                    }
                })
            })
            .collect();
        let callers: [fn(&FdTree); 3] = [
            |tree| tree.checkpoint().expect("in memory"),
            |tree| tree.check(&mut Vec::new()).expect("in memory"),
            |tree| {
                let entries = (0..4).map(|number| [10 * number + 5]);
                let entries: Vec<[u8; 1]> = entries.collect();
                let entries: Vec<&[u8]> = entries.iter().map(|entry| &entry[..]).collect();
                tree.load(&entries, None).expect("in memory");
            },
        ];
        let callers = callers.map(|call| {
            let tree = tree.clone();
            thread::spawn(move || call(&tree))
        });
        for thread in writers.into_iter().chain(callers) {
            thread.join().expect("it does not panic");
        }
        let mut expected: Vec<u8> = (0..8)
            .flat_map(|tens| [0, 1, 2].map(|n| 10 * tens + n))
            .collect();
        expected.extend([5, 15, 25, 35]);
        expected.sort_unstable();
        assert_whole(&tree, &expected);
    });
}

/// A writer that fills the head with entries of an uncommitted transaction is refused, and those
/// that wait behind it are not forgotten.
#[test]
fn a_head_full_of_pending_entries_refuses_all_writers() {
    explore(|| {
        let tree = tree(FdTreeMode::Fc, [0, 100]);
        let compactor = compact(&tree);
        let writers: Vec<_> = (1..3)
            .map(|writer| {
                let tree = tree.clone();
                thread::spawn(move || {
                    let mut entries = (0..20).map(|number| [10 * number + writer]);
                    entries.any(|entry| tree.add_pending(&entry).is_err())
                })
            })
            .collect();
        for writer in writers {
            let is_refused = writer.join().expect("it does not panic");
            assert!(is_refused, "the head has no room for all");
        }
        compactor.join().expect("it does not panic");
        assert!(tree.contains(&[100]).expect("in memory"));
    });
}
