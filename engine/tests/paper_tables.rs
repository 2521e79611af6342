//! Tables 2 to 6 of the L-Store paper as golden tests: the same inserts, updates and deletes at the
//! same times leave the same records, indirections, merged pages, lineage and history.
//!
//! Columns of the pictures are the paper's: RID, Indirection, Schema Encoding (`*`: old values),
//! Start Time, Last Updated Time (base rows only), Key, A, B, C; `∅` is the implicit null.
//!
//! Where ours differ from the paper's tables:
//!
//! 1. Tail records are numbered per update range, from t1; the paper numbers all in one space.
//! 2. The base's Schema Encoding and Last Updated Time are filled by the merge alone (the paper
//!    allows it for both, §4.1.1 step 3); a row never updated has no Last Updated Time (Table 4
//!    repeats its Start Time there).
//! 3. The TPS is the time of the last commit that has been merged, not the number of a record.
//! 4. A deletion is marked by its kind, not by an empty Schema Encoding alone.
//! 5. History (Table 6) has base-RID order and each row's versions side by side, as the paper's,
//!    but newest first and old values last; `∅` is also what the paper has as `-`, a value that is
//!    that of the version before.

mod common;

use common::*;
use std::sync::Arc;
use strandline_base::ManualClock;
use strandline_column::types;
use strandline_device::MemoryDevice;
use strandline_engine::catalog::{HistoryPolicy, TableDef};
use strandline_engine::*;
use strandline_table::lineage::image::RangeImage;
use strandline_table::update_run::{RunRecord, RunRecordKind};

const MINUTE: u64 = 60_000_000;
/// The midnight before the times of the tables.
const MIDNIGHT: u64 = 1_700_006_400_000_000;

/// The running example: the table (Key, A, B, C).
struct Example {
    device: Arc<MemoryDevice>,
    clock: Arc<ManualClock>,
    db: Arc<Db>,
    /// the number of the first base RID
    first: u64,
}

fn minutes(time: &str) -> u64 {
    let (hours, minutes) = time.split_once(':').expect("hh:mm");
    let number = |text: &str| text.parse::<u64>().expect("a number");
    number(hours) * 60 + number(minutes)
}

fn time(ts: CommitTs) -> String {
    if ts == CommitTs::ZERO {
        return "-".into();
    }
    let us = ts.0 - MIDNIGHT;
    assert!(us.is_multiple_of(MINUTE), "{ts} is no time of the tables");
    format!("{:02}:{:02}", us / MINUTE / 60, us / MINUTE % 60)
}

fn text(value: &Value) -> String {
    match value {
        Value::Text(text) => text.to_string(),
        other => panic!("{other:?}"),
    }
}

fn bits(columns: impl Iterator<Item = ColumnId>) -> String {
    let mut bits = [b'0'; 4];
    columns.for_each(|c| bits[c.0 as usize] = b'1');
    String::from_utf8_lossy(&bits).into_owned()
}

fn cells(columns: &[(ColumnId, Value)]) -> String {
    let cell = |id: u32| {
        let found = columns.iter().find(|(c, _)| c.0 == id);
        found.map_or("∅".into(), |(_, v)| text(v))
    };
    (0..4).map(cell).collect::<Vec<_>>().join(" ")
}

fn text_table(catalog: &mut catalog::Catalog) -> TableDef {
    let names = ["key", "a", "b", "c"].into_iter().enumerate();
    let columns = names.map(|(id, name)| column(id as u32, name, SqlType::Text, id == 0));
    definition(catalog, columns.collect(), HistoryPolicy::Forever)
}

impl Example {
    /// An empty table whose base RIDs begin at b`first`.
    fn new(first: u64) -> Self {
        let (device, clock) = (Arc::new(MemoryDevice::new()), clock());
        clock.set(MIDNIGHT);
        let db = open(device.clone(), &clock).expect("open");
        let txn = db.begin(TxnOptions::default()).expect("begin");
        txn.change_catalog(&mut |catalog| {
            let table = text_table(catalog);
            catalog.put_table(table);
            Ok(())
        })
        .expect("create table");
        txn.commit().expect("commit");
        drop(txn);
        Self {
            device,
            clock,
            db,
            first,
        }
    }

