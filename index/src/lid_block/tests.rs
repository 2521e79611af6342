//! The index against a sorted map: dense and sparse blocks of few entries before a tree of small
//! nodes, so that leaves are split and joined under the blocks all the time.

mod concurrency;
mod crash;
mod damage;
mod io;
mod order;
mod space;
mod support;

use super::*;
use crate::OrderedKeys;
use std::collections::{BTreeMap, BTreeSet};
use strandline_base::rng::Rng;
use support::*;

/// Entries, and since when they are retired.
type Model = BTreeMap<(KeyBytes, RowId), Option<CommitTs>>;
type Entries = BTreeSet<(KeyBytes, RowId)>;

/// A key of one of a test's shapes: integers; texts of which some are too long for a block.
fn random_key(rng: &mut Rng, shape: u64) -> Vec<Value> {
    match shape {
        0 => vec![Value::BigInt(rng.below(40) as i64)],
        1 => vec![Value::BigInt(rng.below(2_000) as i64)],
        _ => vec![match rng.below(8) {
            0 => Value::Null,
            1 => Value::from("x".repeat(rng.below(60) as usize)),
            _ => Value::from(format!("k{}", rng.below(60))),
        }],
    }
}

fn random_range(rng: &mut Rng, keys: &OrderedKeys, shape: u64) -> KeyRange {
    use std::ops::Bound;
    let bounds = [random_key(rng, shape), random_key(rng, shape)];
    let [lower, upper] = [0, 1].map(|at| match rng.below(3) {
        0 => Bound::Unbounded,
        1 => Bound::Included(&bounds[at][0]),
        _ => Bound::Excluded(&bounds[at][0]),
    });
    keys.range(&[], lower, upper)
}

/// The entries that a reader must see, and those that it may see.
fn expected(model: &Model, oldest: CommitTs) -> (Entries, Entries) {
    let all: Entries = model.keys().cloned().collect();
    let is_needed = |since: &Option<CommitTs>| since.is_none_or(|since| since > oldest);
    let needed = model.iter().filter(|(_, since)| is_needed(since));
    (needed.map(|(entry, _)| entry.clone()).collect(), all)
}

fn assert_seen(seen: &[(KeyBytes, RowId)], needed: &Entries, all: &Entries, what: &str) {
    let found: Entries = seen.iter().cloned().collect();
    assert_eq!(found.len(), seen.len(), "{what}: an entry twice");
    let missing: Vec<_> = needed.difference(&found).collect();
    assert!(missing.is_empty(), "{what}: missing {missing:?}");
    let extra: Vec<_> = found.difference(all).collect();
    assert!(extra.is_empty(), "{what}: too many {extra:?}");
}

fn is_in(range: &KeyRange, key: &KeyBytes) -> bool {
    range.from.as_ref().is_none_or(|from| key >= from)
        && range.before.as_ref().is_none_or(|before| key < before)
}

fn add(tested: &Tested, model: &mut Model, entry: (KeyBytes, RowId), sees: bool) {
    let oldest = tested.oldest();
    let before = model.insert(entry.clone(), None);
    let (key, row) = &entry;
    if !sees {
        let is_new = tested.index.add(key, *row).expect("added");
        assert!(!is_new || before.is_none_or(|since| since.is_some_and(|since| since <= oldest)));
        return;
    }
    let mut others = Vec::new();
    let is_new = tested
        .index
        .insert(key, *row, &mut others)
        .expect("inserted");
    match before {
        None => assert!(is_new),
        Some(None) => assert!(!is_new),
        Some(Some(since)) => assert!(since <= oldest || !is_new),
    }
    let (needed, all) = expected(model, oldest);
    let others: Vec<_> = others.into_iter().map(|row| (key.clone(), row)).collect();
    let of_others = |entries: Entries| -> Entries {
        let others = entries
            .into_iter()
            .filter(|(of, other)| of == key && other != row);
        others.collect()
    };
    assert_seen(&others, &of_others(needed), &of_others(all), "others");
}

fn load(tested: &Tested, model: &mut Model, rng: &mut Rng, shape: u64, next_row: &mut u64) {
    let mut load = tested.index.bulk_load();
    for _ in 0..1 + rng.below(60) {
        let (key, row) = (random_key(rng, shape), RowId(*next_row));
        load.push(&key, row, &mut Vec::new()).expect("pushed");
        model.insert((tested.index.encode(&key), row), None);
        *next_row += rng.below(2);
    }
    load.finish().expect("loaded");
}

