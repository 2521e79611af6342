//! Backup, restore and going back with a cache: copies have none, and none is mixed up.

use crate::common::*;
use crate::machine::*;
use std::sync::Arc;
use strandline_device::MemoryDevice;
use strandline_engine::*;

#[test]
fn a_backup_reads_past_the_cache_and_its_copy_has_none() {
    let (machine, wall, db, model) = begin(1);
    assert_right(&db, &model, "original");
    let before = stats(&db);
    let backup: Arc<dyn Device> = Arc::new(MemoryDevice::new());
    db.backup(&backup, &|_| true).expect("backup");
    let after = stats(&db);
    assert_eq!((after.hits, after.misses), (before.hits, before.misses));
    assert!(files(&*backup, CACHE).is_empty());
    // The copy is restored into two directories, beside the original's cache.
    drop(db);
    let restored = Machine::new(2);
    restore(&*backup, &*restored.device(), &|_| true).expect("restore");
    assert!(restored.cache_file().is_none());
    let file = restored.fast.device().create(CACHE).expect("create");
    let original = machine.cache_file().expect("a cache");
    file.write_all_at(&original, 0).expect("write");
    let db = restored.open(&wall).expect("open");
    assert_eq!(
        (stats(&db).hits, stats(&db).replaced),
        (0, 1),
        "of another pair"
    );
    assert_right(&db, &model, "restored");
}

/// A backup of a file that is damaged on the capacity tier is refused, whatever the cache has.
#[test]
fn a_backup_does_not_take_the_cache_for_the_file() {
    let (machine, wall, db, model) = begin(1);
    drop(db);
    warm_up(&machine, &wall, &model);
    let name = files(&*machine.capacity.device(), "chunks-").remove(0);
    let len = machine.capacity.content(&name).expect("a file").len() as u64;
    let (mut refused, mut opened) = (0, 0);
    for at in (0..len).step_by(23) {
        let damaged = machine.copy();
        damaged.capacity.flip_bits(&name, at, 1);
        let db = damaged.open(&wall).expect("open");
        let target: Arc<dyn Device> = Arc::new(MemoryDevice::new());
        opened += 1;
        // A few bytes only fill gaps between blobs.
        if let Err(error) = db.backup(&target, &|_| true) {
            assert_eq!(error.sqlstate(), SqlState::DATA_CORRUPTED, "{error}");
            refused += 1;
        }
    }
    assert!(
        refused > 10 && refused * 5 > opened * 4,
        "{refused} of {opened}"
    );
}

/// A closed database is restored from directories that are read only; its cache stays behind.
#[test]
fn a_closed_database_with_a_cache_is_restored() {
    let (machine, wall, db, model) = begin(1);
    db.close().expect("close");
    drop(db);
    warm_up(&machine, &wall, &model);
    let restored = Machine::new(2);
    let operations = machine.fast.operations();
    restore(&*machine.device(), &*restored.device(), &|_| true).expect("restore");
    assert_eq!(
        machine.fast.operations(),
        operations,
        "the source is only read"
    );
    assert!(restored.cache_file().is_none());
    // The copy has the database's id. The original's cache beside it is of another pair.
    let file = restored.fast.device().create(CACHE).expect("create");
    let original = machine.cache_file().expect("a cache");
    file.write_all_at(&original, 0).expect("write");
    let db = restored.open(&wall).expect("open");
    assert_eq!((stats(&db).hits, stats(&db).replaced), (0, 1));
    assert_right(&db, &model, "restored");
}

/// `check`, `inspect` and `backup` know neither the size of the cache nor the memory of its server.
#[test]
fn a_look_leaves_the_cache_as_it_is() {
    let (machine, wall, db, model) = begin(1);
    db.close().expect("close");
    drop(db);
    warm_up(&machine, &wall, &model);
    let before = machine.cache_file().expect("a cache");
    let looking = Settings {
        only_looks: true,
        ..eager(6)
    };
    let db = open_with(machine.device(), &wall, looking).expect("open");
    assert_eq!(db.check().expect("a check"), Vec::<String>::new());
    let found = stats(&db);
    assert!(found.blocks > 0 && found.replaced == 0, "{found:?}");
    let copy: Arc<dyn Device> = Arc::new(MemoryDevice::new());
    db.backup(&copy, &|_| true).expect("backup");
    drop(db);
    assert!(
        machine.cache_file().as_ref() == Some(&before),
        "it has changed"
    );
    let db = machine.open(&wall).expect("open");
    assert_eq!(stats(&db).blocks, found.blocks);
    assert_right(&db, &model, "looked at");
    assert!(stats(&db).hits > 0);
}

/// A cache of another copy may know other blocks by the numbers of this one's files.
#[test]
fn a_look_removes_a_cache_of_another_copy() {
    let (machine, wall, db, model) = begin(1);
    db.close().expect("close");
    drop(db);
    warm_up(&machine, &wall, &model);
    let (other, _, db, _) = begin(2);
    db.close().expect("close");
    drop(db);
    other.fast.device().remove(CACHE).expect("removed");
    let file = other.fast.device().create(CACHE).expect("create");
    let content = machine.cache_file().expect("a cache");
    file.write_all_at(&content, 0).expect("write");
    let looking = Settings {
        only_looks: true,
        ..eager(6)
    };
    let db = open_with(other.device(), &wall, looking).expect("open");
    assert!(db.block_cache_stats().is_none() && other.cache_file().is_none());
}

/// Going back loads new files from old ones, whose blocks are cached.
#[test]
fn going_back_with_a_cache_gives_the_old_rows() {
    let (machine, wall, db, model) = begin(1);
    assert_right(&db, &model, "before");
    let then = db.stable();
    wall.advance(1_000);
    let mut newer = model.clone();
    set_some(&db, &mut newer, 0..ROWS, 9).expect("update");
    insert_some(&db, &mut newer, 200..220, 9).expect("insert");
    db.checkpoint(true).expect("checkpoint");
    assert_right(&db, &newer, "newer");
    db.rewind(then).expect("rewind");
    assert_right(&db, &model, "gone back");
    db.checkpoint(true).expect("checkpoint");
    assert_right(&db, &model, "gone back");
    drop(db);
    for _ in 0..2 {
        let db = machine.open(&wall).expect("open");
        assert_right(&db, &model, "opened again");
    }
}
