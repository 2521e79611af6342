//! What the engine keeps out of the cache: blocks of files that are gone, blocks of the fast tier,
//! and writes after the end.

use crate::common::*;
use crate::machine::*;
use strandline_engine::catalog::HistoryPolicy;
use strandline_engine::*;

/// Blocks that the segments of the file have, as the inspector shows them.
fn stored_blocks(db: &Db) -> u64 {
    let sections = db.inspect().expect("inspect").sections;
    let mut found = sections.iter();
    let found = found.find(|section| section.title == "Block cache");
    let rows = &found.expect("a section").rows;
    rows.iter()
        .map(|row| row[2].parse::<u64>().expect("a number"))
        .sum()
}

/// A cache from before a table was dropped has blocks of its files: an opening leaves them out.
#[test]
fn blocks_of_files_that_are_gone_are_left_out_at_an_opening() {
    let (machine, wall, mut model) = (Machine::new(1), clock(), Model::new());
    let db = machine.open(&wall).expect("open");
    create_table(&db, HistoryPolicy::None);
    insert_some(&db, &mut model, 0..ROWS, 1).expect("insert");
    db.checkpoint(true).expect("checkpoint");
    drop(db);
    warm_up(&machine, &wall, &model);
    let db = machine.open(&wall).expect("open");
    assert!(stored_blocks(&db) > 0);
    drop(db);
    let old = machine.cache_file().expect("a cache");
    let db = machine.open_plain(&wall).expect("open");
    let before = files(&*machine.capacity.device(), "chunks-");
    let dropped = table(&db).id;
    let txn = db.begin(TxnOptions::default()).expect("begin");
    let change = txn.change_catalog(&mut |catalog| {
        catalog.tables.remove(&dropped);
        Ok(())
    });
    change.and_then(|()| txn.commit().map(drop)).expect("drop");
    wall.advance(1_000);
    for _ in 0..2 {
        db.checkpoint(true).expect("the old files go");
    }
    create_table(&db, HistoryPolicy::None);
    model.clear();
    insert_some(&db, &mut model, 0..ROWS, 5).expect("insert");
    db.checkpoint(true).expect("new files");
    db.close().expect("close");
    drop(db);
    let after = files(&*machine.capacity.device(), "chunks-");
    assert!(
        before.iter().all(|name| !after.contains(name)),
        "all are new"
    );
    let file = machine.fast.device().create(CACHE).expect("create");
    file.write_all_at(&old, 0).expect("write");
    let db = machine.open(&wall).expect("open");
    assert_eq!(stored_blocks(&db), 0, "of files that are gone");
    assert_right(&db, &model, "beside an older cache");
}

/// A run that is not merged is on the fast tier: its blocks need no copy there.
#[test]
fn blocks_of_the_fast_tier_are_not_cached() {
    let (machine, wall, db, mut model) = begin(2);
    set_some(&db, &mut model, 0..2, 5).expect("update");
    db.checkpoint(false).expect("checkpoint");
    drop(db);
    let runs = files(&*machine.fast.device(), "run-");
    assert!(!runs.is_empty(), "records that no merge has");
    let numbers: Vec<u64> = runs
        .iter()
        .map(|name| u64::from_str_radix(&name[4..], 16).expect("a number"))
        .collect();
    for _ in 0..2 {
        let db = machine.open(&wall).expect("open");
        assert_right(&db, &model, "read");
    }
    let cached = strandline_storage::block_cache::inspect(&*machine.fast.device());
    let cached = cached.expect("inspect").expect("a cache");
    let blocks = cached.segments.iter().flat_map(|(_, _, blocks)| blocks);
    let blocks: Vec<u64> = blocks.map(|block| block.file).collect();
    assert!(!blocks.is_empty());
    assert!(numbers.iter().all(|number| !blocks.contains(number)));
}

/// History is read from runs on the capacity tier, whose blocks are warm after a restart too.
#[test]
fn blocks_of_history_are_warm_after_an_opening() {
    let (machine, wall, db, mut model) = begin(3);
    let then = (db.stable(), state_at(&db, db.stable()));
    wall.advance(1_000);
    set_some(&db, &mut model, 0..ROWS, 5).expect("update");
    db.checkpoint(true).expect("merge");
    drop(db);
    assert!(!files(&*machine.capacity.device(), "run-").is_empty());
    warm_up(&machine, &wall, &model);
    let db = machine.open(&wall).expect("open");
    let opened = stats(&db);
    assert_eq!(
        opened.misses, 0,
        "an opening reads nothing else: {opened:?}"
    );
    assert!(opened.hits > 0);
    assert_eq!(state_at(&db, then.0), then.1);
}

/// A database that was closed and is still held writes nothing when it goes: the directory may be
/// another's.
#[test]
fn a_closed_database_does_not_write_the_cache_of_the_next_one() {
    let (machine, wall, db, model) = begin(4);
    assert_right(&db, &model, "read");
    db.close().expect("close");
    let next = machine.open(&wall).expect("the next one");
    assert_right(&next, &model, "the next one");
    // Readers of the closed one admit blocks of their own.
    let _ = read_rows(&db, 0..ROWS);
    next.close().expect("close");
    let content = machine.cache_file().expect("a cache");
    drop(db);
    assert!(
        machine.cache_file() == Some(content),
        "written after the end"
    );
}

/// An opening that cannot use the cache's file goes on without one, removes the file, and tells. A
/// later opening would take the file for its own.
#[test]
fn a_cache_that_cannot_be_opened_is_removed_and_told() {
    let (machine, wall, db, model) = begin(5);
    drop(db);
    warm_up(&machine, &wall, &model);
    let smaller = Settings {
        block_cache_bytes: 4096 + 2 * u64::from(SEGMENT_BYTES),
        ..with_cache()
    };
    let mut removed = 0;
    for n in 1..20 {
        let machine = machine.copy();
        machine.fast.fail_operation(n);
        let Ok(db) = open_with(machine.device(), &wall, smaller.clone()) else {
            continue;
        };
        if db.block_cache_stats().is_none() {
            removed += 1;
            assert!(machine.cache_file().is_none(), "operation {n}");
            let told = db.failing_work();
            let is_told = told
                .iter()
                .any(|line| line.starts_with("the block cache: "));
            assert!(is_told, "operation {n}: {told:?}");
        }
        assert_right(&db, &model, &format!("operation {n}"));
    }
    assert!(removed > 0, "the cut of the file fails once");
}
