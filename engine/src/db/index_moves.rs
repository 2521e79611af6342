//! The moves of indexes from memory into levels that are under way: see `transaction::index_move`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use strandline_base::sync::{Condvar, Mutex};

/// The thread that moves indexes, and what it has done.
#[derive(Default)]
pub(crate) struct IndexMoves {
    /// None: there has been no reason for one
    pub thread: Mutex<Option<JoinHandle<()>>>,
    /// set once the database is no longer used
    pub cancel: Arc<AtomicBool>,
    /// for the thread's pauses
    pause: Mutex<()>,
    cancelled: Condvar,
    /// the thread is at work
    is_under_way: AtomicBool,
    /// indexes that have been moved
    pub moved: AtomicU64,
}

impl IndexMoves {
    /// Ends the move that is under way, and all later ones.
    pub fn cancel(&self) {
        let _pause = self.pause.lock();
        self.cancel.store(true, Ordering::Release);
        self.cancelled.notify_all();
    }

    /// Whether the thread is moving indexes.
    pub fn is_under_way(&self) -> bool {
        self.is_under_way.load(Ordering::Relaxed)
    }

    pub fn set_under_way(&self, is_under_way: bool) {
        self.is_under_way.store(is_under_way, Ordering::Relaxed);
    }

    pub fn is_cancelled(&self) -> bool {
        self.cancel.load(Ordering::Acquire)
    }

    /// Waits so long, unless moves have been cancelled.
    pub fn pause(&self, time: Duration) {
        let mut pause = self.pause.lock();
        if !self.is_cancelled() {
            self.cancelled.wait_for(&mut pause, time);
        }
    }
}
