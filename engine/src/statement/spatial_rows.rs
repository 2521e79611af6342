//! Reading by an index over points or boxes: rows whose box fulfils a condition, and rows by their
//! distance from a point.
//!
//! An entry leads to a row that has, or had, its box: both reads give candidates, and a row may
//! come several times, under boxes that it had at different times. Two ways to read are right:
//! * By a condition: gather candidates, sort and dedup them, fetch the visible versions
//!   ([`RowView::fetch`]), and apply the whole filter again.
//! * By distance: fetch chunk by chunk with the key's columns, and keep a row only if the key of
//!   its visible version, by [`RowKeys`], is the entry's. So each row comes once, at its own
//!   distance.
//!
//! A row whose key is NULL has no entry. No condition holds for it. Its distance is NULL, so a
//! reader of all rows by distance gets it, after the others, from a scan.
//!
//! Searches hold no latch between two rows. They give every entry that was there when they began
//! and has stayed. A statement takes its snapshot before, and entries that it needs stay.
//!
//! [`RowKeys`]: super::RowKeys
//! [`RowView::fetch`]: super::RowView::fetch

use super::Statement;
use crate::catalog::TableDef;
use crate::catalog::index::IndexId;
use crate::store::{StoredIndex, readable_index};
use std::sync::Arc;
use strandline_base::{Error, Result, RowId};
use strandline_index::{KeyBytes, NearestCursor, SpatialIndex, SpatialMethod, SpatialQuery};

/// Entries between two looks whether the statement has been cancelled.
const CHECKED_ENTRIES: usize = 1 << 12;

/// The entries of an index over points or boxes, those nearest to a point first.
pub struct NearestEntries {
    cursor: Box<dyn NearestCursor>,
    is_at_end: bool,
    /// its file stays while the cursor reads it
    _index: Arc<StoredIndex>,
}

impl Statement {
    /// Appends the rows that have, or had, a box that fulfils `query`: those of up to `at_most`
    /// entries. Returns whether these are all entries. A serializable transaction notes what it
    /// reads by [`Statement::note_read`].
    ///
    /// # Errors
    /// Those of the device; the failure of an unusable index; 57014 if the statement is cancelled;
    /// XX000 if the index has other keys.
    pub fn rows_at(
        &self,
        table: &TableDef,
        index: IndexId,
        query: &SpatialQuery,
        (at_most, rows): (usize, &mut Vec<RowId>),
    ) -> Result<bool> {
        let store = self.transaction().db().store(table.storage)?;
        let index = readable_index(&store, table, index)?;
        let mut entries = boxes(&index)?.search(query)?;
        let mut left = at_most;
        while left > 0 {
            self.transaction().check_cancelled()?;
            let chunk = left.min(CHECKED_ENTRIES);
            if !entries.next_rows(chunk, rows)? {
                return Ok(true);
            }
            left -= chunk;
        }
        Ok(entries.next()?.is_none())
    }

    /// The entries of an index by their distance from `point`; see the module's documentation. A
    /// serializable transaction notes what it reads by [`Statement::note_read`].
    ///
    /// # Errors
    /// As [`Statement::rows_at`].
    pub fn nearest_entries(
        &self,
        table: &TableDef,
        index: IndexId,
        point: [f64; 2],
    ) -> Result<NearestEntries> {
        let store = self.transaction().db().store(table.storage)?;
        let index = readable_index(&store, table, index)?;
        Ok(NearestEntries {
            cursor: boxes(&index)?.nearest(point)?,
            is_at_end: false,
            _index: index,
        })
    }
}

impl NearestEntries {
    /// Appends up to `at_most` further entries to `out`; whether there may be more.
    ///
    /// # Errors
    /// Those of the device.
    pub fn next_chunk(&mut self, at_most: usize, out: &mut Vec<(KeyBytes, RowId)>) -> Result<bool> {
        let first = out.len();
        while !self.is_at_end && out.len() - first < at_most {
            match self.cursor.next()? {
                Some(near) => out.push((SpatialIndex::key(&near.rect), near.row)),
                None => self.is_at_end = true,
            }
        }
        Ok(!self.is_at_end)
    }
}

/// The searches of an index over points or boxes.
fn boxes(index: &StoredIndex) -> Result<&dyn SpatialMethod> {
    if let Some(failure) = index.index.failure() {
        return Err(failure.clone());
    }
    let boxes = index.index.spatial();
    boxes.ok_or_else(|| Error::internal("an index that is searched by position has other keys"))
}
