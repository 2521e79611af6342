//! The interface of an index, whatever it is made of: a hash table in memory, a tree on a device.
//!
//! An entry is a pair of encoded key bytes and a row id; the same pair is held once. The method
//! encodes the key's values itself ([`AccessMethod::encode`]): an ordered method orders its entries
//! by these bytes, a hash method keeps a hash. Different keys may have the same bytes. A lookup
//! returns rows that have, or had, a key with these bytes; the caller reads the rows and decides.
//!
//! A method knows no versions. An entry is needed while some reader may find the row by its key;
//! [`AccessMethod::retire`] gives the timestamp from which on no reader does.
//!
//! Every operation may fail, as a method may have to read a device. A failed operation has changed
//! nothing, except that a failed bulk load keeps the entries it has added.

use crate::KeySequence;
use strandline_base::{CommitTs, Error, Result, RowId, Value};

/// The encoded bytes of a key, as one method has them; ordered bytewise.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyBytes(Bytes);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Bytes {
    Hash([u8; 8]),
    Encoded(Box<[u8]>),
}

const _: () = assert!(size_of::<KeyBytes>() == 16);

impl KeyBytes {
    /// Those of a method that keeps a hash: no allocation.
    #[inline]
    pub fn hashed(hash: u64) -> Self {
        Self(Bytes::Hash(hash.to_be_bytes()))
    }
    /// Those of any other method.
    pub fn encoded(bytes: impl Into<Box<[u8]>>) -> Self {
        Self(Bytes::Encoded(bytes.into()))
    }
    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        match &self.0 {
            Bytes::Hash(hash) => hash,
            Bytes::Encoded(bytes) => bytes,
        }
    }
    /// The hash.
    ///
    /// # Errors
    /// XX000 if these are another method's bytes.
    #[inline]
    pub fn hash(&self) -> Result<u64> {
        match &self.0 {
            Bytes::Hash(hash) => Ok(u64::from_be_bytes(*hash)),
            Bytes::Encoded(_) => Err(Error::internal("a hash index was given encoded bytes")),
        }
    }
}

/// The rows under a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// nothing
    None,
    /// one row
    One(RowId),
    /// more than one
    Several,
}

/// The abilities of a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// has cursors, in the order of the keys' bytes
    pub ordered: bool,
    /// keeps its entries when the database is closed; otherwise they are built from the rows
    pub durable: bool,
}

/// The direction of a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// ascending by key bytes, then by row
    Forward,
    /// descending
    Backward,
}

/// Which keys a cursor goes over, by their bytes; None: no bound.
#[derive(Clone, Debug, Default)]
pub struct KeyRange {
    /// the least, inclusive
    pub from: Option<KeyBytes>,
    /// the end, exclusive
    pub before: Option<KeyBytes>,
}

/// Goes over entries in order. It returns every entry that was there when the cursor was made and
/// was not retired meanwhile; entries added or retired meanwhile it may return or not.
pub trait Cursor {
    /// The next entry; None at the end.
    fn next(&mut self) -> Result<Option<(KeyBytes, RowId)>>;
}

/// Adds many entries, of rows in ascending order.
pub trait BulkLoad {
    /// Adds an entry; as [`AccessMethod::insert`].
    fn push(&mut self, key: &[Value], row: RowId, others: &mut Vec<RowId>) -> Result<()>;
    /// The entries can be found at the latest when this has returned.
    fn finish(self: Box<Self>) -> Result<()>;
}

/// An index, shared by all threads. Keys have no NULL among their values.
pub trait AccessMethod: Send + Sync {
    /// Its abilities.
    fn capabilities(&self) -> Capabilities;

    /// The bytes of a key, whose values are in the order of the index's definition.
    fn encode(&self, key: &[Value]) -> KeyBytes;

    /// Adds an entry unless it is there, and appends to `others` the other rows under these bytes
    /// that were there before, atomically: of two concurrent adders at least one sees the other.
    /// Returns whether the entry is new.
    fn insert(&self, key: &KeyBytes, row: RowId, others: &mut Vec<RowId>) -> Result<bool>;

    /// The row under this key, if it is the only one or can be computed from the key; in the second
    /// case other rows may have the key when this row is gone. The caller checks that the row has
    /// it.
    fn find(&self, key: &[Value]) -> Result<Found>;

    /// Appends all rows under these bytes.
    fn lookup(&self, key: &KeyBytes, rows: &mut Vec<RowId>) -> Result<()>;

    /// Goes over the entries of a range of keys.
    ///
    /// # Errors
    /// XX000 if the method is not ordered, which [`Capabilities::ordered`] says beforehand.
    fn cursor(&self, range: &KeyRange, direction: Direction) -> Result<Box<dyn Cursor + '_>> {
        let _ = (range, direction);
        Err(Error::internal(
            "the index is not ordered: it has no cursors, only lookups of whole keys",
        ))
    }

    /// No snapshot at or after `since` finds the row by this key; zero: no snapshot at all does, as
    /// after a rollback. The entry goes once no older snapshot can be taken. A method that cannot
    /// keep a retired entry drops it at once, and its callers retire an entry only then.
    fn retire(&self, key: &KeyBytes, row: RowId, since: CommitTs) -> Result<()>;

    /// Removes every entry that `keep` does not want. Entries that others add meanwhile may be
    /// passed over. `keep` must be quick: writers of the entry's neighbours wait for it.
    fn retain(&self, keep: &mut dyn FnMut(&KeyBytes, RowId) -> bool) -> Result<()>;

    /// Adds many entries.
    fn bulk_load(&self) -> Box<dyn BulkLoad + '_>;

    /// Verifies the index by itself; appends the damage found, one line each.
    fn check(&self, damage: &mut Vec<String>) -> Result<()>;

    /// Does again what the method has logged. Methods in memory log nothing: they are built from
    /// the rows.
    ///
    /// # Errors
    /// XX001 if the method has not logged it.
    fn replay(&self, record: &[u8], at: CommitTs) -> Result<()> {
        let place = format!("commit {at}");
        let what = format!("{} bytes of an index that logs nothing", record.len());
        Err(Error::corrupt(place, what))
    }

    /// The longest run of rows that can be computed from their keys without the method, if any.
    fn sequence(&self) -> Option<KeySequence> {
        None
    }

    /// Entries held.
    fn len(&self) -> usize;

    /// Whether there is no entry.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory the index takes.
    fn memory_bytes(&self) -> usize;
}
