//! The anomalies by name (Adya's G0 to G2, the hermitage scripts' OTV, PMP and P4), each as one
//! script per isolation level: what a level prevents is prevented, and what it permits happens.
//!
//! Scripts run in one thread: a transaction that would wait has `lock_timeout` 1 ms, or fails at
//! once under the abort-at-once policy. Rows 1 and 2 start with 10 and 20.

mod common;

use common::*;
use std::sync::Arc;
use std::time::Duration;
use strandline_base::ManualClock;
use strandline_device::MemoryDevice;
use strandline_engine::catalog::{HistoryPolicy, TableDef};
use strandline_engine::*;

use Isolation::{ReadCommitted, Serializable, Snapshot};

const LEVELS: [Isolation; 3] = [ReadCommitted, Snapshot, Serializable];

/// A database with table `t` that holds 1 → 10 and 2 → 20.
struct World {
    db: Arc<Db>,
    table: Arc<TableDef>,
}

/// A transaction of a script.
struct Session<'w> {
    world: &'w World,
    txn: Arc<Transaction>,
}

impl World {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::new(1_000_000));
        let db = open(Arc::new(MemoryDevice::new()), &clock).expect("open");
        let (table, _) = create_table(&db, HistoryPolicy::None);
        let world = Self { db, table };
        let t = world.begin(ReadCommitted);
        t.insert(1, 10).expect("insert");
        t.insert(2, 20).expect("insert");
        t.commit().expect("commit");
        world
    }

    fn begin(&self, isolation: Isolation) -> Session<'_> {
        self.begin_with(TxnOptions {
            isolation,
            lock_timeout: Some(Duration::from_millis(1)),
            ..TxnOptions::default()
        })
    }

    fn begin_with(&self, options: TxnOptions) -> Session<'_> {
        let txn = self.db.begin(options).expect("begin");
        Session { world: self, txn }
    }

    /// What a new transaction sees.
    fn now(&self) -> Vec<(i64, i64)> {
        self.begin(ReadCommitted).all()
    }
}

impl Session<'_> {
    fn statement(&self) -> Arc<Statement> {
        self.txn.begin_statement().expect("statement")
    }
    fn get(&self, key: i64) -> Option<i64> {
        let mut out = Vec::new();
        let key = [Value::BigInt(key)];
        let found = self
            .statement()
            .point_get(&self.world.table, 0, &key, &[ColumnId(1)], &mut out)
            .expect("get");
        match (found, out.first()) {
            (true, Some(Value::BigInt(v))) => Some(*v),
            _ => None,
        }
    }
    /// All rows by a scan.
    fn all(&self) -> Vec<(i64, i64)> {
        self.range(i64::MIN, i64::MAX)
    }
    /// Rows whose value is in `from..=to`, by a scan with bounds.
    fn range(&self, from: i64, to: i64) -> Vec<(i64, i64)> {
        let bound = |op, value| ColumnPredicate {
            column: ColumnId(1),
            op,
            value: Value::BigInt(value),
        };
        let request = ScanRequest {
            prune: vec![bound(CompareOp::Ge, from), bound(CompareOp::Le, to)],
            ..request()
        };
        let scan = self
            .statement()
            .scan(&self.world.table, request)
            .expect("scan");
        let rows = scan_all(&scan).into_iter();
        rows.filter_map(|(k, (a, _))| Some((k, a?)))
            .filter(|(_, a)| (from..=to).contains(a))
            .collect()
    }
    fn set(&self, key: i64, value: i64) -> Result<bool> {
        let set = [(ColumnId(1), Value::BigInt(value))];
        let key = [Value::BigInt(key)];
        self.statement()
            .point_update(&self.world.table, 0, &key, &set)
    }
    fn insert(&self, key: i64, value: i64) -> Result<()> {
        let row = [
            Value::BigInt(key),
            Value::BigInt(value),
            Value::from(String::new()),
        ];
        self.statement().point_insert(&self.world.table, &row)?;
        Ok(())
    }
    fn delete(&self, key: i64) -> Result<bool> {
        self.statement()
            .point_delete(&self.world.table, 0, &[Value::BigInt(key)])
    }
    fn row(&self, key: i64) -> RowId {
        let keys = arrow_array::RecordBatch::try_from_iter([(
            "k",
            Arc::new(arrow_array::Int64Array::from(vec![key])) as arrow_array::ArrayRef,
        )])
        .expect("keys");
        let found = self
            .statement()
            .find_by_key(&self.world.table, 0, &keys)
            .expect("find");
        found[0].expect("the row is there")
    }
    fn lock(&self, key: i64, lock: RowLock, wait: LockWait) -> Result<bool> {
        let row = self.row(key);
        let locked = self
            .statement()
            .lock_rows(&self.world.table, &[row], lock, wait)?;
        Ok(locked[0])
    }
    fn commit(&self) -> Result<CommitTs> {
        self.txn.commit()
    }
}

