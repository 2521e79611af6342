//! Models of the engine's index and key protocols: a controlled scheduler runs whole transactions
//! of the shipping engine, on a database in memory without background threads, through many
//! interleavings of their atomic operations and locks. Built with `RUSTFLAGS="--cfg shuttle"`;
//! `make models` runs them. A failure prints the schedule, which `shuttle::replay` runs again.
//! `STRANDLINE_SEED` explores other interleavings, `STRANDLINE_MODEL_RUNS` more of them.
#![cfg(shuttle)]

mod common;
#[path = "indexes/support.rs"]
#[allow(dead_code, reason = "the models use a part")]
mod support;

use common::*;
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner, thread};
use std::sync::Arc;
use strandline_device::MemoryDevice;
use strandline_engine::catalog::index::{ForeignKeyDef, IndexDef, IndexStorage, ReferentialAction};
use strandline_engine::catalog::{Catalog, HistoryPolicy, KeyDef, TableDef};
use strandline_engine::*;
use support::*;

/// The storage of all indexes but hash indexes.
const STORAGE: IndexStorage = IndexStorage::Memory;

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

/// Half of the runs with random switches, half with few switches at the worst places.
fn explore(model: impl Fn() + Clone + Send + Sync + 'static) {
    let seed = number("STRANDLINE_SEED", 1);
    let runs = number("STRANDLINE_MODEL_RUNS", 800) as usize;
    println!("seed {seed}");
    let mut config = Config::new();
    config.silence_warnings = true;
    // Of a transaction in a debug build.
    config.stack_size = 1 << 21;
    let random = RandomScheduler::new_from_seed(seed, runs);
    Runner::new(random, config.clone()).run(model.clone());
    Runner::new(PctScheduler::new_from_seed(seed, 3, runs), config).run(model);
}

/// Runs the tasks at the same time.
fn beside<A, B>(
    a: impl FnOnce() -> A + Send + 'static,
    b: impl FnOnce() -> B + Send + 'static,
) -> (A, B)
where
    A: Send + 'static,
    B: Send + 'static,
{
    let a = thread::spawn(a);
    let b = b();
    (a.join().expect("no panic"), b)
}

fn database() -> Arc<Db> {
    open(Arc::new(MemoryDevice::new()), &clock()).expect("open")
}

/// A database with the table `t (k, a, b)` and `rows` in it.
fn with_rows(indexes: &[IndexDef], rows: &[(i64, i64)]) -> Arc<Db> {
    let db = database();
    create_table(&db, HistoryPolicy::None);
    alter(&db, |table| {
        for def in indexes {
            put_index(table, def);
        }
    });
    rows.iter().for_each(|(k, a)| insert(&db, &row(*k, *a, "")));
    db
}

/// One statement in a transaction of its own, which runs again while the definition of its table
/// changes.
fn run_again<R>(
    db: &Arc<Db>,
    work: impl Fn(&Arc<Statement>, &Arc<TableDef>) -> Result<R>,
) -> Result<R> {
    loop {
        let table = table(db);
        match run(db, |s| work(s, &table)) {
            Err(error) if error.sqlstate() == SqlState::SERIALIZATION_FAILURE => {
                thread::yield_now();
            }
            outcome => return outcome,
        }
    }
}

fn state<R>(outcome: &Result<R>) -> Option<SqlState> {
    outcome.as_ref().err().map(Error::sqlstate)
}

fn assert_undamaged(db: &Db) {
    assert_eq!(db.check().expect("check"), Vec::<String>::new());
}

/// The rows whose column `a` is `a` in the statement's snapshot, as the index `t_a` finds them.
fn rows_by_a(statement: &Statement, table: &Arc<TableDef>, a: i64) -> Vec<Vec<Value>> {
    let def = named(table, "t_a");
    let keys = statement.index_keys(table, def.id).expect("keys");
    let (range, key) = (keys.prefix(&[Value::BigInt(a)]), Value::BigInt(a));
    let view = statement.view(table).expect("view");
    let mut rows = candidates(statement, &view, (table, def), &range, 4);
    rows.retain(|row| row[1] == key);
    rows
}

