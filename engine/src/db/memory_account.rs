//! The bytes that one kind of consumer holds. One kind is bulk loads: rows that wait for a full
//! range, and ranges that are being encoded. Another is merges. The third is lists that
//! transactions keep until they end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The account of all consumers of one kind in a database.
#[derive(Debug, Default)]
pub(crate) struct MemoryAccount {
    used: AtomicUsize,
    most: AtomicUsize,
}

/// Bytes held by one consumer, or by a part of it; returned on drop.
#[derive(Debug)]
pub(crate) struct HeldBytes {
    account: Arc<MemoryAccount>,
    bytes: usize,
}

impl MemoryAccount {
    /// The bytes that all consumers hold.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
    /// The maximum bytes held at one time since the database was opened.
    pub fn most(&self) -> usize {
        self.most.load(Ordering::Relaxed)
    }
    /// A share of 0 bytes.
    pub fn share(self: &Arc<Self>) -> HeldBytes {
        HeldBytes {
            account: self.clone(),
            bytes: 0,
        }
    }
}

impl HeldBytes {
    /// Bytes of this share.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
    /// Adds `bytes` to the share.
    pub fn add(&mut self, bytes: usize) {
        self.bytes += bytes;
        let used = self.account.used.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.account.most.fetch_max(used, Ordering::Relaxed);
    }
    /// Sets the share to `bytes`.
    pub fn set(&mut self, bytes: usize) {
        match bytes.checked_sub(self.bytes) {
            Some(more) => self.add(more),
            None => {
                let less = self.bytes - bytes;
                self.account.used.fetch_sub(less, Ordering::Relaxed);
                self.bytes = bytes;
            }
        }
    }
    /// Moves all bytes to a new share, which leaves this one empty.
    pub fn take(&mut self) -> Self {
        let empty = self.account.share();
        std::mem::replace(self, empty)
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.account.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_given_back_and_the_most_is_kept() {
        let account = Arc::new(MemoryAccount::default());
        let mut waiting = account.share();
        waiting.add(10);
        let encoding = waiting.take();
        waiting.add(5);
        assert_eq!((waiting.bytes(), encoding.bytes()), (5, 10));
        assert_eq!((account.used(), account.most()), (15, 15));
        drop(encoding);
        assert_eq!((account.used(), account.most()), (5, 15));
        waiting.set(7);
        assert_eq!((account.used(), account.most()), (7, 15));
        waiting.set(20);
        assert_eq!((account.used(), account.most()), (20, 20));
        drop(waiting);
        assert_eq!((account.used(), account.most()), (0, 20));
    }
}
