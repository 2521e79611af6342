//! Interleavings of commits, snapshots and definition changes that need access to internals.

use super::commit::{Appended, CommittingSlot};
use super::validation::Validation;
use super::*;
use crate::catalog::{ColumnDef, KeyDef, TableDef};
use crate::request::ScanRequest;
use crate::settings::{DbOptions, Settings};
use crate::store::StoredIndex;
use crate::store::index_build::{BuildObserver, Unobserved, fill};
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use std::thread;
use std::time::Duration;
use strandline_base::{ColumnId, ManualClock, RANGE_ROWS, SqlType, Value};
use strandline_sim::SimDisk;
use strandline_txn::Durability;

fn open(disk: &SimDisk) -> Arc<Db> {
    let settings = Settings {
        wal_segment_bytes: 1 << 16,
        background_maintenance: false,
        recovery_threads: 1,
        ..Settings::default()
    };
    let options = DbOptions {
        device: disk.device(),
        clock: Arc::new(ManualClock::new(1_700_000_000_000_000)),
        settings,
    };
    Db::open(options).expect("open")
}

pub(super) fn begin(db: &Arc<Db>) -> Arc<Transaction> {
    db.begin(TxnOptions::default()).expect("begin")
}

/// Creates table `t (a bigint primary key)`.
pub(super) fn create(txn: &Transaction) {
    txn.change_catalog(&mut |catalog| {
        let column = ColumnDef::new(ColumnId(0), "a", SqlType::BigInt);
        let table = TableDef {
            id: catalog.new_table_id(),
            storage: catalog.new_storage_id(),
            keys: vec![KeyDef::new("t_pkey", true, vec![ColumnId(0)])],
            ..TableDef::new("public", "t", vec![column])
        };
        catalog.put_table(table);
        Ok(())
    })
    .expect("create");
}

/// Changes the definition of table `t`.
pub(super) fn alter(txn: &Transaction) -> Result<()> {
    txn.change_catalog(&mut |catalog| {
        let mut table = TableDef::clone(catalog.table("public", "t").expect("table t"));
        table.comment = Some("altered".into());
        catalog.put_table(table);
        Ok(())
    })
}

fn has_table(catalog: &Catalog) -> bool {
    catalog.table("public", "t").is_some()
}

/// A commit of `txn` that has been appended to the log and stops there for now.
fn append(txn: &Transaction) -> (TxnSlot, Appended<'_>) {
    let mut state = txn.state.lock();
    let slot = state.slot.take().expect("it has written");
    let appended = txn.append(&mut state, &slot).expect("appended");
    (slot, appended)
}

