//! Files of blocks: the addresses of blocks, and their only read path.
//!
//! A file is written once, synced, and then immutable. It is removed when the manifest no longer
//! names it (`remove_when_unused`) and its last reference is dropped. Only this room opens and
//! creates data files. A reader calls [`StoredFile::read`] or, for one block, `read_block`, with
//! the extent and the kind of access ([`Access`]).
//!
//! Random reads of blocks of the capacity tier go through the
//! [block cache](crate::block_cache), if there is one. A hit does not open the file.
//!
//! Invariants:
//! 1. The header of a file is checked whenever the file is opened, before a byte of it is returned.
//!    The block cache may give the header: it has the bytes of an earlier check. Bytes of a window
//!    ([`Window`]) come without it; invariant 3 covers them.
//! 2. At most [`OPEN_FILES_MAX`] files are open, besides those that a running read holds.
//! 3. The checksum of a block covers its [`BlockId`], so that a misplaced block is detected. The
//!    reader checks it, because it knows the checksum's place.
//! 4. The block cache gets blocks that have passed the reader's check, so damage on the capacity
//!    tier is never copied into it.
//!
//! Lock order: the list of open files → a file's handle (only for counting) → the block cache.
//! Opening and closing hold one of the first two at a time. The list of windows is held alone.

pub mod batch;
pub mod data_file;
mod stored;
mod windows;

pub use stored::{DataFiles, FileKind, OPEN_FILES_MAX, StoredFile};
pub use strandline_device::Tier;
pub use windows::Window;

/// A range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// bytes from the start of the file; a multiple of 8 for a block of a data file
    pub offset: u64,
    /// bytes
    pub len: u64,
}

/// A block of a data file, by the number of the file and the offset of the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockId {
    /// the file's number
    pub file: u64,
    /// bytes from the start of the file
    pub offset: u64,
}

impl BlockId {
    /// The start of the block's checksum, unique within a file.
    pub fn identity(self) -> u64 {
        (self.file << 32) ^ (self.offset / 8)
    }
}

/// The kind of a read, which decides whether a cache between memory and the device keeps the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// one block, by a reader of single rows: the next read is elsewhere
    Random,
    /// block after block, by a scan, a merge or a check
    Sequential,
}
