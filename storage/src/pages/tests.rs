//! Page files against a model: arrays of bytes per page, over crashes and damage.

use std::collections::BTreeMap;
use std::sync::Arc;

use strandline_base::rng::Rng;
use strandline_base::{Result, SqlState};
use strandline_sim::SimDisk;

use super::*;
use crate::pool::Pool;
use crate::ssd_cache::{Mode, Settings as CacheSettings};
use crate::wal::{Wal, WalSettings};

mod appends;
mod cached;
mod concurrency;
mod crash;
mod damage;
mod decode;
mod failing_writes;
mod held;
mod prefetch;
mod shared;
mod shrink;

const FILE: PageFileId = PageFileId(7);
const ID: u128 = 0x51 << 70 | 3;

#[derive(Debug)]
struct WalLog(Wal);

impl PageLog for WalLog {
    fn append(&self, record: &[u8]) -> Result<Lsn> {
        let appended = self.0.append(&mut record.to_vec(), &mut |_, _| Ok(()))?;
        Ok(appended.end)
    }
    fn make_durable(&self, through: Lsn) -> Result<()> {
        self.0.wait_durable(through)
    }
    fn end(&self) -> Lsn {
        self.0.end_lsn()
    }
}

/// The bodies of the pages in use.
type Pages = BTreeMap<PageNumber, Arc<Vec<u8>>>;

/// A database of one page file, and all it has committed.
struct Rig {
    disk: SimDisk,
    /// the mode of the SSD cache, if there is one
    cache: Option<Mode>,
    log: Arc<WalLog>,
    store: Arc<PageStore>,
    /// what a manifest would have: the last checkpoint's begin
    redo: Lsn,
    /// commits by their LSN, the first at 0
    history: Vec<(Lsn, Pages)>,
}

fn settings(pages: usize) -> PageSettings {
    PageSettings {
        pool: Pool::new(pages * PAGE_BYTES),
        database_id: ID,
        ..PageSettings::default()
    }
}

fn wal_settings() -> WalSettings {
    WalSettings {
        segment_bytes: 64 << 10,
    }
}

/// A store of so many pages in memory, with an SSD cache of ten pages if `cache` is a mode.
fn store_on(
    disk: &SimDisk,
    log: &Arc<WalLog>,
    budget_pages: usize,
    cache: Option<Mode>,
) -> Result<Arc<PageStore>> {
    let device = held::Held::new(disk.device());
    let settings = settings(budget_pages);
    let Some(mode) = cache else {
        return Ok(PageStore::new(device, log.clone(), settings));
    };
    let mut cache = CacheSettings::new(ID, 10 * (8192 + 512));
    (cache.mode, cache.free_slots, cache.batch) = (mode, 3, 2);
    PageStore::with_cache(device, log.clone(), settings, cache)
}

impl Rig {
    fn create(disk: &SimDisk, budget_pages: usize) -> Result<Self> {
        Self::create_with(disk, budget_pages, None)
    }

    fn create_with(disk: &SimDisk, budget_pages: usize, cache: Option<Mode>) -> Result<Self> {
        let log = Arc::new(WalLog(Wal::create(disk.device(), wal_settings(), ID)?));
        let store = store_on(disk, &log, budget_pages, cache)?;
        store.create_file(FILE)?;
        Ok(Self {
            disk: disk.clone(),
            cache,
            log,
            store,
            redo: Lsn(0),
            history: vec![(Lsn(0), Pages::new())],
        })
    }

    /// Opens what a crash has left, and replays the log.
    fn recover(
        disk: &SimDisk,
        budget_pages: usize,
        redo: Lsn,
        history: &[(Lsn, Pages)],
    ) -> Result<Self> {
        Self::recover_with(disk, budget_pages, redo, history, None)
    }

