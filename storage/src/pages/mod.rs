//! Page files: pages of 8 KiB that are overwritten in place, for structures that may exceed memory
//! and are not rebuilt when the database is opened \[Indirection §4; SSD-DB §2.3\].
//!
//! A [`PageChange`] is a mini-transaction: it latches pages exclusively, changes private copies of
//! their bodies, and commits them with one log record. The record is physical (full images and
//! changed byte ranges), so a structure above needs no redo of its own.
//!
//! # Invariants
//! 1. *Write-ahead*: a page is written to its file only when the log is durable through its LSN.
//! 2. *Image rule*: the first record of a page after the begin of a checkpoint has its full image.
//!    So redo from that begin repairs a page that a crash has torn.
//! 3. A page is read only if its checksum, file and number are right. Otherwise the read is an
//!    error with file and page.
//! 4. After a failed sync of a file nothing of it is read or written again in this process
//!    (rule 3 of `strandline_device`); redo at the next opening writes its pages anew.
//! 5. The committed body of a frame is immutable and shared by `Arc`. A write to the file takes a
//!    reference and needs no latch, so evictions and checkpoints wait for no latch, but for the
//!    appenders of a page, each of which has one record left to log.
//! 6. A dirty frame is in the frame table until its page is written.
//! 7. [`PageStore::checkpoint`] reads its begin while no commit is between its append to the log
//!    and its new frames, or its report of a slot. So every change before the begin is in a dirty
//!    frame or in the file.
//! 8. With an SSD cache, the newest version of a page is in memory, else in the cache, else in its
//!    file. A page leaves the frame table only when the cache has it or has refused it.
//! 9. After a failed sync of the SSD cache the next checkpoint closes all files that go through it.
//!    Files that are created from then on do not.
//! 10. Once the space map of a file is known, a page that is not in use reads as zeros, if it is
//!     not in memory. So a pointer read before its page was freed leads to a page without content,
//!     wherever the end of the file is by then.
//!
//! # Latches
//! A thread latches a page at most once at a time, and latches pages in an order that all users of
//! a file agree on. Readers, one writer, or several appenders of slots have a page
//! (`frame/append.rs`, \[L-Store §5.2\]); an appender holds its latch only within `append_slot`. A
//! waiting writer goes before later readers. `allocate` only tries latches. `commit` latches the
//! pages of the space map last, page 0 first, and a reader of the map holds no other latch.
//!
//! # Lock order
//! `checkpointing` → `gate` → the log's locks. `checkpointing` → the SSD cache's → `syncing` of a
//! file. `checkpointing` → `growth` of a file → its `space`, a `shard`, the SSD cache's `state`.
//! `shard` → nothing. `clock` → a frame's state → nothing. The pool's locks are taken with none of
//! these held but `checkpointing`. `pending` of the reads ahead → a frame's state → nothing.
//! No I/O happens under one of these except under `checkpointing`, `growth` and `syncing`, for
//! which only checkpoints, growing files, cuts and the cache's rounds wait; the log may prepare a
//! segment while `gate` is held shared.
//!
//! # Differences from the paper
//! \[Indirection §4\] measures page writes of indexes whose leaves hold logical ids; the page store
//! is the conventional buffer manager below it. Latch and image are apart: readers share an
//! immutable image, as in copy-on-write, but under a latch, so that a tree can couple latches.

mod append;
mod buffers;
mod change;
mod check;
mod checkpoint;
mod clock;
mod evict;
mod file;
mod files;
mod frame;
mod header;
mod prefetch;
mod read_ahead;
mod record;
mod recovery;
mod shrink;
mod space;
mod store;

pub use crate::file::Access;
pub use change::PageChange;
pub use check::PageCheck;
pub use file::{page_file_id, page_file_name};
pub use frame::{PageRead, SlotWrite};
pub use header::{PAGE_BODY_BYTES, PAGE_BYTES, PAGE_HEADER_BYTES};
pub use read_ahead::ReadAheadStats;
pub use record::{describe_record, file_of_record};
pub use recovery::Redo;
pub use store::{PageStats, PageStore};

use std::fmt;
use std::sync::Arc;

use strandline_base::Result;

use crate::pool::Pool;
use crate::wal::Lsn;

/// The number of a page file, never used twice in a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageFileId(pub u32);

/// The position of a page in its file. Page 0 is the first page of the space map; the first page
/// that a new file allocates is page 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageNumber(pub u32);

impl fmt::Display for PageFileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for PageNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One page of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct PageId {
    file: PageFileId,
    number: PageNumber,
}

/// The log that the page store writes ahead.
pub trait PageLog: Send + Sync + fmt::Debug {
    /// Appends a record; returns its end position.
    fn append(&self, record: &[u8]) -> Result<Lsn>;
    /// Returns when the log is durable up to `through`.
    fn make_durable(&self, through: Lsn) -> Result<()>;
    /// The position after the last appended record, of whatever kind.
    fn end(&self) -> Lsn;
}

/// How the page store uses memory and names its database.
#[derive(Clone, Debug)]
pub struct PageSettings {
    /// The pool whose budget the pages share with frames; at least four pages may be in memory.
    /// Latched pages may exceed it for as long as they are latched.
    pub pool: Arc<Pool>,
    /// Bound on the bytes of pages in memory, beside the pool's.
    pub bytes_max: usize,
    /// The database's id, part of the checksums.
    pub database_id: u128,
}

impl Default for PageSettings {
    fn default() -> Self {
        Self {
            pool: Pool::new(64 << 20),
            bytes_max: usize::MAX,
            database_id: 0,
        }
    }
}

#[cfg(test)]
mod tests;
