//! A cache of reads in front of the disk, as an experiment sees it.

use std::sync::Arc;

use strandline_device::Device;

/// The bytes of a cache of reads on its tiers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadCacheBytes {
    pub ssd: usize,
    pub memory: usize,
}

/// What a cache of reads has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadCacheCounts {
    pub hits: u64,
    pub misses: u64,
    /// read and written
    pub ssd_bytes: u64,
    pub ssd_requests: u64,
}

/// A cache of reads in front of a device.
pub trait ReadCache: Send + Sync {
    fn counts(&self) -> ReadCacheCounts;
    /// What it is, for results.
    fn label(&self) -> String;
}

/// A device behind its cache of reads.
pub type CachedReads = (Arc<dyn Device>, Arc<dyn ReadCache>);
