//! Records: their bytes, round trips, damage, and the kinds.

use super::rows::RowOperation;
use super::*;
use crate::store::RowChange;
use strandline_base::rng::Rng;
use strandline_base::{BoxCorners, ColumnId, Interval, Point, TableId, Value};
use strandline_tail::change::Change;

const STORAGE: StorageId = StorageId(3);
const ROW: RowId = RowId(1 << 40);

fn values() -> Vec<(ColumnId, Value)> {
    vec![
        (ColumnId(0), Value::BigInt(i64::MIN)),
        (ColumnId(1), Value::Null),
        (ColumnId(2), Value::from("Gr\u{fc}\u{df}e")),
        (ColumnId(3), Value::Numeric(i128::MAX)),
        (ColumnId(4), Value::Numeric(-5)),
        (ColumnId(5), Value::Boolean(true)),
        (
            ColumnId(6),
            Value::Interval(Interval {
                months: -1,
                days: 2,
                nanos: i64::MAX,
            }),
        ),
        (ColumnId(7), Value::Uuid([7; 16])),
        (ColumnId(8), Value::Double(-0.0)),
        (ColumnId(9), Value::Point(Point::new([f64::INFINITY, -0.0]))),
        (
            ColumnId(10),
            Value::Box(BoxCorners::new([1.5, f64::INFINITY], [-2.0, 0.0])),
        ),
        (ColumnId(70), Value::Bytea(vec![0, 255].into())),
    ]
}

/// A record with an operation of every kind, in the order of [`KINDS`].
fn sample() -> Vec<u8> {
    let values = values();
    let mut out = Vec::new();
    begin(&mut out);
    put_insert(&mut out, STORAGE, ROW, values.iter().map(|(c, v)| (*c, v)));
    put_change(&mut out, STORAGE, ROW, Change::Update(&values[..2]));
    put_change(&mut out, STORAGE, ROW, Change::Delete);
    put_load(&mut out, STORAGE, b"{}");
    put_definition(&mut out, b"[]");
    put_drawn(&mut out, TableId(1), ColumnId(2), -9);
    set_commit_ts(&mut out, CommitTs(77));
    out
}

fn row(change: RowChange) -> RowOperation {
    RowOperation {
        storage: STORAGE,
        row: ROW,
        change,
    }
}

#[test]
fn records_round_trip() {
    let (ts, operations) = decode(&sample(), "log").expect("decodes");
    assert_eq!(ts, CommitTs(77));
    let kinds: Vec<usize> = operations.iter().map(|redo| redo.kind).collect();
    assert_eq!(kinds, Vec::from_iter(0..KINDS.len()));
    let (mut rows, mut others) = (Vec::new(), Vec::new());
    for redo in operations {
        match redo.operation {
            Operation::Row(row) => rows.push(row),
            Operation::Other(other) => others.push(format!("{:?} {other:?}", other.scope())),
        }
    }
    let expected = [
        row(RowChange::Insert(values())),
        row(RowChange::Update(values()[..2].to_vec())),
        row(RowChange::Delete),
    ];
    assert_eq!(rows, expected);
    let expected = [
        "Storage(StorageId(3)) Load { storage: StorageId(3), range: [123, 125] }",
        "Definitions Definition([91, 93])",
        "Identities Drawn { table: TableId(1), column: ColumnId(2), value: -9 }",
    ];
    assert_eq!(others, expected);
}

#[test]
fn kinds_have_numbers_and_names_of_their_own() {
    for (at, kind) in KINDS.iter().enumerate() {
        assert_eq!(usize::from(kind.tag), at + 1, "as docs/format.md has it");
        let others = || KINDS.iter().enumerate().filter(|(other, _)| *other != at);
        assert!(others().all(|(_, other)| other.name != kind.name));
    }
}

#[test]
fn only_deletions_and_definitions_free_space() {
    let (_, operations) = decode(&sample(), "log").expect("decodes");
    let freeing = operations.iter().map(|redo| redo.operation.frees_space());
    let expected = [false, false, true, false, true, true];
    assert_eq!(Vec::from_iter(freeing), expected);
}

#[test]
fn damaged_records_never_panic() {
    let bytes = sample();
    let mut rng = Rng::new(11);
    for _ in 0..20_000 {
        let mut bad = bytes.clone();
        for _ in 0..=rng.below(3) {
            let at = rng.below(bad.len() as u64) as usize;
            bad[at] = rng.next_u64() as u8;
        }
        bad.truncate(rng.below(bad.len() as u64 + 1) as usize);
        let _ = decode(&bad, "log");
    }
}
