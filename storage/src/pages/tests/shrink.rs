//! Files that are cut behind their last page in use: what stays, crashes at every operation, and
//! readers with old pointers.

use std::fmt;

use strandline_base::sync::Mutex;

use super::*;

impl Rig {
    /// Allocates so many pages in one change.
    fn grow(&mut self, count: usize, byte: u8) -> Result<()> {
        let mut pages = self.pages().clone();
        let mut change = self.store.begin(FILE);
        for _ in 0..count {
            let number = change.allocate()?;
            change.body_mut(number).fill(byte);
            pages.insert(number, Arc::new(vec![byte; PAGE_BODY_BYTES]));
        }
        let lsn = change.commit()?;
        self.note(lsn, pages);
        Ok(())
    }

    /// Frees the pages for which `is_freed` holds, in one change.
    fn free(&mut self, is_freed: impl Fn(u32) -> bool) -> Result<()> {
        let mut pages = self.pages().clone();
        let mut change = self.store.begin(FILE);
        let freed = self.pages().keys().filter(|page| is_freed(page.0));
        for number in freed.copied() {
            change.free(number)?;
            pages.remove(&number);
        }
        let lsn = change.commit()?;
        self.note(lsn, pages);
        Ok(())
    }

    fn len(&self) -> u64 {
        let content = self.disk.content(&page_file_name(FILE));
        content.expect("the file is there").len() as u64 / PAGE_BYTES as u64
    }
}

/// Grows and shrinks by waves.
fn waves(rig: &mut Rig, seed: u64) -> Result<()> {
    let rng = &mut Rng::new(seed);
    for wave in 0..4 {
        rig.grow(12 + rng.below(8) as usize, wave)?;
        if rng.one_in(2) {
            rig.checkpoint(rng.one_in(2))?;
        }
        if rig.cache.is_some() {
            rig.store.cache().expect("the rig has one").step()?;
        }
        let kept = 1 + rng.below(10) as u32;
        rig.free(|page| page > kept || page.is_multiple_of(3))?;
        rig.checkpoint(rng.one_in(2))?;
        rig.checkpoint(true)?;
        rig.grow(rng.below(3) as usize, 100 + wave)?;
    }
    Ok(())
}

fn run(disk: &SimDisk, seed: u64, cache: Option<Mode>) -> Option<Rig> {
    let mut rig = Rig::create_with(disk, 4, cache).ok()?;
    if let Err(e) = waves(&mut rig, seed) {
        assert!(disk.has_crashed(), "seed {seed}, {cache:?}: {e}");
    }
    Some(rig)
}

#[test]
fn a_checkpoint_cuts_the_free_end_and_moves_nothing() {
    let mut rig = Rig::create(&SimDisk::new(1), 64).unwrap();
    rig.grow(50, 1).unwrap();
    rig.checkpoint(true).unwrap();
    let full = rig.len();
    assert!(full > 50);
    rig.free(|page| (5..40).contains(&page)).unwrap();
    rig.checkpoint(true).unwrap();
    assert_eq!(rig.len(), full, "pages in the middle stay");
    rig.free(|page| page > 4).unwrap();
    rig.checkpoint(true).unwrap();
    assert_eq!(
        rig.len(),
        5,
        "pages 0 to 4; the pages of the map behind them are gone too"
    );
    let check = rig.store.check(FILE).unwrap();
    assert_eq!((check.pages, check.free), (5, 0));
    rig.verify("cut");
    rig.grow(60, 2).unwrap();
    rig.verify("grown again");
    rig.checkpoint(true).unwrap();
    let disk = rig.disk.after_crash(0);
    let rig = Rig::recover(&disk, 4, rig.redo, &rig.history).unwrap();
    rig.verify("reopened");
}

/// A file that grows and shrinks by a few pages keeps its length.
#[test]
fn a_few_free_pages_stay() {
    let mut rig = Rig::create(&SimDisk::new(1), 64).unwrap();
    rig.grow(50, 1).unwrap();
    rig.checkpoint(true).unwrap();
    let full = rig.len();
    rig.free(|page| page > 52).unwrap();
    rig.checkpoint(true).unwrap();
    assert_eq!(rig.len(), full);
}

#[test]
fn every_crash_around_a_cut_keeps_whole_commits() {
    let caches = [None, Some(Mode::Pc), Some(Mode::Lc)];
    for (seed, cache) in (1..).zip(caches) {
        let disk = SimDisk::new(seed);
        let rig = run(&disk, seed, cache).expect("no crash");
        rig.verify("no crash");
        let cut = rig.len();
        assert!(cut < 15, "{cut} pages");
        let stride = if cache.is_none() { 1 } else { 3 };
        for at in (1..=disk.operations()).step_by(stride) {
            let disk = SimDisk::new(seed);
            disk.crash_at(at);
            let Some(crashed) = run(&disk, seed, cache) else {
                continue;
            };
            for style in 0..4 {
                let what = format!("seed {seed}, {cache:?}, crash at {at}, style {style}");
                recover_twice(&crashed, (style, at), cache, &what);
            }
        }
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
        self.log.make_durable(through)?;
        let work = self.work.lock().take();
        if let Some(work) = work {
            work();
        }
        Ok(())
    }
    fn end(&self) -> Lsn {
        self.log.end()
    }
}

