//! A cache that fails, is full, lost, damaged or foreign costs nothing but reads.

use crate::machine::*;
use std::sync::Arc;
use strandline_base::ManualClock;
use strandline_engine::*;

/// A closed database whose cache has segments.
fn warm(seed: u64) -> (Machine, Arc<ManualClock>, Model) {
    let (machine, wall, db, model) = begin(seed);
    drop(db);
    warm_up(&machine, &wall, &model);
    (machine, wall, model)
}

fn counter(db: &Db, name: &str) -> u64 {
    let counters = db.counters();
    let found = counters.iter().find(|(of, _)| *of == name);
    found.expect("a counter").1
}

/// So many loads, each in a file of its own, and a checkpoint, so that their blocks are admitted.
fn load_files(db: &Arc<Db>, model: &mut Model, count: i64) {
    for n in 0..count {
        let from = 1_000 + 10 * n;
        load_some(db, model, from..from + 10, n).expect("load");
    }
    db.checkpoint(false).expect("checkpoint");
}

#[test]
fn failing_writes_switch_off_the_cache_alone_and_are_told() {
    let (machine, wall, mut model) = warm(1);
    let db = machine.open(&wall).expect("open");
    // Each has one block that is read: a segment has room for 51, a pause takes 128.
    load_files(&db, &mut model, 300);
    machine.fast.fail_writes(CACHE);
    let mut keys = model.clone().into_keys().rev();
    while db.failing_work().is_empty() {
        let k = keys.next().expect("a segment is full before");
        assert_eq!(a_of(&db, k).expect("a read"), Some(model[&k]));
        db.merge_due(false).expect("a turn");
    }
    let told = db.failing_work();
    assert!(
        told.len() == 1 && told[0].starts_with("the block cache: "),
        "{told:?}"
    );
    assert_eq!(counter(&db, "block_cache_failing"), 1);
    db.merge_due(false)
        .expect("a turn without a segment to write");
    assert_eq!(db.failing_work(), told, "until a write succeeds");
    assert!(db.check_health().is_ok(), "the database is well");
    set_some(&db, &mut model, 0..10, 3).expect("statements go on");
    db.checkpoint(true).expect("checkpoint");
    assert_right(&db, &model, "failing writes");
    machine.fast.mend_writes();
    // Admission pauses for a number of blocks.
    for k in keys {
        assert_eq!(a_of(&db, k).expect("a read"), Some(model[&k]));
        db.merge_due(false).expect("a turn");
    }
    assert_eq!(db.failing_work(), Vec::<String>::new(), "it works again");
    assert_eq!(counter(&db, "block_cache_failing"), 0);
    assert_right(&db, &model, "mended");
    drop(db);
    let db = machine.open(&wall).expect("open");
    assert_right(&db, &model, "mended");
    assert!(stats(&db).hits > 0);
}

/// The last segment of an orderly end cannot be written.
#[test]
fn a_failing_flush_fails_no_close() {
    let (machine, wall, model) = warm(1);
    let db = machine.open(&wall).expect("open");
    assert_right(&db, &model, "open");
    machine.fast.fail_writes(CACHE);
    load_files(&db, &mut model.clone(), 1);
    assert!(a_of(&db, 1_000).expect("a read").is_some());
    db.close().expect("close");
    assert!(!db.failing_work().is_empty());
}

#[test]
fn failing_reads_cost_reads_of_the_capacity_tier() {
    let (machine, wall, model) = warm(1);
    let db = machine.open(&wall).expect("open");
    machine.fast.fail_reads(CACHE);
    assert_right(&db, &model, "failing reads");
    assert!(stats(&db).damaged > 0);
    drop(db);
    // The opening can read nothing of it: it begins anew.
    let db = machine.open(&wall).expect("open");
    assert_eq!((stats(&db).hits, stats(&db).replaced), (0, 1));
    assert_right(&db, &model, "unreadable");
    machine.fast.mend_reads();
    drop(db);
    let db = machine.open(&wall).expect("open");
    assert_right(&db, &model, "mended");
    assert!(stats(&db).hits > 0);
}

/// A failed write or sync at any place of an opening, of reads and of an end.
#[test]
fn a_failed_operation_at_any_place_leaves_the_rows_right() {
    let (machine, wall, model) = warm(1);
    for n in 1..40 {
        let machine = machine.copy();
        machine.fast.fail_operation(n);
        if let Ok(db) = machine.open(&wall) {
            assert_right(&db, &model, &format!("operation {n}"));
            let _ = db.checkpoint(true);
        }
        let db = machine.after_crash(n).open(&wall).expect("open");
        assert_right(&db, &model, &format!("after operation {n}"));
    }
}

