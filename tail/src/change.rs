//! Interface of the write protocol: changes of rows, outcomes, records to stamp.

use crate::record_page::RecordPage;
use std::sync::Arc;
use strandline_base::sync::{AtomicU64, Ordering};
use strandline_base::{ColumnId, CommitTs, Value};
use strandline_txn::StartWord;

/// The transaction and the statement that write.
#[derive(Clone, Copy, Debug)]
pub struct Writer {
    /// the transaction's start word
    pub word: StartWord,
    /// the statement's number
    pub statement: u32,
    /// versions committed after it are conflicts
    pub snapshot: CommitTs,
    /// the snapshot may include pre-committed versions; only versions after it are conflicts
    pub speculative: bool,
}

/// A change of a row.
#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    /// set these columns
    Update(&'a [(ColumnId, Value)]),
    /// end the row
    Delete,
    /// keep others from changing it until the transaction ends
    Lock(RowLock),
}

/// The rights that a row lock leaves to other transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowLock {
    /// read it
    Exclusive,
    /// read it and lock it in the same way
    Shared,
}

/// How a write ended.
#[derive(Debug)]
pub enum WriteOutcome {
    /// done; the records are appended to the caller's list, and take so many bytes of memory
    Done(usize),
    /// the newest version is of a transaction that has not finished
    Wait(StartWord),
    /// the newest version committed after the snapshot
    Conflict(CommitTs),
    /// the row does not exist, or not any more
    Gone,
    /// somebody holds the row's latch, or keeps its tail sealed, for longer than an append takes:
    /// nothing was written; try again unless the statement should end
    Busy,
}

/// A record whose start word its transaction will stamp.
#[derive(Clone, Debug)]
pub enum PendingStamp {
    /// record(s) `from..to` of a page
    Records(Arc<RecordPage>, u32, u32),
    /// a row lock, which becomes a tombstone at the transaction's end, committed or not
    Lock(Arc<RecordPage>, u32),
    /// a bulk-loaded range
    Range(Arc<UniformStart>),
}

impl PendingStamp {
    /// Stamps the records with their final start word.
    pub fn stamp(&self, word: StartWord) {
        match self {
            Self::Records(page, from, to) => (*from..*to).for_each(|i| page.set_start(i, word)),
            Self::Lock(page, i) => page.set_start(*i, StartWord::ABORTED),
            Self::Range(start) => start.store(word),
        }
    }
    /// Bytes of memory that the records take.
    pub fn memory_bytes(&self) -> usize {
        match self {
            Self::Records(page, from, to) => (*from..*to).map(|i| page.record_bytes(i)).sum(),
            Self::Lock(page, i) => page.record_bytes(*i),
            Self::Range(_) => 0,
        }
    }
}

/// The start word shared by all rows of a bulk-loaded range.
#[derive(Debug)]
pub struct UniformStart {
    word: AtomicU64,
    /// the statement of the loading transaction
    pub statement: u32,
}

impl UniformStart {
    /// Starts with `word` (a transaction's or a commit timestamp).
    pub fn new(word: StartWord, statement: u32) -> Arc<Self> {
        Arc::new(Self {
            word: AtomicU64::new(word.0),
            statement,
        })
    }
    /// The word now.
    pub fn load(&self) -> StartWord {
        StartWord(self.word.load(Ordering::Acquire))
    }
    /// Stamps it.
    pub fn store(&self, word: StartWord) {
        self.word.store(word.0, Ordering::Release);
    }
}
