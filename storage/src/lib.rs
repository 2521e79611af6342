//! What makes bytes durable and keeps them at hand: the write-ahead log with group commit, the
//! manifest, the files of blocks, and the memory-bounded cache of decoded blocks.

pub mod cache;
pub mod file;
mod frame;
pub mod manifest;
mod stream;
mod version;
pub mod wal;
