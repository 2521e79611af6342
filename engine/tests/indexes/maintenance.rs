//! Entries that nobody needs go; writes touch the indexes whose columns they change.

use crate::common::*;
use crate::support::*;
use std::sync::Arc;
use strandline_base::rng::Rng;
use strandline_device::MemoryDevice;
use strandline_engine::catalog::index::IndexStorage;
use strandline_engine::catalog::{HistoryPolicy, KeyDef, TableDef};
use strandline_engine::*;

const SECOND: u64 = 1_000_000;

fn world(history: HistoryPolicy) -> World {
    let (device, clock) = (std::sync::Arc::new(MemoryDevice::new()), clock());
    let db = open_eager(device.clone(), &clock, 6).expect("open");
    create_table(&db, history);
    World { device, clock, db }
}

fn update(world: &World, k: i64, column: u32, value: Value) {
    let t = table(&world.db);
    let set = [(ColumnId(column), value)];
    let done = run(&world.db, |s| {
        s.point_update(&t, 0, &[Value::BigInt(k)], &set)
    });
    assert!(done.expect("update"));
}

/// What the background thread does, some turns of it with nothing else to do.
fn idle(world: &World) {
    for _ in 0..3 {
        world.clock.advance(SECOND);
        world.db.merge_due(false).expect("a turn");
    }
}

#[test]
fn a_hot_column_does_not_bloat_its_index() {
    let world = world(HistoryPolicy::None);
    create_alone(&world.db, &index("t_a", vec![part(1)])).expect("create");
    for k in 0..20 {
        insert(&world.db, &row(k, k, "x"));
    }
    for round in 0..60 {
        for k in 0..20 {
            update(&world, k, 1, Value::BigInt(1000 + round * 20 + k));
        }
        idle(&world);
        let entries = entries(&world.db, "t_a");
        assert!(entries <= 20 + 20 / 4, "{entries} in round {round}");
    }
    let t = table(&world.db);
    run(&world.db, |s| {
        for k in 0..20 {
            assert!(s.point_delete(&t, 0, &[Value::BigInt(k)])?);
        }
        Ok(())
    })
    .expect("delete");
    world.db.checkpoint(true).expect("checkpoint");
    idle(&world);
    assert_eq!(entries(&world.db, "t_a"), 0);
}

#[test]
fn old_keys_stay_as_long_as_they_are_kept() {
    let world = world(HistoryPolicy::For(100 * SECOND));
    create_alone(&world.db, &index("t_a", vec![part(1)])).expect("create");
    for k in 0..20 {
        insert(&world.db, &row(k, k, "x"));
    }
    for k in 0..20 {
        update(&world, k, 1, Value::BigInt(100 + k));
    }
    idle(&world);
    assert_eq!(entries(&world.db, "t_a"), 40, "kept for the history");
    world.clock.advance(100 * SECOND);
    idle(&world);
    assert_eq!(entries(&world.db, "t_a"), 20);
}

#[test]
fn a_dropped_index_goes_when_nobody_goes_by_it() {
    let world = world(HistoryPolicy::None);
    create_alone(&world.db, &index("t_a", vec![part(1)])).expect("create");
    insert(&world.db, &row(1, 1, "x"));
    let old = world.db.begin(TxnOptions {
        isolation: Isolation::Snapshot,
        ..TxnOptions::default()
    });
    let old = old.expect("begin").begin_statement().expect("statement");
    let then = table(&world.db);
    alter(&world.db, |table| drop_index(table, "t_a"));
    insert(&world.db, &row(2, 1, "x"));
    idle(&world);
    let rows = scanned(&old, &then);
    assert_eq!(rows.len(), 1);
    let view = old.view(&then).expect("view");
    assert_indexes_agree(&old, &view, &then, &rows, "an old snapshot");
    assert!(old.has_index(&then, named(&then, "t_a").id));
    assert_eq!(counter(&world.db, "index_entries"), 1);
    drop((old, view));
    idle(&world);
    assert_eq!(counter(&world.db, "index_entries"), 0);
}

