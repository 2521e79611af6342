//! Indexes in levels log nothing: an opening adds the entries of the rows that the log has changed
//! since their images, and reads no other rows.

use crate::common::*;
use crate::crash::at_every_point;
use crate::faults::{begin, file_of, insert_some, update_some};
use crate::files::{named_files, page_files};
use crate::machine::{Machine, Place};
use crate::support::*;
use std::sync::Arc;
use strandline_base::ManualClock;
use strandline_engine::catalog::{HistoryPolicy, KeyDef};
use strandline_engine::*;
use strandline_sim::SimDisk;

const ROWS: i64 = 300;

/// Rows of a load: enough for a range of their own.
const LOADED: i64 = 5_000;

fn entered(db: &Db) -> u64 {
    db.recovery().entered_rows
}

/// A table with an index in levels, and an ordered key in levels; all rows are in the images.
fn stored() -> World {
    let world = World::new(HistoryPolicy::None);
    create_alone(&world.db, &index("t_a", vec![part(1)])).expect("create");
    let key = KeyDef::new("t_ak_key", false, vec![ColumnId(1), ColumnId(0)]);
    alter(&world.db, |t| {
        t.keys.push(key.clone().with_ordered_index(crate::STORAGE))
    });
    for k in 0..ROWS {
        insert(&world.db, &row(k, k % 7, "x"));
    }
    world.db.checkpoint(true).expect("checkpoint");
    world
}

#[test]
fn only_rows_of_later_commits_are_entered_again() {
    let mut world = stored();
    let named = named_files(&world.db);
    world = world.reopen();
    assert_eq!(entered(&world.db), 0, "nothing was committed since");
    set(&world.db, 10..14, 900).expect("update");
    set(&world.db, 12..15, 901).expect("update");
    for k in 0..3 {
        insert(&world.db, &row(ROWS + k, 902, "new"));
    }
    // Without a checkpoint each opening enters them again, into both indexes.
    for round in 0..3 {
        world = world.reopen();
        assert_eq!(entered(&world.db), 2 * (5 + 3), "opening {round}");
        assert_sound(&world.db, "entered again");
    }
    world.db.checkpoint(false).expect("checkpoint");
    let world = world.reopen();
    assert_eq!(entered(&world.db), 0, "as of the checkpoint");
    assert_eq!(named_files(&world.db), named, "nothing was built");
    assert_sound(&world.db, "as of the checkpoint");
}

/// The versions of a row that the history keeps are found by their keys, whenever they were made.
#[test]
fn all_kept_versions_of_a_noted_row_have_entries() {
    let world = World::new(HistoryPolicy::Forever);
    create_alone(&world.db, &index("t_a", vec![part(1)])).expect("create");
    for k in 0..20 {
        insert(&world.db, &row(k, k, "x"));
    }
    let mut moments = vec![world.db.stable()];
    for round in 1..6 {
        world.clock.advance(1_000);
        set(&world.db, 0..10, 100 * round).expect("update");
        moments.push(world.db.stable());
        if round == 2 {
            world.db.checkpoint(true).expect("checkpoint");
        }
    }
    let world = world.reopen();
    assert_eq!(entered(&world.db), 10);
    let t = table(&world.db);
    run(&world.db, |s| {
        for moment in moments {
            let view = s.view_as_of(&t, moment)?;
            let scan = s.scan_as_of(&t, moment, request())?;
            let rows = sorted(rows_of(&scan, &t));
            assert_eq!(rows.len(), 20);
            assert_indexes_agree(s, &view, &t, &rows, "then");
        }
        Ok(())
    })
    .expect("read");
}

fn load(db: &Arc<Db>, from: i64) {
    let rows = (from..from + LOADED).map(|k| (k, Some(k), format!("{}", k % 10)));
    let loaded = run(db, |s| {
        let mut load = s.bulk_insert(&table(db))?;
        load.append(&batch(&rows.collect::<Vec<_>>()))?;
        load.finish()
    });
    loaded.expect("load");
}

#[test]
fn the_rows_of_a_load_are_entered_again_as_a_range() {
    let world = stored();
    load(&world.db, 10_000);
    let world = world.reopen();
    assert_eq!(entered(&world.db), 2 * LOADED as u64);
    assert_sound(&world.db, "loaded");
    world.db.checkpoint(false).expect("checkpoint");
    let world = world.reopen();
    assert_eq!(entered(&world.db), 0);
    assert_sound(&world.db, "as of the checkpoint");
}

/// A definition that becomes valid has every entry, though no checkpoint has been made since.
#[test]
fn an_index_is_stored_before_its_definition_is_valid() {
    for is_online in [false, true] {
        let world = World::new(HistoryPolicy::None);
        load(&world.db, 0);
        world.db.checkpoint(true).expect("checkpoint");
        let def = index("t_a", vec![part(1)]);
        match is_online {
            true => create_online(&world.db, &def),
            false => create_alone(&world.db, &def),
        }
        .expect("create");
        let named = named_files(&world.db);
        let world = world.reopen();
        assert_eq!(named_files(&world.db), named, "not built again");
        assert_eq!(entered(&world.db), 0);
        assert_eq!(entries(&world.db, "t_a"), LOADED as usize);
        assert_sound(&world.db, "opened");
    }
}

