//! The tree against a map, with small nodes that make the tree deep; cursors between changes;
//! retired entries; pages that are given back; loads; failing and damaged pages.

mod concurrency;
mod crash;
mod damage;
mod interleaved;
mod shape;
mod support;

use super::*;
use crate::tree_pages::tests::*;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use strandline_base::rng::Rng;
use strandline_base::{BoxCorners, Point};
use support::*;

/// Entries, and since when they are retired.
type Model = BTreeMap<(Rect, RowId), Option<CommitTs>>;

/// A box of one of a test's shapes.
fn random_rect(rng: &mut Rng, shape: u64) -> Rect {
    let special = [f64::NEG_INFINITY, f64::INFINITY, f64::NAN, -0.0, 0.0, 3.5];
    let mut at = || match rng.below(4) {
        0 => special[rng.below(6) as usize],
        _ => rng.below(9) as f64,
    };
    match shape {
        // points on a grid, with many rows each
        0 => Rect::point([rng.below(5) as f64, rng.below(4) as f64]),
        // points anywhere
        1 => Rect::point([0, 1].map(|_| rng.below(1 << 40) as f64 / 1e9)),
        // small boxes
        2 => {
            let low = [0, 1].map(|_| rng.below(1000) as f64);
            Rect::new(low, low.map(|v| v + rng.below(30) as f64))
        }
        // one point
        3 => Rect::point([1.5, -2.0]),
        // boxes with NaN, infinities, and both zeros
        _ => Rect::new([at(), at()], [at(), at()]),
    }
}

fn random_row(rng: &mut Rng, shape: u64) -> RowId {
    let rows = if shape == 3 { 500 } else { 40 };
    RowId(rng.below(rows))
}

fn node_bytes(rng: &mut Rng) -> usize {
    [SPATIAL_NODE_BYTES_MIN, 300, 600, PAGE_BODY_BYTES][rng.below(4) as usize]
}

fn rows_of(model: &Model, rect: Rect) -> Vec<RowId> {
    let rows = model.range((rect, RowId(0))..=(rect, RowId(u64::MAX)));
    rows.map(|((_, row), _)| *row).collect()
}

fn change(tested: &Tested, model: &mut Model, rng: &mut Rng, shape: u64) {
    let index = &tested.index;
    let (rect, row) = (random_rect(rng, shape), random_row(rng, shape));
    match rng.below(100) {
        0..15 => {
            let mut others = vec![RowId(777)];
            let is_new = index.insert(&key_of(&rect), row, &mut others);
            let mut expected = rows_of(model, rect);
            expected.retain(|other| *other != row);
            let (_, seen) = others.split_at_mut(1);
            seen.sort_unstable();
            assert_eq!(seen, expected);
            let is_known = model.insert((rect, row), None).is_some();
            assert_eq!(is_new.expect("inserted"), !is_known);
        }
        15..50 => {
            let is_known = model.insert((rect, row), None).is_some();
            assert_eq!(tested.add(rect, row), !is_known);
        }
        50..90 => {
            // Mostly an existing entry.
            let entry = model.range((rect, row)..).next();
            let entry = entry.map(|(entry, _)| *entry);
            let (rect, row) = entry.filter(|_| !rng.one_in(5)).unwrap_or((rect, row));
            let since = CommitTs(rng.below(3) * (tested.oldest() + rng.below(20)));
            tested.retire(rect, row, since);
            if since.0 <= tested.oldest() {
                model.remove(&(rect, row));
            } else if let Some(retired) = model.get_mut(&(rect, row)) {
                *retired = Some(since);
            }
        }
        90..92 => tested.advance(rng.below(10)),
        92..97 => {
            let loaded =
                (0..rng.below(80)).map(|_| (random_rect(rng, shape), random_row(rng, shape)));
            let loaded: Vec<_> = loaded.collect();
            tested.load(&loaded);
            model.extend(loaded.into_iter().map(|entry| (entry, None)));
        }
        _ => {
            let kept = rng.below(10);
            let mut keep = |_: &KeyBytes, row: RowId| row.0 % 10 < kept;
            index.retain(&mut keep).expect("swept");
            let oldest = CommitTs(tested.oldest());
            model.retain(|(_, row), since| {
                row.0 % 10 < kept && since.is_none_or(|since| since > oldest)
            });
        }
    }
}

/// Takes expired entries out of the model that the tree has not got any more.
fn forget_expired(tested: &Tested, model: &mut Model) {
    let (seen, oldest) = (tested.collect(SpatialQuery::All), CommitTs(tested.oldest()));
    model.retain(|entry, since| {
        since.is_none_or(|since| since > oldest) || seen.binary_search(entry).is_ok()
    });
}

