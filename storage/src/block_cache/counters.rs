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
            /// bytes of all segments together
            pub cache_bytes: u64,
            /// cached blocks
            pub blocks: u64,
            /// bytes of cached blocks
            pub bytes: u64,
            /// bytes of memory: index, blocks read once, segments that are not written yet
            pub memory_bytes: u64,
            /// admissions to refuse before the next one is tried after a failed write; 0: none
            pub paused: u64,
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
    /// blocks that qualify and were not admitted: too large, of a file that may still vanish, both
    /// segments in memory full, or a pause after a failed write
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

/// Adds to a counter.
pub(super) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}
