//! The interface of every index: a hash table in memory, a tree on a device.
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

use crate::rect::{Rect, SpatialQuery};
use crate::{KeySequence, KeySequences};
use std::sync::Arc;
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
    /// The key bytes of a method that keeps a hash: no allocation.
    #[inline]
    pub fn hashed(hash: u64) -> Self {
        Self(Bytes::Hash(hash.to_be_bytes()))
    }
    /// The bytes that an ordered method's keys are cut to.
    pub(crate) const CUT_BYTES: usize = 1024;

    /// The key bytes of any other method.
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
    /// Bytes that they take on the heap.
    #[inline]
    pub fn heap_bytes(&self) -> usize {
        match &self.0 {
            Bytes::Hash(_) => 0,
            Bytes::Encoded(bytes) => bytes.len(),
        }
    }
    /// Whether an ordered method has cut the key, because it is longer than 1,016 bytes. Other keys
    /// may have these bytes; and of two cut keys that have the first 1,016 bytes in common either
    /// may come first, so that readers who rely on the order sort such neighbours by value.
    pub fn is_cut(&self) -> bool {
        matches!(&self.0, Bytes::Encoded(bytes) if bytes.len() == Self::CUT_BYTES)
    }
    /// Whether a cursor may return this key and `other` in any order: both are cut and begin alike.
    pub fn is_unordered_with(&self, other: &Self) -> bool {
        let kept = ..Self::CUT_BYTES - size_of::<u64>();
        self.is_cut() && other.is_cut() && self.as_slice()[kept] == other.as_slice()[kept]
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
pub enum Lookup {
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

/// Gives the timestamp of the oldest snapshot that may still be taken or read.
pub type OldestSnapshot = Arc<dyn Fn() -> CommitTs + Send + Sync>;

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

    /// Appends the rows of up to `at_most` further entries, for readers that need no keys. Returns
    /// whether there may be more.
    fn next_rows(&mut self, at_most: usize, rows: &mut Vec<RowId>) -> Result<bool> {
        for _ in 0..at_most {
            match self.next()? {
                Some((_, row)) => rows.push(row),
                None => return Ok(false),
            }
        }
        Ok(true)
    }
}

/// An entry and its successors.
struct Following<'a> {
    first: Option<(KeyBytes, RowId)>,
    rest: Box<dyn Cursor + 'a>,
}

impl Cursor for Following<'_> {
    fn next(&mut self) -> Result<Option<(KeyBytes, RowId)>> {
        match self.first.take() {
            Some(first) => Ok(Some(first)),
            None => self.rest.next(),
        }
    }
}

/// An entry of a bulk load under whose bytes there are other rows, whether the load has added it or
/// it was there already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collision {
    /// the bytes
    pub key: KeyBytes,
    /// the entry's row
    pub row: RowId,
    /// the other rows
    pub others: Vec<RowId>,
}

/// Adds many entries, of rows in ascending order.
pub trait BulkLoad {
    /// Adds an entry; as [`AccessMethod::insert`], if the load has been made by
    /// [`AccessMethod::bulk_load_unique`]. A method that sorts the entries first adds them later,
    /// and appends nothing to `others`.
    fn push(&mut self, key: &[Value], row: RowId, others: &mut Vec<RowId>) -> Result<()>;
    /// Adds the pushed entries that are not in the index yet. Returns the collisions that `push`
    /// has not reported.
    fn collisions(&mut self) -> Result<Vec<Collision>> {
        Ok(Vec::new())
    }
    /// The entries can be found at the latest when this has returned.
    fn finish(self: Box<Self>) -> Result<()>;
}

/// An index, shared by all threads. Whether keys with NULL among their values have entries is the
/// caller's decision.
pub trait AccessMethod: Send + Sync {
    /// Its abilities.
    fn capabilities(&self) -> Capabilities;

    /// The bytes of a key, whose values are in the order of the index's definition.
    fn encode(&self, key: &[Value]) -> KeyBytes;

    /// Adds an entry unless it is there, and appends to `others` the other rows under these bytes
    /// that were there before, atomically: of two concurrent adders at least one sees the other.
    /// Returns whether the entry is new.
    fn insert(&self, key: &KeyBytes, row: RowId, others: &mut Vec<RowId>) -> Result<bool>;

    /// Adds an entry unless it is there, and looks at no others: for keys that many rows may have.
    /// Returns whether the entry is new. A look that begins after it has returned sees the entry,
    /// so of two threads that add and then look at least one sees the other.
    fn add(&self, key: &KeyBytes, row: RowId) -> Result<bool> {
        self.insert(key, row, &mut Vec::new())
    }