    fn recover_with(
        disk: &SimDisk,
        budget_pages: usize,
        redo: Lsn,
        history: &[(Lsn, Pages)],
        cache: Option<Mode>,
    ) -> Result<Self> {
        let mut records = Vec::new();
        let mut keep = |lsn, record: &[u8]| {
            records.push((lsn, record.to_vec()));
            Ok(())
        };
        let wal = Wal::open(disk.device(), wal_settings(), ID, redo, redo, &mut keep)?;
        let end = wal.end_lsn();
        let log = Arc::new(WalLog(wal));
        let store = store_on(disk, &log, budget_pages, cache)?;
        store.open_file(FILE)?;
        let mut redo_of = Redo::new(&store);
        for (lsn, record) in &records {
            redo_of.push(record.as_slice(), *lsn)?;
        }
        redo_of.finish();
        store.check_usable(FILE)?;
        let kept = history.iter().filter(|(lsn, _)| *lsn <= end);
        Ok(Self {
            disk: disk.clone(),
            cache,
            log,
            store,
            redo,
            history: kept.cloned().collect(),
        })
    }

    fn pages(&self) -> &Pages {
        &self.history.last().expect("never empty").1
    }

    fn read(&self, number: PageNumber) -> Result<PageRead> {
        self.store.read(FILE, number, Access::Random)
    }

    /// Compares every page, the space map, and the device.
    fn verify(&self, what: &str) {
        for (number, body) in self.pages() {
            let read = self.read(*number).unwrap_or_else(|e| panic!("{what}: {e}"));
            assert!(read[..] == body[..], "{what}: page {number} differs");
        }
        let check = self
            .store
            .check(FILE)
            .unwrap_or_else(|e| panic!("{what}: {e}"));
        let used: Vec<PageNumber> = self.pages().keys().copied().collect();
        assert_eq!(check.used, used, "{what}");
    }

    fn note(&mut self, lsn: Lsn, pages: Pages) {
        if lsn > self.history.last().expect("never empty").0 {
            self.history.push((lsn, pages));
        }
    }

    fn checkpoint(&mut self, cut: bool) -> Result<()> {
        let begin = self.store.checkpoint()?;
        assert!(begin >= self.redo);
        self.redo = begin;
        if cut {
            self.log.0.cut_before(begin)?;
        }
        Ok(())
    }

    /// Appends a slot, or finds no room for it.
    fn append(&mut self, rng: &mut Rng) -> Result<()> {
        let numbers: Vec<PageNumber> = self.pages().keys().copied().collect();
        let Some(number) = numbers.get(rng.below(24) as usize).copied() else {
            return self.change(rng);
        };
        let offset = rng.below(PAGE_BODY_BYTES as u64 - 20) as usize;
        let bytes: Vec<u8> = (0..1 + rng.below(20))
            .map(|_| rng.next_u64() as u8)
            .collect();
        let mut pages = self.pages().clone();
        let body = Arc::make_mut(pages.get_mut(&number).expect("in use"));
        body[offset..offset + bytes.len()].copy_from_slice(&bytes);
        let is_wanted = rng.below(8) > 0;
        let appended = self.store.append_slot(FILE, number, &mut |_| {
            let bytes = bytes.clone();
            is_wanted.then_some(SlotWrite { offset, bytes })
        })?;
        assert_eq!(appended.is_some(), is_wanted);
        if let Some(lsn) = appended {
            self.note(lsn, pages);
        }
        Ok(())
    }

    /// One change of up to three pages; one of eight is given up.
    fn change(&mut self, rng: &mut Rng) -> Result<()> {
        let mut pages = self.pages().clone();
        let mut change = self.store.begin(FILE);
        for _ in 0..1 + rng.below(3) {
            let numbers: Vec<PageNumber> = pages.keys().copied().collect();
            let kind = rng.below(8);
            if numbers.len() < 4 || (kind == 0 && numbers.len() < 24) {
                let number = change.allocate()?;
                assert!(change.body(number).iter().all(|&byte| byte == 0));
                assert!(!pages.contains_key(&number), "page {number} is in use");
                pages.insert(number, Arc::new(vec![0; PAGE_BODY_BYTES]));
                fill(&mut change, &mut pages, number, rng);
                continue;
            }
            let number = numbers[rng.below(numbers.len() as u64) as usize];
            if kind == 1 {
                change.free(number)?;
                pages.remove(&number);
                break;
            }
            change.write(number)?;
            if kind == 2 {
                change.release(number);
                continue;
            }
            fill(&mut change, &mut pages, number, rng);
        }
        if rng.one_in(8) {
            return Ok(());
        }
        let lsn = change.commit()?;
        self.note(lsn, pages);
        Ok(())
    }