    /// Table 2 up to t7: three base records, merged from their insert range, and the updates.
    fn updated() -> Self {
        let example = Self::new(1);
        example.insert("10:02", 1);
        example.insert("13:04", 2);
        example.insert("15:05", 3);
        example.db.checkpoint(true).expect("merge of the inserts");
        example.update("19:21", 2, &[(1, "a21")]);
        example.update("19:24", 2, &[(1, "a22")]);
        example.update("19:25", 2, &[(3, "c21")]);
        example.update("19:45", 3, &[(3, "c31")]);
        example
    }

    /// Table 4: t1 to t7 merged, while the deletion t8 is written and not committed.
    fn merged() -> Self {
        let example = Self::updated();
        let deletion = example.begin_delete(1);
        let report = example.db.checkpoint(true).expect("merge");
        assert_eq!(report.merged_ranges, 1);
        example.at("20:15");
        deletion.commit().expect("commit of t8");
        example
    }

    fn reopen(self) -> Self {
        let Self {
            device,
            clock,
            db,
            first,
        } = self;
        drop(db);
        let db = open(device.clone(), &clock).expect("reopen");
        Self {
            device,
            clock,
            db,
            first,
        }
    }

    /// The next commit is at `time`.
    fn at(&self, time: &str) {
        self.clock.set(MIDNIGHT + minutes(time) * MINUTE);
    }

    fn insert(&self, time: &str, n: u64) {
        self.at(time);
        let row = ["k", "a", "b", "c"].map(|name| Value::from(format!("{name}{n}")));
        insert(&self.db, &row);
        assert_eq!(self.db.stable().0, MIDNIGHT + minutes(time) * MINUTE);
    }

    fn update(&self, time: &str, n: u64, set: &[(u32, &str)]) {
        self.at(time);
        let set: Vec<_> = set
            .iter()
            .map(|(c, v)| (ColumnId(*c), Value::from(*v)))
            .collect();
        let (t, key) = (table(&self.db), [Value::from(format!("k{n}"))]);
        let found = run(&self.db, |s| s.point_update(&t, 0, &key, &set));
        assert!(found.expect("update"));
    }

    fn begin_delete(&self, n: u64) -> Arc<Transaction> {
        let txn = self.db.begin(TxnOptions::default()).expect("begin");
        let statement = txn.begin_statement().expect("statement");
        let key = [Value::from(format!("k{n}"))];
        let found = statement.point_delete(&table(&self.db), 0, &key);
        assert!(found.expect("delete"));
        txn
    }

    fn ranges(&self) -> Vec<RangeImage> {
        self.db.lineage_of(&table(&self.db)).expect("image")
    }

    /// Base RIDs are numbered over the ranges, which hold `per_range` rows each here.
    fn rid(&self, row: RowId) -> String {
        let before: usize = self.ranges()[..row.range().0 as usize]
            .iter()
            .map(|range| range.rows.len())
            .sum();
        format!("b{}", self.first + before as u64 + row.slot() as u64)
    }

    /// The base records of a range.
    fn base(&self, range: usize) -> Vec<String> {
        let range = &self.ranges()[range];
        let row = |row: &strandline_table::lineage::image::RowImage| {
            let indirection = match row.head {
                0 => "⊥".into(),
                head => format!("t{head}"),
            };
            format!(
                "{} {indirection} {} {} {} {}{}",
                self.rid(row.row),
                bits(row.updated.iter().copied()),
                time(row.start.commit_ts().expect("committed")),
                time(row.last_updated),
                row.values.iter().map(text).collect::<Vec<_>>().join(" "),
                if row.is_deleted { " deleted" } else { "" },
            )
        };
        range.rows.iter().map(row).collect()
    }

    /// The tail records of a range.
    fn tail(&self, range: usize) -> Vec<String> {
        let range = &self.ranges()[range];
        let record = |record: &strandline_table::lineage::image::RecordImage| {
            use strandline_tail::record_page::RecordKind;
            let back = match record.back {
                0 => self.rid(record.row),
                back => format!("t{back}"),
            };
            format!(
                "t{} {back} {}{} {} {}{}",
                record.number,
                bits(record.columns.iter().map(|(c, _)| *c)),
                match record.kind {
                    RecordKind::OldValue => "*",
                    _ => "",
                },
                record.start.commit_ts().map_or("open".into(), time),
                cells(&record.columns),
                match record.kind {
                    RecordKind::Delete => " deletion",
                    _ => "",
                },
            )
        };
        range.records.iter().map(record).collect()
    }

