//! Slots that threads append to the same pages, beside checkpoints, readers and whole changes.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;

use strandline_base::Error;

use super::super::frame::{Begun, Coldness};
use super::*;

const THREADS: usize = 4;
const SLOTS: usize = 100;
const SLOT_BYTES: usize = 16;

fn slot(thread: usize, no: usize) -> Vec<u8> {
    let mut bytes = vec![thread as u8 + 1; SLOT_BYTES];
    bytes[1] = no as u8;
    bytes
}

/// The slot in the first free place.
fn into_free(body: &[u8], bytes: &[u8]) -> Option<SlotWrite> {
    let free = body.chunks(SLOT_BYTES).position(|slot| slot[0] == 0)?;
    Some(SlotWrite {
        offset: free * SLOT_BYTES,
        bytes: bytes.to_vec(),
    })
}

fn has(body: &[u8], bytes: &[u8]) -> bool {
    body.chunks(SLOT_BYTES).any(|slot| slot == bytes)
}

fn used(body: &[u8]) -> usize {
    body.chunks(SLOT_BYTES).filter(|slot| slot[0] != 0).count()
}

fn two_pages(rig: &Rig) -> [PageNumber; 2] {
    let mut change = rig.store.begin(FILE);
    let numbers = [(); 2].map(|()| change.allocate().unwrap());
    change.commit().unwrap();
    numbers
}

/// A thread that runs; the last one notes its end, also when it panics.
struct Running<'a>(&'a AtomicUsize, &'a AtomicBool);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if self.0.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.1.store(true, Ordering::Release);
        }
    }
}

/// Each thread finds what it has appended at once. After a crash the pages have exactly the slots
/// whose records the log has.
#[test]
fn threads_append_beside_checkpoints() {
    for seed in 0..6 {
        let disk = SimDisk::new(seed);
        let rig = Rig::create(&disk, 4).unwrap();
        let numbers = two_pages(&rig);
        let (logged, is_over) = (Mutex::new(Vec::new()), AtomicBool::new(false));
        let running = AtomicUsize::new(THREADS);
        let redo = thread::scope(|scope| {
            for thread in 0..THREADS {
                let (rig, logged, running, is_over) = (&rig, &logged, &running, &is_over);
                scope.spawn(move || {
                    let _running = Running(running, is_over);
                    for no in 0..SLOTS {
                        let (bytes, number) = (slot(thread, no), numbers[no % 2]);
                        let mut choose = |body: &[u8]| into_free(body, &bytes);
                        let lsn = rig.store.append_slot(FILE, number, &mut choose).unwrap();
                        let body = rig.read(number).unwrap();
                        assert!(has(&body, &bytes) && body.lsn() >= lsn.unwrap());
                        logged.lock().unwrap().push((lsn.unwrap(), number, bytes));
                    }
                });
            }
            let mut redo = Lsn(0);
            while !is_over.load(Ordering::Acquire) {
                redo = rig.store.checkpoint().unwrap();
            }
            redo
        });
        let (logged, history) = (logged.into_inner().unwrap(), &rig.history);
        for style in 0..3 {
            let rig = Rig::recover(&disk.after_crash(style), 4, redo, history).unwrap();
            let end = rig.log.end();
            for number in numbers {
                let body = rig.read(number).unwrap();
                let kept = logged.iter().filter(|(_, of, _)| *of == number);
                let kept: Vec<_> = kept.filter(|(lsn, _, _)| *lsn <= end).collect();
                assert!(
                    kept.iter().all(|(_, _, bytes)| has(&body, bytes)),
                    "seed {seed}"
                );
                assert_eq!(used(&body), kept.len(), "seed {seed}, style {style}");
            }
        }
    }
}

/// A log in which appends wait until so many threads append at once, and of which some fail.
#[derive(Debug)]
struct Gathering {
    log: Arc<WalLog>,
    barrier: Barrier,
    is_gathering: AtomicBool,
    /// appends that fail
    failures_left: AtomicUsize,
}

impl PageLog for Gathering {
    fn append(&self, record: &[u8]) -> Result<Lsn> {
        if self.is_gathering.load(Ordering::Acquire) {
            self.barrier.wait();
        }
        let left = |left: usize| left.checked_sub(1);
        let failure = self
            .failures_left
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, left);
        match failure {
            Ok(_) => Err(Error::internal("the log is full")),
            Err(_) => self.log.append(record),
        }
    }
    fn make_durable(&self, through: Lsn) -> Result<()> {
        self.log.make_durable(through)
    }
    fn end(&self) -> Lsn {
        self.log.end()
    }
}

