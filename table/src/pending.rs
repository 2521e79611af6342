//! What a checkpoint writes as a run: every committed record that is in no run yet.
//!
//! A row's old-value records go along with the first of its updates that is written (again with
//! later ones: a duplicate is harmless, a missing one would lose history). Of several records of
//! one transaction for one row only the newest is written: it is cumulative. Versions that were
//! superseded before anybody could ask for them are folded into the next, and a version does not
//! repeat what the one before it has (see `history`).

use crate::base::BaseBody;
use crate::history::{drop_repeats, thinned};
use crate::horizon::Horizon;
use crate::insert_range::InsertRange;
use crate::lineage::Lineage;
use crate::range::RangeVersion;
use crate::record_page::{RecordKind, RecordPage};
use crate::schema::StorageSchema;
use crate::tail::Tail;
use crate::update_run::{RunRecord, RunRecordKind};
use crate::visibility::{RecordState, record_state};
use std::collections::BTreeMap;
use strandline_base::{ColumnId, CommitTs, RangeNo, Result, RowId, UPDATE_ROWS, Value};
use strandline_txn::StartWord;

impl Lineage {
    /// The records of range `no` committed at or before `through` that are in no run, in run
    /// order. `with_inserts`: also inserted rows of an insert range. `columns_max`: as for
    /// [`Lineage::merge_range`]; old values of columns beyond it are left out. Versions that
    /// nobody may ask for by `horizon` are folded into the next ones.
    pub fn pending_records(
        &self,
        no: RangeNo,
        version: &RangeVersion,
        through: CommitTs,
        with_inserts: bool,
        columns_max: usize,
        horizon: &Horizon,
    ) -> Result<Vec<RunRecord>> {
        let mut rows: BTreeMap<RowId, Vec<RunRecord>> = BTreeMap::new();
        for (at, tail) in version.tails.iter().enumerate() {
            if let Some(tail) = tail {
                let first = at * UPDATE_ROWS;
                self.pending_of_tail(no, first, tail, through, columns_max, &mut rows)?;
            }
        }
        if with_inserts && let BaseBody::Insert(inserted) = &version.base.body {
            self.pending_inserts(no, inserted, through, &mut rows)?;
        }
        let merged = version.base.merged_through();
        let kept = |records| {
            let mut records = thinned(records, horizon, merged);
            drop_repeats(&mut records);
            records
        };
        Ok(rows.into_values().flat_map(kept).collect())
    }

    fn pending_of_tail(
        &self,
        no: RangeNo,
        first_slot: usize,
        tail: &Tail,
        through: CommitTs,
        columns_max: usize,
        rows: &mut BTreeMap<RowId, Vec<RunRecord>>,
    ) -> Result<()> {
        let schema = self.schema();
        let from = tail.persisted_through();
        let mut old_values: BTreeMap<RowId, Vec<RunRecord>> = BTreeMap::new();
        let pages = tail.pages();
        for page in pages.iter().rev() {
            for i in (0..page.claimed()).rev() {
                // The state first: only of a published record the rest may be looked at.
                let state = record_state(page, i, StartWord(0), &self.shared.txns);
                let RecordState::Committed(ts) = state else {
                    continue;
                };
                let (slot, kind) = page.slot_kind(i);
                let row = RowId::new(no, (first_slot + usize::from(slot)) as u16);
                let record = |kind| {
                    Ok(RunRecord {
                        row,
                        ts,
                        kind,
                        columns: values(page, i, &schema, columns_max)?,
                    })
                };
                match kind {
                    RecordKind::OldValue => {
                        old_values
                            .entry(row)
                            .or_default()
                            .push(record(RunRecordKind::OldValue)?);
                    }
                    RecordKind::Update | RecordKind::Delete if ts.0 > from && ts <= through => {
                        let records = rows.entry(row).or_default();
                        if records.last().is_none_or(|newer| newer.ts != ts) {
                            let kind = match kind {
                                RecordKind::Delete => RunRecordKind::Delete,
                                _ => RunRecordKind::Update,
                            };
                            records.push(record(kind)?);
                        }
                    }
                    RecordKind::Update
                    | RecordKind::Delete
                    | RecordKind::Lock
                    | RecordKind::ShareLock => {}
                }
            }
        }
        for (row, records) in rows {
            if let Some(old) = old_values.remove(row) {
                records.extend(old);
            }
        }
        Ok(())
    }

    fn pending_inserts(
        &self,
        no: RangeNo,
        inserted: &InsertRange,
        through: CommitTs,
        rows: &mut BTreeMap<RowId, Vec<RunRecord>>,
    ) -> Result<()> {
        let from = inserted.persisted_through();
        for slot in 0..inserted.rows() {
            let Some((page, i)) = inserted.existing_page(slot as usize) else {
                continue;
            };
            let state = record_state(page, i, StartWord(0), &self.shared.txns);
            let RecordState::Committed(ts) = state else {
                continue;
            };
            if ts.0 <= from || ts > through {
                continue;
            }
            let row = RowId::new(no, slot as u16);
            let mut columns = Vec::with_capacity(inserted.schema().len());
            for (column, spec) in inserted.schema().iter() {
                columns.push((column, page.value(i, column, spec)?));
            }
            let record = RunRecord {
                row,
                ts,
                kind: RunRecordKind::Insert,
                columns,
            };
            let records = rows.entry(row).or_default();
            // After the row's updates, before its old values.
            let at = records
                .iter()
                .position(|r| r.kind == RunRecordKind::OldValue)
                .unwrap_or(records.len());
            records.insert(at, record);
        }
        Ok(())
    }

    /// Notes that everything committed at or before `through` in `version` is in a run.
    pub fn note_persisted(&self, version: &RangeVersion, through: CommitTs) {
        for tail in version.tails.iter().flatten() {
            tail.set_persisted_through(through.0);
        }
        if let BaseBody::Insert(inserted) = &version.base.body {
            inserted.set_persisted_through(through.0);
        }
    }
}

fn values(
    page: &RecordPage,
    i: u32,
    schema: &StorageSchema,
    columns_max: usize,
) -> Result<Vec<(ColumnId, Value)>> {
    page.columns_of(i)
        .filter(|column| (column.0 as usize) < columns_max)
        .map(|column| Ok((column, page.value(i, column, schema.column(column))?)))
        .collect()
}
