//! Readers, inserters, removers, loads and sweeps at once, with memory for fewer pages than there
//! are.

use super::support::*;
use super::*;
use std::sync::Mutex;
use std::thread;
use strandline_device::MemoryDevice;

fn small_memory(node_bytes: usize) -> Tested {
    let device = Arc::new(MemoryDevice::default());
    Tested::on(store(device, Arc::default(), 12), node_bytes)
}

/// Each thread adds and removes keys of its own among the others' and keeps a model of them, while
/// a reader verifies the order and entries that stay.
#[test]
fn threads_find_what_they_added_and_others_keep() {
    for seed in 0..6 {
        println!("seed {seed}");
        let tested = small_memory(256);
        let index = &tested.index;
        let stay: Vec<_> = (0..200).map(|v| (tested.key(v * 8), RowId(1))).collect();
        for (key, row) in &stay {
            index.add(key, *row).expect("added");
        }
        let left = Mutex::new(stay.clone());
        thread::scope(|scope| {
            for own in 1..4_i64 {
                let (left, tested) = (&left, &tested);
                scope.spawn(move || {
                    let mut rng = Rng::new(seed * 10 + own as u64);
                    let mut model = Entries::new();
                    for _ in 0..1_500 {
                        let key = tested.key(rng.below(200) as i64 * 8 + own);
                        let row = RowId(rng.below(3));
                        if rng.one_in(2) {
                            let is_new = index.insert(&key, row, &mut Vec::new());
                            let is_new = is_new.expect("added");
                            assert_eq!(is_new, model.insert((key.clone(), row)));
                        } else {
                            index.retire(&key, row, CommitTs::ZERO).expect("retired");
                            model.remove(&(key.clone(), row));
                        }
                        let mut rows = Vec::new();
                        index.lookup(&key, &mut rows).expect("read");
                        let own = model.iter().filter(|(of, _)| *of == key);
                        assert!(rows.iter().eq(own.map(|(_, row)| row)));
                    }
                    left.lock().expect("not poisoned").extend(model);
                });
            }
            for direction in [Direction::Forward, Direction::Backward] {
                let (stay, index) = (&stay, index);
                scope.spawn(move || {
                    for _ in 0..15 {
                        let mut seen = collect(index, &KeyRange::default(), direction);
                        if direction == Direction::Backward {
                            seen.reverse();
                        }
                        assert!(seen.is_sorted_by(|a, b| a < b));
                        let seen: Entries = seen.into_iter().collect();
                        assert!(stay.iter().all(|entry| seen.contains(entry)));
                        assert_sound(index);
                        index.retain(&mut |_, _| true).expect("swept");
                    }
                });
            }
        });
        let mut left = left.into_inner().expect("not poisoned");
        left.sort();
        assert_eq!(
            collect(index, &KeyRange::default(), Direction::Forward),
            left
        );
        tested.assert_whole();
    }
}

/// Of all rows that get one key at the same time each sees exactly the ones before it.
#[test]
fn of_several_adders_each_sees_the_ones_before() {
    for round in 0..10 {
        let tested = small_memory([256, PAGE_BODY_BYTES][round % 2]);
        for v in 0..40 {
            let key = tested.key(v);
            tested.index.add(&key, RowId(1000)).expect("added");
        }
        let seen = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for thread in 0..4 {
                let (seen, tested) = (&seen, &tested);
                scope.spawn(move || {
                    for no in 0..25 {
                        let (mut others, row) = (Vec::new(), RowId(thread * 100 + no));
                        let is_new = tested.index.insert(&tested.key(20), row, &mut others);
                        assert!(is_new.expect("added"));
                        seen.lock().expect("not poisoned").push(others.len());
                    }
                });
            }
        });
        let mut seen = seen.into_inner().expect("not poisoned");
        seen.sort_unstable();
        assert!(seen.into_iter().eq(1..=100), "each sees one more");
        tested.assert_whole();
    }
}

#[test]
fn a_load_among_writers_loses_nothing() {
    let tested = small_memory(256);
    let index = &tested.index;
    thread::scope(|scope| {
        for part in 0..2 {
            scope.spawn(move || {
                let mut load = index.bulk_load();
                for v in 0..1_500 {
                    let pushed = load.push(&number(v * 4 + part), RowId(2), &mut Vec::new());
                    pushed.expect("pushed");
                }
                load.finish().expect("loaded");
            });
        }
        let tested = &tested;
        scope.spawn(move || {
            for v in 0..1_500 {
                let key = tested.key(v * 4 + 2);
                index.add(&key, RowId(3)).expect("added");
            }
        });
    });
    assert_eq!(index.len(), 4_500);
    tested.assert_whole();
    assert_eq!(index.len(), 4_500, "counted by the check");
}
