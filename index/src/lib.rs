//! Keys → row ids. For now a memory-resident multimap from a key's 64-bit hash to row ids, rebuilt
//! at open ([`HashIndex`], with [`KeySequences`] as a short cut); an SSD-resident index takes its
//! place behind [`KeyIndex`]. It knows nothing of versions: it returns every row that has, or
//! within the retention had, the key (or one whose hash collides); the caller reads the rows and
//! decides.

mod hash_index;
mod key_hash;
mod row_keys;
mod sequences;

pub use hash_index::HashIndex;
pub use key_hash::{hash_integer, hash_key, is_same_key};
pub use row_keys::RowKeys;
pub use sequences::{KeySequence, KeySequences, integer_key};
use strandline_base::RowId;

/// What is under a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// nothing
    None,
    /// one row
    One(RowId),
    /// more than one
    Several,
}

/// A multimap from key hashes to row ids, shared by all threads. An entry is a pair; the same pair
/// is held once.
pub trait KeyIndex: Send + Sync {
    /// Adds an entry unless it is there, and appends to `others` the other rows under this hash
    /// that were there before, atomically: of two concurrent adders at least one sees the other.
    /// Returns whether the entry is new.
    fn insert(&self, hash: u64, row: RowId, others: &mut Vec<RowId>) -> bool;
    /// The row under this hash, if it is the only one.
    fn find(&self, hash: u64) -> Found;
    /// Appends all rows under this hash.
    fn lookup(&self, hash: u64, rows: &mut Vec<RowId>);
    /// Removes an entry if it is there.
    fn remove(&self, hash: u64, row: RowId);
    /// Removes every entry that `keep` does not want. Entries that others add meanwhile may be
    /// passed over. `keep` must be quick: writers of the entry's neighbours wait for it.
    fn retain(&self, keep: &mut dyn FnMut(u64, RowId) -> bool);
    /// Entries held.
    fn len(&self) -> usize;
    /// Whether there is no entry.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Bytes of memory the index takes.
    fn memory_bytes(&self) -> usize;
}
