//! Numbers of files that a crash, or an older copy of the database, gives a second time: a block of
//! the earlier file never passes for one of the later.

use crate::common::*;
use crate::machine::*;
use std::sync::Arc;
use strandline_base::ManualClock;
use strandline_engine::*;

/// Gives `machine` the cache's file of another one, durably.
fn put_cache(machine: &Machine, content: &[u8]) {
    let device = machine.fast.device();
    if machine.cache_file().is_some() {
        device.remove(CACHE).expect("removed");
    }
    let file = device.create(CACHE).expect("create");
    file.write_all_at(content, 0).expect("write");
    file.sync().expect("sync");
    device.sync_directory().expect("durable");
}

/// The chunk files and their lengths.
fn chunks(machine: &Machine) -> Vec<(String, usize)> {
    let names = files(&*machine.capacity.device(), "chunks-").into_iter();
    let len = |name: &String| machine.capacity.content(name).expect("a file").len();
    names.map(|name| (name.clone(), len(&name))).collect()
}

const LOADED: std::ops::Range<i64> = 100..160;

/// A load is committed and read, and nothing of it but the cache's writes survives the crash. The
/// next load gets the number of its file.
#[test]
fn a_load_that_a_crash_has_ended_leaves_no_block_for_the_next_one() {
    let (machine, wall, db, model) = begin(1);
    drop(db);
    let before = machine.copy();
    let db = machine.open(&wall).expect("open");
    let mut lost = model.clone();
    load_some(&db, &mut lost, LOADED, 7).expect("load");
    assert_right(&db, &lost, "loaded");
    let refused = stats(&db).refusals;
    assert!(
        refused >= 2,
        "footer and block of a file that may vanish: {refused}"
    );
    drop(db);
    let lost_chunks = chunks(&machine);
    put_cache(&before, &machine.cache_file().expect("a cache"));

    let machine = before;
    let db = machine.open(&wall).expect("open");
    assert!(stats(&db).blocks > 0, "it is the cache of this database");
    let mut model = model;
    load_some(&db, &mut model, LOADED, 8).expect("load");
    assert_eq!(
        chunks(&machine),
        lost_chunks,
        "the same numbers and lengths"
    );
    db.checkpoint(false).expect("durable");
    drop(db);
    let db = machine.open(&wall).expect("open");
    assert_right(&db, &model, "another load under the same number");
    drop(db);
    let db = machine.open(&wall).expect("open");
    assert_right(&db, &model, "and from the cache");
    assert!(stats(&db).hits > 0);
}

/// Loads rows, reads one of them and rolls back.
fn load_and_roll_back(db: &Arc<Db>) {
    let (t, text) = (table(db), wide_text(LOADED.count()));
    let txn = db.begin(TxnOptions::default()).expect("begin");
    let statement = txn.begin_statement().expect("statement");
    let rows: Vec<_> = LOADED.map(|k| (k, Some(7_000 + k), text.clone())).collect();
    let mut load = statement.bulk_insert(&t).expect("load");
    load.append(&batch(&rows)).expect("append");
    load.finish().expect("finish");
    statement.finish().expect("finish");
    let statement = txn.begin_statement().expect("statement");
    let mut out = Vec::new();
    let key = [Value::BigInt(LOADED.start)];
    let found = statement.point_get(&t, 0, &key, &[ColumnId(1)], &mut out);
    assert!(found.expect("its own row"));
    statement.finish().expect("finish");
    let refused = stats(db).refusals;
    assert!(refused >= 1, "a block of a file that may vanish: {refused}");
    txn.rollback();
}

/// The same, but the load was rolled back, and the process went on.
#[test]
fn a_load_that_was_rolled_back_leaves_no_block_for_the_next_one() {
    let (machine, wall, db, mut model) = begin(1);
    load_and_roll_back(&db);
    drop(db);
    let db = machine.open(&wall).expect("open");
    load_some(&db, &mut model, LOADED, 8).expect("load");
    db.checkpoint(false).expect("durable");
    drop(db);
    let db = machine.open(&wall).expect("open");
    assert_right(&db, &model, "loaded again");
}

