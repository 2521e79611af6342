//! Columns are merged independently of each other \[L-Store §4.1, §4.2\]: a column with few updates
//! waits, its records stay in the tail, and readers that meet columns of different lineage see the
//! rows whole.

mod common;

use common::*;
use std::sync::Arc;
use strandline_device::MemoryDevice;
use strandline_engine::catalog::HistoryPolicy;
use strandline_engine::*;
use strandline_table::lineage::image::RangeImage;

fn database(device: &Arc<MemoryDevice>) -> Arc<Db> {
    open_eager(device.clone(), &clock(), 16).expect("open")
}

fn set(db: &Arc<Db>, k: i64, column: u32, value: Value) -> CommitTs {
    let t = table(db);
    let set = [(ColumnId(column), value)];
    let found = run(db, |s| s.point_update(&t, 0, &[Value::BigInt(k)], &set));
    assert!(found.expect("update"));
    db.stable()
}

fn range(db: &Db) -> RangeImage {
    let mut ranges = db.lineage_of(&table(db)).expect("image");
    ranges.remove(0)
}

/// 20 rows in base, `b` of row 3 updated at `cold`, `a` of all rows after it: the merge takes `a`.
fn merged_apart(device: &Arc<MemoryDevice>) -> (Arc<Db>, CommitTs) {
    let db = database(device);
    create_table(&db, HistoryPolicy::Forever);
    (0..20).for_each(|k| insert(&db, &row(k, 0, "first")));
    db.checkpoint(true).expect("merge");
    let cold = set(&db, 3, 2, Value::from("second"));
    for k in (0..20).filter(|k| *k != 3) {
        set(&db, k, 1, Value::BigInt(k));
    }
    let report = db.checkpoint(false).expect("merge of what is due");
    assert_eq!(report.merged_ranges, 1);
    (db, cold)
}

fn check(db: &Arc<Db>, cold: CommitTs) {
    for k in 0..20 {
        let b = if k == 3 { "second" } else { "first" };
        let a = if k == 3 { 0 } else { k };
        assert_eq!(get(db, k), Some(row(k, a, b).to_vec()));
    }
    let t = table(db);
    let at = |ts: CommitTs| {
        let scan = run(db, |s| s.scan_as_of(&t, ts, request())).expect("as of");
        scan_all(&scan)
    };
    assert_eq!(at(db.stable())[&3], (Some(0), "second".to_string()));
    assert_eq!(at(db.stable())[&19], (Some(19), "first".to_string()));
    assert_eq!(at(cold)[&3], (Some(0), "second".to_string()));
    assert_eq!(at(cold)[&19], (Some(0), "first".to_string()));
    assert_eq!(at(CommitTs(cold.0 - 1))[&3], (Some(0), "first".to_string()));
    assert!(db.check().expect("check").is_empty());
}

#[test]
fn a_column_with_few_updates_waits_and_is_read_from_the_tail() {
    let device = Arc::new(MemoryDevice::new());
    let (db, cold) = merged_apart(&device);
    let image = range(&db);
    let through = |image: &RangeImage| [1, 2].map(|c| image.merged.column(ColumnId(c)));
    assert_eq!(through(&image)[0], db.stable());
    assert!(through(&image)[1] < cold, "b is behind");
    assert_eq!(image.rows[3].values[2], Value::from("first"), "in base");
    assert_eq!(
        image.rows[3].last_updated, cold,
        "known to base all the same"
    );
    assert!(
        image
            .records
            .iter()
            .any(|r| r.start.commit_ts() == Some(cold))
    );
    check(&db, cold);
    // What is merged is not due again, nor does a restart forget who is behind.
    assert_eq!(db.checkpoint(false).expect("checkpoint").merged_ranges, 0);
    drop(db);
    let db = database(&device);
    assert_eq!(range(&db).merged, image.merged);
    check(&db, cold);
    // The next merge takes it along, and nothing is left of the tail.
    let report = db.checkpoint(true).expect("merge");
    assert_eq!(report.merged_ranges, 1);
    let image = range(&db);
    assert_eq!(through(&image), [image.merged.rows(); 2]);
    assert_eq!(image.rows[3].values[2], Value::from("second"));
    assert!(image.records.is_empty());
    check(&db, cold);
}

/// Cumulation goes on from the oldest lineage: a new record repeats what some column's chunk lacks.
#[test]
fn updates_after_a_merge_of_other_columns_repeat_what_waits() {
    let (db, _) = merged_apart(&Arc::new(MemoryDevice::new()));
    set(&db, 3, 1, Value::BigInt(33));
    let image = range(&db);
    let newest = image.records.last().expect("a record");
    assert_eq!(newest.number, image.rows[3].head);
    let columns: Vec<u32> = newest.columns.iter().map(|(c, _)| c.0).collect();
    assert_eq!(columns, [1, 2]);
    assert_eq!(get(&db, 3), Some(row(3, 33, "second").to_vec()));
}
