//! Files of blocks: what addresses a block, and the one way to read it.
//!
//! A file is written once, synced, and immutable from then on. It is removed when the
//! manifest no longer names it (`remove_when_unused`) and its last reference is dropped. Only this
//! room opens and creates files of data. A reader calls [`StoredFile::read`], which knows the file,
//! the extent, the kind of access ([`Access`]) and the owner of the memory for the bytes.
//!
//! Invariants:
//! 1. The header of a file is checked whenever the file is opened, before a byte of it is returned.
//! 2. At most [`OPEN_FILES_MAX`] files are open, those not counted that a read holds just now.
//! 3. The checksum of a block covers its [`BlockId`], so that a block in the wrong place is found.
//!    To check it is for the reader, which knows where the checksum stands.
//!
//! Lock order: the list of open files → a file's handle (only to count); opening and closing hold
//! one of the two at a time.

pub mod data_file;
mod stored;

pub use stored::{DataFiles, FileKind, OPEN_FILES_MAX, StoredFile};

/// Some consecutive bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// bytes from the start of the file; of a block of a data file a multiple of 8
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
    /// What the checksum of the block begins with: no two blocks of a file have the same.
    pub fn identity(self) -> u64 {
        (self.file << 32) ^ (self.offset / 8)
    }
}

/// How a read was asked for, which decides whether a cache between memory and the device should
/// keep what it returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// one block, by a reader of single rows: the next read is elsewhere
    Random,
    /// block after block, by a scan, a merge or a check
    Sequential,
}
