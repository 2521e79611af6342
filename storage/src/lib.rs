//! What makes bytes durable: the write-ahead log with group commit, the manifest, and the
//! memory-bounded cache of decoded blocks.

pub mod cache;
pub mod manifest;
pub mod wal;
