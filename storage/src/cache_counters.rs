//! Counters of a cache between memory and the capacity tier.

use std::sync::atomic::{AtomicU64, Ordering};

/// The names of what `Stats::events` counts.
pub const EVENTS: [&str; 7] = [
    "hits",
    "misses",
    "admissions",
    "evictions",
    "refusals",
    "syncs",
    "damaged",
];

/// Makes `Counters`, which grow while a cache is open, and `Stats`, which has their values and,
/// behind them, the cache's present content.
macro_rules! cache_counters {
    (
        counts { $($(#[$doc:meta])* $name:ident,)* }
        content { $($(#[$content_doc:meta])* $content:ident,)* }
    ) => {
        /// Counts of one cache since it was opened, as they grow.
        #[derive(Debug, Default)]
        pub(super) struct Counters { $(pub $name: std::sync::atomic::AtomicU64,)* }

        /// Counts of one cache since it was opened, and its present content.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Stats {
            $($(#[$doc])* pub $name: u64,)*
            $($(#[$content_doc])* pub $content: u64,)*
        }

        impl Counters {
            /// The counts; the content is left zero.
            pub fn read(&self) -> Stats {
                Stats {
                    $($name: self.$name.load(std::sync::atomic::Ordering::Relaxed),)*
                    ..Stats::default()
                }
            }
        }
    };
}
pub(crate) use cache_counters;

/// Adds to a counter.
pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}
