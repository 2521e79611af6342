//! Models of the key index under a controlled scheduler, built with `RUSTFLAGS="--cfg shuttle"`;
//! `make models` runs them. A failure prints the schedule, which `shuttle::replay` runs again.
#![cfg(shuttle)]

mod fd_tree;
mod lid_block;
mod r_tree;

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner, thread};
use std::sync::Arc;
use strandline_base::sync::{AtomicU64, Ordering};
use strandline_base::{CommitTs, RowId, Value};
use strandline_index::{
    AccessMethod, Direction, HashIndex, KeyBytes, KeyRange, MemoryIndex, OrderedIndex, PartOrder,
    RowKeys, hash_integer,
};

/// Three rows get the same key at the same time: of any two, at least one sees the other, and
/// here exactly one, since nothing is removed.
#[test]
fn of_two_adders_one_sees_the_other() {
    shuttle::check_dfs(
        || {
            let index = Arc::new(HashIndex::new());
            let key = hash_integer(7);
            let adders: Vec<_> = (0..3)
                .map(|row| {
                    let index = index.clone();
                    thread::spawn(move || {
                        let mut others = Vec::new();
                        index.insert(key, RowId(row), &mut others);
                        others
                    })
                })
                .collect();
            let seen: Vec<Vec<RowId>> = adders
                .into_iter()
                .map(|adder| adder.join().expect("no adder panics"))
                .collect();
            for a in 0..3 {
                for b in 0..a {
                    let a_sees = seen[a].contains(&RowId(b as u64));
                    let b_sees = seen[b].contains(&RowId(a as u64));
                    assert!(a_sees ^ b_sees, "{seen:?}");
                }
            }
        },
        Some(20_000),
    );
}

/// An adder that comes after the removal of another row does not see it, and a reader sees each
/// row at most once.
#[test]
fn removal_and_lookup_are_atomic() {
    shuttle::check_dfs(
        || {
            let index = Arc::new(HashIndex::new());
            let key = hash_integer(7);
            index.insert(key, RowId(1), &mut Vec::new());
            let replacer = {
                let index = index.clone();
                thread::spawn(move || {
                    index.remove(key, RowId(1));
                    let mut others = Vec::new();
                    index.insert(key, RowId(2), &mut others);
                    assert!(!others.contains(&RowId(1)), "{others:?}");
                })
            };
            let mut others = Vec::new();
            index.insert(key, RowId(3), &mut others);
            let mut rows = Vec::new();
            index.lookup(key, &mut rows);
            assert!(rows.contains(&RowId(3)) && rows.len() <= 2, "{rows:?}");
            replacer.join().expect("the replacer does not panic");
            assert_eq!(index.len(), 2);
        },
        Some(20_000),
    );
}

/// A row that had a key comes back to it, and goes on, while a sweep reads the key that it has, and
/// then removes entries if the row is unchanged: the last key always leads to the row, and an entry
/// that it has left goes sooner or later.
#[test]
fn an_entry_that_is_entered_again_is_not_lost() {
    shuttle::check_dfs(
        || {
            let (former, present) = (hash_integer(7), hash_integer(8));
            let index = Arc::new(MemoryIndex::default());
            let row_keys = Arc::new(RowKeys::default());
            // The row's record: its number, and the lowest bit says which key it has.
            let record = Arc::new(AtomicU64::new(1));
            let key_of = move |record: u64| [former, present][(record & 1) as usize];
            for hash in [former, present] {
                let key = KeyBytes::hashed(hash);
                let added = index.insert(&key, RowId(1), &mut Vec::new());
                assert!(added.expect("in memory"));
            }
            let sweep = {
                let (index, row_keys, record) = (index.clone(), row_keys.clone(), record.clone());
                move || {
                    for hash in [former, present] {
                        let read = record.load(Ordering::Acquire);
                        row_keys.remove(|| {
                            let is_unchanged = record.load(Ordering::Acquire) == read;
                            if is_unchanged && key_of(read) != hash {
                                let retired =
                                    index.retire(&KeyBytes::hashed(hash), RowId(1), CommitTs::ZERO);
                                retired.expect("in memory");
                            }
                        });
                    }
                }
            };
            let sweeper = thread::spawn(sweep.clone());
            for (number, which) in [(1, 0), (2, 1), (3, 0)] {
                let hash = [former, present][which as usize];
                record.store(number << 1 | which, Ordering::Release);
                let entered = KeyBytes::hashed(hash);
                let entered = row_keys.enter(|| index.insert(&entered, RowId(1), &mut Vec::new()));
                entered.expect("in memory");
            }
            sweeper.join().expect("the sweeper does not panic");
            let mut rows = Vec::new();
            let found = index.lookup(&KeyBytes::hashed(former), &mut rows);
            found.expect("in memory");
            assert_eq!(rows, [RowId(1)], "the key that the row has");
            sweep();
            assert_eq!(index.len(), 1);
        },
        Some(20_000),
    );
}

