//! Indexes in memory that take more than their share move into levels, and everything else stays as
//! it was.

use crate::common::*;
use crate::crash::at_every_point;
use crate::support::*;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use strandline_base::ManualClock;
use strandline_base::rng::Rng;
use strandline_device::MemoryDevice;
use strandline_engine::catalog::index::{IndexDef, IndexState, IndexStorage};
use strandline_engine::catalog::{HistoryPolicy, KeyDef, KeyIndex};
use strandline_engine::*;
use strandline_sim::SimDisk;

/// Of the whole cache. Indexes in memory may take 9/32 of it: 72 KiB.
const CACHE_BYTES: usize = 256 << 10;

fn settings() -> Settings {
    Settings {
        cache_bytes_max: CACHE_BYTES,
        ..eager(1_000)
    }
}

fn open_small(device: Arc<dyn Device>, clock: &Arc<ManualClock>) -> Arc<Db> {
    open_with(device, clock, settings()).expect("open")
}

/// The table, without rows, whose indexes have little memory.
fn small() -> World {
    let (device, clock) = (Arc::new(MemoryDevice::new()), clock());
    let db = open_small(device.clone(), &clock);
    create_table(&db, HistoryPolicy::None);
    World { device, clock, db }
}

fn reopen(world: World) -> World {
    let World { device, clock, db } = world;
    drop(db);
    let db = open_small(device.clone(), &clock);
    World { device, clock, db }
}

/// Keys that are no sequence, so that a hash index has an entry for each.
fn key(n: i64) -> i64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64)
}

/// Texts that do not begin with the same bytes.
fn text(n: i64) -> String {
    format!("{:016x} text {n:030}", key(n))
}

fn row_of(n: i64) -> [Value; 3] {
    row(key(n), n % 50, &text(n))
}

/// In transactions of few rows: what a transaction keeps is bounded, too. One that meets a move
/// runs again.
fn insert_rows(db: &Arc<Db>, numbers: Range<i64>) -> Result<()> {
    let numbers: Vec<i64> = numbers.collect();
    for some in numbers.chunks(250) {
        let insert = |s: &Arc<Statement>| {
            let t = table(db);
            let mut rows = some.iter().map(|n| row_of(*n));
            rows.try_for_each(|row| s.point_insert(&t, &row).map(|_| ()))
        };
        while let Err(error) = run(db, insert) {
            if error.sqlstate() != SqlState::SERIALIZATION_FAILURE {
                return Err(error);
            }
        }
    }
    Ok(())
}

/// The table's key keeps its hash index.
fn keep_hash(db: &Arc<Db>) {
    alter(db, |t| t.set_key_index(KeyIndex::Hash));
}

/// The storages of the table's key and indexes, by name; memory for a hash index.
fn storages(db: &Db) -> Vec<(String, IndexStorage)> {
    let t = table(db);
    let of_key = |key: &KeyDef| {
        let storage = key.ordered.as_ref().map(|def| def.storage);
        (key.name.clone(), storage.unwrap_or_default())
    };
    let of_index = |def: &Arc<IndexDef>| (def.name.clone(), def.storage);
    let keys = t.keys.iter().map(of_key);
    keys.chain(t.indexes.iter().map(of_index)).collect()
}

fn is_in_levels(db: &Db, name: &str) -> bool {
    storages(db).contains(&(name.into(), IndexStorage::Levels))
}

