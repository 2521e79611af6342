//! A range and its versions: everything a reader needs, behind one atomically swapped pointer; how
//! writers enter a tail, and how a merge is published.
//!
//! Invariants:
//! 1. One load of the version gives a consistent view: a merge publishes its base together with
//!    the tails that still hold unmerged records.
//! 2. Versions are published under `publish`; readers never take it.
//! 3. A tail leaves the version only sealed and with nothing but records merged into its base.
//! 4. While an appender is inside a tail, the tail stays in the range's versions.
//! 5. A tail of the range's newest version is sealed only while `publish` is held. The thread that
//!    seals it publishes a version without it, or unseals it, also when it panics.
//!
//! # The order of loads
//!
//! A reader takes its snapshot, then loads the version, then the row map's head, then the pages.
//! Each step may see more than the one before, never less: a version older than the snapshot might
//! lack the tail that a commit the snapshot sees went to, and a list of pages older than the head
//! might lack the head's page, which would read as "continue in base".
//!
//! Readers and appenders hold the version they use. Records that its base does not contain stay in
//! the pages for that long, also if a merge is published. So an appender may put a record on top of
//! a base that is outdated by then. A tail that admitted an appender is still the range's: a tail
//! that left the range is sealed for ever. The appender need not load the version again: a version
//! that a merge has just replaced is as right as one that a merge replaces a moment later.
//!
//! A merge publishes on top of the version it finds under `publish`, not of the one it has folded:
//! other update ranges may have got tails since. It records on the old base, which it holds, the
//! pages that it retires. Old versions of rows are in runs before it publishes.
//!
//! # Differences from the paper
//!
//! * Epochs are reference counts of bases (see [`crate::succession`]).
//! * The paper's tail pages belong to a range for good; ours are given up when all is merged, so
//!   that ranges at rest cost nothing. Hence the sealing.
//!
//! Lock order: `publish` is taken before any row latch, never under one; under it, a tail's lock
//! for growing.

use crate::merge_watermarks::MergeWatermarks;
use crate::overlay::{Overlay, OverlayMarks};
use crate::record_page::PageBytes;
use crate::retirement::{DonePages, Retired, SealGuard};
use crate::succession::Succeeded;
use crate::tail::Tail;
use arc_swap::{ArcSwap, Guard};
use std::sync::Arc;
use strandline_base::sync::{Mutex, MutexGuard, spin_loop, yield_now};
use strandline_base::{RangeNo, UPDATE_RANGES};

/// Looks at a tail that is sealed before an appender stops waiting, to see whether it still should.
const ENTRY_LOOKS: u32 = if cfg!(shuttle) { 64 } else { 1 << 14 };

/// The version of a range that readers load. `B` is the base: rows as of the last merge.
#[derive(Debug)]
pub struct RangeVersion<B> {
    /// insert range or chunks
    pub base: Arc<B>,
    /// the tails of update ranges that have one
    pub tails: [Option<Arc<Tail>>; UPDATE_RANGES],
    /// the settled records of the tails
    pub(crate) overlay: Option<Arc<Overlay>>,
}

impl<B> Clone for RangeVersion<B> {
    fn clone(&self) -> Self {
        Self {
            base: self.base.clone(),
            tails: self.tails.clone(),
            overlay: self.overlay.clone(),
        }
    }
}

impl<B> RangeVersion<B> {
    /// A version without tails.
    pub fn of(base: Arc<B>) -> Self {
        Self {
            base,
            tails: [const { None }; UPDATE_RANGES],
            overlay: None,
        }
    }
    /// Whether no update range has a tail.
    pub fn has_no_tail(&self) -> bool {
        self.tails.iter().all(Option::is_none)
    }
}

/// A range of a storage.
#[derive(Debug)]
pub struct Range<B> {
    no: RangeNo,
    version: ArcSwap<RangeVersion<B>>,
    marks: OverlayMarks,
    publish: Mutex<()>,
}

