//! Searches, adders, removers, loads, sweeps and checks at once, with memory for fewer pages than
//! there are.

use super::*;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::thread;
use strandline_device::MemoryDevice;

fn small_memory(node_bytes: usize) -> Tested {
    let device = Arc::new(MemoryDevice::default());
    Tested::on(store(device, Arc::default(), 12), node_bytes)
}

/// Each thread adds and removes boxes of its own among the others' and keeps a model of them, while
/// readers verify entries that stay.
#[test]
fn threads_find_what_they_added_and_others_keep() {
    for seed in 0..3 {
        println!("seed {seed}");
        let tested = small_memory(300);
        let index = &tested.index;
        let stay: Vec<_> = (0..200).map(|v| (number(v * 8), RowId(1))).collect();
        for (rect, row) in &stay {
            tested.add(*rect, *row);
        }
        let left = Mutex::new(stay.clone());
        thread::scope(|scope| {
            for own in 1..4 {
                let (left, tested) = (&left, &tested);
                scope.spawn(move || {
                    let mut rng = Rng::new(seed * 10 + own);
                    let mut model = BTreeSet::new();
                    for _ in 0..500 {
                        let rect = number(rng.below(200) * 8 + own);
                        let row = RowId(rng.below(3));
                        if rng.one_in(2) {
                            assert_eq!(tested.add(rect, row), model.insert((rect, row)));
                        } else {
                            tested.remove(rect, row);
                            model.remove(&(rect, row));
                        }
                        let rows = tested.rows_of(rect);
                        let own = model.iter().filter(|(of, _)| *of == rect);
                        assert!(rows.iter().eq(own.map(|(_, row)| row)));
                    }
                    left.lock().expect("not poisoned").extend(model);
                });
            }
            let (stay, tested) = (&stay, &tested);
            scope.spawn(move || {
                for _ in 0..40 {
                    let seen = tested.collect(SpatialQuery::All);
                    assert!(stay.iter().all(|entry| seen.binary_search(entry).is_ok()));
                }
            });
            scope.spawn(move || {
                for _ in 0..15 {
                    let seen = tested.nearest([30.0, 10.0]);
                    assert!(seen.is_sorted_by(|a, b| a.0 <= b.0));
                    let seen: BTreeSet<_> = seen.into_iter().map(|(_, r, row)| (r, row)).collect();
                    assert!(stay.iter().all(|entry| seen.contains(entry)));
                    assert_sound(index);
                    index.retain(&mut |_, _| true).expect("swept");
                }
            });
        });
        let mut left = left.into_inner().expect("not poisoned");
        left.sort_unstable();
        assert_eq!(tested.collect(SpatialQuery::All), left);
        index.retain(&mut |_, _| true).expect("swept");
        tested.assert_whole();
        assert_eq!(index.len(), left.len());
    }
}

/// Of all rows that get one box at the same time each sees exactly the ones before it.
#[test]
fn of_several_adders_each_sees_the_ones_before() {
    let tested = small_memory(300);
    (0..40).for_each(|v| assert!(tested.add(number(v), RowId(1000))));
    let seen = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for thread in 0..4 {
            let (seen, tested) = (&seen, &tested);
            scope.spawn(move || {
                for no in 0..25 {
                    let (mut others, row) = (Vec::new(), RowId(thread * 100 + no));
                    let is_new = tested.index.insert(&key_of(&number(20)), row, &mut others);
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

#[test]
fn a_load_among_writers_loses_nothing() {
    let tested = small_memory(300);
    thread::scope(|scope| {
        for part in 0..2 {
            let tested = &tested;
            scope.spawn(move || {
                let rects = (0..700).map(|v| (number(v * 4 + part), RowId(2)));
                tested.load(&rects.collect::<Vec<_>>());
            });
        }
        let tested = &tested;
        scope
            .spawn(move || (0..700).for_each(|v| assert!(tested.add(number(v * 4 + 2), RowId(3)))));
    });
    assert_eq!(tested.index.len(), 2_100);
    tested.assert_whole();
    assert_eq!(tested.index.len(), 2_100, "counted by the check");
}
