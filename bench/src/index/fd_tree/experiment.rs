//! Runs of the FD+tree on a throttled device, after [FD+ §5]: 6 threads look up, 2 modify, 1
//! compacts.
//!
//! Keys are the paper's generator's (G_R: inserts ascend, deletes are random) or random. Preload,
//! head and cache are the paper's divided by one factor, which the number of entries gives.
//!
//! Differences from the paper: the device is memory behind the paper's bandwidths, or files through
//! the system's page cache; a thread draws its own requests, so that there are no queues; a lookup
//! asks for any entry inserted so far, and so for some that have been deleted.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use strandline_base::rng::Rng;
use strandline_base::{Error, Result};
use strandline_device::{Device, Limits, MemoryDevice, OsDevice, Throttled, real_delays};
use strandline_index::{FdTree, FdTreeMode as Mode, FdTreeSettings};
use strandline_storage::level_blocks::{FileBlocks, LevelBlocks};
use strandline_storage::pool::Pool;

/// Bytes of a block.
pub const BLOCK_BYTES: usize = 4096;
/// The paper's X25-E reads 250 MB/s and writes 170 MB/s; the emulated device has one bound for
/// both.
const LIMITS: Limits = Limits {
    bandwidth: 250_000_000,
    requests: 64_000,
};
const READERS: u64 = 6;
const WRITERS: u64 = 2;
/// The paper's preload, head and cache.
pub const PAPER_ENTRIES: u64 = 10_000_000;
const PAPER_HEAD_BYTES: u64 = 256 << 10;
const PAPER_CACHE_BYTES: u64 = 15 << 20;
/// Entries that a deletion is at least behind the newest one.
const DELETE_DISTANCE: u64 = 100;

/// All modes and their names; the first three are those of Fig. 6 to 8.
pub const MODES: [(&str, Mode); 5] = [
    ("fc", Mode::Fc),
    ("xm", Mode::Xm),
    ("ds", Mode::Ds),
    ("fc_no_sharing", Mode::FcNoSharing),
    ("fc_tuple", Mode::FcTuple),
];

/// The order of inserted keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    Random,
    Ascending,
}

/// One run.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    pub mode: Mode,
    pub keys: Keys,
    /// entries before the run
    pub entries: u64,
    /// bytes of the head
    pub head_bytes: usize,
    /// blocks of the head, of which the levels' capacities are multiples
    pub head_blocks: u64,
    /// bytes of the cache of blocks
    pub cache_bytes: usize,
    pub requests: u64,
    /// lookups among 100 requests
    pub lookups: u64,
    /// deletes among 100 modifications
    pub deletes: u64,
    /// bits of filters for an entry
    pub filter_bits: usize,
}

impl Run {
    /// As many requests as entries, which are the paper's 10 M divided by `scale`, as are head and
    /// cache. Half of the modifications are deletes.
    pub fn scaled(scale: f64) -> Self {
        let entries = (PAPER_ENTRIES as f64 / scale) as u64;
        Self {
            mode: Mode::Fc,
            keys: Keys::Random,
            entries,
            head_bytes: (PAPER_HEAD_BYTES as f64 / scale) as usize,
            head_blocks: ((PAPER_HEAD_BYTES as f64 / scale) as u64 / BLOCK_BYTES as u64).max(2),
            cache_bytes: (PAPER_CACHE_BYTES as f64 / scale) as usize,
            requests: entries,
            lookups: 80,
            deletes: 50,
            filter_bits: 10,
        }
    }

    /// What the paper's head is divided by.
    pub fn scale(&self) -> f64 {
        PAPER_HEAD_BYTES as f64 / self.head_bytes as f64
    }

    fn settings(&self) -> FdTreeSettings {
        FdTreeSettings {
            mode: self.mode,
            head_bytes: self.head_bytes,
            head_blocks: self.head_blocks,
            filter_bits: self.filter_bits,
            ..FdTreeSettings::default()
        }
    }

    fn entry(&self, number: u64) -> [u8; 16] {
        let key = match self.keys {
            Keys::Ascending => number,
            // A permutation of all numbers.
            Keys::Random => (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15),
        };
        (u128::from(key) << 64 | u128::from(number)).to_be_bytes()
    }
}

/// Times of requests of one kind.
#[derive(Clone, Debug, Default)]
pub struct Times(Vec<Duration>);

impl Times {
    /// Requests.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The longest, in ms.
    pub fn worst_ms(&self) -> f64 {
        self.0.iter().max().map_or(0.0, ms)
    }

    /// The mean, in µs.
    pub fn mean_us(&self) -> f64 {
        let sum: Duration = self.0.iter().sum();
        ms(&sum) * 1e3 / self.count().max(1) as f64
    }

