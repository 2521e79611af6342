//! Pages and frames of one pool: what leaves, by a model of one common clock; the shares that
//! follow from use; dirty pages, which no frame's load writes; threads and failing writes.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::thread;

use super::*;
use crate::pool::FrameHandle;

/// A store over durable pages, and frames, in one pool.
struct Both {
    disk: SimDisk,
    pool: Arc<Pool>,
    rig: Rig,
    numbers: Vec<PageNumber>,
    frames: Vec<FrameHandle<usize>>,
}

impl Both {
    /// `pages` pages and `frames` frames, none of them in memory, and a budget of so many pages.
    fn new(budget_pages: usize, pages: usize, frames: usize) -> Self {
        let disk = SimDisk::new(9);
        let mut rig = Rig::create(&disk, 2 * pages).unwrap();
        let mut change = rig.store.begin(FILE);
        let numbers: Vec<PageNumber> = (0..pages).map(|_| change.allocate().unwrap()).collect();
        change.commit().unwrap();
        rig.checkpoint(true).unwrap();
        let disk = disk.after_kill();
        let settings = settings(budget_pages);
        let pool = settings.pool.clone();
        rig.store = PageStore::new(held::Held::new(disk.device()), rig.log.clone(), settings);
        rig.store.open_file(FILE).unwrap();
        let frames = (0..frames).map(|_| FrameHandle::new(&pool)).collect();
        Self {
            disk,
            pool,
            rig,
            numbers,
            frames,
        }
    }

    fn read(&self, page: usize, access: Access) -> Result<()> {
        let read = self.rig.store.read(FILE, self.numbers[page], access);
        read.map(drop)
    }

    fn load(&self, frame: usize, bytes: usize) {
        let found = self.frames[frame].get_or_load(|| Ok((frame, bytes)));
        assert_eq!(*found.unwrap(), frame);
    }

    fn change(&self, page: usize) -> Result<()> {
        let mut change = self.rig.store.begin(FILE);
        let number = self.numbers[page];
        change.write(number)?;
        change.body_mut(number)[0] ^= 1;
        change.commit().map(drop)
    }

    fn dirty(&self) -> usize {
        let shards = self.rig.store.shards.iter();
        let dirty = shards.map(|shard| {
            let shard = shard.lock();
            shard.values().filter(|frame| frame.is_unsettled()).count()
        });
        dirty.sum()
    }

    fn pages_in_memory(&self) -> usize {
        self.rig.store.stats().frames
    }
}

/// One ring of frames and pages in the order of a clock.
struct Model {
    ring: VecDeque<Resident>,
    budget: usize,
    used: [usize; 2],
}

#[derive(Clone, Copy, Debug)]
struct Resident {
    /// 0: a frame, 1: a page
    kind: usize,
    number: usize,
    bytes: usize,
    is_read: bool,
}

impl Model {
    fn has(&self, kind: usize, number: usize) -> bool {
        let found = |one: &Resident| one.kind == kind && one.number == number;
        self.ring.iter().any(found)
    }

    fn touch(&mut self, kind: usize, number: usize) -> bool {
        let found = |one: &&mut Resident| one.kind == kind && one.number == number;
        let found = self.ring.iter_mut().find(found);
        found.map(|one| one.is_read = true).is_some()
    }

    fn evict(&mut self) {
        let floor = self.budget / 16;
        while self.used[0] + self.used[1] > self.budget {
            let only = match [self.used[0] > floor, self.used[1] > floor] {
                [true, false] => Some(0),
                [false, true] => Some(1),
                _ => None,
            };
            let is_allowed = |one: &Resident| only.is_none_or(|kind| kind == one.kind);
            let Some(at) = self.ring.iter().position(is_allowed) else {
                return;
            };
            let mut one = self.ring.remove(at).unwrap();
            if std::mem::take(&mut one.is_read) {
                self.ring.push_back(one);
            } else {
                self.used[one.kind] -= one.bytes;
            }
        }
    }

    fn use_frame(&mut self, number: usize, bytes: usize) {
        if !self.touch(0, number) {
            self.used[0] += bytes;
            self.ring.push_back(Resident {
                kind: 0,
                number,
                bytes,
                is_read: false,
            });
            self.evict();
        }
    }

    fn use_page(&mut self, number: usize, access: Access) {
        let is_there = match access {
            Access::Random => self.touch(1, number),
            Access::Sequential => self.has(1, number),
        };
        if !is_there {
            self.used[1] += PAGE_BYTES;
            self.evict();
            self.ring.push_back(Resident {
                kind: 1,
                number,
                bytes: PAGE_BYTES,
                is_read: false,
            });
        }
    }
}

