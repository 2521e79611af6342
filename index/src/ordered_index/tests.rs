//! The tree against a sorted set, with small nodes that make the tree deep; its memory; damage.

use super::*;
use crate::Collision;
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::atomic::Ordering;
use strandline_base::rng::Rng;

type Model = BTreeSet<(KeyBytes, RowId)>;

fn index(parts: usize, node_bytes: usize) -> OrderedIndex {
    let parts = vec![PartOrder::default(); parts];
    OrderedIndex::with_node_bytes(parts, Arc::default(), node_bytes)
}

fn number(v: i64) -> [Value; 1] {
    [Value::BigInt(v)]
}

fn collect(index: &OrderedIndex, range: &KeyRange, direction: Direction) -> Vec<(KeyBytes, RowId)> {
    let mut cursor = index.cursor(range, direction).expect("ordered");
    std::iter::from_fn(|| cursor.next().expect("in memory")).collect()
}

fn collect_after(
    index: &OrderedIndex,
    range: &KeyRange,
    direction: Direction,
    after: &(KeyBytes, RowId),
) -> Vec<(KeyBytes, RowId)> {
    let mut cursor = index
        .cursor_after(range, direction, after)
        .expect("ordered");
    std::iter::from_fn(|| cursor.next().expect("in memory")).collect()
}

fn within(model: &Model, range: &KeyRange) -> Vec<(KeyBytes, RowId)> {
    let lower = |(key, _): &&(KeyBytes, RowId)| range.from.as_ref().is_none_or(|from| key >= from);
    let upper = |(key, _): &&(KeyBytes, RowId)| range.before.as_ref().is_none_or(|end| key < end);
    model.iter().filter(lower).filter(upper).cloned().collect()
}

fn assert_whole(index: &OrderedIndex, model: &Model, seed: u64) {
    let mut damage = Vec::new();
    index.check(&mut damage).expect("in memory");
    assert_eq!(damage, Vec::<String>::new(), "seed {seed}");
    assert_eq!(index.len(), model.len(), "seed {seed}");
    let everything = KeyRange::default();
    let all = collect(index, &everything, Direction::Forward);
    assert!(all.iter().eq(model), "seed {seed}");
    let mut back = collect(index, &everything, Direction::Backward);
    back.reverse();
    assert!(back.iter().eq(model), "seed {seed}");
}

/// A key of one of a test's shapes.
fn random_key(rng: &mut Rng, shape: u64) -> Vec<Value> {
    match shape {
        0 => vec![Value::BigInt(rng.below(40) as i64)],
        1 => vec![Value::BigInt(rng.next_u64() as i64)],
        2 => vec![Value::from("ab".repeat(rng.below(20) as usize))],
        3 => {
            let stem = "x".repeat(1010 * rng.below(2) as usize);
            vec![Value::from(format!("{stem}{}", rng.below(200)))]
        }
        _ => vec![if rng.one_in(3) {
            Value::Null
        } else {
            Value::from(format!("{:0>90}", rng.below(300)))
        }],
    }
}

fn random_range(rng: &mut Rng, index: &OrderedIndex, shape: u64) -> KeyRange {
    let bounds = [random_key(rng, shape), random_key(rng, shape)];
    let [lower, upper] = [0, 1].map(|at| match rng.below(3) {
        0 => Bound::Unbounded,
        1 => Bound::Included(&bounds[at][0]),
        _ => Bound::Excluded(&bounds[at][0]),
    });
    index.keys().range(&[], lower, upper)
}

fn rows_of(model: &Model, key: &KeyBytes) -> Vec<RowId> {
    let rows = model.range((key.clone(), RowId(0))..=(key.clone(), RowId(u64::MAX)));
    rows.map(|(_, row)| *row).collect()
}