/// Two transactions insert a row with one key, in a constraint or in a unique index.
fn two_inserts(rows: [(i64, i64); 2], is_committed: bool) {
    explore(move || {
        let db = with_rows(&[unique("t_a", vec![part(1)])], &[]);
        let insert = |(k, a): (i64, i64), is_committed: bool| {
            let (db, table) = (db.clone(), table(&db));
            move || {
                let txn = db.begin(TxnOptions::default())?;
                let inserted = txn.begin_statement()?.point_insert(&table, &row(k, a, ""));
                match is_committed && inserted.is_ok() {
                    true => drop(txn.commit()?),
                    false => txn.rollback(),
                }
                inserted.map(|_| ())
            }
        };
        let (first, second) = beside(insert(rows[0], true), insert(rows[1], is_committed));
        let duplicate = Some(SqlState::UNIQUE_VIOLATION);
        match is_committed {
            true => {
                let states = [state(&first), state(&second)];
                assert!(
                    states == [None, duplicate] || states == [duplicate, None],
                    "{first:?}, {second:?}"
                );
            }
            false => {
                first.expect("the other one is rolled back");
                assert!([None, duplicate].contains(&state(&second)), "{second:?}");
            }
        }
        let rows = run(&db, |s| Ok(scan_values(s, &table(&db)))).expect("scan");
        assert_eq!(rows.len(), 1);
        assert_undamaged(&db);
    });
}

#[test]
fn of_two_inserts_of_one_primary_key_one_fails() {
    two_inserts([(1, 7), (1, 8)], true);
}

#[test]
fn of_two_inserts_into_a_unique_index_one_fails() {
    two_inserts([(1, 7), (2, 7)], true);
}

#[test]
fn an_insert_waits_for_one_of_its_key_that_is_rolled_back() {
    two_inserts([(1, 7), (2, 7)], false);
}

/// Tables `p (k)` with the row 1 and `c (k, a references p)`.
fn with_references(action: ReferentialAction) -> Arc<Db> {
    let table_of = |catalog: &mut Catalog, name: &str, columns| TableDef {
        name: name.into(),
        keys: vec![KeyDef::new(format!("{name}_pkey"), true, vec![ColumnId(0)])],
        ..definition(catalog, columns, HistoryPolicy::None)
    };
    let db = database();
    let txn = db.begin(TxnOptions::default()).expect("begin");
    txn.change_catalog(&mut |catalog| {
        let k = || column(0, "k", SqlType::BigInt, true);
        let parent = table_of(catalog, "p", vec![k()]);
        let columns = vec![k(), column(1, "a", SqlType::BigInt, false)];
        let mut child = table_of(catalog, "c", columns);
        child.foreign_keys.push(Arc::new(ForeignKeyDef {
            on_delete: action,
            on_update: action,
            ..ForeignKeyDef::new("c_a_fkey", vec![ColumnId(1)], parent.id, vec![ColumnId(0)])
        }));
        put_index(&mut child, &index("c_a", vec![part(1)]));
        catalog.put_table(parent);
        catalog.put_table(child);
        Ok(())
    })
    .expect("tables");
    txn.commit().expect("commit");
    let parent = named_table(&db, "p");
    run(&db, |s| s.point_insert(&parent, &[Value::BigInt(1)])).expect("a parent");
    db
}

fn named_table(db: &Db, name: &str) -> Arc<TableDef> {
    db.catalog().table("public", name).expect("table").clone()
}

/// A child of parent 1 comes while the parent goes or gets another key.
fn child_against_parent(isolation: Isolation, action: ReferentialAction, is_deleted: bool) {
    explore(move || {
        let db = with_references(action);
        let in_transaction = |work: fn(&Statement, &Arc<TableDef>, bool) -> Result<()>, name| {
            let (db, table) = (db.clone(), named_table(&db, name));
            move || {
                let options = TxnOptions {
                    isolation,
                    ..TxnOptions::default()
                };
                let txn = db.begin(options)?;
                work(&*txn.begin_statement()?, &table, is_deleted)
                    .and_then(|()| txn.commit().map(|_| ()))
                    .inspect_err(|_| txn.rollback())
            }
        };
        let child = in_transaction(
            |s, c, _| {
                let row = [Value::BigInt(10), Value::BigInt(1)];
                s.point_insert(c, &row).map(|_| ())
            },
            "c",
        );
        let parent = in_transaction(
            |s, p, is_deleted| {
                let key = [Value::BigInt(1)];
                let is_done = match is_deleted {
                    true => s.point_delete(p, 0, &key)?,
                    false => s.point_update(p, 0, &key, &[(ColumnId(0), Value::BigInt(2))])?,
                };
                assert!(is_done, "the parent is there");
                Ok(())
            },
            "p",
        );
        let (child, parent) = beside(child, parent);
        for outcome in [&child, &parent] {
            let known = [
                SqlState::FOREIGN_KEY_VIOLATION,
                SqlState::SERIALIZATION_FAILURE,
                SqlState::DEADLOCK_DETECTED,
            ];
            let failure = state(outcome);
            assert!(failure.is_none_or(|s| known.contains(&s)), "{outcome:?}");
        }
        assert!(child.is_ok() || parent.is_ok(), "{child:?}, {parent:?}");
        if action == ReferentialAction::NoAction {
            assert!(child.is_err() || parent.is_err(), "both have committed");
        }
        let rows = |name| {
            let table = named_table(&db, name);
            run(&db, |s| Ok(scan_values(s, &table))).expect("scan")
        };
        let parents = rows("p");
        for child in rows("c") {
            let has_parent = parents.iter().any(|parent| parent[0] == child[1]);
            assert!(has_parent, "{child:?} is an orphan");
        }
        assert_undamaged(&db);
    });
}

