//! All versions of one row, oldest first, in one pass over its records.
//!
//! The row's changes are gathered from its tail and from the runs: a record up to the lineage of
//! the base's row metadata is in a run, whatever columns lag; a later one is in the tail of the
//! same range version, perhaps in a run as well. Both are applied: in a run a version that no
//! moment sees is folded into the next newer one, so that a later record of a run may have values
//! which base has and the tail has not. The changes are applied one after the other to the values
//! that the row began with. A read per version would decode all of the row's records for each.
//!
//! Memory: the wanted values that changes set. Changes of other columns are not kept, unless every
//! version is asked for.

use crate::lineage::Lineage;
use crate::lineage::base::BaseBody;
use crate::lineage::base::row_meta::NEVER;
use crate::lineage::range::RangeVersion;
use crate::lineage::read::in_walks;
use crate::update_run::{RunRecord, RunRecordKind};
use strandline_base::{ColumnId, CommitTs, Result, RowId, UPDATE_ROWS, Value};
use strandline_tail::record_page::{RecordKind, RecordPage};
use strandline_tail::tail_pages::locate;
use strandline_tail::visibility::{RecordState, record_state};
use strandline_txn::StartWord;

/// What begins a new version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VersionBounds {
    /// every change of the row
    AnyChange,
    /// changes that set one of the wanted columns
    WantedChange,
}

/// A committed version of a row.
#[derive(Clone, Copy, Debug)]
pub struct RowVersion<'a> {
    /// when it was committed
    pub from: CommitTs,
    /// when the next one was, or the deletion; None: it is the newest
    pub to: Option<CommitTs>,
    /// the wanted columns
    pub values: &'a [Value],
}

/// The changes of a row.
struct Changes<'a> {
    columns: &'a [ColumnId],
    bounds: VersionBounds,
    /// newest first within the tail and within the runs
    found: Vec<Change>,
    /// by position in the columns: the values before the first change that is kept, and their time
    old_values: Vec<Option<(CommitTs, Value)>>,
}

struct Change {
    ts: CommitTs,
    ends: bool,
    /// by position in the columns
    set: Vec<(usize, Value)>,
}

