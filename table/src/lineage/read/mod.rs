//! Point reads: one row at a snapshot \[L-Store §2.2, §4.2\].
//!
//! The walk is the one in ARCHITECTURE.md: chain, then base, then history. At most two hops reach
//! the latest version: the walk along the chain ends at the newest visible update, independent of
//! the number of updates and of the wanted columns.
//!
//! Why nothing older is needed: records are cumulative, so an update carries every column updated
//! before it except those whose updates were in the base of its writer's range version. If the
//! reader's version is still the range's newest one when the reader has found the update, the
//! reader's base is the writer's or a later one. So a column that the update lacks has its value in
//! the reader's base, or, if that is newer than the snapshot, in the runs, which have every merged
//! record. If a merge was published meanwhile, the walk goes on to the chain's end instead: the
//! version that the reader holds keeps the pages.

mod changes;
pub mod versions;

use crate::lineage::Lineage;
use crate::lineage::base::row_block::BlockRow;
use crate::lineage::base::row_meta::NEVER;
use crate::lineage::base::{BaseBody, ChunkBase, base_values};
use crate::lineage::range::{Range, RangeVersion};
use crate::update_run::RunRecordKind;
use std::sync::Arc;
use strandline_base::{ColumnId, CommitTs, Result, RowId, UPDATE_ROWS, Value};
use strandline_tail::record_page::RecordKind;
use strandline_tail::row_map::Entry;
use strandline_tail::tail_pages::locate;
use strandline_tail::visibility::{sees, sees_record};
use strandline_txn::Visibility;

/// Columns that one walk reads: as many as a word has bits.
const WALK_COLUMNS: usize = u64::BITS as usize;

/// The columns that a walk looks for, at most [`WALK_COLUMNS`].
struct Wanted<'a> {
    columns: &'a [ColumnId],
    out: &'a mut [Value],
    /// by position
    found: u64,
}

impl<'a> Wanted<'a> {
    fn new(columns: &'a [ColumnId], out: &'a mut [Value]) -> Self {
        debug_assert!(columns.len() == out.len() && columns.len() <= WALK_COLUMNS);
        Self {
            columns,
            out,
            found: 0,
        }
    }
    #[inline]
    fn is_found(&self, at: usize) -> bool {
        self.found >> at & 1 == 1
    }
    #[inline]
    fn is_complete(&self) -> bool {
        self.found.count_ones() as usize == self.columns.len()
    }
    /// Where the value at `at` goes, which is found now.
    #[inline]
    fn take(&mut self, at: usize) -> &mut Value {
        self.found |= 1 << at;
        &mut self.out[at]
    }
    /// Takes the wanted values that `row` has.
    #[inline]
    fn take_from(&mut self, row: &BlockRow<'_>) {
        for (at, (column, out)) in self.columns.iter().zip(&mut *self.out).enumerate() {
            if self.found >> at & 1 == 0 && row.read(*column, out) {
                self.found |= 1 << at;
            }
        }
    }
}

/// Reads columns in as many walks as it takes, until one gives false. Over one version of the range
/// and by one visibility they are one read.
#[inline]
fn in_walks(
    mut columns: &[ColumnId],
    mut out: &mut [Value],
    mut walk: impl FnMut(Wanted<'_>) -> Result<bool>,
) -> Result<bool> {
    while columns.len() > WALK_COLUMNS {
        let (now, later) = columns.split_at(WALK_COLUMNS);
        let (out_now, out_later) = out.split_at_mut(WALK_COLUMNS);
        if !walk(Wanted::new(now, out_now))? {
            return Ok(false);
        }
        (columns, out) = (later, out_later);
    }
    walk(Wanted::new(columns, out))
}

/// Outcome of [`Lineage::read_newest`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NewestRow {
    /// the row
    Found,
    /// no row, or one that only a registered snapshot can tell about
    Unknown,
}

/// State of a row in base at a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BaseRow {
    /// no row, or deleted
    Gone,
    /// base has the row's columns as the snapshot sees them
    Current,
    /// base is newer: older versions come from history
    Newer,
}

/// Whether no merge has been published since `version` was loaded.
#[inline]
fn is_newest(range: &Range, version: &RangeVersion) -> bool {
    Arc::ptr_eq(&range.load().base, &version.base)
}

