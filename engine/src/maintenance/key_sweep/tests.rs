//! An inserted row takes the place of one that a crash has ended, while a sweep removes the old
//! row's entry: an equal one.

use super::*;
use crate::catalog::ColumnDef;
use crate::catalog::index::IndexStorage;
use crate::settings::{DbOptions, Settings, TxnOptions};
use crate::statement::Statement;
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use std::sync::atomic::AtomicBool;
use std::thread;
use strandline_base::{ColumnId, ManualClock, RangeNo, SqlType, Value};
use strandline_device::MemoryDevice;

/// Turns that a writer gets to enter its key, if nothing keeps it from that.
const TURNS: usize = 10_000;

/// A database with the table `t (a bigint primary key)`, whose key is on pages.
fn database() -> Arc<Db> {
    let settings = Settings {
        background_maintenance: false,
        ..Settings::default()
    };
    let db = Db::open(DbOptions {
        device: Arc::new(MemoryDevice::new()),
        clock: Arc::new(ManualClock::new(1_700_000_000_000_000)),
        settings,
    });
    let db = db.expect("open");
    let ddl = db.begin(TxnOptions::default()).expect("begin");
    let created = ddl.change_catalog(&mut |catalog| {
        let key = KeyDef::new("t_pkey", true, vec![ColumnId(0)]);
        let column = ColumnDef::new(ColumnId(0), "a", SqlType::BigInt);
        let table = TableDef {
            id: catalog.new_table_id(),
            storage: catalog.new_storage_id(),
            keys: vec![key.with_ordered_index(IndexStorage::Pages)],
            ..TableDef::new("public", "t", vec![column])
        };
        catalog.put_table(table);
        Ok(())
    });
    created.expect("create");
    ddl.commit().expect("commit");
    db
}

/// The first row of a table has the key 0, and its entry is there. While a sweep removes that
/// entry, `write` writes the row.
fn assert_entry_stays(write: impl FnOnce(&Arc<Statement>, &Arc<TableDef>) + Send + 'static) {
    let db = database();
    let table = db.catalog().table("public", "t").expect("table").clone();
    let store = db.store(table.storage).expect("its rows");
    let index = store.key(&[ColumnId(0)]).expect("its key");
    let (bytes, row) = (
        index.index.encode(&[Value::BigInt(0)]),
        RowId::new(RangeNo(0), 0),
    );
    assert!(index.index.add(&bytes, row).expect("as after a crash"));
    let is_entered = Arc::new(AtomicBool::new(false));
    let writer = index.sweep.row_keys.remove(|| {
        // As if the sweep had just found that nobody writes the row.
        let (db, is_entered_by_writer) = (db.clone(), is_entered.clone());
        let writer = thread::spawn(move || {
            let txn = db.begin(TxnOptions::default()).expect("begin");
            let statement = txn.begin_statement().expect("statement");
            write(&statement, &table);
            is_entered_by_writer.store(true, Ordering::Release);
            statement.finish().expect("no duplicate");
            txn.commit().expect("commit");
        });
        let is_written = || {
            let writer = store.rows().unfinished_writer(row, StartWord(0), false);
            writer.expect("in memory").is_some()
        };
        while !is_written() && !writer.is_finished() {
            thread::yield_now();
        }
        for _ in 0..TURNS {
            if is_entered.load(Ordering::Acquire) {
                break;
            }
            thread::yield_now();
        }
        let retired = index.index.retire(&bytes, row, CommitTs::ZERO);
        retired.expect("in memory");
        writer
    });
    writer.join().expect("written");
    let mut rows = Vec::new();
    index.index.lookup(&bytes, &mut rows).expect("in memory");
    assert_eq!(rows, [row]);
    assert_eq!(db.check().expect("check"), Vec::<String>::new());
}

#[test]
fn an_insertion_waits_for_the_removal_of_its_entry() {
    assert_entry_stays(|statement, table| {
        let inserted = statement.point_insert(table, &[Value::BigInt(0)]);
        inserted.expect("inserted");
    });
}

#[test]
fn a_load_waits_for_the_removal_of_its_entries() {
    assert_entry_stays(|statement, table| {
        let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(0..5_000));
        let rows = RecordBatch::try_from_iter([("a", keys)]).expect("rows");
        let mut load = statement.bulk_insert(table).expect("a load");
        load.append(&rows).expect("appended");
        assert_eq!(load.finish().expect("loaded"), 5_000);
    });
}
