//! Constraints whose index is ordered: readers walk over it as over a secondary index.

use crate::common::*;
use crate::support::*;
use std::sync::Arc;
use strandline_engine::catalog::index::{IndexId, IndexState, IndexStorage};
use strandline_engine::catalog::{HistoryPolicy, KeyDef, TableDef};
use strandline_engine::*;

fn key(name: &str, columns: &[u32]) -> KeyDef {
    let columns = columns.iter().copied().map(ColumnId).collect();
    KeyDef::new(name, false, columns)
}

fn add(db: &Arc<Db>, key: KeyDef) {
    alter(db, |t| t.keys.push(key.clone()));
}

fn drop_key(db: &Arc<Db>, name: &str) {
    alter(db, |t| t.keys.retain(|key| key.name != name));
}

fn since(t: &TableDef, name: &str) -> CommitTs {
    named(t, name).complete_since
}

#[test]
fn an_ordered_key_keeps_duplicates_out_and_is_walked_over() {
    let world = World::new(HistoryPolicy::None);
    add(
        &world.db,
        key("t_a_key", &[1]).with_ordered_index(crate::STORAGE),
    );
    for k in 1..=5 {
        insert(&world.db, &row(k, 60 - 10 * k, "x"));
    }
    // NULLs are distinct, and have entries: a walk over the index finds their rows.
    for k in [6, 7] {
        insert(&world.db, &[Value::BigInt(k), Value::Null, Value::Null]);
    }
    assert_eq!(entries(&world.db, "t_a_key"), 7);
    let t = table(&world.db);
    let again = run(&world.db, |s| s.point_insert(&t, &row(8, 30, "y"))).expect_err("a duplicate");
    assert_eq!(again.sqlstate(), SqlState::UNIQUE_VIOLATION);
    assert_eq!(again.detail(), Some("Key (a)=(30) already exists."));
    let set = [(ColumnId(1), Value::BigInt(20))];
    let moved = run(&world.db, |s| {
        s.point_update(&t, 0, &[Value::BigInt(6)], &set)
    });
    assert!(moved.is_err(), "from NULL to a key that is there");
    run(&world.db, |s| {
        s.point_update(&t, 0, &[Value::BigInt(4)], &[(ColumnId(1), Value::Null)])
    })
    .expect("to NULL");
    run(&world.db, |s| {
        s.point_update(&t, 0, &[Value::BigInt(6)], &set)
    })
    .expect("free by now");
    assert_sound(&world.db, "before");
    let world = world.reopen();
    assert_sound(&world.db, "reopened");
    let again = run(&world.db, |s| {
        s.point_insert(&table(&world.db), &row(8, 30, "y"))
    });
    assert_eq!(
        again.expect_err("a duplicate").sqlstate(),
        SqlState::UNIQUE_VIOLATION
    );
}

#[test]
fn definitions_of_ordered_keys_have_numbers_and_their_keys_names() {
    let world = World::new(HistoryPolicy::None);
    create_alone(&world.db, &index("t_b", vec![part(2)])).expect("create");
    add(
        &world.db,
        key("t_ak_key", &[1, 0]).with_ordered_index(crate::STORAGE),
    );
    create_alone(&world.db, &index("t_a", vec![part(1)])).expect("create");
    let t = table(&world.db);
    let ids: Vec<IndexId> = t.readable_indexes().map(|def| def.id).collect();
    assert_eq!(
        ids,
        [IndexId(0), IndexId(2), IndexId(1)],
        "secondary ones first"
    );
    assert_eq!(t.next_index, 3);
    alter(&world.db, |t| t.keys[1].name = "other".into());
    let t = table(&world.db);
    let def = named(&t, "other");
    assert_eq!(
        (def.id, def.state, def.unique),
        (IndexId(1), IndexState::Valid, true)
    );
    assert_eq!(t.index(IndexId(1)), Some(def));
    insert(&world.db, &row(1, 1, "x"));
    assert_sound(&world.db, "renamed");
}

