//! The cache of immutable blocks on the fast tier: blocks of chunk files and runs, which are on the
//! capacity tier. Settings, protocol and crash cases: docs/rfcs/4-block-cache.md.
//!
//! A reader of single rows asks [`BlockCache::read`]. On a miss it reads the capacity tier, checks
//! the block and offers it by [`BlockCache::admit`] (`file::StoredFile::read_block`). Admitted
//! blocks are collected in memory; a full segment is written at once by [`BlockCache::step`], over
//! the oldest one. Blocks of that one that were read since stay: they are put into the segment that
//! is being filled.
//!
//! Invariants:
//! 1. A block's bytes never change, and a file's number is never used again while the cache knows
//!    it (`core`). So a cached block whose checksum matches is right, however old it is, and
//!    nothing is synced.
//! 2. No fault of the cache is an error of a read: the block is read from the capacity tier.
//! 3. Readers and admissions never wait for a write. An admission without room is refused.
//! 4. Memory is bounded: three segments, and `index_bytes_max` for the index.
//!
//! Lock order: `writer` → `state`. No I/O is done under `state`. `writer` is held during writes;
//! only `step`, `flush` and `resize` take it.
//!
//! Why this is not `ssd_cache`: there blocks have one size, may be fresher than the capacity tier,
//! and need a durable directory. Here blocks have any size and are clean, so that the order of
//! writes does not matter and each segment describes itself.
//!
//! | module | contents |
//! |---|---|
//! | `settings`, `counters` | settings; counts |
//! | `layout` | the file: header, segments, blocks |
//! | `ghost`, `state` | blocks that were read once; the index and the segments in memory |
//! | `core`, `write` | reads and admissions; writing segments |
//! | `open`, `check` | opening; the inspector |

mod check;
mod core;
mod counters;
mod ghost;
mod layout;
mod open;
mod settings;
mod state;
#[cfg(test)]
mod tests;
mod write;

pub use self::core::BlockCache;
pub use crate::block_key::BlockKey;
pub use check::{Inspection, inspect};
pub use counters::Stats;
pub use layout::BLOCK_CACHE_FILE;
pub use open::KnownFiles;
pub use settings::{Admission, Settings};
pub use state::SegmentSummary;
