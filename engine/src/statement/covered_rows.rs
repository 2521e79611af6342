//! Rows by the entries of an index alone: their values come from the entries' key bytes, and no
//! column is read.
//!
//! A reader must know two facts of each row, which are independent of each other.
//!
//! *The row is visible.* An entry knows no versions. The row's existence is read like that of any
//! row, but without columns: the chain's newest visible record and the base's times. This is exact
//! at any snapshot, in the past too, and with changes of the reader's own transaction. In a range
//! that is quiet at the snapshot every row is visible
//! ([`StoredRange::quiet_slots`](crate::store::StoredRange::quiet_slots)).
//!
//! *The visible version has the entry's key.* It does if the entry is the only one that the row
//! has. An update that changes a key column adds an entry, and the entry before it stays until no
//! moment needs it. The index marks such rows (`store::moved_rows`). Why an unmarked row has the
//! key:
//! * The entry that was read comes from the row's insertion, a build, or an update. An update marks
//!   the row before it enters the key. The reader looks at the marks after the entries, so it finds
//!   the mark, whether the update is open, committed, or has been rolled back since.
//! * If the visible version had another key, an update would have given it that key. The update
//!   would have marked the row before its commit, which is before the reader's snapshot, or earlier
//!   in the reader's own transaction.
//! * A sweep removes a mark when one entry is left, which is right at every moment that may be
//!   asked for. A reader whose entries may be older finds that marks were removed ([`EntryWatch`])
//!   and takes no value from them.
//!
//! So the order is: watch, read entries, look at the marks. Updates of other columns, merges and
//! deletes mark nothing. Rows that are marked are fetched, and their filters applied, as without
//! the index's values.
//!
//! Values come from parts of the key that are columns of a lossless type ([`OrderedKeys::keeps`]).
//! INCLUDE columns are not in the entries. A key of more than 1,016 bytes is cut, and its row is
//! fetched.

use super::Statement;
use super::index_rows::{Fetch, RowView};
use crate::catalog::TableDef;
use crate::catalog::index::{IndexDef, IndexId, IndexMethod, IndexValue};
use crate::store::moved_rows::Settled;
use crate::store::{StoredIndex, readable_index};
use arrow_array::RecordBatch;
use std::sync::Arc;
use strandline_base::{ColumnId, Result, RowId, SqlType, Value};
use strandline_index::{KeyBytes, OrderedKeys};

/// The columns whose values an index's entries have, and where they have them.
#[derive(Clone, Debug)]
pub struct CoveredColumns {
    columns: Arc<[ColumnId]>,
    /// per part of the key its type
    types: Vec<SqlType>,
    /// per part of the key its place among the columns
    places: Vec<Option<usize>>,
}

/// A moment before entries of an index are read. The entries read after it give values until a
/// sweep removes marks.
pub struct EntryWatch {
    index: Arc<StoredIndex>,
    since: Settled,
}

/// Reads rows by the entries that were read under a watch.
pub struct Covering<'a> {
    /// where the entries have the values
    pub columns: &'a CoveredColumns,
    /// over the index of the entries
    pub watch: &'a EntryWatch,
}

impl CoveredColumns {
    /// None: an entry of `index` does not have all of `columns`.
    pub fn of(table: &TableDef, index: &IndexDef, columns: &[ColumnId]) -> Option<Self> {
        if index.method != IndexMethod::Ordered {
            return None;
        }
        let mut places = vec![None; index.parts.len()];
        for (at, id) in columns.iter().enumerate() {
            let part = index.parts.iter().position(
                |part| matches!(&part.value, IndexValue::Column(column) if column == id),
            )?;
            let is_kept = OrderedKeys::keeps(table.column_by_id(*id)?.sql_type);
            if !is_kept || places[part].replace(at).is_some() {
                return None;
            }
        }
        let types = index.parts.iter().map(|part| match &part.value {
            IndexValue::Column(id) => Some(table.column_by_id(*id)?.sql_type),
            IndexValue::Expression(expression) => Some(expression.sql_type),
        });
        Some(Self {
            columns: columns.into(),
            types: types.collect::<Option<_>>()?,
            places,
        })
    }

    /// The columns, in the order in which [`RowView::fetch_covered`] gives them.
    pub fn columns(&self) -> &[ColumnId] {
        &self.columns
    }
}

