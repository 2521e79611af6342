//! What is left of a row's records tells every moment that may be asked for what all of them did.

use super::repeats::{Repeats, WAITING_BYTES};
use super::rewrite::rewrite;
use super::*;
use crate::lineage::horizon::Horizon;
use crate::update_run::RunRecordKind;
use std::collections::BTreeMap;
use strandline_base::rng::Rng;
use strandline_base::{RangeNo, Value};

const COLUMNS: u32 = 3;

fn record(
    ts: u64,
    kind: RunRecordKind,
    columns: impl IntoIterator<Item = (u32, Value)>,
) -> RunRecord {
    RunRecord {
        row: RowId(5),
        ts: CommitTs(ts),
        kind,
        columns: columns.into_iter().map(|(c, v)| (ColumnId(c), v)).collect(),
    }
}

fn update(ts: u64, columns: &[(u32, i64)]) -> RunRecord {
    let columns = columns.iter().map(|(c, v)| (*c, Value::BigInt(*v)));
    record(ts, RunRecordKind::Update, columns)
}

fn drop_repeats(records: &mut Vec<RunRecord>) {
    let (mut repeats, mut out) = (Repeats::default(), Vec::new());
    let mut keep = |record| {
        out.push(record);
        Ok(())
    };
    for record in records.drain(..) {
        repeats.push(record, &mut keep).expect("kept");
    }
    repeats.finish(&mut keep).expect("kept");
    *records = out;
}

/// What a reduction leaves of one row's records.
fn rewritten(records: &[RunRecord], reduction: &Reduction<'_>) -> Vec<RunRecord> {
    let (mut records, mut out) = (records.iter().cloned(), Vec::new());
    let kept = rewrite(
        || Ok(records.next()),
        reduction,
        |record| {
            out.push(record);
            Ok(())
        },
    );
    kept.expect("rewritten");
    out
}

/// A row's records, newest first, and its columns as base has them at the end. Updates are
/// cumulative but for resets now and then; many set what was there before.
fn random_row(rng: &mut Rng) -> (Vec<RunRecord>, Vec<Value>) {
    let mut values: Vec<Value> = (0..i64::from(COLUMNS)).map(Value::BigInt).collect();
    let mut records = Vec::new();
    let mut old_values = Vec::new();
    if rng.one_in(2) {
        let all = (0..COLUMNS).zip(values.iter().cloned());
        records.push(record(10, RunRecordKind::Insert, all));
    }
    let mut updated = [false; COLUMNS as usize];
    let mut carried: BTreeMap<u32, Value> = BTreeMap::new();
    let end = 20 + rng.below(60);
    for ts in (11..end).filter(|_| rng.one_in(3)).collect::<Vec<_>>() {
        if rng.one_in(5) {
            carried.clear(); // a merge
        }
        let columns: Vec<u32> = (0..COLUMNS).filter(|_| rng.one_in(2)).collect();
        for &c in &columns {
            let value = &mut values[c as usize];
            if !std::mem::replace(&mut updated[c as usize], true) {
                old_values.push(record(10, RunRecordKind::OldValue, [(c, value.clone())]));
            }
            match rng.below(6) {
                0 => *value = Value::Null,
                1 | 2 => {}
                _ => *value = Value::BigInt(ts as i64 * 10 + i64::from(c)),
            }
            carried.insert(c, value.clone());
        }
        if !columns.is_empty() {
            records.push(record(ts, RunRecordKind::Update, carried.clone()));
        }
    }
    if rng.one_in(3) {
        records.push(record(end, RunRecordKind::Delete, []));
    }
    records.reverse();
    records.extend(old_values);
    (records, values)
}

/// What a reader at `ts` finds, whose base has everything.
fn read(
    records: &[RunRecord],
    base: &[Value],
    last: u64,
    ends: bool,
    ts: u64,
) -> Option<Vec<Value>> {
    if ts >= last {
        return (!ends).then(|| base.to_vec());
    }
    let mut found: Vec<Option<Value>> = vec![None; base.len()];
    let is_old = |r: &RunRecord| r.kind == RunRecordKind::OldValue;
    for r in records.iter().filter(|r| r.ts.0 <= ts || is_old(r)) {
        if r.kind == RunRecordKind::Delete {
            return None;
        }
        for (column, value) in &r.columns {
            found[column.0 as usize].get_or_insert(value.clone());
        }
    }
    let found = found.into_iter().zip(base);
    Some(found.map(|(f, b)| f.unwrap_or(b.clone())).collect())
}