    /// The time that 999 of 1000 do not exceed, in ms.
    pub fn p999_ms(&self) -> f64 {
        let mut times = self.0.clone();
        let at = (times.len() * 999).div_ceil(1000).saturating_sub(1);
        times.sort_unstable();
        times.get(at).map_or(0.0, ms)
    }

    fn time<R>(&mut self, work: impl FnOnce() -> Result<R>) -> Result<R> {
        let begin = Instant::now();
        let done = work()?;
        self.0.push(begin.elapsed());
        Ok(done)
    }
}

fn ms(time: &Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// What passed through the blocks of a tree.
#[derive(Debug, Default)]
pub struct Counts {
    pub reads: AtomicU64,
    pub blocks_written: AtomicU64,
    pub syncs: AtomicU64,
    pub images: AtomicU64,
    pub image_bytes: AtomicU64,
    /// the most blocks that were used
    used_max: AtomicU64,
}

/// What is emulated, for results.
pub fn device() -> String {
    throttled().label()
}

fn throttled() -> Throttled {
    Throttled::new(Arc::new(MemoryDevice::default()), LIMITS, real_delays())
}

/// A run's result.
#[derive(Debug)]
pub struct Outcome {
    pub seconds: f64,
    pub modifications: Times,
    pub lookups: Times,
    pub counts: Counts,
    /// blocks before the run, and the most during it
    blocks: (u64, u64),
}

impl Outcome {
    /// Requests per second.
    pub fn per_second(&self) -> f64 {
        (self.modifications.count() + self.lookups.count()) as f64 / self.seconds
    }

    /// Bytes of blocks before the run, and the most during it.
    pub fn space_bytes(&self) -> (u64, u64) {
        let bytes = BLOCK_BYTES as u64;
        (self.blocks.0 * bytes, self.blocks.1 * bytes)
    }

    /// Bytes written for each modification.
    pub fn written_bytes(&self) -> f64 {
        let blocks = self.counts.blocks_written.load(Relaxed) * BLOCK_BYTES as u64;
        let bytes = blocks + self.counts.image_bytes.load(Relaxed);
        bytes as f64 / self.modifications.count().max(1) as f64
    }
}

/// Blocks of a device, with counts.
#[derive(Debug)]
struct Counted {
    blocks: FileBlocks,
    counts: Counts,
}

impl LevelBlocks for Counted {
    fn block_bytes(&self) -> usize {
        self.blocks.block_bytes()
    }
    fn allocate(&self, count: usize) -> Result<Vec<u64>> {
        let numbers = self.blocks.allocate(count)?;
        let used = self.blocks.used() as u64;
        self.counts.used_max.fetch_max(used, Relaxed);
        Ok(numbers)
    }
    fn read(&self, block: u64) -> Result<Vec<u8>> {
        self.counts.reads.fetch_add(1, Relaxed);
        self.blocks.read(block)
    }
    fn read_many(&self, blocks: &[u64]) -> Result<Vec<Vec<u8>>> {
        self.counts.reads.fetch_add(blocks.len() as u64, Relaxed);
        self.blocks.read_many(blocks)
    }
    fn write(&self, blocks: &[(u64, Vec<u8>)]) -> Result<()> {
        let count = blocks.len() as u64;
        self.counts.blocks_written.fetch_add(count, Relaxed);
        self.blocks.write(blocks)
    }
    fn sync(&self) -> Result<()> {
        self.counts.syncs.fetch_add(1, Relaxed);
        self.blocks.sync()
    }
    fn free(&self, blocks: &[u64]) {
        self.blocks.free(blocks);
    }
    fn used(&self) -> usize {
        self.blocks.used()
    }
    fn set_used(&self, blocks: &[u64]) {
        self.blocks.set_used(blocks);
    }
    fn put_image(&self, image: &[u8]) -> Result<()> {
        self.counts.images.fetch_add(1, Relaxed);
        self.counts.syncs.fetch_add(1, Relaxed);
        let bytes = image.len() as u64;
        self.counts.image_bytes.fetch_add(bytes, Relaxed);
        self.blocks.put_image(image)
    }
    fn image(&self) -> Result<Option<Vec<u8>>> {
        self.blocks.image()
    }
}

/// A loaded tree, and what its threads share.
struct Threads {
    run: Run,
    tree: FdTree,
    /// numbers of entries that writers have taken
    inserted: AtomicU64,
    is_over: AtomicBool,
}

impl Threads {
    /// A tree over `blocks` with the run's entries.
    fn load(run: Run, blocks: Arc<Counted>) -> Result<Self> {
        let tree = FdTree::open(run.settings(), blocks, Pool::new(run.cache_bytes))?;
        let mut first: Vec<_> = (0..run.entries).map(|n| run.entry(n)).collect();
        first.sort_unstable();
        let first: Vec<&[u8]> = first.iter().map(|entry| &entry[..]).collect();
        tree.load(&first, None)?;
        Ok(Self {
            inserted: AtomicU64::new(run.entries),
            is_over: AtomicBool::new(false),
            run,
            tree,
        })
    }

    fn compact(&self) -> Result<()> {
        while !self.is_over.load(Relaxed) {
            if !self.tree.compact_step()? {
                std::thread::sleep(Duration::from_micros(50));
            }
        }
        Ok(())
    }

    /// `count` modifications of the writer with this number.
    fn modify(&self, count: u64, writer: u64) -> Result<Times> {
        let (mut rng, mut times) = (Rng::new(writer + 1), Times::default());
        // The entries that this writer may delete.
        let mut own: Vec<u64> = (writer..self.run.entries)
            .step_by(WRITERS as usize)
            .collect();
        let mut newest = std::collections::VecDeque::new();
        for _ in 0..count {
            if rng.below(100) < self.run.deletes && !own.is_empty() {
                let number = own.swap_remove(rng.below(own.len() as u64) as usize);
                let entry = self.run.entry(number);
                if !times.time(|| self.tree.remove(&entry))? {
                    return Err(Error::internal(format!("entry {number} is missing")));
                }
            } else {
                let number = self.inserted.fetch_add(1, Relaxed);
                let entry = self.run.entry(number);
                times.time(|| self.tree.add(&entry))?;
                newest.push_back(number);
            }
            if newest.len() as u64 > DELETE_DISTANCE / WRITERS {
                own.extend(newest.pop_front());
            }
        }
        Ok(times)
    }

    /// `count` lookups.
    fn look_up(&self, count: u64, reader: u64) -> Result<Times> {
        let (mut rng, mut times) = (Rng::new(100 + reader), Times::default());
        for _ in 0..count {
            let number = rng.below(self.inserted.load(Relaxed));
            let entry = self.run.entry(number);
            times.time(|| self.tree.contains(&entry))?;
        }
        Ok(times)
    }

    /// Times of modifications and lookups, beside a thread that compacts.
    fn work(&self, modifications: u64, lookups: u64) -> Result<(Times, Times)> {
        std::thread::scope(|scope| {
            let compactor = scope.spawn(|| self.compact());
            let reader = |n| scope.spawn(move || self.look_up(lookups / READERS, n));
            let readers: Vec<_> = (0..READERS).map(reader).collect();
            let writer = |n| scope.spawn(move || self.modify(modifications / WRITERS, n));
            let writers: Vec<_> = (0..WRITERS).map(writer).collect();
            let join = |threads: Vec<std::thread::ScopedJoinHandle<'_, Result<Times>>>| {
                let mut all = Times::default();
                for thread in threads {
                    all.0
                        .append(&mut thread.join().expect("it does not panic")?.0);
                }
                Ok::<_, Error>(all)
            };
            let times = (join(writers), join(readers));
            self.is_over.store(true, Relaxed);
            compactor.join().expect("the compactor does not panic")?;
            Ok((times.0?, times.1?))
        })
    }
}

