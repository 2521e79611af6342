//! How far a compaction is.

/// Work in blocks that a compaction reads and writes. `left` is an estimate; both are 0 after a
/// failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Work {
    pub done: u64,
    pub left: u64,
}

impl Work {
    /// Work done and left.
    pub fn total(self) -> u64 {
        self.done + self.left
    }
}
