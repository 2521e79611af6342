//! Counters of the cache.

use crate::cache_counters::{EVENTS, cache_counters};

cache_counters! {
    counts {
        /// reads that found their block
        hits,
        /// reads that did not
        misses,
        /// bytes of blocks read from slots for readers
        bytes_read,
        /// bytes of blocks written to slots
        bytes_written,
        /// blocks that were taken into the cache
        admissions,
        /// dirty evictions written over the cached block in place
        overwrites,
        /// blocks removed to make room, by shrinking included
        evictions,
        /// blocks copied to the capacity tier, by rounds and cleaning
        copied_out,
        /// dirty evictions that went to the capacity tier directly
        bypasses,
        /// evictions of blocks that qualify and found no free slot, or no adjacent ones
        refusals,
        /// damaged slots of clean blocks, which were read from the capacity tier
        damaged_clean,
        /// damaged slots of fresh blocks: each such read was an error
        damaged_fresh,
        /// syncs of the slots, the directory and the marker
        cache_syncs,
        /// syncs of files of the capacity tier
        capacity_syncs,
        /// changes of the directory: admissions, evictions, first dirty versions of clean blocks
        directory_changes,
        /// frames of changes appended to the directory
        directory_writes,
        /// directories written as a whole: at opening, when grown, after a failed write
        directory_rewrites,
        /// markers written
        marker_writes,
        /// caches that were lost or damaged without loss of data, and replaced by empty ones
        replaced,
    }
    content {
        /// slots
        slots,
        /// slots that can be taken at once
        free_slots,
        /// cached blocks
        blocks,
        /// cached blocks that are fresher than the capacity tier
        fresh_blocks,
    }
}

impl Stats {
    /// Blocks by what has happened to them, in the order of [`CACHE_EVENTS`](crate::CACHE_EVENTS).
    pub fn events(&self) -> [u64; EVENTS.len()] {
        [
            self.hits,
            self.misses,
            self.admissions,
            self.evictions,
            self.refusals,
            self.cache_syncs + self.capacity_syncs,
            self.damaged_clean + self.damaged_fresh,
        ]
    }
}
