//! Counters of the cache.

use crate::cache_counters::{EVENTS, cache_counters};

cache_counters! {
    counts {
        /// reads that found their block
        hits,
        /// reads that did not
        misses,
        /// bytes of blocks given to readers
        bytes_read,
        /// bytes of segments written
        bytes_written,
        /// blocks taken into the cache
        admissions,
        /// blocks of an overwritten segment that were read since their admission, and stay
        reinsertions,
        /// blocks removed with an overwritten segment
        evictions,
        /// blocks that qualify and were not admitted: too large, of a file that may still vanish,
        /// both segments in memory full, or a pause after a failed write
        refusals,
        /// segments written
        writes,
        /// segments that could not be written, and failed allocations of the file
        failed_writes,
        /// blocks that were damaged or could not be read, and are read from the capacity tier
        damaged,
        /// blocks of dropped files
        forgotten,
        /// files that were damaged, foreign or of other settings, and were replaced by empty ones
        replaced,
    }
    content {
        /// bytes of all segments together
        cache_bytes,
        /// cached blocks
        blocks,
        /// bytes of cached blocks
        bytes,
        /// bytes of memory: index, blocks read once, segments that are not written yet
        memory_bytes,
        /// admissions to refuse before the next one is tried after a failed write; 0: none
        paused,
    }
}

impl Stats {
    /// Blocks by what has happened to them, in the order of [`CACHE_EVENTS`](crate::CACHE_EVENTS).
    /// Nothing is synced.
    pub fn events(&self) -> [u64; EVENTS.len()] {
        [
            self.hits,
            self.misses,
            self.admissions,
            self.evictions,
            self.refusals,
            0,
            self.damaged,
        ]
    }
}
