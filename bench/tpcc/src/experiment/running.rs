//! A database on its machine: warm-up, measured windows, crash and recovery.

use std::time::{Duration, Instant};

use strandline_base::sync::{AtomicBool, Ordering};
use strandline_base::{Error, Result};
use strandline_storage::pages::PAGE_BYTES;
use strandline_storage::ssd_cache::{self, Mode, SsdCache};
use strandline_storage::wal::WalSettings;

use super::machine::{DATABASE_ID, Image, Machine, Setting, Size};
use super::processor;
use super::read_cache::{ReadCacheBytes, ReadCacheCounts};
use crate::consistency::{Summary, check};
use crate::database::{Database, DatabaseSettings};
use crate::terminals::{Terminals, Timeline};

/// Terminals of the warm-up, which do not wait.
const WARM_TERMINALS: u32 = 4;
/// The longest pause of the thread that drives the cache's steps.
const STEP_PAUSE: Duration = Duration::from_micros(500);
/// A cache of reads has one part of so many of the memory.
const READ_CACHE_SHARE: f64 = 16.0;
/// Share of time above which a processor or an SSD counts as the bottleneck, so that a figure says
/// nothing about the disk.
const BUSY_MAX: f64 = 0.6;
/// The pause after which the probe of a busy machine wants to wake.
const PROBE_PAUSE: Duration = Duration::from_millis(5);
/// Mean lateness of the probe above which other processes have taken the processors: at 0.7 ms the
/// rate of a cache of 6.25 % was a quarter lower than on an idle machine.
const LATE_MAX_MS: f64 = 0.5;

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub setting: Setting,
    /// of the database's bytes
    pub cache_percent: f64,
    /// of the database's bytes
    pub memory_percent: f64,
    /// `lc` cleans above this share of fresh slots
    pub cleaning_percent: u8,
    /// the disk is so many times faster than its model
    pub time_scale: u64,
    pub terminals: u32,
    /// mean wait of a terminal between transactions, at time scale 1
    pub wait: Duration,
    pub warm_up: Duration,
    /// between the begins of checkpoints; a window begins with one
    pub checkpoint_every: Duration,
    pub seed: u64,
}

impl Plan {
    /// The plan of a setting: memory of 3 %, time scale 8.
    pub fn new(setting: Setting, cache_percent: f64) -> Self {
        Self {
            setting,
            cache_percent,
            memory_percent: 3.0,
            cleaning_percent: 50,
            time_scale: 8,
            terminals: 50,
            wait: Duration::from_millis(1_200),
            warm_up: Duration::from_secs(10),
            checkpoint_every: Duration::from_secs(4),
            seed: 20_261_120,
        }
    }

    /// The machine of the plan with a copy of the image, its delays off.
    fn machine(&self, image: &Image) -> Result<Machine> {
        let bytes = ReadCacheBytes {
            ssd: self.cache_settings(image.size).cache_bytes as usize,
            memory: self.read_cache_memory(image.size),
        };
        Machine::new(image, (self.setting, bytes), self.time_scale)
    }

    /// Bytes of so many percent of the pages.
    fn pages(size: Size, percent: f64) -> u64 {
        (size.bytes as f64 * percent / 100.0) as u64 / PAGE_BYTES as u64
    }

    fn cache_settings(&self, size: Size) -> ssd_cache::Settings {
        let mut cache = ssd_cache::Settings::new(DATABASE_ID, 0);
        cache.cache_bytes = Self::pages(size, self.cache_percent) * u64::from(cache.slot_bytes);
        cache.mode = self.setting.mode();
        cache.cleaning_percent = self.cleaning_percent;
        cache
    }

    /// Bytes of memory that a cache of reads has of the plan's.
    fn read_cache_memory(&self, size: Size) -> usize {
        let pages = match self.setting {
            Setting::Foyer => Self::pages(size, self.memory_percent / READ_CACHE_SHARE).max(1),
            _ => 0,
        };
        pages as usize * PAGE_BYTES
    }

    fn settings(&self, size: Size) -> DatabaseSettings {
        let memory_bytes = Self::pages(size, self.memory_percent) as usize * PAGE_BYTES;
        DatabaseSettings {
            scale: size.scale,
            database_id: DATABASE_ID,
            memory_bytes: memory_bytes - self.read_cache_memory(size),
            cache: Some(self.cache_settings(size)),
            wal: WalSettings::default(),
        }
    }

    fn terminals(&self, size: Size, run: u64) -> Terminals {
        Terminals {
            scale: size.scale,
            count: self.terminals,
            wait: self.wait.div_f64(self.time_scale as f64),
            seed: self.seed.wrapping_add(run.wrapping_mul(0x9e37_79b9)),
        }
    }
}