    /// The lineage of a range: the time of the last commit that its base contains.
    fn tps(&self, range: usize) -> String {
        time(self.ranges()[range].merged.all())
    }

    /// The records of the runs.
    fn history(&self) -> Vec<String> {
        let records = self.db.run_records_of(&table(&self.db)).expect("runs");
        let record = |record: &RunRecord| {
            format!(
                "{} {}{} {} {}{}",
                self.rid(record.row),
                bits(record.columns.iter().map(|(c, _)| *c)),
                match record.kind {
                    RunRecordKind::OldValue => "*",
                    _ => "",
                },
                time(record.ts),
                cells(&record.columns),
                match record.kind {
                    RunRecordKind::Delete => " deletion",
                    _ => "",
                },
            )
        };
        records.iter().map(record).collect()
    }

    /// What `statement` reads of record `n`.
    fn read(&self, statement: &Statement, n: u64) -> Option<String> {
        let columns = [0, 1, 2, 3].map(ColumnId);
        let (t, key) = (table(&self.db), [Value::from(format!("k{n}"))]);
        let mut out = Vec::new();
        let found = statement.point_get(&t, 0, &key, &columns, &mut out);
        let row = || out.iter().map(text).collect::<Vec<_>>().join(" ");
        found.expect("get").then(row)
    }

    /// What a scan AS OF `time` finds.
    fn as_of(&self, time: &str) -> Vec<String> {
        let ts = CommitTs(MIDNIGHT + minutes(time) * MINUTE);
        let t = table(&self.db);
        let request = ScanRequest {
            columns: (0..4).map(ColumnId).collect(),
            ..ScanRequest::default()
        };
        let scan = run(&self.db, |s| s.scan_as_of(&t, ts, request)).expect("as of");
        let row = |row: Vec<Value>| row.iter().map(text).collect::<Vec<_>>().join(" ");
        rows_of(&scan, &t).into_iter().map(row).collect()
    }
}

/// t1 to t7 of Table 2.
const TAIL: [&str; 7] = [
    "t1 b2 0100* 13:04 ∅ a2 ∅ ∅",
    "t2 t1 0100 19:21 ∅ a21 ∅ ∅",
    "t3 t2 0100 19:24 ∅ a22 ∅ ∅",
    "t4 t3 0001* 13:04 ∅ ∅ ∅ c2",
    "t5 t4 0101 19:25 ∅ a22 ∅ c21",
    "t6 b3 0001* 15:05 ∅ ∅ ∅ c3",
    "t7 t6 0001 19:45 ∅ ∅ ∅ c31",
];

#[test]
fn table_2_updates_and_a_deletion() {
    let example = Example::updated();
    example.at("20:15");
    example.begin_delete(1).commit().expect("commit");
    // The paper's b2 and b3 show 0101 and 0001 here; see difference 2.
    let base = [
        "b1 t8 0000 10:02 - k1 a1 b1 c1",
        "b2 t5 0000 13:04 - k2 a2 b2 c2",
        "b3 t7 0000 15:05 - k3 a3 b3 c3",
    ];
    assert_eq!(example.base(0), base);
    let deletion = "t8 b1 0000 20:15 ∅ ∅ ∅ ∅ deletion";
    assert_eq!(example.tail(0), [&TAIL[..], &[deletion]].concat());
    assert_eq!(example.tps(0), "15:05", "the merge of the insert range");
}

