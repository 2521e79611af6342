//! Figures of the FD+tree on a throttled device, after the FD+ paper's §5: Fig. 6 (shares of
//! lookups), Fig. 7 (sizes), Fig. 8 (nearly only inserts), Fig. 9 (ablations). Of each run the
//! completion time, the worst insert and lookup, and the most space.
//!
//! `cargo run --release -p strandline-index --example fd_tree -- [entries] [requests] [figures]
//! [modes]`, figures and modes joined by commas, such as `6,9 fc,ds`
//!
//! Prints a table, and a line of JSON per result. Differences from the paper: the device is memory
//! behind a limit of 250 MB/s and 64,000 requests/s; 2 threads look up, 1 modifies, 1 compacts.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use strandline_base::Result;
use strandline_base::rng::Rng;
use strandline_device::{Limits, MemoryDevice, Throttled, real_delays};
use strandline_index::{FdTree, FdTreeMode as Mode, FdTreeSettings};
use strandline_storage::level_blocks::{FileBlocks, LevelBlocks};
use strandline_storage::pool::Pool;

const BLOCK_BYTES: usize = 4096;
const LIMITS: Limits = Limits {
    bandwidth: 250_000_000,
    requests: 64_000,
};
const LOOKUP_THREADS: u64 = 2;

/// Blocks of a device, with the reads counted and the most that were used.
#[derive(Debug)]
struct Counted {
    blocks: FileBlocks,
    reads: AtomicU64,
    used_max: AtomicU64,
}

impl LevelBlocks for Counted {
    fn block_bytes(&self) -> usize {
        self.blocks.block_bytes()
    }
    fn allocate(&self, count: usize) -> Result<Vec<u64>> {
        let numbers = self.blocks.allocate(count)?;
        self.used_max.fetch_max(self.blocks.used() as u64, Relaxed);
        Ok(numbers)
    }
    fn read(&self, block: u64) -> Result<Vec<u8>> {
        self.reads.fetch_add(1, Relaxed);
        self.blocks.read(block)
    }
    fn write(&self, blocks: &[(u64, Vec<u8>)]) -> Result<()> {
        self.blocks.write(blocks)
    }
    fn sync(&self) -> Result<()> {
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
        self.blocks.put_image(image)
    }
    fn image(&self) -> Result<Option<Vec<u8>>> {
        self.blocks.image()
    }
}

/// One run.
#[derive(Clone, Copy, Debug)]
struct Run {
    figure: &'static str,
    mode: Mode,
    is_ascending: bool,
    /// entries before the run
    entries: u64,
    requests: u64,
    /// lookups among 100 requests
    lookups: u64,
    /// deletes among 100 modifications
    deletes: u64,
    filter_bits: usize,
    pool_bytes: usize,
}

/// Its result.
struct Outcome {
    seconds: f64,
    worst_modification: Duration,
    worst_lookup: Duration,
    modified: u64,
    looked_up: u64,
    reads: u64,
    /// blocks at the begin, and the most during the run
    blocks: (u64, u64),
}

fn entry(number: u64, is_ascending: bool) -> [u8; 16] {
    let key = match is_ascending {
        true => number,
        // A permutation of all numbers.
        false => (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15),
    };
    (u128::from(key) << 64 | u128::from(number)).to_be_bytes()
}

/// A loaded tree, and what its threads share.
struct Threads {
    run: Run,
    tree: FdTree,
    inserted: AtomicU64,
    is_over: AtomicBool,
}

impl Threads {
    /// A tree over `blocks` with the run's entries.
    fn load(run: Run, blocks: &Arc<Counted>) -> Result<Self> {
        let settings = FdTreeSettings {
            mode: run.mode,
            filter_bits: run.filter_bits,
            ..FdTreeSettings::default()
        };
        let tree = FdTree::open(settings, blocks.clone(), Pool::new(run.pool_bytes))?;
        let mut first: Vec<_> = (0..run.entries)
            .map(|n| entry(n, run.is_ascending))
            .collect();
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
                std::thread::yield_now();
            }
        }
        Ok(())
    }

    /// The longest of `count` modifications.
    fn modify(&self, count: u64) -> Result<Duration> {
        let (mut rng, mut worst, mut deleted) = (Rng::new(1), Duration::ZERO, 0);
        for _ in 0..count {
            let begin = Instant::now();
            if rng.below(100) < self.run.deletes && deleted < self.run.entries {
                self.tree.remove(&entry(deleted, self.run.is_ascending))?;
                deleted += 1;
            } else {
                let number = self.inserted.fetch_add(1, Relaxed);
                self.tree.add(&entry(number, self.run.is_ascending))?;
            }
            worst = worst.max(begin.elapsed());
        }
        Ok(worst)
    }

    /// The longest of `count` lookups.
    fn look_up(&self, count: u64, seed: u64) -> Result<Duration> {
        let (mut rng, mut worst) = (Rng::new(seed), Duration::ZERO);
        for _ in 0..count {
            let number = rng.below(self.inserted.load(Relaxed));
            let begin = Instant::now();
            self.tree.contains(&entry(number, self.run.is_ascending))?;
            worst = worst.max(begin.elapsed());
        }
        Ok(worst)
    }

    /// The longest modification and the longest lookup, beside a thread that compacts.
    fn work(&self, modifications: u64, lookups: u64) -> Result<(Duration, Duration)> {
        std::thread::scope(|scope| {
            let compactor = scope.spawn(|| self.compact());
            let readers: Vec<_> = (0..LOOKUP_THREADS)
                .map(|n| scope.spawn(move || self.look_up(lookups / LOOKUP_THREADS, n + 2)))
                .collect();
            let modified = self.modify(modifications);
            let mut worst = Duration::ZERO;
            for reader in readers {
                worst = worst.max(reader.join().expect("a reader does not panic")?);
            }
            self.is_over.store(true, Relaxed);
            compactor.join().expect("the compactor does not panic")?;
            Ok((modified?, worst))
        })
    }
}