fn change(index: &OrderedIndex, model: &mut Model, rng: &mut Rng, shape: u64) {
    let key = index.encode(&random_key(rng, shape));
    let row = RowId(rng.below(50));
    match rng.below(100) {
        0..35 => {
            let mut others = Vec::new();
            let is_new = index.insert(&key, row, &mut others).expect("in memory");
            let mut expected = rows_of(model, &key);
            expected.retain(|other| *other != row);
            assert_eq!(others, expected);
            assert_eq!(is_new, model.insert((key, row)));
        }
        35..50 => {
            let is_new = index.add(&key, row).expect("in memory");
            assert_eq!(is_new, model.insert((key, row)));
        }
        50..93 => {
            // Mostly remove an existing entry.
            let entry = model.range((key.clone(), row)..).next().cloned();
            let (key, row) = entry.filter(|_| !rng.one_in(5)).unwrap_or((key, row));
            index.retire(&key, row, CommitTs::ZERO).expect("in memory");
            model.remove(&(key, row));
        }
        93..99 => {
            let mut load = index.bulk_load();
            for no in 0..rng.below(300) {
                let key = random_key(rng, shape);
                let row = RowId(no);
                load.push(&key, row, &mut Vec::new()).expect("in memory");
                model.insert((index.encode(&key), row));
            }
            load.finish().expect("in memory");
        }
        _ => {
            let kept = rng.below(9) + 1;
            let mut keep = |_: &KeyBytes, row: RowId| row.0 % 10 < kept;
            index.retain(&mut keep).expect("in memory");
            model.retain(|(_, row)| row.0 % 10 < kept);
        }
    }
}

#[test]
fn random_operations_agree_with_a_sorted_set() {
    for seed in 0..30 {
        let shape = seed % 5;
        let mut rng = Rng::new(seed);
        let index = index(1, [64, 120, 400, 4096][rng.below(4) as usize]);
        let mut model = Model::new();
        for step in 0..600 {
            change(&index, &mut model, &mut rng, shape);
            let key = index.encode(&random_key(&mut rng, shape));
            let mut rows = Vec::new();
            index.lookup(&key, &mut rows).expect("in memory");
            assert_eq!(rows, rows_of(&model, &key), "seed {seed}");
            if step % 50 == 0 {
                let range = random_range(&mut rng, &index, shape);
                let mut expected = within(&model, &range);
                let forward = collect(&index, &range, Direction::Forward);
                assert_eq!(forward, expected, "seed {seed}");
                expected.reverse();
                let backward = collect(&index, &range, Direction::Backward);
                assert_eq!(backward, expected, "seed {seed}");
                if !expected.is_empty() {
                    let at = rng.below(expected.len() as u64) as usize;
                    let back = collect_after(&index, &range, Direction::Backward, &expected[at]);
                    assert_eq!(back, expected[at + 1..], "seed {seed}");
                    let on = collect_after(&index, &range, Direction::Forward, &expected[at]);
                    assert!(on.iter().eq(expected[..at].iter().rev()), "seed {seed}");
                }
                assert_whole(&index, &model, seed);
            }
        }
    }
}

#[test]
fn find_tells_one_row_from_several() {
    let index = index(1, 64);
    let find = |v| index.find(&number(v)).expect("in memory");
    for row in 0..200 {
        let key = index.encode(&number(row as i64 / 2));
        index.add(&key, RowId(row)).expect("in memory");
    }
    let last = index.encode(&number(99));
    index
        .retire(&last, RowId(198), CommitTs::ZERO)
        .expect("in memory");
    assert_eq!(
        (find(100), find(99)),
        (Lookup::None, Lookup::One(RowId(199)))
    );
    assert!((0..99).all(|v| find(v) == Lookup::Several));
}

#[test]
fn entries_in_order_fill_their_leaves() {
    let ascending: Vec<i64> = (0..50_000).collect();
    let mut scattered = ascending.clone();
    scattered.sort_by_key(|v| crate::hash_integer(*v));
    // A leaf has space for 409 entries of ten bytes.
    for (keys, each_leaf, bytes_max) in [(ascending, 400, 12), (scattered, 250, 18)] {
        let index = index(1, NODE_BYTES);
        for (row, v) in keys.iter().enumerate() {
            let key = index.encode(&number(*v));
            index.add(&key, RowId(row as u64)).expect("in memory");
        }
        let filled = index.len() / index.tree.leaves.len();
        assert!(filled >= each_leaf, "{filled} entries a leaf");
        let each = index.memory_bytes() / index.len();
        assert!(each <= bytes_max, "{each} bytes an entry");
    }
}