fn assert_agrees(tested: &Tested, model: &Model, rng: &mut Rng, shape: u64) {
    let rect = random_rect(rng, shape).union(&random_rect(rng, shape));
    let point = random_rect(rng, shape).low();
    for query in [
        SpatialQuery::All,
        SpatialQuery::Overlaps(rect),
        SpatialQuery::ContainedIn(rect),
        SpatialQuery::Contains(random_rect(rng, shape)),
        SpatialQuery::Contains(Rect::point(point)),
        SpatialQuery::Equals(random_rect(rng, shape)),
    ] {
        let wanted = model.keys().filter(|(rect, _)| query.holds(rect));
        let wanted: Vec<_> = wanted.copied().collect();
        assert_eq!(tested.collect(query), wanted, "{query:?}");
    }
    let found = tested.nearest(point);
    let distances = found.windows(2).map(|pair| (pair[0].0, pair[1].0));
    assert!(distances.into_iter().all(|(a, b)| a.total_cmp(&b).is_le()));
    for (distance, rect, _) in &found {
        assert!(distance.total_cmp(&rect.distance(point)).is_eq());
    }
    let mut entries: Vec<_> = found
        .into_iter()
        .map(|(_, rect, row)| (rect, row))
        .collect();
    entries.sort_unstable();
    assert!(entries.iter().eq(model.keys()));
    assert_eq!(tested.index.len(), model.len());
}

#[test]
fn random_operations_agree_with_a_map() {
    for seed in 0..15 {
        println!("seed {seed}");
        let shape = seed % 5;
        let mut rng = Rng::new(seed);
        let tested = Tested::new(node_bytes(&mut rng));
        let mut model = Model::new();
        for step in 0..250 {
            change(&tested, &mut model, &mut rng, shape);
            tested.assert_whole();
            forget_expired(&tested, &mut model);
            let rect = random_rect(&mut rng, shape);
            let (rows, lookup) = (rows_of(&model, rect), tested.rows_of(rect));
            assert_eq!(lookup, rows);
            let (low, high) = (rect.low(), rect.high());
            let values = [low[0], low[1], high[0], high[1]].map(Value::Double);
            let expected = match rows.as_slice() {
                [] => Lookup::None,
                [row] => Lookup::One(*row),
                _ => Lookup::Several,
            };
            assert_eq!(tested.index.find(&values).expect("read"), expected);
            if step % 10 == 0 {
                assert_agrees(&tested, &model, &mut rng, shape);
            }
        }
        assert_agrees(&tested, &model, &mut rng, shape);
    }
}

#[test]
fn keys_are_points_or_boxes() {
    let tested = Tested::new(PAGE_BODY_BYTES);
    let index = &tested.index;
    let numbers =
        |values: &[f64]| -> Vec<Value> { values.iter().copied().map(Value::Double).collect() };
    let point = index.encode(&numbers(&[1.0, -0.0]));
    assert_eq!(point, index.encode(&numbers(&[1.0, 0.0, 1.0, -0.0])));
    assert_eq!(
        SpatialIndex::rect(&point).expect("a box"),
        Rect::point([1.0, 0.0])
    );
    assert!(index.add(&point, RowId(3)).expect("added"));
    assert_eq!(
        index.find(&numbers(&[1.0, 0.0])).expect("read"),
        Lookup::One(RowId(3))
    );
    // One value is the key of its coordinates.
    let value = Value::Point(Point::new([1.0, -0.0]));
    assert_eq!(index.encode(&[value]), point);
    let corners = BoxCorners::new([-2.0, 7.0], [3.0, 5.0]);
    let of_corners = index.encode(&numbers(&[3.0, 5.0, -2.0, 7.0]));
    assert_eq!(index.encode(&[Value::Box(corners)]), of_corners);
    for wrong in [
        vec![],
        numbers(&[1.0; 3]),
        vec![Value::Null],
        vec![Value::Null, Value::Null],
        vec![Value::Double(1.0)],
    ] {
        let key = index.encode(&wrong);
        let error = index.add(&key, RowId(1)).expect_err("no box");
        assert!(error.message().contains("two or four"), "{error}");
        assert!(index.find(&wrong).is_err());
        let mut load = index.bulk_load();
        assert!(load.push(&wrong, RowId(1), &mut Vec::new()).is_err());
    }
    assert!(index.spatial().is_some() && index.cursor(&Default::default(), Forward).is_err());
}

use crate::Direction::Forward;

/// A retired entry is there until the oldest snapshot has passed it, then a sweep takes it away; an
/// entry that is added again is live again.
#[test]
fn a_retired_entry_stays_as_long_as_a_snapshot_needs_it() {
    let tested = Tested::new(300);
    tested.advance(10);
    for v in 0..30 {
        tested.add(number(v), RowId(1));
        tested.retire(number(v), RowId(1), CommitTs(15));
    }
    assert!(!tested.add(number(7), RowId(1)), "revived");
    let sweep = || tested.index.retain(&mut |_, _| true).expect("swept");
    sweep();
    assert_eq!(tested.index.len(), 30);
    tested.advance(4);
    sweep();
    assert_eq!(tested.index.len(), 30, "14 is before 15");
    tested.advance(1);
    sweep();
    assert_eq!(tested.collect(SpatialQuery::All), [(number(7), RowId(1))]);
    tested.assert_whole();
    tested.retire(number(7), RowId(1), CommitTs(15));
    assert!(tested.index.is_empty(), "it goes at once");
}

/// Space is made of expired entries before a leaf is divided.
#[test]
fn a_full_leaf_gives_up_expired_entries_first() {
    let tested = Tested::new(600);
    for round in 0..100 {
        for v in 0..10 {
            tested.add(number(v), RowId(round));
            tested.retire(number(v), RowId(round), CommitTs(tested.oldest() + 1));
        }
        tested.advance(1);
    }
    tested.assert_whole();
    let pages = tested.pages();
    assert!(pages <= 7, "{pages} pages");
    assert!(tested.index.len() < 60, "{}", tested.index.len());
}