/// All threads have the page at the same time: each is in the log's append before any has left it.
/// A slot whose append fails does not remain. Redo writes the others, which have the same base.
#[test]
fn appenders_have_a_page_together() {
    for failures in 0..=THREADS {
        let disk = SimDisk::new(1);
        let rig = Rig::create(&disk, 8).unwrap();
        let log = Arc::new(Gathering {
            log: rig.log.clone(),
            barrier: Barrier::new(THREADS),
            is_gathering: AtomicBool::new(false),
            failures_left: AtomicUsize::new(0),
        });
        let store = PageStore::new(disk.device(), log.clone(), settings(8));
        store.open_file(FILE).unwrap();
        let mut change = store.begin(FILE);
        let number = change.allocate().unwrap();
        change.commit().unwrap();
        log.is_gathering.store(true, Ordering::Release);
        log.failures_left.store(failures, Ordering::Release);
        let failed = AtomicUsize::new(0);
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let (store, failed) = (&store, &failed);
                scope.spawn(move || {
                    let mut choose = |body: &[u8]| into_free(body, &slot(thread, 0));
                    let appended = store.append_slot(FILE, number, &mut choose);
                    failed.fetch_add(usize::from(appended.is_err()), Ordering::AcqRel);
                });
            }
        });
        assert_eq!(failed.into_inner(), failures);
        let body = store.read(FILE, number, Access::Random).unwrap();
        assert_eq!(used(&body), THREADS - failures);
        assert_eq!(body.lsn(), log.end(), "the greatest of the batch");
        log.make_durable(log.end()).unwrap();
        let found = Rig::recover(&disk.after_crash(0), 8, Lsn(0), &rig.history).unwrap();
        assert!(found.read(number).unwrap()[..] == body[..]);
    }
}

/// A page whose slots lie over a change that the log lacks is closed, not repaired by half.
#[test]
fn a_slot_over_a_missing_change_closes_the_file() {
    let disk = SimDisk::new(1);
    let rig = Rig::create(&disk, 8).unwrap();
    let [number, _] = two_pages(&rig);
    rig.store.checkpoint().unwrap();
    let slot = SlotWrite {
        offset: 0,
        bytes: vec![1],
    };
    let lsn = rig.read(number).unwrap().lsn();
    for (base, at, is_right) in [(lsn.0 + 1, lsn.0 + 9, false), (lsn.0, lsn.0 + 9, true)] {
        let store = PageStore::new(disk.device(), rig.log.clone(), settings(8));
        store.open_file(FILE).unwrap();
        let mut record = record::begin_slot(FILE);
        record::put_slot(&mut record, number, Lsn(base), &slot);
        store.replay(&record, Lsn(at)).unwrap();
        assert_eq!(store.check_usable(FILE).is_ok(), is_right);
        if is_right {
            // The same record again, and an older one, change nothing.
            store.replay(&record, Lsn(at)).unwrap();
            store.replay(&record, Lsn(at - 1)).unwrap();
            let body = store.read(FILE, number, Access::Random).unwrap();
            assert_eq!((body[0], body.lsn()), (1, Lsn(at)));
        }
    }
}

/// An appender that has waited for a change of its page may find that the page leaves memory. It
/// looks the page up again: its slot would be in no image that a reader finds.
#[test]
fn no_slot_is_written_into_a_page_that_leaves_memory() {
    /// Turns that an appender gets, if nothing keeps it from going on.
    const TURNS: usize = 200;
    let rig = Rig::create(&SimDisk::new(1), 16).unwrap();
    let [number, _] = two_pages(&rig);
    rig.store.checkpoint().unwrap();
    let id = PageId { file: FILE, number };
    let bytes = slot(0, 0);
    let give_turns = |is_over: &dyn Fn() -> bool| {
        let mut turns = 0..TURNS;
        while turns.next().is_some() && !is_over() {
            thread::yield_now();
        }
    };
    let mut left = 0;
    for _ in 0..100 {
        drop(rig.read(number).unwrap());
        let frame = rig.store.cached(id).expect("just read");
        frame.latch_exclusive().expect("in memory");
        let begun = thread::scope(|scope| {
            let appender = scope.spawn(|| frame.begin_append(&mut |body| into_free(body, &bytes)));
            give_turns(&|| false);
            frame.unlatch_exclusive();
            // The page has been used since the last look; the second look finds it cold.
            if (0..2).any(|_| matches!(frame.evict_if_cold(true), Coldness::Leaving(_))) {
                left += 1;
                give_turns(&|| appender.is_finished());
                frame.leave();
            }
            appender.join().expect("no panic")
        });
        match begun {
            Begun::Slot(append) => {
                assert!(!frame.is_gone(), "a slot in a page that has left");
                frame.cancel_append(&append);
            }
            Begun::Gone => rig.store.forget(&frame),
            Begun::Nothing => panic!("the page has room"),
        }
    }
    assert!(left > 0, "the page never left before its appender");
}
