//! Folding a range whose base is newer than the snapshot: the visible rows, and the base values
//! that older or newer ones replace \[L-Store §4.1.1 steps 1 and 3, §4.3\].
//!
//! Tail records are visited newest first, the first visible record of a row that has a column gives
//! its value. Rows whose base is newer than the snapshot take the values still missing from
//! history.

use crate::lineage::Lineage;
use crate::lineage::base::row_meta::{NEVER, RowMeta};
use crate::lineage::base::row_set::RowBits;
use crate::lineage::range::RangeVersion;
use crate::update_run::RunRecordKind;
use std::ops::Range as Span;
use std::sync::Arc;
use strandline_base::cell::Cell;
use strandline_base::cell::StorageColumn;
use strandline_base::{ColumnId, RangeNo, Result, RowId, UPDATE_ROWS, Value};
use strandline_column::buffer::cell_of;
use strandline_tail::record_page::{RecordKind, RecordPage};
use strandline_tail::tail::Tail;
use strandline_tail::visibility::sees_record;
use strandline_txn::Visibility;

/// Where a patch's value is: record `index` of page `page` of the fold, or, if `page` is
/// [`HISTORY`], value `index` of the fold's history values.
#[derive(Clone, Copy, Debug)]
struct Source {
    page: u32,
    index: u32,
}

const HISTORY: u32 = u32::MAX;

/// A range as a snapshot sees it, relative to its base.
pub struct Fold {
    /// slots to look at
    pub rows: usize,
    /// None: every slot holds a visible row; else the visible slots
    pub visible: Option<RowBits>,
    /// tail records that were visited and seen
    pub records: u64,
    /// history records that were used
    pub history: u64,
    columns: Vec<ColumnId>,
    pages: Vec<Arc<RecordPage>>,
    history_values: Vec<Value>,
    /// by position in the wanted columns
    patches: Vec<Vec<(u16, Source)>>,
}

impl Fold {
    /// The patches of the `at`-th wanted column in `span`: rows in it and values, each row once.
    pub fn patches<'a>(
        &'a self,
        at: usize,
        spec: &'a StorageColumn,
        span: Span<usize>,
    ) -> impl Iterator<Item = (usize, Cell<'a>)> {
        let all = &self.patches[at];
        let place = |row: usize| all.partition_point(|(slot, _)| usize::from(*slot) < row);
        let inside = &all[place(span.start)..place(span.end)];
        inside.iter().map(move |&(slot, source)| {
            let cell = match source.page {
                HISTORY => cell_of(spec, &self.history_values[source.index as usize]),
                page => self.pages[page as usize].cell(source.index, self.columns[at]),
            };
            (usize::from(slot) - span.start, cell)
        })
    }
    /// Whether base alone gives the `at`-th column.
    pub fn is_unpatched(&self, at: usize) -> bool {
        self.patches[at].is_empty()
    }
}

struct Folding<'a> {
    lineage: &'a Lineage,
    visibility: &'a Visibility,
    columns: &'a [ColumnId],
    seen: Vec<RowBits>,
    fold: Fold,
}

impl Lineage {
    /// Folds range `no` in `version` at `visibility`, for `columns`. `meta` is that of its `rows`
    /// rows in base.
    pub(crate) fn fold(
        &self,
        no: RangeNo,
        version: &RangeVersion,
        rows: usize,
        meta: &RowMeta,
        visibility: &Visibility,
        columns: &[ColumnId],
    ) -> Result<Fold> {
        let fold = Fold {
            rows,
            visible: None,
            records: 0,
            history: 0,
            columns: columns.to_vec(),
            pages: Vec::new(),
            history_values: Vec::new(),
            patches: vec![Vec::new(); columns.len()],
        };
        let mut folding = Folding {
            lineage: self,
            visibility,
            columns,
            seen: Vec::new(),
            fold,
        };
        folding.rows(no, version, rows, meta)?;
        Ok(folding.fold)
    }
}

