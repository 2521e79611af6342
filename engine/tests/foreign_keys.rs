//! Foreign keys between concurrent transactions: a child's insertion against its parent's deletion
//! in both orders, at all isolation levels, with and without an index on the referencing column.
//!
//! Scripts run in one thread: a transaction that would wait has `lock_timeout` 1 ms. The last test
//! runs threads that do wait, and looks for orphans.

mod common;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, UInt64Array};
use common::*;
use std::sync::{Arc, Barrier};
use std::time::Duration;
use strandline_base::ManualClock;
use strandline_device::MemoryDevice;
use strandline_engine::catalog::index::*;
use strandline_engine::catalog::{Catalog, HistoryPolicy, KeyDef, TableDef};
use strandline_engine::*;

const LEVELS: [Isolation; 3] = [
    Isolation::ReadCommitted,
    Isolation::Snapshot,
    Isolation::Serializable,
];

/// Tables `p (k, v)` and `c (k, a references p)`.
struct World {
    db: Arc<Db>,
    p: Arc<TableDef>,
    c: Arc<TableDef>,
}

fn table_of(catalog: &mut Catalog, name: &str, second: &str) -> TableDef {
    let columns = vec![
        column(0, "k", SqlType::BigInt, true),
        column(1, second, SqlType::BigInt, false),
    ];
    TableDef {
        name: name.into(),
        keys: vec![KeyDef::new(format!("{name}_pkey"), true, vec![ColumnId(0)])],
        ..definition(catalog, columns, HistoryPolicy::None)
    }
}

fn index_on_a() -> Arc<IndexDef> {
    Arc::new(IndexDef {
        id: IndexId(0),
        name: "c_a_idx".into(),
        method: IndexMethod::Ordered,
        parts: vec![IndexPart {
            value: IndexValue::Column(ColumnId(1)),
            descending: false,
            nulls_first: false,
            operator_class: None,
        }],
        include: Vec::new(),
        unique: false,
        nulls_not_distinct: false,
        predicate: None,
        state: IndexState::Valid,
        complete_since: CommitTs::ZERO,
        comment: None,
        storage: Default::default(),
        stays_in_memory: false,
        was_moved: false,
        file_number: None,
        options: Default::default(),
    })
}

impl World {
    fn new(action: ReferentialAction, timing: ConstraintTiming, indexed: bool) -> Self {
        Self::with(action, timing, indexed, Settings::default())
    }

    fn with(
        action: ReferentialAction,
        timing: ConstraintTiming,
        indexed: bool,
        settings: Settings,
    ) -> Self {
        let clock = Arc::new(ManualClock::new(1_000_000));
        let device = Arc::new(MemoryDevice::new());
        let db = open_with(device, &clock, settings).expect("open");
        let txn = db.begin(TxnOptions::default()).expect("begin");
        txn.change_catalog(&mut |catalog| {
            let parent = table_of(catalog, "p", "v");
            let mut child = table_of(catalog, "c", "a");
            child.foreign_keys.push(Arc::new(ForeignKeyDef {
                on_delete: action,
                on_update: action,
                timing,
                ..ForeignKeyDef::new("c_a_fkey", vec![ColumnId(1)], parent.id, vec![ColumnId(0)])
            }));
            if indexed {
                child.indexes.push(index_on_a());
                child.next_index = 1;
            }
            catalog.put_table(parent);
            catalog.put_table(child);
            Ok(())
        })
        .expect("tables");
        txn.commit().expect("commit");
        let of = |name: &str| db.catalog().table("public", name).expect("table").clone();
        let world = Self {
            p: of("p"),
            c: of("c"),
            db: db.clone(),
        };
        assert_eq!(world.p.referenced_by, vec![world.c.id]);
        let t = world.begin(Isolation::ReadCommitted);
        t.parent(1).expect("parent 1");
        t.parent(2).expect("parent 2");
        t.commit().expect("commit");
        world
    }

    fn begin(&self, isolation: Isolation) -> Session<'_> {
        self.begin_with(isolation, Some(Duration::from_millis(1)))
    }

    fn begin_with(&self, isolation: Isolation, lock_timeout: Option<Duration>) -> Session<'_> {
        let options = TxnOptions {
            isolation,
            lock_timeout,
            ..TxnOptions::default()
        };
        let txn = self.db.begin(options).expect("begin");
        Session { world: self, txn }
    }

    fn rows(&self, table: &Arc<TableDef>) -> Vec<Vec<Value>> {
        let txn = self.db.begin(TxnOptions::default()).expect("begin");
        let statement = txn.begin_statement().expect("statement");
        scan_values(&statement, table)
    }

    fn assert_no_orphan(&self) {
        let parents: Vec<Value> = self
            .rows(&self.p)
            .into_iter()
            .map(|r| r[0].clone())
            .collect();
        for row in self.rows(&self.c) {
            assert!(
                row[1] == Value::Null || parents.contains(&row[1]),
                "{row:?} has no parent among {parents:?}"
            );
        }
    }
}