fn values(records: &[RunRecord]) -> usize {
    records.iter().map(|r| r.columns.len()).sum()
}

#[test]
fn every_moment_reads_as_before_without_repeats() {
    let (mut before, mut after) = (0, 0);
    for seed in 0..4000 {
        let (records, base) = random_row(&mut Rng::new(seed));
        let last = records.iter().map(|r| r.ts.0).max().unwrap_or(0);
        let mut kept = records.clone();
        drop_repeats(&mut kept);
        let markers =
            |all: &[RunRecord]| -> Vec<_> { all.iter().map(|r| (r.row, r.ts, r.kind)).collect() };
        assert_eq!(markers(&kept), markers(&records), "every version is there");
        for ts in 10..=last {
            let (was, is) = (
                read(&records, &base, last + 1, false, ts),
                read(&kept, &base, last + 1, false, ts),
            );
            assert_eq!(is, was, "seed {seed} at {ts}: {records:?} became {kept:?}");
        }
        (before, after) = (before + values(&records), after + values(&kept));
    }
    assert!(
        after * 3 < before * 2,
        "{after} of {before} values are left"
    );
}

#[test]
fn every_moment_that_may_be_asked_for_reads_as_before() {
    let (mut before, mut after) = (0, 0);
    for seed in 0..4000 {
        let mut rng = Rng::new(seed);
        let (records, base) = random_row(&mut rng);
        let versions = records.iter().filter(|r| r.kind != RunRecordKind::OldValue);
        let last = versions.clone().map(|r| r.ts.0).max().unwrap_or(0);
        let ends = records
            .first()
            .is_some_and(|r| r.kind == RunRecordKind::Delete);
        // The horizon comes nearer, and each time the run is written again.
        let mut kept = records.clone();
        drop_repeats(&mut kept);
        let mut kept_from = 10 + rng.below(30);
        let mut merged_through = rng.below(last + 1);
        let mut snapshots: BTreeSet<u64> =
            (0..rng.below(4)).map(|_| rng.below(kept_from)).collect();
        let mut interval = rng.one_in(2).then(|| {
            let first = rng.below(kept_from);
            (first, first + rng.below(20))
        });
        for _ in 0..3 {
            let moments = snapshots.iter().map(|ts| CommitTs(*ts)).collect();
            let held = interval.map(|(first, last)| (CommitTs(first), CommitTs(last)));
            let held = held.into_iter().collect();
            let horizon = Horizon::new(CommitTs(kept_from), moments, held);
            let reduction = Reduction {
                horizon: &horizon,
                merged_through: &BTreeMap::from([(RangeNo(0), CommitTs(merged_through))]),
                has_oldest: rng.one_in(2),
                begin: &|_| Ok(Some(CommitTs::ZERO)),
            };
            kept = rewritten(&kept, &reduction);
            let within = interval.into_iter().flat_map(|(first, last)| first..=last);
            for ts in snapshots
                .iter()
                .copied()
                .chain(within)
                .chain(kept_from..100)
            {
                let (was, is) = (
                    read(&records, &base, last, ends, ts),
                    read(&kept, &base, last, ends, ts),
                );
                assert_eq!(is, was, "seed {seed} at {ts}: {records:?} became {kept:?}");
            }
            snapshots.retain(|_| !rng.one_in(4));
            interval.take_if(|_| rng.one_in(4));
            let next = kept_from + rng.below(30);
            snapshots.extend((kept_from..next).filter(|_| rng.one_in(10)));
            kept_from = next;
            merged_through = merged_through
                .max(rng.below(last + 1))
                .max(last.min(kept_from));
        }
        (before, after) = (before + records.len(), after + kept.len());
    }
    assert!(after * 2 < before, "{after} of {before} records are left");
}

