//! Definitions of indexes: uniqueness, transactions, builds.

use crate::common::*;
use crate::support::*;
use strandline_engine::catalog::index::{ConstraintTiming, IndexDef, IndexMethod};
use strandline_engine::catalog::{HistoryPolicy, KeyDef, TableDef};
use strandline_engine::*;

fn code<T>(outcome: Result<T>) -> SqlState {
    outcome.err().expect("an error").sqlstate()
}

#[test]
fn a_unique_index_keeps_duplicates_out() {
    let world = World::new(HistoryPolicy::None);
    create_alone(&world.db, &unique("t_a", vec![part(1)])).expect("create");
    insert(&world.db, &row(1, 10, "x"));
    let t = table(&world.db);
    let again = run(&world.db, |s| s.point_insert(&t, &row(2, 10, "y")));
    let error = again.expect_err("a duplicate");
    assert_eq!(error.sqlstate(), SqlState::UNIQUE_VIOLATION);
    assert_eq!(error.detail(), Some("Key (a)=(10) already exists."));
    insert(&world.db, &row(2, 20, "y"));
    let set = [(ColumnId(1), Value::BigInt(10))];
    let key = [Value::BigInt(2)];
    let moved = run(&world.db, |s| s.point_update(&t, 0, &key, &set));
    assert_eq!(code(moved), SqlState::UNIQUE_VIOLATION);
    // NULLs are distinct; what a deletion leaves is free.
    for k in [3, 4] {
        insert(&world.db, &[Value::BigInt(k), Value::Null, Value::Null]);
    }
    run(&world.db, |s| s.point_delete(&t, 0, &[Value::BigInt(1)])).expect("delete");
    insert(&world.db, &row(5, 10, "z"));
}

#[test]
fn a_unique_index_over_duplicates_is_not_made() {
    let world = World::new(HistoryPolicy::None);
    for k in 0..10 {
        insert(&world.db, &row(k, k % 9, "x"));
    }
    for create in [create_alone, create_online] {
        let error = create(&world.db, &unique("t_a", vec![part(1)])).expect_err("duplicates");
        assert_eq!(error.sqlstate(), SqlState::UNIQUE_VIOLATION);
        assert_eq!(error.message(), "could not create unique index \"t_a\"");
        assert_eq!(error.detail(), Some("Key (a)=(0) is duplicated."));
        assert!(table(&world.db).indexes.is_empty(), "nothing is left");
    }
    assert_eq!(counter(&world.db, "index_entries"), 0);
    let both = unique("t_ab", vec![part(1), part(0)]);
    create_online(&world.db, &both).expect("no duplicates");
}

#[test]
fn nulls_may_be_equal() {
    let world = World::new(HistoryPolicy::None);
    let null = |k: i64| [Value::BigInt(k), Value::Null, Value::from("x")];
    insert(&world.db, &null(1));
    let def = IndexDef {
        nulls_not_distinct: true,
        ..unique("t_a", vec![part(1)])
    };
    create_alone(&world.db, &def).expect("create");
    let t = table(&world.db);
    let again = run(&world.db, |s| s.point_insert(&t, &null(2)));
    assert_eq!(code(again), SqlState::UNIQUE_VIOLATION);
    alter(&world.db, |t| drop_index(t, "t_a"));
    // A constraint over the same column, beside one whose NULLs are distinct.
    insert(&world.db, &null(2));
    let constraint = |name: &str, nulls_not_distinct| KeyDef {
        nulls_not_distinct,
        ..KeyDef::new(name, false, vec![ColumnId(1)])
    };
    alter(&world.db, |t| t.keys.push(constraint("t_a_key", false)));
    insert(&world.db, &null(3));
    let t = table(&world.db);
    run(&world.db, |s| s.delete_keys(&t, &[2, 3])).expect("delete");
    alter(&world.db, |t| t.keys.push(constraint("t_a_key1", true)));
    let t = table(&world.db);
    let again = run(&world.db, |s| s.point_insert(&t, &null(4))).expect_err("a duplicate");
    assert!(again.message().contains("t_a_key1"), "{again}");
    let world = world.reopen();
    let t = table(&world.db);
    let again = run(&world.db, |s| s.point_insert(&t, &null(4)));
    assert_eq!(code(again), SqlState::UNIQUE_VIOLATION);
    // ON CONFLICT finds the row with NULL, a lookup by key does not.
    let keys = batch(&[(0, None, String::new())]).project(&[1]).expect("a");
    let find = |key| run(&world.db, |s| s.find_by_key(&t, key, &keys)).expect("find")[0];
    assert!(find(2).is_some() && find(1).is_none());
    assert_eq!(world.db.check().expect("check"), Vec::<String>::new());
}