struct Session<'w> {
    world: &'w World,
    txn: Arc<Transaction>,
}

impl Session<'_> {
    fn statement(&self) -> Arc<Statement> {
        self.txn.begin_statement().expect("statement")
    }
    fn parent(&self, k: i64) -> Result<()> {
        let row = [Value::BigInt(k), Value::BigInt(0)];
        self.statement()
            .point_insert(&self.world.p, &row)
            .map(|_| ())
    }
    fn child(&self, k: i64, a: i64) -> Result<()> {
        let row = [Value::BigInt(k), Value::BigInt(a)];
        self.statement()
            .point_insert(&self.world.c, &row)
            .map(|_| ())
    }
    fn delete_parent(&self, k: i64) -> Result<bool> {
        self.statement()
            .point_delete(&self.world.p, 0, &[Value::BigInt(k)])
    }
    fn set_parent(&self, k: i64, column: u32, value: i64) -> Result<bool> {
        let set = [(ColumnId(column), Value::BigInt(value))];
        self.statement()
            .point_update(&self.world.p, 0, &[Value::BigInt(k)], &set)
    }
    fn commit(&self) -> Result<CommitTs> {
        self.txn.commit()
    }
}

fn state<T: std::fmt::Debug>(outcome: Result<T>) -> &'static str {
    outcome.expect_err("an error").sqlstate().0
}

fn each_world(action: ReferentialAction, test: impl Fn(&World, Isolation)) {
    for isolation in LEVELS {
        for indexed in [false, true] {
            test(
                &World::new(action, ConstraintTiming::Immediate, indexed),
                isolation,
            );
        }
    }
}

#[test]
fn a_parent_waits_for_its_unfinished_child() {
    each_world(ReferentialAction::NoAction, |world, isolation| {
        let child = world.begin(isolation);
        child.child(1, 1).expect("a child");
        let parent = world.begin(isolation);
        assert_eq!(state(parent.delete_parent(1)), "55P03");
        parent.txn.rollback();
        let parent = world.begin(isolation);
        assert_eq!(state(parent.set_parent(1, 0, 9)), "55P03");
        parent.txn.rollback();
        child.commit().expect("commit");
        let parent = world.begin(isolation);
        assert_eq!(state(parent.delete_parent(1)), "23503");
        parent.txn.rollback();
        world.assert_no_orphan();
        // A child that is rolled back is none.
        let child = world.begin(isolation);
        child.child(2, 2).expect("a child");
        child.txn.rollback();
        let parent = world.begin(isolation);
        assert!(parent.delete_parent(2).expect("no child"));
        parent.commit().expect("commit");
        world.assert_no_orphan();
    });
}

#[test]
fn a_child_waits_for_its_unfinished_parent() {
    each_world(ReferentialAction::NoAction, |world, isolation| {
        let parent = world.begin(isolation);
        assert!(parent.delete_parent(1).expect("no child"));
        let child = world.begin(isolation);
        assert_eq!(state(child.child(1, 1)), "55P03");
        child.txn.rollback();
        parent.txn.rollback();
        let child = world.begin(isolation);
        child.child(1, 1).expect("the parent is there again");
        child.commit().expect("commit");
        let parent = world.begin(isolation);
        parent.set_parent(2, 0, 7).expect("no child");
        let child = world.begin(isolation);
        assert_eq!(state(child.child(2, 2)), "55P03");
        child.txn.rollback();
        let child = world.begin(isolation);
        assert_eq!(state(child.child(2, 7)), "55P03");
        child.txn.rollback();
        parent.commit().expect("commit");
        let child = world.begin(isolation);
        assert_eq!(state(child.child(2, 2)), "23503");
        world.assert_no_orphan();
    });
}

#[test]
fn a_change_that_the_snapshot_does_not_see() {
    for isolation in LEVELS {
        let is_fixed = isolation != Isolation::ReadCommitted;
        let world = World::new(
            ReferentialAction::Cascade,
            ConstraintTiming::Immediate,
            true,
        );
        // The parent has gone since.
        let child = world.begin(isolation);
        let parent = world.begin(isolation);
        parent.delete_parent(1).expect("delete");
        parent.commit().expect("commit");
        let expected = if is_fixed { "40001" } else { "23503" };
        assert_eq!(state(child.child(1, 1)), expected, "{isolation:?}");
        child.txn.rollback();
        // A child has come since, which the action is to delete.
        let parent = world.begin(isolation);
        let child = world.begin(isolation);
        child.child(1, 2).expect("a child");
        child.commit().expect("commit");
        match is_fixed {
            true => assert_eq!(state(parent.delete_parent(2)), "40001"),
            false => {
                assert!(parent.delete_parent(2).expect("with its child"));
                parent.commit().expect("commit");
                assert!(world.rows(&world.c).is_empty());
            }
        }
        world.assert_no_orphan();
    }
}

