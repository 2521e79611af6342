//! The effects on other transactions of one that ends in an unusual way: its commit panics, or it
//! waits for a latch that is never released, or it has no statement number left.

use super::tests::{alter, begin, begin_with_timeout, create};
use super::*;
use crate::catalog::TableDef;
use crate::settings::{DbOptions, Settings};
use crate::statement::PointTable;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64};
use strandline_base::{Clock, ColumnId, RowId, UPDATE_ROWS, Value};
use strandline_device::MemoryDevice;

/// A clock that panics on request.
#[derive(Default)]
struct Fuse(AtomicBool);

impl Clock for Fuse {
    fn now_us(&self) -> u64 {
        assert!(!self.0.swap(false, Ordering::SeqCst), "the fuse was lit");
        1_700_000_000_000_000
    }
    fn elapsed_us(&self) -> u64 {
        0
    }
}

/// A clock that advances by a millisecond at every reading, while the wall clock stands. After too
/// many readings it cancels the statement, so that an endless wait fails.
#[derive(Default)]
struct Ticking {
    looks: AtomicU64,
    cancel: Arc<AtomicBool>,
}

impl Ticking {
    fn look(&self) -> u64 {
        let looks = self.looks.fetch_add(1, Ordering::SeqCst);
        if looks > 1_000 {
            self.cancel.store(true, Ordering::SeqCst);
        }
        looks
    }
}

impl Clock for Ticking {
    fn now_us(&self) -> u64 {
        self.look();
        1_700_000_000_000_000
    }
    fn elapsed_us(&self) -> u64 {
        self.look() * 1_000
    }
}

fn open() -> (Arc<Db>, Arc<Fuse>) {
    let fuse = Arc::new(Fuse::default());
    (open_with(fuse.clone()), fuse)
}

/// A database with the table `t (a bigint primary key)`, which has the row 1.
fn open_with(clock: Arc<dyn Clock>) -> Arc<Db> {
    let settings = Settings {
        background_maintenance: false,
        ..Settings::default()
    };
    let db = Db::open(DbOptions {
        device: Arc::new(MemoryDevice::new()),
        clock,
        settings,
    });
    let db = db.expect("open");
    let ddl = begin(&db);
    create(&ddl);
    ddl.commit().expect("commit");
    let txn = begin(&db);
    insert(&txn, 1);
    txn.commit().expect("commit");
    db
}

fn table(db: &Db) -> Arc<TableDef> {
    let catalog = db.catalog();
    catalog.table("public", "t").expect("table t").clone()
}

fn insert(txn: &Arc<Transaction>, key: i64) {
    let statement = txn.begin_statement().expect("statement");
    let inserted = statement.point_insert(&table(txn.db()), &[Value::BigInt(key)]);
    inserted.expect("inserted");
}

fn has(txn: &Arc<Transaction>, key: i64) -> bool {
    let statement = txn.begin_statement().expect("statement");
    let key = [Value::BigInt(key)];
    let found = statement.point_get(&table(txn.db()), 0, &key, &[], &mut Vec::new());
    found.expect("read")
}

fn commit_panics(txn: &Transaction, fuse: &Fuse) {
    fuse.0.store(true, Ordering::SeqCst);
    let caught = catch_unwind(AssertUnwindSafe(|| txn.commit()));
    assert!(
        caught.is_err(),
        "the clock panics when the commit draws its time"
    );
}

#[test]
fn what_a_commit_that_panics_holds_is_waited_for_with_a_limit_and_then_let_go() {
    let (db, fuse) = open();
    let (writer, next) = (begin(&db), begin(&db));
    insert(&writer, 2);
    let impatient = begin_with_timeout(&db, 1);
    let options = TxnOptions {
        cancel: Arc::new(AtomicBool::new(true)),
        ..TxnOptions::default()
    };
    let cancelled = db.begin(options).expect("begin");
    // No transaction becomes a writer afterwards.
    for txn in [&next, &impatient, &cancelled] {
        txn.word().expect("a writer");
    }
    commit_panics(&writer, &fuse);
    // Its thread has left the commit, and its transaction is still there.
    let error = alter(&impatient).expect_err("the table is held");
    assert_eq!(error.sqlstate(), SqlState::LOCK_NOT_AVAILABLE);
    impatient.rollback();
    let error = alter(&cancelled).expect_err("the table is held");
    assert_eq!(error.sqlstate(), SqlState::QUERY_CANCELED);
    cancelled.rollback();

    drop(writer);
    alter(&next).expect("the table is free");
    assert!(has(&next, 1) && !has(&next, 2));
    // The content of the log is uncertain, so it accepts no more records.
    let error = next.commit().expect_err("the log refuses");
    assert_eq!(error.kind(), ErrorKind::Closed);
    assert_eq!(error.sqlstate(), SqlState::IO_ERROR);
    let late = begin(&db);
    assert!(has(&late, 1), "reads go on");
    assert!(late.word().is_err(), "writes are refused");
}

