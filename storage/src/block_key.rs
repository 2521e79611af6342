//! The address of a block, for the caches between memory and the capacity tier.

use std::fmt;

/// A block of a file on the capacity tier: a page or a column block. Two blocks of a file are equal
/// or do not overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockKey {
    /// the file's number; a number is never used for a second file
    pub file: u64,
    /// bytes from the start of the file
    pub offset: u64,
    /// bytes
    pub len: u32,
}

impl BlockKey {
    /// File and offset, which identify the block.
    pub(crate) fn place(self) -> (u64, u64) {
        (self.file, self.offset)
    }
}

impl fmt::Display for BlockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, offset, len } = self;
        write!(f, "file {file}, offset {offset}, {len} bytes")
    }
}
