//! The moves of indexes from memory into levels that are under way: see `maintenance::relocation`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread::JoinHandle;
use strandline_base::sync::Mutex;

/// The thread that moves indexes, and what it has done.
#[derive(Default)]
pub(crate) struct Relocation {
    /// None: there has been no reason for one
    pub thread: Mutex<Option<JoinHandle<()>>>,
    /// set once the database is no longer used
    pub cancel: Arc<AtomicBool>,
    /// indexes that have been moved
    pub moved: AtomicU64,
}
