//! Damage of the files of indexes on pages and of both caches, on both tiers: a bit that flips, a
//! write that is lost, one that goes to another place. What is read is right or refused.

use crate::common::*;
use crate::faults::{begin, insert_some, update_some};
use crate::files::named_files;
use crate::machine::{Machine, PAGE, Place};
use std::sync::Arc;
use strandline_base::ManualClock;
use strandline_base::rng::Rng;
use strandline_engine::*;

/// The smallest write of a device.
const SECTOR: usize = 512;

/// A closed database with pages in memory, cache and files, and its rows.
fn closed(place: Place) -> (Machine, Arc<ManualClock>, State) {
    let (machine, wall, db) = begin(11, place);
    for round in 0..3 {
        insert_some(&db, round * 20..round * 20 + 20).expect("insert");
        update_some(&db, 100 * (round + 1)).expect("update");
        db.merge_due(false).expect("a turn");
        db.checkpoint(round == 1).expect("checkpoint");
    }
    let state = state_at(&db, db.stable());
    db.close().expect("close");
    drop(db);
    // Once more, so that the log has no image of a page that would mend it.
    let db = machine.open(&wall).expect("open");
    db.checkpoint(true).expect("checkpoint");
    db.close().expect("close");
    (machine.after_kill(), wall, state)
}

/// Opens the machine, on which file `name` is damaged, and reads rows and entries. They are right,
/// or the error says what is damaged. Whether the damage was found: by an error, by `check`, or by
/// an opening that has built the index in another file.
fn is_found(
    (machine, name): (&Machine, &str),
    wall: &Arc<ManualClock>,
    state: &State,
    what: &str,
) -> bool {
    let db = match machine.open(wall) {
        Ok(db) => db,
        Err(error) => {
            assert_eq!(
                error.sqlstate(),
                SqlState::DATA_CORRUPTED,
                "{what}: {error}"
            );
            return true;
        }
    };
    assert_eq!(&state_at(&db, db.stable()), state, "{what}");
    let t = table(&db);
    let mut is_found = !named_files(&db).contains(name);
    is_found |= !db.check().expect("a check").is_empty();
    for def in t.readable_indexes() {
        let found = run(&db, |s| {
            let (id, range) = (def.id, KeyRange::default());
            let mut cursor = s.index_cursor(&t, id, &range, Direction::Forward)?;
            let mut found = Vec::new();
            while cursor.next_chunk(50, &mut found)? {}
            Ok(found)
        });
        match found {
            Ok(found) => {
                let mut rows: Vec<RowId> = found.into_iter().map(|(_, row)| row).collect();
                rows.sort_unstable();
                rows.dedup();
                assert_eq!(rows.len(), state.len(), "{what}: rows by {}", def.name);
            }
            Err(error) => {
                assert_eq!(
                    error.sqlstate(),
                    SqlState::DATA_CORRUPTED,
                    "{what}: {error}"
                );
                is_found = true;
            }
        }
    }
    is_found
}

/// Damages every file whose name begins with one of `kinds`, at every `stride`-th sector. The
/// number of damages, and of those that were found.
fn damage(place: Place, kinds: &[&str], stride: usize) -> (usize, usize) {
    let (machine, wall, state) = closed(place);
    let mut rng = Rng::new(3);
    let (mut tried, mut found) = (0, 0);
    for (at, disk) in machine.disks().enumerate() {
        let names = disk.device().list().expect("names");
        let is_meant = |name: &String| kinds.iter().any(|kind| name.starts_with(kind));
        for name in names.into_iter().filter(is_meant) {
            let content = disk.content(&name).expect("a file");
            let sectors: Vec<&[u8]> = content.chunks(SECTOR).collect();
            // The rest of a file may be space for pages to come.
            let is_page = |n: &usize| {
                let page = n * SECTOR / PAGE as usize * PAGE as usize;
                let page = &content[page..content.len().min(page + PAGE as usize)];
                page.iter().any(|&byte| byte != 0)
            };
            let chosen = (rng.below(7) as usize..sectors.len()).filter(is_page);
            for n in chosen.step_by(stride) {
                let old = sectors[n];
                let other = sectors[rng.below(sectors.len() as u64) as usize];
                let mut flipped = old.to_vec();
                flipped[rng.below(old.len() as u64) as usize] ^= 1 << rng.below(8);
                for new in [&flipped[..], &[0; SECTOR][..], other] {
                    let damaged = machine.after_kill();
                    let disk = damaged.disks().nth(at).expect("a disk");
                    let mut is_changed = false;
                    for (k, (old, new)) in old.iter().zip(new).enumerate() {
                        if old != new {
                            disk.flip_bits(&name, (n * SECTOR + k) as u64, old ^ new);
                            is_changed = true;
                        }
                    }
                    if is_changed {
                        let what = format!("{place:?}: {name}, sector {n}");
                        tried += 1;
                        found += usize::from(is_found((&damaged, &name), &wall, &state, &what));
                    }
                }
            }
        }
    }
    (tried, found)
}

#[test]
fn damage_of_page_files_gives_no_wrong_entries_and_is_found() {
    let (tried, found) = damage(Place::TwoDirectories, &["pages-"], 5);
    assert!(tried > 40, "{tried}");
    // The others are of pages that were freed.
    assert!(found * 2 > tried, "{found} of {tried}");
}

#[test]
fn damage_of_the_cache_and_of_the_files_below_it_gives_no_wrong_entries() {
    let place = Place::Cached(SsdCacheMode::Pc);
    let (tried, _) = damage(place, &["ssd-cache", "pages-"], 11);
    assert!(tried > 30, "{tried}");
}
