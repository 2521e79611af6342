//! Pages that are damaged, operations that fail half-way, and a full disk.

use super::*;
use std::collections::BTreeSet;
use strandline_base::SqlState;
use strandline_device::MemoryDevice;
use strandline_sim::SimDisk;
use strandline_storage::pages::{PAGE_BYTES, page_file_name};

/// What every operation answers, or that one has failed. Whatever they answer, they end.
fn answers(index: &SpatialIndex) -> Option<Vec<(Rect, RowId)>> {
    let mut found = Vec::new();
    let mut cursor = index.search(&SpatialQuery::All).ok()?;
    let mut nearest = index.nearest([3.0, 3.0]).ok()?;
    let mut is_whole = true;
    loop {
        match cursor.next() {
            Ok(Some((key, row))) => found.push((SpatialIndex::rect(&key).ok()?, row)),
            Ok(None) => break,
            Err(_) => return None,
        }
    }
    loop {
        match nearest.next() {
            Ok(Some(_)) => {}
            Ok(None) => break,
            Err(_) => is_whole = false,
        }
        if !is_whole {
            return None;
        }
    }
    found.sort_unstable();
    Some(found)
}

/// The page store finds damage by checksums; here pages with right checksums have wrong nodes. A
/// check finds every byte that changes what an inner node says; of a leaf, every byte that makes
/// the node another than its parent says.
#[test]
fn a_wrong_node_is_an_error_with_its_place() {
    let tested = Tested::new(300);
    (0..60).for_each(|v| assert!(tested.add(number(v), RowId(v))));
    let whole = answers(&tested.index).expect("whole");
    for page in nodes(&tested.index) {
        let mut unnoticed = 0;
        for at in 0..300 {
            let mut change = tested.store.begin(FILE);
            change.write(page).expect("latched");
            let before = change.body(page)[at];
            change.body_mut(page)[at] = before ^ 0x55;
            change.commit().expect("written");
            let mut damage = Vec::new();
            tested.index.check(&mut damage).expect("checked");
            let is_named = |line: &String| line.contains("page ");
            assert!(damage.iter().all(is_named), "{damage:?}");
            if damage.is_empty() && answers(&tested.index).as_ref() != Some(&whole) {
                assert!(at >= 32, "byte {at} of the header of page {page}");
                unnoticed += 1;
            }
            let mut change = tested.store.begin(FILE);
            change.write(page).expect("latched");
            change.body_mut(page)[at] = before;
            change.commit().expect("written");
        }
        // A box or a row in the middle of a leaf may be another one: only the row itself knows.
        assert!(
            unnoticed <= 40,
            "page {page}: {unnoticed} changes unnoticed"
        );
    }
    tested.assert_whole();
}

/// Every byte of the file, flipped while the database is closed: the page's checksum finds it, or
/// it means nothing.
#[test]
fn a_flipped_byte_of_the_file_is_found_or_harmless() {
    let disk = SimDisk::new(1);
    let log = Arc::new(MemoryLog::default());
    let tested = Tested::on(store(disk.device(), log.clone(), 100), PAGE_BODY_BYTES);
    (0..400).for_each(|v| assert!(tested.add(number(v), RowId(v))));
    tested.store.checkpoint().expect("written");
    let whole = answers(&tested.index).expect("whole");
    let name = page_file_name(FILE);
    let mut rng = Rng::new(1);
    let mut found = 0;
    for round in 0..400 {
        let page = rng.below(tested.pages() as u64 + 1);
        let offset = page * PAGE_BYTES as u64 + rng.below(PAGE_BYTES as u64);
        let mask = 1 << rng.below(8);
        disk.flip_bits(&name, offset, mask);
        let again = store(disk.device(), log.clone(), 100);
        again.open_file(FILE).expect("there");
        let settings = settings(PAGE_BODY_BYTES, &Arc::default());
        let seen = SpatialIndex::open(again, FILE, settings);
        let seen = seen.ok().and_then(|index| answers(&index));
        assert!(
            seen.is_none() || seen.as_ref() == Some(&whole),
            "round {round}"
        );
        found += usize::from(seen.is_none());
        disk.flip_bits(&name, offset, mask);
    }
    assert!(found > 200, "{found}");
}

