//! What is on the tiers of a database, and how the caches between them are used: the rows of
//! `strandline_tiers()`.

use crate::db::Db;
use strandline_base::Result;
use strandline_device::Tier;
use strandline_storage::CACHE_EVENTS;

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
    /// bytes that a cache has written since the database was opened
    pub written_bytes: Option<u64>,
    /// writes of a cache since then: slots of the SSD cache, segments of the block cache
    pub writes: Option<u64>,
    /// blocks by what has happened to them since the database was opened, in the order of
    /// [`TierCounts::EVENTS`]
    pub events: Option<[u64; CACHE_EVENTS.len()]>,
}

impl TierCounts {
    /// The names of a cache's events.
    pub const EVENTS: [&str; CACHE_EVENTS.len()] = CACHE_EVENTS;
}

impl Db {
    /// A row for each tier, then one for each cache.
    ///
    /// # Errors
    /// Those of listing the directories.
    pub fn tier_counts(&self) -> Result<Vec<TierCounts>> {
        let device = self.device();
        let Some(tiers) = device.tiers() else {
            let bytes = self.device_bytes()?;
            return Ok(vec![counts_of("fast", device.location(), bytes)]);
        };
        let mut rows = Vec::new();
        for (name, tier) in [("fast", Tier::Fast), ("capacity", Tier::Capacity)] {
            let location = tiers.device_of(tier).location();
            let bytes = self.bytes_of(|file| tiers.tier_of(file) == tier)?;
            rows.push(counts_of(name, location, bytes));
        }
        rows.extend(self.ssd_cache_counts());
        rows.extend(self.block_cache_counts());
        Ok(rows)
    }

    fn block_cache_counts(&self) -> Option<TierCounts> {
        let stats = self.block_cache_stats()?;
        Some(TierCounts {
            name: "block_cache",
            location: "fast".to_owned(),
            bytes: stats.bytes,
            bytes_max: Some(stats.cache_bytes),
            written_bytes: Some(stats.bytes_written),
            writes: Some(stats.writes),
            events: Some(stats.events()),
            ..TierCounts::default()
        })
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
            written_bytes: Some(stats.bytes_written),
            writes: Some(stats.admissions + stats.overwrites),
            events: Some(stats.events()),
        })
    }
}

fn counts_of(name: &'static str, location: String, bytes: u64) -> TierCounts {
    TierCounts {
        name,
        location,
        bytes,
        ..TierCounts::default()
    }
}
