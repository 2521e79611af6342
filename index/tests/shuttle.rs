//! Models of the key index under a controlled scheduler, built with `RUSTFLAGS="--cfg shuttle"`;
//! `make models` runs them. A failure prints the schedule, which `shuttle::replay` runs again.
#![cfg(shuttle)]

use shuttle::thread;
use std::sync::Arc;
use strandline_base::sync::{AtomicU64, Ordering};
use strandline_base::{CommitTs, RowId};
use strandline_index::{AccessMethod, HashIndex, KeyBytes, MemoryIndex, RowKeys, hash_integer};

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

/// A row that had a key comes back to it, and goes on, while its entries are compared with the key
/// that it has: the last one always leads to it, and one that it has left goes sooner or later.
#[test]
fn an_entry_that_is_entered_again_is_not_lost() {
    shuttle::check_dfs(
        || {
            let (former, present) = (hash_integer(7), hash_integer(8));
            let index = Arc::new(MemoryIndex::default());
            let row_keys = Arc::new(RowKeys::default());
            let key = Arc::new(AtomicU64::new(present));
            for hash in [former, present] {
                let key = KeyBytes::hashed(hash);
                let added = index.insert(&key, RowId(1), &mut Vec::new());
                assert!(added.expect("in memory"));
            }
            let sweep = {
                let (index, row_keys, key) = (index.clone(), row_keys.clone(), key.clone());
                move || {
                    for hash in [former, present] {
                        row_keys.remove(|| {
                            if key.load(Ordering::Acquire) != hash {
                                let retired =
                                    index.retire(&KeyBytes::hashed(hash), RowId(1), CommitTs::ZERO);
                                retired.expect("in memory");
                            }
                        });
                    }
                }
            };
            let sweeper = thread::spawn(sweep.clone());
            for hash in [former, present, former] {
                key.store(hash, Ordering::Release);
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
