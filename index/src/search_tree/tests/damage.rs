//! Pages that are damaged, and operations that fail half-way.

use super::support::*;
use super::*;
use strandline_device::MemoryDevice;

/// The page store finds damage by checksums; here a page with a right checksum has a wrong node.
#[test]
fn a_wrong_node_is_an_error_with_its_place() {
    let tested = Tested::new(256);
    for v in 0..100 {
        tested.index.add(&tested.key(v), RowId(1)).expect("added");
    }
    let (page, _) = tested.leaves()[3];
    let page = strandline_storage::pages::PageNumber(page);
    let mut refused = 0;
    for at in 0..256 {
        let mut change = tested.store.begin(FILE);
        change.write(page).expect("latched");
        let before = change.body(page)[at];
        change.body_mut(page)[at] = before ^ 0x55;
        change.commit().expect("written");
        let mut damage = Vec::new();
        tested.index.check(&mut damage).expect("checked");
        refused += usize::from(!damage.is_empty());
        let place = format!("page {page} of page file 7");
        let is_named = |line: &String| line.contains(&place) || line.contains("page");
        assert!(damage.iter().all(is_named), "{damage:?}");
        // Whatever an operation answers, it ends.
        let _ = tested.index.lookup(&tested.key(20), &mut Vec::new());
        let range = KeyRange::default();
        let mut cursor = tested
            .index
            .cursor(&range, Direction::Forward)
            .expect("ordered");
        while let Ok(Some(_)) = cursor.next() {}
        let mut change = tested.store.begin(FILE);
        change.write(page).expect("latched");
        change.body_mut(page)[at] = before;
        change.commit().expect("written");
    }
    assert!(refused > 60, "{refused}");
    tested.assert_whole();
}

/// The log fails at each append in turn: a failed operation has changed nothing, and what a failed
/// posting has left out the next writers add.
#[test]
fn an_operation_that_fails_has_changed_nothing() {
    for appends in 0..120 {
        let log = Arc::new(MemoryLog::default());
        let device = Arc::new(MemoryDevice::default());
        let tested = Tested::on(store(device, log.clone(), 100), 256);
        let (mut rng, mut model) = (Rng::new(appends as u64), Entries::new());
        log.0.lock().expect("not poisoned").appends_left = Some(appends);
        for step in 0..200 {
            let entry = (tested.key(rng.below(60) as i64), RowId(rng.below(3)));
            if rng.one_in(3) {
                if tested
                    .index
                    .retire(&entry.0, entry.1, CommitTs::ZERO)
                    .is_ok()
                {
                    model.remove(&entry);
                }
            } else {
                let mut others = Vec::new();
                match tested.index.insert(&entry.0, entry.1, &mut others) {
                    Ok(_) => {
                        model.insert(entry);
                    }
                    Err(_) => assert!(others.is_empty()),
                }
            }
            if step == 150 {
                log.0.lock().expect("not poisoned").appends_left = None;
            }
        }
        assert_sound(&tested.index);
        let seen = collect(&tested.index, &KeyRange::default(), Direction::Forward);
        assert!(seen.iter().eq(&model), "{appends} appends");
        // Writers that come to unposted nodes post them.
        for v in 0..60 {
            tested.index.add(&tested.key(v), RowId(9)).expect("added");
        }
        let (_, unposted) = nodes(&tested.index.tree);
        assert_eq!(unposted, 0, "{appends} appends");
    }
}
