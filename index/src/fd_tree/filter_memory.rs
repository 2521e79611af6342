//! The memory that the filters of several trees share. A filter that finds no room stays on the
//! device: lookups read the block of it that they need, and the pool keeps such blocks
//! (`partition`).
//!
//! Filters of a batch that is not written yet are in memory besides: at most 1/16 of its bytes for
//! entries of 20 bytes.

use std::sync::Arc;
use strandline_base::sync::{AtomicUsize, Ordering};

/// Memory for filters. The count is a claim, no data: its order does not matter.
#[derive(Debug)]
pub struct FilterMemory {
    limit: usize,
    taken: AtomicUsize,
}

/// What a filter has of the memory.
#[derive(Debug)]
pub(super) struct FilterShare {
    memory: Arc<FilterMemory>,
    bytes: usize,
}

impl FilterMemory {
    /// Memory of `limit` bytes for all filters.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            taken: AtomicUsize::new(0),
        }
    }

    /// Bytes that all filters have.
    pub fn taken(&self) -> usize {
        self.taken.load(Ordering::Acquire)
    }

    /// Bytes that all filters may have.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Room for a filter of `bytes`; None: there is none.
    pub(super) fn take(self: &Arc<Self>, bytes: usize) -> Option<FilterShare> {
        let more = |taken: usize| taken.checked_add(bytes).filter(|sum| *sum <= self.limit);
        let taken = self
            .taken
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        taken.ok().map(|_| FilterShare {
            memory: self.clone(),
            bytes,
        })
    }
}

impl Drop for FilterShare {
    fn drop(&mut self) {
        self.memory.taken.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}