impl Statement {
    /// A watch over an index, to be made before its entries are read.
    pub fn watch_entries(&self, table: &TableDef, index: IndexId) -> Result<EntryWatch> {
        let store = self.transaction().db().store(table.storage)?;
        let index = readable_index(&store, table, index)?;
        let since = settled(&index);
        Ok(EntryWatch { index, since })
    }
}

impl EntryWatch {
    /// Begins again: entries that were read before are not watched any more.
    pub fn renew(&mut self) {
        self.since = settled(&self.index);
    }

    fn is_certain(&self, row: RowId) -> bool {
        let moved = self.index.moved_rows();
        moved.is_some_and(|moved| moved.is_unmoved(self.since, row))
    }

    /// For each of `rows` whether its entry is the only one that it has.
    fn certain(&self, rows: &[RowId]) -> Vec<bool> {
        match self.index.moved_rows() {
            Some(moved) => moved.unmoved(self.since, rows),
            None => vec![false; rows.len()],
        }
    }
}

fn settled(index: &StoredIndex) -> Settled {
    index
        .moved_rows()
        .map_or_else(Settled::default, |moved| moved.settled())
}

impl Covering<'_> {
    /// The values of a row's columns from its entry; false: the entry does not have them.
    fn decode(&self, key: &KeyBytes, values: &mut [Value]) -> bool {
        let (types, places) = (&self.columns.types, &self.columns.places);
        let keys = self.watch.index.ordered_keys();
        keys.is_some_and(|keys| keys.decode(key, types, places, values))
    }
}

impl RowView {
    /// As [`RowView::fetch`], for ascending `rows`. `keys` has each row's entry; None: it has
    /// several. Returns also how many rows were fetched.
    pub fn fetch_covered(
        &self,
        rows: &[RowId],
        keys: &[Option<KeyBytes>],
        covering: &Covering<'_>,
    ) -> Result<(Vec<RowId>, RecordBatch, usize)> {
        let mut certain = covering.watch.certain(rows);
        for (certain, key) in certain.iter_mut().zip(keys) {
            *certain &= key.as_ref().is_some_and(|key| !key.is_cut());
        }
        let mut fetch = Fetch::new(self, &covering.columns.columns)?;
        let mut values = vec![Value::Null; covering.columns.columns.len()];
        let (mut at, mut fetched) = (0, 0);
        for run in certain.chunk_by(|a, b| a == b) {
            let (rows, keys) = (&rows[at..at + run.len()], &keys[at..at + run.len()]);
            at += run.len();
            let before = fetch.ids.len();
            if !run[0] {
                fetch.read(rows)?;
                fetched += fetch.ids.len() - before;
                continue;
            }
            let mut entries = rows.iter().zip(keys);
            for row in self.visible(rows)? {
                let entry = entries.find(|(entry, _)| **entry == row);
                let key = entry.and_then(|(_, key)| key.as_ref());
                if key.is_some_and(|key| covering.decode(key, &mut values)) {
                    fetch.push_row(row, &mut values);
                } else {
                    fetch.read(&[row])?;
                    fetched += 1;
                }
            }
        }
        let (ids, batch) = fetch.finish()?;
        Ok((ids, batch, fetched))
    }

    /// Reads one row by its entry: `values` become those of the columns. Whether the row is
    /// visible; None: the entry may have other values than the row, which must be read.
    pub fn read_entry(
        &self,
        row: RowId,
        key: &KeyBytes,
        covering: &Covering<'_>,
        values: &mut [Value],
    ) -> Result<Option<bool>> {
        let is_certain = covering.watch.is_certain(row) && covering.decode(key, values);
        let visible = is_certain.then(|| self.read(row, &[], &mut []));
        visible.transpose()
    }

    /// The visible ones of ascending `rows`.
    fn visible(&self, rows: &[RowId]) -> Result<Vec<RowId>> {
        let mut visible = Vec::with_capacity(rows.len());
        for rows in rows.chunk_by(|a, b| a.range() == b.range()) {
            let range = rows.first().and_then(|row| self.store.range(row.range()));
            match range.and_then(|range| range.quiet_slots(self.visibility.ts)) {
                Some(slots) => visible.extend(rows.iter().filter(|row| row.slot() < slots)),
                None => visible.extend(self.fetch(rows, &[])?.0),
            }
        }
        Ok(visible)
    }
}
