//! The tree against a sorted map, with small nodes that make the tree deep; retired entries; pages
//! that are given back; the shape of loaded trees; failing and damaged pages.

mod ahead;
mod concurrency;
mod crash;
mod damage;
pub(crate) mod support;

use super::*;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::Ordering::Relaxed;
use strandline_base::rng::Rng;
use strandline_base::{ErrorKind, SqlState};
use strandline_storage::pages::{Access, PageNumber};
use support::*;

/// Entries, and since when they are retired.
type Model = BTreeMap<(KeyBytes, RowId), Option<CommitTs>>;

/// A key of one of a test's shapes, which fits into nodes of 256 bytes but for shapes 3 and 4.
fn random_key(rng: &mut Rng, shape: u64) -> Vec<Value> {
    match shape {
        0 => vec![Value::BigInt(rng.below(40) as i64)],
        1 => vec![Value::BigInt(rng.next_u64() as i64)],
        2 => vec![Value::from("ab".repeat(rng.below(7) as usize))],
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

fn node_bytes(rng: &mut Rng, shape: u64) -> usize {
    match shape {
        3 => PAGE_BODY_BYTES,
        4 => [800, 1500][rng.below(2) as usize],
        _ => [NODE_BYTES_MIN, 256, 600, PAGE_BODY_BYTES][rng.below(4) as usize],
    }
}

fn random_range(rng: &mut Rng, index: &PagedIndex, shape: u64) -> KeyRange {
    let bounds = [random_key(rng, shape), random_key(rng, shape)];
    let [lower, upper] = [0, 1].map(|at| match rng.below(3) {
        0 => Bound::Unbounded,
        1 => Bound::Included(&bounds[at][0]),
        _ => Bound::Excluded(&bounds[at][0]),
    });
    index.keys().range(&[], lower, upper)
}

/// The entries that a reader must see, and those that it may see.
fn expected(model: &Model, oldest: CommitTs) -> (Entries, Entries) {
    let all: Entries = model.keys().cloned().collect();
    let is_needed = |since: &Option<CommitTs>| since.is_none_or(|since| since > oldest);
    let needed = model.iter().filter(|(_, since)| is_needed(since));
    (needed.map(|(entry, _)| entry.clone()).collect(), all)
}

type Entries = std::collections::BTreeSet<(KeyBytes, RowId)>;

/// Verifies that `seen` is in order, has all that is needed, and nothing that never was.
fn assert_seen(seen: &[(KeyBytes, RowId)], model: &Model, range: &KeyRange, oldest: CommitTs) {
    let is_within = |(key, _): &&(KeyBytes, RowId)| {
        range.from.as_ref().is_none_or(|from| key >= from)
            && range.before.as_ref().is_none_or(|end| key < end)
    };
    let (needed, all) = expected(model, oldest);
    assert!(seen.is_sorted_by(|a, b| a < b), "{seen:?}");
    let seen: Entries = seen.iter().cloned().collect();
    for entry in needed.iter().filter(is_within) {
        assert!(seen.contains(entry), "{entry:?} is missing");
    }
    for entry in &seen {
        assert!(all.contains(entry) && is_within(&entry), "{entry:?} is odd");
    }
}

fn rows_of(model: &Model, key: &KeyBytes) -> Vec<RowId> {
    let rows = model.range((key.clone(), RowId(0))..=(key.clone(), RowId(u64::MAX)));
    rows.map(|((_, row), _)| *row).collect()
}

/// Takes expired entries out of the model that the tree has not got any more.
fn forget_expired(index: &PagedIndex, model: &mut Model, oldest: CommitTs) {
    let seen: Entries = collect(index, &KeyRange::default(), Direction::Forward)
        .into_iter()
        .collect();
    model.retain(|entry, since| since.is_none_or(|since| since > oldest) || seen.contains(entry));
}

fn change(tested: &Tested, model: &mut Model, rng: &mut Rng, shape: u64) {
    let index = &tested.index;
    let key = index.encode(&random_key(rng, shape));
    let row = RowId(rng.below(50));
    match rng.below(100) {
        0..35 => {
            let mut others = vec![RowId(77)];
            let is_new = index.insert(&key, row, &mut others).expect("inserted");
            let mut expected = rows_of(model, &key);
            expected.retain(|other| *other != row);
            assert_eq!(others[1..], expected);
            assert_eq!(is_new, model.insert((key, row), None).is_none());
        }
        35..50 => {
            let is_new = index.add(&key, row).expect("added");
            assert_eq!(is_new, model.insert((key, row), None).is_none());
        }
        50..90 => {
            // Mostly an existing entry.
            let entry = model.range((key.clone(), row)..).next();
            let entry = entry.map(|(entry, _)| entry.clone());
            let (key, row) = entry.filter(|_| !rng.one_in(5)).unwrap_or((key, row));
            let since = CommitTs(rng.below(3) * (tested.oldest() + rng.below(20)));
            index.retire(&key, row, since).expect("retired");
            if since.0 <= tested.oldest() {
                model.remove(&(key, row));
            } else if let Some(retired) = model.get_mut(&(key, row)) {
                *retired = Some(since);
            }
        }
        90..92 => tested.advance(rng.below(10)),
        92..97 => {
            let mut load = index.bulk_load();
            for no in 0..rng.below(80) {
                let key = random_key(rng, shape);
                let row = RowId(no);
                load.push(&key, row, &mut Vec::new()).expect("pushed");
                model.insert((index.encode(&key), row), None);
            }
            load.finish().expect("loaded");
        }
        _ => {
            let kept = rng.below(9) + 1;
            let mut keep = |_: &KeyBytes, row: RowId| row.0 % 10 < kept;
            index.retain(&mut keep).expect("swept");
            let oldest = CommitTs(tested.oldest());
            model.retain(|(_, row), since| {
                row.0 % 10 < kept && since.is_none_or(|since| since > oldest)
            });
        }
    }
}

fn assert_agrees(tested: &Tested, model: &mut Model, rng: &mut Rng, shape: u64) {
    let (index, oldest) = (&tested.index, CommitTs(tested.oldest()));
    let range = random_range(rng, index, shape);
    let forward = collect(index, &range, Direction::Forward);
    assert_seen(&forward, model, &range, oldest);
    let mut backward = collect(index, &range, Direction::Backward);
    backward.reverse();
    assert_eq!(forward, backward);
    if !forward.is_empty() {
        let at = rng.below(forward.len() as u64) as usize;
        let behind = collect_after(index, &range, Direction::Forward, &forward[at]);
        assert_eq!(behind, forward[at + 1..]);
        let mut before = collect_after(index, &range, Direction::Backward, &forward[at]);
        before.reverse();
        assert_eq!(before, forward[..at]);
    }
    let estimate = index.estimate(&range).expect("readable");
    if index.len() < 8 {
        assert_eq!(estimate, forward.len());
    }
    forget_expired(index, model, oldest);
    assert_eq!(index.len(), model.len());
}

#[test]
fn random_operations_agree_with_a_sorted_map() {
    for seed in 0..15 {
        println!("seed {seed}");
        let shape = seed % 5;
        let mut rng = Rng::new(seed);
        let tested = Tested::new(node_bytes(&mut rng, shape));
        let mut model = Model::new();
        for step in 0..300 {
            change(&tested, &mut model, &mut rng, shape);
            if tested.node_bytes < 1000 || step % 10 == 0 {
                tested.assert_whole();
            }
            forget_expired(&tested.index, &mut model, CommitTs(tested.oldest()));
            let key = tested.index.encode(&random_key(&mut rng, shape));
            let mut rows = Vec::new();
            tested.index.lookup(&key, &mut rows).expect("read");
            assert_eq!(rows, rows_of(&model, &key));
            if step % 20 == 0 {
                assert_agrees(&tested, &mut model, &mut rng, shape);
            }
        }
        assert_agrees(&tested, &mut model, &mut rng, shape);
    }
}

#[test]
fn find_tells_one_row_from_several() {
    let tested = Tested::new(256);
    let index = &tested.index;
    for row in 0..200 {
        index
            .add(&tested.key(row as i64 / 2), RowId(row))
            .expect("added");
    }
    let retired = index.retire(&tested.key(99), RowId(198), CommitTs::ZERO);
    retired.expect("retired");
    let find = |v| index.find(&number(v)).expect("read");
    assert_eq!(
        (find(100), find(99)),
        (Lookup::None, Lookup::One(RowId(199)))
    );
    assert!((0..99).all(|v| find(v) == Lookup::Several));
}

/// A retired entry is there until the oldest snapshot has passed it, then a sweep takes it away; an
/// entry that is added again is live again.
#[test]
fn a_retired_entry_stays_as_long_as_a_snapshot_needs_it() {
    let tested = Tested::new(256);
    let index = &tested.index;
    tested.advance(10);
    for v in 0..30 {
        index.add(&tested.key(v), RowId(1)).expect("added");
        let retired = index.retire(&tested.key(v), RowId(1), CommitTs(15));
        retired.expect("retired");
    }
    assert!(!index.add(&tested.key(7), RowId(1)).expect("revived"));
    let sweep = || index.retain(&mut |_, _| true).expect("swept");
    sweep();
    assert_eq!(index.len(), 30);
    tested.advance(4);
    sweep();
    assert_eq!(index.len(), 30, "14 is before 15");
    tested.advance(1);
    sweep();
    let rest = collect(index, &KeyRange::default(), Direction::Forward);
    assert_eq!(rest, [(tested.key(7), RowId(1))]);
    tested.assert_whole();
    let retired = index.retire(&tested.key(7), RowId(1), CommitTs(15));
    retired.expect("it goes at once");
    assert!(index.is_empty());
}

/// Space is made of expired entries before a leaf is divided.
#[test]
fn a_full_leaf_gives_up_expired_entries_first() {
    let tested = Tested::new(600);
    let index = &tested.index;
    for round in 0..100 {
        for v in 0..10 {
            index.add(&tested.key(v), RowId(round)).expect("added");
            let since = CommitTs(tested.oldest() + 1);
            index
                .retire(&tested.key(v), RowId(round), since)
                .expect("retired");
        }
        tested.advance(1);
    }
    tested.assert_whole();
    let pages = tested.pages();
    assert!(pages <= 7, "{pages} pages");
}

/// Each update advances a column's value; the pages that its old values leave are used again.
#[test]
fn pages_that_are_left_are_given_back() {
    let tested = Tested::new(256);
    let index = &tested.index;
    let enter = |v: i64| {
        let row = RowId(v as u64 % 100);
        index.add(&tested.key(v), row).expect("added");
    };
    let leave = |v: i64| {
        let row = RowId(v as u64 % 100);
        index
            .retire(&tested.key(v), row, CommitTs::ZERO)
            .expect("retired");
    };
    (0..500).for_each(enter);
    let fresh = tested.pages();
    for v in 500..5_000 {
        enter(v);
        leave(v - 500);
    }
    tested.assert_whole();
    assert!(tested.pages() <= fresh + 8, "{} {fresh}", tested.pages());
    // A writer that comes to a page which a join has left finds no node in it.
    let (nodes, _) = nodes(&index.tree);
    let mut left = 0;
    for number in (1..fresh as u32).map(PageNumber) {
        if !nodes.contains(&number) {
            let page = tested.store.read(FILE, number, Access::Random);
            let page = page.expect("a page without a node can be read");
            let node = index.tree.node(number, &page).expect("whole");
            assert!(node.is_none(), "page {number}");
            left += 1;
        }
    }
    assert!(left > 0);
    (4_500..5_000).rev().for_each(leave);
    assert!(index.is_empty());
    tested.assert_whole();
    assert_eq!(tested.pages(), 1, "only the root is left");
    assert_eq!(index.levels().expect("read"), 1);
}

/// The last leaf stores whole keys; what it leaves behind is small, and joined.
#[test]
fn ascending_keys_with_a_long_prefix_fill_their_leaves() {
    let tested = Tested::new(1000);
    let prefix = "x".repeat(120);
    for row in 0..2_000_u64 {
        let key = [Value::from(format!("{prefix}{row:06}").as_str())];
        let key = tested.index.encode(&key);
        assert!(tested.index.add(&key, RowId(row)).expect("added"));
    }
    tested.assert_whole();
    assert_eq!(tested.index.len(), 2_000);
    let leaves = tested.leaves();
    let filled: usize = leaves.iter().map(|(_, size)| *size).sum();
    assert!(filled / leaves.len() >= 600, "{leaves:?}");
}

#[test]
fn a_load_fills_leaves_in_the_order_of_their_pages() {
    let tested = Tested::new(1000);
    let index = &tested.index;
    let mut load = index.bulk_load();
    let count = 20_000_u64;
    for row in 0..count {
        let v = row.wrapping_mul(0x9e37_79b9_7f4a_7c15) as i64;
        load.push(&number(v.rem_euclid(20_011)), RowId(row), &mut Vec::new())
            .expect("pushed");
    }
    load.finish().expect("loaded");
    tested.assert_whole();
    assert_eq!(index.len(), 20_000);
    // Runs have 1,000 entries in tests; the first one is loaded into an empty tree.
    let tested = Tested::new(1000);
    let mut load = tested.index.bulk_load();
    for row in 0..1000 {
        load.push(&number(row as i64), RowId(row), &mut Vec::new())
            .expect("pushed");
    }
    load.finish().expect("loaded");
    tested.assert_whole();
    let leaves = tested.leaves();
    let full = leaves.iter().filter(|(_, size)| (750..=900).contains(size));
    assert!(full.count() + 2 >= leaves.len(), "{leaves:?}");
    let in_order = leaves.windows(2).filter(|pair| pair[0].0 < pair[1].0);
    assert_eq!(in_order.count() + 1, leaves.len(), "{leaves:?}");
    assert_eq!(tested.memory.load(Relaxed), 0);
}

#[test]
fn a_unique_load_reports_what_it_meets() {
    for node_bytes in [256, PAGE_BODY_BYTES] {
        let tested = Tested::new(node_bytes);
        let index = &tested.index;
        for v in [5, 500, 999] {
            index.add(&tested.key(v), RowId(5000)).expect("added");
        }
        let mut load = index.bulk_load_unique();
        for (row, v) in (0..1500).map(|v| if v == 1400 { 3 } else { v }).enumerate() {
            load.push(&number(v), RowId(row as u64), &mut Vec::new())
                .expect("pushed");
        }
        let found = load.collisions().expect("loaded");
        let mut found: Vec<_> = found
            .into_iter()
            .map(|c| (c.key, c.row, c.others))
            .collect();
        found.sort();
        found.dedup();
        let at = |v: u64, other| (tested.key(v as i64), RowId(v), vec![RowId(other)]);
        let mut expected = vec![at(5, 5000), at(500, 5000), at(999, 5000)];
        // The row that came in the second run met the one of the first run.
        expected.push((tested.key(3), RowId(1400), vec![RowId(3)]));
        expected.sort();
        assert_eq!(found, expected);
        load.finish().expect("loaded");
        tested.assert_whole();
    }
}

#[test]
fn an_opened_index_estimates_its_entries_until_it_is_checked() {
    let tested = Tested::new(400);
    for v in 0..2_000 {
        let key = tested.key((v * 7919) % 2003);
        tested.index.add(&key, RowId(v as u64)).expect("added");
    }
    let opened = tested.reopened();
    let roughly = opened.index.len();
    assert!((1_000..4_000).contains(&roughly), "{roughly}");
    opened.assert_whole();
    assert_eq!(opened.index.len(), 2_000);
    opened.index.add(&opened.key(-1), RowId(1)).expect("added");
    assert_eq!(opened.index.len(), 2_001);
    let half = opened.index.estimate(&KeyRange {
        from: None,
        before: Some(opened.key(1000)),
    });
    let half = half.expect("readable");
    assert!((700..1_300).contains(&half), "{half}");
}

#[test]
fn keys_that_are_too_long_are_refused() {
    let tested = Tested::new(256);
    let key = KeyBytes::encoded([7; 40]);
    let refused = |result: Result<bool>| {
        let error = result.expect_err("too long");
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert_eq!(error.sqlstate(), SqlState::PROGRAM_LIMIT_EXCEEDED);
        assert!(error.message().contains("40 bytes"), "{error}");
    };
    refused(tested.index.add(&key, RowId(1)));
    refused(tested.index.insert(&key, RowId(1), &mut Vec::new()));
    let mut load = tested.index.bulk_load();
    let long = [Value::from("x".repeat(40))];
    assert!(load.push(&long, RowId(1), &mut Vec::new()).is_err());
    load.finish().expect("nothing was pushed");
    assert!(tested.index.is_empty());
    // The longest key that any encoder makes fits into a page's node.
    let whole = Tested::new(PAGE_BODY_BYTES);
    let limit = whole.index.tree.key_bytes_max();
    assert!(limit >= KeyBytes::CUT_BYTES, "{limit}");
    for no in 0..100_u8 {
        let key = KeyBytes::encoded([&[9; 1023][..], &[no]].concat());
        whole.index.add(&key, RowId(u64::MAX)).expect("added");
        let retired = whole.index.retire(&key, RowId(u64::MAX), CommitTs(9));
        retired.expect("marked");
    }
    whole.assert_whole();
    assert_eq!(whole.index.len(), 100);
}