#[test]
fn table_3_inserts_with_concurrent_updates() {
    let example = Example::new(4);
    example.insert("16:20", 4);
    example.insert("17:21", 5);
    example.insert("18:02", 6);
    example.db.checkpoint(true).expect("b4 to b6 become base");
    example.insert("18:30", 7);
    example.insert("18:45", 8);
    example.insert("19:05", 9);
    example.update("22:25", 8, &[(3, "c81")]);
    example.update("22:45", 9, &[(1, "a91")]);
    let base = [
        "b4 ⊥ 0000 16:20 - k4 a4 b4 c4",
        "b5 ⊥ 0000 17:21 - k5 a5 b5 c5",
        "b6 ⊥ 0000 18:02 - k6 a6 b6 c6",
    ];
    assert_eq!(example.base(0), base);
    assert!(example.tail(0).is_empty());
    let ranges = example.ranges();
    assert_eq!((ranges[0].is_insert, ranges[1].is_insert), (false, true));
    // The insert range and its table-level tail pages are aligned: one line each. t1 to t4 are
    // the paper's t13 to t16 (whose t15 points back to b9: "b3" there is a slip).
    let inserted = [
        "b7 ⊥ 0000 18:30 - k7 a7 b7 c7",
        "b8 t2 0000 18:45 - k8 a8 b8 c8",
        "b9 t4 0000 19:05 - k9 a9 b9 c9",
    ];
    assert_eq!(example.base(1), inserted);
    let tail = [
        "t1 b8 0001* 18:45 ∅ ∅ ∅ c8",
        "t2 t1 0001 22:25 ∅ ∅ ∅ c81",
        "t3 b9 0100* 19:05 ∅ a9 ∅ ∅",
        "t4 t3 0100 22:45 ∅ a91 ∅ ∅",
    ];
    assert_eq!(example.tail(1), tail);
    // The insert range becomes base together with its updates; nothing is left of its tail.
    example.db.checkpoint(true).expect("merge");
    let merged = [
        "b7 ⊥ 0000 18:30 - k7 a7 b7 c7",
        "b8 ⊥ 0001 18:45 22:25 k8 a8 b8 c81",
        "b9 ⊥ 0100 19:05 22:45 k9 a91 b9 c9",
    ];
    assert_eq!(example.base(1), merged);
    assert_eq!(example.tps(1), "22:45");
    let before = ["a4 b4", "a5 b5", "a6 b6", "a7 b7", "a8 b8", "a9 b9"]
        .iter()
        .zip(4..)
        .map(|(ab, n)| format!("k{n} {ab} c{n}"));
    assert_eq!(example.as_of("22:24"), before.collect::<Vec<_>>());
}

#[test]
fn table_4_the_merge_takes_what_is_committed() {
    let example = Example::updated();
    let deletion = example.begin_delete(1);
    example.db.checkpoint(true).expect("merge");
    let merged = [
        "b1 t8 0000 10:02 - k1 a1 b1 c1",
        "b2 t5 0101 13:04 19:25 k2 a22 b2 c21",
        "b3 t7 0001 15:05 19:45 k3 a3 b3 c31",
    ];
    // Neither the indirections nor the open t8 have been touched; the TPS is that of t7.
    assert_eq!(example.base(0), merged);
    assert_eq!(example.tps(0), "19:45");
    let open = "t8 b1 0000 open ∅ ∅ ∅ ∅ deletion";
    assert_eq!(example.tail(0), [&TAIL[..], &[open]].concat());
    example.at("20:15");
    deletion.commit().expect("commit");
    assert_eq!(example.base(0), merged);
    assert_eq!(example.as_of("20:14").len(), 3);
    assert_eq!(example.as_of("20:15").len(), 2);
}

#[test]
fn table_5_indirections_are_read_by_the_lineage() {
    let example = Example::merged();
    let before = example.db.begin(TxnOptions {
        isolation: Isolation::Snapshot,
        ..TxnOptions::default()
    });
    let before = before.expect("begin");
    let old = before.begin_statement().expect("statement");
    example.update("21:25", 2, &[(2, "b21")]);
    example.update("21:30", 3, &[(3, "c32")]);
    example.update("21:55", 2, &[(1, "a23")]);
    let base = [
        "b1 t8 0000 10:02 - k1 a1 b1 c1",
        "b2 t12 0101 13:04 19:25 k2 a22 b2 c21",
        "b3 t11 0001 15:05 19:45 k3 a3 b3 c31",
    ];
    assert_eq!(example.base(0), base);
    assert_eq!(example.tps(0), "19:45");
    // t10 starts to accumulate anew: what t5 carried is in the merged pages. t12 repeats t10.
    // Columns that base knows as updated get no second old value (t11, t12).
    let behind = [
        "t8 b1 0000 20:15 ∅ ∅ ∅ ∅ deletion",
        "t9 t5 0010* 13:04 ∅ ∅ b2 ∅",
        "t10 t9 0010 21:25 ∅ ∅ b21 ∅",
        "t11 t7 0001 21:30 ∅ ∅ ∅ c32",
        "t12 t10 0110 21:55 ∅ a23 b21 ∅",
    ];
    assert_eq!(example.tail(0), [&TAIL[..], &behind].concat());
    let read = |statement: &Statement, n| example.read(statement, n);
    let now = run(&example.db, |s| Ok([1, 2, 3].map(|n| read(s, n)))).expect("read");
    let rows = [
        None,
        Some("k2 a23 b21 c21".into()),
        Some("k3 a3 b3 c32".into()),
    ];
    assert_eq!(now, rows);
    assert_eq!(read(&old, 2).as_deref(), Some("k2 a22 b2 c21"));
    assert_eq!(read(&old, 3).as_deref(), Some("k3 a3 b3 c31"));
}