    fn step(&mut self, rng: &mut Rng, cut: bool) -> Result<()> {
        match rng.below(16) {
            0 => self.checkpoint(cut),
            1 => self.log.make_durable(self.log.end()),
            5 if self.cache.is_some() => {
                let cache = self.store.cache().expect("the rig has one");
                let done = match rng.one_in(4) {
                    true => cache.clean_idle(2).map(drop),
                    false => cache.step().map(drop),
                };
                // A slot that a crash has torn stays so until its page, which redo has repaired in
                // memory, is written.
                done.or_else(|e| match e.kind() {
                    strandline_base::ErrorKind::Corrupt => Ok(()),
                    _ => Err(e),
                })
            }
            6 => {
                let numbers = (0..3).map(|_| PageNumber(rng.below(26) as u32));
                self.store.prefetch(FILE, &numbers.collect::<Vec<_>>());
                Ok(())
            }
            7 => self.append(rng),
            2..5 => {
                let count = self.pages().len() as u64;
                let Some(at) = (count > 0).then(|| rng.below(count) as usize) else {
                    return Ok(());
                };
                let (number, body) = self.pages().iter().nth(at).expect("within");
                assert!(self.read(*number)?[..] == body[..], "page {number} differs");
                Ok(())
            }
            _ => self.change(rng),
        }
    }
}

/// Works until the disk has crashed, at most so many steps.
fn work(rig: &mut Rig, seed: u64, steps: usize) {
    let rng = &mut Rng::new(seed);
    for _ in 0..steps {
        if let Err(e) = rig.step(rng, !seed.is_multiple_of(3)) {
            assert!(rig.disk.has_crashed(), "seed {seed}, {:?}: {e}", rig.cache);
            return;
        }
    }
}