#[test]
fn a_key_over_existing_rows_serves_the_moments_since_it_has_been_complete() {
    let world = World::new(HistoryPolicy::Forever);
    // A hash index has no entries of NULLs: an ordered one over the same columns is filled anew.
    add(&world.db, key("hash", &[1, 2]));
    insert(
        &world.db,
        &[Value::BigInt(1), Value::Null, Value::from("x")],
    );
    for k in 2..40 {
        insert(&world.db, &row(k, k % 5 * 100 + k, "x"));
    }
    add(
        &world.db,
        key("first", &[1, 2]).with_ordered_index(crate::STORAGE),
    );
    assert_eq!(entries(&world.db, "first"), 39);
    assert_sound(&world.db, "first");
    // One that goes on with that index is complete since then, whichever is dropped.
    add(
        &world.db,
        key("second", &[1, 2]).with_ordered_index(crate::STORAGE),
    );
    let t = table(&world.db);
    assert_eq!(since(&t, "second"), since(&t, "first"));
    drop_key(&world.db, "first");
    drop_key(&world.db, "second");
    // The order remains; what is known of the index does not.
    let (before, _) = run(&world.db, |s| Ok((s.snapshot_ts(), ()))).expect("a moment");
    add(
        &world.db,
        key("third", &[1, 2]).with_ordered_index(crate::STORAGE),
    );
    // On pages a new key gets a new index, which is filled from the whole history.
    let is_kept = crate::STORAGE == IndexStorage::Memory;
    assert!(!is_kept || since(&table(&world.db), "third") >= before);
    assert_sound(&world.db, "third");
}

#[test]
fn rolled_back_definitions_leave_a_sound_index() {
    let world = World::new(HistoryPolicy::None);
    add(&world.db, key("hash", &[1, 2]));
    insert(&world.db, &row(1, 1, "x"));
    let txn = world.db.begin(TxnOptions::default()).expect("begin");
    txn.change_catalog(&mut |catalog| {
        let mut t = TableDef::clone(catalog.table("public", "t").expect("t"));
        t.keys
            .push(key("ordered", &[1, 2]).with_ordered_index(crate::STORAGE));
        catalog.put_table(t);
        Ok(())
    })
    .expect("a key");
    let statement = txn.begin_statement().expect("statement");
    let t = txn.next_catalog().table("public", "t").expect("t").clone();
    statement.point_insert(&t, &row(2, 2, "y")).expect("insert");
    statement.finish().expect("no duplicate");
    txn.rollback();
    let t = table(&world.db);
    assert_eq!(t.readable_indexes().count(), 0);
    let again = run(&world.db, |s| s.point_insert(&t, &row(3, 1, "x")));
    assert!(again.is_err(), "the hash key's constraint holds");
    insert(&world.db, &row(2, 2, "y"));
    assert_sound(&world.db, "after the rollback");
    // Dropped and brought back.
    add(
        &world.db,
        key("ordered", &[1, 2]).with_ordered_index(crate::STORAGE),
    );
    let txn = world.db.begin(TxnOptions::default()).expect("begin");
    txn.change_catalog(&mut |catalog| {
        let mut t = TableDef::clone(catalog.table("public", "t").expect("t"));
        t.keys.truncate(1);
        catalog.put_table(t);
        Ok(())
    })
    .expect("dropped");
    txn.rollback();
    insert(&world.db, &row(4, 4, "z"));
    assert_sound(&world.db, "brought back");
}

#[test]
fn definitions_without_ordered_keys_are_as_before() {
    let world = World::new(HistoryPolicy::None);
    add(&world.db, key("hash", &[1, 2]));
    let text = serde_json::to_string(&*table(&world.db)).expect("JSON");
    assert!(
        !text.contains("key_index") && !text.contains("ordered"),
        "{text}"
    );
    let read: TableDef = serde_json::from_str(&text).expect("a definition");
    assert!(read == *table(&world.db));
}