#[test]
fn a_load_takes_as_much_memory_as_its_entries() {
    let memory = Arc::new(Counter::new(7));
    let index = OrderedIndex::counted(vec![PartOrder::default()], memory.clone());
    let mut load = index.bulk_load();
    for row in 0..50_000_u64 {
        let v = row.wrapping_mul(0x9e37_79b9_7f4a_7c15) as i64;
        load.push(&number(v), RowId(row), &mut Vec::new())
            .expect("in memory");
    }
    load.finish().expect("in memory");
    assert_whole(
        &index,
        &collect(&index, &KeyRange::default(), Direction::Forward)
            .into_iter()
            .collect(),
        0,
    );
    let each = index.memory_bytes() / 50_000;
    assert!(each <= 26, "{each} bytes an entry");
    assert_eq!(memory.load(Ordering::Relaxed), index.memory_bytes() + 7);
    drop(index);
    assert_eq!(memory.load(Ordering::Relaxed), 7);
}

/// Each update advances a column's value; the leaves that its old values leave are reused.
#[test]
fn leaves_that_are_left_are_given_back() {
    let index = index(1, 256);
    let empty = index.memory_bytes();
    let enter = |v: i64| {
        let key = index.encode(&number(v));
        index.add(&key, RowId(v as u64 % 100)).expect("in memory");
    };
    let leave = |v: i64| {
        let key = index.encode(&number(v));
        index
            .retire(&key, RowId(v as u64 % 100), CommitTs::ZERO)
            .expect("in memory");
    };
    (0..1_000).for_each(enter);
    let (fresh, leaves) = (index.memory_bytes(), index.tree.leaves.len());
    for v in 1_000..30_000 {
        enter(v);
        leave(v - 1_000);
    }
    assert!(
        index.tree.leaves.len() <= leaves + 4,
        "{} leaves",
        index.tree.leaves.len()
    );
    assert!(
        index.memory_bytes() <= fresh * 3 / 2,
        "{} bytes",
        index.memory_bytes()
    );
    (29_000..30_000).rev().for_each(leave);
    assert!(index.is_empty());
    assert!(
        index.tree.leaves.len() <= 2,
        "{} leaves",
        index.tree.leaves.len()
    );
    assert!(
        index.memory_bytes() <= empty + 4096,
        "{} bytes",
        index.memory_bytes()
    );
    assert_whole(&index, &Model::new(), 0);
}

#[test]
fn few_entries_left_in_many_leaves_are_joined() {
    let index = index(1, 256);
    let mut load = index.bulk_load();
    for row in 0..5_000 {
        load.push(&number(row), RowId(row as u64), &mut Vec::new())
            .expect("in memory");
    }
    load.finish().expect("in memory");
    let leaves = index.tree.leaves.len();
    index
        .retain(&mut |_, row| row.0 % 50 == 0)
        .expect("in memory");
    assert_eq!(index.len(), 100);
    let left = index.tree.leaves.len();
    assert!(left * 10 < leaves, "{left} leaves of {leaves}");
    let model = (0..100).map(|v| (index.encode(&number(v * 50)), RowId(v as u64 * 50)));
    assert_whole(&index, &model.collect(), 0);
}

#[test]
fn an_index_whose_entries_change_again_and_again_stays_small() {
    const ROWS: u64 = 20_000;
    let index = OrderedIndex::counted(vec![PartOrder::default()], Arc::default());
    let mut rng = Rng::new(1);
    let mut values: Vec<u64> = (0..ROWS).map(|_| rng.below(1 << 40)).collect();
    let key = |v: u64| index.encode(&number(v as i64));
    let mut load = index.bulk_load();
    for (row, v) in values.iter().enumerate() {
        load.push(&number(*v as i64), RowId(row as u64), &mut Vec::new())
            .expect("in memory");
    }
    load.finish().expect("in memory");
    let fresh = index.memory_bytes();
    // Half as many old entries as rows wait for each sweep.
    for _ in 0..40 {
        let mut old = Vec::new();
        for _ in 0..ROWS / 2 {
            let (row, v) = (rng.below(ROWS), rng.below(1 << 40));
            let before = std::mem::replace(&mut values[row as usize], v);
            index.add(&key(v), RowId(row)).expect("in memory");
            old.push((before, row));
        }
        for (v, row) in old {
            let retired = index.retire(&key(v), RowId(row), CommitTs(1));
            retired.expect("in memory");
        }
    }
    assert_eq!(index.len() as u64, ROWS);
    let bytes = index.memory_bytes();
    assert!(bytes * 10 < fresh * 13, "{bytes} bytes, fresh: {fresh}");
}

