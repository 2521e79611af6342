//! The bytes of an entry of an index on a device, and ranges of entries.
//!
//! An entry is the key's bytes, then the row id in eight bytes, big-endian. No key's bytes begin
//! with another key's bytes (`ordered_key`). So entries are ordered like (key, row) pairs, and the
//! entries of a key are all entries that begin with its bytes.

use crate::access_method::{Direction, KeyRange};
use strandline_base::RowId;

/// Bytes of the row id.
pub(crate) const ROW_BYTES: usize = 8;

/// The bytes of an entry.
pub(crate) fn entry_of(key: &[u8], row: RowId) -> Vec<u8> {
    [key, &row.0.to_be_bytes()].concat()
}

/// The key's bytes and the row of an entry; None if the entry is too short.
pub(crate) fn parts_of(entry: &[u8]) -> Option<(&[u8], RowId)> {
    let (key, row) = entry.split_last_chunk::<ROW_BYTES>()?;
    Some((key, RowId(u64::from_be_bytes(*row))))
}

/// The key's bytes of an entry; all of it if the entry is too short.
pub(crate) fn key_of(entry: &[u8]) -> &[u8] {
    parts_of(entry).map_or(entry, |(key, _)| key)
}

/// A range of entries by their bytes, which a cursor has not read yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct EntryRange {
    /// the least, inclusive
    pub from: Box<[u8]>,
    /// the end, exclusive; None: no end
    pub before: Option<Box<[u8]>>,
}

impl EntryRange {
    /// The entries of a range of keys.
    pub fn of(range: &KeyRange) -> Self {
        Self {
            from: range
                .from
                .as_ref()
                .map_or_else(Box::default, |key| key.as_slice().into()),
            before: range.before.as_ref().map(|key| key.as_slice().into()),
        }
    }

    /// Leaves only what a cursor in this direction finds behind an entry.
    pub fn cut_through(&mut self, direction: Direction, entry: &[u8]) {
        match direction {
            // The smallest bytes behind the entry.
            Direction::Forward => self.from = [entry, &[0]].concat().into(),
            Direction::Backward => self.before = Some(entry.into()),
        }
    }

    /// Whether no bytes lie within the range.
    pub fn is_empty(&self) -> bool {
        let before = self.before.as_ref();
        before.is_some_and(|before| *before <= self.from)
    }
}
