//! Readers, a compaction and a failing device, interleaved at chosen places: the blocks call back.

use super::*;
use crate::fd_tree::{image, partition};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, Weak};
use strandline_base::{Error, ErrorKind, Result, SqlState};

/// Blocks in memory that verify what is freed, fail on demand, and let a compaction run within a
/// read.
#[derive(Debug)]
pub(super) struct Hooked {
    blocks: MemoryBlocks,
    tree: Mutex<Weak<FdTree>>,
    /// reads until one of them runs a whole compaction
    reads_left: AtomicUsize,
    pub(super) fails_image: AtomicBool,
    /// reads until one of them fails, and may be tried again
    reads_to_failure: AtomicUsize,
    /// blocks that were written
    written: AtomicUsize,
    /// the first of the keys that a compaction within a read adds; 0: among those of the readers
    disturb_from: AtomicU64,
    /// blocks of the newest durable image
    named: Mutex<BTreeSet<u64>>,
}

impl Hooked {
    pub(super) fn blocks() -> Arc<Self> {
        Arc::new(Self {
            blocks: MemoryBlocks::new(256),
            tree: Mutex::default(),
            reads_left: AtomicUsize::new(usize::MAX),
            fails_image: AtomicBool::new(false),
            reads_to_failure: AtomicUsize::new(usize::MAX),
            written: AtomicUsize::new(0),
            disturb_from: AtomicU64::new(0),
            named: Mutex::default(),
        })
    }

    pub(super) fn tree(mode: Mode) -> (Arc<Self>, Arc<FdTree>) {
        let blocks = Self::blocks();
        let tree = Arc::new(FdTree::open(small(mode), blocks.clone(), Pool::new(0)).unwrap());
        *blocks.tree.lock().unwrap() = Arc::downgrade(&tree);
        (blocks, tree)
    }

    /// Opens the tree of the newest image. A read that is to run a compaction runs it there.
    fn open(self: &Arc<Self>, filter_bits: usize) -> Arc<FdTree> {
        let settings = Settings {
            filter_bits,
            ..small(Mode::Fc)
        };
        let tree = FdTree::open(settings, self.clone(), Pool::new(0)).unwrap();
        let tree = Arc::new(tree);
        *self.tree.lock().unwrap() = Arc::downgrade(&tree);
        tree
    }

    /// The reads of `lookup`.
    pub(super) fn reads(&self, lookup: impl FnOnce()) -> usize {
        self.reads_left.store(1 << 40, Ordering::SeqCst);
        lookup();
        (1 << 40) - self.reads_left.swap(usize::MAX, Ordering::SeqCst)
    }

    /// Blocks that were written.
    pub(super) fn written(&self) -> u64 {
        self.written.load(Ordering::SeqCst) as u64
    }

    /// After so many reads compactions add keys from this one on.
    pub(super) fn disturb_from(&self, reads: usize, number: u64) {
        self.disturb_from.store(number, Ordering::SeqCst);
        self.reads_left.store(reads, Ordering::SeqCst);
    }

    /// Whether there were so many reads.
    pub(super) fn was_disturbed(&self) -> bool {
        self.reads_left.swap(usize::MAX, Ordering::SeqCst) == usize::MAX
    }

    /// Changes entries that the readers do not look at, and compacts twice.
    fn disturb(&self) {
        let tree = self.tree.lock().unwrap().upgrade().unwrap();
        for round in 0..2 {
            for number in 0..9 {
                let entry = match self.disturb_from.load(Ordering::SeqCst) {
                    0 => key(2 * (31 * number + round) + 1),
                    from => key(from + 9 * round + number),
                };
                if !tree.add(&entry).unwrap() {
                    tree.remove(&entry).unwrap();
                }
            }
            tree.compact().unwrap();
        }
    }
}

impl LevelBlocks for Hooked {
    strandline_storage::forward_blocks!(blocks: block_bytes allocate sync used set_used image);