/// What is in memory is what a clock over one common ring keeps.
#[test]
fn frames_and_pages_leave_in_the_order_of_one_clock() {
    for seed in 0..12 {
        let rng = &mut Rng::new(seed);
        let (pages, frames) = (40, 40);
        let both = Both::new(24 + rng.below(16) as usize, pages, frames);
        let bytes: Vec<usize> = (0..frames).map(|_| 512 << rng.below(7) as usize).collect();
        let mut model = Model {
            ring: VecDeque::new(),
            budget: both.pool.budget_bytes(),
            used: [0, 0],
        };
        let mut share = 5;
        for step in 0..2000 {
            if step % 200 == 0 {
                share = rng.below(11);
            }
            // A few are read often.
            let at = (rng.below(40) * rng.below(40) / 40) as usize;
            if rng.below(10) < share {
                let access = match rng.one_in(4) {
                    true => Access::Sequential,
                    false => Access::Random,
                };
                both.read(at, access).unwrap();
                model.use_page(at, access);
            } else {
                both.load(at, bytes[at]);
                model.use_frame(at, bytes[at]);
            }
            assert!(both.pool.used_bytes() <= both.pool.budget_bytes());
            let of_pool = [both.pool.frame_bytes(), both.pool.page_bytes()];
            assert_eq!(of_pool, model.used, "seed {seed}, step {step}");
            let is_in = |page: usize| {
                let number = both.numbers[page];
                both.rig
                    .store
                    .cached(PageId { file: FILE, number })
                    .is_some()
            };
            for at in 0..pages {
                let is_filled = both.frames[at].is_filled();
                assert_eq!(
                    is_filled,
                    model.has(0, at),
                    "seed {seed}, {step}, frame {at}"
                );
                assert_eq!(
                    is_in(at),
                    model.has(1, at),
                    "seed {seed}, {step}, page {at}"
                );
            }
        }
    }
}

/// Work on one kind alone gets all but the floor of the memory, as soon as it has read that much
/// twice.
#[test]
fn memory_follows_the_work() {
    let both = Both::new(64, 60, 60);
    let most = 60 * PAGE_BYTES;
    let use_pages = || (0..60).for_each(|at| both.read(at, Access::Random).unwrap());
    let use_frames = || (0..60).for_each(|at| both.load(at, PAGE_BYTES));
    for round in 0..4 {
        (0..3).for_each(|_| use_pages());
        let reads = both.rig.store.stats().reads;
        use_pages();
        assert_eq!(
            both.rig.store.stats().reads,
            reads,
            "round {round}: all in memory"
        );
        assert_eq!(both.pool.page_bytes(), most);
        (0..3).for_each(|_| use_frames());
        let misses = both.pool.misses();
        use_frames();
        assert_eq!(both.pool.misses(), misses, "round {round}: all in memory");
        assert_eq!(both.pool.frame_bytes(), most);
    }
}

/// A scan of frames, each read once, leaves the pages that are read meanwhile; and the reverse.
#[test]
fn a_scan_of_one_kind_spares_what_is_read_of_the_other() {
    let both = Both::new(64, 1000, 1000);
    let hot = 0..20;
    let (use_pages, use_frames) = (
        || {
            hot.clone()
                .for_each(|at| both.read(at, Access::Random).unwrap())
        },
        || hot.clone().for_each(|at| both.load(at, PAGE_BYTES)),
    );
    (0..2).for_each(|_| use_pages());
    let reads = both.rig.store.stats().reads;
    for at in 0..1000 {
        both.load(at, PAGE_BYTES);
        if at % 20 == 0 {
            use_pages();
        }
    }
    assert_eq!(both.rig.store.stats().reads, reads);
    (0..2).for_each(|_| use_frames());
    let misses = both.pool.misses();
    for at in 0..1000 {
        both.read(at, Access::Sequential).unwrap();
        if at % 20 == 0 {
            use_frames();
        }
    }
    assert_eq!(both.pool.misses(), misses);
}

