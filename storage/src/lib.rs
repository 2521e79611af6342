//! What makes bytes durable: the write-ahead log with group commit, the manifest, and the
//! memory-bounded cache of decoded blocks.

pub mod cache;
mod frame;
pub mod manifest;
mod stream;
mod version;
pub mod wal;