    fn read(&self, block: u64) -> Result<Vec<u8>> {
        let to_failure = self.reads_to_failure.load(Ordering::SeqCst);
        if to_failure < usize::MAX {
            let next = to_failure.checked_sub(1).unwrap_or(usize::MAX);
            self.reads_to_failure.store(next, Ordering::SeqCst);
            if to_failure == 0 {
                let what = "a read fails once";
                return Err(Error::new(ErrorKind::Unavailable, SqlState::IO_ERROR, what));
            }
        }
        let left = self.reads_left.load(Ordering::SeqCst);
        if left == 0 {
            self.reads_left.store(usize::MAX, Ordering::SeqCst);
            self.disturb();
        } else if left < usize::MAX {
            self.reads_left.store(left - 1, Ordering::SeqCst);
        }
        self.blocks.read(block)
    }
    fn write(&self, blocks: &[(u64, Vec<u8>)]) -> Result<()> {
        let named = self.named.lock().unwrap();
        for (block, _) in blocks {
            assert!(!named.contains(block), "block {block} is in the image");
        }
        self.written.fetch_add(blocks.len(), Ordering::SeqCst);
        self.blocks.write(blocks)
    }
    fn free(&self, blocks: &[u64]) {
        let named = self.named.lock().unwrap();
        for block in blocks {
            assert!(!named.contains(block), "block {block} is in the image");
        }
        self.blocks.free(blocks);
    }
    fn put_image(&self, bytes: &[u8]) -> Result<()> {
        if self.fails_image.swap(false, Ordering::SeqCst) {
            return Err(Error::internal("the device fails once"));
        }
        let (_, named) = image::decode(bytes, 7)?;
        *self.named.lock().unwrap() = named.into_iter().collect();
        self.blocks.put_image(bytes)
    }
}

/// Between any two block reads of a lookup or cursor whole compactions replace and free blocks.
#[test]
fn a_reader_may_pause_before_every_read() {
    for mode in [Mode::Fc, Mode::Ds] {
        let (blocks, tree) = Hooked::tree(mode);
        for number in 0..200 {
            tree.add(&key(2 * (number * 77 % 200))).unwrap();
        }
        let mut paused = 0;
        for reads in 0..12 {
            for number in [0, 1, 99, 198, 199, 399] {
                blocks.reads_left.store(reads, Ordering::SeqCst);
                let found = tree.contains(&key(2 * number)).unwrap();
                assert_eq!(found, number < 200, "{mode:?}, {reads} reads, {number}");
                paused += usize::from(blocks.reads_left.load(Ordering::SeqCst) > reads);
            }
        }
        for reads in (0..100).step_by(4) {
            for direction in [Direction::Forward, Direction::Backward] {
                blocks.reads_left.store(reads, Ordering::SeqCst);
                let mut found = all(&tree, direction);
                found.retain(|number| number % 2 == 0);
                if direction == Direction::Backward {
                    found.reverse();
                }
                assert!(found.into_iter().eq((0..200).map(|number| 2 * number)));
                paused += usize::from(blocks.reads_left.load(Ordering::SeqCst) > reads);
            }
        }
        blocks.reads_left.store(usize::MAX, Ordering::SeqCst);
        assert!(paused > 40, "{paused} readers were paused");
        check_whole(&tree, "after the readers");
        tree.checkpoint().unwrap();
        assert_eq!(tree.unfreed_blocks(), 0);
    }
}

/// An image that fails outside of a compaction is written later: nothing is freed or lost.
#[test]
fn a_failed_image_frees_nothing() {
    let (blocks, tree) = Hooked::tree(Mode::Fc);
    let mut model = BTreeSet::new();
    for number in 0..600 {
        let number = number * 77 % 200;
        match model.remove(&number) {
            true => assert!(tree.remove(&key(number)).unwrap()),
            false => assert!(model.insert(number) && tree.add(&key(number)).unwrap()),
        }
        if !tree.compact_step().unwrap() {
            blocks.fails_image.store(true, Ordering::SeqCst);
            let block = tree.shared.blocks.allocate(1).unwrap();
            tree.shared.state.lock().reclaim(block);
            tree.checkpoint().unwrap_err();
        }
    }
    tree.compact().unwrap();
    verify(&tree, &model, 200, "after failures");
    tree.checkpoint().unwrap();
    let levels: u64 = tree.levels().iter().map(|(_, blocks, _)| blocks).sum();
    assert_eq!(tree.blocks() as u64, levels, "no block is lost");
}