fn is_conflict(error: &Error) -> bool {
    error.sqlstate() == SqlState::SERIALIZATION_FAILURE
}

fn is_lock_timeout(error: &Error) -> bool {
    error.sqlstate() == SqlState::LOCK_NOT_AVAILABLE
}

#[test]
fn g0_dirty_writes_are_prevented_at_every_level() {
    for level in LEVELS {
        let world = World::new();
        let (t1, t2) = (world.begin(level), world.begin(level));
        t1.set(1, 11).expect("first writer");
        assert!(is_lock_timeout(&t2.set(1, 12).expect_err("waits")));
        t1.set(2, 21).expect("same writer");
        t1.commit().expect("commit");
        t2.txn.rollback();
        assert_eq!(world.now(), [(1, 11), (2, 21)]);
    }
}

#[test]
fn g1a_aborted_reads_are_prevented_at_every_level() {
    for level in LEVELS {
        let world = World::new();
        let (t1, t2) = (world.begin(level), world.begin(level));
        t1.set(1, 101).expect("write");
        assert_eq!(t2.get(1), Some(10));
        t1.txn.rollback();
        assert_eq!(t2.get(1), Some(10));
        t2.commit().expect("commit");
    }
}

#[test]
fn g1b_intermediate_reads_are_prevented_at_every_level() {
    for level in LEVELS {
        let world = World::new();
        let (t1, t2) = (world.begin(level), world.begin(level));
        t1.set(1, 101).expect("write");
        assert_eq!(t2.get(1), Some(10));
        t1.set(1, 11).expect("write");
        t1.commit().expect("commit");
        let after = if level == ReadCommitted { 11 } else { 10 };
        assert_eq!(t2.get(1), Some(after));
        t2.commit().expect("a transaction that wrote nothing");
    }
}

#[test]
fn g1c_circular_information_flow_is_prevented_at_every_level() {
    for level in LEVELS {
        let world = World::new();
        let (t1, t2) = (world.begin(level), world.begin(level));
        t1.set(1, 11).expect("write");
        t2.set(2, 22).expect("write");
        assert_eq!(t1.get(2), Some(20));
        assert_eq!(t2.get(1), Some(10));
        t1.commit().expect("commit");
        // It read what t1 has overwritten, and t1 what it overwrites itself: a cycle.
        let second = t2.commit();
        assert_eq!(second.is_err(), level == Serializable, "{level:?}");
    }
}

