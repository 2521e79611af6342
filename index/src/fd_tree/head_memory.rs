//! The memory that the heads of several trees share; see `head_size` for a tree's part in it.
//!
//! Invariants:
//! 1. Heads take no more than the limit together, the first budgets of opened indexes apart.
//! 2. Grown heads take at most half of the limit, and each step an eighth of what is left of that
//!    half: many busy heads end with about the same, and a new one finds some.

use std::sync::Arc;
use strandline_base::sync::{AtomicUsize, Ordering};

/// A step of growth takes at most this part of what is left for it.
const STEP: usize = 8;

/// Memory for heads. The count is a claim, no data: its order does not matter.
#[derive(Debug)]
pub struct HeadMemory {
    first: usize,
    most: usize,
    limit: usize,
    taken: AtomicUsize,
}

impl HeadMemory {
    /// Memory of `limit` bytes for all heads. Each begins with `first` and has at most `most`.
    pub fn new(first: usize, most: usize, limit: usize) -> Self {
        Self {
            first,
            most: most.max(first),
            limit,
            taken: AtomicUsize::new(0),
        }
    }

    /// Bytes that a head begins with.
    pub fn first(&self) -> usize {
        self.first
    }

    /// Bytes that a head has at most.
    pub fn most(&self) -> usize {
        self.most
    }

    /// Bytes that all heads have.
    pub fn taken(&self) -> usize {
        self.taken.load(Ordering::Acquire)
    }

    /// Bytes that all heads may have.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Whether another head fits.
    pub fn has_room(&self) -> bool {
        self.taken() + self.first <= self.limit
    }

    /// Makes a head of `bytes` larger. Returns its size from now on; None: it stays.
    pub(super) fn grow(&self, bytes: usize) -> Option<usize> {
        let larger = (2 * bytes).min(self.most);
        let more = larger.checked_sub(bytes).filter(|more| *more > 0)?;
        let grown = |taken: usize| {
            let left = (self.limit / 2).checked_sub(taken)?;
            (more <= left / STEP).then_some(taken + more)
        };
        let taken = self
            .taken
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, grown);
        taken.is_ok().then_some(larger)
    }

    pub(super) fn take(&self, bytes: usize) {
        self.taken.fetch_add(bytes, Ordering::AcqRel);
    }

    pub(super) fn give_back(&self, bytes: usize) {
        self.taken.fetch_sub(bytes, Ordering::AcqRel);
    }
}

/// What a tree has of the memory.
#[derive(Debug)]
pub(super) struct Share {
    pub memory: Arc<HeadMemory>,
    /// the tree's budget, which `State` has too
    pub taken: AtomicUsize,
    /// compactions that had begun when it was last asked to give memory back
    pub begun: AtomicUsize,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.memory.give_back(self.taken.load(Ordering::Acquire));
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::HeadMemory;

    #[test]
    fn many_heads_share_and_leave_some() {
        let memory = HeadMemory::new(1 << 10, 1 << 20, 16 << 20);
        let mut heads = vec![memory.first(); 100];
        heads.iter().for_each(|bytes| memory.take(*bytes));
        let mut has_grown = true;
        while has_grown {
            has_grown = false;
            for head in &mut heads {
                if let Some(larger) = memory.grow(*head) {
                    assert!(larger > *head && larger <= 1 << 20);
                    *head = larger;
                    has_grown = true;
                }
            }
        }
        let sum: usize = heads.iter().sum();
        assert_eq!(memory.taken(), sum);
        assert!(sum <= 8 << 20 && sum > 6 << 20, "{sum}");
        let (least, most) = (heads.iter().min(), heads.iter().max());
        assert!(most <= least.map(|bytes| 2 * bytes).as_ref(), "{heads:?}");
        // A new one finds some.
        assert!(memory.has_room() && memory.grow(1 << 10).is_some());
    }

    #[test]
    fn one_head_has_at_most_its_most() {
        let memory = HeadMemory::new(1 << 10, 5 << 10, 1 << 30);
        let sizes = std::iter::successors(Some(memory.first()), |bytes| memory.grow(*bytes));
        assert_eq!(
            sizes.collect::<Vec<_>>(),
            [1 << 10, 2 << 10, 4 << 10, 5 << 10]
        );
        assert!(memory.grow(5 << 10).is_none());
        assert!(HeadMemory::new(1 << 10, 1 << 20, 0).grow(1 << 10).is_none());
    }
}