impl Lineage {
    /// Visits the committed versions of `row`, oldest first, as far as they are kept. Those before
    /// the oldest moment that may be asked for may be incomplete.
    pub fn visit_versions(
        &self,
        row: RowId,
        columns: &[ColumnId],
        bounds: VersionBounds,
        visit: &mut dyn FnMut(RowVersion<'_>) -> Result<()>,
    ) -> Result<()> {
        let Some(range) = self.range(row.range()) else {
            return Ok(());
        };
        let version = range.load_full();
        let mut changes = Changes {
            columns,
            bounds,
            found: Vec::new(),
            old_values: vec![None; columns.len()],
        };
        let Some(start) = self.base_changes(&version, row, &mut changes)? else {
            return Ok(());
        };
        self.tail_changes(&version, row, &mut changes)?;
        self.visit_history((row, RowId(row.0 + 1)), CommitTs::MAX, |record| {
            changes.add_record(record);
            Ok(())
        })?;
        let mut values = vec![Value::Null; columns.len()];
        in_walks(columns, &mut values, |wanted| {
            self.read_base(&version, row, wanted)?;
            Ok(true)
        })?;
        changes.visit(start, values, visit)
    }

    /// Whether a committed version of `row` may still be read.
    pub fn has_versions(&self, row: RowId) -> Result<bool> {
        let Some(range) = self.range(row.range()) else {
            return Ok(false);
        };
        Ok(self.known_times(&range.load(), row)?.is_some())
    }

    /// When a row began and was last updated as base knows it, and whether that was its deletion;
    /// None: base has no committed row.
    fn known_times(
        &self,
        version: &RangeVersion,
        row: RowId,
    ) -> Result<Option<(CommitTs, CommitTs, bool)>> {
        let slot = row.slot();
        let begun = |start: Option<CommitTs>| start.map(|start| (start, CommitTs::ZERO, false));
        Ok(match &version.base.body {
            BaseBody::Insert(rows) => {
                let record = rows.existing_page(slot);
                begun(record.and_then(|(page, i)| self.committed(page, i)))
            }
            BaseBody::Chunks(chunks) if slot >= chunks.rows as usize => None,
            BaseBody::Chunks(chunks) => match &chunks.meta {
                None => begun(chunks.start.load().commit_ts()),
                Some(meta) => {
                    let meta = meta.load()?;
                    let (start, last) = (meta.starts[slot], CommitTs(meta.last_updated[slot]));
                    let is_there = start != NEVER;
                    is_there.then(|| (CommitTs(start), last, meta.deleted.get(slot)))
                }
            },
        })
    }

    /// Adds what base knows of the row's changes; its beginning, if there is one.
    fn base_changes(
        &self,
        version: &RangeVersion,
        row: RowId,
        changes: &mut Changes<'_>,
    ) -> Result<Option<CommitTs>> {
        let Some((start, last_updated, is_deleted)) = self.known_times(version, row)? else {
            return Ok(None);
        };
        if last_updated > CommitTs::ZERO {
            changes.add(last_updated, is_deleted, Vec::new());
        }
        Ok(Some(start))
    }

    fn committed(&self, page: &RecordPage, i: u32) -> Option<CommitTs> {
        match record_state(page, i, StartWord(0), &self.shared.txns) {
            RecordState::Committed(ts) => Some(ts),
            RecordState::Nothing
            | RecordState::Own
            | RecordState::InProgress(_)
            | RecordState::PreCommitted(..) => None,
        }
    }

    /// Adds the changes that base does not have.
    fn tail_changes(
        &self,
        version: &RangeVersion,
        row: RowId,
        changes: &mut Changes<'_>,
    ) -> Result<()> {
        let Some(tail) = &version.tails[row.slot() / UPDATE_ROWS] else {
            return Ok(());
        };
        let merged = version.base.merged().rows();
        let schema = self.load_schema();
        let pages = tail.pages();
        let mut next = pages.head(tail.row_map().entry(row.slot() % UPDATE_ROWS));
        while next != 0 {
            let Some((page, i)) = locate(&pages, next - 1) else {
                break;
            };
            next = page.back(i);
            // The state first: only of a published record the rest may be looked at.
            let Some(ts) = self.committed(page, i) else {
                continue;
            };
            let kind = page.slot_kind(i).1;
            if !matches!(kind, RecordKind::Update | RecordKind::Delete) {
                continue;
            }
            if ts <= merged {
                break; // the older ones as well
            }
            let mut set = Vec::new();
            for (at, &column) in changes.columns.iter().enumerate() {
                if page.has(i, column) {
                    set.push((at, page.value(i, column, schema.column(column))?));
                }
            }
            changes.add(ts, kind == RecordKind::Delete, set);
        }
        Ok(())
    }
}

impl Changes<'_> {
    fn add(&mut self, ts: CommitTs, ends: bool, set: Vec<(usize, Value)>) {
        if ends || !set.is_empty() || self.bounds == VersionBounds::AnyChange {
            self.found.push(Change { ts, ends, set });
        }
    }

    fn add_record(&mut self, record: RunRecord) {
        let position = |column: ColumnId| self.columns.iter().position(|c| *c == column);
        let wanted = record.columns.into_iter();
        let set: Vec<_> = wanted
            .filter_map(|(column, value)| Some((position(column)?, value)))
            .collect();
        if record.kind != RunRecordKind::OldValue {
            let ends = record.kind == RunRecordKind::Delete;
            return self.add(record.ts, ends, set);
        }
        for (at, value) in set {
            let old = &mut self.old_values[at];
            if old.as_ref().is_none_or(|(known, _)| *known < record.ts) {
                *old = Some((record.ts, value));
            }
        }
        // What compaction made of older versions tells when the last of them began.
        self.add(record.ts, false, Vec::new());
    }

    /// Applies the changes one after the other. `values`: those of base.
    fn visit(
        mut self,
        start: CommitTs,
        mut values: Vec<Value>,
        visit: &mut dyn FnMut(RowVersion<'_>) -> Result<()>,
    ) -> Result<()> {
        for (value, old) in values.iter_mut().zip(self.old_values) {
            if let Some((_, old)) = old {
                *value = old;
            }
        }
        // Newest first is almost the opposite order; one transaction's changes keep theirs, and
        // those of the tail come behind the same ones of a run.
        self.found.reverse();
        self.found.sort_by_key(|change| change.ts);
        let (mut from, mut exists) = (start, true);
        for change in self.found {
            if change.ts > from {
                if exists {
                    let to = Some(change.ts);
                    let values = &values;
                    visit(RowVersion { from, to, values })?;
                }
                from = change.ts;
            }
            exists = !change.ends && exists;
            for (at, value) in change.set {
                values[at] = value;
            }
        }
        match exists {
            true => visit(RowVersion {
                from,
                to: None,
                values: &values,
            }),
            false => Ok(()),
        }
    }
}