#[test]
fn children_of_one_parent_and_changes_of_its_other_columns_do_not_wait() {
    each_world(ReferentialAction::NoAction, |world, isolation| {
        let parent = world.begin(isolation);
        parent.set_parent(1, 1, 5).expect("update");
        let (first, second) = (world.begin(isolation), world.begin(isolation));
        first.child(1, 1).expect("no wait");
        second.child(2, 1).expect("no wait");
        let other = world.begin(isolation);
        other.set_parent(2, 1, 5).expect("update");
        second.child(3, 2).expect("no wait");
        for session in [parent, first, second, other] {
            session.commit().expect("commit");
        }
        world.assert_no_orphan();
    });
}

#[test]
fn deferred_checks_run_before_the_commit() {
    for isolation in LEVELS {
        let world = World::new(
            ReferentialAction::NoAction,
            ConstraintTiming::Deferred,
            true,
        );
        let t = world.begin(isolation);
        t.child(1, 5).expect("checked later");
        let savepoint = t.txn.savepoint();
        t.parent(5).expect("the parent");
        t.txn.set_constraints(None, false).expect("all is well");
        t.txn.rollback_to(&savepoint).expect("back");
        assert_eq!(state(t.commit()), "23503");
        let t = world.begin(isolation);
        t.child(1, 5).expect("checked later");
        t.parent(5).expect("the parent");
        t.commit().expect("commit");
        let t = world.begin(isolation);
        t.delete_parent(5).expect("checked later");
        assert_eq!(state(t.commit()), "23503");
        world.assert_no_orphan();
    }
}

/// What an open transaction keeps has its deferred checks, more than 60 bytes each.
#[test]
fn deferred_checks_are_part_of_what_a_transaction_keeps() {
    const ROWS: i64 = 3000;
    let timings = [ConstraintTiming::Immediate, ConstraintTiming::Deferred];
    let [immediate, deferred] = timings.map(|timing| {
        let world = World::new(ReferentialAction::NoAction, timing, true);
        let kept = || {
            let counters = world.db.counters();
            let found = counters.iter().find(|c| c.0 == "transaction_bytes");
            found.expect("a counter").1 as i64
        };
        let t = world.begin(Isolation::ReadCommitted);
        let savepoint = t.txn.savepoint();
        (0..ROWS).for_each(|k| t.child(k, 1).expect("child"));
        let bytes = kept();
        t.txn.rollback_to(&savepoint).expect("back");
        assert!(kept() < bytes / 16, "{} of {bytes}", kept());
        (0..ROWS).for_each(|k| t.child(k, 1).expect("child"));
        t.commit().expect("commit");
        assert_eq!(kept(), 0);
        bytes
    });
    assert!(
        deferred - immediate > ROWS * 60,
        "{deferred}, {immediate} without"
    );
}

/// A statement that defers more checks than its transaction may keep fails at its end, alone.
#[test]
fn a_statement_defers_no_more_checks_than_there_is_memory_for() {
    const ROWS: i64 = 60_000;
    let settings = Settings {
        memory_bytes: Settings::MEMORY_BYTES_MIN,
        ..Settings::default()
    };
    let timing = ConstraintTiming::Deferred;
    let world = World::with(ReferentialAction::NoAction, timing, false, settings);
    let keys = (0..ROWS).collect::<Int64Array>();
    let parents = Int64Array::from_value(1, ROWS as usize);
    let columns: [(&str, ArrayRef); 2] = [("k", Arc::new(keys)), ("a", Arc::new(parents))];
    let rows = RecordBatch::try_from_iter(columns).expect("rows");
    let t = world.begin(Isolation::ReadCommitted);
    let statement = t.statement();
    statement
        .insert(&world.c, &rows, OnInvisibleDuplicate::Violation)
        .expect("the rows fit");
    let error = statement.finish().expect_err("their checks do not");
    assert_eq!(error.sqlstate(), SqlState::OUT_OF_MEMORY, "{error}");
    assert!(error.to_string().contains("3/8 of memory_bytes"), "{error}");
    let other = world.begin(Isolation::ReadCommitted);
    other.child(ROWS, 1).expect("others go on");
    other.commit().expect("commit");
    t.txn.rollback();
    world.assert_no_orphan();
}

