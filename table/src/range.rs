//! A range and its versions: everything a reader needs, behind one atomically swapped pointer.
//!
//! Invariants:
//! 1. One load of the version gives a consistent view: a merge publishes its base together with
//!    the tails that still hold unmerged records.
//! 2. Versions are published under `publish`; readers never take it.
//! 3. A tail leaves the version only sealed and with nothing but records merged into its base.
//!
//! Lock order: `publish` is taken before any row latch, never under one.

use crate::base::BaseState;
use crate::record_page::PageBytes;
use crate::tail::Tail;
use arc_swap::{ArcSwap, Guard};
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use strandline_base::{RangeNo, UPDATE_RANGES};

/// What readers of a range see.
#[derive(Clone, Debug)]
pub struct RangeVersion {
    /// insert range or chunks
    pub base: Arc<BaseState>,
    /// the tails of update ranges that have one
    pub tails: [Option<Arc<Tail>>; UPDATE_RANGES],
}

impl RangeVersion {
    /// A version without tails.
    pub fn of(base: Arc<BaseState>) -> Self {
        Self {
            base,
            tails: [const { None }; UPDATE_RANGES],
        }
    }
    /// Whether no update range has a tail.
    pub fn has_no_tail(&self) -> bool {
        self.tails.iter().all(Option::is_none)
    }
}

/// A range of a storage.
#[derive(Debug)]
pub struct Range {
    no: RangeNo,
    version: ArcSwap<RangeVersion>,
    publish: Mutex<()>,
}

impl Range {
    /// A range that starts with `base`.
    pub fn new(no: RangeNo, base: Arc<BaseState>) -> Arc<Self> {
        Arc::new(Self {
            no,
            version: ArcSwap::from_pointee(RangeVersion::of(base)),
            publish: Mutex::new(()),
        })
    }
    /// The range's number.
    pub fn no(&self) -> RangeNo {
        self.no
    }
    /// The current version, for short looks.
    pub fn load(&self) -> Guard<Arc<RangeVersion>> {
        self.version.load()
    }
    /// The current version, to keep.
    pub fn load_full(&self) -> Arc<RangeVersion> {
        self.version.load_full()
    }
    /// The right to publish.
    pub fn lock(&self) -> MutexGuard<'_, ()> {
        self.publish.lock()
    }
    /// Publishes a version; the guard shows that the caller holds the right to.
    pub fn publish(&self, _right: &MutexGuard<'_, ()>, version: RangeVersion) {
        self.version.store(Arc::new(version));
    }
    /// The tail of update range `at`, created if there is none.
    pub fn ensure_tail(&self, at: usize, bytes: &PageBytes) -> Arc<Tail> {
        if let Some(tail) = &self.load().tails[at] {
            return tail.clone();
        }
        let right = self.lock();
        let version = self.load_full();
        if let Some(tail) = &version.tails[at] {
            return tail.clone();
        }
        let tail = Arc::new(Tail::new(bytes));
        let mut next = RangeVersion::clone(&version);
        next.tails[at] = Some(tail.clone());
        self.publish(&right, next);
        tail
    }
}
