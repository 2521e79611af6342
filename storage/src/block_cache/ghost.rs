//! The blocks that were read once.

use std::collections::{BTreeSet, VecDeque};

use crate::block_key::BlockKey;

/// The last `capacity` blocks that were read once, by file and offset.
#[derive(Debug)]
pub(super) struct Ghost {
    capacity: usize,
    queue: VecDeque<(u64, u64)>,
    places: BTreeSet<(u64, u64)>,
}

impl Ghost {
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity,
            queue: VecDeque::new(),
            places: BTreeSet::new(),
        }
    }

    /// Notes a read; whether an earlier one is noted. The oldest noted read is forgotten if there
    /// are too many.
    pub fn note(&mut self, block: BlockKey) -> bool {
        if self.places.contains(&block.place()) {
            return true;
        }
        if self.capacity == 0 {
            return false;
        }
        if self.queue.len() >= self.capacity
            && let Some(oldest) = self.queue.pop_front()
        {
            self.places.remove(&oldest);
        }
        self.queue.push_back(block.place());
        self.places.insert(block.place());
        false
    }

    /// Changes the number of reads that are noted; the oldest are forgotten.
    pub fn set_capacity(&mut self, capacity: usize) {
        self.capacity = capacity;
        while self.queue.len() > capacity {
            if let Some(oldest) = self.queue.pop_front() {
                self.places.remove(&oldest);
            }
        }
    }

    /// The number of noted blocks.
    pub fn len(&self) -> usize {
        self.queue.len()
    }
}
