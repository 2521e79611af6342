//! The machines of the fault suites: a database in one directory, in two, or with an SSD cache.

use crate::common::*;
use std::sync::Arc;
use strandline_base::ManualClock;
use strandline_engine::catalog::index::IndexStorage;
use strandline_engine::*;
use strandline_sim::SimDisk;

/// Bytes of a page.
pub const PAGE: u64 = 8192;

/// Bytes of a page, or of a block of levels.
pub const BLOCK: u64 = match crate::STORAGE {
    IndexStorage::Levels => 4096,
    _ => PAGE,
};

/// Pages of all indexes in memory where there is a cache: fewer than the workloads have.
const PAGES_IN_MEMORY: usize = 6;

/// Bytes of the cache: 12 slots.
pub const CACHE_BYTES: u64 = 12 * (PAGE + 512);

/// Where a database keeps its page files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    OneDirectory,
    TwoDirectories,
    /// two directories and an SSD cache; indexes in levels do not go through it
    #[allow(dead_code)]
    Cached(SsdCacheMode),
}

/// Makes tests of functions that take a place: one in each of these places.
macro_rules! in_places {
    ($($module:ident = $place:expr),+ $(,)?; $tests:tt) => {
        $(in_places!(@ $module, $place, $tests);)+
    };
    (@ $module:ident, $place:expr, [$($test:ident),+ $(,)?]) => {
        mod $module {
            use crate::machine::Place;
            #[allow(unused_imports)]
            use strandline_engine::SsdCacheMode;
            $(
                #[test]
                fn $test() {
                    super::$test($place);
                }
            )+
        }
    };
}
pub(crate) use in_places;

/// The disks of one machine. Operations of both are numbered together.
#[derive(Clone)]
pub struct Machine {
    pub place: Place,
    pub fast: SimDisk,
    /// the second directory, if there is one
    pub capacity: Option<SimDisk>,
}

impl Machine {
    pub fn new(seed: u64, place: Place) -> Self {
        let fast = SimDisk::new(seed);
        let has_two = place != Place::OneDirectory;
        let capacity = has_two.then(|| fast.beside(seed + 100));
        Self {
            place,
            fast,
            capacity,
        }
    }

    pub fn device(&self) -> Arc<dyn Device> {
        match &self.capacity {
            None => self.fast.device(),
            Some(capacity) => {
                let tiers = TieredDevice::new(self.fast.device(), capacity.device(), "/capacity");
                Arc::new(tiers.expect("tiers"))
            }
        }
    }

    /// The settings of its place.
    pub fn settings(&self) -> Settings {
        let mut settings = eager(6);
        if let Place::Cached(mode) = self.place {
            settings.ssd_cache_mode = mode;
            settings.ssd_cache_bytes = CACHE_BYTES;
            settings.index_page_bytes_max = PAGES_IN_MEMORY * PAGE as usize;
        }
        settings
    }

    pub fn open(&self, clock: &Arc<ManualClock>) -> Result<Arc<Db>> {
        open_with(self.device(), clock, self.settings())
    }

    /// The same disks, opened elsewhere.
    #[allow(dead_code)]
    pub fn at(&self, place: Place) -> Self {
        Self {
            place,
            ..self.clone()
        }
    }

    /// The disk of the indexes' files.
    pub fn files(&self) -> &SimDisk {
        match crate::STORAGE {
            IndexStorage::Levels => &self.fast,
            _ => self.capacity.as_ref().unwrap_or(&self.fast),
        }
    }

    /// Damages the root of an index on pages, or the images of one in levels.
    pub fn damage(&self, file: &str) {
        match crate::STORAGE {
            IndexStorage::Levels => {
                for image in [0, 1] {
                    self.fast.flip_bits(&format!("{file}-image{image}"), 40, 4);
                }
            }
            _ => self.files().flip_bits(file, PAGE + 200, 4),
        }
    }

    fn with(&self, fast: SimDisk, found: impl Fn(&SimDisk) -> SimDisk) -> Self {
        let capacity = self.capacity.as_ref().map(found);
        capacity.iter().for_each(|disk| disk.join(&fast));
        Self {
            place: self.place,
            fast,
            capacity,
        }
    }

    /// The machine found after a crash. With two disks one has lost what is not synced where the
    /// other one has kept it, or it is drawn for each.
    pub fn after_crash(&self, seed: u64) -> Self {
        self.with(self.fast.after_crash(seed), |disk| {
            disk.after_crash(seed ^ 1)
        })
    }

    pub fn after_kill(&self) -> Self {
        self.with(self.fast.after_kill(), SimDisk::after_kill)
    }

    pub fn disks(&self) -> impl Iterator<Item = &SimDisk> {
        std::iter::once(&self.fast).chain(&self.capacity)
    }

    /// Leaves so much room on each disk; None: as much as is wanted.
    #[allow(dead_code)]
    pub fn leave_room(&self, bytes: Option<u64>) {
        for disk in self.disks() {
            disk.limit_capacity(bytes.map(|bytes| disk.used_bytes() + bytes));
        }
    }

    pub fn fail_reads(&self, name: &str) {
        self.disks().for_each(|disk| disk.fail_reads(name));
    }

    pub fn mend_reads(&self) {
        self.disks().for_each(SimDisk::mend_reads);
    }
}
