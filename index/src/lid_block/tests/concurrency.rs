//! Adders, removers, readers, early moves, vacuums and sweeps at once, with memory for fewer pages
//! than there are.

use super::*;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

/// Each thread adds and removes entries of its own among the others' and keeps a model of them,
/// while a reader verifies the order and entries that stay, and another one moves blocks.
#[test]
fn threads_find_what_they_added_and_others_keep() {
    for (round, kind) in KINDS.into_iter().cycle().take(8).enumerate() {
        println!("round {round}");
        let mut tested = Tested::new(kind, [3, 8][round % 2], 256);
        if round >= 6 {
            // Some changes find no room for a block, and go into the tree.
            tested.index = tested.index.with_block_memory(2_000);
        }
        let index = &tested.index;
        let stay: Vec<_> = (0..100).map(|v| (tested.key(v * 8), RowId(1))).collect();
        for (key, row) in &stay {
            index.add(key, *row).expect("added");
        }
        let (left, is_over) = (Mutex::new(stay.clone()), AtomicBool::new(false));
        thread::scope(|scope| {
            let writers: Vec<_> = (1..4_u64)
                .map(|own| {
                    let (left, tested) = (&left, &tested);
                    scope.spawn(move || {
                        let mut rng = Rng::new(round as u64 * 10 + own);
                        let mut model = Entries::new();
                        for _ in 0..800 {
                            // The keys are everybody's, the rows the thread's own.
                            let key = tested.key(rng.below(100) as i64 * 4);
                            let row = RowId(rng.below(3) * 10 + own + 1);
                            match rng.below(4) {
                                0 => drop(index.add(&key, row).expect("added")),
                                1 => {
                                    let is_new = index.insert(&key, row, &mut Vec::new());
                                    let is_known = model.contains(&(key.clone(), row));
                                    assert_eq!(is_new.expect("added"), !is_known);
                                }
                                _ => {
                                    let gone = index.retire(&key, row, CommitTs::ZERO);
                                    gone.expect("retired");
                                }
                            }
                            let mut rows = Vec::new();
                            index.lookup(&key, &mut rows).expect("read");
                            let is_there = rows.contains(&row);
                            match is_there {
                                true => drop(model.insert((key.clone(), row))),
                                false => drop(model.remove(&(key.clone(), row))),
                            }
                            let own: Vec<_> = rows.iter().filter(|r| r.0 % 10 == own + 1).collect();
                            let known = model.iter().filter(|(of, _)| *of == key);
                            assert!(own.into_iter().eq(known.map(|(_, row)| row)));
                        }
                        left.lock().expect("not poisoned").extend(model);
                    })
                })
                .collect();
            let (stay, is_over) = (&stay, &is_over);
            scope.spawn(move || {
                while !is_over.load(Relaxed) {
                    index.flush_step().expect("flushed");
                    thread::yield_now();
                }
            });
            scope.spawn(move || {
                for round in 0..12 {
                    let direction = [Direction::Forward, Direction::Backward][round % 2];
                    let mut seen = collect(index, &KeyRange::default(), direction);
                    if direction == Direction::Backward {
                        seen.reverse();
                    }
                    assert!(seen.is_sorted_by(|a, b| a < b));
                    let seen: Entries = seen.into_iter().collect();
                    assert!(stay.iter().all(|entry| seen.contains(entry)));
                    assert_sound(index);
                    if round % 4 == 3 {
                        index.vacuum().expect("vacuumed");
                    }
                }
            });
            let joined: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
            is_over.store(true, Relaxed);
            assert!(
                joined.iter().all(|joined| joined.is_ok()),
                "no writer panics"
            );
        });
        let mut left = left.into_inner().expect("not poisoned");
        left.sort();
        let seen = collect(index, &KeyRange::default(), Direction::Forward);
        assert_eq!(seen, left);
        assert_sound(index);
        assert_eq!(tested.vacuumed(), left.len());
    }
}

/// Of all rows that get one key at the same time each sees exactly the ones before it, or it and
/// the other one see each other.
#[test]
fn of_two_adders_one_sees_the_other() {
    for (round, kind) in KINDS.into_iter().cycle().take(6).enumerate() {
        let tested = Tested::new(kind, 4, [256, PAGE_BODY_BYTES][round % 2]);
        let seen = Mutex::new(BTreeMap::new());
        thread::scope(|scope| {
            for thread in 0..4_u64 {
                let (seen, tested) = (&seen, &tested);
                scope.spawn(move || {
                    for no in 0..15 {
                        let (mut others, row) = (Vec::new(), RowId(thread * 100 + no));
                        let is_new = tested.index.insert(&tested.key(20), row, &mut others);
                        assert!(is_new.expect("added"));
                        seen.lock().expect("not poisoned").insert(row, others);
                    }
                });
            }
            let (seen, tested) = (&seen, &tested);
            scope.spawn(move || {
                let mut load = tested.index.bulk_load_unique();
                load.push(&number(20), RowId(900), &mut Vec::new())
                    .expect("pushed");
                let met = load.collisions().expect("entered");
                let others = met.into_iter().flat_map(|met| met.others).collect();
                seen.lock()
                    .expect("not poisoned")
                    .insert(RowId(900), others);
            });
        });
        let seen = seen.into_inner().expect("not poisoned");
        for (a, of_a) in &seen {
            for (b, of_b) in seen.iter().filter(|(b, _)| *b < a) {
                assert!(of_a.contains(b) || of_b.contains(a), "{a:?} {b:?}");
            }
        }
    }
}