#[test]
fn the_largest_index_moves_and_is_the_same_index() {
    let world = small();
    let db = &world.db;
    keep_hash(db);
    create_alone(db, &index("t_a", vec![part(1)])).expect("create");
    create_alone(db, &unique("t_b", vec![part(2)])).expect("create");
    insert_rows(db, 0..300).expect("insert");
    assert_eq!(db.move_indexes(), 0, "they have their share");
    insert_rows(db, 300..1_200).expect("insert");
    let old = db.begin(TxnOptions::default()).expect("begin");
    let statement = old.begin_statement().expect("statement");
    let (before, view) = (table(db), statement.view(&table(db)).expect("view"));
    let rows = scanned(&statement, &before);
    let moved = db.move_indexes();
    assert!(moved > 0 && is_in_levels(db, "t_b"), "{:?}", storages(db));
    assert_eq!(counter(db, "indexes_moved"), moved);
    assert_eq!(db.move_indexes(), 0, "the others have their share");
    assert_eq!(storages(db).len(), 3, "{:?}", storages(db));
    assert!(named(&table(db), "t_b").unique);
    insert_rows(db, 1_200..1_300).expect("insert");
    assert_indexes_agree(&statement, &view, &before, &rows, "an old snapshot");
    drop((view, statement));
    old.rollback();
    drop(old);
    let t = table(db);
    let insert = |n: i64| run(db, |s| s.point_insert(&t, &row(key(9_000), 1, &text(n))));
    let refused = insert(7).expect_err("a duplicate");
    assert_eq!(refused.sqlstate(), SqlState::UNIQUE_VIOLATION);
    insert(9_000).expect("another text");
    assert_sound(db, "after the move");
    let world = reopen(world);
    assert!(is_in_levels(&world.db, "t_b"));
    assert_sound(&world.db, "after an opening");
}

#[test]
fn the_index_of_a_key_moves() {
    let world = small();
    let db = &world.db;
    insert_rows(db, 0..5_000).expect("insert");
    let move_one = |n: i64| {
        let set = [(ColumnId(0), Value::BigInt(key(n)))];
        run(db, |s| {
            s.point_update(&table(db), 0, &[Value::BigInt(key(n - 10_000))], &set)
        })
    };
    insert_rows(db, 10_000..10_010).expect("insert");
    assert_eq!(db.move_indexes(), 1);
    assert_eq!(storages(db), [("t_pkey".into(), IndexStorage::Levels)]);
    for n in (0..5_000).step_by(7) {
        let found = get(db, key(n)).expect("a row");
        assert_eq!(found, row_of(n));
        let again = run(db, |s| s.point_insert(&table(db), &row_of(n)));
        let refused = again.expect_err("a duplicate");
        assert_eq!(refused.sqlstate(), SqlState::UNIQUE_VIOLATION);
    }
    let refused = move_one(10_003).expect_err("a duplicate");
    assert_eq!(refused.sqlstate(), SqlState::UNIQUE_VIOLATION);
    assert!(move_one(10_500).expect("a key that is free"));
    let deleted = run(db, |s| {
        s.point_delete(&table(db), 0, &[Value::BigInt(key(9))])
    });
    assert!(deleted.expect("delete"));
    insert_rows(db, 5_000..5_100).expect("insert");
    insert_rows(db, 9..10).expect("a key that is free again");
    assert_sound(db, "after the move");
    db.checkpoint(true).expect("checkpoint");
    insert_rows(db, 5_100..5_200).expect("insert");
    assert_sound(db, "after a checkpoint");
    let world = reopen(world);
    assert_eq!(
        storages(&world.db),
        [("t_pkey".into(), IndexStorage::Levels)]
    );
    assert_sound(&world.db, "after an opening");
    assert_eq!(counter(&world.db, "indexes_moved"), 0);
    assert_eq!(world.db.move_indexes(), 0);
}

#[test]
fn what_was_asked_to_be_in_memory_stays_there() {
    let world = small();
    let db = &world.db;
    keep_hash(db);
    let stays = IndexDef {
        stays_in_memory: true,
        ..index("t_b", vec![part(2)])
    };
    create_alone(db, &stays).expect("create");
    insert_rows(db, 0..1_500).expect("insert");
    assert_eq!(db.move_indexes(), 0);
    // The next one moves as soon as it is worth a file, though others are larger.
    create_alone(db, &index("t_a", vec![part(1)])).expect("create");
    assert_eq!(db.move_indexes(), 1);
    assert!(is_in_levels(db, "t_a") && !is_in_levels(db, "t_b"));
    assert_sound(db, "after the move");
}