/// One read fails, each third one in turn. If it was to skip a level of fences at a compaction's
/// end, the compaction's next steps or a check skip the level.
#[test]
fn a_read_that_fails_leaves_no_level_that_should_be_skipped() {
    let is_left = |tree: &FdTree| match tree.levels().as_slice() {
        [(_, _, true), (_, blocks, _), ..] => {
            !tree.is_compacting() && *blocks <= small(Mode::Fc).capacity(1)
        }
        _ => false,
    };
    let mut left = [0; 2];
    for attempt in 0.. {
        let (reads, is_checked) = (attempt / 2 * 3, attempt % 2 == 1);
        let (blocks, tree) = Hooked::tree(Mode::Fc);
        for number in 0..100 {
            tree.add(&key(number)).unwrap();
        }
        tree.compact().unwrap();
        blocks.reads_to_failure.store(reads, Ordering::SeqCst);
        for number in 3..100 {
            let removed = tree.remove(&key(number)).or_else(|error| {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                tree.remove(&key(number))
            });
            assert!(removed.unwrap());
            if is_left(&tree) {
                left[usize::from(is_checked)] += 1;
                if !is_checked {
                    while tree.compact_step().unwrap() {}
                }
                check_whole(&tree, "after the failure");
            }
        }
        let has_failed = blocks.reads_to_failure.swap(usize::MAX, Ordering::SeqCst) == usize::MAX;
        tree.compact().unwrap();
        verify(&tree, &(0..3).collect(), 100, "the end");
        if !has_failed {
            break;
        }
    }
    assert!(left.iter().all(|count| *count > 0), "{left:?}");
}

/// With filters a lookup of an absent key, as every insert makes it, reads no block but for the few
/// that a filter errs about; with a pool a present key is read once.
#[test]
fn filters_and_the_pool_save_reads() {
    for (filter_bits, pool_bytes) in [(0, 0), (10, 0), (10, 1 << 20)] {
        let blocks = Hooked::blocks();
        let settings = Settings {
            filter_bits,
            ..small(Mode::Fc)
        };
        let tree = FdTree::open(settings, blocks.clone(), Pool::new(pool_bytes)).unwrap();
        for number in 0..400 {
            tree.add(&key(2 * (number * 77 % 400))).unwrap();
        }
        let reads = |lookup: &dyn Fn()| blocks.reads(lookup);
        let absent =
            reads(&|| (0..400).for_each(|n| assert!(!tree.contains(&key(2 * n + 1)).unwrap())));
        let present = || (0..400).for_each(|n| assert!(tree.contains(&key(2 * n)).unwrap()));
        let (first, second) = (reads(&present), reads(&present));
        match (filter_bits, pool_bytes) {
            (0, _) => assert!(absent > 800 && second > 800, "{absent} {second}"),
            (_, 0) => assert!(absent < 60 && first == second, "{absent} {first} {second}"),
            _ => assert!(second == 0 && first <= tree.blocks(), "{first} {second}"),
        }
        let mut found = Vec::new();
        let seen = tree.scan_key(&1_u64.to_be_bytes(), |_| unreachable!());
        seen.unwrap();
        let seen = tree.scan_key(&2_u64.to_be_bytes(), |entry| {
            found.push(entry.to_vec());
            true
        });
        seen.unwrap();
        assert_eq!(found, [key(2)]);
        check_whole(&tree, "with filters");
    }
}