trait DeleteKeys {
    fn delete_keys(&self, table: &std::sync::Arc<TableDef>, keys: &[i64]) -> Result<()>;
}

impl DeleteKeys for Statement {
    fn delete_keys(&self, table: &std::sync::Arc<TableDef>, keys: &[i64]) -> Result<()> {
        for k in keys {
            self.point_delete(table, 0, &[Value::BigInt(*k)])?;
        }
        Ok(())
    }
}

#[test]
fn definitions_are_part_of_their_transaction() {
    let world = World::new(HistoryPolicy::None);
    let (db, t) = (&world.db, table(&world.db));
    insert(db, &row(1, 1, "x"));
    let txn = db.begin(TxnOptions::default()).expect("begin");
    let point_insert = |k: i64| {
        let t = txn.next_catalog().table("public", "t").expect("t").clone();
        let statement = txn.begin_statement().expect("statement");
        statement.point_insert(&t, &row(k, k, "y")).expect("insert")
    };
    let first = txn.savepoint();
    create_in(&txn, &index("t_a", vec![part(1)])).expect("create");
    point_insert(2);
    txn.rollback_to(&first).expect("back");
    // The number comes again, for another index.
    create_in(&txn, &index("t_b", vec![part(2)])).expect("create");
    point_insert(3);
    txn.commit().expect("commit");
    let now = table(db);
    assert_eq!(now.indexes.len(), 1);
    assert_eq!(
        now.indexes[0].id,
        strandline_engine::catalog::index::IndexId(0)
    );
    assert_eq!(entries(db, "t_b"), 2);
    // DROP INDEX, and TRUNCATE, that are rolled back.
    let txn = db.begin(TxnOptions::default()).expect("begin");
    alter_in(&txn, |t| drop_index(t, "t_b"));
    let statement = txn.begin_statement().expect("statement");
    let without = txn.catalog().table("public", "t").expect("t").clone();
    statement
        .point_insert(&without, &row(4, 4, "z"))
        .expect("insert");
    txn.rollback();
    let txn = db.begin(TxnOptions::default()).expect("begin");
    txn.change_catalog(&mut |catalog| {
        let mut truncated = TableDef::clone(catalog.table("public", "t").expect("t"));
        truncated.storage = catalog.new_storage_id();
        catalog.put_table(truncated);
        Ok(())
    })
    .expect("truncate");
    txn.rollback();
    assert_eq!(db.check().expect("check"), Vec::<String>::new());
    insert(db, &row(5, 5, "x"));
    assert_eq!(entries(db, "t_b"), 3);
    drop(t);
}

#[test]
fn truncate_and_rewind_keep_the_definitions() {
    let world = World::new(HistoryPolicy::Forever);
    let db = &world.db;
    create_alone(db, &unique("t_a", vec![part(1)])).expect("create");
    for k in 0..10 {
        insert(db, &row(k, k, "x"));
    }
    let before = db.stable();
    world.clock.advance(1000);
    let txn = db.begin(TxnOptions::default()).expect("begin");
    txn.change_catalog(&mut |catalog| {
        let mut truncated = TableDef::clone(catalog.table("public", "t").expect("t"));
        truncated.storage = catalog.new_storage_id();
        catalog.put_table(truncated);
        Ok(())
    })
    .expect("truncate");
    txn.commit().expect("commit");
    insert(db, &row(1, 1, "x"));
    assert_eq!(entries(db, "t_a"), 1);
    db.rewind(before).expect("rewind");
    assert_eq!(entries(db, "t_a"), 10);
    assert_eq!(db.check().expect("check"), Vec::<String>::new());
    let t = table(db);
    let again = run(db, |s| s.point_insert(&t, &row(20, 3, "x")));
    assert_eq!(code(again), SqlState::UNIQUE_VIOLATION);
    let inspected = db.inspect().expect("inspect");
    let mut sections = inspected.sections.iter();
    let section = sections
        .find(|s| s.title == "Indexes of public.t")
        .expect("a section");
    assert_eq!(section.rows[0][..4], ["t_a", "valid", "true", "10"]);
}