impl Folding<'_> {
    fn rows(
        &mut self,
        no: RangeNo,
        version: &RangeVersion,
        rows: usize,
        meta: &RowMeta,
    ) -> Result<()> {
        let ts = self.visibility.ts.0;
        let mut newer = Vec::new();
        let mut visible = RowBits::new(rows);
        let times = meta.starts.iter().zip(meta.last_updated.iter());
        for (slot, (start, last_updated)) in times.enumerate().take(rows) {
            if start == NEVER || start > ts {
                continue;
            }
            let is_newer = last_updated > ts;
            if is_newer {
                newer.push(slot as u16);
            }
            if is_newer || !meta.deleted.get(slot) {
                visible.set(slot);
            }
        }
        self.fold.visible = Some(visible);
        self.tails(version);
        if !newer.is_empty() {
            self.history(no, &newer)?;
        }
        for patches in &mut self.fold.patches {
            patches.sort_unstable_by_key(|(slot, _)| *slot);
        }
        Ok(())
    }

    /// Visits all pending records, newest first.
    fn tails(&mut self, version: &RangeVersion) {
        for (at, tail) in version.tails.iter().enumerate() {
            if let Some(tail) = tail {
                self.tail(at * UPDATE_ROWS, tail);
            }
        }
    }

    fn tail(&mut self, first_slot: usize, tail: &Tail) {
        let pages = tail.pages();
        let mut wanted = Vec::with_capacity(self.columns.len());
        for page in pages.iter().rev() {
            wanted.clear();
            wanted.extend((0..self.columns.len()).filter(|at| page.has_cells(self.columns[*at])));
            if !wanted.is_empty() || page.has_deletes() {
                self.page(first_slot, page, &wanted);
            }
        }
    }

    /// Visits the records of one page, newest first. `wanted`: the positions of the columns that
    /// the page has any value of.
    fn page(&mut self, first_slot: usize, page: &Arc<RecordPage>, wanted: &[usize]) {
        let page_no = self.fold.pages.len() as u32;
        self.fold.pages.push(page.clone());
        let rows = self.fold.rows;
        if !wanted.is_empty() && self.seen.is_empty() {
            self.seen = vec![RowBits::new(rows); self.columns.len()];
        }
        for i in (0..page.claimed()).rev() {
            if !sees_record(page, i, self.visibility, &self.lineage.shared.txns) {
                continue;
            }
            self.fold.records += 1;
            let (slot, kind) = page.slot_kind(i);
            let slot = first_slot + usize::from(slot);
            if slot >= rows {
                continue; // a row newer than this fold's base
            }
            if kind == RecordKind::Delete {
                self.delete(slot);
                continue;
            }
            for &at in wanted {
                if page.has(i, self.columns[at]) && !self.seen[at].set(slot) {
                    let source = Source {
                        page: page_no,
                        index: i,
                    };
                    self.fold.patches[at].push((slot as u16, source));
                }
            }
        }
    }

    /// Marks the value of (column, slot) as known; whether it was before.
    fn set_seen(&mut self, at: usize, slot: usize) -> bool {
        if self.seen.is_empty() {
            self.seen = vec![RowBits::new(self.fold.rows.max(slot + 1)); self.columns.len()];
        }
        if slot >= self.fold.rows {
            return true; // a row newer than this fold's base
        }
        self.seen[at].set(slot)
    }

    fn delete(&mut self, slot: usize) {
        let rows = self.fold.rows;
        if slot < rows {
            self.fold
                .visible
                .get_or_insert_with(|| RowBits::all(rows))
                .clear(slot);
        }
    }

    /// Takes values from the runs for the rows whose base is too new. `newer` is in slot order.
    fn history(&mut self, no: RangeNo, newer: &[u16]) -> Result<()> {
        let (Some(&first), Some(&last)) = (newer.first(), newer.last()) else {
            return Ok(());
        };
        let end = RowId(RowId::new(no, last).0 + 1);
        let (lineage, ts) = (self.lineage, self.visibility.ts);
        lineage.visit_history((RowId::new(no, first), end), ts, |record| {
            let slot = record.row.slot();
            if newer.binary_search(&(slot as u16)).is_err() {
                return Ok(());
            }
            self.fold.history += 1;
            match record.kind {
                RunRecordKind::Delete => self.delete(slot),
                RunRecordKind::Insert | RunRecordKind::Update | RunRecordKind::OldValue => {}
            }
            for (column, value) in record.columns {
                let Some(at) = self.columns.iter().position(|&c| c == column) else {
                    continue;
                };
                if !self.set_seen(at, slot) {
                    let index = self.fold.history_values.len() as u32;
                    self.fold.history_values.push(value);
                    let source = Source {
                        page: HISTORY,
                        index,
                    };
                    self.fold.patches[at].push((slot as u16, source));
                }
            }
            Ok(())
        })
    }
}
