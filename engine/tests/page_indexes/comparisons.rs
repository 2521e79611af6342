//! The entries of an opened index are compared with their rows range by range, in many turns.

use crate::common::*;
use crate::support::*;
use std::sync::Arc;
use strandline_base::ManualClock;
use strandline_device::MemoryDevice;
use strandline_engine::catalog::HistoryPolicy;
use strandline_engine::*;

/// Of 2 KiB each, so that a range of 1 MiB has 500 of them.
const ROWS: i64 = 1_200;

/// More than the turns of the whole comparison: every range is a part, and a part takes a walk over
/// all entries.
const TURNS_MAX: usize = 300;

fn open_small(device: &Arc<MemoryDevice>, clock: &Arc<ManualClock>) -> Arc<Db> {
    let settings = Settings {
        memory_bytes: Settings::MEMORY_BYTES_MIN,
        comparison_turn_entries: 64,
        merge_pending_records: 1_000_000,
        ..Settings::default()
    };
    open_with(device.clone(), clock, settings).expect("open")
}

fn update(world: &World, k: i64) {
    let t = table(&world.db);
    let set = [(ColumnId(1), Value::BigInt(-1 - k))];
    let updated = run(&world.db, |s| {
        s.point_update(&t, 0, &[Value::BigInt(k)], &set)
    });
    assert!(updated.expect("update"));
}

/// An opened database: rows in several ranges, two indexes. Before the opening a row of each range
/// was updated, and one was deleted; their old entries are there.
fn opened() -> World {
    let (device, clock) = (Arc::new(MemoryDevice::new()), clock());
    let db = open_small(&device, &clock);
    create_table(&db, HistoryPolicy::None);
    create_alone(&db, &index("t_a", vec![part(1), part(0)])).expect("create");
    create_alone(&db, &index("t_ka", vec![part(0), part(1)])).expect("create");
    let rows: Vec<_> = (0..ROWS)
        .map(|k| (k, Some(k % 7), "x".repeat(2048)))
        .collect();
    let loaded = run(&db, |s| {
        let mut load = s.bulk_insert(&table(&db))?;
        load.append(&batch(&rows))?;
        load.finish()
    });
    loaded.expect("load");
    db.checkpoint(true).expect("checkpoint");
    let world = World { device, clock, db };
    (0..ROWS).step_by(400).for_each(|k| update(&world, k));
    let (t, gone) = (table(&world.db), [Value::BigInt(1)]);
    run(&world.db, |s| s.point_delete(&t, 0, &gone)).expect("delete");
    let World { device, clock, db } = world;
    drop(db);
    let db = open_small(&device, &clock);
    World { device, clock, db }
}

fn turns(world: &World, count: usize) {
    for _ in 0..count {
        world.db.merge_due(false).expect("a turn");
    }
}

/// How many rows an index gives, and how many of them are fetched.
fn read(db: &Arc<Db>, name: &str) -> (usize, usize) {
    let t = table(db);
    let def = named(&t, name).clone();
    run(db, |s| {
        let covered = Covered::read(s, (&t, &def), &KeyRange::default());
        Ok(covered.expect("two columns").check(&s.view(&t)?, name))
    })
    .expect("read")
}

#[test]
fn the_rows_of_all_ranges_are_compared_beside_writers() {
    let world = opened();
    let all = ROWS as usize - 1;
    assert_eq!(read(&world.db, "t_a"), (all, all), "not compared");
    turns(&world, 40);
    assert_eq!(
        read(&world.db, "t_a"),
        (all, all),
        "one range is not enough"
    );
    // A row of a range that has been compared, one of a later range, and a new one.
    update(&world, 2);
    update(&world, ROWS - 1);
    insert(&world.db, &row(ROWS, 3, "new"));
    turns(&world, TURNS_MAX);
    for name in ["t_a", "t_ka"] {
        assert_eq!(read(&world.db, name), (all + 1, 3 + 2), "{name}");
    }
    world.clock.advance(1_000_000);
    for _ in 0..2 {
        world.db.checkpoint(true).expect("checkpoint");
    }
    for name in ["t_a", "t_ka"] {
        assert_eq!(read(&world.db, name), (all + 1, 0), "swept {name}");
        assert_eq!(entries(&world.db, name), all + 1, "swept {name}");
    }
    assert_eq!(world.db.check().expect("check"), Vec::<String>::new());
}

/// An index whose comparison has begun is dropped: the other one's begins.
#[test]
fn a_dropped_index_keeps_no_other_from_being_compared() {
    for (dropped, other) in [("t_a", "t_ka"), ("t_ka", "t_a")] {
        let world = opened();
        turns(&world, 10);
        alter(&world.db, |t| drop_index(t, dropped));
        turns(&world, TURNS_MAX);
        assert_eq!(read(&world.db, other), (ROWS as usize - 1, 3), "{other}");
    }
}