fn row_ids(statement: &Arc<Statement>, table: &Arc<TableDef>) -> Vec<RowId> {
    let request = ScanRequest {
        columns: vec![ColumnId(0)],
        with_row_id: true,
        ..ScanRequest::default()
    };
    let scan = statement.scan(table, request).expect("scan");
    let units = (0..scan.units()).map(|unit| scan.read_unit(unit).expect("read"));
    let ids = units.flatten().flat_map(|batch| {
        let ids = batch.columns().last().expect("row ids").as_any();
        let ids = ids.downcast_ref::<UInt64Array>().expect("row ids");
        ids.values().to_vec()
    });
    ids.map(RowId).collect()
}

/// What an open transaction keeps has the changes that wait for the checks at their statement's
/// end.
#[test]
fn changes_of_parents_are_part_of_what_a_transaction_keeps() {
    const ROWS: i64 = 3000;
    let world = World::new(
        ReferentialAction::NoAction,
        ConstraintTiming::Immediate,
        true,
    );
    let kept = || {
        let counters = world.db.counters();
        let found = counters.iter().find(|c| c.0 == "transaction_bytes");
        found.expect("a counter").1 as i64
    };
    let t = world.begin(Isolation::ReadCommitted);
    (10..10 + ROWS).for_each(|k| t.parent(k).expect("parent"));
    (10..10 + ROWS).for_each(|k| t.child(k, k).expect("child"));
    t.commit().expect("commit");
    let t = world.begin(Isolation::ReadCommitted);
    let mut deleted = [0; 2];
    for (bytes, table) in deleted.iter_mut().zip([&world.c, &world.p]) {
        let (before, statement) = (kept(), t.statement());
        let rows = row_ids(&statement, table);
        statement.delete(table, &rows).expect("delete");
        *bytes = kept() - before;
        statement.finish().expect("no child is left");
    }
    let [children, parents] = deleted;
    assert!(parents - children > ROWS * 60, "{parents}, {children}");
    assert!(kept() < parents, "they go with their statement");
    t.commit().expect("commit");
    assert_eq!(kept(), 0);
}

/// A statement that changes more parents than its transaction may keep fails alone.
#[test]
fn a_statement_changes_no_more_parents_than_there_is_memory_for() {
    const ROWS: i64 = 60_000;
    let settings = Settings {
        memory_bytes: Settings::MEMORY_BYTES_MIN,
        ..Settings::default()
    };
    let (action, timing) = (ReferentialAction::NoAction, ConstraintTiming::Immediate);
    let world = World::with(action, timing, false, settings);
    for keys in [10..ROWS / 2, ROWS / 2..ROWS] {
        let t = world.begin(Isolation::ReadCommitted);
        keys.for_each(|k| t.parent(k).expect("parent"));
        t.commit().expect("commit");
    }
    let t = world.begin(Isolation::ReadCommitted);
    let statement = t.statement();
    let rows = row_ids(&statement, &world.p);
    let error = statement.delete(&world.p, &rows).expect_err("too many");
    assert_eq!(error.sqlstate(), SqlState::OUT_OF_MEMORY, "{error}");
    assert!(error.to_string().contains("3/8 of memory_bytes"), "{error}");
    let other = world.begin(Isolation::ReadCommitted);
    other.child(1, ROWS - 1).expect("others go on");
    other.commit().expect("commit");
    drop(statement);
    t.txn.rollback();
    world.assert_no_orphan();
}

/// Threads meet at one parent after the other, which never comes back: some add a child, others
/// delete it or give it another key. Whatever the outcome, no orphan is left.
#[test]
fn no_orphan_under_concurrency() {
    const PARENTS: i64 = 150;
    for (at, isolation) in LEVELS.into_iter().enumerate() {
        for action in [ReferentialAction::NoAction, ReferentialAction::Cascade] {
            let timing = match at {
                1 => ConstraintTiming::Deferred,
                _ => ConstraintTiming::Immediate,
            };
            let world = World::new(action, timing, at != 2);
            let parents = world.begin(Isolation::ReadCommitted);
            (10..10 + PARENTS).for_each(|k| parents.parent(k).expect("a parent"));
            parents.commit().expect("commit");
            let start = Barrier::new(4);
            std::thread::scope(|scope| {
                for thread in 0..4 {
                    let (world, start) = (&world, &start);
                    scope.spawn(move || {
                        for k in 10..10 + PARENTS {
                            start.wait();
                            let session = world.begin_with(isolation, None);
                            let done = match (thread, k % 2) {
                                (0, 0) => session.delete_parent(k).map(|_| ()),
                                (0, _) => session.set_parent(k, 0, k + 10_000).map(|_| ()),
                                _ => session.child(k * 4 + thread, k),
                            };
                            if let Err(error) = done.and_then(|()| session.commit().map(|_| ())) {
                                let state = error.sqlstate().0;
                                let known = ["23503", "40001", "40P01"];
                                assert!(known.contains(&state), "{error:?}");
                                session.txn.rollback();
                            }
                        }
                    });
                }
            });
            world.assert_no_orphan();
        }
    }
}
