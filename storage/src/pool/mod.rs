//! The pool: one budget for frames of blocks, encoded and decoded, and for pages of page files.
//!
//! A frame is reached through its [`FrameHandle`]. A column's reader, a range's row metadata or a
//! block of rows keeps the handle as long as the block may be read. So a hit costs one atomic load;
//! a table of block ids would cost a hash and a lock. The pool knows all filled handles and empties
//! cold ones when the budget is exceeded. Readers decode the frames' bytes. Pages are kept by their
//! store (`crate::pages`), which counts their bytes here and gives up cold ones ([`Pages`]).
//!
//! # Invariants
//! 1. `frame_bytes` is the sum of the bytes of all filled handles.
//! 2. Emptying a handle never invalidates a frame a reader holds: readers hold an `Arc`.
//! 3. A dropped handle returns its bytes.
//! 4. The ring has one entry per filled handle but those that threads are just emptying, and at
//!    most as many (or [`DROPPED_MIN`]) of handles that were dropped while filled. The drop that
//!    exceeds this removes all of them.
//! 5. Stamps ascend from the front of a ring to its back.
//! 6. Frames and pages together exceed the budget by no more than pages that cannot leave, and
//!    entries that threads are just adding. A page cannot leave while it is latched or dirty. A
//!    frame's load never writes a page, so dirty pages leave when a reader of pages needs room, or
//!    when the maintenance writes them back (`crate::pages`, `evict`).
//!
//! # Replacement
//! Replacement is second chance (clock): what was read since the hand last passed is spared once. A
//! new entry has no reference bit, so that what is read once leaves before what is read repeatedly.
//! Frames and pages have a ring each, and each entry has a stamp of one counter from when it
//! entered or was last spared. The hand always goes to the lower of the two front stamps. So it
//! passes all entries in the order of one common ring, and the share of each kind follows from use
//! alone. Each kind keeps a [`FLOOR_PART`]th of the budget if it uses it: so dirty pages leave room
//! for frames.
//!
//! # What is not counted
//! * A handle, and what a page has beside its bytes (its frame, entries of table and ring): about
//!   300 bytes, 4 % of a page. Tests assert the size of a page's frame.
//! * The index of a run: 24 bytes for each of its blocks of 32 KiB, 0.1 % of the history on disk.
//! * The file that a load writes: the column of a range that is being encoded, for each thread.
//!   Loads count their ranges, and merges what they hold (`Pool::lend`).
//! * Tails that an opening fills, until it ends: it runs no query, whose half is free.
//!
//! # Lock order
//! `loading` of a handle → `ring`. No reader loads, empties or drops a frame under `ring`. The hand
//! may drop a handle under it, so a drop only tries to lock it. The hand holds no lock of the pool
//! while it calls the page store, and the store holds none of its own while it calls the pool.

mod arbiter;
mod frame;
#[cfg(test)]
mod tests;

pub use arbiter::{Moved, Pages};
pub use frame::FrameHandle;

use arbiter::Evict;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicIsize, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use strandline_base::sync::Mutex;

/// Entries of dropped handles that the ring may always hold.
const DROPPED_MIN: isize = 64;

/// The inverse share of the budget that always stays with the pool.
const OWN_PART: usize = 4;

/// The inverse share of the present budget that frames and pages keep from each other.
const FLOOR_PART: usize = 16;

/// The budget shared by all frames and pages of one database.
#[derive(Debug)]
pub struct Pool {
    budget_bytes: usize,
    /// bytes of the budget that other components hold
    taken_bytes: Arc<AtomicUsize>,
    /// bytes of the budget that are lent out
    lent_bytes: AtomicUsize,
    /// bytes that owners of handles keep beside their frames
    kept_bytes: AtomicUsize,
    frame_bytes: AtomicUsize,
    page_bytes: AtomicUsize,
    misses: AtomicU64,
    /// the next stamp
    stamps: AtomicU64,
    ring: Mutex<VecDeque<Entry>>,
    /// the store of pages, if there is one
    pages: Mutex<Option<Weak<dyn Pages>>>,
    /// filled handles
    filled: AtomicIsize,
    /// entries of the ring whose handles were dropped; briefly too low
    dropped: AtomicIsize,
}