#[test]
fn an_index_by_hash_is_refused() {
    let world = World::new(HistoryPolicy::None);
    let def = IndexDef {
        method: IndexMethod::Hash,
        ..index("t_a", vec![part(1)])
    };
    assert_eq!(
        code(create_alone(&world.db, &def)),
        SqlState::FEATURE_NOT_SUPPORTED
    );
}

/// Indexes in memory that leave none for the cache get no further entries; what is there stays. One
/// in a file is built in parts.
#[test]
fn an_index_without_memory_is_refused_unless_it_is_in_a_file() {
    let (device, clock) = (
        std::sync::Arc::new(strandline_device::MemoryDevice::new()),
        clock(),
    );
    let settings = Settings {
        memory_bytes: 16 << 20,
        background_maintenance: false,
        reserve_bytes: 0,
        ..Settings::default()
    };
    let db = Db::open(DbOptions {
        device,
        clock,
        settings,
    });
    let db = db.expect("open");
    create_table(&db, HistoryPolicy::None);
    let t = table(&db);
    let load = |keys: std::ops::Range<i64>| {
        let rows: Vec<_> = keys.map(|k| (k, Some(k), format!("{k:060}"))).collect();
        run(&db, |s| {
            let mut load = s.bulk_insert(&table(&db))?;
            load.append(&batch(&rows))?;
            load.finish()
        })
    };
    load(0..100_000).expect("load");
    let def = index("t_b", vec![part(2)]);
    if !crate::STORAGE.is_memory() {
        create_online(&db, &def).expect("create");
        assert_eq!(entries(&db, "t_b"), 100_000);
        assert_eq!(db.check().expect("check"), Vec::<String>::new());
        return;
    }
    for create in [create_alone, create_online] {
        let error = create(&db, &def).expect_err("too large");
        assert_eq!(error.sqlstate(), SqlState::OUT_OF_MEMORY);
        assert!(
            error
                .hint()
                .is_some_and(|hint| hint.contains("memory_bytes")),
            "{error:?}"
        );
        assert!(table(&db).indexes.is_empty());
    }
    assert_eq!(counter(&db, "index_bytes"), 0, "nothing is left");
    assert!(get(&db, 9_999).is_some());
    drop(t);
}

/// A table whose `a` is unique by a constraint that is checked at `timing`.
fn with_timing(timing: ConstraintTiming) -> World {
    let world = World::new(HistoryPolicy::None);
    alter(&world.db, |t| {
        t.keys.push(KeyDef {
            timing,
            ..KeyDef::new("t_a_key", false, vec![ColumnId(1)])
        });
    });
    for k in 1..=3 {
        insert(&world.db, &row(k, k, "x"));
    }
    world
}

fn set_a(txn: &std::sync::Arc<Transaction>, k: i64, a: i64) -> Result<bool> {
    let t = txn.next_catalog().table("public", "t").expect("t").clone();
    let set = [(ColumnId(1), Value::BigInt(a))];
    let statement = txn.begin_statement()?;
    statement.point_update(&t, 0, &[Value::BigInt(k)], &set)
}

#[test]
fn deferred_uniqueness_is_checked_before_the_commit() {
    let world = with_timing(ConstraintTiming::Deferred);
    let begin = || world.db.begin(TxnOptions::default()).expect("begin");
    // Two values change places, one statement after the other.
    let txn = begin();
    assert!(set_a(&txn, 1, 2).expect("deferred") && set_a(&txn, 2, 1).expect("deferred"));
    txn.commit().expect("no duplicates by now");
    // One that stays is found, and nothing of the transaction is left.
    let txn = begin();
    assert!(set_a(&txn, 3, 1).expect("deferred"));
    assert_eq!(code(txn.commit()), SqlState::UNIQUE_VIOLATION);
    assert_eq!(get(&world.db, 3).expect("a row")[1], Value::BigInt(3));
    // What is rolled back to a savepoint is not checked.
    let txn = begin();
    let savepoint = txn.savepoint();
    assert!(set_a(&txn, 3, 1).expect("deferred"));
    txn.rollback_to(&savepoint).expect("back");
    txn.commit().expect("nothing to check");
    // SET CONSTRAINTS ALL IMMEDIATE checks at once, and from then on.
    let txn = begin();
    assert!(set_a(&txn, 3, 1).expect("deferred"));
    let checked = txn.set_constraints(None, false);
    assert_eq!(code(checked), SqlState::UNIQUE_VIOLATION);
    txn.rollback();
    let txn = begin();
    txn.set_constraints(None, false).expect("nothing to check");
    assert_eq!(code(set_a(&txn, 3, 1)), SqlState::UNIQUE_VIOLATION);
    txn.rollback();
    assert_eq!(world.db.check().expect("check"), Vec::<String>::new());
}

