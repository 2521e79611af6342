//! Visibility of a record for a reader \[L-Store §5.1.1\].

use crate::record_page::RecordPage;
use strandline_base::CommitTs;
use strandline_base::sync::spin_loop;
use strandline_txn::{StartWord, TxnManager, TxnStatus, Visibility};

/// The state of a record for a reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordState {
    /// not published, aborted, or never a record
    Nothing,
    /// of the asking transaction itself
    Own,
    /// of another transaction that runs
    InProgress(StartWord),
    /// of another transaction that commits at this timestamp unless the log fails
    PreCommitted(StartWord, CommitTs),
    /// committed
    Committed(CommitTs),
}

/// Resolves a start word that `load` returns. Loads it again when its transaction's slot has been
/// reused meanwhile (the record has been stamped by then).
#[inline]
pub fn resolve(load: impl Fn() -> StartWord, own: StartWord, txns: &TxnManager) -> RecordState {
    loop {
        let word = load();
        if word == StartWord::UNPUBLISHED || word == StartWord::ABORTED {
            return RecordState::Nothing;
        }
        if !word.is_txn() {
            return RecordState::Committed(CommitTs(word.0));
        }
        if word == own {
            return RecordState::Own;
        }
        match txns.status(word) {
            TxnStatus::InProgress => return RecordState::InProgress(word),
            TxnStatus::PreCommitted(ts) => return RecordState::PreCommitted(word, ts),
            TxnStatus::Committed(ts) => return RecordState::Committed(ts),
            TxnStatus::Aborted => return RecordState::Nothing,
            TxnStatus::Stale => spin_loop(),
        }
    }
}

/// Whether a start word with its statement number is visible; see [`resolve`] for `load`.
#[inline]
pub fn sees(
    load: impl Fn() -> StartWord,
    statement: impl Fn() -> u32,
    visibility: &Visibility,
    txns: &TxnManager,
) -> bool {
    match resolve(load, visibility.own, txns) {
        // Only a speculative snapshot reaches a pre-committed one.
        RecordState::Committed(ts) | RecordState::PreCommitted(_, ts) => ts <= visibility.ts,
        RecordState::Own => statement() < visibility.statement,
        RecordState::Nothing | RecordState::InProgress(_) => false,
    }
}

/// Whether record `i` of `page` is visible.
#[inline]
pub fn sees_record(page: &RecordPage, i: u32, v: &Visibility, txns: &TxnManager) -> bool {
    sees(|| page.start(i), || page.statement(i), v, txns)
}

/// The state of a record of `page` for transaction `own`.
#[inline]
pub fn record_state(page: &RecordPage, i: u32, own: StartWord, txns: &TxnManager) -> RecordState {
    resolve(|| page.start(i), own, txns)
}