    /// The row under this key, if it is the only one or can be computed from the key; in the second
    /// case other rows may have the key when this row is gone. The caller checks that the row has
    /// it.
    fn find(&self, key: &[Value]) -> Result<Lookup>;

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

    /// The entries of a range that come behind `after`, an entry that a cursor of this range and
    /// direction has given and that may be gone by now.
    fn cursor_after(
        &self,
        range: &KeyRange,
        direction: Direction,
        after: &(KeyBytes, RowId),
    ) -> Result<Box<dyn Cursor + '_>> {
        let mut cursor = self.cursor(range, direction)?;
        let first = loop {
            let is_behind = |entry: &(KeyBytes, RowId)| match direction {
                Direction::Forward => entry > after,
                Direction::Backward => entry < after,
            };
            match cursor.next()? {
                Some(entry) if !is_behind(&entry) => {}
                first => break first,
            }
        };
        Ok(Box::new(Following {
            first,
            rest: cursor,
        }))
    }

    /// About how many entries a range has; None if the method cannot tell without reading them.
    fn estimate(&self, range: &KeyRange) -> Option<usize> {
        let _ = range;
        None
    }

    /// No snapshot at or after `since` finds the row by this key; zero: no snapshot at all does, as
    /// after a rollback. The entry goes once no older snapshot can be taken. A method that cannot
    /// keep a retired entry drops it at once, and its callers retire an entry only then.
    fn retire(&self, key: &KeyBytes, row: RowId, since: CommitTs) -> Result<()>;

    /// Removes every entry that `keep` does not want. Entries that others add meanwhile may be
    /// passed over. `keep` must be quick: writers of the entry's neighbours wait for it.
    fn retain(&self, keep: &mut dyn FnMut(&KeyBytes, RowId) -> bool) -> Result<()>;

    /// Adds many entries. An ordered method collects and sorts them, so that a load should have as
    /// many entries as there are, and one thread at most one load.
    fn bulk_load(&self) -> Box<dyn BulkLoad + '_>;

    /// As [`AccessMethod::bulk_load`]; also finds the other rows under the same bytes, for entries
    /// that are there already as well: an index that outlives a crash may have them.
    fn bulk_load_unique(&self) -> Box<dyn BulkLoad + '_> {
        self.bulk_load()
    }

    /// So many entries, or fewer, are about to be added: a method that makes room by doubling makes
    /// it at once. 0: no more are to come, and room that is mostly unused is given back.
    fn expect_entries(&self, more: usize) {
        let _ = more;
    }

    /// Verifies the index by itself; appends the damage found, one line each.
    fn check(&self, damage: &mut Vec<String>) -> Result<()>;

    /// Why the index cannot be used, if it could not be built: whatever needs its entries fails
    /// with this error.
    fn failure(&self) -> Option<&Error> {
        None
    }

    /// Replays an operation that the method has logged. Methods in memory log nothing: they are
    /// built from the rows.
    ///
    /// # Errors
    /// XX001 if the method has not logged it.
    fn replay(&self, record: &[u8], at: CommitTs) -> Result<()> {
        let place = format!("commit {at}");
        let what = format!("{} bytes of an index that logs nothing", record.len());
        Err(Error::corrupt(place, what))
    }

    /// The searches by position, if the keys are boxes.
    fn spatial(&self) -> Option<&dyn SpatialMethod> {
        None
    }

    /// The runs of rows that can be computed from their keys without the method; None: it keeps
    /// none.
    fn sequences(&self) -> Option<&KeySequences> {
        None
    }

    /// The longest of these runs, if there is any.
    fn sequence(&self) -> Option<KeySequence> {
        self.sequences()?.longest()
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

/// An entry and its distance from the point of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Neighbour {
    /// NaN, which is above all numbers, if a coordinate is NaN
    pub distance: f64,
    /// the entry's box
    pub rect: Rect,
    /// the entry's row
    pub row: RowId,
}

/// Goes over entries by their distance from a point, ascending. It returns the entries that
/// [`Cursor`] returns. It shares the index, so that a reader can keep it between its requests.
pub trait NearestCursor: Send {
    /// The next entry; None at the end.
    fn next(&mut self) -> Result<Option<Neighbour>>;
}

/// The searches of a method whose keys are boxes. They stand beside [`AccessMethod::cursor`],
/// because a condition on boxes is no interval of key bytes, and an order by distance is none of
/// key bytes.
pub trait SpatialMethod: AccessMethod {
    /// Goes over the entries whose boxes fulfil a condition, in no order.
    fn search(&self, query: &SpatialQuery) -> Result<Box<dyn Cursor + '_>>;

    /// Goes over all entries, those nearest to a finite point first (see [`Rect::distance`]).
    fn nearest(&self, point: [f64; 2]) -> Result<Box<dyn NearestCursor>>;
}
