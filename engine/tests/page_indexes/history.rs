//! Moments whose entries a sweep has removed are not offered after a crash, also if the history is
//! longer by then.

use crate::common::*;
use crate::support::*;
use std::sync::Arc;
use strandline_device::MemoryDevice;
use strandline_engine::catalog::HistoryPolicy;
use strandline_engine::*;

const SECOND: u64 = 1_000_000;
const ROWS: i64 = 20;

/// Rows that were changed and deleted after the moment that is returned, a checkpoint, and a sweep
/// behind it that has removed the entries of that moment.
fn swept() -> (World, CommitTs) {
    let (device, clock) = (Arc::new(MemoryDevice::new()), clock());
    let db = open_eager(device.clone(), &clock, 6).expect("open");
    create_table(&db, HistoryPolicy::For(100 * SECOND));
    create_alone(&db, &index("t_a", vec![part(1)])).expect("create");
    for k in 0..ROWS {
        insert(&db, &row(k, k, "x"));
    }
    let moment = db.stable();
    clock.advance(SECOND);
    let t = table(&db);
    let changed = run(&db, |s| {
        for k in 0..ROWS {
            let (key, set) = ([Value::BigInt(k)], [(ColumnId(1), Value::BigInt(100 + k))]);
            match k % 4 {
                0 => s.point_delete(&t, 0, &key)?,
                _ => s.point_update(&t, 0, &key, &set)?,
            };
        }
        Ok(())
    });
    changed.expect("change");
    db.checkpoint(true).expect("checkpoint");
    assert_eq!(entries(&db, "t_a"), 2 * ROWS as usize - 5, "kept");
    let checkpoints = counter(&db, "checkpoints");
    clock.advance(200 * SECOND);
    for _ in 0..3 {
        clock.advance(SECOND);
        db.merge_due(false).expect("a turn");
    }
    assert_eq!(entries(&db, "t_a"), ROWS as usize - 5, "swept");
    assert_eq!(counter(&db, "checkpoints"), checkpoints, "behind it");
    (World { device, clock, db }, moment)
}

/// The history is as long as can be, and the changes of the pages are durable with that.
fn keep_everything(world: &World) {
    alter(&world.db, |t| t.history = HistoryPolicy::Forever);
}

fn assert_not_offered(world: &World, moment: CommitTs, what: &str) {
    let t = table(&world.db);
    let view = run(&world.db, |s| s.view_as_of(&t, moment).map(|_| ()));
    let error = view.expect_err(what);
    assert_eq!(
        error.sqlstate(),
        SqlState::SNAPSHOT_TOO_OLD,
        "{what}: {error}"
    );
    // What is offered is whole.
    run(&world.db, |s| {
        let now = world.db.stable();
        let (view, rows) = (s.view_as_of(&t, now)?, scanned(s, &t));
        assert_eq!(rows.len(), ROWS as usize - 5, "{what}");
        assert_indexes_agree(s, &view, &t, &rows, what);
        Ok(())
    })
    .expect("now");
}

#[test]
fn moments_of_removed_entries_are_not_offered_after_a_crash() {
    let (world, moment) = swept();
    keep_everything(&world);
    assert_not_offered(&world, moment, "before the crash");
    let world = world.reopen();
    assert_not_offered(&world, moment, "after the crash");
    let world = world.reopen();
    assert_not_offered(&world, moment, "after two");
}

/// The checkpoint has nothing to write of the table, and cuts the log.
#[test]
fn nor_after_a_checkpoint_has_cut_the_log() {
    let (world, moment) = swept();
    keep_everything(&world);
    for _ in 0..2 {
        world.db.checkpoint(false).expect("checkpoint");
    }
    let mut world = world.reopen();
    for what in ["opened again", "and again"] {
        assert_not_offered(&world, moment, what);
        world.db.checkpoint(true).expect("checkpoint");
        world.db.close().expect("close");
        world = world.reopen();
    }
}