/// Loads a tree on the throttled device and does the run's requests.
pub fn run(run: Run) -> Result<Outcome> {
    on_device(run, &throttled())
}

/// As [`run`] in files of an empty `directory`.
pub fn in_files(run: Run, directory: &Path) -> Result<Outcome> {
    on_device(run, &OsDevice::open(directory)?)
}

fn on_device(run: Run, device: &dyn Device) -> Result<Outcome> {
    let blocks = Arc::new(Counted {
        blocks: FileBlocks::open(device, "tree", BLOCK_BYTES)?,
        counts: Counts::default(),
    });
    let threads = Threads::load(run, blocks.clone())?;
    let before = blocks.used() as u64;
    for count in [
        &blocks.counts.reads,
        &blocks.counts.blocks_written,
        &blocks.counts.syncs,
        &blocks.counts.images,
        &blocks.counts.image_bytes,
    ] {
        count.store(0, Relaxed);
    }
    blocks.counts.used_max.store(before, Relaxed);
    let lookups = run.requests * run.lookups / 100;
    let begin = Instant::now();
    let (modifications, lookups) = threads.work(run.requests - lookups, lookups)?;
    let seconds = begin.elapsed().as_secs_f64();
    drop(threads);
    let counts = Arc::into_inner(blocks).map(|blocks| blocks.counts);
    let counts = counts.ok_or_else(|| Error::internal("the tree is gone"))?;
    Ok(Outcome {
        seconds,
        modifications,
        lookups,
        blocks: (before, counts.used_max.load(Relaxed)),
        counts,
    })
}