#[test]
fn deferrable_uniqueness_is_deferred_by_name() {
    let world = with_timing(ConstraintTiming::DeferrableImmediate);
    let begin = || world.db.begin(TxnOptions::default()).expect("begin");
    let txn = begin();
    assert_eq!(code(set_a(&txn, 3, 1)), SqlState::UNIQUE_VIOLATION);
    txn.rollback();
    let txn = begin();
    let name = (table(&world.db).id, "t_a_key".to_string());
    txn.set_constraints(Some(&[name]), true)
        .expect("deferrable");
    assert!(set_a(&txn, 3, 1).expect("deferred") && set_a(&txn, 1, 4).expect("free"));
    txn.commit().expect("no duplicates");
}

/// Of two transactions whose checks are deferred the later one to enter the key finds the other.
#[test]
fn deferred_uniqueness_sees_concurrent_writers() {
    let world = with_timing(ConstraintTiming::Deferred);
    let options = TxnOptions {
        lock_timeout: Some(std::time::Duration::from_millis(1)),
        ..TxnOptions::default()
    };
    let begin = || world.db.begin(options.clone()).expect("begin");
    let (first, second) = (begin(), begin());
    assert!(set_a(&first, 1, 9).expect("deferred") && set_a(&second, 2, 9).expect("deferred"));
    // It waits for the first one, which is open; then it fails.
    assert_eq!(code(second.commit()), SqlState::LOCK_NOT_AVAILABLE);
    let third = begin();
    assert!(set_a(&third, 2, 9).expect("deferred"));
    first.commit().expect("nobody was before it");
    assert_eq!(code(third.commit()), SqlState::UNIQUE_VIOLATION);
}

#[test]
fn numbers_of_indexes_end_with_an_error() {
    let world = World::new(HistoryPolicy::None);
    alter(&world.db, |t| t.next_index = u32::MAX - 2);
    create_alone(&world.db, &index("last", vec![part(1)])).expect("create");
    for create in [create_alone, create_online] {
        let refused = create(&world.db, &index("none", vec![part(1)]));
        assert_eq!(code(refused), SqlState::PROGRAM_LIMIT_EXCEEDED);
    }
    assert_eq!(table(&world.db).indexes.len(), 1);
}

/// Keys of an ordered index that are longer than a word are on the heap: an open transaction's
/// memory has them, of inserted and of updated rows.
#[test]
fn long_keys_are_part_of_what_a_transaction_keeps() {
    const ROWS: i64 = 300;
    const KEY_BYTES: u64 = 900;
    let kept = |has_index: bool| {
        let world = World::new(HistoryPolicy::None);
        if has_index {
            create_alone(&world.db, &index("t_b", vec![part(2)])).expect("create");
        }
        let t = table(&world.db);
        let text = |k: i64| format!("{k:0900}");
        let txn = world.db.begin(TxnOptions::default()).expect("begin");
        let statement = || txn.begin_statement().expect("statement");
        let kept = || counter(&world.db, "transaction_bytes");
        let savepoint = txn.savepoint();
        for k in 0..ROWS {
            statement()
                .point_insert(&t, &row(k, k, &text(k)))
                .expect("insert");
        }
        let inserted = kept();
        for k in 0..ROWS {
            let set = [(ColumnId(2), Value::from(text(k + ROWS).as_str()))];
            let key = [Value::BigInt(k)];
            assert!(statement().point_update(&t, 0, &key, &set).expect("update"));
        }
        let updated = kept();
        txn.rollback_to(&savepoint).expect("back");
        assert!(kept() < inserted / 16, "{} of {inserted}", kept());
        txn.rollback();
        assert_eq!(kept(), 0);
        [inserted, updated - inserted]
    };
    for (with, without) in kept(true).into_iter().zip(kept(false)) {
        // The last ones, up to 64 KB, are counted by the next write.
        let least = without + (ROWS as u64 - 80) * KEY_BYTES;
        assert!(with > least, "{with} bytes, {without} without an index");
    }
}