fn complete(txn: &Transaction, (slot, appended): (TxnSlot, Appended<'_>)) -> Result<CommitTs> {
    let slot = CommittingSlot(&txn.db, Some(slot));
    txn.complete(&mut txn.state.lock(), slot, appended)
}

#[test]
fn a_snapshot_that_sees_a_definition_change_has_its_catalog() {
    let db = open(&SimDisk::new(1));
    let (ddl, reader) = (begin(&db), begin(&db));
    create(&ddl);
    let appended = append(&ddl);
    let (ts, end) = (appended.1.ts, appended.1.end);
    let before = reader.begin_statement().expect("statement");
    assert!(before.snapshot_ts() < ts);
    assert!(!has_table(&reader.catalog()) && !has_table(&db.catalog()));
    // Another committer syncs for both and finishes both before this thread continues.
    db.wal().wait_durable(end).expect("durable");
    db.txns().finish_through(end.0);
    let after = reader.begin_statement().expect("statement");
    assert_eq!(after.snapshot_ts(), ts);
    assert!(has_table(&reader.catalog()) && has_table(&db.catalog()));
    complete(&ddl, appended).expect("committed");
    assert!(has_table(&db.catalog()));
}

#[test]
fn a_definition_change_whose_commit_fails_is_nobodys() {
    let disk = SimDisk::new(2);
    let db = open(&disk);
    let ddl = begin(&db);
    create(&ddl);
    let appended = append(&ddl);
    let ts = appended.1.ts;
    // A relaxed commit behind it, which finishes as soon as it is next in line.
    let relaxed = db.txns().begin().expect("begin");
    db.wal()
        .append(&mut [0; 16], &mut |_, end| {
            let ts = db.txns().tick();
            db.txns().enqueue(&relaxed, ts, end.0, Durability::Relaxed);
            Ok(())
        })
        .expect("appended");
    disk.fail_sync(1);
    complete(&ddl, appended).expect_err("the sync failed");
    assert!(db.stable() > ts, "stable has passed it");
    assert!(!has_table(&db.catalog()));
    let reader = begin(&db);
    reader.begin_statement().expect("statement");
    assert!(!has_table(&reader.catalog()));
    relaxed.stamped();
}

#[test]
fn an_idle_transaction_holds_no_snapshot_under_read_committed() {
    let db = open(&SimDisk::new(3));
    let idle = begin(&db);
    let statement = idle.begin_statement().expect("statement");
    let at = statement.snapshot_ts();
    let other = begin(&db);
    create(&other);
    other.commit().expect("commit");
    assert_eq!(db.txns().oldest_snapshot(), at);
    drop(statement);
    assert!(db.stable() > at);
    assert_eq!(db.txns().oldest_snapshot(), db.stable());
}

pub(super) fn table(db: &Db) -> Arc<TableDef> {
    db.catalog().table("public", "t").expect("table t").clone()
}

/// A database with table `t`, empty.
pub(super) fn with_table(disk: &SimDisk) -> Arc<Db> {
    let db = open(disk);
    let ddl = begin(&db);
    create(&ddl);
    ddl.commit().expect("commit");
    db
}

pub(super) fn insert(txn: &Arc<Transaction>, values: std::ops::Range<i64>) {
    let table = table(txn.db());
    let statement = txn.begin_statement().expect("statement");
    for value in values {
        let row = [Value::BigInt(value)];
        statement.point_insert(&table, &row).expect("insert");
    }
}

fn bulk_load(txn: &Arc<Transaction>, values: std::ops::Range<i64>) {
    let column: ArrayRef = Arc::new(Int64Array::from_iter_values(values));
    let batch = RecordBatch::try_from_iter_with_nullable([("a", column, true)]).expect("batch");
    let statement = txn.begin_statement().expect("statement");
    let mut bulk = statement.bulk_insert(&table(txn.db())).expect("bulk");
    bulk.append(&batch).expect("append");
    bulk.finish().expect("finish");
    statement.finish().expect("keys");
}

/// The number of rows of table `t` in the database after a kill.
fn rows_after_kill(disk: &SimDisk) -> usize {
    let db = open(&disk.after_kill());
    let request = ScanRequest {
        columns: vec![ColumnId(0)],
        ..ScanRequest::default()
    };
    let reader = begin(&db);
    let statement = reader.begin_statement().expect("statement");
    let scan = statement.scan(&table(&db), request).expect("scan");
    let batches = (0..scan.units()).flat_map(|unit| scan.read_unit(unit).expect("read"));
    batches.map(|batch| batch.num_rows()).sum()
}

#[test]
fn a_checkpoint_keeps_the_log_of_a_commit_that_is_not_finished() {
    let disk = SimDisk::new(5);
    let db = with_table(&disk);
    let txn = begin(&db);
    // More than a segment.
    insert(&txn, 0..20_000);
    let appended = append(&txn);
    db.wal().sync_all().expect("synced");
    db.checkpoint(false).expect("checkpoint");
    complete(&txn, appended).expect("committed");
    assert_eq!(rows_after_kill(&disk), 20_000);
    db.checkpoint(false).expect("checkpoint");
    assert_eq!(rows_after_kill(&disk), 20_000);
}

#[test]
fn a_checkpoint_waits_for_a_load_that_is_finished_and_not_complete() {
    let disk = SimDisk::new(6);
    let db = with_table(&disk);
    let load = begin(&db);
    bulk_load(&load, 0..5000);
    let appended = append(&load);
    // A later commit finishes both and is complete first.
    let later = begin(&db);
    insert(&later, 5000..5001);
    later.commit().expect("commit");
    assert!(db.stable() > appended.1.ts);
    thread::scope(|scope| {
        let checkpoint = scope.spawn(|| db.checkpoint(false).expect("checkpoint"));
        // It should not complete now; if it does, it has missed the load.
        for _ in 0..20_000 {
            if checkpoint.is_finished() {
                break;
            }
            thread::yield_now();
        }
        complete(&load, appended).expect("committed");
    });
    assert_eq!(rows_after_kill(&disk), 5001);
}

#[test]
fn a_load_keeps_nothing_per_row_and_is_rolled_back_all_the_same() {
    let disk = SimDisk::new(7);
    let db = with_table(&disk);
    let storage = table(&db).storage;
    let keys = || {
        let store = db.store(storage).expect("store");
        store.key(&[ColumnId(0)]).expect("key").index.len()
    };
    let txn = begin(&db);
    bulk_load(&txn, 0..5000);
    let savepoint = txn.savepoint();
    bulk_load(&txn, 5000..80_000);
    assert_eq!(keys(), 80_000);
    assert!(txn.state.lock().entries.is_empty());
    txn.rollback_to(&savepoint).expect("rolled back");
    assert_eq!(keys(), 5000);
    txn.rollback();
    assert_eq!(keys(), 0);
    let again = begin(&db);
    bulk_load(&again, 0..5000);
    again.commit().expect("commit");
    db.checkpoint(false).expect("checkpoint");
    assert_eq!((keys(), rows_after_kill(&disk)), (5000, 5000));
}

/// A database with table `t` and an open transaction that writes it.
fn written() -> (Arc<Db>, Arc<Store>, Arc<Transaction>) {
    let db = with_table(&SimDisk::new(4));
    let store = db.store(table(&db).storage).expect("store");
    let writer = begin(&db);
    writer.lock_store(&store).expect("locked");
    (db, store, writer)
}

fn wait_until(condition: impl Fn() -> bool) {
    for _ in 0..10_000_000 {
        if condition() {
            return;
        }
        thread::yield_now();
    }
    panic!("it never came to that");
}

/// A transaction whose waits for others last `milliseconds` at most.
pub(super) fn begin_with_timeout(db: &Arc<Db>, milliseconds: u64) -> Arc<Transaction> {
    let options = TxnOptions {
        lock_timeout: Some(Duration::from_millis(milliseconds)),
        ..TxnOptions::default()
    };
    db.begin(options).expect("begin")
}

#[test]
fn a_definition_change_lets_no_new_writer_pass() {
    let (db, store, writer) = written();
    let (db, store, ddl) = (&db, &store, begin(&db));
    let ddl = &ddl;
    // If this fails, the writer ends, and so does the wait for it.
    thread::scope(move |scope| {
        let change = scope.spawn(|| {
            alter(ddl).expect("altered");
            ddl.commit().expect("commit");
        });
        wait_until(|| store.is_claimed());
        let newcomer = begin_with_timeout(db, 50);
        let error = newcomer.lock_store(store).expect_err("the change is first");
        assert_eq!(error.sqlstate(), SqlState::LOCK_NOT_AVAILABLE, "{error}");
        writer.lock_store(store).expect("a writer goes on");
        writer.commit().expect("commit");
        change.join().expect("no panic");
        newcomer.lock_store(store).expect("its turn");
    });
    assert_eq!(table(db).comment.as_deref(), Some("altered"));
}

#[test]
fn a_definition_change_that_gives_up_lets_writers_pass() {
    let (db, store, writer) = written();
    // Its transaction stays open.
    let ddl = begin_with_timeout(&db, 50);
    thread::scope(|scope| {
        let change = scope.spawn(|| alter(&ddl).expect_err("the writer stays"));
        wait_until(|| store.is_claimed());
        let newcomer = begin_with_timeout(&db, 20_000);
        newcomer.lock_store(&store).expect("locked");
        let error = change.join().expect("no panic");
        assert_eq!(error.sqlstate(), SqlState::LOCK_NOT_AVAILABLE, "{error}");
    });
    drop(writer);
}

#[test]
fn a_cycle_through_a_waiting_definition_change_is_a_deadlock() {
    let (db, store, writer) = written();
    let (ddl, newcomer) = (begin(&db), begin(&db));
    let word = newcomer.word().expect("word");
    let failed: Vec<Error> = thread::scope(|scope| {
        let change = scope.spawn(|| alter(&ddl).and_then(|()| ddl.commit()).err());
        wait_until(|| store.is_claimed());
        // The newcomer waits for the change, the change for the writer, and the writer for the
        // newcomer.
        let second = scope.spawn(|| {
            let result = newcomer.lock_store(&store).err();
            newcomer.rollback();
            result
        });
        let mut looks = Looks::default();
        let third = loop {
            match writer.wait_for(word, &mut looks) {
                Ok(()) if db.txns().status(word) == TxnStatus::InProgress => {}
                ended => break ended.err(),
            }
        };
        writer.rollback();
        let all = [change.join(), second.join()];
        let all = all.into_iter().map(|joined| joined.expect("no panic"));
        all.chain([third]).flatten().collect()
    });
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert_eq!(failed[0].sqlstate(), SqlState::DEADLOCK_DETECTED);
}

fn speculative(db: &Arc<Db>) -> Arc<Transaction> {
    let options = TxnOptions {
        speculative: true,
        ..TxnOptions::default()
    };
    db.begin(options).expect("begin")
}

/// Sets the key of the row with key `from` to `to`.
pub(super) fn change(txn: &Arc<Transaction>, from: i64, to: i64) -> Result<bool> {
    let set = [(ColumnId(0), Value::BigInt(to))];
    let statement = txn.begin_statement()?;
    statement.point_update(&table(txn.db()), 0, &[Value::BigInt(from)], &set)
}

fn has(txn: &Arc<Transaction>, key: i64) -> bool {
    let statement = txn.begin_statement().expect("statement");
    let key = [Value::BigInt(key)];
    let found = statement.point_get(&table(txn.db()), 0, &key, &[], &mut Vec::new());
    found.expect("read")
}

/// A database with one row, 1, and a transaction that has changed it to 2 and is pre-committed.
fn pre_committed(db: &Arc<Db>) -> Arc<Transaction> {
    let first = begin(db);
    insert(&first, 1..2);
    first.commit().expect("commit");
    let txn = begin(db);
    assert!(change(&txn, 1, 2).expect("change"));
    txn
}

#[test]
fn speculative_transactions_see_and_change_what_is_pre_committed() {
    let db = with_table(&SimDisk::new(20));
    let first = pre_committed(&db);
    let appended = append(&first);
    let (plain, reader, writer) = (begin(&db), speculative(&db), speculative(&db));
    assert!(has(&plain, 1) && !has(&plain, 2));
    assert!(has(&reader, 2) && !has(&reader, 1));
    assert!(change(&writer, 2, 3).expect("on top of what is pre-committed"));
    assert!(db.stable() < appended.1.ts);
    // Each reader makes its dependencies durable.
    reader
        .commit()
        .expect("a reader waits for what it has read");
    assert!(db.stable() >= appended.1.ts);
    writer.commit().expect("commit");
    complete(&first, appended).expect("commit");
    assert!(has(&begin(&db), 3));
}

#[test]
fn an_abort_cascades_to_all_that_depend_on_it() {
    let disk = SimDisk::new(21);
    let db = with_table(&disk);
    let first = pre_committed(&db);
    let appended = append(&first);
    let (reader, writer) = (speculative(&db), speculative(&db));
    let relaxed = db
        .begin(TxnOptions {
            speculative: true,
            synchronous_commit: false,
            ..TxnOptions::default()
        })
        .expect("begin");
    assert!(has(&reader, 2));
    assert!(change(&writer, 2, 3).expect("change"));
    insert(&relaxed, 9..10);
    let after_relaxed = append(&relaxed);
    disk.fail_sync(1);
    complete(&first, appended).expect_err("the sync failed");
    complete(&relaxed, after_relaxed).expect_err("it depends on what was not durable");
    reader.commit().expect_err("it has read what was aborted");
    writer.commit().expect_err("the log is closed");
    let after = begin(&db);
    assert!(has(&after, 1), "as before the first of them");
    assert!(!has(&after, 2) && !has(&after, 3) && !has(&after, 9));
}

#[test]
fn a_speculative_writer_waits_no_longer_than_for_the_pre_commit() {
    let db = with_table(&SimDisk::new(22));
    let first = pre_committed(&db);
    let waiting = thread::spawn({
        let second = speculative(&db);
        move || {
            // It began earlier, so the version is newer than its snapshot and it looks again.
            let mut changed = change(&second, 1, 5);
            while changed.is_err() {
                changed = change(&second, 1, 5);
            }
            (
                changed.expect("done"),
                change(&second, 2, 5).expect("change"),
                second,
            )
        }
    });
    wait_until(|| {
        let state = first.state.lock();
        state.slot.as_ref().expect("it has written").is_waited_for()
    });
    let appended = append(&first);
    appended.0.announce();
    let (old, new, second) = waiting.join().expect("the writer does not panic");
    assert!(!old && new, "the row has another key now");
    assert!(db.stable() < appended.1.ts, "nothing is durable yet");
    complete(&first, appended).expect("commit");
    second.commit().expect("commit");
    assert!(has(&begin(&db), 5));
}

/// The second look of a validation, under the log's lock, sees commits between the two looks.
#[test]
fn a_commit_during_a_validation_is_not_missed() {
    type Other = fn(&Arc<Transaction>);
    let others: [(Other, bool); 4] = [
        (|txn| assert!(change(txn, 1, 2).expect("change")), true),
        (|txn| insert(txn, 7..8), true), // it came under the scan
        (|txn| bulk_load(txn, 100..200), true),
        (|txn| insert(txn, 5_000..5_001), false), // beside it
    ];
    for (other, conflicts) in others {
        let db = with_table(&SimDisk::new(23));
        let first = begin(&db);
        insert(&first, 1..2);
        first.commit().expect("commit");
        let options = TxnOptions {
            isolation: Isolation::Serializable,
            ..TxnOptions::default()
        };
        let txn = db.begin(options).expect("begin");
        assert!(has(&txn, 1));
        let below = crate::ColumnPredicate {
            column: ColumnId(0),
            op: crate::CompareOp::Lt,
            value: Value::BigInt(1_000),
        };
        let request = ScanRequest {
            columns: vec![ColumnId(0)],
            prune: vec![below],
            ..ScanRequest::default()
        };
        let statement = txn.begin_statement().expect("statement");
        statement.scan(&table(&db), request).expect("scan");
        insert(&txn, 50..51);
        let word = txn.word().expect("it has written");
        let reads = txn.reads.as_ref().expect("serializable").lock();
        let since = statement.snapshot_ts();
        let validation = Validation::begin(&db, &reads, since, word).expect("nothing yet");
        validation.finish().expect("nothing yet");
        let meanwhile = begin(&db);
        other(&meanwhile);
        meanwhile.commit().expect("commit");
        assert_eq!(validation.finish().is_err(), conflicts);
        // A validation that begins only now sees the same.
        drop(validation);
        let again = Validation::begin(&db, &reads, since, word);
        assert_eq!(again.is_err(), conflicts);
    }
}

/// Of many reads a validation looks at those that a changed row concerns.
#[test]
fn a_validation_costs_rows_plus_reads() {
    const READS: i64 = 300;
    let db = with_table(&SimDisk::new(24));
    let options = TxnOptions {
        isolation: Isolation::Serializable,
        ..TxnOptions::default()
    };
    let txn = db.begin(options).expect("begin");
    let statement = txn.begin_statement().expect("statement");
    for k in 0..READS {
        assert!(!has(&txn, k));
        let single = crate::ColumnPredicate {
            column: ColumnId(0),
            op: crate::CompareOp::Eq,
            value: Value::BigInt(1_000 + k),
        };
        let request = ScanRequest {
            columns: vec![ColumnId(0)],
            prune: vec![single],
            ..ScanRequest::default()
        };
        statement.scan(&table(&db), request).expect("scan");
    }
    insert(&txn, 5_000..5_001);
    let word = txn.word().expect("it has written");
    let reads = txn.reads.as_ref().expect("serializable").lock();
    let since = statement.snapshot_ts();
    let validation = Validation::begin(&db, &reads, since, word).expect("nothing yet");
    let commit = |keys| {
        let other = begin(&db);
        insert(&other, keys);
        other.commit().expect("commit");
    };
    commit(10_000..10_000 + READS);
    validation.finish().expect("nothing that was read");
    assert_eq!(validation.compared.take(), 2 * READS as usize);
    Validation::begin(&db, &reads, since, word).expect("nothing that was read");
    for conflict in [READS - 1, 1_000 + READS - 1] {
        let validation = Validation::begin(&db, &reads, since, word).expect("nothing yet");
        let other = begin(&db);
        insert(&other, conflict..conflict + 1);
        let appended = append(&other);
        validation.finish().expect_err("it was read");
        drop(validation);
        complete(&other, appended).expect("commit");
        assert!(Validation::begin(&db, &reads, since, word).is_err());
        let other = begin(&db);
        let key = [Value::BigInt(conflict)];
        let deleted = other.begin_statement().expect("statement");
        assert!(deleted.point_delete(&table(&db), 0, &key).expect("delete"));
        other.commit().expect("commit");
    }
}

/// A transaction that wants a key inserted by a pre-committed transaction waits until that one is
/// durable.
#[test]
fn uniqueness_waits_for_pre_committed_transactions() {
    let db = with_table(&SimDisk::new(24));
    let first = begin(&db);
    insert(&first, 1..2);
    let appended = append(&first);
    let second = begin_with_timeout(&db, 1);
    let statement = second.begin_statement().expect("statement");
    let row = [Value::BigInt(1)];
    let error = statement
        .point_insert(&table(&db), &row)
        .expect_err("it waits");
    assert_eq!(error.sqlstate(), SqlState::LOCK_NOT_AVAILABLE);
    complete(&first, appended).expect("commit");
    let third = begin(&db);
    let statement = third.begin_statement().expect("statement");
    let error = statement
        .point_insert(&table(&db), &row)
        .expect_err("taken");
    assert_eq!(error.sqlstate(), SqlState::UNIQUE_VIOLATION);
}

/// The stable timestamp passes an aborted commit with a relaxed one behind it. For a reader this
/// does not prove durability.
#[test]
fn a_speculative_reader_falls_with_what_stable_has_passed() {
    let disk = SimDisk::new(25);
    let db = with_table(&disk);
    let first = pre_committed(&db);
    let appended = append(&first);
    let reader = speculative(&db);
    assert!(has(&reader, 2));
    let relaxed = db
        .begin(TxnOptions {
            synchronous_commit: false,
            ..TxnOptions::default()
        })
        .expect("begin");
    insert(&relaxed, 9..10);
    let (slot, _behind) = append(&relaxed);
    disk.fail_sync(1);
    let ts = appended.1.ts;
    complete(&first, appended).expect_err("the sync failed");
    assert!(db.stable() > ts, "stable has passed it");
    reader.commit().expect_err("it has read what was aborted");
    slot.stamped();
}

/// A writer that waits for a row continues when the row's holder rolls back to its savepoint. The
/// holder may then wait for the writer, which is not a deadlock.
#[test]
fn going_back_to_a_savepoint_wakes_those_who_wait_for_its_locks() {
    let db = with_table(&SimDisk::new(23));
    let rows = begin(&db);
    insert(&rows, 1..3);
    rows.commit().expect("commit");
    let (holder, waiter) = (begin(&db), begin(&db));
    let savepoint = holder.savepoint();
    assert!(change(&holder, 1, 11).expect("free"));
    assert!(change(&waiter, 2, 12).expect("free"));
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            assert!(change(&waiter, 1, 21).expect("given back"));
            waiter.commit().expect("commit");
        });
        wait_until(|| {
            let state = holder.state.lock();
            state.slot.as_ref().expect("it has written").is_waited_for()
        });
        holder.rollback_to(&savepoint).expect("open");
        // The row has another key by then.
        let changed = loop {
            match change(&holder, 2, 22) {
                Err(error) if error.sqlstate() == SqlState::SERIALIZATION_FAILURE => {}
                changed => break changed,
            }
        };
        assert!(!changed.expect("no deadlock"));
        waiting.join().expect("no panic");
    });
    holder.commit().expect("commit");
    let after = begin(&db);
    assert!(has(&after, 12) && has(&after, 21) && !has(&after, 11));
}

