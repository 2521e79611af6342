//! The state of backpressure: the open transactions that hold much of the tails' memory, and the
//! time that writers have paused. The rules are in `transaction::backpressure`.
//!
//! Lock order: `large` is taken with nothing else held.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use strandline_base::sync::Mutex;

/// A transaction with this many bytes or more is counted individually.
pub(crate) const SMALL_BYTES: usize = 64 << 10;

/// The state that writers of a database share.
#[derive(Debug, Default)]
pub(crate) struct Backpressure {
    /// open transactions with many bytes
    pub large: Mutex<Vec<Weak<AtomicUsize>>>,
    pub pauses: AtomicU64,
    pub pause_us: AtomicU64,
}

/// The bytes of an open transaction, visible to other transactions.
#[derive(Debug, Default)]
pub(crate) struct OpenBytes(pub Option<Arc<AtomicUsize>>);

/// The open transactions other than one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Others {
    pub count: usize,
    pub bytes: usize,
    pub largest: usize,
}

impl Backpressure {
    /// Publishes that a transaction holds `bytes` now.
    #[inline]
    pub fn show(&self, shown: &mut OpenBytes, bytes: usize) {
        match &shown.0 {
            Some(shown) => shown.store(bytes, Ordering::Relaxed),
            None if bytes < SMALL_BYTES => {}
            None => self.begin_to_show(shown, bytes),
        }
    }

    #[cold]
    fn begin_to_show(&self, shown: &mut OpenBytes, bytes: usize) {
        let new = Arc::new(AtomicUsize::new(bytes));
        let mut large = self.large.lock();
        large.retain(|other| other.strong_count() > 0);
        large.push(Arc::downgrade(&new));
        shown.0 = Some(new);
    }

    /// The large open transactions other than the one that publishes `own`.
    pub fn others(&self, own: &OpenBytes) -> Others {
        let mut others = Others::default();
        let large = self.large.lock();
        for other in large.iter().filter_map(Weak::upgrade) {
            if own.0.as_ref().is_some_and(|own| Arc::ptr_eq(own, &other)) {
                continue;
            }
            let bytes = other.load(Ordering::Relaxed);
            others.count += 1;
            others.bytes += bytes;
            others.largest = others.largest.max(bytes);
        }
        others
    }

    /// The number of pauses of writers so far, and their microseconds.
    pub fn paused(&self) -> (u64, u64) {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (get(&self.pauses), get(&self.pause_us))
    }
}
