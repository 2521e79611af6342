//! Dead entries of an ordered index: found by a walk, verified here, and left out by later walks.
//! The protocol stands in [`crate::store::dead_runs`].

use super::Statement;
use super::index_rows::IndexRows;
use crate::catalog::TableDef;
use crate::catalog::index::IndexId;
use crate::store::dead_runs::{DeadRun, Place, run_of};
use crate::store::{Store, StoredIndex, TableStore, newest, readable_index};
use std::sync::Arc;
use strandline_base::{CommitTs, Result, RowId, Value};
use strandline_index::{Cursor, Direction, KeyBytes, KeyRange};
use strandline_txn::StartWord;

/// So many entries in a row are worth being verified.
const GONE_MIN: usize = 32;

/// One statement verifies so many entries at most.
const VERIFIED_MAX: usize = 4096;

/// Entries in a row whose rows a walk has not found under their keys.
#[derive(Debug)]
pub struct GoneEntries {
    first: Option<Place>,
    last: Option<Place>,
    count: usize,
    /// so many are worth being verified
    least: usize,
    /// enough came in a row, and then another one
    is_settled: bool,
}

impl Default for GoneEntries {
    fn default() -> Self {
        Self::at_least(GONE_MIN)
    }
}

impl GoneEntries {
    /// None yet; fewer than `least` in a row are forgotten.
    pub fn at_least(least: usize) -> Self {
        Self {
            first: None,
            last: None,
            count: 0,
            least,
            is_settled: false,
        }
    }

    /// The walk has come to an entry; `is_gone`: its row is not visible, or has another key.
    pub fn note(&mut self, key: &KeyBytes, row: RowId, is_gone: bool) {
        if self.is_settled {
            return;
        }
        if !is_gone {
            self.is_settled = self.count >= self.least;
            self.count = match self.is_settled {
                true => self.count,
                false => 0,
            };
            return;
        }
        let place = (key.clone(), row);
        if self.count == 0 {
            self.first = Some(place.clone());
        }
        self.last = Some(place);
        self.count += 1;
    }

    /// The first and the last one in the index's order, if they are many.
    fn interval(self) -> Option<(Place, Place)> {
        let (first, last) = (self.first?, self.last?);
        (self.count >= self.least).then(|| match first <= last {
            true => (first, last),
            false => (last, first),
        })
    }
}

impl Statement {
    /// Has later walks leave out the entries that a walk has found `gone`, as far as they are dead
    /// now. A failure to read them is of no consequence: they are read again.
    pub fn leave_out(&self, table: &TableDef, index: IndexId, gone: GoneEntries) -> Result<()> {
        let Some((first, last)) = gone.interval() else {
            return Ok(());
        };
        let store = self.transaction().db().store(table.storage)?;
        let index = readable_index(&store, table, index)?;
        let _ = self.learn(&store, &index, first, last);
        Ok(())
    }

    fn learn(&self, store: &Store, index: &StoredIndex, first: Place, last: Place) -> Result<()> {
        let Some(dead) = index.dead_runs() else {
            return Ok(());
        };
        let Some(learner) = dead.begin(first.clone(), last.clone()) else {
            return Ok(());
        };
        let since = self.transaction().db().stable();
        let mut from = first.clone();
        if let Some(before) = &learner.before {
            let next = entries_behind(index, &before.last)?.next()?;
            if next.is_some_and(|next| next >= first) {
                from = before.from.clone();
            }
        }
        let mut entries = entries_from(index, &first)?;
        let (mut through, mut verified) = (None, 0);
        while let Some(entry) = entries.next()?
            && entry <= last
            && verified < VERIFIED_MAX
        {
            if let Some(run) = run_of(&learner.runs, &entry, since) {
                through = Some(run.last.clone());
                entries = entries_behind(index, &run.last)?;
                continue;
            }
            if !is_dead(store, index, &entry, since)? {
                break;
            }
            through = Some(entry);
            verified += 1;
        }
        if let Some(last) = through.filter(|_| verified > 0) {
            learner.publish(DeadRun { from, last, since });
        }
        Ok(())
    }
}

impl IndexRows {
    /// Leaves out entries that no snapshot at `ts` or later finds a row by: the rows are read as of
    /// `ts`, which is the reader's snapshot.
    pub fn as_of(mut self, ts: CommitTs) -> Self {
        self.read_at = Some(ts);
        self
    }
}

/// The entries behind a place.
fn entries_behind<'a>(index: &'a StoredIndex, place: &Place) -> Result<Box<dyn Cursor + 'a>> {
    let range = KeyRange {
        from: Some(place.0.clone()),
        before: None,
    };
    let index: &Arc<_> = &index.index;
    index.cursor_after(&range, Direction::Forward, place)
}

/// The entries from a place on.
fn entries_from<'a>(index: &'a StoredIndex, (key, row): &Place) -> Result<Box<dyn Cursor + 'a>> {
    match row.0.checked_sub(1) {
        Some(row) => entries_behind(index, &(key.clone(), RowId(row))),
        None => {
            let range = KeyRange {
                from: Some(key.clone()),
                before: None,
            };
            index.index.cursor(&range, Direction::Forward)
        }
    }
}

/// Whether an entry's row has been committed by `since`, which is stable, and its newest version is
/// a deletion or has another key. A row of which nothing has been committed is not dead.
fn is_dead(
    store: &Store,
    index: &StoredIndex,
    (key, row): &Place,
    since: CommitTs,
) -> Result<bool> {
    let (stored, nobody, row) = (store.rows(), StartWord(0), *row);
    let mut values = vec![Value::Null; index.columns.len()];
    if stored.read(row, &newest(nobody), &index.columns, &mut values)? {
        let found = index.key_of(&values)?;
        if found.is_some_and(|found| index.index.encode(&found) == *key) {
            return Ok(false);
        }
    } else if !stored.has_versions(row)? && !stored.has_expired(row)? {
        return Ok(false);
    }
    // In this order: the values read are then those of all moments from `since` on.
    Ok(stored.unfinished_writer(row, nobody, false)?.is_none()
        && !stored.has_changed_since(row, since, nobody)?)
}
