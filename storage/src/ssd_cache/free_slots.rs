//! Free slots as runs of adjacent ones. A block takes adjacent slots of the shortest run that has
//! enough, so that long runs are left for large blocks.

use std::collections::BTreeMap;

/// Slots from `start` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub start: u32,
    pub slots: u32,
}

impl Run {
    /// The slot after the last one.
    pub fn end(self) -> u32 {
        self.start + self.slots
    }
}

/// The free slots. No two runs touch each other.
#[derive(Debug, Default)]
pub(super) struct FreeSlots {
    /// start → length
    runs: BTreeMap<u32, u32>,
    count: u32,
}

impl FreeSlots {
    /// Free slots.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Takes `slots` adjacent slots; None if there are none.
    pub fn take(&mut self, slots: u32) -> Option<u32> {
        let enough = self.runs.iter().filter(|&(_, &len)| len >= slots);
        let (&start, &len) = enough.min_by_key(|&(_, &len)| len)?;
        self.runs.remove(&start);
        if len > slots {
            self.runs.insert(start + slots, len - slots);
        }
        self.count -= slots;
        Some(start)
    }

    /// Gives a run back, which must not be free.
    pub fn give(&mut self, run: Run) {
        if run.slots == 0 {
            return;
        }
        self.count += run.slots;
        let mut whole = run;
        if let Some((&start, &len)) = self.runs.range(..run.start).next_back()
            && start + len == run.start
        {
            self.runs.remove(&start);
            whole = Run {
                start,
                slots: len + whole.slots,
            };
        }
        if let Some(len) = self.runs.remove(&run.end()) {
            whole.slots += len;
        }
        self.runs.insert(whole.start, whole.slots);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(start: u32, slots: u32) -> Run {
        Run { start, slots }
    }

    #[test]
    fn runs_grow_together_and_the_shortest_that_fits_is_taken() {
        let mut free = FreeSlots::default();
        assert_eq!(free.take(1), None);
        free.give(run(0, 4));
        free.give(run(6, 2));
        assert_eq!(free.take(2), Some(6));
        free.give(run(6, 1));
        free.give(run(4, 2));
        free.give(run(7, 1));
        assert_eq!((free.count(), free.take(8)), (8, Some(0)));
        assert_eq!((free.count(), free.take(1)), (0, None));
        free.give(run(3, 1));
        free.give(run(1, 1));
        assert_eq!(free.take(2), None);
        free.give(run(2, 1));
        free.give(run(9, 0));
        assert_eq!((free.take(3), free.count()), (Some(1), 0));
    }
}