/// The log fails at each append in turn: a failed operation has changed nothing.
#[test]
fn an_operation_that_fails_has_changed_nothing() {
    for appends in (0..120).step_by(3) {
        let log = Arc::new(MemoryLog::default());
        let device = Arc::new(MemoryDevice::default());
        let tested = Tested::on(store(device, log.clone(), 100), 300);
        let (mut rng, mut model) = (Rng::new(appends as u64), BTreeSet::new());
        log.0.lock().expect("not poisoned").appends_left = Some(appends);
        for step in 0..200 {
            let (rect, row) = (number(rng.below(60)), RowId(rng.below(3)));
            if rng.one_in(2) {
                let retired = tested.index.retire(&key_of(&rect), row, CommitTs::ZERO);
                if retired.is_ok() {
                    model.remove(&(rect, row));
                }
            } else {
                let mut others = Vec::new();
                match tested.index.insert(&key_of(&rect), row, &mut others) {
                    Ok(is_new) => assert_eq!(is_new, model.insert((rect, row))),
                    Err(_) => assert!(others.is_empty()),
                }
            }
            if step == 160 {
                log.0.lock().expect("not poisoned").appends_left = None;
            }
        }
        assert_sound(&tested.index);
        assert!(tested.collect(SpatialQuery::All).iter().eq(&model));
        assert_eq!(tested.index.len(), model.len(), "{appends} appends");
        let mut load = tested.index.bulk_load();
        load.push(&values(&number(3)), RowId(5), &mut Vec::new())
            .expect("pushed");
        load.finish().expect("loaded");
    }
}

/// A load that fails at any append leaves an empty tree, and no page but the root.
#[test]
fn a_load_that_fails_frees_its_pages() {
    let mut failed = 0;
    for appends in 0..40 {
        let log = Arc::new(MemoryLog::default());
        let device = Arc::new(MemoryDevice::default());
        let tested = Tested::on(store(device, log.clone(), 200), 300);
        let mut load = tested.index.bulk_load();
        for v in 0..300 {
            let pushed = load.push(&values(&number(v)), RowId(v), &mut Vec::new());
            pushed.expect("pushed");
        }
        log.0.lock().expect("not poisoned").appends_left = Some(appends);
        let loaded = load.finish();
        assert_eq!(tested.memory.load(Relaxed), 0);
        log.0.lock().expect("not poisoned").appends_left = None;
        assert_sound(&tested.index);
        if loaded.is_ok() {
            assert_eq!(tested.index.len(), 300);
            break;
        }
        failed += 1;
        assert_eq!(tested.index.len(), 0);
        (0..300).for_each(|v| assert!(tested.add(number(v), RowId(v))));
    }
    assert!((2..40).contains(&failed), "{failed}");
}

/// A load for which the file cannot grow frees the pages that it has written.
#[test]
fn a_load_on_a_full_disk_frees_its_pages() {
    let (mut failed, mut rng) = (0, Rng::new(8));
    for room in 0..12 {
        let disk = SimDisk::new(room);
        let tested = Tested::on(store(disk.device(), Arc::default(), 200), 300);
        // Files grow by several pages at once.
        (0..rng.below(400)).for_each(|v| assert!(tested.add(number(v), RowId(v))));
        tested.index.retain(&mut |_, _| false).expect("swept");
        assert_eq!(tested.pages(), 1);
        disk.limit_capacity(Some(disk.used_bytes()));
        let mut load = tested.index.bulk_load();
        for v in 0..600 {
            let pushed = load.push(&values(&number(v)), RowId(v), &mut Vec::new());
            pushed.expect("pushed");
        }
        if let Err(error) = load.finish() {
            assert_eq!(error.sqlstate(), SqlState::DISK_FULL);
            assert_eq!(tested.index.len(), 0);
            failed += 1;
        }
        tested.assert_whole();
    }
    assert!(failed > 3, "{failed}");
}

/// An operation for which the file cannot grow fails with 53100 and changes nothing; when there is
/// room the index goes on.
#[test]
fn a_full_disk_refuses_what_needs_pages() {
    let disk = SimDisk::new(3);
    let log = Arc::new(MemoryLog::default());
    let tested = Tested::on(store(disk.device(), log, 200), 300);
    disk.limit_capacity(Some(disk.used_bytes()));
    let (mut model, mut refused) = (BTreeSet::new(), 0);
    for v in 0..2_000 {
        let (rect, row) = (number(v), RowId(v));
        match tested.index.add(&key_of(&rect), row) {
            Ok(is_new) => assert_eq!(is_new, model.insert((rect, row))),
            Err(error) => {
                assert_eq!(error.sqlstate(), SqlState::DISK_FULL);
                refused += 1;
            }
        }
    }
    assert!(refused > 0 && model.len() > 5, "{refused} {}", model.len());
    tested.assert_whole();
    assert!(tested.collect(SpatialQuery::All).iter().eq(&model));
    disk.limit_capacity(None);
    (0..2_000).for_each(|v| _ = tested.add(number(v), RowId(v)));
    tested.assert_whole();
    assert_eq!(tested.index.len(), 2_000);
}
