//! The records that a checkpoint writes as a run: every committed record that is in no run yet.
//!
//! A row's old-value records go along with the first of its updates that is written (again with
//! later ones: a duplicate is harmless, a missing one would lose history). A version that no
//! snapshot can see, for example all but the last of one transaction, is folded into the next. A
//! version does not repeat values of the version before it (see `repeats`).
//!
//! Records are found first, as addresses, and their values are read one by one when they are
//! written: the values of all of them would take twenty times that memory, beside the writers.

use crate::lineage::Lineage;
use crate::lineage::base::BaseBody;
use crate::lineage::history::rewrite::RowRewrite;
use crate::lineage::horizon::Horizon;
use crate::lineage::range::RangeVersion;
use crate::update_run::{RunRecord, RunRecordKind};
use std::sync::Arc;
use strandline_base::{ColumnId, CommitTs, RangeNo, Result, RowId, UPDATE_ROWS, Value};
use strandline_tail::insert_range::InsertRange;
use strandline_tail::record_page::{RecordKind, RecordPage};
use strandline_tail::schema::StorageSchema;
use strandline_tail::tail::Tail;
use strandline_tail::visibility::{RecordState, record_state};
use strandline_txn::StartWord;

/// The records of a range that are in no run.
pub struct PendingRecords {
    no: RangeNo,
    /// of tails
    schema: Arc<StorageSchema>,
    columns_max: usize,
    /// of inserted rows
    inserted: Option<Arc<StorageSchema>>,
    merged_through: CommitTs,
    pages: Vec<Arc<RecordPage>>,
    /// by slot, then in run order
    found: Vec<PendingRecord>,
}

/// A record that was found.
struct PendingRecord {
    ts: CommitTs,
    /// among the pages
    page: u32,
    /// in the page
    i: u32,
    /// in the range
    slot: u16,
    kind: RunRecordKind,
}

impl PendingRecord {
    /// Within a row changes come first, newest first as they are found, and old values last.
    fn order(&self) -> (u16, u8) {
        let part = match self.kind {
            RunRecordKind::Update | RunRecordKind::Delete => 0,
            RunRecordKind::Insert => 1,
            RunRecordKind::OldValue => 2,
        };
        (self.slot, part)
    }
}

impl Lineage {
    /// The records of range `no` committed at or before `through` that are in no run.
    /// `with_inserts`: also inserted rows of an insert range. `columns_max`: as for
    /// [`Lineage::merge_range`]; old values of columns beyond it are left out.
    pub fn pending_records(
        &self,
        no: RangeNo,
        version: &RangeVersion,
        through: CommitTs,
        with_inserts: bool,
        columns_max: usize,
    ) -> PendingRecords {
        let mut pending = PendingRecords {
            no,
            schema: self.schema(),
            columns_max,
            inserted: None,
            merged_through: version.base.merged_through(),
            pages: Vec::new(),
            found: Vec::new(),
        };
        for (at, tail) in version.tails.iter().enumerate() {
            if let Some(tail) = tail {
                self.find_in_tail(at * UPDATE_ROWS, tail, through, &mut pending);
            }
        }
        if with_inserts && let BaseBody::Insert(inserted) = &version.base.body {
            self.find_inserts(inserted, through, &mut pending);
            pending.inserted = Some(inserted.schema().clone());
        }
        pending.found.sort_by_key(PendingRecord::order);
        pending
    }

    fn find_in_tail(
        &self,
        first_slot: usize,
        tail: &Tail,
        through: CommitTs,
        pending: &mut PendingRecords,
    ) {
        let from = tail.persisted_through();
        let before = pending.found.len();
        let mut has_changes = false;
        for page in tail.pages().iter().rev() {
            let number = pending.number_of(page);
            for i in (0..page.claimed()).rev() {
                // The state first: only of a published record the rest may be looked at.
                let state = record_state(page, i, StartWord(0), &self.shared.txns);
                let RecordState::Committed(ts) = state else {
                    continue;
                };
                let (slot, kind) = page.slot_kind(i);
                let is_pending = ts.0 > from && ts <= through;
                let kind = match kind {
                    RecordKind::OldValue => RunRecordKind::OldValue,
                    RecordKind::Update if is_pending => RunRecordKind::Update,
                    RecordKind::Delete if is_pending => RunRecordKind::Delete,
                    RecordKind::Update
                    | RecordKind::Delete
                    | RecordKind::Lock
                    | RecordKind::ShareLock => continue,
                };
                has_changes |= kind != RunRecordKind::OldValue;
                pending.found.push(PendingRecord {
                    ts,
                    page: number,
                    i,
                    slot: first_slot as u16 + slot,
                    kind,
                });
            }
        }
        if !has_changes {
            pending.found.truncate(before);
        }
    }

    fn find_inserts(
        &self,
        inserted: &InsertRange,
        through: CommitTs,
        pending: &mut PendingRecords,
    ) {
        let from = inserted.persisted_through();
        for slot in 0..inserted.rows() {
            let Some((page, i)) = inserted.existing_page(slot as usize) else {
                continue;
            };
            let state = record_state(page, i, StartWord(0), &self.shared.txns);
            if let RecordState::Committed(ts) = state
                && ts.0 > from
                && ts <= through
            {
                let page = pending.number_of(page);
                pending.found.push(PendingRecord {
                    ts,
                    page,
                    i,
                    slot: slot as u16,
                    kind: RunRecordKind::Insert,
                });
            }
        }
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

impl PendingRecords {
    /// A page's number. Consecutive records are mostly of one page.
    fn number_of(&mut self, page: &Arc<RecordPage>) -> u32 {
        if self
            .pages
            .last()
            .is_none_or(|last| !Arc::ptr_eq(last, page))
        {
            self.pages.push(page.clone());
        }
        self.pages.len() as u32 - 1
    }

    /// Passes the records to `push` in run order. Versions that no moment of `horizon` sees are
    /// folded into the next ones.
    pub fn each(
        &self,
        horizon: &Horizon,
        mut push: impl FnMut(RunRecord) -> Result<()>,
    ) -> Result<()> {
        for found in self.found.chunk_by(|a, b| a.slot == b.slot) {
            let has_changes = found.first().is_some_and(|newest| newest.order().1 == 0);
            let is_wanted = |f: &&PendingRecord| f.kind != RunRecordKind::OldValue || has_changes;
            let mut row = RowRewrite::new(horizon, self.merged_through);
            for record in found.iter().filter(is_wanted) {
                row.push(self.read(record)?, &mut push)?;
            }
            row.finish(&mut push)?;
        }
        Ok(())
    }

    fn read(&self, found: &PendingRecord) -> Result<RunRecord> {
        Ok(RunRecord {
            row: RowId::new(self.no, found.slot),
            ts: found.ts,
            kind: found.kind,
            columns: self.values(found)?,
        })
    }

    fn values(&self, found: &PendingRecord) -> Result<Vec<(ColumnId, Value)>> {
        let page = &self.pages[found.page as usize];
        let value = |(column, spec)| Ok((column, page.value(found.i, column, spec)?));
        match &self.inserted {
            Some(schema) if found.kind == RunRecordKind::Insert => {
                schema.iter().map(value).collect()
            }
            _ => {
                let columns = page.columns_of(found.i);
                let kept = columns.filter(|column| (column.0 as usize) < self.columns_max);
                kept.map(|column| value((column, self.schema.column(column))))
                    .collect()
            }
        }
    }
}