/// An update that leaves a key unchanged does not touch the key's index.
#[test]
fn a_key_that_stays_is_not_entered_again() {
    let db = with_table(&SimDisk::new(26));
    let rows = begin(&db);
    insert(&rows, 1..3);
    rows.commit().expect("commit");
    let txn = begin(&db);
    let moved = || txn.state.lock().rare_work().moved.len();
    assert!(change(&txn, 1, 1).expect("update"));
    assert_eq!(moved(), 0);
    assert!(change(&txn, 1, 11).expect("update"));
    assert_eq!(moved(), 1);
    assert!(change(&txn, 11, 11).expect("update"));
    assert_eq!(moved(), 1, "its own value");
    assert!(change(&txn, 11, 1).expect("update"));
    assert_eq!(moved(), 2);
    txn.commit().expect("commit");
    assert!(has(&begin(&db), 1));
}

/// Bytes of an index after each range has been entered.
struct IndexBytes(Arc<StoredIndex>, Mutex<Vec<usize>>);

impl BuildObserver for IndexBytes {
    fn advanced(&self, _slots: u64) -> Result<()> {
        self.1.lock().push(self.0.index.memory_bytes());
        Ok(())
    }
}

/// A database with so many rows in table `t`, and an empty index of its key. A load of several
/// ranges encodes them on several threads, and they are in no order: each has a load of its own.
fn loaded(rows: i64) -> (Arc<Db>, Arc<Store>, Arc<StoredIndex>) {
    let db = with_table(&SimDisk::new(11));
    let load = begin(&db);
    for first in (0..rows).step_by(RANGE_ROWS) {
        bulk_load(&load, first..rows.min(first + RANGE_ROWS as i64));
    }
    load.commit().expect("commit");
    let table = table(&db);
    let store = db.store(table.storage).expect("store");
    let index = StoredIndex::key_in_memory(&table, &[ColumnId(0)], &store);
    (db, store, index)
}

