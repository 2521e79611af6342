//! Whether the disk reserve for freeing space exists, and whether a disk is full; see
//! `maintenance::reserve`.

use std::sync::atomic::{AtomicBool, Ordering};
use strandline_base::Error;
use strandline_base::sync::Mutex;

/// Whether the reserve exists, and whether a disk is full.
#[derive(Debug, Default)]
pub(crate) struct Reserve {
    pub is_given_up: AtomicBool,
    pub changing: Mutex<()>,
    /// what has found no room last, with its directory or file
    full: Mutex<Option<Error>>,
    /// whether `full` has an error
    is_full: AtomicBool,
}

impl Reserve {
    /// A disk is full: `cause` has found no room.
    pub fn note_full(&self, cause: Error) {
        let mut full = self.full.lock();
        *full = Some(cause);
        self.is_full.store(true, Ordering::Release);
    }

    /// What needs room finds it.
    pub fn note_room(&self) {
        let mut full = self.full.lock();
        *full = None;
        self.is_full.store(false, Ordering::Release);
    }

    /// Whether a disk is full.
    pub fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Acquire)
    }

    /// What has found no room last; None: there is room.
    pub fn full(&self) -> Option<Error> {
        self.full.lock().clone()
    }
}