#[test]
fn a_load_of_a_unique_key_finds_the_rows_that_were_there() {
    for loaded in [3, 500] {
        let index = index(1, 200);
        for row in [0, 100, 200] {
            let key = index.encode(&number(row));
            index.add(&key, RowId(row as u64)).expect("in memory");
        }
        let mut load = index.bulk_load_unique();
        for v in 0..loaded {
            // 100 and 200 exist if they were loaded; the last key occurs twice.
            let (v, row) = (
                if loaded == 3 { v * 100 } else { v },
                RowId(1_000 + v as u64),
            );
            load.push(&number(v), row, &mut Vec::new())
                .expect("in memory");
        }
        load.push(&number(777), RowId(5_000), &mut Vec::new())
            .expect("in memory");
        load.push(&number(777), RowId(5_001), &mut Vec::new())
            .expect("in memory");
        let mut found = load.collisions().expect("in memory");
        found.sort_by_key(|collision| (collision.key.clone(), collision.row));
        let expected = |v: i64, row: i64, other: i64| Collision {
            key: index.encode(&number(v)),
            row: RowId(row as u64),
            others: vec![RowId(other as u64)],
        };
        let row_of = |v: i64| {
            if loaded == 3 {
                1_000 + v / 100
            } else {
                1_000 + v
            }
        };
        let mut all: Vec<_> = [0, 100, 200].map(|v| expected(v, row_of(v), v)).into();
        all.extend([expected(777, 5_000, 5_001), expected(777, 5_001, 5_000)]);
        assert_eq!(found, all);
        assert_eq!(load.collisions().expect("in memory"), []);
        load.finish().expect("in memory");
        assert_eq!(index.len(), loaded as usize + 5);
    }
}

/// The load's entry may be the first or the last one of a leaf, beside the existing entries.
#[test]
fn a_load_of_a_unique_key_finds_rows_in_other_leaves() {
    for kept in 1..80 {
        let index = index(1, 200);
        let (key, other) = (index.encode(&number(5)), index.encode(&number(9)));
        for row in 0..3 {
            index.add(&other, RowId(row)).expect("in memory");
        }
        for row in 0..80 {
            index.add(&key, RowId(row)).expect("in memory");
        }
        for row in (kept..80).map(RowId) {
            index.retire(&key, row, CommitTs::ZERO).expect("in memory");
        }
        let mut load = index.bulk_load_unique();
        load.push(&number(5), RowId(500), &mut Vec::new())
            .expect("in memory");
        let expected = Collision {
            key,
            row: RowId(500),
            others: (0..kept).map(RowId).collect(),
        };
        assert_eq!(load.collisions().expect("in memory"), [expected]);
    }
}

#[test]
fn an_estimate_is_exact_for_few_and_near_for_many() {
    let index = index(1, 256);
    for v in 0..20_000_i64 {
        let key = index.encode(&number(v * 7919 % 20_011));
        index.add(&key, RowId(v as u64)).expect("in memory");
    }
    let range = |from: i64, before: i64| KeyRange {
        from: Some(index.encode(&number(from))),
        before: Some(index.encode(&number(before))),
    };
    let actual = |range: &KeyRange| collect(&index, range, Direction::Forward).len();
    for (from, before) in [(0, 1), (50, 60), (7, 7), (9, 3), (19_990, 30_000), (-5, 4)] {
        let range = range(from, before);
        assert_eq!(
            index.estimate(&range),
            Some(actual(&range)),
            "{from}..{before}"
        );
    }
    for (from, before) in [(0, 1_000), (5_000, 15_000), (100, 20_000)] {
        let (range, wanted) = (range(from, before), (before - from) as usize);
        let estimated = index.estimate(&range).expect("ordered");
        assert!(
            (wanted / 2..wanted * 2).contains(&estimated),
            "{estimated} of {wanted}"
        );
    }
    let all = index.estimate(&KeyRange::default()).expect("ordered");
    assert!((18_000..=20_000).contains(&all), "{all}");
}