#[test]
fn a_full_fast_tier_keeps_no_database_closed() {
    for room in [0, 1 << 10, 1 << 13, 1 << 16] {
        let (machine, wall, db, model) = begin(3);
        drop(db);
        machine.fast.device().remove(CACHE).expect("removed");
        let used = machine.fast.used_bytes();
        machine.fast.limit_capacity(Some(used + room));
        let db = machine
            .open(&wall)
            .unwrap_or_else(|e| panic!("room {room}: {e}"));
        assert_right(&db, &model, "full");
        assert!(stats(&db).cache_bytes == 0 || room >= 1 << 16);
        drop(db);
        machine.fast.limit_capacity(None);
        warm_up(&machine, &wall, &model);
        let db = machine.open(&wall).expect("open");
        assert_right(&db, &model, "room again");
        assert!(stats(&db).hits > 0 && stats(&db).cache_bytes > 0);
    }
}

/// What happens to the file of a closed database's cache.
type Lose = fn(own: Vec<u8>, foreign: Vec<u8>) -> Option<Vec<u8>>;

#[test]
fn a_lost_cut_or_foreign_cache_is_replaced() {
    let (other, ..) = warm(7);
    let foreign = other.cache_file().expect("a cache");
    let losses: [(&str, Lose); 6] = [
        ("lost", |_, _| None),
        ("empty", |_, _| Some(Vec::new())),
        ("cut in the header", |own, _| Some(own[..30].to_vec())),
        ("cut", |own, _| Some(own[..own.len() / 2].to_vec())),
        ("zeros", |own, _| Some(vec![0; own.len()])),
        ("foreign", |_, foreign| Some(foreign)),
    ];
    for (what, lose) in losses {
        let (machine, wall, model) = warm(1);
        let own = machine.cache_file().expect("a cache");
        let device = machine.fast.device();
        device.remove(CACHE).expect("removed");
        if let Some(content) = lose(own, foreign.clone()) {
            let file = device.create(CACHE).expect("create");
            file.write_all_at(&content, 0).expect("write");
        }
        let db = machine
            .open(&wall)
            .unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_right(&db, &model, what);
        drop(db);
        let db = machine.open(&wall).expect("open");
        assert_right(&db, &model, what);
        assert!(stats(&db).hits > 0, "{what}");
    }
}

/// Bytes of the header, of a segment's head, of its places and of its blocks.
#[test]
fn damage_of_any_byte_costs_reads_only() {
    let (machine, wall, model) = warm(1);
    let own = machine.cache_file().expect("a cache");
    let heads = (0..8).map(|slot| 4096 + slot * u64::from(SEGMENT_BYTES));
    let heads = heads.filter(|&at| own[at as usize] != 0);
    let places: Vec<u64> = heads
        .clone()
        .flat_map(|at| (at..at + 100).step_by(3))
        .collect();
    let blocks = heads.flat_map(|at| (at + 100..at + u64::from(SEGMENT_BYTES)).step_by(311));
    let (mut replaced, mut damaged, mut unused) = (0, 0, 0);
    for at in (0..36).step_by(5).chain(places).chain(blocks) {
        let machine = machine.copy();
        machine.fast.flip_bits(CACHE, at, 0x21);
        let db = machine
            .open(&wall)
            .unwrap_or_else(|e| panic!("byte {at}: {e}"));
        assert_right(&db, &model, &format!("byte {at}"));
        let stats = stats(&db);
        replaced += stats.replaced;
        damaged += stats.damaged;
        unused += u64::from(stats.damaged + stats.replaced == 0);
    }
    assert!(
        replaced >= 8 && damaged > 0 && unused > 0,
        "{replaced} {damaged} {unused}"
    );
}

/// The thread writes segments beside readers, and ends with the database.
#[test]
fn a_thread_writes_the_segments() {
    for is_closed in [true, false] {
        let (machine, wall, db, mut model) = begin(1);
        load_files(&db, &mut model, 100);
        drop(db);
        let settings = Settings {
            reserve_bytes: 0,
            ..with_cache()
        };
        let db = Db::open(DbOptions {
            device: machine.device(),
            clock: wall.clone(),
            settings,
        })
        .expect("open");
        for k in model.keys() {
            assert_eq!(a_of(&db, *k).expect("a read"), Some(model[k]));
        }
        while stats(&db).writes == 0 {
            std::thread::yield_now();
        }
        if is_closed {
            db.close().expect("close");
        }
        drop(db);
        let db = machine.open(&wall).expect("no thread has the lock");
        assert_right(&db, &model, "written by a thread");
        assert!(stats(&db).hits > 0);
    }
}
