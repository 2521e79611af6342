//! Inputs shared by all parts of a checkpoint, and whether the disk was full.

use crate::maintenance::effort::Effort;
use strandline_base::sync::Mutex;
use strandline_base::{CommitTs, Error};

/// Inputs shared by all parts of a checkpoint.
pub(super) struct Terms {
    pub through: CommitTs,
    pub effort: Effort,
    /// set when the disk was full: no further merge is tried
    pub no_room: Mutex<Option<Error>>,
}

impl Terms {
    pub fn is_full(&self) -> bool {
        self.no_room.lock().is_some()
    }
    /// Whether work that failed is tried again before its pause is over.
    pub fn retries(&self) -> bool {
        self.effort == Effort::All
    }
    /// The disk is full: smaller files may still be written, but nothing is merged.
    pub fn note_full_disk(&self, error: &Error) {
        self.no_room.lock().get_or_insert_with(|| error.clone());
    }
}