#[test]
fn the_index_of_a_dropped_constraint_goes_when_nobody_goes_by_it() {
    let world = world(HistoryPolicy::None);
    let key = KeyDef::new("t_a_key", false, vec![ColumnId(1)]);
    alter(&world.db, |table| table.keys.push(key.clone()));
    insert(&world.db, &row(1, 1, "x"));
    let options = TxnOptions {
        isolation: Isolation::Snapshot,
        ..TxnOptions::default()
    };
    let old = world.db.begin(options).expect("begin").begin_statement();
    let old = old.expect("statement");
    let then = table(&world.db);
    let drop_key = |table: &mut TableDef| table.keys.retain(|key| key.primary);
    alter(&world.db, drop_key);
    insert(&world.db, &row(2, 1, "x"));
    idle(&world);
    let (mut values, one) = (Vec::new(), [Value::BigInt(1)]);
    let found = old.point_get(&then, 1, &one, &[ColumnId(0)], &mut values);
    assert!(found.expect("an old snapshot") && values == one);
    assert_eq!(counter(&world.db, "key_entries"), 3);
    drop(old);
    idle(&world);
    assert_eq!(counter(&world.db, "key_entries"), 2);
    // A constraint that is rolled back with its transaction leaves none either, and one that is
    // there again has an index of its own.
    let txn = world.db.begin(TxnOptions::default()).expect("begin");
    let b = KeyDef::new("t_b_key", false, vec![ColumnId(0), ColumnId(2)]);
    alter_in(&txn, |table| table.keys.push(b.clone()));
    txn.rollback();
    idle(&world);
    assert_eq!(counter(&world.db, "key_entries"), 2);
    let over_both = KeyDef::new("t_a_key", false, vec![ColumnId(1), ColumnId(0)]);
    alter(&world.db, |table| table.keys.push(over_both.clone()));
    idle(&world);
    assert_eq!(counter(&world.db, "key_entries"), 4);
    assert_eq!(world.db.check().expect("check"), Vec::<String>::new());
}

/// Rows updated by far more statements than are listed one by one: their old entries go, and the
/// memory that remembers them is counted.
#[test]
fn entries_go_after_more_updates_than_are_listed() {
    let world = world(HistoryPolicy::None);
    create_alone(&world.db, &index("t_a", vec![part(1)])).expect("create");
    for k in 0..10 {
        insert(&world.db, &row(k, k, "x"));
    }
    // An old snapshot keeps every version.
    let options = TxnOptions {
        isolation: Isolation::Snapshot,
        ..TxnOptions::default()
    };
    let old = world.db.begin(options).expect("begin").begin_statement();
    let old = old.expect("statement");
    let t = table(&world.db);
    for _ in 0..70 {
        let updated = run(&world.db, |s| {
            for n in 0..1_000 {
                let set = [(ColumnId(1), Value::BigInt(1 + n / 10 % 2))];
                s.point_update(&t, 0, &[Value::BigInt(n % 10)], &set)?;
            }
            Ok(())
        });
        updated.expect("update");
    }
    assert!(entries(&world.db, "t_a") > 10);
    assert_eq!(world.db.check().expect("check"), Vec::<String>::new());
    drop(old);
    idle(&world);
    assert_eq!(entries(&world.db, "t_a"), 10);
    assert_eq!(world.db.check().expect("check"), Vec::<String>::new());
}