#[derive(Debug)]
struct Entry {
    stamp: u64,
    frame: Weak<dyn Evict>,
}

impl Pool {
    /// A pool that holds at most about `budget_bytes`.
    pub fn new(budget_bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            budget_bytes,
            taken_bytes: Arc::default(),
            lent_bytes: AtomicUsize::new(0),
            kept_bytes: AtomicUsize::new(0),
            frame_bytes: AtomicUsize::new(0),
            page_bytes: AtomicUsize::new(0),
            misses: AtomicU64::new(0),
            stamps: AtomicU64::new(0),
            ring: Mutex::new(VecDeque::new()),
            pages: Mutex::new(None),
            filled: AtomicIsize::new(0),
            dropped: AtomicIsize::new(0),
        })
    }
    /// Bytes of the budget that other components hold and cannot return; they reduce the pool's
    /// budget. A quarter of the budget stays with the pool.
    pub fn taken_bytes(&self) -> &Arc<AtomicUsize> {
        &self.taken_bytes
    }
    /// Sets the bytes of the budget that are lent out and will be returned. They reduce the pool's
    /// budget, and what is cold is evicted at once. A quarter of the budget stays with the pool.
    pub fn lend(&self, bytes: usize) {
        let before = self.lent_bytes.swap(bytes, Ordering::Relaxed);
        if bytes > before {
            self.shrink();
        }
    }
    /// Bytes of all frames and pages.
    pub fn used_bytes(&self) -> usize {
        self.frame_bytes() + self.page_bytes()
    }
    /// Bytes of all frames.
    pub fn frame_bytes(&self) -> usize {
        self.frame_bytes.load(Ordering::Relaxed)
    }
    /// Bytes of all pages.
    pub fn page_bytes(&self) -> usize {
        self.page_bytes.load(Ordering::Relaxed)
    }
    /// The present bound on [`Pool::used_bytes`].
    pub fn budget_bytes(&self) -> usize {
        let own = self.budget_bytes / OWN_PART;
        let taken = self.taken_bytes.load(Ordering::Relaxed);
        let lent = self.lent_bytes.load(Ordering::Relaxed);
        let others = taken.saturating_add(lent).saturating_add(self.kept_bytes());
        self.budget_bytes.saturating_sub(others).max(own)
    }
    /// Counts bytes that an owner of handles keeps beside their frames, as a chunk its footer. They
    /// reduce the pool's budget as taken ones do.
    pub fn add_kept_bytes(&self, bytes: usize) {
        self.kept_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
    /// Counts kept bytes that were given up.
    pub fn remove_kept_bytes(&self, bytes: usize) {
        self.kept_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
    /// Bytes that owners of handles keep beside their frames.
    pub fn kept_bytes(&self) -> usize {
        self.kept_bytes.load(Ordering::Relaxed)
    }
    /// Whether something has to leave.
    pub fn is_over_budget(&self) -> bool {
        self.used_bytes() > self.budget_bytes()
    }
    /// Whether nothing has to leave for so many bytes more.
    pub fn has_room_for(&self, bytes: usize) -> bool {
        self.used_bytes() + bytes <= self.budget_bytes()
    }
    /// Frames loaded since the start.
    pub fn misses(&self) -> u64 {
        self.misses.load(Ordering::Relaxed)
    }

    /// Counts a dropped filled handle. Its entry stays in the ring until there are many dropped
    /// ones.
    fn note_dropped(&self) {
        let filled = self.filled.fetch_sub(1, Ordering::Relaxed) - 1;
        let dropped = self.dropped.fetch_add(1, Ordering::Relaxed) + 1;
        if dropped > filled.max(DROPPED_MIN)
            // This thread may hold the lock itself; the next drop tries again.
            && let Some(mut ring) = self.ring.try_lock()
        {
            let before = ring.len();
            ring.retain(|entry| entry.frame.strong_count() > 0);
            let removed = (before - ring.len()) as isize;
            self.dropped.fetch_sub(removed, Ordering::Relaxed);
            let room = ring.len() * 2;
            ring.shrink_to(room);
        }
    }
}