impl<B> Range<B> {
    /// A range that starts with `base`.
    pub fn new(no: RangeNo, base: Arc<B>) -> Arc<Self> {
        Arc::new(Self {
            no,
            version: ArcSwap::from_pointee(RangeVersion::of(base)),
            marks: OverlayMarks::default(),
            publish: Mutex::new(()),
        })
    }
    /// The range's number.
    pub fn no(&self) -> RangeNo {
        self.no
    }
    /// The current version, for short looks.
    #[inline]
    pub fn load(&self) -> Guard<Arc<RangeVersion<B>>> {
        self.version.load()
    }
    /// The current version, to keep.
    pub fn load_full(&self) -> Arc<RangeVersion<B>> {
        self.version.load_full()
    }
    pub(crate) fn marks(&self) -> &OverlayMarks {
        &self.marks
    }
    /// The right to publish.
    pub fn lock(&self) -> MutexGuard<'_, ()> {
        self.publish.lock()
    }
    /// Publishes a version; the guard shows that the caller holds the right to.
    pub fn publish(&self, _right: &MutexGuard<'_, ()>, version: RangeVersion<B>) {
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
    /// Enters the tail of update range `at` as an appender, with the version to go by. None if a
    /// merge keeps the tail sealed for long.
    #[inline]
    pub fn enter(&self, at: usize, bytes: &PageBytes) -> Option<Entered<'_, B>> {
        match self.try_enter(at) {
            Ok(entered) => Some(entered),
            Err(has_tail) => self.enter_later(at, bytes, has_tail),
        }
    }

    /// Enters a tail that is there and not sealed; whether it is there.
    #[inline]
    fn try_enter(&self, at: usize) -> Result<Entered<'_, B>, bool> {
        // A guard, not a counted reference: writers of a range would share the counter.
        let version = self.load();
        match &version.tails[at] {
            Some(tail) if tail.try_enter() => {
                let range = self;
                Ok(Entered { range, version, at })
            }
            tail => Err(tail.is_some()),
        }
    }

    #[cold]
    #[inline(never)]
    fn enter_later(
        &self,
        at: usize,
        bytes: &PageBytes,
        mut has_tail: bool,
    ) -> Option<Entered<'_, B>> {
        for look in 1..=ENTRY_LOOKS {
            match has_tail {
                // Being retired: the range shows the next tail soon.
                true if look.is_multiple_of(64) => yield_now(),
                true => spin_loop(),
                false => {
                    self.ensure_tail(at, bytes);
                }
            }
            match self.try_enter(at) {
                Ok(entered) => return Some(entered),
                Err(now) => has_tail = now,
            }
        }
        None
    }
}

/// An appender inside a tail, which cannot be sealed meanwhile. When it leaves, readers of overlays
/// are told that it was there.
pub struct Entered<'a, B> {
    range: &'a Range<B>,
    version: Guard<Arc<RangeVersion<B>>>,
    /// of the update range
    at: usize,
}

impl<B> Entered<'_, B> {
    /// The version to go by.
    #[inline]
    pub fn version(&self) -> &RangeVersion<B> {
        &self.version
    }
    /// The tail.
    #[inline]
    pub fn tail(&self) -> &Tail {
        let tail = self.version.tails[self.at].as_deref();
        tail.expect("it was entered, and the version is held")
    }
}

impl<B> Drop for Entered<'_, B> {
    #[inline]
    fn drop(&mut self) {
        self.range.marks.note_claim(self.at);
        self.tail().leave();
    }
}

impl<B: Succeeded<Release = (Arc<Tail>, DonePages)>> Range<B> {
    /// Publishes `base`, which is merged up to `through`: steps 4 and 5 of the merge. Tails without
    /// unmerged records leave the range; merged pages of the other tails are dropped when no reader
    /// needs them.
    pub fn publish_merge(&self, base: Arc<B>, through: &MergeWatermarks) {
        let right = self.lock();
        let old = self.load_full();
        let mut next = RangeVersion {
            base,
            tails: old.tails.clone(),
            overlay: None,
        };
        let (mut retired, mut given_up) = (Vec::new(), Vec::new());
        for slot in &mut next.tails {
            let Some(tail) = slot.take() else { continue };
            match tail.retire_merged(through) {
                Retired::Upto(keep_from) => {
                    retired.push((tail.clone(), DonePages::before(keep_from)));
                    *slot = Some(tail);
                }
                Retired::Whole(sealed) => given_up.push(sealed),
            }
        }
        old.base.successor().retire(&next.base, retired);
        self.publish(&right, next);
        given_up.into_iter().for_each(SealGuard::keep);
    }
}