fn change(tested: &mut Tested, model: &mut Model, rng: &mut Rng, shape: u64, next_row: &mut u64) {
    let key = tested.index.encode(&random_key(rng, shape));
    let entry = (key, RowId(rng.below(12)));
    match rng.below(40) {
        0..=9 => add(tested, model, entry, true),
        10..=19 => add(tested, model, entry, false),
        20..=31 => {
            // An entry is retired once, unless it is added again.
            let is_retired = matches!(model.get(&entry), Some(Some(_)));
            let since = match rng.below(3) {
                0 if !is_retired => CommitTs(tested.oldest().0 + rng.below(20)),
                _ => CommitTs::ZERO,
            };
            tested
                .index
                .retire(&entry.0, entry.1, since)
                .expect("retired");
            if since <= tested.oldest() {
                model.remove(&entry);
            } else if let Some(known) = model.get_mut(&entry) {
                *known = Some(since);
            }
        }
        32 => load(tested, model, rng, shape, next_row),
        33 => tested.advance(rng.below(30)),
        34 => drop(tested.index.flush_step().expect("flushed")),
        35 if rng.one_in(4) => {
            let (needed, all) = expected(model, tested.oldest());
            let held = tested.vacuumed();
            assert!(needed.len() <= held && held <= all.len());
            assert_eq!(tested.index.blocks(), 0);
            model.retain(|entry, _| needed.contains(entry));
        }
        36 if rng.one_in(4) => {
            let gone = rng.below(7);
            let mut keep = |_: &KeyBytes, row: RowId| row.0 % 7 != gone;
            tested.index.retain(&mut keep).expect("retained");
            model.retain(|(_, row), _| row.0 % 7 != gone);
        }
        37 => tested.reopen(),
        _ => {}
    }
}

fn compare(tested: &Tested, model: &Model, rng: &mut Rng, shape: u64) {
    let (needed, all) = expected(model, tested.oldest());
    let key = random_key(rng, shape);
    let bytes = tested.index.encode(&key);
    let mut rows = Vec::new();
    tested.index.lookup(&bytes, &mut rows).expect("read");
    assert!(rows.is_sorted(), "{rows:?}");
    let seen: Vec<_> = rows.iter().map(|row| (bytes.clone(), *row)).collect();
    let of_key = |entries: &Entries| -> Entries {
        let same = entries.iter().filter(|(of, _)| *of == bytes);
        same.cloned().collect()
    };
    assert_seen(&seen, &of_key(&needed), &of_key(&all), "lookup");
    if needed == all {
        let found = tested.index.find(&key).expect("read");
        let expected = match rows.as_slice() {
            [] => Lookup::None,
            [row] => Lookup::One(*row),
            _ => Lookup::Several,
        };
        assert_eq!(found, expected);
    }
    let range = random_range(rng, tested.index.tree().keys(), shape);
    let within = |entries: &Entries| -> Entries {
        let within = entries.iter().filter(|(key, _)| is_in(&range, key));
        within.cloned().collect()
    };
    let direction = [Direction::Forward, Direction::Backward][rng.below(2) as usize];
    let mut seen = collect(&tested.index, &range, direction);
    if let Some(after) = seen.get(rng.below(10) as usize) {
        let rest = tested.index.cursor_after(&range, direction, after);
        let rest = rest_of(rest.expect("ordered"));
        let place = seen.iter().position(|entry| entry == after).expect("there");
        let must: Entries = seen[place + 1..].iter().cloned().collect();
        let must = must.intersection(&needed).cloned().collect();
        assert_seen(&rest, &must, &all, "after");
    }
    if direction == Direction::Backward {
        seen.reverse();
    }
    assert!(seen.is_sorted_by(|a, b| a < b), "{direction:?}");
    assert_seen(&seen, &within(&needed), &within(&all), "cursor");
}

/// Every operation at random: the index has what a map has.
#[test]
fn the_index_has_what_a_map_has() {
    let base = seed();
    for seed in base..base + 36 {
        let rng = &mut Rng::new(seed);
        let (kind, shape) = (KINDS[(seed % 2) as usize], seed / 2 % 3);
        let node_bytes = [216, 300, PAGE_BODY_BYTES][rng.below(3) as usize];
        let node_bytes = if shape == 2 { 800 } else { node_bytes };
        let entries = [1, 2, 4, 9][rng.below(4) as usize];
        println!("STRANDLINE_SEED={seed}: {kind:?} of {entries}, {node_bytes}, shape {shape}");
        let mut tested = Tested::new(kind, entries, node_bytes);
        if seed % 5 == 0 {
            // Until it is opened anew.
            tested.index = tested.index.with_block_memory(1_000);
        }
        let (mut model, mut next_row) = (Model::new(), 100);
        for _ in 0..600 {
            change(&mut tested, &mut model, rng, shape, &mut next_row);
            compare(&tested, &model, rng, shape);
        }
        assert_sound(&tested.index);
        let (needed, all) = expected(&model, tested.oldest());
        let held = tested.vacuumed();
        assert!(needed.len() <= held && held <= all.len());
        let seen = collect(&tested.index, &KeyRange::default(), Direction::Forward);
        assert_seen(&seen, &needed, &all, "vacuumed");
        assert_eq!(held, seen.len());
        assert_sound(&tested.index);
    }
}