/// A database whose cache is newer than `older`, a copy of it, after both have loaded other rows.
fn parted() -> (Machine, Arc<ManualClock>, Model, Vec<u8>) {
    let (machine, wall, db, mut model) = begin(1);
    drop(db);
    let (older, mut newer_model) = (machine.copy(), model.clone());
    let db = machine.open(&wall).expect("open");
    load_some(&db, &mut newer_model, LOADED, 7).expect("load");
    db.checkpoint(false).expect("checkpoint");
    assert_right(&db, &newer_model, "newer");
    drop(db);
    let db = older.open(&wall).expect("open");
    // It is not in the manifest yet: the cache that comes now is newer.
    load_some(&db, &mut model, LOADED, 8).expect("load");
    drop(db);
    (older, wall, model, machine.cache_file().expect("a cache"))
}

/// An operator puts an older copy of the database beside its cache.
#[test]
fn a_cache_that_is_newer_than_the_database_is_removed() {
    let (machine, wall, model, newer) = parted();
    put_cache(&machine, &newer);
    let db = machine.open(&wall).expect("open");
    let replaced = stats(&db);
    assert_eq!((replaced.replaced, replaced.hits), (1, 0), "{replaced:?}");
    db.checkpoint(false).expect("the number is in the manifest");
    assert_right(&db, &model, "older");
    drop(db);
    let db = machine.open(&wall).expect("open");
    assert_right(&db, &model, "older, from its own cache");
}

/// A newer cache that cannot be removed keeps the database closed, with a cache and without.
#[test]
fn a_newer_cache_that_cannot_be_removed_refuses_the_opening() {
    let mut refused = 0;
    for is_plain in [false, true] {
        for n in 1..30 {
            let (machine, wall, model, newer) = parted();
            put_cache(&machine, &newer);
            machine.fast.fail_operation(n);
            let opened = match is_plain {
                true => machine.open_plain(&wall),
                false => machine.open(&wall),
            };
            if let Ok(db) = opened {
                // The checkpoint takes the number that the cache knows into the manifest.
                let _ = db.checkpoint(true);
                assert!(machine.cache_file() != Some(newer), "operation {n}");
            } else if machine.cache_file().is_some() {
                refused += 1;
            }
            for seed in [0, 1, n] {
                let machine = machine.after_crash(seed);
                let db = machine.open(&wall).expect("open");
                db.checkpoint(true).expect("checkpoint");
                assert_right(&db, &model, &format!("operation {n}, outcome {seed}"));
                drop(db);
                let db = machine.open(&wall).expect("open");
                assert_right(&db, &model, "and once more");
            }
        }
    }
    assert!(refused > 1);
}

/// Files that merges replace while the cache has their blocks: they are forgotten.
#[test]
fn blocks_of_removed_files_leave_the_cache() {
    let (machine, wall, db, mut model) = begin(1);
    assert_right(&db, &model, "read");
    let before = stats(&db);
    assert!(before.blocks > 0);
    set_some(&db, &mut model, 0..ROWS, 5).expect("update");
    db.checkpoint(true).expect("merge");
    assert_right(&db, &model, "merged");
    drop(db);
    let db = machine.open(&wall).expect("open");
    set_some(&db, &mut model, 0..ROWS, 6).expect("update");
    assert_right(&db, &model, "in tails");
    let kept = stats(&db).blocks;
    db.checkpoint(true).expect("merge");
    let after = stats(&db);
    assert!(after.forgotten > 0 && after.blocks < kept, "{after:?}");
    assert_right(&db, &model, "merged again");
}

/// A cache that is turned off is gone, and begins anew.
#[test]
fn a_cache_that_is_turned_off_is_removed() {
    let (machine, wall, db, mut model) = begin(1);
    drop(db);
    warm_up(&machine, &wall, &model);
    assert!(machine.cache_file().is_some());
    let db = machine.open_plain(&wall).expect("open");
    assert!(db.block_cache_stats().is_none() && machine.cache_file().is_none());
    set_some(&db, &mut model, 0..ROWS, 5).expect("update");
    db.checkpoint(true).expect("checkpoint");
    assert_right(&db, &model, "without a cache");
    drop(db);
    let db = machine.after_crash(0).open(&wall).expect("open");
    assert_eq!(stats(&db).hits, 0);
    assert_right(&db, &model, "with a new one");
}
