//! What an index can be asked, whatever it is made of: a hash table in memory, a tree on a device.
//!
//! An entry is a pair of a key and a row. The key is in encoded bytes, which the method makes of
//! values itself ([`AccessMethod::encode`]): an ordered method orders its entries by these bytes, a
//! hash method keeps a hash. So entries of different keys may have the same bytes, and what a
//! lookup finds are rows that have, or had, the key or one with its bytes: the caller reads the
//! rows and decides. The same pair is held once.
//!
//! A method knows nothing of versions. An entry is needed for as long as somebody may find the row
//! by its key: [`AccessMethod::retire`] says from when on nobody does.
//!
//! Every operation may fail, as a method may have to read a device. One that fails has changed
//! nothing, except that a bulk load has added the entries before.

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

/// What is under a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// nothing
    None,
    /// one row
    One(RowId),
    /// more than one
    Several,
}

/// What a method can do.
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

/// Goes over entries in order. It sees those that were there when it was made and were not retired
/// meanwhile; of others, it may see some.
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
    /// What it can do.
    fn capabilities(&self) -> Capabilities;

    /// The bytes of a key, whose values are in the order of the index's definition.
    fn encode(&self, key: &[Value]) -> KeyBytes;

    /// Adds an entry unless it is there, and appends to `others` the other rows under these bytes
    /// that were there before, atomically: of two concurrent adders at least one sees the other.
    /// Returns whether the entry is new.
    fn insert(&self, key: &KeyBytes, row: RowId, others: &mut Vec<RowId>) -> Result<bool>;

    /// The row under this key, if it is the only one, or if it can be told from the key alone: then
    /// others may have the key when it is gone. Whether the row has it the caller sees.
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

    /// Nobody finds the row by this key at or after `since`; zero: nor before, as after a rollback.
    /// The entry goes once no older moment may be asked for. A method that cannot keep it until
    /// then drops it now, and callers retire its entries only when it is time.
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

    /// Many rows that can be told from their keys without the method, if there are such.
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
