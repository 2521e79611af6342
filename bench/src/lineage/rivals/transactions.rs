//! The rivals' transactions: the product's transaction manager and log behind the interface that a
//! storage of rows needs. See `strandline_txn` for the protocol and `engine/src/transaction` for
//! its use.
//!
//! A version's *start* is a [`StartWord`]. It is the word of the version's transaction until that
//! transaction has committed and stamps the version with its timestamp. A session gives its slot
//! back only after all its stamps. A start with an unknown transaction has therefore been stamped
//! since, and is loaded again.

use super::log::{Log, Record};
use std::sync::Arc;
use strandline_base::{
    ColumnId, CommitTs, Error, ErrorKind, Result, RowId, SqlState, SystemClock, Value,
};
use strandline_txn::{Durability, SnapshotGuard, StartWord, TxnManager, TxnSlot, TxnStatus};

/// The timestamp of the initial rows.
pub const FIRST: CommitTs = CommitTs(1);

/// All transactions of an engine.
pub struct Transactions {
    manager: Arc<TxnManager>,
    log: Log,
}

/// The commits that a reader sees: up to a timestamp, and the changes of one transaction.
#[derive(Clone, Copy)]
pub struct View {
    until: CommitTs,
    own: StartWord,
}

impl View {
    /// A view of every commit so far and of the changes by `own` (0: none).
    pub fn newest(own: StartWord) -> Self {
        let until = CommitTs::MAX;
        Self { until, own }
    }

    /// A view of the commits that the snapshot contains.
    pub fn of(snapshot: &SnapshotGuard) -> Self {
        Self {
            until: snapshot.ts(),
            own: StartWord::UNPUBLISHED,
        }
    }

    /// Whether the view contains a commit at `ts`.
    pub fn contains(self, ts: CommitTs) -> bool {
        ts <= self.until
    }
}

impl Transactions {
    /// The state without transactions; all rows have the timestamp [`FIRST`].
    pub fn new() -> Result<Self> {
        Ok(Self {
            manager: TxnManager::new(Arc::new(SystemClock), FIRST),
            log: Log::new()?,
        })
    }

    /// The product's transaction manager, which all share.
    pub fn manager(&self) -> &Arc<TxnManager> {
        &self.manager
    }

    /// A session's transaction that has not begun.
    pub fn session(&self) -> Transaction<'_> {
        Transaction {
            transactions: self,
            slot: None,
            record: Record::new(),
        }
    }

    /// A snapshot of the newest state.
    pub fn snapshot(&self) -> Result<SnapshotGuard> {
        self.manager.snapshot(None)
    }

    /// Whether `view` contains the version whose start is loaded by `start`.
    pub fn sees(&self, view: View, start: impl Fn() -> StartWord) -> bool {
        let word = start();
        if let Some(ts) = word.commit_ts() {
            return view.contains(ts);
        }
        let is_own = word == view.own;
        is_own
            || self
                .resolve(word, start)
                .is_some_and(|ts| view.contains(ts))
    }

    /// The commit timestamp of the version whose start is loaded by `start`; None if it is
    /// uncommitted.
    pub fn committed(&self, start: impl Fn() -> StartWord) -> Option<CommitTs> {
        self.resolve(start(), start)
    }

    /// The commit timestamp for `word`, a start that `start` has loaded and can load again.
    fn resolve(&self, mut word: StartWord, start: impl Fn() -> StartWord) -> Option<CommitTs> {
        while word.is_txn() {
            match self.manager.status(word) {
                TxnStatus::Committed(ts) => return Some(ts),
                TxnStatus::Stale => word = start(),
                TxnStatus::InProgress | TxnStatus::PreCommitted(_) | TxnStatus::Aborted => {
                    return None;
                }
            }
        }
        word.commit_ts()
    }

    /// The merge thread's work for the log.
    pub fn maintain(&self) {
        let maintained = self.log.maintain();
        maintained.expect("memory does not fail");
    }
}