/// A frame's load writes no page. Dirty pages leave the frames their floor, and leave when they
/// have been written back.
#[test]
fn dirty_pages_leave_when_they_are_written_back() {
    let both = Both::new(64, 60, 100);
    (0..60).for_each(|at| both.change(at).unwrap());
    for _ in 0..3 {
        (0..100).for_each(|at| both.load(at, PAGE_BYTES));
        assert!(both.pool.used_bytes() <= both.pool.budget_bytes());
    }
    let store = &both.rig.store;
    assert_eq!((store.stats().writes, both.dirty()), (0, 60));
    assert_eq!(both.pool.frame_bytes(), 4 * PAGE_BYTES, "the floor");
    assert_eq!(store.write_back(), 60);
    assert_eq!((store.stats().writes, both.dirty()), (60, 0));
    assert_eq!(store.write_back(), 0);
    for _ in 0..3 {
        (0..60).for_each(|at| both.load(at, PAGE_BYTES));
    }
    assert_eq!(both.pool.frame_bytes(), 60 * PAGE_BYTES);
}

/// A checkpoint that has written the pages gives them back to the hand, too.
#[test]
fn dirty_pages_leave_after_a_checkpoint() {
    let both = Both::new(64, 60, 100);
    (0..60).for_each(|at| both.change(at).unwrap());
    (0..100).for_each(|at| both.load(at, PAGE_BYTES));
    both.rig.store.checkpoint().unwrap();
    for _ in 0..3 {
        (0..60).for_each(|at| both.load(at, PAGE_BYTES));
    }
    assert_eq!(both.pool.frame_bytes(), 60 * PAGE_BYTES);
}

/// What is lent is given at once by what is clean, and by the rest once it is written.
#[test]
fn pages_make_room_for_what_is_lent() {
    let both = Both::new(64, 60, 0);
    (0..60).for_each(|at| both.read(at, Access::Random).unwrap());
    (0..30).for_each(|at| both.change(at).unwrap());
    both.pool.lend(48 * PAGE_BYTES);
    assert_eq!(both.pages_in_memory(), 30, "the dirty ones");
    assert_eq!(both.rig.store.stats().writes, 0);
    both.rig.store.write_back();
    assert_eq!(both.pages_in_memory(), 16);
    both.pool.lend(0);
    (0..60).for_each(|at| both.read(at, Access::Random).unwrap());
    assert_eq!(both.pages_in_memory(), 60);
}

/// A reader of pages writes what waits instead of evicting frames that are read.
#[test]
fn a_page_takes_the_room_of_colder_dirty_pages() {
    let both = Both::new(64, 200, 30);
    let use_frames = || (0..30).for_each(|at| both.load(at, PAGE_BYTES));
    (0..2).for_each(|_| use_frames());
    let misses = both.pool.misses();
    for at in 0..200 {
        both.change(at).unwrap();
        if at % 10 == 0 {
            use_frames();
        }
    }
    assert_eq!(both.pool.misses(), misses, "frames that are read stay");
    assert!(both.rig.store.stats().writes > 100);
    assert!(both.pool.used_bytes() <= both.pool.budget_bytes());
}

/// Pages that frames' loads have put aside are written before frames in use leave for a page.
#[test]
fn waiting_pages_are_colder_than_frames_in_use() {
    let both = Both::new(64, 60, 24);
    (0..40).for_each(|at| both.change(at).unwrap());
    let use_frames = || (0..24).for_each(|at| both.load(at, PAGE_BYTES));
    (0..2).for_each(|_| use_frames());
    both.pool.lend(PAGE_BYTES);
    both.pool.lend(0);
    use_frames();
    let misses = both.pool.misses();
    (40..60).for_each(|at| both.read(at, Access::Random).unwrap());
    use_frames();
    assert_eq!(both.pool.misses(), misses);
    assert!(both.rig.store.stats().writes > 0);
}

/// Pages that cannot be written take the frames' memory down to the floor, and no more than a
/// quarter beyond the budget. Afterwards all is as before.
#[test]
fn pages_that_cannot_be_written_leave_the_frames_their_floor() {
    let both = Both::new(64, 200, 60);
    let use_frames = || (0..60).for_each(|at| both.load(at, PAGE_BYTES));
    use_frames();
    both.disk.fail_writes(&page_file_name(FILE));
    let changed = (0..200).find_map(|at| both.change(at).err());
    assert!(changed.is_some());
    let page_bytes = both.pool.page_bytes() / PAGE_BYTES;
    assert!((64..=64 + 16 + 1).contains(&page_bytes), "{page_bytes}");
    assert_eq!(both.rig.store.write_back(), 0);
    use_frames();
    both.disk.mend_writes();
    both.rig.store.write_back();
    (0..3).for_each(|_| use_frames());
    assert_eq!(both.pool.frame_bytes(), 60 * PAGE_BYTES);
    assert!(both.pool.used_bytes() <= both.pool.budget_bytes());
    both.rig.store.checkpoint().unwrap();
    both.rig.store.check(FILE).unwrap();
}