/// Updates and deletes that are not durable, a sweep of the entries that they have made
/// superfluous, and a checkpoint.
fn change_relaxed(db: &Arc<Db>, wall: &ManualClock) -> Result<()> {
    let relaxed = TxnOptions {
        synchronous_commit: false,
        ..TxnOptions::default()
    };
    let txn = db.begin(relaxed)?;
    let statement = txn.begin_statement()?;
    let t = table(db);
    for k in 0..10 {
        let key = [Value::BigInt(k)];
        let set = [(ColumnId(1), Value::BigInt(100 + k))];
        match k % 2 {
            0 => statement.point_delete(&t, 0, &key)?,
            _ => statement.point_update(&t, 0, &key, &set)?,
        };
    }
    statement.finish()?;
    txn.commit()?;
    for _ in 0..3 {
        wall.advance(10_000_000);
        db.merge_due(false)?;
    }
    db.checkpoint(false).map(|_| ())
}

/// An image without an entry is not durable before the change that has made the entry superfluous.
#[test]
fn an_image_is_not_ahead_of_the_log() {
    let begin = |seed| {
        let (disk, wall) = (SimDisk::new(seed), clock());
        let db = open_eager(disk.device(), &wall, 6).expect("open");
        create_table(&db, HistoryPolicy::None);
        create_alone(&db, &index("t_a", vec![part(1)])).expect("create");
        for k in 0..20 {
            insert(&db, &row(k, k, "x"));
        }
        db.checkpoint(true).expect("checkpoint");
        (disk, wall, db)
    };
    at_every_point(begin, change_relaxed, |disk, wall, what| {
        let db = open_eager(disk.device(), wall, 6).expect("open");
        assert_sound(&db, what);
    });
}

/// The newest image is damaged, and the older one lacks entries that the log has no more.
#[test]
fn an_older_image_is_not_taken_for_a_damaged_one() {
    for image in [0, 1] {
        let (disk, wall, db) = begin(3, Place::OneDirectory);
        for round in 0..4 {
            insert_some(&db, 10 * round..10 * round + 10).expect("insert");
            db.checkpoint(true).expect("checkpoint");
        }
        let file = file_of(&db, "t_a");
        db.close().expect("close");
        drop(db);
        let disk = disk.after_crash(0);
        disk.fast.flip_bits(&format!("{file}-image{image}"), 40, 4);
        let db = disk.open(&wall).expect("open");
        assert_sound(&db, "built, or as it was");
        drop(db);
        let db = disk.open(&wall).expect("open");
        assert_eq!(page_files(&*disk.device()), named_files(&db));
        assert_sound(&db, "opened again");
    }
}

/// A table with an index in levels whose run is damaged, the run, and the place of the damage.
fn closed_off() -> (Machine, Arc<ManualClock>, (String, u64)) {
    let (disk, wall, db) = begin(5, Place::OneDirectory);
    insert_some(&db, 0..40).expect("insert");
    db.checkpoint(true).expect("checkpoint");
    update_some(&db, 100).expect("update");
    db.checkpoint(false).expect("checkpoint");
    update_some(&db, 200).expect("in the log");
    insert_some(&db, 40..50).expect("in the log");
    drop(db);
    let disk = disk.after_kill();
    let runs = files(&*disk.device(), "run-");
    for run in runs {
        let bytes = disk.fast.content(&run).expect("a run").len() as u64;
        for at in (0..bytes).step_by(13) {
            let damaged = disk.after_kill();
            damaged.fast.flip_bits(&run, at, 0x10);
            let Ok(db) = damaged.open(&wall) else {
                continue;
            };
            if counter(&db, "tables_unrestored") == 1 {
                drop(db);
                disk.fast.flip_bits(&run, at, 0x10);
                return (disk, wall, (run, at));
            }
        }
    }
    panic!("no damage closes the table off")
}

/// The entries that a closed-off table lacks in its images are not lost with the log.
#[test]
fn a_table_that_could_not_be_restored_has_its_entries_when_it_is() {
    let (disk, wall, (run, at)) = closed_off();
    for _ in 0..2 {
        let db = disk.open(&wall).expect("open");
        for _ in 0..2 {
            db.checkpoint(true).expect("the log is cut");
        }
        db.close().expect("close");
    }
    disk.fast.flip_bits(&run, at, 0x10);
    let db = disk.open(&wall).expect("open");
    assert_sound(&db, "restored");
    drop(db);
    let db = disk.open(&wall).expect("open");
    assert_eq!(page_files(&*disk.device()), named_files(&db));
    assert_sound(&db, "opened again");
}

/// The entry of a transaction that a crash has ended is in the image. It is found, and goes.
#[test]
fn entries_of_ended_transactions_go() {
    let (disk, wall, db) = begin(6, Place::OneDirectory);
    insert_some(&db, 0..20).expect("insert");
    let txn = db.begin(TxnOptions::default()).expect("begin");
    let statement = txn.begin_statement().expect("statement");
    let set = [(ColumnId(1), Value::BigInt(77))];
    let updated = statement.point_update(&table(&db), 0, &[Value::BigInt(3)], &set);
    assert!(updated.expect("update"));
    db.checkpoint(false).expect("with an uncommitted entry");
    let crashed = disk.after_crash(1);
    drop((statement, txn, db));
    let db = crashed.open(&wall).expect("open");
    assert_eq!(entries(&db, "t_a"), 21);
    for _ in 0..50 {
        wall.advance(1_000_000);
        db.merge_due(false).expect("a turn");
    }
    db.checkpoint(true).expect("a sweep");
    assert_eq!(entries(&db, "t_a"), 20);
    assert_sound(&db, "swept");
}