#[test]
fn a_definition_change_whose_commit_panics_lets_the_catalog_go() {
    let (db, fuse) = open();
    let (ddl, impatient) = (begin(&db), begin_with_timeout(&db, 1));
    alter(&ddl).expect("altered");
    impatient.word().expect("a writer");
    commit_panics(&ddl, &fuse);
    let error = alter(&impatient).expect_err("the catalog is held");
    assert_eq!(error.sqlstate(), SqlState::LOCK_NOT_AVAILABLE);
    drop(ddl);
    assert!(db.ddl.lock().is_none());
    assert_eq!(table(&db).comment, None);
}

#[test]
fn a_write_that_waits_for_a_latch_can_be_cancelled_and_times_out() {
    let (db, _) = open();
    let store = db.store(table(&db).storage).expect("store");
    let row = RowId(0);
    let range = store.lineage().range(row.range()).expect("range");
    let tail = range.ensure_tail(row.slot() / UPDATE_ROWS, &db.shared.page_bytes);
    let latch = tail.row_map().latch(row.slot()).expect("free");

    let point = PointTable::new(&db, &db.catalog(), &table(&db), 0).expect("point");
    let key = [Value::BigInt(1)];
    let delete = |txn: &Arc<Transaction>| {
        let by_statement = txn.begin_statement()?.delete(&table(&db), &[row]);
        let by_point = txn.point_delete(&point, &key);
        assert_eq!(by_statement.is_err(), by_point.is_err());
        by_statement.and(by_point)
    };
    let impatient = begin_with_timeout(&db, 0);
    let error = delete(&impatient).expect_err("latched");
    assert_eq!(error.sqlstate(), SqlState::LOCK_NOT_AVAILABLE);
    let options = TxnOptions {
        cancel: Arc::new(AtomicBool::new(true)),
        ..TxnOptions::default()
    };
    let cancelled = db.begin(options).expect("begin");
    let error = delete(&cancelled).expect_err("latched");
    assert_eq!(error.sqlstate(), SqlState::QUERY_CANCELED);
    drop(latch);
    drop((impatient, cancelled));
    assert!(delete(&begin(&db)).is_ok());
}

#[test]
fn a_wait_for_a_latch_lasts_as_long_as_the_adjusted_lock_timeout_by_elapsed_time() {
    let clock = Arc::new(Ticking::default());
    let db = open_with(clock.clone());
    let store = db.store(table(&db).storage).expect("store");
    let row = RowId(0);
    let range = store.lineage().range(row.range()).expect("range");
    let tail = range.ensure_tail(row.slot() / UPDATE_ROWS, &db.shared.page_bytes);
    let _latch = tail.row_map().latch(row.slot()).expect("free");

    let options = TxnOptions {
        lock_timeout: None,
        cancel: clock.cancel.clone(),
        ..TxnOptions::default()
    };
    let txn = db.begin(options).expect("begin");
    txn.adjust(true, ConflictPolicy::Wait, Some(Duration::from_millis(3)));
    let statement = txn.begin_statement().expect("statement");
    let error = statement.delete(&table(&db), &[row]).expect_err("latched");
    assert_eq!(error.sqlstate(), SqlState::LOCK_NOT_AVAILABLE);
}

#[test]
fn a_transaction_has_so_many_statements_and_no_more() {
    let (db, _) = open();
    let txn = begin(&db);
    insert(&txn, 2);
    txn.state.lock().statement = STATEMENTS_MAX - 2;
    insert(&txn, 3);
    assert!(
        has(&txn, 2) && has_by_point(&txn, 3),
        "what it has written so far"
    );
    let Err(error) = txn.begin_statement() else {
        panic!("no number is left");
    };
    assert_eq!(error.sqlstate(), SqlState::PROGRAM_LIMIT_EXCEEDED);
    let point = PointTable::new(&db, &db.catalog(), &table(&db), 0).expect("point");
    assert!(txn.point_delete(&point, &[Value::BigInt(1)]).is_err());
    assert!(has_by_point(&txn, 3));
    txn.commit().expect("commit");
    assert!(has(&begin(&db), 3));
}

fn has_by_point(txn: &Arc<Transaction>, key: i64) -> bool {
    let db = txn.db();
    let point = PointTable::new(db, &db.catalog(), &table(db), 0).expect("point");
    let found = txn.try_point_get(
        &point,
        &[Value::BigInt(key)],
        &[ColumnId(0)],
        &mut Vec::new(),
    );
    found.expect("read")
}
