//! Damage in the file is an error with file and page, never a wrong answer.

use super::*;

fn written() -> (SimDisk, Rig) {
    let disk = SimDisk::new(9);
    let mut rig = Rig::create(&disk, 4).unwrap();
    let rng = &mut Rng::new(9);
    (0..30).for_each(|_| rig.change(rng).unwrap());
    rig.checkpoint(true).unwrap();
    (disk, rig)
}

#[test]
fn a_damaged_page_is_refused_and_found_by_check() {
    let (disk, rig) = written();
    let (redo, history) = (rig.redo, rig.history);
    let number = *history.last().unwrap().1.keys().nth(1).unwrap();
    let start = u64::from(number.0) * PAGE_BYTES as u64;
    for offset in (0..PAGE_HEADER_BYTES as u64).chain([100, 4096, 8191]) {
        let disk = disk.after_kill();
        disk.flip_bits(&page_file_name(FILE), start + offset, 4);
        let rig = Rig::recover(&disk, 4, redo, &history).unwrap();
        let error = rig.read(number).expect_err("damaged");
        let state = error.sqlstate();
        let is_newer = offset == 3 && state == SqlState::FEATURE_NOT_SUPPORTED;
        assert!(is_newer || state == SqlState::DATA_CORRUPTED, "{error}");
        let place = format!("pages-00000007 page {number} ");
        assert!(error.to_string().contains(&place), "{error}");
        assert!(rig.store.check(FILE).is_err(), "byte {offset}");
        // The others are as before.
        for (other, body) in rig.pages().iter().filter(|(other, _)| **other != number) {
            assert!(rig.read(*other).unwrap()[..] == body[..]);
        }
    }
}

/// A file that is too short, and a page of another place.
#[test]
fn missing_and_misdirected_pages_are_refused() {
    let (disk, rig) = written();
    let mut numbers = rig.pages().keys().copied();
    let (one, other) = (numbers.next().unwrap(), numbers.next().unwrap());
    let bytes = disk.content(&page_file_name(FILE)).unwrap();
    let at = |number: PageNumber| number.0 as usize * PAGE_BYTES;
    let page = &bytes[at(one)..at(one) + PAGE_BYTES];
    let disk = disk.after_kill();
    let file = strandline_device::Device::open(&*disk.device(), &page_file_name(FILE)).unwrap();
    file.write_all_at(page, at(other) as u64).unwrap();
    let rig = Rig::recover(&disk, 4, rig.redo, &rig.history).unwrap();
    let error = rig.read(other).expect_err("misdirected");
    assert!(error.to_string().contains("misdirected"), "{error}");
    let last = *rig.pages().keys().next_back().unwrap();
    file.set_len(at(last) as u64).unwrap();
    let error = rig.read(last).expect_err("missing");
    assert_eq!(error.sqlstate(), SqlState::DATA_CORRUPTED);
    assert!(rig.store.check(FILE).is_err());
}

/// A delta on a page that lacks an earlier change closes the file.
#[test]
fn a_missing_change_closes_the_file() {
    let disk = SimDisk::new(2);
    let mut rig = Rig::create(&disk, 8).unwrap();
    rig.change(&mut Rng::new(2)).unwrap();
    let number = *rig.pages().keys().next().unwrap();
    rig.checkpoint(true).unwrap();
    let old = disk.after_kill();
    let set = |byte: u8| {
        let mut change = rig.store.begin(FILE);
        change.write(number).unwrap();
        change.body_mut(number)[0] = byte;
        change.commit().unwrap()
    };
    let first = set(91);
    let second = set(92);
    rig.log.make_durable(second).unwrap();
    let mut records = Vec::new();
    let visit = &mut |_, record: &[u8]| {
        records.push(record.to_vec());
        Ok(())
    };
    rig.log.0.read((rig.redo, second), visit).unwrap();
    assert_eq!(records.len(), 2);
    let store = PageStore::new(old.device(), rig.log.clone(), settings(8));
    store.open_file(FILE).unwrap();
    store.replay(&records[1], second).unwrap();
    let error = store.check_usable(FILE).expect_err("a change is missing");
    assert_eq!(error.sqlstate(), SqlState::DATA_CORRUPTED);
    assert!(store.read(FILE, number, Access::Random).is_err());
    // Both are fine, and again are no change.
    let store = PageStore::new(old.device(), rig.log.clone(), settings(8));
    store.open_file(FILE).unwrap();
    for _ in 0..2 {
        store.replay(&records[0], first).unwrap();
        store.replay(&records[1], second).unwrap();
    }
    assert_eq!(store.read(FILE, number, Access::Random).unwrap()[0], 92);
}