/// Recovers with a second crash somewhere in recovery or soon after it, then without one. The last
/// opening has the SSD cache `next`.
fn recover_twice(crashed: &Rig, (style, at): (u64, u64), next: Option<Mode>, what: &str) {
    let (redo, history) = (crashed.redo, &crashed.history);
    let disk = crashed.disk.after_crash(style);
    let operations = if crashed.cache.is_some() { 90 } else { 60 };
    disk.crash_at(1 + (at * 7 + style * 5) % operations);
    let (redo, history) = match Rig::recover_with(&disk, 4, redo, history, crashed.cache) {
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
    let mut rig = Rig::recover_with(&disk, 4, redo, &history, crashed.cache)
        .unwrap_or_else(|e| panic!("{what}: {e}"));
    rig.verify(what);
    // A small pool has written pages during redo; a checkpoint must make all of them durable.
    rig.checkpoint(true)
        .unwrap_or_else(|e| panic!("{what}: {e}"));
    let disk = disk.after_crash(0);
    let rig = Rig::recover_with(&disk, 64, rig.redo, &rig.history, next)
        .unwrap_or_else(|e| panic!("{what}: {e}"));
    rig.verify(what);
}

/// Overwrites up to three ranges of a latched page, in the model too.
fn fill(change: &mut PageChange, pages: &mut Pages, number: PageNumber, rng: &mut Rng) {
    let body = Arc::make_mut(pages.get_mut(&number).expect("in use"));
    for _ in 0..1 + rng.below(3) {
        let start = rng.below(PAGE_BODY_BYTES as u64) as usize;
        let longest = if rng.one_in(4) { 6000 } else { 20 };
        let end = (start + 1 + rng.below(longest) as usize).min(PAGE_BODY_BYTES);
        body[start..end]
            .iter_mut()
            .for_each(|byte| *byte = rng.next_u64() as u8);
    }
    change.body_mut(number).copy_from_slice(body);
}

#[test]
fn pages_are_what_was_committed() {
    for seed in 0..6 {
        let rng = &mut Rng::new(seed);
        let mut rig = Rig::create(&SimDisk::new(seed), 4).unwrap();
        for step in 0..300 {
            let stepped = rig.step(rng, true);
            stepped.unwrap_or_else(|e| panic!("seed {seed}, step {step}: {e}"));
            let frames = rig.store.stats().frames;
            assert!(frames <= 16, "seed {seed}, step {step}: {frames} frames");
        }
        rig.verify(&format!("seed {seed}"));
        assert!(rig.store.stats().frames <= 4);
    }
}

#[test]
fn a_change_that_is_given_up_changes_nothing() {
    let mut rig = Rig::create(&SimDisk::new(1), 8).unwrap();
    let rng = &mut Rng::new(1);
    (0..20).for_each(|_| rig.change(rng).unwrap());
    let number = *rig.pages().keys().next().unwrap();
    let before = rig.store.check(FILE).unwrap();
    let mut change = rig.store.begin(FILE);
    change.write(number).unwrap();
    change.body_mut(number).fill(1);
    let new = change.allocate().unwrap();
    let gone = change.allocate().unwrap();
    change.free(gone).unwrap();
    change.free(number).unwrap();
    drop(change);
    rig.verify("given up");
    let after = rig.store.check(FILE).unwrap();
    assert_eq!(after.used, before.used);
    let mut change = rig.store.begin(FILE);
    assert_eq!(change.allocate().unwrap(), new, "the page is free again");
}

/// An old pointer's reader does not stop an allocation.
#[test]
fn allocate_waits_for_no_latch() {
    let rig = Rig::create(&SimDisk::new(1), 8).unwrap();
    let mut change = rig.store.begin(FILE);
    let freed = change.allocate().unwrap();
    let kept = change.allocate().unwrap();
    assert_eq!((freed, kept), (PageNumber(1), PageNumber(2)));
    change.commit().unwrap();
    let mut change = rig.store.begin(FILE);
    change.free(freed).unwrap();
    change.commit().unwrap();
    let reader = rig.read(freed).unwrap();
    let mut change = rig.store.begin(FILE);
    assert_eq!(change.allocate().unwrap(), PageNumber(3));
    drop(reader);
    assert_eq!(change.allocate().unwrap(), freed);
}

#[test]
fn a_full_disk_refuses_the_allocation_only() {
    let disk = SimDisk::new(3);
    let mut rig = Rig::create(&disk, 4).unwrap();
    let rng = &mut Rng::new(3);
    rig.change(rng).unwrap();
    rig.log.0.prepare_next_segment().unwrap();
    disk.limit_capacity(Some(disk.used_bytes()));
    let mut pages = rig.pages().clone();
    let refused = loop {
        let mut change = rig.store.begin(FILE);
        match change.allocate() {
            Err(e) => break e,
            Ok(number) => {
                pages.insert(number, Arc::new(vec![0; PAGE_BODY_BYTES]));
                let lsn = change.commit().unwrap();
                rig.note(lsn, pages.clone());
            }
        }
    };
    assert_eq!(refused.sqlstate(), SqlState::DISK_FULL);
    rig.checkpoint(false).unwrap();
    rig.verify("full");
    disk.limit_capacity(None);
    let mut change = rig.store.begin(FILE);
    let number = change.allocate().unwrap();
    pages.insert(number, Arc::new(vec![0; PAGE_BODY_BYTES]));
    let lsn = change.commit().unwrap();
    rig.note(lsn, pages);
    rig.verify("room again");
}

#[test]
fn a_dropped_file_is_gone() {
    let disk = SimDisk::new(1);
    let mut rig = Rig::create(&disk, 8).unwrap();
    let rng = &mut Rng::new(1);
    (0..10).for_each(|_| rig.change(rng).unwrap());
    let change = rig.store.begin(FILE);
    rig.store.drop_file(FILE).unwrap();
    assert_eq!(disk.content(&page_file_name(FILE)), None);
    assert!(rig.read(PageNumber(1)).is_err());
    assert!(change.commit().is_err());
    assert_eq!(rig.store.stats().frames, 0);
    rig.store.checkpoint().unwrap();
    // Its records are skipped.
    let mut change = rig.store.begin(FILE);
    assert!(change.allocate().is_err());
}

#[test]
fn names_round_trip() {
    for id in [0, 7, u32::MAX] {
        let id = PageFileId(id);
        assert_eq!(page_file_id(&page_file_name(id)), Some(id));
    }
    for other in [
        "pages-1",
        "pages-000000001",
        "chunks-00000001",
        "pages-0000000g",
    ] {
        assert_eq!(page_file_id(other), None, "{other}");
    }
}