impl Lineage {
    /// Reads `columns` of `row` into `out` (same length) at `visibility`; false if there is no such
    /// row.
    pub fn read(
        &self,
        row: RowId,
        visibility: &Visibility,
        columns: &[ColumnId],
        out: &mut [Value],
    ) -> Result<bool> {
        debug_assert_eq!(columns.len(), out.len());
        let Some(range) = self.range(row.range()) else {
            return Ok(false);
        };
        let version = range.load();
        in_walks(columns, out, |wanted| {
            self.walk(range, &version, row, visibility, wanted)
        })
    }

    fn walk(
        &self,
        range: &Range,
        version: &RangeVersion,
        row: RowId,
        visibility: &Visibility,
        mut wanted: Wanted<'_>,
    ) -> Result<bool> {
        if !self.read_chain(range, version, row, visibility, &mut wanted)? {
            return Ok(false);
        }
        match self.base_row(version, row.slot(), visibility)? {
            BaseRow::Gone => return Ok(false),
            BaseRow::Newer if !self.read_history(row, visibility.ts, &mut wanted)? => {
                return Ok(false);
            }
            BaseRow::Newer | BaseRow::Current => {}
        }
        self.read_base(version, row, wanted)?;
        Ok(true)
    }

    /// As [`Lineage::read`], at a moment that is not registered: the versions needed may be gone,
    /// and an invisible row may have been visible just before.
    pub fn read_newest(
        &self,
        row: RowId,
        visibility: &Visibility,
        columns: &[ColumnId],
        out: &mut [Value],
    ) -> Result<NewestRow> {
        debug_assert_eq!(columns.len(), out.len());
        let Some(range) = self.range(row.range()) else {
            return Ok(NewestRow::Unknown);
        };
        let version = range.load();
        let found = in_walks(columns, out, |mut wanted| {
            if !self.read_chain(range, &version, row, visibility, &mut wanted)? {
                return Ok(false);
            }
            // A row with a visible update is there, whatever base says of it.
            if wanted.is_complete() && !columns.is_empty() {
                return Ok(true);
            }
            let is_known = self.base_row(&version, row.slot(), visibility)? == BaseRow::Current;
            if is_known {
                self.read_base(&version, row, wanted)?;
            }
            Ok(is_known)
        })?;
        Ok(match found {
            true => NewestRow::Found,
            false => NewestRow::Unknown,
        })
    }

    /// Fills the values still wanted from base, whose values are right for the reader.
    fn read_base(&self, version: &RangeVersion, row: RowId, mut wanted: Wanted<'_>) -> Result<()> {
        if wanted.is_complete() {
            return Ok(());
        }
        let columns = wanted.columns;
        if let BaseBody::Chunks(chunks) = &version.base.body {
            let pool = &self.shared.pool;
            let asked = columns.iter().copied();
            chunks.read_row(row.slot(), asked, pool, |row| wanted.take_from(&row))?;
        }
        if wanted.is_complete() {
            return Ok(());
        }
        let schema = self.load_schema();
        let Wanted {
            columns,
            out,
            found,
        } = wanted;
        let others = columns.iter().copied().enumerate();
        let others = others.filter(|(at, _)| found >> at & 1 == 0);
        base_values(&version.base, row.slot(), others, &schema, |at, value| {
            out[at] = value;
        })
    }

    /// Whether no snapshot that may still be asked for sees any version of `row`: it was deleted
    /// so long ago that a merge has removed it. Its slot is never used again.
    pub fn has_expired(&self, row: RowId) -> Result<bool> {
        let Some(range) = self.range(row.range()) else {
            return Ok(false);
        };
        let version = range.load();
        match &version.base.body {
            BaseBody::Chunks(chunks) if row.slot() >= chunks.rows as usize => Ok(true),
            BaseBody::Chunks(chunks) => match &chunks.meta {
                Some(meta) => Ok(meta.load()?.starts.get(row.slot()) == Some(NEVER)),
                None => Ok(false),
            },
            BaseBody::Insert(_) => Ok(false),
        }
    }

