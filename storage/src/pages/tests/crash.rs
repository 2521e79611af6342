//! A crash at every operation of the device, twice in a row; lost and failed writes.

use super::*;

const STEPS: usize = 60;

/// Creates a file and works on it until the crash, or to the end.
fn run(disk: &SimDisk, seed: u64) -> Option<Rig> {
    let mut rig = Rig::create(disk, 4).ok()?;
    work(&mut rig, seed, STEPS);
    Some(rig)
}

/// Works until the disk has crashed, at most so many steps.
fn work(rig: &mut Rig, seed: u64, steps: usize) {
    let rng = &mut Rng::new(seed);
    for _ in 0..steps {
        if let Err(e) = rig.step(rng, !seed.is_multiple_of(3)) {
            assert!(rig.disk.has_crashed(), "seed {seed}: {e}");
            return;
        }
    }
}

#[test]
fn every_crash_keeps_whole_commits() {
    for seed in [2, 3] {
        let disk = SimDisk::new(seed);
        let first = run(&disk, seed).expect("no crash");
        first.verify("no crash");
        for at in 1..=disk.operations() {
            let disk = SimDisk::new(seed);
            disk.crash_at(at);
            // Before the file exists there is nothing to recover.
            let Some(crashed) = run(&disk, seed) else {
                continue;
            };
            for style in 0..4 {
                let what = format!("seed {seed}, crash at {at}, style {style}");
                recover_twice(&crashed, style, at, &what);
            }
        }
    }
}

/// Recovers with a second crash somewhere in recovery or soon after it, then without one.
fn recover_twice(crashed: &Rig, style: u64, at: u64, what: &str) {
    let (redo, history) = (crashed.redo, &crashed.history);
    let disk = crashed.disk.after_crash(style);
    disk.crash_at(1 + (at * 7 + style * 5) % 60);
    let (redo, history) = match Rig::recover(&disk, 4, redo, history) {
        Ok(mut rig) => {
            work(&mut rig, at + style, 12);
            (rig.redo, rig.history)
        }
        Err(e) => {
            assert!(disk.has_crashed(), "{what}: {e}");
            (redo, history.clone())
        }
    };
    let disk = disk.after_crash(style + 1);
    let mut rig = Rig::recover(&disk, 4, redo, &history).unwrap_or_else(|e| panic!("{what}: {e}"));
    rig.verify(what);
    // A small pool has written pages during redo; a checkpoint must make all of them durable.
    rig.checkpoint(true).unwrap();
    let disk = disk.after_crash(0);
    let rig = Rig::recover(&disk, 64, rig.redo, &rig.history).unwrap();
    rig.verify(what);
}

/// The kernel loses the pages that were written, but they stay readable: redo writes them again.
#[test]
fn lost_writes_are_written_again() {
    for seed in 0..20 {
        let disk = SimDisk::new(seed);
        let rig = run(&disk, seed).expect("no crash");
        rig.log.make_durable(rig.log.end()).unwrap();
        disk.lose_unsynced();
        let disk = disk.after_kill();
        let mut rig = Rig::recover(&disk, 64, rig.redo, &rig.history).unwrap();
        rig.checkpoint(false).unwrap();
        let disk = disk.after_crash(0);
        disk.drop_clean_pages();
        let rig = Rig::recover(&disk, 4, rig.redo, &rig.history).unwrap();
        rig.verify(&format!("seed {seed}"));
    }
}

/// Makes a page dirty, durably in the log.
fn dirty(rig: &mut Rig) -> PageNumber {
    let number = *rig.pages().keys().next().expect("a page");
    let mut change = rig.store.begin(FILE);
    change.write(number).unwrap();
    change.body_mut(number)[0] ^= 1;
    let lsn = change.commit().unwrap();
    let mut pages = rig.pages().clone();
    Arc::make_mut(pages.get_mut(&number).unwrap())[0] ^= 1;
    rig.note(lsn, pages);
    rig.log.make_durable(lsn).unwrap();
    number
}

/// A failed sync closes the file, moves no checkpoint, and the next opening repairs.
#[test]
fn after_a_failed_sync_the_file_is_closed() {
    for seed in 0..10 {
        let disk = SimDisk::new(seed);
        let mut rig = run(&disk, seed).expect("no crash");
        let number = dirty(&mut rig);
        disk.fail_sync(1);
        let error = rig.store.checkpoint().expect_err("the sync failed");
        assert_eq!(error.sqlstate(), SqlState::IO_ERROR);
        assert!(rig.read(number).is_err(), "the file is closed");
        assert!(rig.store.begin(FILE).write(number).is_err());
        assert!(
            rig.store.checkpoint().is_err(),
            "a second sync proves nothing"
        );
        let disk = disk.after_crash(seed);
        let rig = Rig::recover(&disk, 4, rig.redo, &rig.history).unwrap();
        rig.verify(&format!("seed {seed}"));
    }
}

/// A failed write leaves the page in memory, to be written later.
#[test]
fn after_a_failed_write_the_page_stays_dirty() {
    for seed in 0..12 {
        let disk = SimDisk::new(seed);
        let mut rig = run(&disk, seed).expect("no crash");
        rig.checkpoint(true).unwrap();
        dirty(&mut rig);
        disk.fail_write(1);
        assert!(rig.store.checkpoint().is_err());
        rig.checkpoint(true).unwrap();
        let disk = disk.after_crash(0);
        let rig = Rig::recover(&disk, 4, rig.redo, &rig.history).unwrap();
        rig.verify(&format!("seed {seed}"));
    }
}