/// What a measured window has shown.
#[derive(Clone, Debug, Default)]
pub struct Window {
    pub timeline: Timeline,
    pub seconds: f64,
    /// begin and end of each checkpoint, in seconds
    pub checkpoints: Vec<(f64, f64)>,
    /// shares of the time
    pub processor_busy: f64,
    pub ssd_busy: f64,
    pub hdd_busy: f64,
    /// by how much a sleeping thread woke too late, mean in milliseconds
    pub late_ms: f64,
    /// of reads that were not in memory, the share that the cache had
    pub cache_hits: f64,
    pub cache: ssd_cache::Stats,
}

impl Window {
    /// New-Orders per minute of the whole window.
    pub fn tpmc(&self) -> f64 {
        self.timeline.tpmc(0.0, self.seconds)
    }

    /// Why the figure is void; None if it counts.
    pub fn void(&self) -> Option<String> {
        let shares = [("processor", self.processor_busy), ("SSD", self.ssd_busy)];
        if let Some((what, share)) = shares.into_iter().find(|(_, share)| *share > BUSY_MAX) {
            return Some(format!("void: {what} {:.0} % busy", share * 100.0));
        }
        let is_late = self.late_ms > LATE_MAX_MS;
        is_late.then(|| format!("void: threads woke {:.1} ms late", self.late_ms))
    }
}

/// A database that is open on its machine.
pub struct Running {
    plan: Plan,
    machine: Machine,
    database: Database,
    size: Size,
    runs: u64,
}

/// What a crash has left, with the log since the last checkpoint.
pub struct Crashed {
    image: Image,
    /// bytes of the log that redo reads
    pub log_bytes: u64,
}

impl Running {
    /// Opens a copy of the image, the disk's delays off, and warms the cache up: the mix runs
    /// without waits for the plan's time, then a checkpoint.
    ///
    /// # Errors
    /// Those of the database.
    pub fn warm(image: &Image, plan: Plan) -> Result<Self> {
        let running = Self::open(image, plan, false)?;
        let terminals = Terminals {
            count: WARM_TERMINALS,
            wait: Duration::ZERO,
            ..plan.terminals(image.size, 0)
        };
        if !plan.warm_up.is_zero() {
            running.run(&terminals, plan.warm_up, None)?;
        }
        running.database.checkpoint()?;
        running.machine.set_delays(true);
        Ok(running)
    }

    fn open(image: &Image, plan: Plan, with_delays: bool) -> Result<Self> {
        let machine = plan.machine(image)?;
        machine.set_delays(with_delays);
        let device = machine.device.clone();
        let (database, _) = Database::open(
            device,
            &plan.settings(image.size),
            image.redo,
            Some(drive_steps),
        )?;
        Ok(Self {
            plan,
            machine,
            database,
            size: image.size,
            runs: 0,
        })
    }

    /// What is emulated.
    pub fn label(&self) -> String {
        self.machine.label()
    }

    /// Runs the plan's terminals for `time`. With `checkpoints`, one begins with the window, and
    /// then one after each of the plan's intervals.
    ///
    /// # Errors
    /// Those of transactions, checkpoints and the cache's steps.
    pub fn measure(&mut self, time: Duration, checkpoints: bool) -> Result<Window> {
        self.runs += 1;
        let terminals = self.plan.terminals(self.size, self.runs);
        self.run(
            &terminals,
            time,
            checkpoints.then_some(self.plan.checkpoint_every),
        )
    }

    fn run(
        &self,
        terminals: &Terminals,
        time: Duration,
        checkpoint_every: Option<Duration>,
    ) -> Result<Window> {
        let is_over = AtomicBool::new(false);
        let before = self.counts();
        let begun = Instant::now();
        let (database, is_over) = (&self.database, &is_over);
        std::thread::scope(|scope| {
            let steps = database
                .cache()
                .map(|cache| scope.spawn(move || drive_steps(cache, is_over)));
            let checkpoints = scope.spawn(move || match checkpoint_every {
                Some(every) => drive_checkpoints(database, (begun, every), time),
                None => Ok(Vec::new()),
            });
            let probe = scope.spawn(move || Ok(probe_lateness(is_over)));
            let timeline = terminals.run(database, time);
            let seconds = begun.elapsed().as_secs_f64();
            let after = self.counts();
            let checkpoints = join(checkpoints);
            is_over.store(true, Ordering::Relaxed);
            let steps = steps.map_or(Ok(()), join);
            let late_ms = join(probe)?;
            let window = self.window(timeline?, seconds, (&before, &after));
            steps.and_then(|()| {
                Ok(Window {
                    checkpoints: checkpoints?,
                    late_ms,
                    ..window
                })
            })
        })
    }

    fn counts(&self) -> Counts {
        Counts {
            processor: processor::seconds(),
            ssd: self.machine.ssd_busy_s(),
            hdd: self.machine.hdd_busy_s(),
            cache: self
                .database
                .cache()
                .map(|cache| cache.stats())
                .unwrap_or_default(),
            reads: self.machine.read_cache_counts(),
        }
    }

