//! Devices of a setting, and the database image that is copied onto them.

use std::sync::Arc;

use strandline_base::Result;
use strandline_device::{
    Device, EmulatedHdd, HddModel, Limits, MemoryDevice, Throttled, TieredDevice, real_delays,
};
use strandline_storage::ssd_cache::Mode;
use strandline_storage::wal::{Lsn, WalSettings};

use super::read_cache::{CachedReads, ReadCache, ReadCacheBytes, ReadCacheCounts};
use crate::database::{Database, DatabaseSettings};
use crate::input::Scale;

/// The lower one of the thesis' figures for reads and writes [SSD-DB §2.7.1].
const SSD: Limits = Limits {
    bandwidth: 1_300_000_000,
    requests: 140_000,
};
/// Bytes of pages in memory while the image is loaded.
const LOAD_BYTES: usize = 256 << 20;
/// The database's id.
pub(super) const DATABASE_ID: u128 = 0x7bcc;

/// Where pages and log are [SSD-DB §2.7.2].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// pages on the disk and in a cache on the SSD, the log on the SSD
    Cached(Mode),
    /// everything on the disk
    AllHdd,
    /// everything on the SSD
    AllSsd,
    /// pages on the disk behind a foyer cache of reads, the log on the SSD; needs the feature
    /// `foyer`
    Foyer,
}

#[cfg(feature = "foyer")]
fn cache_reads(device: Arc<dyn Device>, bytes: ReadCacheBytes) -> Result<CachedReads> {
    super::foyer::cache_reads(device, bytes)
}

#[cfg(not(feature = "foyer"))]
fn cache_reads(device: Arc<dyn Device>, bytes: ReadCacheBytes) -> Result<CachedReads> {
    let ReadCacheBytes { ssd, memory } = bytes;
    let message = format!(
        "this build has no foyer of {ssd} and {memory} bytes before \"{}\"; build with the feature \
         `foyer`",
        device.location()
    );
    Err(strandline_base::Error::internal(message))
}

impl Setting {
    /// The name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cached(Mode::Pc) => "pc",
            Self::Cached(Mode::Pc2) => "pc2",
            Self::Cached(Mode::Lc) => "lc",
            Self::Cached(Mode::Off) => "off",
            Self::AllHdd => "all-hdd",
            Self::AllSsd => "all-ssd",
            Self::Foyer => "foyer",
        }
    }

    /// The cache's mode.
    pub fn mode(self) -> Mode {
        match self {
            Self::Cached(mode) => mode,
            Self::AllHdd | Self::AllSsd | Self::Foyer => Mode::Off,
        }
    }

    /// Whether this build has it.
    pub const fn is_built(self) -> bool {
        !matches!(self, Self::Foyer) || cfg!(feature = "foyer")
    }
}

/// The size of a database as loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    pub scale: Scale,
    /// of the page files
    pub bytes: u64,
}

/// The bytes of both tiers, and where redo begins.
#[derive(Debug)]
pub struct Image {
    pub(super) size: Size,
    pub(super) fast: MemoryDevice,
    pub(super) capacity: MemoryDevice,
    pub(super) redo: Lsn,
}

impl Image {
    /// Loads the initial population.
    ///
    /// # Errors
    /// Those of the database.
    pub fn load(scale: Scale, seed: u64) -> Result<Self> {
        let (fast, capacity) = (MemoryDevice::new(), MemoryDevice::new());
        let (fast, capacity) = (Arc::new(fast), Arc::new(capacity));
        let device = TieredDevice::new(fast.clone(), capacity.clone(), "")?;
        let settings = DatabaseSettings {
            scale,
            database_id: DATABASE_ID,
            memory_bytes: LOAD_BYTES,
            cache: None,
            wal: WalSettings::default(),
        };
        let database = Database::create(Arc::new(device), &settings, seed)?;
        let redo = database.redo_position();
        drop(database);
        let len = |name: &String| capacity.open(name)?.len();
        let bytes = capacity.list()?.iter().map(len).sum::<Result<u64>>()?;
        Ok(Self {
            size: Size { scale, bytes },
            fast: fast.duplicate(),
            capacity: capacity.duplicate(),
            redo,
        })
    }

    /// The size of the database.
    pub fn size(&self) -> Size {
        self.size
    }
}

