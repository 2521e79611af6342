//! Synchronisation primitives of the lock-free protocols. Built with `--cfg shuttle` they are
//! shuttle's, so that the models explore interleavings of the very code that ships.

#[cfg(not(shuttle))]
pub use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
};
