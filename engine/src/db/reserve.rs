//! Whether the disk reserve for freeing space exists; see `maintenance::reserve`.

use std::sync::atomic::AtomicBool;
use strandline_base::sync::Mutex;

/// Whether the reserve exists.
#[derive(Debug, Default)]
pub(crate) struct Reserve {
    pub is_given_up: AtomicBool,
    pub changing: Mutex<()>,
}
