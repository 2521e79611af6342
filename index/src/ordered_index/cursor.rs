//! Cursors over the entries of a range, in both directions.
//!
//! A cursor copies a leaf's entries within its range, under the leaf's latch, and keeps the fence
//! at which it continues. Between two calls it holds no latch and no position within a node.

use super::entries::{Entries, EntryBytes};
use super::node::Probe;
use super::tree::Tree;
use crate::access_method::{Cursor, Direction, KeyBytes, KeyRange};
use crate::entry::EntryRange;
use std::ops::Range;
use strandline_base::{Result, RowId};

/// A cursor; see the module's documentation.
pub(super) struct TreeCursor<'a> {
    tree: &'a Tree,
    direction: Direction,
    /// the unread rest of the range
    range: EntryRange,
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
        let range = EntryRange::of(range);
        Self {
            tree,
            direction,
            is_read: range.is_empty(),
            range,
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
        cursor.range.cut_through(direction, entry.as_slice());
        cursor.is_read |= cursor.range.is_empty();
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
            Direction::Forward => Probe::At(&self.range.from),
            Direction::Backward => Probe::Before(self.range.before.as_deref()),
        };
        let leaf = self.tree.leaf(probe);
        let first = leaf.entries.lower_bound(&self.range.from);
        let end = self.range.before.as_ref();
        let end = end.map_or(leaf.entries.len(), |end| leaf.entries.lower_bound(end));
        self.entries = leaf.entries.copy_of(first..end.max(first));
        self.rest = 0..self.entries.len();
        match self.direction {
            Direction::Forward => {
                let ends_before = |high: &&[u8]| {
                    let before = self.range.before.as_deref();
                    before.is_none_or(|before| *high < before)
                };
                match leaf.high.as_deref().filter(ends_before) {
                    Some(high) => self.range.from = high.into(),
                    None => self.is_read = true,
                }
            }
            Direction::Backward => {
                self.is_read = leaf.low <= self.range.from;
                self.range.before = Some(leaf.low.clone());
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
