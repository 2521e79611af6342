//! CONTRACT (helper `txn` replaces the bodies; signatures are fixed, additions welcome).
//!
//! Timestamps, the transaction table, snapshots, waiting writers. See ARCHITECTURE.md.
use std::sync::Arc;
use std::time::Duration;
use strandline_base::{Clock, CommitTs, Result};

/// The 64-bit word in a record's start-time column:
/// * `0`: the slot is claimed but not published;
/// * `1..2^62`: a commit timestamp;
/// * bit 63 set: a transaction id, `1<<63 | generation(39 bits) << 24 | slot(24 bits)`;
/// * `u64::MAX`: aborted, a tombstone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StartWord(pub u64);

impl StartWord {
    pub const UNPUBLISHED: StartWord = StartWord(0);
    pub const ABORTED: StartWord = StartWord(u64::MAX);
    pub fn committed(ts: CommitTs) -> Self {
        Self(ts.0)
    }
    pub fn is_txn(self) -> bool {
        self.0 >> 63 == 1 && self.0 != u64::MAX
    }
}

/// What a start word means now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TxnStatus {
    InProgress,
    Committed(CommitTs),
    Aborted,
    /// The slot has been reused: the record has been stamped since the word was loaded; load it
    /// again.
    Stale,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Isolation {
    #[default]
    ReadCommitted,
    Snapshot,
}

/// What a statement sees. Cheap to copy. `statement`: records of the transaction itself are
/// visible when their statement number is below it.
#[derive(Clone, Copy, Debug)]
pub struct Visibility {
    pub ts: CommitTs,
    /// The reader's own id as a start word, or 0.
    pub own: StartWord,
    pub statement: u32,
}

/// Shared by all tables and connections of a database.
pub struct TxnManager;

impl TxnManager {
    /// `last`: the newest timestamp ever given out, from recovery; the clock never goes below it.
    pub fn new(_clock: Arc<dyn Clock>, _last: CommitTs) -> Arc<Self> {
        todo!()
    }
    /// The next tick: max(now, last + 1). Called under the log lock at commit.
    pub fn tick(&self) -> CommitTs {
        todo!()
    }
    /// Everything up to it is finished (and durable where asked for).
    pub fn stable(&self) -> CommitTs {
        todo!()
    }
    /// Claims a slot and a generation.
    pub fn begin(self: &Arc<Self>) -> Result<TxnSlot> {
        todo!()
    }
    /// Resolves a transaction word. Lock-free.
    pub fn status(&self, _word: StartWord) -> TxnStatus {
        todo!()
    }
    /// Registers a snapshot at the stable timestamp (or at an older `at`) so that nothing it can
    /// see is dropped; unregistered on drop. An `at` later than stable waits for it; one in the
    /// future of the clock is an error.
    pub fn snapshot(self: &Arc<Self>, _at: Option<CommitTs>) -> Result<SnapshotGuard> {
        todo!()
    }
    /// The oldest registered snapshot, or stable if there is none: versions superseded before it
    /// are invisible to every snapshot.
    pub fn oldest_snapshot(&self) -> CommitTs {
        todo!()
    }
    /// Blocks `waiter` until the transaction behind `holder` has finished. 40P01 if that closes a
    /// cycle (the waiter is the victim), 55P03 after `timeout` (None: for ever), 57014 if
    /// `cancelled` turns true. Wakes at once when the holder finishes.
    pub fn wait_for(
        &self,
        _waiter: StartWord,
        _holder: StartWord,
        _timeout: Option<Duration>,
        _cancelled: &dyn Fn() -> bool,
    ) -> Result<()> {
        todo!()
    }
    /// Called under the log lock, in commit order: enqueues the commit. It becomes Committed and
    /// stable passes it when `finish_through` reaches it.
    pub fn enqueue_commit(&self, _slot: &TxnSlot, _ts: CommitTs, _log_end: u64) {
        todo!()
    }
    /// Everything logged before `log_end` is durable (or need not be): marks the queued commits up
    /// to there Committed, in order, advances stable, wakes waiters.
    pub fn finish_through(&self, _log_end: u64) {
        todo!()
    }
}

/// A running transaction's claim on its slot. Dropping it without `stamped` aborts it.
pub struct TxnSlot;

impl TxnSlot {
    pub fn word(&self) -> StartWord {
        todo!()
    }
    /// Marks it aborted and wakes waiters. The owner then tombstones its records and calls
    /// `stamped`.
    pub fn abort(&self) {
        todo!()
    }
    /// All records carry their final start word: the slot may be reused with a new generation.
    pub fn stamped(self) {
        todo!()
    }
}

/// A registered snapshot; clone to share, the registration ends with the last clone.
#[derive(Clone)]
pub struct SnapshotGuard;

impl SnapshotGuard {
    pub fn ts(&self) -> CommitTs {
        todo!()
    }
}