/// Fifty updates of every row (on pages ten), at random: at every turn of the maintenance, and
/// at the end, the index has at most 1.5 times the entries and bytes of one that is built from the
/// rows.
#[test]
fn an_updated_index_stays_as_small_as_a_fresh_one() {
    const ROWS: i64 = 2_000;
    const UPDATES: u64 = match crate::STORAGE {
        IndexStorage::Memory => 100_000,
        IndexStorage::Pages | IndexStorage::Levels | IndexStorage::Blocks(_) => 20_000,
    };
    /// updates of one transaction, and between two turns
    const STEP: u64 = 250;
    let (device, clock) = (Arc::new(MemoryDevice::new()), clock());
    let db = open(device.clone(), &clock).expect("open");
    create_table(&db, HistoryPolicy::None);
    let world = World { device, clock, db };
    let (db, size) = (&world.db, || {
        let t = table(&world.db);
        let id = named(&t, "t_a").id;
        run(&world.db, |s| s.index_size(&t, id)).expect("size")
    });
    let mut rng = Rng::new(5);
    let mut value = || rng.below(1 << 40) as i64;
    let rows = (0..ROWS).map(|k| (k, Some(value()), String::new()));
    let rows: Vec<_> = rows.collect();
    let (t, on_duplicate) = (table(db), OnInvisibleDuplicate::Violation);
    run(db, |s| s.insert(&t, &batch(&rows), on_duplicate)).expect("insert");
    db.checkpoint(true).expect("checkpoint");
    create_alone(db, &index("t_a", vec![part(1)])).expect("create");
    let (t, fresh) = (table(db), size());
    assert_eq!(fresh.0, ROWS as usize);
    let mut largest = (0, 0);
    for _ in 0..UPDATES / STEP {
        let updated = run(db, |s| {
            for _ in 0..STEP {
                let key = Value::BigInt(value() % ROWS);
                let set = [(ColumnId(1), Value::BigInt(value()))];
                assert!(s.point_update(&t, 0, &[key], &set)?);
            }
            Ok(())
        });
        updated.expect("update");
        world.clock.advance(SECOND);
        db.merge_due(false).expect("a turn");
        let (entries, bytes) = size();
        largest = (entries.max(largest.0), bytes.max(largest.1));
    }
    // A page file grows by eight pages at a time.
    let step = match crate::STORAGE {
        IndexStorage::Memory => 0,
        IndexStorage::Pages => 8 * 8192,
        // LIDBlocks have a file of their own.
        IndexStorage::Blocks(_) => 2 * 8 * 8192,
        // Two images, and the blocks of levels that are being replaced.
        IndexStorage::Levels => 1 << 20,
    };
    for (is, built) in [(largest.0, fresh.0), (largest.1, fresh.1 + step)] {
        assert!(is * 2 <= built * 3, "{largest:?}, built {fresh:?}");
    }
    assert_eq!(db.check().expect("check"), Vec::<String>::new());
}

#[test]
fn an_update_touches_the_indexes_of_its_columns_only() {
    for indexes in [1, 8, 16] {
        let world = world(HistoryPolicy::Forever);
        alter(&world.db, |table| {
            for _ in 0..16 {
                let name = format!("c{}", table.next_column);
                add_column(table, &name, SqlType::BigInt, Value::Null);
            }
        });
        for c in 0..indexes {
            let def = index(&format!("t_c{c}"), vec![part(3 + c)]);
            create_alone(&world.db, &def).expect("create");
        }
        let t = table(&world.db);
        let columns = t.columns.len();
        run(&world.db, |s| {
            let row: Vec<Value> = (0..columns as i64).map(Value::BigInt).collect();
            let row = row.iter().enumerate();
            let row = row.map(|(at, v)| if at == 2 { Value::from("x") } else { v.clone() });
            s.point_insert(&t, &row.collect::<Vec<_>>())
        })
        .expect("insert");
        let entries = || counter(&world.db, "index_entries");
        assert_eq!(entries(), u64::from(indexes), "an entry in each");
        update(&world, 0, 1, Value::BigInt(7));
        update(&world, 0, 2, Value::from("y"));
        assert_eq!(entries(), u64::from(indexes), "other columns");
        update(&world, 0, 3, Value::BigInt(99));
        assert_eq!(
            entries(),
            u64::from(indexes) + 1,
            "one index has the column"
        );
        world.db.checkpoint(true).expect("merge");
        assert_eq!(entries(), u64::from(indexes) + 1, "merges touch none");
        let deleted = run(&world.db, |s| s.point_delete(&t, 0, &[Value::BigInt(0)]));
        assert!(deleted.expect("delete"));
        assert_eq!(entries(), u64::from(indexes) + 1, "a delete touches none");
    }
}
