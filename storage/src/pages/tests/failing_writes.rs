//! A file whose pages cannot be written does not fail the use of other files.

use super::*;

const OTHER: PageFileId = PageFileId(8);

/// A store with two files, and the pages of `OTHER`, which are clean.
fn two_files(budget_pages: usize) -> (SimDisk, Rig, Vec<PageNumber>) {
    let disk = SimDisk::new(11);
    let rig = Rig::create(&disk, budget_pages).unwrap();
    rig.store.create_file(OTHER).unwrap();
    let mut change = rig.store.begin(OTHER);
    let others: Vec<PageNumber> = (0..32).map(|_| change.allocate().unwrap()).collect();
    change.commit().unwrap();
    rig.store.checkpoint().unwrap();
    (disk, rig, others)
}

/// Changes one page of `FILE`, which becomes dirty.
fn dirty_one(rig: &Rig) -> Result<Lsn> {
    let mut change = rig.store.begin(FILE);
    change.allocate()?;
    change.commit()
}

#[test]
fn a_file_that_cannot_be_written_fails_no_other_file() {
    let (disk, rig, others) = two_files(8);
    dirty_one(&rig).unwrap();
    rig.log.make_durable(rig.log.end()).unwrap();
    disk.fail_writes(&page_file_name(FILE));
    for number in others.iter().cycle().take(100) {
        rig.store.read(OTHER, *number, Access::Random).unwrap();
    }
    let stats = rig.store.stats();
    assert!(
        stats.frames <= stats.frames_max,
        "clean pages leave: {stats:?}"
    );
    disk.mend_writes();
    rig.store.checkpoint().unwrap();
    assert!(rig.store.check(FILE).is_ok() && rig.store.check(OTHER).is_ok());
}

/// Dirty pages that cannot be written take a quarter more than the budget; then it is an error.
#[test]
fn pages_that_cannot_be_written_exceed_the_budget_by_a_bound() {
    let (disk, rig, others) = two_files(32);
    let mut failed = None;
    disk.fail_writes(&page_file_name(FILE));
    for _ in 0..64 {
        if let Err(failure) = dirty_one(&rig) {
            failed = Some(failure);
            break;
        }
    }
    let stats = rig.store.stats();
    assert!(failed.is_some(), "{stats:?}");
    assert!(stats.frames > 32 && stats.frames <= 32 + 8 + 2, "{stats:?}");
    assert!(stats.excused > 0, "{stats:?}");
    disk.mend_writes();
    rig.store.read(OTHER, others[0], Access::Random).unwrap();
    rig.store.checkpoint().unwrap();
    assert!(rig.store.check(FILE).is_ok() && rig.store.check(OTHER).is_ok());
}

/// In redo the file whose pages cannot be written is closed, not that of the record.
#[test]
fn redo_closes_the_file_that_cannot_be_written() {
    let (_, rig, _) = two_files(4);
    let redo = rig.redo;
    for _ in 0..24 {
        dirty_one(&rig).unwrap();
    }
    let middle = rig.log.end();
    let mut change = rig.store.begin(OTHER);
    for _ in 0..12 {
        change.allocate().unwrap();
    }
    let end = change.commit().unwrap();
    rig.log.make_durable(end).unwrap();
    let mut records = Vec::new();
    let visit = &mut |lsn, record: &[u8]| {
        records.push((lsn, record.to_vec()));
        Ok(())
    };
    rig.log.0.read((redo, end), visit).unwrap();
    // From the first record on, and with memory full of pages of `FILE`.
    for (from, is_closed) in [(Lsn(0), true), (middle, false)] {
        let disk = rig.disk.after_kill();
        let store = PageStore::new(disk.device(), rig.log.clone(), settings(4));
        store.open_file(FILE).unwrap();
        store.open_file(OTHER).unwrap();
        for (lsn, record) in &records {
            if *lsn > from {
                disk.fail_writes(&page_file_name(FILE));
            }
            store.replay(record, *lsn).unwrap();
            assert!(store.stats().frames <= 4 + 4);
        }
        assert_eq!(store.check_usable(FILE).is_err(), is_closed);
        store.check_usable(OTHER).unwrap();
        store.check(OTHER).unwrap();
    }
}
