//! `Db::inspect` shows the levels of indexes, and which of their blocks cannot be read.

use crate::faults::{begin, file_of, insert_some};
use crate::machine::{BLOCK, Place};
use crate::support::*;
use strandline_engine::*;

/// A row of the section of levels, as far as the tests look at it.
#[derive(Debug)]
struct Level {
    level: u64,
    side: String,
    blocks: u64,
    entries: u64,
    fences: u64,
    wavefront: String,
    unreadable: String,
}

/// The rows of an index.
fn levels(db: &Db, index: &str) -> Vec<Level> {
    let sections = db.inspect().expect("inspect").sections;
    let mut sections = sections.into_iter();
    let section = sections.find(|section| section.title == "Levels of public.t");
    let rows = section.expect("a section").rows.into_iter();
    let number = |text: &String| text.parse::<u64>().expect("a number");
    rows.filter(|row| row[0] == index)
        .map(|row| Level {
            level: number(&row[1]),
            side: row[2].clone(),
            blocks: number(&row[3]) + number(&row[4]),
            entries: number(&row[5]),
            fences: number(&row[6]),
            wavefront: row[8].clone(),
            unreadable: row[9].clone(),
        })
        .collect()
}

const ROWS: i64 = 400;

#[test]
fn every_block_in_use_is_listed_when_it_is_damaged() {
    let (disk, wall, db) = begin(8, Place::OneDirectory);
    for from in (0..ROWS).step_by(50) {
        insert_some(&db, from..from + 50).expect("insert");
        db.merge_due(false).expect("compactions end");
    }
    db.checkpoint(true).expect("checkpoint");
    let whole = levels(&db, "t_b");
    assert_eq!(whole[0].level, 0, "the head");
    assert!(whole.len() > 1 && whole[0].fences > 0, "{whole:?}");
    assert!(
        whole
            .iter()
            .all(|one| one.side == "-" && one.wavefront == "-")
    );
    assert!(whole.iter().all(|one| one.unreadable == "-"), "{whole:?}");
    let entries: u64 = whole.iter().map(|one| one.entries).sum();
    assert_eq!(entries, ROWS as u64);
    let used: u64 = whole.iter().map(|one| one.blocks).sum();
    let file = file_of(&db, "t_b");
    db.close().expect("close");
    drop(db);
    let blocks = disk.fast.content(&file).expect("a file").len() as u64 / BLOCK;
    let mut listed = 0;
    for block in 0..blocks {
        let damaged = disk.after_kill();
        // A free block may hold only zeros from there on.
        damaged.fast.flip_bits(&file, block * BLOCK + 16, 8);
        let db = damaged.open(&wall).expect("open");
        let found = levels(&db, "t_b").into_iter();
        let found: Vec<_> = found.filter(|one| one.unreadable != "-").collect();
        listed += found.len() as u64;
        assert!(found.len() <= 1, "{found:?}");
        assert!(found.iter().all(|one| one.unreadable == block.to_string()));
    }
    assert_eq!(listed, used);
}

#[test]
fn a_compaction_has_two_sides_and_a_wavefront() {
    let (_disk, _wall, db) = begin(9, Place::OneDirectory);
    let mut met = 0;
    for k in 0..ROWS {
        insert_some(&db, k..k + 1).expect("insert");
        let levels = levels(&db, "t_b");
        let entries: u64 = levels.iter().map(|one| one.entries).sum();
        let is_compacting = levels.iter().any(|one| one.side == "old");
        // Entries between two steps may be on both sides.
        match is_compacting {
            true => assert!(entries > k as u64, "{levels:?}"),
            false => assert_eq!(entries, k as u64 + 1, "{levels:?}"),
        }
        let waves = levels.iter().filter(|one| one.wavefront != "-");
        if waves.clone().count() > 0 {
            assert!(is_compacting && waves.clone().all(|one| one.side == "new"));
            met += 1;
        }
        assert!(levels.iter().all(|one| one.unreadable == "-"), "{levels:?}");
    }
    assert!(met > 0, "no compaction was seen under way");
    assert_sound(&db, "inspected");
}
