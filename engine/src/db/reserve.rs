//! Whether the space that is kept for freeing space is there: see `maintenance::reserve`.

use std::sync::atomic::AtomicBool;
use strandline_base::sync::Mutex;

/// Whether the reserve is there.
#[derive(Debug, Default)]
pub(crate) struct Reserve {
    pub is_given_up: AtomicBool,
    pub changing: Mutex<()>,
}