#[test]
fn table_5_a_reader_of_the_pages_before_the_merge_takes_t5_as_well() {
    let example = Example::updated();
    let deletion = example.begin_delete(1);
    let t = table(&example.db);
    let request = ScanRequest {
        columns: (0..4).map(ColumnId).collect(),
        ..ScanRequest::default()
    };
    let scan = run(&example.db, |s| s.scan(&t, request)).expect("scan");
    // The unit holds the base with the TPS before the merge (15:05).
    let mut unit = scan.open_unit(0).expect("unit");
    example.db.checkpoint(true).expect("merge");
    deletion.rollback();
    example.update("21:25", 2, &[(2, "b21")]);
    example.update("21:55", 2, &[(1, "a23")]);
    let batch = unit.next_batch().expect("read").expect("rows");
    let row = |i: usize| {
        let cell = |at: usize| text(&types::value_at(SqlType::Text, batch.column(at), i));
        (0..4).map(cell).collect::<Vec<_>>().join(" ")
    };
    let rows: Vec<String> = (0..batch.num_rows()).map(row).collect();
    assert_eq!(rows, ["k1 a1 b1 c1", "k2 a22 b2 c21", "k3 a3 b3 c31"]);
}

#[test]
fn table_6_history_is_in_base_rid_order() {
    let example = Example::merged();
    // Of the inserts nothing is here: they were merged before they were in a run.
    let history = [
        "b2 0001 19:25 ∅ ∅ ∅ c21",
        "b2 0100 19:24 ∅ a22 ∅ ∅",
        "b2 0100 19:21 ∅ a21 ∅ ∅",
        "b2 0001* 13:04 ∅ ∅ ∅ c2",
        "b2 0100* 13:04 ∅ a2 ∅ ∅",
        "b3 0001 19:45 ∅ ∅ ∅ c31",
        "b3 0001* 15:05 ∅ ∅ ∅ c3",
    ];
    let check = |example: &Example| {
        assert_eq!(example.history(), history);
        let before = ["k1 a1 b1 c1", "k2 a2 b2 c2", "k3 a3 b3 c3"];
        assert_eq!(example.as_of("19:20"), before);
        assert_eq!(example.as_of("19:21")[1], "k2 a21 b2 c2");
        assert_eq!(example.as_of("19:24")[1], "k2 a22 b2 c2");
        assert_eq!(example.as_of("19:25")[1], "k2 a22 b2 c21");
        assert_eq!(example.as_of("13:04"), before[..2]);
        assert_eq!(example.as_of("10:01").len(), 0);
    };
    check(&example);
    check(&example.reopen());
}

#[test]
fn table_6_what_comes_back_into_the_tail_is_cumulative_again() {
    let example = Example::updated();
    let report = example.db.checkpoint(false).expect("checkpoint");
    assert_eq!((report.merged_ranges, report.run_records), (0, 7));
    let first = "b2 0001 19:25 ∅ ∅ ∅ c21";
    assert_eq!(example.history()[0], first);
    let example = example.reopen();
    assert_eq!(example.history()[0], first);
    let tail = [
        "t1 b2 0100 19:21 ∅ a21 ∅ ∅",
        "t2 t1 0100 19:24 ∅ a22 ∅ ∅",
        "t3 t2 0101 19:25 ∅ a22 ∅ c21",
        "t4 b3 0001 19:45 ∅ ∅ ∅ c31",
    ];
    assert_eq!(example.tail(0), tail);
    assert_eq!(example.as_of("19:24")[1], "k2 a22 b2 c2");
    assert_eq!(example.as_of("19:25")[1], "k2 a22 b2 c21");
}