/// A session's transactions, one after the other. If it is dropped inside a transaction, the
/// versions stay uncommitted for ever.
pub struct Transaction<'t> {
    transactions: &'t Transactions,
    /// claimed by the first write
    slot: Option<TxnSlot>,
    record: Record,
}

impl Transaction<'_> {
    /// The view of its operations under read committed.
    pub fn view(&self) -> View {
        View::newest(self.own())
    }

    /// Its word if it has written, or else a word that belongs to no transaction.
    pub fn own(&self) -> StartWord {
        let own = self.slot.as_ref().map(TxnSlot::word);
        own.unwrap_or(StartWord::UNPUBLISHED)
    }

    /// Its word, which the first write claims.
    pub fn word(&mut self) -> Result<StartWord> {
        if let Some(slot) = &self.slot {
            return Ok(slot.word());
        }
        let slot = self.transactions.manager.begin()?;
        let word = slot.word();
        self.slot = Some(slot);
        self.record.begin();
        Ok(word)
    }

    /// Adds an update to the redo record, after it has been made.
    pub fn note_update(&mut self, row: RowId, set: &[(ColumnId, Value)]) -> Result<()> {
        self.record.put_update(row, set)
    }

    /// Logs and commits a transaction that has written; returns the word for its versions' stamps.
    pub fn commit(&mut self) -> Result<StartWord> {
        let Some(slot) = &self.slot else {
            return Err(Error::internal("a transaction without a slot has changes"));
        };
        let (manager, mut ts) = (&self.transactions.manager, CommitTs::ZERO);
        self.transactions.log.append(&mut self.record, &mut |end| {
            ts = manager.tick();
            manager.enqueue(slot, ts, end.0, Durability::Relaxed);
            ts
        })?;
        slot.announce();
        manager.finish_through(0);
        debug_assert!(manager.stable() >= ts, "every commit is relaxed");
        Ok(StartWord::committed(ts))
    }

    /// Marks the transaction as failed, before its versions are undone.
    pub fn abort(&self) {
        if let Some(slot) = &self.slot {
            slot.abort();
        }
    }

    /// Ends the transaction, after its versions have been stamped or undone.
    pub fn finish(&mut self) {
        if let Some(slot) = self.slot.take() {
            slot.stamped();
        }
    }
}

/// The error for a row that another transaction has written.
pub fn conflict() -> Error {
    Error::new(
        ErrorKind::Conflict,
        SqlState::SERIALIZATION_FAILURE,
        "could not serialize access: another transaction has an uncommitted change in the way",
    )
    .with_hint("Retry the transaction.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_is_seen_by_later_snapshots_only() {
        let transactions = Transactions::new().unwrap();
        let (mut writer, mut other) = (transactions.session(), transactions.session());
        let (word, other) = (writer.word().unwrap(), other.word().unwrap());
        let sees = |view| transactions.sees(view, || word);
        let before = transactions.snapshot().unwrap();
        assert!(sees(writer.view()));
        assert!(!sees(View::newest(other)));
        assert_eq!(transactions.committed(|| word), None);
        let stamp = writer.commit().unwrap();
        assert!(sees(View::newest(other)));
        assert!(!sees(View::of(&before)));
        assert!(sees(View::of(&transactions.snapshot().unwrap())));
        assert_eq!(transactions.committed(|| word), stamp.commit_ts());
        assert_eq!(transactions.committed(|| StartWord::ABORTED), None);
    }

    #[test]
    fn a_slot_is_used_again() {
        let transactions = Transactions::new().unwrap();
        let mut session = transactions.session();
        let first = session.word().unwrap();
        session.abort();
        session.finish();
        let second = session.word().unwrap();
        assert_ne!(first, second);
        let stamped = std::cell::Cell::new(first);
        let start = || stamped.replace(StartWord::committed(FIRST));
        assert_eq!(transactions.committed(start), Some(FIRST), "loaded again");
    }
}