fn run(run: Run) -> Result<Outcome> {
    let device = Throttled::new(Arc::new(MemoryDevice::default()), LIMITS, real_delays());
    let blocks = Arc::new(Counted {
        blocks: FileBlocks::open(&device, "tree", BLOCK_BYTES)?,
        reads: AtomicU64::new(0),
        used_max: AtomicU64::new(0),
    });
    let threads = Threads::load(run, &blocks)?;
    let blocks_before = blocks.used() as u64;
    blocks.used_max.store(blocks_before, Relaxed);
    blocks.reads.store(0, Relaxed);
    let looked_up = run.requests * run.lookups / 100;
    let modified = run.requests - looked_up;
    let begin = Instant::now();
    let (worst_modification, worst_lookup) = threads.work(modified, looked_up)?;
    Ok(Outcome {
        seconds: begin.elapsed().as_secs_f64(),
        worst_modification,
        worst_lookup,
        modified,
        looked_up,
        reads: blocks.reads.load(Relaxed),
        blocks: (blocks_before, blocks.used_max.load(Relaxed)),
    })
}

const FIVE: [(&str, Mode); 5] = [
    ("fc", Mode::Fc),
    ("xm", Mode::Xm),
    ("ds", Mode::Ds),
    ("fc_no_sharing", Mode::FcNoSharing),
    ("fc_tuple", Mode::FcTuple),
];

/// All runs, by the paper's figures.
fn runs(all: Run) -> Vec<(&'static str, Run)> {
    let mut runs = Vec::new();
    for is_ascending in [false, true] {
        for lookups in [20, 60, 80] {
            let share = Run {
                figure: "6",
                is_ascending,
                lookups,
                ..all
            };
            runs.extend(FIVE.map(|(name, mode)| (name, Run { mode, ..share })));
        }
    }
    for entries in [all.entries / 4, all.entries * 2] {
        let size = Run {
            figure: "7",
            entries,
            requests: all.requests / 2,
            lookups: 80,
            ..all
        };
        runs.extend(
            FIVE.into_iter()
                .take(3)
                .map(|(name, mode)| (name, Run { mode, ..size })),
        );
    }
    let orders = Run {
        figure: "8",
        is_ascending: true,
        lookups: 9,
        deletes: 48,
        ..all
    };
    runs.extend(
        FIVE.into_iter()
            .take(3)
            .map(|(name, mode)| (name, Run { mode, ..orders })),
    );
    let writes = Run {
        figure: "9",
        lookups: 0,
        deletes: 0,
        ..all
    };
    runs.extend(FIVE.map(|(name, mode)| (name, Run { mode, ..writes })));
    for (filter_bits, pool_bytes) in [(0, 0), (0, 4 << 20), (10, 0)] {
        let reads = Run {
            figure: "reads",
            lookups: 80,
            filter_bits,
            pool_bytes,
            ..all
        };
        runs.push(("fc", reads));
    }
    runs
}

fn main() -> Result<()> {
    let argument = |at, default| {
        let text = std::env::args().nth(at);
        text.and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let (entries, requests): (u64, u64) = (argument(1, 1_000_000), argument(2, 400_000));
    let all = Run {
        figure: "",
        mode: Mode::Fc,
        is_ascending: false,
        entries,
        requests,
        lookups: 0,
        deletes: 50,
        filter_bits: 10,
        pool_bytes: 4 << 20,
    };
    let mut out = std::io::stdout().lock();
    let mut table = String::from(
        "figure mode keys entries lookups% | kreq/s worst-modify-ms worst-lookup-ms \
         reads/req space\n",
    );
    let is_among = |at, name| {
        let wanted = std::env::args().nth(at);
        wanted.is_none_or(|wanted| wanted.split(',').any(|one| one == name))
    };
    let mut runs = runs(all);
    runs.retain(|(name, run)| is_among(3, run.figure) && is_among(4, name));
    for (name, wanted) in runs {
        let done = run(wanted)?;
        let keys = if wanted.is_ascending {
            "ascending"
        } else {
            "random"
        };
        let requests = (done.modified + done.looked_up) as f64;
        let (per_second, reads) = (requests / done.seconds, done.reads as f64 / requests);
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let (modify, lookup) = (ms(done.worst_modification), ms(done.worst_lookup));
        let space = done.blocks.1 as f64 / done.blocks.0.max(1) as f64;
        let Run {
            figure,
            entries,
            lookups,
            filter_bits,
            pool_bytes,
            ..
        } = wanted;
        let json = format!(
            "{{\"figure\":\"{figure}\",\"mode\":\"{name}\",\"keys\":\"{keys}\",\
             \"entries\":{entries},\
             \"requests\":{requests},\"lookup_percent\":{lookups},\"filter_bits\":{filter_bits},\
             \"pool_bytes\":{pool_bytes},\"per_second\":{per_second:.0},\
             \"worst_modify_ms\":{modify:.2},\"worst_lookup_ms\":{lookup:.2},\
             \"reads_per_request\":{reads:.3},\"space\":{space:.3}}}"
        );
        writeln!(out, "{json}").ok();
        table += &format!(
            "{figure:>5} {name:>13} {keys:>9} {entries:>8} {lookups:>3} | {:>8.1} {modify:>9.2} \
             {lookup:>9.2} {reads:>6.3} {space:>5.2}\n",
            per_second / 1e3
        );
    }
    writeln!(out, "{table}").ok();
    Ok(())
}
