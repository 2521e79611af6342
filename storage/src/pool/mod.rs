//! The pool of frames: blocks in memory, encoded and decoded, under one budget.
//!
//! A frame is reached through its [`FrameHandle`], which a column's reader, a range's row metadata
//! or a block of rows keeps for as long as the block may be read. So a hit costs one atomic load
//! and no lookup: a table of block ids would cost a hash and a lock. The pool knows all filled
//! handles and empties cold ones when their bytes exceed the budget. Readers decode the frames'
//! bytes.
//!
//! Invariants:
//! 1. `used` is the sum of the bytes of all filled handles.
//! 2. Emptying a handle never invalidates a frame a reader holds: readers hold an `Arc`.
//! 3. A handle that is dropped gives its bytes back.
//! 4. The ring has one entry per filled handle, and at most as many again (or [`DROPPED_MIN`]) of
//!    handles that were dropped while filled: the drop that makes them more takes them all out.
//!
//! Replacement is second chance (clock): a frame read since the hand last passed is spared once. A
//! new frame enters unread, so that frames read once leave before those that are read again.
//!
//! Lock order: `loading` of a handle → `ring`; nothing is loaded or dropped by a reader under
//! `ring`. A handle may be dropped by `shrink`, under `ring`: a drop only tries to lock it.

mod frame;
#[cfg(test)]
mod tests;

pub use frame::FrameHandle;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicIsize, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use strandline_base::sync::Mutex;

/// Entries of dropped handles that the ring may hold, however few are filled.
const DROPPED_MIN: isize = 64;

/// Of its budget the pool keeps one part in so many, whatever others take of it.
const OWN_PART: usize = 4;

/// The budget shared by all frames of one database.
#[derive(Debug)]
pub struct Pool {
    budget_bytes: usize,
    /// bytes that others hold of the budget
    taken_bytes: Arc<AtomicUsize>,
    /// bytes of the budget that are lent
    lent_bytes: AtomicUsize,
    used_bytes: AtomicUsize,
    misses: AtomicU64,
    ring: Mutex<VecDeque<Weak<dyn Evict>>>,
    /// filled handles
    filled: AtomicIsize,
    /// entries of the ring whose handles were dropped; briefly less than there are
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
    /// Bytes that others hold of the budget, who cannot give them back: there is so much less room.
    /// A quarter of the budget stays the pool's.
    pub fn taken_bytes(&self) -> &Arc<AtomicUsize> {
        &self.taken_bytes
    }
    /// Lends `bytes` of the budget, all in all, to somebody who gives them back: there is so much
    /// less room, and cold frames go at once. A quarter of the budget stays the pool's.
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
    /// The bound on [`Pool::used_bytes`] now.
    pub fn budget_bytes(&self) -> usize {
        let own = self.budget_bytes / OWN_PART;
        let taken = self.taken_bytes.load(Ordering::Relaxed);
        let lent = self.lent_bytes.load(Ordering::Relaxed);
        self.budget_bytes.saturating_sub(taken + lent).max(own)
    }
    /// Frames that had to be loaded since the start.
    pub fn misses(&self) -> u64 {
        self.misses.load(Ordering::Relaxed)
    }

    fn shrink(&self) {
        let budget_bytes = self.budget_bytes();
        if self.used_bytes() <= budget_bytes {
            return;
        }
        let mut ring = self.ring.lock();
        // Two rounds at most: the first takes second chances away, the second evicts.
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

    /// A filled handle was dropped: its entry stays in the ring until there are many of the kind.
    fn note_dropped(&self) {
        let filled = self.filled.fetch_sub(1, Ordering::Relaxed) - 1;
        let dropped = self.dropped.fetch_add(1, Ordering::Relaxed) + 1;
        if dropped > filled.max(DROPPED_MIN)
            // Whoever holds the lock may be this thread; the next drop tries again.
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
