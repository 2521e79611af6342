//! Counters of the cache.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts of one cache since it was opened, as they grow.
        #[derive(Debug, Default)]
        pub(super) struct Counters { $(pub $name: AtomicU64,)* }

        /// Counts of one cache since it was opened, and its present content.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Stats {
            $($(#[$doc])* pub $name: u64,)*
            /// slots
            pub slots: u64,
            /// slots that can be taken at once
            pub free_slots: u64,
            /// cached blocks
            pub blocks: u64,
            /// cached blocks that are fresher than the capacity tier
            pub fresh_blocks: u64,
        }

        impl Counters {
            /// The counts; the content is left zero.
            pub fn read(&self) -> Stats {
                Stats {
                    $($name: self.$name.load(Ordering::Relaxed),)*
                    ..Stats::default()
                }
            }
        }
    };
}

counters! {
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

/// Adds to a counter.
pub(super) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}
