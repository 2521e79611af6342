//! A full disk: an index in a file has every entry or cannot be used, and its table goes on.

use crate::common::*;
use crate::faults::{begin, file_of, insert_some, verify};
use crate::files::page_files;
use crate::machine::{Machine, Place, in_places};
use crate::support::*;
use std::sync::Arc;
use strandline_base::ManualClock;
use strandline_engine::catalog::index::IndexStorage;
use strandline_engine::*;

/// A closed database whose index `t_a` is damaged and has a comment, with the name of its file.
fn damaged(comment: &str, place: Place) -> (Machine, Arc<ManualClock>, String) {
    let (disk, wall, db) = begin(9, place);
    alter(&db, |t| {
        let def = t.indexes.iter_mut().find(|def| def.name == "t_a");
        Arc::make_mut(def.expect("t_a")).comment = Some(comment.into());
    });
    insert_some(&db, 0..40).expect("insert");
    db.checkpoint(true).expect("checkpoint");
    let file = file_of(&db, "t_a");
    db.close().expect("close");
    drop(db);
    let disk = disk.after_crash(0);
    disk.damage(&file);
    (disk, wall, file)
}

/// The opening has no room to name the file of an index that it has built, or for the file.
pub fn a_full_disk_does_not_keep_a_damaged_index_from_being_opened(place: Place) {
    let (damaged, wall, _) = damaged("", place);
    for room in (0..40).map(|room| room << 12) {
        let disk = damaged.after_kill();
        disk.leave_room(Some(room));
        let what = format!("room {room}");
        let db = disk.open(&wall).unwrap_or_else(|e| panic!("{what}: {e}"));
        let _ = insert_some(&db, 40..42);
        let count = run(&db, |s| Ok(scanned(s, &table(&db)).len()));
        assert!(count.expect("a scan") >= 40, "{what}");
        drop(db);
        let crashed = disk.after_crash(room >> 13 & 1);
        crashed.leave_room(None);
        verify(&crashed, &wall, &what);
    }
}

/// The opening has room for the index that it builds, and not for the commit that names its file.
/// It removes the file that it has passed over; a definition that could not be committed then names
/// a missing file, whose index the next opening builds.
#[test]
fn an_opening_that_cannot_name_a_file_removes_the_one_it_passes_over() {
    let (mut renamed, mut unnamed) = (0, 0);
    // The definition is larger than a log segment, so a commit of it needs space.
    let (before, wall, damaged) = damaged(&"comment ".repeat(20_000), Place::OneDirectory);
    for room in (4..36).map(|room| room << 13) {
        let disk = before.after_kill();
        disk.leave_room(Some(room));
        let what = format!("room {room}");
        let db = disk.open(&wall).unwrap_or_else(|e| panic!("{what}: {e}"));
        let is_there = page_files(&*disk.device()).contains(&damaged);
        let (t, is_new) = (table(&db), file_of(&db, "t_a") != damaged);
        if run(&db, |s| Ok(s.has_index(&t, named(&t, "t_a").id))).expect("a look") {
            assert_sound(&db, &what);
            match is_new {
                // The first commit failed, and removing the file made room for the second.
                true if !is_there => renamed += 1,
                true => {}
                false => {
                    assert!(!is_there, "{what}: the damaged file could be opened again");
                    unnamed += 1;
                }
            }
        }
        drop(db);
        let crashed = disk.after_crash(room >> 13 & 1);
        crashed.leave_room(None);
        verify(&crashed, &wall, &what);
    }
    // The level file of few entries is too small to make room; the files of LIDBlocks always do.
    let makes_room = crate::STORAGE != IndexStorage::Levels;
    let has_blocks = matches!(crate::STORAGE, IndexStorage::Blocks(_));
    assert!(
        (renamed >= 1 || !makes_room) && (unnamed >= 1 || has_blocks),
        "{renamed} renamed, {unnamed} not"
    );
}

/// A full disk refuses what needs space; when there is space again everything is as it should be.
pub fn a_full_disk_refuses_entries_and_loses_none(place: Place) {
    for room in [0, 1 << 13, 1 << 15, 1 << 16] {
        let (disk, wall, db) = begin(6, place);
        insert_some(&db, 0..20).expect("insert");
        db.checkpoint(true).expect("checkpoint");
        disk.leave_room(Some(room));
        let mut refused = false;
        for round in 0..40 {
            let from = 100 + round * 10;
            if let Err(error) = insert_some(&db, from..from + 10) {
                assert_eq!(error.sqlstate(), SqlState::DISK_FULL, "{error}");
                refused = true;
            }
            if round % 5 == 0 {
                let _ = db.checkpoint(true);
            }
        }
        assert!(refused, "room {room}");
        assert_sound(&db, "full");
        let file = create_online(&db, &index("more", vec![part(2)]));
        assert!(file.is_err(), "no space for an index");
        drop(db);
        let crashed = disk.after_crash(room);
        crashed.leave_room(None);
        verify(&crashed, &wall, &format!("crash with room {room}"));
        disk.leave_room(None);
        verify(&disk.after_kill(), &wall, &format!("room {room}"));
    }
}

in_places! {
    one_directory = Place::OneDirectory,
    two_directories = Place::TwoDirectories;
    [
        a_full_disk_does_not_keep_a_damaged_index_from_being_opened,
        a_full_disk_refuses_entries_and_loses_none,
    ]
}
