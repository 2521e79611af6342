//! Cursors over the tree's and the blocks' entries, in both directions.
//!
//! A cursor goes over its range in *windows*. It copies the entries of the window's blocks, and
//! reads the tree's entries of the same range afterwards. An entry that leaves its block in between
//! is in the tree by then. A window has one block at first, and twice as many as the one before
//! later on, so that the tree's own cursor can read leaves ahead.

use super::LidIndex;
use super::layout::State;
use crate::access_method::{AccessMethod, Cursor, Direction, KeyBytes, KeyRange};
use crate::entry::{EntryRange, entry_of, parts_of};
use std::cmp::Ordering;
use std::iter::Peekable;
use std::vec::IntoIter;
use strandline_base::{CommitTs, Result, RowId};

/// Blocks of a window at most.
const WINDOW_MAX: usize = 128;

type Entry = (KeyBytes, RowId);

/// The part of a range that is read.
struct Window<'a> {
    /// what the blocks say, in the cursor's direction
    said: Peekable<IntoIter<(Entry, State)>>,
    tree: Box<dyn Cursor + 'a>,
    /// the tree's next entry, if it has been read
    next: Option<Entry>,
    is_read: bool,
}

/// A cursor; see the module's documentation.
pub(super) struct MergeCursor<'a> {
    index: &'a LidIndex,
    direction: Direction,
    /// the range behind the window
    rest: EntryRange,
    is_over: bool,
    /// blocks of the next window
    blocks: usize,
    window: Option<Window<'a>>,
    oldest: CommitTs,
}

impl<'a> MergeCursor<'a> {
    /// A cursor over the entries of a range.
    pub fn new(index: &'a LidIndex, range: &KeyRange, direction: Direction) -> Self {
        let rest = EntryRange::of(range);
        Self {
            index,
            direction,
            is_over: rest.is_empty(),
            rest,
            blocks: 1,
            window: None,
            oldest: index.tree.oldest(),
        }
    }

    /// A cursor over the part of a range behind an entry that an earlier cursor has returned.
    pub fn after(
        index: &'a LidIndex,
        range: &KeyRange,
        direction: Direction,
        (key, row): &Entry,
    ) -> Self {
        let mut cursor = Self::new(index, range, direction);
        let entry = entry_of(key.as_slice(), *row);
        cursor.rest.cut_through(direction, &entry);
        cursor.is_over |= cursor.rest.is_empty();
        cursor
    }

    fn open_window(&mut self) -> Result<Window<'a>> {
        let mut range = self.rest.clone();
        let all = (&*range.from, range.before.as_deref());
        let directory = &self.index.blocks.directory;
        let mut within = directory.within(all, self.direction, self.blocks + 1);
        let behind = match within.len() > self.blocks {
            true => within.pop(),
            false => None,
        };
        self.blocks = (2 * self.blocks).min(WINDOW_MAX);
        match (behind, self.direction) {
            (None, _) => self.is_over = true,
            (Some(behind), Direction::Forward) => {
                range.before = Some(behind.header.low.clone());
                self.rest.from = behind.header.low.clone();
            }
            (Some(behind), Direction::Backward) => {
                let end = behind.header.high.clone();
                let end = end.expect("a block before another one ends");
                range.from = end.clone();
                self.rest.before = Some(end);
            }
        }
        let mut said = Vec::new();
        for block in within {
            for slot in self.index.blocks.read(&block)? {
                let entry = &*slot.entry;
                let is_before = range.before.as_ref().is_none_or(|before| *entry < **before);
                if let Some((key, row)) = parts_of(entry)
                    && is_before
                    && *range.from <= *entry
                {
                    said.push(((KeyBytes::encoded(key), row), slot.state));
                }
            }
        }
        said.sort_unstable_by(|(a, _), (b, _)| self.order(a, b));
        let bound = |bytes: Box<[u8]>| KeyBytes::encoded(bytes);
        let range = KeyRange {
            from: Some(bound(range.from)),
            before: range.before.map(bound),
        };
        Ok(Window {
            said: said.into_iter().peekable(),
            tree: self.index.tree.cursor(&range, self.direction)?,
            next: None,
            is_read: false,
        })
    }

    /// The order in which the cursor gives entries.
    fn order(&self, a: &Entry, b: &Entry) -> Ordering {
        match self.direction {
            Direction::Forward => a.cmp(b),
            Direction::Backward => b.cmp(a),
        }
    }

    /// The next entry of the window.
    fn next_of(&self, window: &mut Window<'a>) -> Result<Option<Entry>> {
        loop {
            if window.next.is_none() && !window.is_read {
                window.next = window.tree.next()?;
                window.is_read = window.next.is_none();
            }
            let order = match (&window.next, window.said.peek()) {
                (_, None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(next), Some((said, _))) => self.order(next, said),
            };
            let said = match order {
                Ordering::Less => return Ok(window.next.take()),
                Ordering::Equal | Ordering::Greater => window.said.next(),
            };
            let Some((entry, state)) = said else {
                continue;
            };
            let is_in_tree = order.is_eq();
            if is_in_tree {
                window.next = None;
            }
            let is_gone = state.is_gone(self.oldest);
            if is_gone && is_in_tree {
                self.index.settle_rows(&entry.0, &[entry.1]);
            }
            let is_added = matches!(state, State::Live | State::Retired(_));
            if !is_gone && (is_added || is_in_tree) {
                return Ok(Some(entry));
            }
        }
    }
}

impl Cursor for MergeCursor<'_> {
    fn next(&mut self) -> Result<Option<Entry>> {
        loop {
            let window = match self.window.take() {
                Some(window) => Some(window),
                None if self.is_over => None,
                None => Some(self.open_window()?),
            };
            let Some(mut window) = window else {
                return Ok(None);
            };
            let next = self.next_of(&mut window)?;
            if next.is_some() {
                self.window = Some(window);
                return Ok(next);
            }
        }
    }
}