    /// Step 1: the live chain down to the newest visible update. False: a visible delete.
    fn read_chain(
        &self,
        range: &Range,
        version: &RangeVersion,
        row: RowId,
        visibility: &Visibility,
        wanted: &mut Wanted<'_>,
    ) -> Result<bool> {
        let Some(tail) = &version.tails[row.slot() / UPDATE_ROWS] else {
            return Ok(true);
        };
        let entry = tail.row_map().entry(row.slot() % UPDATE_ROWS);
        if entry == Entry::NONE {
            return Ok(true);
        }
        let pages = tail.pages();
        let mut next = pages.head(entry);
        while next != 0 {
            let Some((page, i)) = locate(&pages, next - 1) else {
                break;
            };
            let record = page.record(i)?;
            next = record.back();
            let (start, statement) = (|| record.start(), || record.statement());
            if !sees(start, statement, visibility, &self.shared.txns) {
                continue;
            }
            let kind = record.kind();
            if kind == RecordKind::Delete {
                return Ok(false);
            }
            record.read(wanted.columns, wanted.out, &mut wanted.found)?;
            let is_update = kind == RecordKind::Update;
            if wanted.is_complete() || is_update && is_newest(range, version) {
                break;
            }
        }
        Ok(true)
    }

    /// Step 2: the state of the row in base.
    pub(crate) fn base_row(
        &self,
        version: &RangeVersion,
        slot: usize,
        visibility: &Visibility,
    ) -> Result<BaseRow> {
        match &version.base.body {
            BaseBody::Insert(rows) => {
                let visible = slot < rows.rows() as usize
                    && rows.existing_page(slot).is_some_and(|(page, i)| {
                        sees_record(page, i, visibility, &self.shared.txns)
                    });
                Ok(if visible {
                    BaseRow::Current
                } else {
                    BaseRow::Gone
                })
            }
            BaseBody::Chunks(chunks) => self.chunk_row(chunks, slot, visibility),
        }
    }

    fn chunk_row(&self, chunks: &ChunkBase, slot: usize, v: &Visibility) -> Result<BaseRow> {
        if slot >= chunks.rows as usize {
            return Ok(BaseRow::Gone);
        }
        if chunks.is_quiet_at(v.ts) {
            return Ok(BaseRow::Current);
        }
        let Some(meta) = &chunks.meta else {
            let start = &chunks.start;
            let visible = sees(|| start.load(), || start.statement, v, &self.shared.txns);
            return Ok(if visible {
                BaseRow::Current
            } else {
                BaseRow::Gone
            });
        };
        let meta = meta.load()?;
        Ok(
            if meta.starts[slot] == NEVER || meta.starts[slot] > v.ts.0 {
                BaseRow::Gone
            } else if meta.last_updated[slot] > v.ts.0 {
                BaseRow::Newer
            } else if meta.deleted.get(slot) {
                BaseRow::Gone
            } else {
                BaseRow::Current
            },
        )
    }

    /// Step 3: history. False: a delete at or before `ts`.
    ///
    /// The newest version says whether the row exists. Runs are disjoint in commit time and come
    /// newest first, so the first record with a column has its value, and nothing is read behind
    /// the record that completes the columns. Only old values are apart: a run has its own behind
    /// all of its versions, and the latest of them comes after the versions of all runs.
    fn read_history(&self, row: RowId, ts: CommitTs, wanted: &mut Wanted<'_>) -> Result<bool> {
        let rows = row..RowId(row.0 + 1);
        let mut old_values: Vec<Option<(CommitTs, Value)>> = vec![None; wanted.columns.len()];
        for run in self.runs().iter() {
            if run.min_ts() > ts || run.max_row() < row || run.min_row() > row {
                continue;
            }
            let mut cursor = run.cursor(rows.clone(), 0);
            while let Some(record) = cursor.next_record()? {
                if record.ts > ts {
                    continue;
                }
                if record.kind == RunRecordKind::Delete {
                    return Ok(false);
                }
                let is_old = record.kind == RunRecordKind::OldValue;
                for (column, value) in record.columns {
                    for (at, old) in old_values.iter_mut().enumerate() {
                        if wanted.columns[at] != column || wanted.is_found(at) {
                            continue;
                        }
                        if !is_old {
                            wanted.take(at).clone_from(&value);
                        } else if old.as_ref().is_none_or(|(known, _)| *known < record.ts) {
                            *old = Some((record.ts, value.clone()));
                        }
                    }
                }
                if !is_old && wanted.is_complete() {
                    return Ok(true);
                }
            }
        }
        for (at, old) in old_values.into_iter().enumerate() {
            if let Some((_, value)) = old
                && !wanted.is_found(at)
            {
                *wanted.take(at) = value;
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests;