#[test]
fn otv_observed_transactions_do_not_vanish() {
    for level in LEVELS {
        let world = World::new();
        let (t1, t2, t3) = (world.begin(level), world.begin(level), world.begin(level));
        t1.set(1, 11).expect("write");
        t1.set(2, 19).expect("write");
        assert!(is_lock_timeout(&t2.set(1, 12).expect_err("waits")));
        t1.commit().expect("commit");
        let seen = t3.get(1);
        match level {
            ReadCommitted => {
                t2.set(1, 12).expect("newest version");
                t2.set(2, 18).expect("newest version");
                t2.commit().expect("commit");
                assert_eq!(seen, Some(11));
                assert_eq!(t3.get(2), Some(18), "the newer transaction, whole");
                assert_eq!(t3.get(1), Some(12));
            }
            _ => {
                assert!(is_conflict(&t2.set(1, 12).expect_err("it is newer")));
                assert_eq!((seen, t3.get(2)), (Some(10), Some(20)));
            }
        }
    }
}

#[test]
fn pmp_predicate_many_preceders_happens_under_read_committed_only() {
    for level in LEVELS {
        let world = World::new();
        let (t1, t2) = (world.begin(level), world.begin(level));
        assert!(t1.range(30, 30).is_empty());
        t2.insert(3, 30).expect("insert");
        t2.commit().expect("commit");
        assert_eq!(t1.range(30, 30).is_empty(), level != ReadCommitted);
        t1.commit().expect("it wrote nothing");
    }
}

#[test]
fn p4_lost_updates_happen_under_read_committed_only() {
    for level in LEVELS {
        let world = World::new();
        let (t1, t2) = (world.begin(level), world.begin(level));
        let (a, b) = (t1.get(1).expect("row"), t2.get(1).expect("row"));
        t1.set(1, a + 1).expect("write");
        t1.commit().expect("commit");
        let second = t2.set(1, b + 1);
        match level {
            ReadCommitted => assert!(second.expect("newest version")),
            _ => assert!(is_conflict(&second.expect_err("it is newer"))),
        }
    }
}

#[test]
fn g_single_read_skew_happens_under_read_committed_only() {
    for level in LEVELS {
        let world = World::new();
        let (t1, t2) = (world.begin(level), world.begin(level));
        assert_eq!(t1.get(1), Some(10));
        t2.set(1, 12).expect("write");
        t2.set(2, 18).expect("write");
        t2.commit().expect("commit");
        let expected = if level == ReadCommitted { 18 } else { 20 };
        assert_eq!(t1.get(2), Some(expected));
    }
}

#[test]
fn g2_item_write_skew_is_prevented_by_serializable_only() {
    for level in LEVELS {
        let world = World::new();
        let (t1, t2) = (world.begin(level), world.begin(level));
        for t in [&t1, &t2] {
            assert_eq!((t.get(1), t.get(2)), (Some(10), Some(20)));
        }
        t1.set(1, 11).expect("write");
        t2.set(2, 21).expect("write");
        t1.commit().expect("the first");
        let second = t2.commit();
        match level {
            Serializable => assert!(is_conflict(&second.expect_err("write skew"))),
            _ => assert!(second.is_ok()),
        }
    }
}

#[test]
fn g2_anti_dependency_cycles_by_predicate_are_prevented_by_serializable_only() {
    for level in LEVELS {
        let world = World::new();
        let (t1, t2) = (world.begin(level), world.begin(level));
        assert!(t1.range(30, 39).is_empty() && t2.range(30, 39).is_empty());
        t1.insert(3, 30).expect("insert");
        t2.insert(4, 31).expect("insert");
        t1.commit().expect("the first");
        let second = t2.commit();
        match level {
            Serializable => {
                let error = second.expect_err("a phantom");
                assert!(is_conflict(&error));
                assert!(error.to_string().contains("read/write dependencies"));
            }
            _ => assert!(second.is_ok()),
        }
    }
}

