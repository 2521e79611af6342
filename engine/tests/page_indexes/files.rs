//! The files of indexes: one for each index, kept over openings, removed with it; the log is
//! cut beside them.

use crate::common::*;
use crate::support::*;
use std::collections::BTreeSet;
use std::sync::Arc;
use strandline_device::{Device, MemoryDevice};
use strandline_engine::catalog::index::{IndexDef, IndexStorage};
use strandline_engine::catalog::{HistoryPolicy, KeyDef, TableDef};
use strandline_engine::*;

/// How the names of the files begin.
const PREFIX: &str = match crate::STORAGE {
    IndexStorage::Levels => "levels-",
    _ => "pages-",
};

/// The name of a file.
pub fn file_name(number: u32) -> String {
    format!("{PREFIX}{number:08x}")
}

/// The files of indexes on a device, without their images.
pub fn page_files(device: &dyn Device) -> BTreeSet<String> {
    let names = device.list().expect("names").into_iter();
    let files = names.filter(|name| name.starts_with(PREFIX));
    let base = |name: String| name.split("-image").next().expect("a name").to_string();
    files.map(base).collect()
}

/// The files that the indexes of table `t` name.
pub fn named_files(db: &Db) -> BTreeSet<String> {
    let t = table(db);
    let files = t.readable_indexes().filter_map(|def| def.file_number);
    files.map(file_name).collect()
}

fn key() -> KeyDef {
    KeyDef::new("t_ak_key", false, vec![ColumnId(1), ColumnId(0)])
        .with_ordered_index(crate::STORAGE)
}

/// A table with an index, an ordered key and rows.
fn world() -> World {
    let world = World::new(HistoryPolicy::None);
    create_alone(&world.db, &index("t_a", vec![part(1)])).expect("create");
    alter(&world.db, |t| t.keys.push(key()));
    for k in 0..50 {
        insert(&world.db, &row(k, k % 7, "x"));
    }
    world
}

fn update_all(db: &Arc<Db>, to: i64) {
    let t = table(db);
    let updated = run(db, |s| {
        for k in 0..50 {
            let set = [(ColumnId(1), Value::BigInt(to + k % 3))];
            s.point_update(&t, 0, &[Value::BigInt(k)], &set)?;
        }
        Ok(())
    });
    updated.expect("update");
}

#[test]
fn files_are_kept_over_openings() {
    let mut world = world();
    let named = named_files(&world.db);
    assert_eq!(named.len(), 2);
    for round in 0..4 {
        let what = format!("opening {round}");
        assert_eq!(named_files(&world.db), named, "{what}");
        assert_eq!(page_files(&*world.device), named, "{what}");
        assert_sound(&world.db, &what);
        // Replayed from the log, and as of a checkpoint.
        if round % 2 == 1 {
            world.db.checkpoint(round == 3).expect("checkpoint");
        }
        update_all(&world.db, 100 * round);
        world = world.reopen();
    }
    // What rows have left goes, although the openings have forgotten the updates.
    world.db.checkpoint(true).expect("checkpoint");
    world.db.checkpoint(true).expect("the sweep");
    let world = world.reopen();
    assert_eq!(
        world.db.check().expect("counts the entries"),
        Vec::<String>::new()
    );
    assert_eq!(entries(&world.db, "t_a"), 50);
    assert_sound(&world.db, "swept");
}

#[test]
fn opening_replays_pages_and_builds_nothing() {
    let world = world();
    world.db.checkpoint(true).expect("checkpoint");
    world.db.close().expect("close");
    let ends = |world: &World| counter(&world.db, "log_bytes");
    let before = ends(&world);
    let world = world.reopen();
    assert_eq!(ends(&world), before, "a build would be in the log");
    assert_eq!(world.db.recovery().entered_rows, 0);
    assert_sound(&world.db, "opened again");
}

