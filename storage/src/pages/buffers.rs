//! Buffers of pages that have left memory, for the pages that are read next: as a rule one page
//! leaves for each that is read.

use strandline_base::sync::Mutex;

use super::header::PAGE_BYTES;

/// The most buffers that are kept.
const KEPT_MAX: usize = 8;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Buffers(Mutex<Vec<Vec<u8>>>);

impl Buffers {
    /// A buffer of a page, with any bytes.
    pub fn take(&self) -> Vec<u8> {
        let kept = self.0.lock().pop();
        kept.unwrap_or_else(|| vec![0; PAGE_BYTES])
    }

    /// Keeps a buffer that is not needed any more.
    pub fn keep(&self, buffer: Vec<u8>) {
        let mut kept = self.0.lock();
        if kept.len() < KEPT_MAX {
            kept.push(buffer);
        }
    }
}