fn variable(name: &str, default: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Half of the runs with random switches, half with few switches at the worst places.
fn explore(model: impl Fn() + Send + Sync + Clone + 'static) {
    let seed = variable("STRANDLINE_SEED", 1);
    let runs = variable("STRANDLINE_MODEL_RUNS", 1_000) as usize;
    println!("seed {seed}");
    let mut config = Config::new();
    // A tree is made on the stack.
    config.stack_size = 1 << 20;
    Runner::new(RandomScheduler::new_from_seed(seed, runs), config.clone()).run(model.clone());
    Runner::new(PctScheduler::new_from_seed(seed, 3, runs), config).run(model);
}

/// Nodes have three entries here, so that a few make a tree of several levels.
fn ordered(entries: impl IntoIterator<Item = (i64, u64)>) -> Arc<OrderedIndex> {
    let index = OrderedIndex::counted(vec![PartOrder::default()], Arc::default());
    for (v, row) in entries {
        let is_new = index.add(&number(&index, v), RowId(row));
        assert!(is_new.expect("in memory"));
    }
    Arc::new(index)
}

fn number(index: &OrderedIndex, v: i64) -> KeyBytes {
    index.encode(&[Value::BigInt(v)])
}

fn assert_whole(index: &OrderedIndex, entries: &[(i64, u64)]) {
    let mut damage = Vec::new();
    index.check(&mut damage).expect("in memory");
    assert_eq!(damage, Vec::<String>::new());
    assert_eq!(seen(index, Direction::Forward), keys_of(index, entries));
}

fn keys_of(index: &OrderedIndex, entries: &[(i64, u64)]) -> Vec<(KeyBytes, RowId)> {
    let keys = entries
        .iter()
        .map(|(v, row)| (number(index, *v), RowId(*row)));
    keys.collect()
}

fn seen(index: &OrderedIndex, direction: Direction) -> Vec<(KeyBytes, RowId)> {
    let mut cursor = index
        .cursor(&KeyRange::default(), direction)
        .expect("ordered");
    std::iter::from_fn(|| cursor.next().expect("in memory")).collect()
}

/// Two rows get the same key at the same time, whose entries are in one leaf or in several, while a
/// third thread splits and joins leaves beside them: exactly one of the two sees the other.
#[test]
fn of_two_adders_to_an_ordered_index_one_sees_the_other() {
    explore(|| {
        let others = [(1, 1), (3, 1), (5, 1), (5, 2), (5, 3), (5, 4), (7, 1)];
        let index = ordered(others);
        let adders = [10, 20].map(|row| {
            let index = index.clone();
            thread::spawn(move || {
                let mut others = Vec::new();
                let is_new = index.insert(&number(&index, 5), RowId(row), &mut others);
                assert!(is_new.expect("in memory"));
                let before = others.iter().filter(|row| row.0 < 10).count();
                assert!((3..=4).contains(&before), "{others:?}");
                others
            })
        });
        let neighbour = {
            let index = index.clone();
            thread::spawn(move || {
                index.add(&number(&index, 4), RowId(1)).expect("in memory");
                for (v, row) in [(3, 1), (5, 2), (4, 1)] {
                    let retired = index.retire(&number(&index, v), RowId(row), CommitTs::ZERO);
                    retired.expect("in memory");
                }
            })
        };
        let [a, b] = adders.map(|adder| adder.join().expect("no adder panics"));
        assert!(
            a.contains(&RowId(20)) ^ b.contains(&RowId(10)),
            "{a:?} {b:?}"
        );
        neighbour.join().expect("it does not panic");
        let left = [(1, 1), (5, 1), (5, 3), (5, 4), (5, 10), (5, 20), (7, 1)];
        assert_whole(&index, &left);
    });
}

/// Who adds and then looks sees what was added before the look began: of two at least one sees the
/// other.
#[test]
fn of_two_that_add_and_look_one_sees_the_other() {
    explore(|| {
        let index = ordered([(1, 1), (5, 1), (5, 2), (9, 1)]);
        let threads = [10, 20].map(|row| {
            let index = index.clone();
            thread::spawn(move || {
                let key = number(&index, 5);
                index.add(&key, RowId(row)).expect("in memory");
                let mut rows = Vec::new();
                index.lookup(&key, &mut rows).expect("in memory");
                assert!(rows.is_sorted() && rows.contains(&RowId(row)), "{rows:?}");
                rows
            })
        });
        let [a, b] = threads.map(|thread| thread.join().expect("it does not panic"));
        assert!(
            a.contains(&RowId(20)) || b.contains(&RowId(10)),
            "{a:?} {b:?}"
        );
    });
}

/// Cursors in both directions while leaves are split and joined: every entry that stays is seen
/// once, in order.
#[test]
fn cursors_see_what_stays() {
    for direction in [Direction::Forward, Direction::Backward] {
        explore(move || {
            let stay = [(10, 1), (20, 1), (30, 1), (40, 1), (50, 1)];
            let go = [(21, 1), (22, 1), (23, 1), (24, 1), (41, 1), (42, 1)];
            let index = ordered(stay.into_iter().chain(go));
            let come = [(31, 1), (32, 1), (33, 1), (5, 1)];
            let adder = {
                let index = index.clone();
                thread::spawn(move || {
                    for (v, row) in come {
                        index
                            .add(&number(&index, v), RowId(row))
                            .expect("in memory");
                    }
                })
            };
            let remover = {
                let index = index.clone();
                thread::spawn(move || {
                    for (v, row) in go {
                        let retired = index.retire(&number(&index, v), RowId(row), CommitTs::ZERO);
                        retired.expect("in memory");
                    }
                })
            };
            let mut entries = seen(&index, direction);
            if direction == Direction::Backward {
                entries.reverse();
            }
            assert!(entries.is_sorted_by(|a, b| a < b), "{entries:?}");
            for entry in keys_of(&index, &stay) {
                assert!(entries.contains(&entry), "{entry:?} of {entries:?}");
            }
            adder.join().expect("it does not panic");
            remover.join().expect("it does not panic");
            let mut left: Vec<_> = stay.into_iter().chain(come).collect();
            left.sort();
            assert_whole(&index, &left);
        });
    }
}

/// A load, a writer and a sweep at once: nothing is lost.
#[test]
fn a_load_among_writers_loses_nothing() {
    explore(|| {
        let index = ordered([(2, 1), (4, 1), (6, 1), (8, 1)]);
        let loader = {
            let index = index.clone();
            thread::spawn(move || {
                let mut load = index.bulk_load();
                for v in 0..10 {
                    let pushed = load.push(&[Value::BigInt(v)], RowId(2), &mut Vec::new());
                    pushed.expect("in memory");
                }
                load.finish().expect("in memory");
            })
        };
        let writer = {
            let index = index.clone();
            thread::spawn(move || {
                for v in [3, 5, 7] {
                    index.add(&number(&index, v), RowId(3)).expect("in memory");
                }
            })
        };
        let retained = index.retain(&mut |_, row| row.0 != 1);
        retained.expect("in memory");
        loader.join().expect("it does not panic");
        writer.join().expect("it does not panic");
        let loaded = (0..10).map(|v| (v, 2));
        let mut left: Vec<_> = loaded.chain([(3, 3), (5, 3), (7, 3)]).collect();
        left.sort();
        assert_whole(&index, &left);
    });
}