/// The devices of a setting with a copy of an image.
pub(super) struct Machine {
    pub device: Arc<dyn Device>,
    fast: Arc<MemoryDevice>,
    capacity: Arc<MemoryDevice>,
    ssd: Option<Arc<Throttled>>,
    hdd: Option<Arc<EmulatedHdd>>,
    read_cache: Option<Arc<dyn ReadCache>>,
}

impl Machine {
    /// The machine, its delays off.
    pub fn new(
        image: &Image,
        (setting, cached): (Setting, ReadCacheBytes),
        time_scale: u64,
    ) -> Result<Self> {
        let fast = Arc::new(image.fast.duplicate());
        let capacity = Arc::new(image.capacity.duplicate());
        let both: Arc<dyn Device> =
            Arc::new(TieredDevice::new(fast.clone(), capacity.clone(), "")?);
        let ssd = |inner| Arc::new(Throttled::new(inner, SSD, real_delays()));
        let hdd = |inner| {
            let disk = EmulatedHdd::new(inner, HddModel::RPM_7200, time_scale, real_delays());
            disk.set_delays(false);
            Arc::new(disk)
        };
        let mut read_cache = None;
        let (device, ssd, hdd): (Arc<dyn Device>, _, _) = match setting {
            Setting::AllSsd => {
                let ssd = ssd(both);
                (ssd.clone(), Some(ssd), None)
            }
            Setting::AllHdd => {
                let hdd = hdd(both);
                (hdd.clone(), None, Some(hdd))
            }
            Setting::Cached(_) => {
                let (ssd, hdd) = (ssd(fast.clone()), hdd(capacity.clone()));
                let tiers = TieredDevice::new(ssd.clone(), hdd.clone(), "")?;
                (Arc::new(tiers), Some(ssd), Some(hdd))
            }
            Setting::Foyer => {
                let (ssd, hdd) = (ssd(fast.clone()), hdd(capacity.clone()));
                let (behind, cache) = cache_reads(hdd.clone(), cached)?;
                read_cache = Some(cache);
                let tiers = TieredDevice::new(ssd.clone(), behind, "")?;
                (Arc::new(tiers), Some(ssd), Some(hdd))
            }
        };
        Ok(Self {
            device,
            fast,
            capacity,
            ssd,
            hdd,
            read_cache,
        })
    }

    /// A copy of what is on the devices.
    pub fn image(&self, size: Size, redo: Lsn) -> Image {
        Image {
            size,
            fast: self.fast.duplicate(),
            capacity: self.capacity.duplicate(),
            redo,
        }
    }

    /// Switches the disk's delays.
    pub fn set_delays(&self, is_on: bool) {
        if let Some(hdd) = &self.hdd {
            hdd.set_delays(is_on);
        }
    }

    /// Seconds for which the SSD has been busy: by requests or by bytes, whichever is more.
    pub fn ssd_busy_s(&self) -> f64 {
        let load = self.ssd.as_ref().map(|ssd| ssd.load()).unwrap_or_default();
        let cached = self.read_cache_counts();
        let by_requests = (load.requests + cached.ssd_requests) as f64 / SSD.requests as f64;
        by_requests.max((load.bytes + cached.ssd_bytes) as f64 / SSD.bandwidth as f64)
    }

    /// What the cache of reads has done, if there is one.
    pub fn read_cache_counts(&self) -> ReadCacheCounts {
        let counts = self.read_cache.as_ref().map(|cache| cache.counts());
        counts.unwrap_or_default()
    }

    /// Seconds for which the disk has been busy.
    pub fn hdd_busy_s(&self) -> f64 {
        let busy_ns = self.hdd.as_ref().map_or(0, |hdd| hdd.busy_ns());
        busy_ns as f64 / 1e9
    }

    /// What is emulated, for results.
    pub fn label(&self) -> String {
        let hdd = self.hdd.as_ref().map(|hdd| hdd.label());
        let ssd = self.ssd.as_ref().map(|ssd| format!("SSD {}", ssd.label()));
        let cache = self.read_cache.as_ref().map(|cache| cache.label());
        let labels: Vec<String> = hdd.into_iter().chain(ssd).chain(cache).collect();
        labels.join("; ")
    }
}