/// Writers go on during moves; what they do is in the index that has moved.
#[test]
fn writers_go_on_beside_moves() {
    for seed in 0..4 {
        let world = small();
        let db = &world.db;
        // The key's index moves, or the other one.
        let moves_key = seed % 2 == 0;
        let rows = if moves_key { 4_000 } else { 1_600 };
        if !moves_key {
            create_alone(db, &index("t_b", vec![part(2)])).expect("create");
        }
        insert_rows(db, 0..rows).expect("insert");
        let is_over = AtomicBool::new(false);
        let write = |seed: u64| {
            let (mut rng, t) = (Rng::new(seed), table(db));
            while !is_over.load(Ordering::Acquire) {
                let n = rng.below(rows as u64 + 400) as i64;
                let at = [Value::BigInt(key(n))];
                // Conflicts and duplicates are refused.
                let _ = run(db, |s| match rng.below(4) {
                    0 => s.point_insert(&t, &row_of(n)).map(|_| true),
                    1 => s.point_delete(&t, 0, &at),
                    2 => {
                        let set = [(ColumnId(0), Value::BigInt(key(rows + 400 + n)))];
                        s.point_update(&t, 0, &at, &set)
                    }
                    _ => {
                        let text = Value::from(format!("other {n}").as_str());
                        s.point_update(&t, 0, &at, &[(ColumnId(2), text)])
                    }
                });
            }
        };
        let moved = std::thread::scope(|scope| {
            let writers = [1, 2].map(|n| scope.spawn(move || write(10 * seed + n)));
            let moved = db.move_indexes();
            db.checkpoint(true).expect("checkpoint");
            is_over.store(true, Ordering::Release);
            writers
                .into_iter()
                .for_each(|w| w.join().expect("no panic"));
            moved
        });
        assert_eq!(moved, 1, "{:?}", storages(db));
        assert!(is_in_levels(db, if moves_key { "t_pkey" } else { "t_b" }));
        assert_eq!(
            db.check().expect("check"),
            Vec::<String>::new(),
            "seed {seed}"
        );
        world.clock.advance(1_000_000);
        db.checkpoint(true).expect("checkpoint");
        assert_sound(db, &format!("seed {seed}, swept"));
        let opened = reopen(world).db;
        assert_eq!(
            opened.check().expect("check"),
            Vec::<String>::new(),
            "seed {seed}"
        );
    }
}

/// A transaction that stays open delays a move, and no other writer for long.
#[test]
fn a_move_waits_for_an_open_writer_and_lets_others_pass() {
    let world = small();
    let db = &world.db;
    insert_rows(db, 0..5_000).expect("insert");
    let open = db.begin(TxnOptions::default()).expect("begin");
    let statement = open.begin_statement().expect("statement");
    statement
        .point_insert(&table(db), &row_of(9_000))
        .expect("insert");
    std::thread::scope(|scope| {
        let moving = scope.spawn(|| db.move_indexes());
        for n in 0..200 {
            insert_rows(db, 6_000 + n..6_001 + n).expect("insert beside it");
        }
        assert!(!moving.is_finished(), "the table is being written");
        statement.finish().expect("finish");
        drop(statement);
        open.commit().expect("commit");
        assert_eq!(moving.join().expect("no panic"), 1);
    });
    assert_sound(db, "after the move");
}

/// A table whose secondary index is due for a move, or whose key's is.
fn begin(seed: u64, moves_key: bool) -> (SimDisk, Arc<ManualClock>, Arc<Db>) {
    let (disk, wall) = (SimDisk::new(seed), clock());
    let db = open_small(disk.device(), &wall);
    create_table(&db, HistoryPolicy::Forever);
    if moves_key {
        insert_rows(&db, 0..4_000).expect("insert");
    } else {
        keep_hash(&db);
        create_alone(&db, &index("t_b", vec![part(2)])).expect("create");
        insert_rows(&db, 0..1_500).expect("insert");
    }
    (disk, wall, db)
}

