//! The 64-bit word in a record's start-time column, and its meaning for readers.

use std::fmt;
use strandline_base::CommitTs;

const SLOT_BITS: u32 = 24;
const GENERATION_BITS: u32 = 39;
const TXN_BIT: u64 = 1 << 63;

/// A record's start time:
/// * `0`: the slot is claimed but not published;
/// * `1..2^62`: a commit timestamp;
/// * bit 63 set: a transaction id, `1<<63 | generation(39 bits) << 24 | slot(24 bits)`;
/// * `u64::MAX`: aborted, a tombstone.
///
/// Generations of a slot wrap after 2^39 transactions; a word would have to sit in a reader's
/// register for that long to be mistaken for a newer one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct StartWord(pub u64);

impl StartWord {
    /// Claimed, not published.
    pub const UNPUBLISHED: StartWord = StartWord(0);
    /// A tombstone.
    pub const ABORTED: StartWord = StartWord(u64::MAX);
    /// Generations are counted modulo this power of two.
    pub(crate) const GENERATION_MASK: u64 = (1 << GENERATION_BITS) - 1;

    /// The final word of a record committed at `ts`.
    pub fn committed(ts: CommitTs) -> Self {
        Self(ts.0)
    }
    /// The word of the transaction that owns `slot` (below 2^24 − 1) in `generation`.
    pub(crate) fn transaction(slot: u32, generation: u64) -> Self {
        Self(TXN_BIT | ((generation & Self::GENERATION_MASK) << SLOT_BITS) | u64::from(slot))
    }
    /// Whether this is the word of a transaction, to be resolved by
    /// [`TxnManager::status`](crate::TxnManager::status).
    #[inline]
    pub fn is_txn(self) -> bool {
        self.0 >> 63 == 1 && self.0 != u64::MAX
    }
    /// The commit timestamp if the word is final and not a tombstone.
    #[inline]
    pub fn commit_ts(self) -> Option<CommitTs> {
        (self.0 >> 63 == 0 && self.0 != 0).then_some(CommitTs(self.0))
    }
    pub(crate) fn slot(self) -> usize {
        (self.0 & ((1 << SLOT_BITS) - 1)) as usize
    }
    pub(crate) fn generation(self) -> u64 {
        (self.0 >> SLOT_BITS) & Self::GENERATION_MASK
    }
}

/// For messages: a transaction as `slot.generation`, unique while the database is open.
impl fmt::Display for StartWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::UNPUBLISHED => f.write_str("unpublished"),
            Self::ABORTED => f.write_str("aborted"),
            word if word.is_txn() => write!(f, "{}.{}", word.slot(), word.generation()),
            word => write!(f, "committed at {}", word.0),
        }
    }
}

/// The current state of a word's transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TxnStatus {
    /// Running: invisible to everybody else.
    InProgress,
    /// In the commit queue: it commits at this timestamp unless the log fails. Later than every
    /// snapshot but speculative ones.
    PreCommitted(CommitTs),
    /// Committed at this timestamp, its record not stamped yet.
    Committed(CommitTs),
    /// Rolled back, its record not turned into a tombstone yet.
    Aborted,
    /// The slot has been reused: the record has been stamped since the word was loaded; load it
    /// again.
    Stale,
}

/// The isolation level of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Isolation {
    /// Every statement has its own snapshot.
    #[default]
    ReadCommitted,
    /// One snapshot for the transaction; PostgreSQL's repeatable read.
    Snapshot,
    /// As [`Isolation::Snapshot`], with validation of its reads before it commits a write.
    Serializable,
}

/// The visibility of records for a statement. Cheap to copy. `statement`: records of the
/// transaction itself are visible when their statement number is below it.
#[derive(Clone, Copy, Debug)]
pub struct Visibility {
    /// Commits up to here are visible.
    pub ts: CommitTs,
    /// The reader's own id as a start word, or 0.
    pub own: StartWord,
    /// The number of the running statement.
    pub statement: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_keep_their_parts_and_kinds_apart() {
        for slot in [0, 1, 65_535] {
            for generation in [0, 1, StartWord::GENERATION_MASK] {
                let word = StartWord::transaction(slot, generation);
                assert!(word.is_txn());
                assert_eq!(word.slot(), slot as usize);
                assert_eq!(word.generation(), generation);
                assert_eq!(word.commit_ts(), None);
            }
        }
        assert_eq!(
            StartWord::transaction(7, StartWord::GENERATION_MASK + 1),
            StartWord::transaction(7, 0)
        );
        for ts in [CommitTs(1), CommitTs::MAX] {
            assert!(!StartWord::committed(ts).is_txn());
            assert_eq!(StartWord::committed(ts).commit_ts(), Some(ts));
        }
        for word in [StartWord::UNPUBLISHED, StartWord::ABORTED] {
            assert!(!word.is_txn());
            assert_eq!(word.commit_ts(), None);
        }
        assert_eq!(StartWord::transaction(3, 17).to_string(), "3.17");
    }
}