#[test]
fn damage_is_found() {
    let build = || {
        let index = index(1, 128);
        for v in 0..300 {
            let key = index.encode(&number(v));
            index.add(&key, RowId(v as u64)).expect("in memory");
        }
        index
    };
    let check = |index: &OrderedIndex| {
        let mut damage = Vec::new();
        index.check(&mut damage).expect("in memory");
        damage.join("\n")
    };
    let leaf_of = |index: &OrderedIndex, v: i64| {
        let key = index.encode(&number(v));
        index.tree.leaf_mut(key.as_slice()).0
    };
    let index = build();
    assert_eq!(check(&index), "");
    let lost = leaf_of(&index, 100);
    index.tree.leaves.get(lost).write().entries.remove(0);
    assert!(
        check(&index).contains("299 entries are found of 300"),
        "{}",
        check(&index)
    );

    let index = build();
    let misordered = leaf_of(&index, 100);
    let foreign = EntryBytes::new(index.encode(&number(7)).as_slice(), RowId(1)).expect("short");
    {
        let mut leaf = index.tree.leaves.get(misordered).write();
        let at = leaf.entries.len();
        leaf.entries.insert(at, foreign.as_slice());
    }
    let damage = check(&index);
    assert!(damage.contains("not behind the one before it"), "{damage}");
    assert!(damage.contains("not between the fences"), "{damage}");

    let index = build();
    let moved = leaf_of(&index, 100);
    index.tree.leaves.get(moved).write().low = Box::from(*b"\x01\x80\0\0\0\0\0\0\x63");
    let damage = check(&index);
    assert!(damage.contains("no node of level 0 is found"), "{damage}");
    assert!(damage.contains("does not begin there"), "{damage}");
}

#[test]
fn a_row_with_too_large_a_number_is_refused() {
    let index = index(1, NODE_BYTES);
    let key = index.encode(&number(1));
    let error = index.add(&key, RowId(1 << 48)).expect_err("too large");
    assert!(error.message().contains("48 bits"), "{error}");
    assert!(index.is_empty());
}

/// Writers with their own keys and with common keys, a sweeper and readers, all at once.
#[test]
fn threads_find_their_entries() {
    let index = index(1, 200);
    let own = |thread: i64, v: i64| index.encode(&number(v * 4 + thread));
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (index, own) = (&index, &own);
            scope.spawn(move || {
                for v in 0..3_000 {
                    let row = RowId((v * 4 + thread) as u64);
                    assert!(index.add(&own(thread, v), row).expect("in memory"));
                    if v >= 50 {
                        let (left, row) = (v - 50, row.0 - 200);
                        if left % 100 != 0 {
                            let key = own(thread, left);
                            index
                                .retire(&key, RowId(row), CommitTs::ZERO)
                                .expect("in memory");
                        }
                    }
                    let found = index.find(&number(v * 4 + thread)).expect("in memory");
                    assert_eq!(found, Lookup::One(row));
                }
            });
        }
        let index = &index;
        scope.spawn(move || {
            for direction in [Direction::Forward, Direction::Backward].repeat(20) {
                let seen = collect(index, &KeyRange::default(), direction);
                let is_ordered = |pair: &[(KeyBytes, RowId)]| match direction {
                    Direction::Forward => pair[0] < pair[1],
                    Direction::Backward => pair[0] > pair[1],
                };
                assert!(seen.windows(2).all(is_ordered));
                index.retain(&mut |_, _| true).expect("in memory");
            }
        });
        scope.spawn(move || {
            let mut load = index.bulk_load();
            for v in 0..5_000 {
                let row = RowId(v as u64 * 4 + 3);
                load.push(&number(v * 4 + 3), row, &mut Vec::new())
                    .expect("in memory");
            }
            load.finish().expect("in memory");
        });
    });
    let mut damage = Vec::new();
    index.check(&mut damage).expect("in memory");
    assert_eq!(damage, Vec::<String>::new());
    assert_eq!(
        index.len(),
        3 * (50 + 30) - 3 * i64::from(2_950 % 100 == 0) as usize + 5_000
    );
}