#[test]
fn no_orphan_of_a_deleted_parent() {
    for isolation in [
        Isolation::ReadCommitted,
        Isolation::Snapshot,
        Isolation::Serializable,
    ] {
        child_against_parent(isolation, ReferentialAction::NoAction, true);
    }
}

#[test]
fn no_orphan_of_a_parent_with_another_key() {
    child_against_parent(Isolation::ReadCommitted, ReferentialAction::NoAction, false);
}

#[test]
fn no_orphan_of_a_parent_that_is_deleted_with_its_children() {
    child_against_parent(Isolation::ReadCommitted, ReferentialAction::Cascade, true);
}

/// A build takes the rows that it finds, writers enter theirs: together all.
#[test]
fn a_build_beside_writers_misses_no_entry() {
    explore(|| {
        let db = with_rows(&[], &[(1, 10), (2, 20)]);
        let writer = |work: fn(&Arc<Statement>, &Arc<TableDef>) -> Result<()>| {
            let db = db.clone();
            thread::spawn(move || run_again(&db, work).expect("written"))
        };
        let inserter = writer(|s, t| s.point_insert(t, &row(3, 30, "")).map(|_| ()));
        let updater = writer(|s, t| {
            let set = [(ColumnId(1), Value::BigInt(11))];
            let is_updated = s.point_update(t, 0, &[Value::BigInt(1)], &set)?;
            assert!(is_updated && s.point_delete(t, 0, &[Value::BigInt(2)])?);
            Ok(())
        });
        create_online(&db, &index("t_a", vec![part(1)])).expect("create");
        inserter.join().expect("no panic");
        updater.join().expect("no panic");
        let t = table(&db);
        let found = run(&db, |s| {
            Ok([10, 11, 20, 30].map(|a| rows_by_a(s, &t, a).len()))
        });
        assert_eq!(found.expect("reads"), [0, 1, 0, 1]);
        assert_undamaged(&db);
    });
}

/// Either the writer or the build finds the duplicate, never neither.
#[test]
fn a_unique_build_and_a_writer_do_not_both_succeed() {
    explore(|| {
        let db = with_rows(&[], &[(1, 7)]);
        let writing = db.clone();
        let write = move || {
            run_again(&writing, |s, t| {
                s.point_insert(t, &row(2, 7, "")).map(|_| ())
            })
        };
        let building = db.clone();
        let build = move || create_online(&building, &unique("t_a", vec![part(1)]));
        let (written, built) = beside(write, build);
        for outcome in [&written, &built] {
            let known = [None, Some(SqlState::UNIQUE_VIOLATION)];
            assert!(known.contains(&state(outcome)), "{outcome:?}");
        }
        assert!(written.is_err() || built.is_err(), "two rows with one key");
        assert_eq!(table(&db).indexes.len(), usize::from(built.is_ok()));
        assert_undamaged(&db);
    });
}

fn set_a(db: &Arc<Db>, a: i64) {
    let set = [(ColumnId(1), Value::BigInt(a))];
    let updated = run_again(db, |s, t| s.point_update(t, 0, &[Value::BigInt(1)], &set));
    assert!(updated.expect("updated"));
}

