//! State of a transaction that point operations read without its lock.
//!
//! The one statement that changes the transaction stores the hints under the lock. A hint has no
//! false positives: on a miss the caller takes the lock and looks again.

use crate::store::Store;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use strandline_txn::StartWord;

/// The hints; see the module's documentation.
#[derive(Debug)]
pub(crate) struct TxnHints {
    own: AtomicU64,
    /// the transaction is open and has not changed the catalog
    is_plain: AtomicBool,
    /// address of the storage that the transaction registered with last; only compared, and valid
    /// as long as it is registered
    store: AtomicPtr<Store>,
}

impl TxnHints {
    /// The hints of a new transaction.
    pub fn new() -> Self {
        Self {
            own: AtomicU64::new(0),
            is_plain: AtomicBool::new(true),
            store: AtomicPtr::new(null_mut()),
        }
    }
    /// The transaction's word, or 0 if it has written nothing.
    #[inline]
    pub fn own(&self) -> StartWord {
        StartWord(self.own.load(Ordering::Acquire))
    }
    /// Whether the transaction is open and uses the shared catalog.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.is_plain.load(Ordering::Acquire)
    }
    /// The transaction's word if it is open and `store` is the storage that it registered with
    /// last.
    #[inline]
    pub fn registered(&self, store: &Arc<Store>) -> Option<StartWord> {
        let last = self.store.load(Ordering::Acquire);
        (last.cast_const() == Arc::as_ptr(store)).then(|| self.own())
    }
    pub fn set_own(&self, word: StartWord) {
        self.own.store(word.0, Ordering::Release);
    }
    pub fn set_plain(&self, is_plain: bool) {
        self.is_plain.store(is_plain, Ordering::Release);
    }
    /// Called when the transaction has its word and is registered with `store`.
    pub fn set_registered(&self, store: &Arc<Store>) {
        let store = Arc::as_ptr(store).cast_mut();
        self.store.store(store, Ordering::Release);
    }
    /// Called when the transaction may have released the storage that it registered with last.
    pub fn forget_registered(&self) {
        self.store.store(null_mut(), Ordering::Release);
    }
    /// Called when the transaction has ended.
    pub fn end(&self) {
        self.set_plain(false);
        self.forget_registered();
    }
}