#[test]
fn a_dropped_index_and_a_rolled_back_one_leave_no_file() {
    let world = world();
    let (db, device) = (&world.db, &*world.device);
    let gone = named(&table(db), "t_a").file_number;
    alter(db, |t| drop_index(t, "t_a"));
    assert_eq!(page_files(device).len(), 2, "until nobody uses it");
    for _ in 0..2 {
        db.checkpoint(true).expect("checkpoint");
    }
    assert_eq!(page_files(device), named_files(db));
    let txn = db.begin(TxnOptions::default()).expect("begin");
    create_in(&txn, &index("undone", vec![part(2)])).expect("create");
    assert_eq!(page_files(device).len(), 2);
    db.checkpoint(true)
        .expect("a checkpoint during the transaction");
    assert_eq!(page_files(device).len(), 2);
    txn.rollback();
    db.checkpoint(true).expect("checkpoint");
    assert_eq!(page_files(device), named_files(db));
    // The number is not used again.
    create_online(db, &index("t_a", vec![part(1)])).expect("create");
    assert!(named(&table(db), "t_a").file_number > gone);
    assert_sound(db, "created again");
    // A dropped table's files go with it.
    let txn = db.begin(TxnOptions::default()).expect("begin");
    let dropped = txn.change_catalog(&mut |catalog| {
        let id = catalog.table("public", "t").expect("t").id;
        catalog.tables.remove(&id);
        Ok(())
    });
    dropped.expect("drop");
    txn.commit().expect("commit");
    for _ in 0..2 {
        db.checkpoint(true).expect("checkpoint");
    }
    assert_eq!(page_files(device), BTreeSet::new());
}

#[test]
fn numbers_are_not_used_again_after_an_opening() {
    let mut world = world();
    let mut last = None;
    for _ in 0..3 {
        create_alone(&world.db, &index("more", vec![part(2)])).expect("create");
        let file = named(&table(&world.db), "more").file_number;
        assert!(file > last, "{file:?} after {last:?}");
        last = file;
        alter(&world.db, |t| drop_index(t, "more"));
        world.db.checkpoint(true).expect("checkpoint");
        world = world.reopen();
        assert_eq!(page_files(&*world.device), named_files(&world.db));
    }
}

#[test]
fn orphans_go_when_the_database_is_opened_and_other_files_stay() {
    let world = world();
    let others = [
        "ssd-cache",
        "ssd-cache-directory",
        "ssd-cache-marker",
        &format!("{PREFIX}1"),
    ];
    for name in others.iter().chain(&[&*file_name(0xff)]) {
        world.device.create(name).expect("a file");
    }
    let world = world.reopen();
    assert_eq!(
        page_files(&*world.device).len(),
        3,
        "with a name that is none"
    );
    let names = world.device.list().expect("names");
    assert!(others.iter().all(|name| names.iter().any(|n| n == name)));
    create_alone(&world.db, &index("t_b", vec![part(2)])).expect("create");
    assert!(named(&table(&world.db), "t_b").file_number > Some(0xff));
}

#[test]
fn the_log_is_cut_beside_page_files() {
    let world = world();
    let segments = || {
        let names = world.device.list().expect("names").into_iter();
        names.filter(|name| name.starts_with("wal-")).count()
    };
    // Indexes in levels log nothing.
    let updates = match crate::STORAGE {
        IndexStorage::Levels => 50,
        _ => 1,
    };
    let mut most = 0;
    for round in 0..40 {
        for step in 0..updates {
            update_all(&world.db, (round * updates + step) * 10);
        }
        world.db.checkpoint(round % 3 == 0).expect("checkpoint");
        most = most.max(segments());
    }
    assert!(most <= 4, "{most} segments of 64 KiB");
    assert!(counter(&world.db, "log_bytes") > 8 << 16);
    assert_sound(&world.reopen().db, "opened again");
}

