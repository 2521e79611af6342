//! The two tiers of the experiment, emulated over memory, and what passes to them.
//!
//! Delays are added up and nobody waits for them: one client works, so the sum of the devices'
//! times and of the processor's is the time that it would have needed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;
use strandline_base::Result;
use strandline_device::{
    DelayClock, Device, EmulatedHdd, File, HddModel, Limits, MemoryDevice, Throttled, TieredDevice,
};

/// The fast tier: 50 µs a request, as the paper's SSD.
const SSD: Limits = Limits {
    bandwidth: 500_000_000,
    requests: 20_000,
};

/// A clock whose time passes by waiting only.
#[derive(Debug, Default)]
struct AddedDelays(AtomicU64);

impl DelayClock for AddedDelays {
    fn now_ns(&self) -> u64 {
        self.0.load(Relaxed)
    }

    fn wait_until(&self, until_ns: u64) {
        self.0.fetch_max(until_ns, Relaxed);
    }
}

/// Reads and writes of one tier.
#[derive(Debug, Default)]
struct Accesses([AtomicU64; 2]);

/// A device that counts the reads and writes of its files.
#[derive(Debug)]
struct Counted {
    inner: Arc<dyn Device>,
    accesses: Arc<Accesses>,
}

#[derive(Debug)]
struct CountedFile {
    inner: Arc<dyn File>,
    accesses: Arc<Accesses>,
}

impl Counted {
    fn wrap(&self, inner: Arc<dyn File>) -> Arc<dyn File> {
        let accesses = self.accesses.clone();
        Arc::new(CountedFile { inner, accesses })
    }
}

impl Device for Counted {
    strandline_device::forward!(inner: remove rename list sync_directory lock location);

    fn create(&self, name: &str) -> Result<Arc<dyn File>> {
        Ok(self.wrap(self.inner.create(name)?))
    }

    fn open(&self, name: &str) -> Result<Arc<dyn File>> {
        Ok(self.wrap(self.inner.open(name)?))
    }
}

impl File for CountedFile {
    strandline_device::forward!(inner: name sync len set_len);

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.accesses.0[0].fetch_add(1, Relaxed);
        self.inner.read_exact_at(buf, offset)
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.accesses.0[1].fetch_add(1, Relaxed);
        self.inner.write_all_at(buf, offset)
    }
}

/// Time and accesses of a moment, or between two moments.
#[derive(Clone, Copy, Debug)]
pub struct Spent {
    /// of the devices and the processor
    pub ms: f64,
    /// reads and writes of the fast tier, then of the capacity tier
    pub accesses: [f64; 4],
    /// operations that were counted between two moments
    pub operations: u64,
}

impl Spent {
    /// What was spent since `before`, for one of `operations`.
    pub fn since(self, before: Self, operations: u64) -> Self {
        let each = |now: f64, then: f64| (now - then) / operations as f64;
        Self {
            ms: each(self.ms, before.ms),
            accesses: std::array::from_fn(|at| each(self.accesses[at], before.accesses[at])),
            operations,
        }
    }
}

/// Both tiers.
pub struct Devices {
    clock: Arc<AddedDelays>,
    begun: Instant,
    /// of the fast and the capacity tier
    accesses: [Arc<Accesses>; 2],
    pub tiers: Arc<dyn Device>,
    pub fast: Arc<dyn Device>,
}

impl Devices {
    /// Emulated devices with the files of `files`: those of the fast and of the capacity tier.
    pub fn over(files: [MemoryDevice; 2]) -> Result<Self> {
        let clock = Arc::new(AddedDelays::default());
        let accesses: [Arc<Accesses>; 2] = Default::default();
        let [fast, capacity] = files.map(|files| Arc::new(files) as Arc<dyn Device>);
        let fast = Arc::new(Throttled::new(fast, SSD, clock.clone()));
        let capacity = EmulatedHdd::new(capacity, HddModel::RPM_7200, 1, clock.clone());
        let counted = |inner: Arc<dyn Device>, at: usize| {
            let accesses = accesses[at].clone();
            Arc::new(Counted { inner, accesses })
        };
        let fast = counted(fast, 0);
        let capacity = counted(Arc::new(capacity), 1);
        Ok(Self {
            clock,
            begun: Instant::now(),
            tiers: Arc::new(TieredDevice::new(fast.clone(), capacity, String::new())?),
            fast,
            accesses,
        })
    }

    /// What was spent so far.
    pub fn spent(&self) -> Spent {
        let processor_ms = self.begun.elapsed().as_secs_f64() * 1e3;
        let count = |at: usize| self.accesses[at / 2].0[at % 2].load(Relaxed) as f64;
        Spent {
            ms: processor_ms + self.clock.now_ns() as f64 / 1e6,
            accesses: std::array::from_fn(count),
            operations: 0,
        }
    }
}

/// What is emulated, for results.
pub fn label() -> String {
    let Limits { requests, .. } = SSD;
    let disk = HddModel::RPM_7200.name;
    format!("emulated: {disk}, SSD of {requests} requests/s, time scale 1; delays are added up")
}