#[test]
fn values_of_the_same_bits_only_are_repeats() {
    let floats = [0.0, -0.0, f64::NAN, f64::NAN, 1.0, 1.0];
    let ts = 20..20 + floats.len() as u64;
    let versions = ts.zip(floats);
    let mut records: Vec<RunRecord> = versions
        .map(|(ts, v)| record(ts, RunRecordKind::Update, [(0, Value::Double(v))]))
        .collect();
    records.reverse();
    drop_repeats(&mut records);
    let kept: Vec<u64> = records
        .iter()
        .filter(|r| !r.columns.is_empty())
        .map(|r| r.ts.0)
        .collect();
    assert_eq!(kept, [24, 22, 21, 20]);
}

#[test]
fn only_updates_are_repeated() {
    let all = [(0, Value::BigInt(1)), (1, Value::BigInt(2))];
    let old = record(10, RunRecordKind::OldValue, [(0, Value::BigInt(1))]);
    let rows = [
        // An insertion may go while the update stays, and between old value and update there may
        // be others, in older runs.
        vec![
            update(30, &[(1, 9)]),
            update(20, &[(0, 1)]),
            record(10, RunRecordKind::Insert, all),
        ],
        vec![update(30, &[(1, 9)]), update(20, &[(0, 1)]), old],
        // Another value lies between.
        vec![
            update(30, &[(0, 1)]),
            update(20, &[(0, 2)]),
            update(10, &[(0, 1)]),
        ],
        vec![update(30, &[(0, 1)])],
        vec![record(30, RunRecordKind::Delete, []), update(20, &[(0, 1)])],
        vec![],
    ];
    for row in rows {
        let mut kept = row.clone();
        drop_repeats(&mut kept);
        assert_eq!(kept, row);
    }
    let mut row = vec![
        update(40, &[(0, 1), (1, 5)]),
        update(30, &[(1, 4)]),
        update(20, &[(0, 1), (1, 4)]),
    ];
    drop_repeats(&mut row);
    assert_eq!(
        row,
        [
            update(40, &[(1, 5)]),
            update(30, &[]),
            update(20, &[(0, 1), (1, 4)])
        ]
    );
}

/// A union holds few records at a time, also if a value is never set again: it then comes once more
/// per so many bytes.
#[test]
fn what_waits_to_be_decided_on_is_bounded() {
    const VERSIONS: u64 = 3_000;
    let horizon = Horizon::new(CommitTs(0), Vec::new(), Vec::new());
    let reduction = Reduction {
        horizon: &horizon,
        merged_through: &BTreeMap::new(),
        has_oldest: true,
        begin: &|_| Ok(None),
    };
    let text = |ts: u64| Value::from(format!("{ts}").repeat(5_000).as_str());
    for once in [true, false] {
        let (taken, given) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
        let (mut ts, mut held_max) = (VERSIONS, 0);
        let next = || {
            if ts == 0 {
                return Ok(None);
            }
            ts -= 1;
            let set = match (once, ts) {
                (true, ts) if ts + 1 == VERSIONS => vec![(0, Value::BigInt(7)), (1, text(ts))],
                (true, ts) => vec![(1, text(ts))],
                (false, ts) => vec![(0, Value::BigInt(7)), (1, text(ts))],
            };
            let record = record(10 + ts, RunRecordKind::Update, set);
            taken.set(taken.get() + record.columns.len());
            Ok(Some(record))
        };
        let mut values = 0;
        rewrite(next, &reduction, |record| {
            given.set(given.get() + 1);
            values += record.columns.len();
            held_max = held_max.max(taken.get() - values);
            Ok(())
        })
        .expect("rewritten");
        assert_eq!(given.get(), VERSIONS);
        assert_eq!(
            values as u64,
            VERSIONS + 1,
            "a value that repeats comes once"
        );
        let texts_max = WAITING_BYTES / 5_000 + 3;
        assert!(once || held_max < 10 + VERSIONS as usize);
        assert!(
            !once || held_max < texts_max,
            "{held_max} values, not {texts_max}"
        );
    }
}
