//! The rivals' transactions: the product's transaction manager and log behind what a storage of
//! rows needs. See `strandline_txn` for the protocol and `engine/src/transaction` for its use.
//!
//! A version's *start* is a [`StartWord`]: the word of the transaction that makes it, until that
//! has committed and stamps it with its timestamp. A session gives its slot back only after it has
//! stamped everything, so a start whose transaction is unknown has been stamped: it is loaded
//! again.

use super::log::{Log, Record};
use std::sync::Arc;
use strandline_base::{
    ColumnId, CommitTs, Error, ErrorKind, Result, RowId, SqlState, SystemClock, Value,
};
use strandline_txn::{Durability, SnapshotGuard, StartWord, TxnManager, TxnSlot, TxnStatus};

/// The timestamp of what is there from the beginning.
pub const FIRST: CommitTs = CommitTs(1);

/// All transactions of an engine.
pub struct Transactions {
    manager: Arc<TxnManager>,
    log: Log,
}

/// What a reader sees: commits up to a moment, and what the transaction with this word did.
#[derive(Clone, Copy)]
pub struct View {
    until: CommitTs,
    own: StartWord,
}

impl View {
    /// All that is committed, and what `own` did (0: nothing).
    pub fn newest(own: StartWord) -> Self {
        let until = CommitTs::MAX;
        Self { until, own }
    }

    /// What was committed at the moment of a snapshot.
    pub fn of(snapshot: &SnapshotGuard) -> Self {
        Self {
            until: snapshot.ts(),
            own: StartWord::UNPUBLISHED,
        }
    }

    /// Whether it contains what was committed at `ts`.
    pub fn contains(self, ts: CommitTs) -> bool {
        ts <= self.until
    }
}

impl Transactions {
    /// None yet; everything is of [`FIRST`].
    pub fn new() -> Result<Self> {
        Ok(Self {
            manager: TxnManager::new(Arc::new(SystemClock), FIRST),
            log: Log::new()?,
        })
    }

    /// The product's part that they share.
    pub fn manager(&self) -> &Arc<TxnManager> {
        &self.manager
    }

    /// A session's transaction, not begun.
    pub fn session(&self) -> Transaction<'_> {
        Transaction {
            transactions: self,
            slot: None,
            record: Record::new(),
        }
    }

    /// A snapshot of now.
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

    /// When the version whose start is loaded by `start` was committed, if it was.
    pub fn committed(&self, start: impl Fn() -> StartWord) -> Option<CommitTs> {
        self.resolve(start(), start)
    }

    /// What `word` says, which `start` has loaded and loads again.
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

    /// What the merge thread does for the log.
    pub fn maintain(&self) {
        let maintained = self.log.maintain();
        maintained.expect("memory does not fail");
    }
}

/// The transaction of a session, one after the other. Dropped in the middle of one, its versions
/// stay uncommitted for ever.
pub struct Transaction<'t> {
    transactions: &'t Transactions,
    /// claimed by the first write
    slot: Option<TxnSlot>,
    record: Record,
}

impl Transaction<'_> {
    /// What its operations see under read committed.
    pub fn view(&self) -> View {
        View::newest(self.own())
    }

    /// Its word if it has written, else one that nobody has.
    pub fn own(&self) -> StartWord {
        let own = self.slot.as_ref().map(TxnSlot::word);
        own.unwrap_or(StartWord::UNPUBLISHED)
    }

    /// Its word, claimed now if this is its first write.
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

    /// Adds an update, which has been made, to its redo record.
    pub fn note_update(&mut self, row: RowId, set: &[(ColumnId, Value)]) -> Result<()> {
        self.record.put_update(row, set)
    }

    /// Logs and commits: the word to stamp its versions with. Only after a write.
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

    /// Says that it has failed, before its versions are undone.
    pub fn abort(&self) {
        if let Some(slot) = &self.slot {
            slot.abort();
        }
    }

    /// Its versions are stamped or undone, if there are any.
    pub fn finish(&mut self) {
        if let Some(slot) = self.slot.take() {
            slot.stamped();
        }
    }
}

/// Another transaction has written the row.
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
