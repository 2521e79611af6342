//! Durable bytes and their cache: the write-ahead log with group commit, the manifest, the files of
//! blocks, sorted runs, and the pool of frames into which blocks are read.
//!
//! Rooms, lowest first; a room imports only from rooms above it in this table:
//!
//! | room | contents |
//! |---|---|
//! | `frame`, `version` | the frame around a record of a stream; the version of a file |
//! | `block_key`, `cache_counters`, `cache_room` | addresses of blocks; counters, sizes of caches |
//! | `block_cache` | the cache of immutable blocks on the fast tier |
//! | `pool` | frames of blocks in memory |
//! | `file` | files of blocks |
//! | `level_blocks` | blocks of an index's levels, with their image |
//! | `run` | sorted runs of records |
//! | `stream` | streams of frames, read back |
//! | `ssd_cache` | the persistent cache between memory and the capacity tier |
//! | `manifest`, `wal`, `kept_log` | the files of the database; the log; what one table needs |
//! | `pages` | pages that are overwritten in place, logged and cached |
//! | `tiers` | the two directories of a database |

pub mod block_cache;
mod block_key;
mod cache_counters;
mod cache_room;
pub mod file;
mod frame;
pub mod kept_log;
pub mod level_blocks;
pub mod manifest;
pub mod pages;
pub mod pool;
pub mod run;
pub mod ssd_cache;
mod stream;
pub mod tiers;
mod version;
pub mod wal;

pub use cache_counters::EVENTS as CACHE_EVENTS;
