//! The pool of frames: blocks in memory, encoded and decoded, under one budget.
//!
//! A frame is reached through its [`FrameHandle`]. A column's reader, a range's row metadata or a
//! block of rows keeps the handle as long as the block may be read. So a hit costs one atomic load;
//! a table of block ids would cost a hash and a lock. The pool knows all filled handles and empties
//! cold ones when their bytes exceed the budget. Readers decode the frames' bytes.
//!
//! Invariants:
//! 1. `used` is the sum of the bytes of all filled handles.
//! 2. Emptying a handle never invalidates a frame a reader holds: readers hold an `Arc`.
//! 3. A dropped handle returns its bytes.
//! 4. The ring has one entry per filled handle, and at most as many (or [`DROPPED_MIN`]) of handles
//!    that were dropped while filled. The drop that exceeds this removes all of them.
//!
//! Replacement is second chance (clock): a frame that was read since the hand last passed is spared
//! once. A new frame enters without the reference bit, so that frames read once are evicted before
//! frames read repeatedly.
//!
//! Lock order: `loading` of a handle → `ring`. No reader loads or drops a frame under `ring`.
//! `shrink` may drop a handle under `ring`, so a drop only tries to lock it.

mod frame;
#[cfg(test)]
mod tests;

pub use frame::FrameHandle;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicIsize, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use strandline_base::sync::Mutex;

/// Entries of dropped handles that the ring may always hold.
const DROPPED_MIN: isize = 64;

/// The inverse share of the budget that always stays with the pool.
const OWN_PART: usize = 4;

/// The budget shared by all frames of one database.
#[derive(Debug)]
pub struct Pool {
    budget_bytes: usize,
    /// bytes of the budget that other components hold
    taken_bytes: Arc<AtomicUsize>,
    /// bytes of the budget that are lent out
    lent_bytes: AtomicUsize,
    used_bytes: AtomicUsize,
    misses: AtomicU64,
    ring: Mutex<VecDeque<Weak<dyn Evict>>>,
    /// filled handles
    filled: AtomicIsize,
    /// entries of the ring whose handles were dropped; briefly too low
    dropped: AtomicIsize,
}

trait Evict: Send + Sync + std::fmt::Debug {
    /// Empties the handle unless it was read since the last call; returns whether it was emptied.
    fn evict_if_cold(&self) -> bool;
}

impl Pool {
    /// A pool that holds at most about `budget_bytes`.
    pub fn new(budget_bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            budget_bytes,
            taken_bytes: Arc::default(),
            lent_bytes: AtomicUsize::new(0),
            used_bytes: AtomicUsize::new(0),
            misses: AtomicU64::new(0),
            ring: Mutex::new(VecDeque::new()),
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
    /// budget, and cold frames are evicted at once. A quarter of the budget stays with the pool.
    pub fn lend(&self, bytes: usize) {
        let before = self.lent_bytes.swap(bytes, Ordering::Relaxed);
        if bytes > before {
            self.shrink();
        }
    }
    /// Bytes of all frames.
    pub fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }
    /// The present bound on [`Pool::used_bytes`].
    pub fn budget_bytes(&self) -> usize {
        let own = self.budget_bytes / OWN_PART;
        let taken = self.taken_bytes.load(Ordering::Relaxed);
        let lent = self.lent_bytes.load(Ordering::Relaxed);
        self.budget_bytes.saturating_sub(taken + lent).max(own)
    }
    /// Frames loaded since the start.
    pub fn misses(&self) -> u64 {
        self.misses.load(Ordering::Relaxed)
    }

    fn shrink(&self) {
        let budget_bytes = self.budget_bytes();
        if self.used_bytes() <= budget_bytes {
            return;
        }
        let mut ring = self.ring.lock();
        // At most two rounds: the first clears reference bits, the second evicts.
        let mut turns = ring.len() * 2;
        while self.used_bytes() > budget_bytes && turns > 0 {
            turns -= 1;
            let Some(weak) = ring.pop_front() else { break };
            let Some(frame) = weak.upgrade() else {
                self.dropped.fetch_sub(1, Ordering::Relaxed);
                continue;
            };
            if !frame.evict_if_cold() {
                ring.push_back(weak);
            }
        }
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
            ring.retain(|handle| handle.strong_count() > 0);
            let removed = (before - ring.len()) as isize;
            self.dropped.fetch_sub(removed, Ordering::Relaxed);
            let room = ring.len() * 2;
            ring.shrink_to(room);
        }
    }
}
