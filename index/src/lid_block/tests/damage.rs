//! Blocks that are damaged, operations that fail half-way, and full devices.

use super::*;
use strandline_base::ErrorKind;
use strandline_device::{Device, MemoryDevice, TieredDevice};
use strandline_sim::SimDisk;
use strandline_storage::pages::PageNumber;

/// The page store finds damage by checksums; here a page with a right checksum has wrong blocks.
/// A wrong answer of a check or of an opening would be none at all.
#[test]
fn wrong_blocks_are_an_error_with_their_place() {
    for kind in KINDS {
        let tested = Tested::new(kind, 3, 256);
        for v in 0..6 {
            tested.index.add(&tested.key(v), RowId(1)).expect("added");
        }
        let page = PageNumber(2);
        let area_bytes = tested.index.form().area_bytes();
        let (mut reported, mut refused) = (0, 0);
        for at in 0..8 + area_bytes {
            let mut change = tested.store.begin(FILES.1);
            change.write(page).expect("latched");
            let before = change.body(page)[at];
            change.body_mut(page)[at] = before ^ 0xff;
            change.commit().expect("written");
            let mut damage = Vec::new();
            tested.index.check(&mut damage).expect("checked");
            reported += usize::from(!damage.is_empty());
            let is_named = |line: &String| line.contains("page 2 of page file 8");
            assert!(damage.iter().all(is_named), "{damage:?}");
            // Whatever an operation answers, it ends.
            let _ = tested.index.lookup(&tested.key(2), &mut Vec::new());
            let range = KeyRange::default();
            let mut cursor = tested
                .index
                .cursor(&range, Direction::Forward)
                .expect("ordered");
            while let Ok(Some(_)) = cursor.next() {}
            let settings = settings(256, &Arc::default());
            if let Err(error) = LidIndex::open(tested.store.clone(), FILES, settings) {
                assert_eq!(error.kind(), ErrorKind::Corrupt);
                refused += 1;
            }
            let mut change = tested.store.begin(FILES.1);
            change.write(page).expect("latched");
            change.body_mut(page)[at] = before;
            change.commit().expect("written");
        }
        assert!(reported > 20 && refused > 3, "{reported} {refused}");
        assert_sound(&tested.index);
    }
}

/// The number of a block, and the length of an entry, that no writer makes.
#[test]
fn numbers_that_no_writer_makes_are_damage() {
    const AREA: usize = 8;
    for kind in KINDS {
        let tested = Tested::new(kind, 3, 256);
        tested.index.add(&tested.key(1), RowId(1)).expect("added");
        let page = PageNumber(2);
        let slot = AREA + 16 + 2 * tested.index.form().fence_bytes();
        for (at, bytes) in [(AREA, &[0xff; 8][..]), (slot + 2, &[3, 0])] {
            let mut change = tested.store.begin(FILES.1);
            change.write(page).expect("latched");
            let place = &mut change.body_mut(page)[at..at + bytes.len()];
            let before = place.to_vec();
            place.copy_from_slice(bytes);
            change.commit().expect("written");
            let settings = settings(256, &Arc::default());
            let opened = LidIndex::open(tested.store.clone(), FILES, settings);
            let error = opened.err().expect("damage");
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{kind:?}, {at}: {error}");
            let mut change = tested.store.begin(FILES.1);
            change.write(page).expect("latched");
            change.body_mut(page)[at..at + before.len()].copy_from_slice(&before);
            change.commit().expect("written");
        }
        assert_sound(&tested.index);
    }
}

/// The log fails at each append in turn. What an operation has promised is there; a failed one may
/// have done a part of its work that is no wrong answer: an entry too many, a moved block.
#[test]
fn after_a_failure_the_index_goes_on() {
    for appends in 0..90 {
        let log = Arc::new(MemoryLog::default());
        let store = store(Arc::new(MemoryDevice::default()), log.clone(), 100);
        let form = form(KINDS[appends % 2], 3);
        let tested = Tested::on(store, form, 256).expect("created");
        let (mut rng, mut sure) = (Rng::new(appends as u64), Entries::new());
        let mut unsure = Entries::new();
        log.0.lock().expect("not poisoned").appends_left = Some(appends);
        for step in 0..150 {
            let entry = (tested.key(rng.below(30) as i64), RowId(rng.below(3)));
            let (key, row) = (&entry.0, entry.1);
            let is_addition = !rng.one_in(3);
            let done = match is_addition {
                true => tested.index.insert(key, row, &mut Vec::new()).map(drop),
                false => tested.index.retire(key, row, CommitTs::ZERO),
            };
            match (done.is_ok(), is_addition) {
                (false, _) => _ = unsure.insert(entry),
                (true, true) => _ = (unsure.remove(&entry), sure.insert(entry)),
                (true, false) => _ = (unsure.remove(&entry), sure.remove(&entry)),
            }
            if step == 110 {
                log.0.lock().expect("not poisoned").appends_left = None;
            }
        }
        assert_sound(&tested.index);
        let seen = collect(&tested.index, &KeyRange::default(), Direction::Forward);
        let seen: Entries = seen.into_iter().collect();
        let differing: Vec<_> = seen.symmetric_difference(&sure).collect();
        assert!(
            differing.iter().all(|entry| unsure.contains(*entry)),
            "{differing:?}"
        );
    }
}

/// Each tier is full for a time: operations fail with 53100, what was added is there, and the
/// index goes on when there is room.
#[test]
fn a_full_tier_loses_nothing() {
    for (is_fast_full, kind) in [(true, 0), (false, 0), (true, 1), (false, 1)] {
        let fast = SimDisk::new(1);
        let capacity = fast.beside(2);
        let disks: [Arc<dyn Device>; 2] = [fast.device(), capacity.device()];
        let [on_fast, on_capacity] = disks;
        let device = TieredDevice::new(on_fast, on_capacity, String::new()).expect("new");
        let store = store(Arc::new(device), Arc::default(), 12);
        // A block a page, so that the fast tier has to grow.
        let entries = if is_fast_full { 200 } else { 4 };
        // Blocks of one value have to be full before they are moved.
        let keys = if is_fast_full || kind == 0 {
            1_500
        } else {
            100
        };
        let tested = Tested::on(store, form(KINDS[kind], entries), 256).expect("created");
        let mut load = tested.index.bulk_load();
        for v in 0..100 {
            load.push(&number(v * 20), RowId(5_000), &mut Vec::new())
                .expect("pushed");
        }
        load.finish().expect("loaded");
        let full = if is_fast_full { &fast } else { &capacity };
        full.limit_capacity(Some(full.used_bytes()));
        let loaded = (0..100).map(|v| (tested.key(v * 20), RowId(5_000)));
        let (mut added, mut failures) = (loaded.collect::<Entries>(), 0);
        for v in 0..1_500 {
            let entry = (tested.key(v * 37 % keys), RowId(v as u64));
            match tested.index.add(&entry.0, entry.1) {
                Ok(_) => _ = added.insert(entry),
                Err(error) => {
                    assert_eq!(error.sqlstate(), SqlState::DISK_FULL, "{error}");
                    failures += 1;
                }
            }
            if v == 1_300 {
                full.limit_capacity(None);
            }
        }
        assert!(failures > 0, "{is_fast_full} {kind}");
        assert_sound(&tested.index);
        let seen = collect(&tested.index, &KeyRange::default(), Direction::Forward);
        assert!(seen.iter().eq(&added), "{is_fast_full} {kind}");
        assert_eq!(tested.vacuumed(), added.len());
    }
}