    fn window(&self, timeline: Timeline, seconds: f64, counts: (&Counts, &Counts)) -> Window {
        let (before, after) = counts;
        let cache = after.cache;
        let reads = |counts: &Counts| {
            let (cache, reads) = (&counts.cache, &counts.reads);
            (cache.hits + reads.hits, cache.misses + reads.misses)
        };
        let (known, now) = (reads(before), reads(after));
        let (hits, misses) = (now.0 - known.0, now.1 - known.1);
        let share = |of: fn(&Counts) -> f64| (of(after) - of(before)) / seconds;
        Window {
            seconds: timeline.new_orders.len() as f64 / 10.0,
            processor_busy: share(|counts| counts.processor) / processor::count() as f64,
            ssd_busy: share(|counts| counts.ssd),
            hdd_busy: share(|counts| counts.hdd),
            cache_hits: hits as f64 / (hits + misses).max(1) as f64,
            cache,
            timeline,
            checkpoints: Vec::new(),
            late_ms: 0.0,
        }
    }

    /// Writes a checkpoint now; returns its seconds.
    ///
    /// # Errors
    /// Those of the checkpoint.
    pub fn checkpoint(&self) -> Result<f64> {
        let begun = Instant::now();
        self.database.checkpoint()?;
        Ok(begun.elapsed().as_secs_f64())
    }

    /// Checks the conditions of clause 3.3.2, the disk's delays off.
    ///
    /// # Errors
    /// The first condition that does not hold.
    pub fn check(&self) -> Result<Summary> {
        self.machine.set_delays(false);
        let checked = check(&self.database);
        self.machine.set_delays(true);
        checked
    }

    /// Ends the process, as it were: memory is lost, both devices keep what was written.
    pub fn crash(self) -> Crashed {
        let redo = self.database.redo_position();
        let log_bytes = self.database.log_end().0 - redo.0;
        let image = self.machine.image(self.size, redo);
        Crashed { image, log_bytes }
    }
}

impl Crashed {
    /// Opens the database with the disk's delays on. Returns the seconds until the first
    /// transaction may begin, and those of the checkpoint that follows.
    ///
    /// # Errors
    /// Those of opening.
    pub fn recover(&self, plan: Plan) -> Result<(Running, f64, f64)> {
        let begun = Instant::now();
        let running = Running::open(&self.image, plan, true)?;
        let opened = begun.elapsed().as_secs_f64();
        let checkpoint = running.checkpoint()?;
        Ok((running, opened, checkpoint))
    }

    /// The same crash as a database without a cache would have left it: what the cache has is
    /// copied to the disk, the log is the same.
    ///
    /// # Errors
    /// Those of the cache.
    pub fn without_cache(&self, plan: Plan) -> Result<Self> {
        let plan = Plan {
            setting: Setting::Cached(Mode::Off),
            ..plan
        };
        let machine = plan.machine(&self.image)?;
        let settings = plan.settings(self.image.size);
        Database::empty_cache(machine.device.clone(), &settings)?;
        Ok(Self {
            image: machine.image(self.image.size, self.image.redo),
            log_bytes: self.log_bytes,
        })
    }
}

/// Counts since a running database was opened.
struct Counts {
    processor: f64,
    ssd: f64,
    hdd: f64,
    cache: ssd_cache::Stats,
    reads: ReadCacheCounts,
}

fn join<T>(thread: std::thread::ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    let panicked = || Err(Error::internal("a thread of the experiment has panicked"));
    thread.join().unwrap_or_else(|_| panicked())
}

/// Does the cache's steps as they become due.
fn drive_steps(cache: &SsdCache, is_over: &AtomicBool) -> Result<()> {
    while !is_over.load(Ordering::Relaxed) {
        if !cache.is_step_due() || !cache.step()? {
            std::thread::sleep(STEP_PAUSE);
        }
    }
    Ok(())
}

/// The mean time in milliseconds by which a thread wakes too late, until the flag is set.
fn probe_lateness(is_over: &AtomicBool) -> f64 {
    let (mut late, mut count) = (Duration::ZERO, 0_u32);
    while !is_over.load(Ordering::Relaxed) {
        let begun = Instant::now();
        std::thread::sleep(PROBE_PAUSE);
        late += begun.elapsed().saturating_sub(PROBE_PAUSE);
        count += 1;
    }
    late.as_secs_f64() * 1_000.0 / f64::from(count.max(1))
}

/// Checkpoints every so often within `time`; their begins and ends in seconds.
fn drive_checkpoints(
    database: &Database,
    (begun, every): (Instant, Duration),
    time: Duration,
) -> Result<Vec<(f64, f64)>> {
    let mut done = Vec::new();
    let mut next = Duration::ZERO;
    while next < time {
        std::thread::sleep(next.saturating_sub(begun.elapsed()));
        let from = begun.elapsed().as_secs_f64();
        database.checkpoint()?;
        done.push((from, begun.elapsed().as_secs_f64()));
        next = (next + every).max(begun.elapsed());
    }
    Ok(done)
}