/// A page that is freed behind a checkpoint's begin is not cut by it: a crash may lose its record.
#[test]
fn pages_freed_during_a_checkpoint_stay() {
    let disk = SimDisk::new(1);
    let mut rig = Rig::create(&disk, 64).unwrap();
    let log = Arc::new(Interrupted {
        log: rig.log.clone(),
        work: Mutex::new(None),
    });
    rig.store = PageStore::new(disk.device(), log.clone(), settings(64));
    rig.store.open_file(FILE).unwrap();
    rig.grow(40, 1).unwrap();
    rig.checkpoint(true).unwrap();
    let before = rig.history.clone();
    // Something to be written by the checkpoint.
    rig.grow(1, 2).unwrap();
    let file = rig.store.file(FILE).unwrap();
    file.grow_for(PageNumber(70)).unwrap();
    let store = Arc::clone(&rig.store);
    let freed: Vec<PageNumber> = before.last().unwrap().1.keys().copied().skip(3).collect();
    *log.work.lock() = Some(Box::new(move || {
        let mut change = store.begin(FILE);
        freed.iter().for_each(|page| change.free(*page).unwrap());
        change.free(PageNumber(46)).unwrap();
        change.commit().unwrap();
    }));
    rig.redo = rig.store.checkpoint().unwrap();
    assert!(log.work.lock().is_none(), "the pages were freed");
    assert_eq!(rig.len(), 47, "behind the last page in use at the begin");
    let mut kept = before.last().unwrap().1.clone();
    kept.retain(|page, _| page.0 < 4);
    rig.note(rig.log.end(), kept);
    rig.verify("freed");
    let disk = disk.after_crash(0);
    let found = Rig::recover(&disk, 4, rig.redo, &rig.history).unwrap();
    found.verify("reopened");
    rig.store.checkpoint().unwrap();
    assert!(rig.len() < 10, "the next checkpoint cuts");
}

/// A page that was cut off reads as zeros by an old pointer, also while the file is short, and an
/// allocation may have it again.
#[test]
fn an_old_pointer_leads_to_a_page_without_content() {
    for cache in [None, Some(Mode::Pc)] {
        let mut rig = Rig::create_with(&SimDisk::new(1), 4, cache).unwrap();
        rig.grow(30, 7).unwrap();
        rig.checkpoint(true).unwrap();
        for _ in 0..3 {
            rig.verify("in use");
            while rig.store.cache().is_some_and(|cache| cache.step().unwrap()) {}
        }
        rig.free(|page| page > 2).unwrap();
        let held = rig.read(PageNumber(20)).unwrap();
        rig.checkpoint(true).unwrap();
        assert_eq!(
            rig.len(),
            3,
            "a reader does not keep the file from being cut"
        );
        assert!(held.iter().all(|&byte| byte == 7), "what it holds stays");
        for number in 3..30 {
            rig.store.prefetch(FILE, &[PageNumber(number)]);
            let page = rig.read(PageNumber(number)).unwrap();
            let is_known = number == 20 || page.iter().all(|&byte| byte == 0);
            assert!(is_known || page.iter().all(|&byte| byte == 7), "{number}");
        }
        assert!(rig.read(PageNumber(4000)).is_err(), "it never was a page");
        drop(held);
        rig.grow(40, 8).unwrap();
        rig.verify("grown again");
    }
}

/// Pages that are reserved while the file is cut get their space behind the cut.
#[test]
fn an_allocation_during_a_cut_has_its_space() {
    let mut rig = Rig::create(&SimDisk::new(1), 64).unwrap();
    rig.grow(30, 1).unwrap();
    rig.free(|page| page > 4).unwrap();
    rig.checkpoint(true).unwrap();
    rig.grow(40, 2).unwrap();
    rig.free(|page| page > 23).unwrap();
    rig.store.drop_unused_maps();
    let file = rig.store.file(FILE).unwrap();
    let end = file.pages();
    let mut reserved = 0;
    let cut = file.cut(PageNumber(0), |from| {
        assert_eq!(from, PageNumber(24));
        let mut space = file.space.lock();
        let space = space.as_mut().expect("known");
        reserved = space.reserve(&[]).unwrap();
        assert!(reserved > 50, "no page that is cut: {reserved}");
        true
    });
    cut.unwrap();
    assert!(file.pages() < end);
    file.grow_for(PageNumber(reserved)).unwrap();
    assert!(rig.len() > u64::from(reserved));
    file.space.lock().as_mut().unwrap().give_back(reserved);
    rig.grow(30, 3).unwrap();
    rig.verify("grown again");
    // A cut that is given up leaves everything as it was.
    rig.free(|page| page > 4).unwrap();
    let before = rig.len();
    file.cut(PageNumber(0), |_| false).unwrap();
    assert_eq!((rig.len(), file.pages()), (before, before));
    rig.grow(10, 4).unwrap();
    rig.verify("given up");
}
