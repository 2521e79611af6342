//! Cursors over the entries of a range, in both directions.
//!
//! A cursor copies a leaf's page under the leaf's latch and keeps the fence at which it continues.
//! Between two calls it holds no latch and no position within a page that others change. A backward
//! cursor descends from the root for each leaf, since there are no left links. From the second leaf
//! on the next ones are read ahead.

use super::ahead::LeavesAhead;
use super::kind::{Kind, Predicate};
use super::node::{Node, Probe};
use super::tree::{Tree, row_at};
use crate::access_method::{Cursor, Direction, KeyBytes, KeyRange};
use crate::entry::{EntryRange, entry_of, parts_of};
use std::ops::Range;
use strandline_base::{Result, RowId};
use strandline_storage::pages::{Access, PageNumber};

/// A cursor; see the module's documentation.
pub(super) struct TreeCursor<'a, K> {
    tree: &'a Tree<K>,
    direction: Direction,
    /// the unread rest of the range
    range: EntryRange,
    /// whether the whole range has been read
    is_read: bool,
    /// the page of the last leaf read, and its content
    leaf: (PageNumber, Vec<u8>),
    /// positions of the entries that have not been returned yet
    rest: Range<usize>,
    access: Access,
    ahead: LeavesAhead,
}

impl<'a, K: Kind> TreeCursor<'a, K> {
    /// A cursor over the entries of a range.
    pub fn new(tree: &'a Tree<K>, range: &KeyRange, direction: Direction) -> Self {
        let range = EntryRange::of(range);
        Self {
            tree,
            direction,
            is_read: range.is_empty(),
            range,
            leaf: (PageNumber(0), Vec::new()),
            rest: 0..0,
            // The first leaf is one that a lookup would read, too.
            access: Access::Random,
            ahead: LeavesAhead::new(direction),
        }
    }

    /// A cursor over the part of a range behind an entry that an earlier cursor has returned.
    pub fn after(
        tree: &'a Tree<K>,
        range: &KeyRange,
        direction: Direction,
        (key, row): &(KeyBytes, RowId),
    ) -> Self {
        let mut cursor = Self::new(tree, range, direction);
        let entry = entry_of(key.as_slice(), *row);
        cursor.range.cut_through(direction, &entry);
        cursor.is_read |= cursor.range.is_empty();
        cursor
    }

    /// The position of the next entry in the leaf.
    fn next_place(&mut self) -> Result<Option<usize>> {
        loop {
            let next = match self.direction {
                Direction::Forward => self.rest.next(),
                Direction::Backward => self.rest.next_back(),
            };
            if next.is_some() || self.is_read {
                return Ok(next);
            }
            self.read_leaf()?;
        }
    }

    /// Reads the next leaf's entries within the range.
    fn read_leaf(&mut self) -> Result<()> {
        let probe = match self.direction {
            Direction::Forward => Probe::At(&self.range.from),
            Direction::Backward => Probe::Before(self.range.before.as_deref()),
        };
        let (number, page) = self.tree.leaf(probe, self.access)?;
        self.leaf.0 = number;
        self.leaf.1.clear();
        self.leaf.1.extend_from_slice(&page);
        drop(page);
        self.access = Access::Sequential;
        let tree = self.tree;
        let damaged = |damage| tree.damaged(number, damage);
        let Some(leaf) = tree.node(number, &self.leaf.1)? else {
            return Ok(());
        };
        let bound = |bytes: &[u8]| leaf.lower_bound(bytes).map_err(damaged);
        let first = bound(&self.range.from)?;
        let end = self.range.before.as_deref().map(bound).transpose()?;
        self.rest = first..end.unwrap_or(leaf.len()).max(first);
        let (low, high) = (Box::from(leaf.low), leaf.high());
        match (self.direction, high) {
            (Direction::Forward, Some(high)) => {
                let wanted = Predicate {
                    low: &self.range.from,
                    high: self.range.before.as_deref(),
                };
                let behind = Predicate {
                    low: &high,
                    high: None,
                };
                self.is_read = !K::consistent(behind, wanted);
                self.range.from = high;
            }
            (Direction::Forward, None) => self.is_read = true,
            (Direction::Backward, _) => {
                self.is_read = low <= self.range.from;
                self.range.before = Some(low);
            }
        }
        if !self.is_read {
            let rest = &self.range;
            self.ahead.advance(tree, &rest.from, rest.before.as_deref());
        }
        Ok(())
    }

    fn leaf(&self) -> Result<Option<Node<'_>>> {
        self.tree.node(self.leaf.0, &self.leaf.1)
    }
}

impl<K: Kind> Cursor for TreeCursor<'_, K> {
    fn next(&mut self) -> Result<Option<(KeyBytes, RowId)>> {
        let Some(at) = self.next_place()? else {
            return Ok(None);
        };
        let damaged = |damage| self.tree.damaged(self.leaf.0, damage);
        let Some(leaf) = self.leaf()? else {
            return Ok(None);
        };
        let entry = leaf.parts(at).map_err(damaged)?.concat();
        let parts = parts_of(&entry).ok_or_else(|| damaged(super::join::SHORT_ENTRY))?;
        Ok(Some((KeyBytes::encoded(parts.0), parts.1)))
    }

    fn next_rows(&mut self, at_most: usize, rows: &mut Vec<RowId>) -> Result<bool> {
        for _ in 0..at_most {
            let Some(at) = self.next_place()? else {
                return Ok(false);
            };
            if let Some(leaf) = self.leaf()? {
                let row = row_at(&leaf, at).map_err(|d| self.tree.damaged(self.leaf.0, d))?;
                rows.push(row);
            }
        }
        Ok(true)
    }
}