#[test]
fn phantoms_count_whichever_way_they_come() {
    type Change = fn(&Session<'_>);
    let changes: [(&str, Change, bool); 6] = [
        (
            "inserted under it",
            |t| t.insert(3, 35).expect("insert"),
            true,
        ),
        (
            "updated into it",
            |t| assert!(t.set(1, 31).expect("update")),
            true,
        ),
        (
            "inserted beside it",
            |t| t.insert(3, 99).expect("insert"),
            false,
        ),
        (
            "updated beside it",
            |t| assert!(t.set(1, 11).expect("update")),
            false,
        ),
        (
            "deleted beside it",
            |t| assert!(t.delete(1).expect("delete")),
            false,
        ),
        (
            "in and out again",
            |t| {
                t.insert(3, 35).expect("insert");
                assert!(t.delete(3).expect("delete"));
            },
            false,
        ),
    ];
    for merged in [false, true] {
        for (name, change, conflicts) in &changes {
            let world = World::new();
            let t1 = world.begin(Serializable);
            assert!(t1.range(30, 39).is_empty());
            t1.insert(50, 1).expect("a write, so that it is validated");
            let t2 = world.begin(ReadCommitted);
            change(&t2);
            t2.commit().expect("commit");
            if merged {
                world.db.checkpoint(true).expect("merge");
            }
            assert_eq!(t1.commit().is_err(), *conflicts, "{name}, merged: {merged}");
        }
    }
}

#[test]
fn a_row_that_left_the_predicate_is_a_conflict() {
    for merged in [false, true] {
        for delete in [false, true] {
            let world = World::new();
            let t1 = world.begin(Serializable);
            assert_eq!(t1.range(20, 29), [(2, 20)]);
            t1.set(1, 11).expect("write");
            let t2 = world.begin(ReadCommitted);
            let changed = if delete { t2.delete(2) } else { t2.set(2, 40) };
            assert!(changed.expect("write"));
            t2.commit().expect("commit");
            if merged {
                world.db.checkpoint(true).expect("merge");
            }
            assert!(is_conflict(&t1.commit().expect_err("it read row 2")));
        }
    }
}

#[test]
fn a_key_that_was_not_there_is_a_read() {
    for merged in [false, true] {
        let world = World::new();
        let (t1, t2) = (world.begin(Serializable), world.begin(ReadCommitted));
        assert_eq!(t1.get(7), None);
        t1.set(1, 11).expect("write");
        t2.insert(7, 70).expect("insert");
        t2.commit().expect("commit");
        if merged {
            world.db.checkpoint(true).expect("merge");
        }
        assert!(is_conflict(&t1.commit().expect_err("the key is there now")));
    }
}

#[test]
fn a_unique_key_that_came_meanwhile_is_a_serialization_failure() {
    let world = World::new();
    let (t1, t2) = (world.begin(Serializable), world.begin(Serializable));
    assert_eq!((t1.get(7), t2.get(7)), (None, None));
    t1.insert(7, 70).expect("insert");
    t1.commit().expect("commit");
    assert!(is_conflict(&t2.insert(7, 71).expect_err("taken")));
    // What it could see is its own mistake.
    let t3 = world.begin(Serializable);
    let error = t3.insert(7, 72).expect_err("taken");
    assert_eq!(error.sqlstate(), SqlState::UNIQUE_VIOLATION);
}

#[test]
fn own_changes_are_no_conflicts() {
    let world = World::new();
    let t = world.begin(Serializable);
    assert_eq!((t.get(1), t.get(9)), (Some(10), None));
    assert_eq!(t.all().len(), 2);
    t.set(1, 11).expect("update");
    t.insert(9, 90).expect("insert");
    t.delete(2).expect("delete");
    assert_eq!(t.all(), [(1, 11), (9, 90)]);
    assert_eq!((t.get(1), t.get(2), t.get(9)), (Some(11), None, Some(90)));
    t.commit().expect("nobody else was there");
    assert_eq!(world.now(), [(1, 11), (9, 90)]);
}

#[test]
fn readers_alone_are_serializable_at_their_snapshot() {
    let world = World::new();
    let reader = world.begin(Serializable);
    assert_eq!(reader.all().len(), 2);
    let writer = world.begin(Serializable);
    writer.set(1, 11).expect("write");
    writer.commit().expect("commit");
    assert_eq!(reader.get(1), Some(10));
    reader.commit().expect("it wrote nothing");
}

#[test]
fn a_truncated_or_dropped_table_was_read() {
    let world = World::new();
    let t1 = world.begin(Serializable);
    assert_eq!(t1.all().len(), 2);
    let ddl = world.begin(ReadCommitted);
    ddl.txn
        .change_catalog(&mut |catalog| {
            let mut table = TableDef::clone(&world.table);
            table.storage = catalog.new_storage_id();
            catalog.put_table(table);
            Ok(())
        })
        .expect("truncate");
    ddl.commit().expect("commit");
    let other = world.begin(ReadCommitted);
    let table = world.db.catalog().table("public", "t").expect("t").clone();
    drop(other);
    // Another table, so that the write itself meets nothing new.
    assert_ne!(table.storage, world.table.storage);
    let error = t1.set(1, 11).expect_err("the definition has changed");
    assert!(is_conflict(&error));
}

#[test]
fn abort_at_once_never_waits() {
    let world = World::new();
    let abort = || {
        world.begin_with(TxnOptions {
            conflicts: ConflictPolicy::Abort,
            ..TxnOptions::default()
        })
    };
    let (t1, t2) = (abort(), abort());
    t1.set(1, 11).expect("write");
    assert!(is_conflict(&t2.set(1, 12).expect_err("at once")));
    assert!(is_conflict(&t2.delete(1).expect_err("at once")));
    let locked = t2.lock(1, RowLock::Exclusive, LockWait::Wait);
    assert!(is_conflict(&locked.expect_err("at once")));
    t2.set(2, 22).expect("another row");
    t1.commit().expect("commit");
    t2.commit().expect("commit");
    assert_eq!(world.now(), [(1, 11), (2, 22)]);
}

#[test]
fn row_locks_keep_writers_and_lockers_away() {
    for level in LEVELS {
        let world = World::new();
        let (t1, t2) = (world.begin(level), world.begin(level));
        assert!(
            t1.lock(1, RowLock::Exclusive, LockWait::Wait)
                .expect("lock")
        );
        assert!(is_lock_timeout(&t2.set(1, 12).expect_err("held")));
        assert!(is_lock_timeout(&t2.delete(1).expect_err("held")));
        for lock in [RowLock::Exclusive, RowLock::Shared] {
            let waited = t2.lock(1, lock, LockWait::Wait);
            assert!(is_lock_timeout(&waited.expect_err("held")));
            let refused = t2.lock(1, lock, LockWait::NoWait).expect_err("held");
            assert!(is_lock_timeout(&refused));
            assert!(refused.to_string().contains("could not obtain lock on row"));
            assert!(!t2.lock(1, lock, LockWait::SkipLocked).expect("skipped"));
        }
        assert_eq!(t2.get(1), Some(10), "readers pass");
        assert_eq!(world.now(), [(1, 10), (2, 20)]);
        t1.set(1, 11).expect("the holder may");
        t1.commit().expect("commit");
        t2.txn.rollback();
        let t3 = world.begin(level);
        assert!(
            t3.lock(1, RowLock::Exclusive, LockWait::NoWait)
                .expect("free")
        );
    }
}

#[test]
fn share_locks_stand_side_by_side() {
    let world = World::new();
    let (t1, t2, t3) = (
        world.begin(ReadCommitted),
        world.begin(ReadCommitted),
        world.begin(ReadCommitted),
    );
    for t in [&t1, &t2] {
        assert!(
            t.lock(1, RowLock::Shared, LockWait::NoWait)
                .expect("shared")
        );
    }
    assert!(is_lock_timeout(&t3.set(1, 13).expect_err("two hold it")));
    // Neither of the two may write while the other reads.
    assert!(is_lock_timeout(&t1.set(1, 11).expect_err("t2 holds it")));
    t2.commit().expect("commit");
    t1.set(1, 11).expect("alone now");
    assert!(is_lock_timeout(&t3.set(1, 13).expect_err("t1 wrote it")));
    t1.commit().expect("commit");
    t3.set(1, 13).expect("free");
    t3.commit().expect("commit");
    assert_eq!(world.now(), [(1, 13), (2, 20)]);
}

#[test]
fn locks_end_with_commit_rollback_and_savepoints() {
    let world = World::new();
    let lock = |t: &Session<'_>| t.lock(1, RowLock::Exclusive, LockWait::NoWait);
    let t1 = world.begin(ReadCommitted);
    assert!(lock(&t1).expect("lock"));
    t1.commit().expect("a transaction that only locked");
    let t2 = world.begin(ReadCommitted);
    assert!(lock(&t2).expect("free after commit"));
    t2.txn.rollback();
    let t3 = world.begin(ReadCommitted);
    let savepoint = t3.txn.savepoint();
    assert!(lock(&t3).expect("free after rollback"));
    t3.txn.rollback_to(&savepoint).expect("rollback to");
    let t4 = world.begin(ReadCommitted);
    assert!(lock(&t4).expect("free after rollback to a savepoint"));
}

#[test]
fn a_locked_row_is_the_same_after_merges_and_locks_of_the_newest_version_only() {
    let world = World::new();
    let t1 = world.begin(Snapshot);
    assert_eq!(t1.get(1), Some(10));
    let t2 = world.begin(ReadCommitted);
    t2.set(1, 11).expect("write");
    t2.commit().expect("commit");
    let error = t1.lock(1, RowLock::Shared, LockWait::Wait);
    assert!(is_conflict(&error.expect_err("a newer version")));
    t1.txn.rollback();
    let t3 = world.begin(ReadCommitted);
    assert!(
        t3.lock(1, RowLock::Exclusive, LockWait::Wait)
            .expect("lock")
    );
    world.db.checkpoint(true).expect("merge");
    let t4 = world.begin(ReadCommitted);
    assert!(is_lock_timeout(&t4.set(1, 12).expect_err("still held")));
    t3.set(1, 13).expect("the holder may");
    t3.commit().expect("commit");
    world.db.checkpoint(true).expect("merge");
    assert_eq!(world.now(), [(1, 13), (2, 20)]);
}

#[test]
fn a_history_has_no_versions_for_locks() {
    let world = World::new();
    for _ in 0..3 {
        let t = world.begin(ReadCommitted);
        assert!(t.lock(1, RowLock::Exclusive, LockWait::Wait).expect("lock"));
        t.commit().expect("commit");
    }
    let t = world.begin(ReadCommitted);
    let history = t.statement().history(&world.table, &[Value::BigInt(1)]);
    assert_eq!(history.expect("history").num_rows(), 1);
}

/// A prepared table must not go by an index that key changes do not reach any more.
#[test]
fn a_replaced_key_index_misleads_nobody() {
    let world = World::new();
    let catalog = world.db.catalog();
    let point = PointTable::new(&world.db, &catalog, &world.table, 0).expect("prepared");
    let ddl = world.begin(ReadCommitted);
    for keys in [Vec::new(), world.table.keys.clone()] {
        ddl.txn
            .change_catalog(&mut |catalog| {
                let mut table = TableDef::clone(&world.table);
                table.keys.clone_from(&keys);
                catalog.put_table(table);
                Ok(())
            })
            .expect("definition");
    }
    ddl.txn.rollback();
    let mover = world.begin(ReadCommitted);
    let set = [(ColumnId(0), Value::BigInt(7))];
    let moved = mover
        .statement()
        .point_update(&world.table, 0, &[Value::BigInt(1)], &set);
    assert!(moved.expect("update"));
    mover.commit().expect("commit");
    let reader = world.begin(ReadCommitted);
    let get = |key: i64| {
        let mut out = Vec::new();
        let found = reader
            .txn
            .point_get(&point, &[Value::BigInt(key)], &[ColumnId(1)], &mut out);
        found.expect("get").then(|| out[0].clone())
    };
    assert_eq!(get(1), None);
    assert_eq!(get(7), Some(Value::BigInt(10)));
    let set = [(ColumnId(1), Value::BigInt(0))];
    let updated = reader.txn.point_update(&point, &[Value::BigInt(1)], &set);
    assert!(!updated.expect("update"), "there is no such row");
    let deleted = reader.txn.point_delete(&point, &[Value::BigInt(1)]);
    assert!(!deleted.expect("delete"), "there is no such row");
    reader.commit().expect("commit");
    assert_eq!(world.now(), [(2, 20), (7, 10)]);
}

/// Prepared point operations are what statements are, whatever happened to a key before.
#[test]
fn point_tables_agree_with_statements() {
    let world = World::new();
    let catalog = world.db.catalog();
    let point = PointTable::new(&world.db, &catalog, &world.table, 0).expect("prepared");
    let get = |txn: &Arc<Transaction>, key: i64| {
        let mut out = Vec::new();
        let key = [Value::BigInt(key)];
        let found = txn.point_get(&point, &key, &[ColumnId(1)], &mut out);
        found.expect("get").then(|| out[0].clone())
    };
    for merged in [false, true] {
        if merged {
            world.db.checkpoint(true).expect("merge");
        }
        let t = world.begin(ReadCommitted);
        let key = [Value::BigInt(1)];
        assert!(t.txn.point_delete(&point, &key).expect("delete"));
        assert_eq!(get(&t.txn, 1), None, "its own deletion");
        let outside = world.begin(ReadCommitted);
        assert_eq!(get(&outside.txn, 1), Some(Value::BigInt(10)));
        t.insert(1, 10).expect("again, as another row");
        let set = [(ColumnId(1), Value::BigInt(11))];
        assert!(t.txn.point_update(&point, &key, &set).expect("update"));
        assert_eq!(get(&t.txn, 1), Some(Value::BigInt(11)), "its own update");
        t.txn.rollback();
        assert_eq!(get(&outside.txn, 1), Some(Value::BigInt(10)));
        assert_eq!(get(&outside.txn, 99), None);
        let waiting = outside.txn.point_update(&point, &[Value::BigInt(99)], &set);
        assert!(!waiting.expect("no such row"));
    }
    let (first, second) = (world.begin(ReadCommitted), world.begin(ReadCommitted));
    let set = |v: i64| [(ColumnId(1), Value::BigInt(v))];
    let key = [Value::BigInt(2)];
    assert!(
        first
            .txn
            .point_update(&point, &key, &set(21))
            .expect("update")
    );
    let waits = second.txn.point_update(&point, &key, &set(22));
    assert!(is_lock_timeout(&waits.expect_err("waits")));
    first.commit().expect("commit");
    assert!(
        second
            .txn
            .point_update(&point, &key, &set(22))
            .expect("the newest version")
    );
    second.commit().expect("commit");
    assert_eq!(world.now(), [(1, 10), (2, 22)]);
}

/// That a key is taken is something that a refused insertion has read.
#[test]
fn a_unique_violation_is_a_read() {
    let world = World::new();
    let (t1, t2) = (world.begin(Serializable), world.begin(Serializable));
    let savepoint = t1.txn.savepoint();
    let error = t1.insert(1, 0).expect_err("taken");
    assert_eq!(error.sqlstate(), SqlState::UNIQUE_VIOLATION);
    t1.txn.rollback_to(&savepoint).expect("rollback to");
    t1.insert(50, 1).expect("because 1 was there");
    assert_eq!(t2.get(50), None);
    assert!(t2.delete(1).expect("delete"));
    t2.commit().expect("the first");
    assert!(is_conflict(&t1.commit().expect_err("1 is not there")));
}