#[test]
fn an_index_that_is_built_from_rows_takes_its_memory_at_once() {
    const ROWS: i64 = 200_000;
    let (_db, store, index) = loaded(ROWS);
    let seen = IndexBytes(index.clone(), Mutex::default());
    fill(&store, &index, StartWord(0), 1, &seen).expect("filled");
    assert_eq!(index.index.len(), ROWS as usize);
    let seen = seen.1.into_inner();
    assert!(
        seen.len() > 3 && seen.iter().all(|bytes| *bytes == seen[0]),
        "{seen:?}"
    );
    // Rows without a key leave no unused capacity.
    let bytes = index.index.memory_bytes();
    index.index.retain(&mut |_, _| false).expect("emptied");
    index.index.expect_entries(ROWS as usize);
    assert_eq!(index.index.memory_bytes(), bytes);
    index.index.expect_entries(0);
    assert!(index.index.memory_bytes() < bytes / 8);
}

/// An opening fills the indexes on several threads, which take ranges in turns.
#[test]
fn keys_that_are_serial_numbers_stay_one_sequence_when_threads_fill_their_index() {
    const ROWS: i64 = 4 << 16;
    let (_db, store, index) = loaded(ROWS);
    fill(&store, &index, StartWord(0), 3, &Unobserved).expect("filled");
    let sequence = index.index.sequence().expect("a sequence");
    assert!(sequence.row(0).is_some() && sequence.row(ROWS - 1).is_some());
}
