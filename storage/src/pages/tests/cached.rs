//! Page files below an SSD cache: a model, crashes at every operation, and other modes afterwards.

use strandline_device::Device;

use super::*;

const MODES: [Mode; 4] = [Mode::Pc, Mode::Pc2, Mode::Lc, Mode::Off];

fn run(disk: &SimDisk, seed: u64, mode: Mode, steps: usize) -> Option<Rig> {
    let mut rig = Rig::create_with(disk, 4, Some(mode)).ok()?;
    work(&mut rig, seed, steps);
    Some(rig)
}

#[test]
fn pages_are_what_was_committed_in_every_mode() {
    for (seed, mode) in (0..12).map(|seed| (seed, MODES[seed as usize % 4])) {
        let rig = run(&SimDisk::new(seed), seed, mode, 400).expect("no crash");
        rig.verify(&format!("seed {seed}, {mode:?}"));
        let stats = rig.store.cache().expect("with a cache").stats();
        let is_used = stats.hits > 0 && stats.admissions > 0;
        assert_eq!(
            is_used,
            mode != Mode::Off,
            "seed {seed}, {mode:?}: {stats:?}"
        );
    }
}

/// The recovery may crash too; when it is done, the next opening may use another mode.
#[test]
fn every_crash_keeps_whole_commits_in_every_mode() {
    for (seed, mode) in (1..).zip(MODES) {
        let disk = SimDisk::new(seed);
        run(&disk, seed, mode, 60)
            .expect("no crash")
            .verify("no crash");
        let stride = if mode == Mode::Pc { 1 } else { 3 };
        for at in (1..=disk.operations()).step_by(stride) {
            let disk = SimDisk::new(seed);
            disk.crash_at(at);
            let Some(crashed) = run(&disk, seed, mode, 60) else {
                continue;
            };
            for style in 0..4 {
                let next = if style == 3 {
                    MODES[at as usize % 4]
                } else {
                    mode
                };
                let what = format!("seed {seed}, {mode:?}, crash at {at}, style {style}, {next:?}");
                recover_twice(&crashed, (style, at), Some(next), &what);
            }
        }
    }
}

/// The kernel loses the bytes that were written, but they stay readable.
#[test]
fn lost_writes_are_written_again_through_the_cache() {
    for (seed, mode) in (0..12).map(|seed| (seed, MODES[seed as usize % 4])) {
        let disk = SimDisk::new(seed);
        let rig = run(&disk, seed, mode, 60).expect("no crash");
        rig.log.make_durable(rig.log.end()).unwrap();
        disk.lose_unsynced();
        let disk = disk.after_kill();
        let cache = Some(mode);
        let mut rig = Rig::recover_with(&disk, 64, rig.redo, &rig.history, cache).unwrap();
        rig.checkpoint(false).unwrap();
        let disk = disk.after_crash(0);
        disk.drop_clean_pages();
        let rig = Rig::recover_with(&disk, 4, rig.redo, &rig.history, cache).unwrap();
        rig.verify(&format!("seed {seed}, {mode:?}"));
    }
}

/// A page that was read at random and leaves memory is read from the SSD next time, also after a
/// restart.
#[test]
fn clean_pages_come_back_from_the_cache() {
    let disk = SimDisk::new(1);
    let mut rig = Rig::create_with(&disk, 4, Some(Mode::Pc)).unwrap();
    let mut change = rig.store.begin(FILE);
    let numbers: Vec<PageNumber> = (0..8).map(|_| change.allocate().unwrap()).collect();
    let mut pages = Pages::new();
    for number in &numbers {
        change.body_mut(*number)[9] = number.0 as u8;
        let mut body = vec![0; PAGE_BODY_BYTES];
        body[9] = number.0 as u8;
        pages.insert(*number, Arc::new(body));
    }
    let lsn = change.commit().unwrap();
    rig.note(lsn, pages);
    rig.checkpoint(false).unwrap();
    for _ in 0..3 {
        rig.verify("read at random");
        while rig.store.cache().unwrap().step().unwrap() {}
    }
    rig.checkpoint(false).unwrap();
    let disk = disk.after_crash(0);
    let rig = Rig::recover_with(&disk, 4, rig.redo, &rig.history, Some(Mode::Pc)).unwrap();
    rig.verify("after the restart");
    let stats = rig.store.cache().unwrap().stats();
    assert!(stats.hits >= 8, "{stats:?}");
}

/// One random read is enough for a page to enter the cache; a sequential one is not.
#[test]
fn one_random_read_qualifies_a_page() {
    for access in [Access::Random, Access::Sequential] {
        let disk = SimDisk::new(1);
        let rig = Rig::create(&disk, 16).unwrap();
        let mut change = rig.store.begin(FILE);
        let numbers: Vec<PageNumber> = (0..8).map(|_| change.allocate().unwrap()).collect();
        change.commit().unwrap();
        rig.store.checkpoint().unwrap();
        let store = store_on(&disk, &rig.log, 4, Some(Mode::Pc)).unwrap();
        store.open_file(FILE).unwrap();
        for number in numbers {
            drop(store.read(FILE, number, access).unwrap());
        }
        let admissions = store.cache().unwrap().stats().admissions;
        assert_eq!(admissions > 0, access == Access::Random, "{admissions}");
    }
}

/// A dropped file's blocks are copied nowhere, and the cache forgets them.
#[test]
fn a_dropped_file_leaves_the_cache() {
    for mode in [Mode::Pc, Mode::Lc] {
        let disk = SimDisk::new(2);
        let rig = run(&disk, 2, mode, 60).expect("no crash");
        assert_eq!(rig.store.cache().unwrap().files(), [7].into());
        rig.store.drop_file(FILE).unwrap();
        assert!(rig.store.cache().unwrap().files().is_empty());
        while rig.store.cache().unwrap().step().unwrap() {}
        rig.store.checkpoint().unwrap();
        assert_eq!(disk.content(&page_file_name(FILE)), None);
        // A crash between the removal of the file and the next round of the cache.
        let disk = SimDisk::new(2);
        let rig = run(&disk, 2, mode, 60).expect("no crash");
        rig.store.checkpoint().unwrap();
        disk.device().remove(&page_file_name(FILE)).unwrap();
        disk.device().sync_directory().unwrap();
        let disk = disk.after_crash(0);
        for next in [mode, Mode::Off] {
            let wal = Wal::create(SimDisk::new(9).device(), wal_settings(), ID).unwrap();
            let store = store_on(&disk, &Arc::new(WalLog(wal)), 4, Some(next)).unwrap();
            assert!(
                store.cache().unwrap().files().is_empty(),
                "{mode:?}, {next:?}"
            );
        }
    }
}
