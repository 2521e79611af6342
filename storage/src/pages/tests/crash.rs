//! A crash at every operation of the device, twice in a row; lost and failed writes.

use std::fmt;

use strandline_base::sync::Mutex;

use super::*;

const STEPS: usize = 60;

/// Creates a file and works on it until the crash, or to the end.
fn run(disk: &SimDisk, seed: u64) -> Option<Rig> {
    let mut rig = Rig::create(disk, 4).ok()?;
    work(&mut rig, seed, STEPS);
    Some(rig)
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
                recover_twice(&crashed, (style, at), None, &what);
            }
        }
    }
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

/// Makes a page dirty at both ends, durably in the log.
fn dirty(rig: &mut Rig) -> PageNumber {
    let number = *rig.pages().keys().next().expect("a page");
    let flip = |body: &mut [u8]| {
        body[0] ^= 1;
        body[PAGE_BODY_BYTES - 1] ^= 1;
    };
    let mut change = rig.store.begin(FILE);
    change.write(number).unwrap();
    flip(change.body_mut(number));
    let lsn = change.commit().unwrap();
    let mut pages = rig.pages().clone();
    let body: &mut Vec<u8> = Arc::make_mut(pages.get_mut(&number).unwrap());
    flip(body);
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

/// A log that runs a piece of work when a checkpoint first asks for durability.
struct Interrupted {
    log: Arc<WalLog>,
    work: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl fmt::Debug for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.log.fmt(f)
    }
}

impl PageLog for Interrupted {
    fn append(&self, record: &[u8]) -> Result<Lsn> {
        self.log.append(record)
    }
    fn make_durable(&self, through: Lsn) -> Result<()> {
        let work = self.work.lock().take();
        if let Some(work) = work {
            work();
        }
        self.log.make_durable(through)
    }
    fn end(&self) -> Lsn {
        self.log.end()
    }
}

fn set_first(store: &Arc<PageStore>, number: PageNumber, byte: u8) -> Lsn {
    let mut change = store.begin(FILE);
    change.write(number).unwrap();
    change.body_mut(number)[0] = byte;
    change.commit().unwrap()
}

/// Redo from a checkpoint's begin has the changes that were committed while it ran, and the first
/// of them on a page is an image.
#[test]
fn changes_during_a_checkpoint_lie_behind_its_begin() {
    let disk = SimDisk::new(1);
    let rig = Rig::create(&disk, 8).unwrap();
    let log = Arc::new(Interrupted {
        log: rig.log.clone(),
        work: Mutex::new(None),
    });
    let store = PageStore::new(disk.device(), log.clone(), settings(8));
    store.open_file(FILE).unwrap();
    let mut change = store.begin(FILE);
    let numbers = [(); 2].map(|()| change.allocate().unwrap());
    let before = change.commit().unwrap();
    let (changer, kept) = (Arc::clone(&store), Arc::new(Mutex::new(Lsn(0))));
    let lsn = Arc::clone(&kept);
    *log.work.lock() = Some(Box::new(move || {
        *lsn.lock() = set_first(&changer, numbers[1], 7);
    }));
    let begin = store.checkpoint().unwrap();
    let during = *kept.lock();
    assert!(
        before <= begin && begin < during,
        "{before:?} {begin:?} {during:?}"
    );
    let after = set_first(&store, numbers[0], 8);
    rig.log.make_durable(after).unwrap();
    for style in 0..3 {
        let disk = disk.after_crash(style);
        let found = Rig::recover(&disk, 8, begin, &rig.history).unwrap();
        let first = |number| found.read(number).unwrap()[0];
        assert_eq!((first(numbers[0]), first(numbers[1])), (8, 7));
    }
}
