//! What is on the tiers of a database, and how the caches between them are used: the rows of
//! `strandline_tiers()`.

use crate::db::Db;
use strandline_base::Result;
use strandline_device::{Device, Tier};

/// The counts of one tier or of one cache. Counts of what a row does not have are None.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TierCounts {
    /// `fast`, `capacity` or the name of a cache
    pub name: &'static str,
    /// where it is: a directory, or the tier of a cache
    pub location: String,
    /// the mode of a cache
    pub mode: Option<&'static str>,
    /// bytes of all files, or of the blocks in a cache
    pub bytes: u64,
    /// bytes that a cache has room for
    pub bytes_max: Option<u64>,
    /// bytes of blocks that are fresher than the capacity tier
    pub fresh_bytes: Option<u64>,
    /// blocks by what has happened to them since the database was opened, in the order of
    /// [`TierCounts::EVENTS`]
    pub events: Option<[u64; TierCounts::EVENTS.len()]>,
}

impl TierCounts {
    /// The names of a cache's events.
    pub const EVENTS: [&str; 7] = [
        "hits",
        "misses",
        "admissions",
        "evictions",
        "refusals",
        "syncs",
        "damaged",
    ];
}

impl Db {
    /// A row for each tier, then one for each cache.
    ///
    /// # Errors
    /// Those of listing the directories.
    pub fn tier_counts(&self) -> Result<Vec<TierCounts>> {
        let mut rows = Vec::new();
        match self.device().tiers() {
            None => rows.push(counts_of("fast", &**self.device())?),
            Some(tiers) => {
                rows.push(counts_of("fast", &**tiers.device_of(Tier::Fast))?);
                rows.push(counts_of("capacity", &**tiers.device_of(Tier::Capacity))?);
            }
        }
        rows.extend(self.ssd_cache_counts());
        Ok(rows)
    }

    fn ssd_cache_counts(&self) -> Option<TierCounts> {
        let cache = self.index_files.cache()?;
        let (stats, slot_bytes) = (cache.stats(), cache.slot_bytes());
        Some(TierCounts {
            name: "ssd_cache",
            location: "fast".to_owned(),
            mode: Some(cache.mode().name()),
            bytes: stats.blocks * slot_bytes,
            bytes_max: Some(stats.slots * slot_bytes),
            fresh_bytes: Some(stats.fresh_blocks * slot_bytes),
            events: Some([
                stats.hits,
                stats.misses,
                stats.admissions,
                stats.evictions,
                stats.refusals,
                stats.cache_syncs + stats.capacity_syncs,
                stats.damaged_clean + stats.damaged_fresh,
            ]),
        })
    }
}

fn counts_of(name: &'static str, device: &dyn Device) -> Result<TierCounts> {
    let mut bytes = 0;
    for file in device.list()? {
        // A file may have been removed since.
        bytes += device.open(&file).and_then(|file| file.len()).unwrap_or(0);
    }
    Ok(TierCounts {
        name,
        location: device.location(),
        bytes,
        ..TierCounts::default()
    })
}