/// An opened tree knows its absent keys, too: each filter is read once, at whatever step of a
/// compaction the tree was closed.
#[test]
fn filters_come_back_after_an_opening() {
    let blocks = Hooked::blocks();
    let mut tree = blocks.open(10);
    let (mut resumed, mut filters) = (0, 0);
    for number in 0..400 {
        tree.add(&key(2 * (number * 77 % 400))).unwrap();
        if number % 10 > 0 || number < 200 {
            continue;
        }
        tree.checkpoint().unwrap();
        tree = blocks.open(10);
        resumed += usize::from(tree.is_compacting());
        let stored = tree.filter_blocks();
        let absent = || (0..400).for_each(|n| assert!(!tree.contains(&key(2 * n + 1)).unwrap()));
        let (first, second) = (blocks.reads(absent), blocks.reads(absent));
        assert!(stored > 2 && first > 0, "{stored} filter blocks");
        assert!(second < 60, "{second} reads of blocks of entries");
        assert!(
            first <= second + stored as usize,
            "{first}, {second}, {stored}"
        );
        filters += stored;
    }
    assert!(
        resumed > 5 && filters > 100,
        "{resumed} resumed, {filters} filter blocks"
    );
}

/// Between any two reads of filters by a lookup in an opened tree, whole compactions replace and
/// free the filters.
#[test]
fn a_reader_may_pause_before_a_filter() {
    let blocks = Hooked::blocks();
    let mut tree = blocks.open(10);
    for number in 0..200 {
        tree.add(&key(2 * (number * 77 % 200))).unwrap();
    }
    let mut paused = 0;
    for number in [0, 1, 99, 198, 199, 399] {
        for reads in 0..6 {
            tree.checkpoint().unwrap();
            tree = blocks.open(10);
            blocks.reads_left.store(reads, Ordering::SeqCst);
            let bytes = &key(2 * number)[..8];
            let mut found = tree.contains(&key(2 * number)).unwrap();
            assert_eq!(found, number < 200, "{reads} reads, {number}");
            tree.scan_key(bytes, |_| std::mem::replace(&mut found, false))
                .unwrap();
            assert!(!found, "{reads} reads, {number}");
            paused += usize::from(blocks.reads_left.swap(usize::MAX, Ordering::SeqCst) > reads);
        }
    }
    assert!(paused > 15, "{paused} readers were paused");
}

/// The entries of a key may begin with a filter: the one before it does not know the key.
#[test]
fn a_key_is_looked_for_in_all_its_filters() {
    let settings = Settings {
        filter_bits: 10,
        batch_bytes: 1 << 20,
        ..small(Mode::Fc)
    };
    let whole = partition::entries_max(256, 10) as u64;
    let tree = FdTree::open(settings, Hooked::blocks(), Pool::new(0)).unwrap();
    let mut entries: Vec<[u8; 16]> = (0..whole).map(key).collect();
    entries.extend(
        (0..2 * whole).map(|row| (u128::from(whole) << 64 | u128::from(row)).to_be_bytes()),
    );
    let entries: Vec<&[u8]> = entries.iter().map(|entry| &entry[..]).collect();
    tree.load(&entries, None).unwrap();
    assert!(tree.filter_blocks() >= 6, "three filters");
    for number in [0, whole - 1, whole] {
        let mut found = 0;
        let each = |_: &[u8]| {
            found += 1;
            true
        };
        tree.scan_key(&number.to_be_bytes(), each).unwrap();
        assert_eq!(
            found,
            if number == whole { 2 * whole } else { 1 },
            "{number}"
        );
    }
    assert!(entries.iter().all(|entry| tree.contains(entry).unwrap()));
    let mut met = Vec::new();
    let last = [entries[entries.len() - 1]];
    tree.begin_load(&last, Some(&mut met)).unwrap();
    assert_eq!(met, last, "a load finds other entries of its key");
    while tree.compact_step().unwrap() {}
    assert_eq!(tree.len(), entries.len());
    check_whole(&tree, "several filters");
}
