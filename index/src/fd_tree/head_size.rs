//! The size of a head that shares memory with others. It begins small; a full head takes twice as
//! much in place of a compaction, or while its writers wait for one. A head that has caused no
//! compaction for a while gives half of its memory back.
//!
//! Invariant: the budget in the state is the part of the memory that the tree has taken. Both
//! change under the state's lock.

use super::budget::{Trigger, trigger};
use super::head_memory::{HeadMemory, Share};
use super::state::State;
use super::tree::FdTree;
use std::sync::Arc;
use strandline_base::sync::{AtomicUsize, Ordering};

impl FdTree {
    /// The tree with a head of the shared memory, which begins small; the settings' budget is not
    /// used.
    #[must_use]
    pub fn with_head_memory(mut self, memory: Arc<HeadMemory>) -> Self {
        let first = memory.first();
        memory.take(first);
        self.shared.state.lock().head_budget = first;
        self.share = Some(Share {
            memory,
            taken: AtomicUsize::new(first),
            begun: AtomicUsize::new(0),
        });
        self
    }

    /// Bytes of the head's budget.
    pub fn head_budget(&self) -> usize {
        self.shared.state.lock().head_budget
    }

    /// Bytes that the head may grow to.
    pub(super) fn head_bytes_max(&self) -> usize {
        let share = self.share.as_ref();
        share.map_or(self.shared.settings.head_bytes, |share| share.memory.most())
    }

    /// Gives half of the head's memory back if no compaction has begun since the last call and the
    /// head does not need it.
    pub fn shrink_head(&self) {
        let Some(share) = &self.share else { return };
        let mut state = self.shared.state.lock();
        let begun = state.begun as usize;
        let is_busy = share.begun.swap(begun, Ordering::AcqRel) != begun || state.old.is_some();
        let half = state.head_budget / 2;
        if is_busy || half < share.memory.first() || state.head.bytes() * 2 > half {
            return;
        }
        let given = state.head_budget - half;
        state.head_budget = half;
        share.taken.fetch_sub(given, Ordering::AcqRel);
        share.memory.give_back(given);
    }

    /// Whether a compaction should begin, if none is under way: a full head grows first.
    pub(super) fn is_due(&self, state: &mut State) -> bool {
        loop {
            match trigger(state) {
                None => return false,
                Some(Trigger::Underflow) => return true,
                Some(Trigger::Overflow) if !self.grow_head(state) => return true,
                Some(Trigger::Overflow) => {}
            }
        }
    }

    /// Makes the head larger if there is memory. Returns whether it has grown.
    pub(super) fn grow_head(&self, state: &mut State) -> bool {
        let Some(share) = &self.share else {
            return false;
        };
        let Some(larger) = share.memory.grow(state.head_budget) else {
            return false;
        };
        let more = larger - state.head_budget;
        share.taken.fetch_add(more, Ordering::AcqRel);
        state.head_budget = larger;
        true
    }
}