#[test]
fn a_crash_leaves_the_one_index_or_the_other() {
    crash_during_moves("t_b", &["t_pkey", "t_b"]);
}

#[test]
fn a_crash_leaves_the_one_index_of_a_key_or_the_other() {
    crash_during_moves("t_pkey", &["t_pkey"]);
}

/// The index `moved` is due for a move, and the table has these ones.
fn crash_during_moves(moved: &str, names: &[&str]) {
    let workload = |db: &Arc<Db>, _: &ManualClock| {
        db.move_indexes();
        insert_rows(db, 4_000..4_020)?;
        db.checkpoint(true).map(|_| ())?;
        insert_rows(db, 4_020..4_030)
    };
    let verify = |disk: &SimDisk, wall: &Arc<ManualClock>, what: &str| {
        let db = open_small(disk.device(), wall);
        let found: Vec<String> = storages(&db).into_iter().map(|(name, _)| name).collect();
        assert_eq!(found, names, "{what}");
        let mut defs = table(&db).indexes.clone().into_iter();
        assert!(defs.all(|def| def.state == IndexState::Valid), "{what}");
        assert_eq!(db.check().expect("check"), Vec::<String>::new(), "{what}");
        db.move_indexes();
        insert_rows(&db, 5_000..5_010).expect("insert");
        assert!(is_in_levels(&db, moved), "{what}");
        let again = run(&db, |s| s.point_insert(&table(&db), &row_of(3)));
        let refused = again.expect_err("a duplicate");
        assert_eq!(refused.sqlstate(), SqlState::UNIQUE_VIOLATION, "{what}");
        assert_eq!(db.check().expect("check"), Vec::<String>::new(), "{what}");
    };
    at_every_point(|seed| begin(seed, moved == "t_pkey"), workload, verify);
}

/// A move without room for its file leaves the index in memory, and is tried again later.
#[test]
fn a_full_disk_leaves_the_index_in_memory() {
    let mut refused = 0;
    for room in (0..24).map(|room| room << 13) {
        let (disk, wall, db) = begin(3, false);
        let what = format!("room {room}");
        disk.limit_capacity(Some(disk.used_bytes() + room));
        db.move_indexes();
        let was_moved = is_in_levels(&db, "t_b");
        disk.limit_capacity(None);
        assert_sound(&db, &what);
        if !was_moved {
            refused += 1;
            assert_eq!(db.move_indexes(), 0, "{what}: it pauses");
            wall.advance(700_000_000);
            assert!(db.move_indexes() > 0, "{what}");
        }
        assert!(is_in_levels(&db, "t_b"), "{what}");
        insert_rows(&db, 2_000..2_010).expect("insert");
        assert_sound(&db, &what);
        drop(db);
        assert_sound(&open_small(disk.after_crash(0).device(), &wall), &what);
    }
    assert!(refused > 0, "no room was too little");
}

/// The background does it by itself; a database that is dropped or closed meanwhile ends.
#[test]
fn the_background_moves_what_is_due() {
    for is_closed in [true, false] {
        let (device, clock) = (Arc::new(MemoryDevice::new()), clock());
        let settings = Settings {
            background_maintenance: true,
            reserve_bytes: 0,
            ..settings()
        };
        let options = DbOptions {
            device: device.clone(),
            clock: clock.clone(),
            settings,
        };
        let db = Db::open(options).expect("open");
        create_table(&db, HistoryPolicy::None);
        for round in 0.. {
            insert_rows(&db, round * 20..round * 20 + 20).expect("insert");
            if counter(&db, "indexes_moved") > 0 {
                break;
            }
        }
        assert_eq!(db.check().expect("check"), Vec::<String>::new());
        if is_closed {
            db.close().expect("close");
        }
        drop(db);
        let db = open_small(device, &clock);
        assert!(is_in_levels(&db, "t_pkey"), "it stays there");
    }
}