/// The definition of a key that goes on or comes back names a file with every entry.
#[test]
fn keys_that_are_replaced_and_brought_back_keep_their_entries() {
    let world = world();
    let before = named(&table(&world.db), "t_ak_key").file_number;
    let nulls = KeyDef {
        nulls_not_distinct: true,
        ..KeyDef::new("nulls", false, key().columns)
    };
    for drops in [false, true] {
        let txn = world.db.begin(TxnOptions::default()).expect("begin");
        let savepoint = txn.savepoint();
        alter_in(&txn, |t| {
            if drops {
                t.keys.retain(|key| key.name != "t_ak_key");
            }
            t.keys
                .push(nulls.clone().with_ordered_index(crate::STORAGE));
        });
        let t = txn.next_catalog().table("public", "t").expect("t").clone();
        assert_ne!(named(&t, "nulls").file_number, before);
        let statement = txn.begin_statement().expect("statement");
        statement
            .point_insert(&t, &row(900, 9, "y"))
            .expect("insert");
        statement.finish().expect("no duplicate");
        match drops {
            true => txn.rollback(),
            false => {
                txn.rollback_to(&savepoint).expect("back");
                txn.commit().expect("commit");
            }
        }
        assert_eq!(named(&table(&world.db), "t_ak_key").file_number, before);
        insert(&world.db, &row(100 + i64::from(drops), 1, "z"));
        assert_sound(&world.db, "brought back");
    }
    let world = world.reopen();
    assert_eq!(named(&table(&world.db), "t_ak_key").file_number, before);
    assert_sound(&world.db, "brought back, opened again");
    alter(&world.db, |t| t.keys.push(nulls.clone()));
    let t = table(&world.db);
    assert_ne!(named(&t, "t_ak_key").file_number, before, "replaced");
    insert(&world.db, &row(200, 1, "z"));
    let world = world.reopen();
    assert_sound(&world.db, "replaced, opened again");
    // The index of a key that remains goes on in memory, and is built at the next opening.
    alter(&world.db, |t| t.keys.retain(|key| key.ordered.is_none()));
    insert(&world.db, &row(201, 1, "z"));
    world.db.checkpoint(true).expect("checkpoint");
    let world = world.reopen();
    assert_eq!(page_files(&*world.device), named_files(&world.db));
    assert_sound(&world.db, "in memory");
}

/// REINDEX gives an index a new number, also that of a key.
#[test]
fn a_new_number_gets_a_new_file() {
    let world = world();
    let before = named_files(&world.db);
    alter(&world.db, |t| {
        let next = t.next_index;
        let renew = |def: &mut Arc<IndexDef>, at| {
            Arc::make_mut(def).id = strandline_engine::catalog::index::IndexId(next + at);
        };
        t.indexes.iter_mut().for_each(|def| renew(def, 0));
        let keys = t.keys.iter_mut().filter_map(|key| key.ordered.as_mut());
        keys.for_each(|def| renew(def, 1));
        t.next_index += 2;
    });
    assert!(named_files(&world.db).is_disjoint(&before));
    assert_sound(&world.db, "built again");
    let world = world.reopen();
    assert_eq!(page_files(&*world.device), named_files(&world.db));
    assert_sound(&world.db, "opened again");
}

#[test]
fn a_backup_has_no_page_files_and_its_opening_builds_them() {
    let world = world();
    let copy = Arc::new(MemoryDevice::new());
    let target: Arc<dyn Device> = copy.clone();
    world.db.backup(&target, &|_| true).expect("backup");
    assert_eq!(page_files(&*copy), BTreeSet::new());
    let mut clone = World {
        device: copy,
        clock: world.clock.clone(),
        db: open(target, &world.clock).expect("open the copy"),
    };
    for what in ["the copy", "the copy, opened again"] {
        assert_eq!(named_files(&clone.db).len(), 2, "{what}");
        assert_eq!(page_files(&*clone.device), named_files(&clone.db), "{what}");
        assert_sound(&clone.db, what);
        clone = clone.reopen();
    }
    assert_sound(&world.db, "the source");
}

/// Definitions of indexes in memory are as they were.
#[test]
fn a_database_without_page_files_names_none() {
    let world = World::new(HistoryPolicy::None);
    let def = IndexDef {
        storage: Default::default(),
        ..index("t_a", vec![part(1)])
    };
    create_alone(&world.db, &def).expect("create");
    world.db.checkpoint(true).expect("checkpoint");
    let text = serde_json::to_string(&*table(&world.db)).expect("JSON");
    assert!(
        !text.contains("storage\":\"") && !text.contains("page_file"),
        "{text}"
    );
    let read: TableDef = serde_json::from_str(&text).expect("a definition");
    assert!(read == *table(&world.db));
    let manifest = world.device.list().expect("names");
    let manifest = manifest.iter().find(|name| name.starts_with("manifest"));
    let file = world
        .device
        .open(manifest.expect("a manifest"))
        .expect("open");
    let mut bytes = vec![0; file.len().expect("length") as usize];
    file.read_exact_at(&mut bytes, 0).expect("read");
    assert!(!String::from_utf8_lossy(&bytes).contains("index_files"));
}