/// A row has left a key, and a sweep retires the entry. The row comes back to the key meanwhile:
/// it needs the entry, whichever of the two is first.
#[test]
fn a_sweep_takes_no_entry_from_a_row_that_comes_back() {
    explore(|| {
        let db = with_rows(&[index("t_a", vec![part(1)])], &[(1, 7)]);
        set_a(&db, 8);
        let (updated, swept) = (db.clone(), db.clone());
        let sweep = move || swept.merge_due(false).expect("a turn");
        beside(move || set_a(&updated, 7), sweep);
        let t = table(&db);
        let found = run(&db, |s| Ok([7, 8].map(|a| rows_by_a(s, &t, a).len())));
        assert_eq!(found.expect("reads"), [1, 0]);
        assert_undamaged(&db);
    });
}

/// A row leaves a key and comes back to it while a sweep retires entries and a reader with an older
/// snapshot goes by the index.
#[test]
fn a_sweep_takes_no_entry_from_a_reader() {
    explore(|| {
        let db = with_rows(&[index("t_a", vec![part(1)])], &[(1, 7)]);
        let (updated, swept) = (db.clone(), db.clone());
        let updater = thread::spawn(move || [8, 7].map(|a| set_a(&updated, a)));
        let sweeper = thread::spawn(move || {
            for _ in 0..2 {
                swept.merge_due(false).expect("a turn");
            }
        });
        let options = TxnOptions {
            isolation: Isolation::Snapshot,
            ..TxnOptions::default()
        };
        let (txn, t) = (db.begin(options).expect("begin"), table(&db));
        let statement = txn.begin_statement().expect("statement");
        let look = || [7, 8].map(|a| rows_by_a(&statement, &t, a).len());
        let first = look();
        assert!(first == [1, 0] || first == [0, 1], "{first:?}");
        assert_eq!(look(), first);
        updater.join().expect("no panic");
        sweeper.join().expect("no panic");
        assert_eq!(look(), first);
        drop(statement);
        txn.rollback();
        db.merge_due(false).expect("a turn");
        let now = run(&db, |s| Ok([7, 8].map(|a| rows_by_a(s, &t, a).len())));
        assert_eq!(now.expect("reads"), [1, 0]);
        assert_eq!(entries(&db, "t_a"), 1);
        assert_undamaged(&db);
    });
}

/// A row comes back to a key that it had while a walk has that key's entry left out.
#[test]
fn a_row_that_comes_back_is_not_left_out() {
    explore(|| {
        let db = with_rows(&[index("t_a", vec![part(1)])], &[(1, 7), (2, 7), (3, 7)]);
        let set_a = |k: i64, a: i64| {
            let (db, set) = (db.clone(), [(ColumnId(1), Value::BigInt(a))]);
            move || {
                run_again(&db, |s, t| s.point_update(t, 0, &[Value::BigInt(k)], &set))
                    .expect("update")
            }
        };
        (1..=2).for_each(|k| drop(set_a(k, 8)()));
        let learn = {
            let db = db.clone();
            move || {
                run_again(&db, |s, t| {
                    let def = named(t, "t_a");
                    let range = s.index_keys(t, def.id)?.prefix(&[Value::BigInt(7)]);
                    let mut entries = Vec::new();
                    let mut rows = s.index_cursor(t, def.id, &range, Direction::Forward)?;
                    assert!(rows.next_chunk(2, &mut entries)?);
                    let mut gone = GoneEntries::at_least(1);
                    for (key, row) in &entries {
                        gone.note(key, *row, true);
                    }
                    s.leave_out(t, def.id, gone)
                })
                .expect("learned");
            }
        };
        beside(set_a(2, 7), learn);
        let found = run_again(&db, |s, t| {
            let def = named(t, "t_a");
            let range = s.index_keys(t, def.id)?.prefix(&[Value::BigInt(7)]);
            let view = s.view(t)?;
            let mut entries = Vec::new();
            let rows = s.index_cursor(t, def.id, &range, Direction::Forward)?;
            let is_more = rows.as_of(view.ts()).next_chunk(9, &mut entries)?;
            assert!(!is_more);
            let rows: Vec<RowId> = entries.into_iter().map(|(_, row)| row).collect();
            let (_, rows) = view.fetch(&rows, &[ColumnId(0), ColumnId(1)])?;
            Ok(rows.num_rows())
        });
        assert!(found.expect("a walk") >= 2, "rows 2 and 3");
        let rows = run_again(&db, |s, t| Ok(rows_by_a(s, t, 7))).expect("rows");
        assert_eq!(rows.len(), 2);
        assert_undamaged(&db);
    });
}
