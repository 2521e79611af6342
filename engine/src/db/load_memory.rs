//! Bytes of the rows that bulk loads hold: those that wait for a full range and those of the ranges
//! that are being encoded.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The account of all bulk loads of a database.
#[derive(Debug, Default)]
pub(crate) struct LoadMemory {
    used: AtomicUsize,
    most: AtomicUsize,
}

/// What one load or one range of it holds, in bytes; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct LoadBytes {
    account: Arc<LoadMemory>,
    bytes: usize,
}

impl LoadMemory {
    /// Bytes that loads hold.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
    /// The most bytes that they have held at a time since the database was opened.
    pub fn most(&self) -> usize {
        self.most.load(Ordering::Relaxed)
    }
    /// A share of 0 bytes.
    pub fn share(self: &Arc<Self>) -> LoadBytes {
        LoadBytes {
            account: self.clone(),
            bytes: 0,
        }
    }
}

impl LoadBytes {
    /// Bytes of this share.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
    /// It holds `bytes` more.
    pub fn add(&mut self, bytes: usize) {
        self.bytes += bytes;
        let used = self.account.used.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.account.most.fetch_max(used, Ordering::Relaxed);
    }
    /// All that it holds, in a share of its own; this one then holds nothing.
    pub fn take(&mut self) -> Self {
        let empty = self.account.share();
        std::mem::replace(self, empty)
    }
}

impl Drop for LoadBytes {
    fn drop(&mut self) {
        self.account.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_given_back_and_the_most_is_kept() {
        let account = Arc::new(LoadMemory::default());
        let mut waiting = account.share();
        waiting.add(10);
        let encoding = waiting.take();
        waiting.add(5);
        assert_eq!((waiting.bytes(), encoding.bytes()), (5, 10));
        assert_eq!((account.used(), account.most()), (15, 15));
        drop(encoding);
        assert_eq!((account.used(), account.most()), (5, 15));
        drop(waiting);
        assert_eq!((account.used(), account.most()), (0, 15));
    }
}
