//! Cursors over the entries of a range, in both directions.
//!
//! A cursor copies a leaf's entries within its range, under the leaf's latch, and keeps the fence
//! at which it continues. Between two calls it holds no latch and no position within a node.

use super::entries::{Entries, EntryBytes};
use super::node::Probe;
use super::tree::Tree;
use crate::access_method::{Cursor, Direction, KeyBytes, KeyRange};
use std::ops::Range;
use strandline_base::{Result, RowId};

/// A cursor; see the module's documentation.
pub(super) struct TreeCursor<'a> {
    tree: &'a Tree,
    direction: Direction,
    /// the begin of the unread rest of the range
    from: Box<[u8]>,
    /// its end
    before: Option<Box<[u8]>>,
    /// whether the whole range has been read
    is_read: bool,
    /// entries of the last leaf read
    entries: Entries,
    /// positions of the entries that have not been returned yet
    rest: Range<usize>,
}

impl<'a> TreeCursor<'a> {
    /// A cursor over the entries of a range.
    pub fn new(tree: &'a Tree, range: &KeyRange, direction: Direction) -> Self {
        let bytes = |key: &KeyBytes| Box::from(key.as_slice());
        let from: Box<[u8]> = range.from.as_ref().map(bytes).unwrap_or_default();
        let before: Option<Box<[u8]>> = range.before.as_ref().map(bytes);
        Self {
            tree,
            direction,
            is_read: before.as_ref().is_some_and(|before| *before <= from),
            from,
            before,
            entries: Entries::default(),
            rest: 0..0,
        }
    }

    /// A cursor over the part of a range behind an entry that an earlier cursor has returned.
    ///
    /// # Errors
    /// XX000 if the row's number has more than 48 bits.
    pub fn after(
        tree: &'a Tree,
        range: &KeyRange,
        direction: Direction,
        (key, row): &(KeyBytes, RowId),
    ) -> Result<Self> {
        let mut cursor = Self::new(tree, range, direction);
        let entry = EntryBytes::new(key.as_slice(), *row)?;
        match direction {
            // The smallest bytes behind the entry.
            Direction::Forward => cursor.from = [entry.as_slice(), &[0]].concat().into(),
            Direction::Backward => cursor.before = Some(entry.as_slice().into()),
        }
        let before = cursor.before.as_ref();
        cursor.is_read |= before.is_some_and(|before| *before <= cursor.from);
        Ok(cursor)
    }

    /// The position of the next entry in `entries`.
    #[inline]
    fn next_place(&mut self) -> Option<usize> {
        loop {
            let next = match self.direction {
                Direction::Forward => self.rest.next(),
                Direction::Backward => self.rest.next_back(),
            };
            if next.is_some() || self.is_read {
                return next;
            }
            self.read_leaf();
        }
    }

    /// Reads the next leaf's entries within the range.
    fn read_leaf(&mut self) {
        let probe = match self.direction {
            Direction::Forward => Probe::At(&self.from),
            Direction::Backward => Probe::Before(self.before.as_deref()),
        };
        let leaf = self.tree.leaf(probe);
        let first = leaf.entries.lower_bound(&self.from);
        let end = self.before.as_ref();
        let end = end.map_or(leaf.entries.len(), |end| leaf.entries.lower_bound(end));
        self.entries = leaf.entries.copy_of(first..end.max(first));
        self.rest = 0..self.entries.len();
        match self.direction {
            Direction::Forward => {
                let ends_before = |high: &&[u8]| {
                    let before = self.before.as_deref();
                    before.is_none_or(|before| *high < before)
                };
                match leaf.high.as_deref().filter(ends_before) {
                    Some(high) => self.from = high.into(),
                    None => self.is_read = true,
                }
            }
            Direction::Backward => {
                self.is_read = leaf.low <= self.from;
                self.before = Some(leaf.low.clone());
            }
        }
    }
}

impl Cursor for TreeCursor<'_> {
    fn next(&mut self) -> Result<Option<(KeyBytes, RowId)>> {
        let place = self.next_place();
        Ok(place.map(|at| self.entries.entry(at)))
    }

    fn next_rows(&mut self, at_most: usize, rows: &mut Vec<RowId>) -> Result<bool> {
        for _ in 0..at_most {
            match self.next_place() {
                Some(at) => rows.push(self.entries.row(at)),
                None => return Ok(false),
            }
        }
        Ok(true)
    }
}