/// The bound of pages alone holds beside the budget, and leaves frames alone.
#[test]
fn pages_have_a_bound_of_their_own() {
    let both = Both::new(64, 60, 30);
    let settings = PageSettings {
        bytes_max: 8 * PAGE_BYTES,
        pool: both.pool.clone(),
        database_id: ID,
    };
    let store = PageStore::new(both.disk.device(), both.rig.log.clone(), settings);
    store.open_file(FILE).unwrap();
    (0..30).for_each(|at| both.load(at, PAGE_BYTES));
    for number in both.numbers.iter().cycle().take(200) {
        drop(store.read(FILE, *number, Access::Random).unwrap());
        assert!(store.stats().frames <= 8);
    }
    assert_eq!(both.pool.frame_bytes(), 30 * PAGE_BYTES);
    drop(store);
    assert_eq!(both.pool.page_bytes(), 0);
}

/// Frames of rows of 100 KB beside pages, in budgets of no page up to a few.
#[test]
fn tiny_budgets() {
    const ROW: usize = 100 << 10;
    for budget_pages in [0, 1, 4, 16, 40] {
        let both = Both::new(budget_pages, 20, 5);
        let rng = &mut Rng::new(budget_pages as u64);
        for _ in 0..600 {
            let at = rng.below(20) as usize;
            match rng.below(3) {
                0 => both.load(at % 5, ROW),
                1 => both.read(at, Access::Random).unwrap(),
                _ => both.change(at).unwrap(),
            }
            let least = 4 * PAGE_BYTES;
            let most = both.pool.budget_bytes().max(least) + PAGE_BYTES;
            assert!(both.pool.page_bytes() <= most);
            assert!(both.pool.used_bytes() <= most + ROW, "{budget_pages}");
        }
        both.rig.store.write_back();
        both.pool.shrink();
        let most = both.pool.budget_bytes().max(4 * PAGE_BYTES);
        assert!(both.pool.used_bytes() <= most, "{budget_pages}");
        both.rig.store.check(FILE).unwrap();
    }
}

/// What a page takes beside its bytes is not counted, and so stays small.
#[test]
fn a_pages_frame_is_small() {
    let bytes =
        size_of::<super::super::frame::Frame>() + size_of::<super::super::header::PageImage>();
    assert!(bytes <= 192, "{bytes}");
}

/// Threads that read and change pages, load frames, lend and write back.
#[test]
fn threads_share_the_pool() {
    let both = Both::new(32, 60, 60);
    let work = |seed: u64| {
        let rng = &mut Rng::new(seed);
        for _ in 0..400 {
            let at = rng.below(60) as usize;
            match rng.below(8) {
                0..3 => both.load(at, 1000 + at * 100),
                3..5 => both.read(at, Access::Random).unwrap(),
                5 => both.read(at, Access::Sequential).unwrap(),
                6 => both.change(at).unwrap(),
                _ if rng.one_in(8) => drop(both.rig.store.write_back()),
                _ if rng.one_in(8) => both.pool.lend(rng.below(16) as usize * PAGE_BYTES),
                _ if rng.one_in(16) => drop(both.rig.store.checkpoint().unwrap()),
                _ => drop(both.rig.store.prefetch(FILE, &both.numbers[at..])),
            }
        }
    };
    thread::scope(|scope| {
        (0..4).for_each(|seed| drop(scope.spawn(move || work(seed))));
    });
    both.pool.lend(0);
    both.rig.store.checkpoint().unwrap();
    both.pool.shrink();
    assert!(both.pool.used_bytes() <= both.pool.budget_bytes());
    let filled = both.frames.iter().enumerate();
    let filled = filled.filter(|(_, frame)| frame.is_filled());
    let bytes: usize = filled.map(|(at, _)| 1000 + at * 100).sum();
    assert_eq!(both.pool.frame_bytes(), bytes);
    assert_eq!(both.pool.page_bytes(), both.pages_in_memory() * PAGE_BYTES);
    both.pool
        .taken_bytes()
        .store(usize::MAX / 2, Ordering::Relaxed);
    both.pool.shrink();
    assert!(both.pool.used_bytes() <= 8 * PAGE_BYTES, "a quarter stays");
    both.rig.store.check(FILE).unwrap();
}
