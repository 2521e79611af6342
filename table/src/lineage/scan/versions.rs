//! All versions that a range's rows had in an interval of time, row by row in row-id order, the
//! versions of a row oldest first.
//!
//! A range is prepared once, as the interval's beginning sees it; most rows have one version, the
//! one in that snapshot. Only a row that changed later is followed further: its records are applied
//! one after the other, first from the runs, up to the lineage of the base's row metadata, then
//! from the tail.
//!
//! Invariants:
//! 1. Everything is read from one range version, and the runs are listed after it was loaded: a
//!    record up to the lineage of the row metadata is in a run, whatever columns lag, and a later
//!    one in a tail. So each record is taken from exactly one of the two places.
//! 2. Memory is bounded by a window of rows, [`GROUP_ROWS`] rows' history, and the versions of one
//!    row.

use crate::lineage::Lineage;
use crate::lineage::base::row_meta::{NEVER, RowMeta};
use crate::lineage::base::{BaseBody, ChunkBase};
use crate::lineage::range::{Range, RangeVersion};
use crate::lineage::scan::{RangePart, RangeSnapshot};
use crate::update_run::{RunRecord, RunRecordKind};
use arrow_array::{Array, ArrayRef, BooleanArray};
use arrow_select::interleave::interleave;
use std::ops::Range as Span;
use std::sync::Arc;
use strandline_base::{
    BLOCK_ROWS, ColumnId, CommitTs, Error, RangeNo, Result, RowId, UPDATE_ROWS, Value,
};
use strandline_column::types::{array_of, value_at};
use strandline_tail::record_page::{RecordKind, RecordPage};
use strandline_tail::row_map::Entry;
use strandline_tail::schema::StorageSchema;
use strandline_tail::tail_pages::locate;
use strandline_tail::visibility::{RecordState, record_state, resolve};
use strandline_txn::{StartWord, Visibility};

/// Rows that are decoded together.
const WINDOW_ROWS: usize = 2 * BLOCK_ROWS;
/// Rows whose history is read together.
const GROUP_ROWS: usize = 512;
/// So many versions that are no base rows end a batch.
const CHANGED_MAX: usize = 8192;

/// Which versions are wanted. All bounds are inclusive.
#[derive(Clone, Copy, Debug)]
pub struct VersionInterval {
    /// moment of the first versions; versions that ended at or before it are left out
    pub from: CommitTs,
    /// versions that began later are left out
    pub through: CommitTs,
    /// the snapshot: later commits are invisible, also as ends of versions. At least `through`
    pub seen: CommitTs,
}

/// Several versions, one per row.
pub struct VersionRows {
    /// the wanted columns
    pub columns: Vec<ArrayRef>,
    /// when each version began
    pub from: Vec<CommitTs>,
    /// when it ended; None: it had not by the snapshot
    pub to: Vec<Option<CommitTs>>,
}

/// The versions of a range's rows, to be taken in batches.
pub struct RangeVersions {
    lineage: Arc<Lineage>,
    no: RangeNo,
    version: Arc<RangeVersion>,
    interval: VersionInterval,
    columns: Arc<[ColumnId]>,
    schema: Arc<StorageSchema>,
    snapshot: RangeSnapshot,
    times: RowTimes,
    window: Option<Window>,
    next_row: usize,
    /// history records of the rows of one group, by row, newest first
    history: Vec<RunRecord>,
    history_of: Span<usize>,
}

/// When base's rows began and were last changed.
enum RowTimes {
    Inserted,
    Uniform(CommitTs),
    Each(Arc<RowMeta>),
}

/// The rows that are decoded.
struct Window {
    span: Span<usize>,
    arrays: Vec<ArrayRef>,
    /// None: all
    visible: Option<BooleanArray>,
}

/// A batch under construction.
#[derive(Default)]
struct Batch {
    /// (0, row of the window) or (1, row of `changed`)
    places: Vec<(usize, usize)>,
    /// by column
    changed: Vec<Vec<Value>>,
    changed_rows: usize,
    from: Vec<CommitTs>,
    to: Vec<Option<CommitTs>>,
}

/// A change of a row at one moment.
struct Change {
    ts: CommitTs,
    ends: bool,
    /// by position in the wanted columns
    set: Vec<(usize, Value)>,
}

/// A row's newest version so far.
struct Current {
    values: Vec<Value>,
    from: CommitTs,
}

impl Lineage {
    /// Prepares `range` for giving the versions of its rows from slot `next_row` on in `interval`.
    /// The caller holds snapshots at `interval.from` and `interval.seen`, and the history between.
    pub fn range_versions(
        self: &Arc<Self>,
        range: &Arc<Range>,
        interval: VersionInterval,
        columns: &Arc<[ColumnId]>,
        next_row: usize,
    ) -> Result<RangeVersions> {
        let version = range.load_full();
        let (times, at) = self.row_times(&version, &interval)?;
        let visibility = Visibility {
            ts: at,
            own: StartWord(0),
            statement: 0,
        };
        let snapshot =
            self.range_snapshot_of(range, &version, &visibility, columns, &Arc::default())?;
        Ok(RangeVersions {
            lineage: self.clone(),
            no: range.no(),
            version,
            interval,
            columns: columns.clone(),
            schema: self.schema(),
            snapshot,
            times,
            window: None,
            next_row,
            history: Vec::new(),
            history_of: 0..0,
        })
    }

    /// When the rows in base began, and the moment to prepare the range at: the interval's
    /// beginning, unless the whole range came to be later.
    fn row_times(
        &self,
        version: &RangeVersion,
        interval: &VersionInterval,
    ) -> Result<(RowTimes, CommitTs)> {
        let chunks: &ChunkBase = match &version.base.body {
            BaseBody::Insert(_) => return Ok((RowTimes::Inserted, interval.from)),
            BaseBody::Chunks(chunks) => chunks,
        };
        if let Some(meta) = &chunks.meta {
            return Ok((RowTimes::Each(meta.load()?), interval.from));
        }
        let state = resolve(|| chunks.start.load(), StartWord(0), &self.shared.txns);
        Ok(match state {
            RecordState::Committed(start) if start <= interval.through => {
                (RowTimes::Uniform(start), start.max(interval.from))
            }
            // Nothing of it is seen at the interval's beginning, nor later.
            _ => (RowTimes::Uniform(CommitTs(NEVER)), interval.from),
        })
    }
}

impl RangeVersions {
    /// The first slot whose versions [`RangeVersions::next_rows`] has not given.
    pub fn next_row(&self) -> usize {
        self.next_row
    }

    /// The next versions; None at the end. A batch may be empty.
    pub fn next_rows(&mut self) -> Result<Option<VersionRows>> {
        if self.next_row >= self.snapshot.rows() {
            return Ok(None);
        }
        let window = match self.window.take() {
            Some(window) => window,
            None => self.decode()?,
        };
        let mut batch = Batch {
            changed: vec![Vec::new(); self.columns.len()],
            ..Batch::default()
        };
        while self.next_row < window.span.end && batch.changed_rows < CHANGED_MAX {
            self.row(self.next_row, &window, &mut batch)?;
            self.next_row += 1;
        }
        let rows = self.finish(&window, batch)?;
        self.window = (self.next_row < window.span.end).then_some(window);
        Ok(Some(rows))
    }

    fn decode(&self) -> Result<Window> {
        // A reader that goes on may stand within a block.
        let first = self.next_row / BLOCK_ROWS * BLOCK_ROWS;
        let end = (first + WINDOW_ROWS).min(self.snapshot.rows());
        let part: RangePart<'_> = self.snapshot.part(first..end);
        let columns = 0..self.columns.len();
        Ok(Window {
            span: part.span(),
            arrays: columns.map(|at| part.column(at)).collect::<Result<_>>()?,
            visible: part.visible(),
        })
    }

    /// When the row in `slot` began and was last changed as base knows it; None: no row that the
    /// interval could see.
    fn base_times(&self, slot: usize) -> Option<(CommitTs, CommitTs)> {
        let (start, last_updated) = match (&self.times, &self.version.base.body) {
            (RowTimes::Uniform(start), _) => (start.0, 0),
            (RowTimes::Each(meta), _) => (meta.starts[slot], meta.last_updated[slot]),
            (RowTimes::Inserted, BaseBody::Insert(rows)) => {
                let (page, i) = rows.existing_page(slot)?;
                (self.committed(page, i)?.0, 0)
            }
            (RowTimes::Inserted, BaseBody::Chunks(_)) => return None,
        };
        let exists = start != NEVER && start <= self.interval.through.0;
        exists.then_some((CommitTs(start), CommitTs(last_updated)))
    }

    fn committed(&self, page: &RecordPage, i: u32) -> Option<CommitTs> {
        match record_state(page, i, StartWord(0), &self.lineage.shared.txns) {
            RecordState::Committed(ts) => Some(ts),
            RecordState::Nothing
            | RecordState::Own
            | RecordState::InProgress(_)
            | RecordState::PreCommitted(..) => None,
        }
    }

    fn row(&mut self, slot: usize, window: &Window, batch: &mut Batch) -> Result<()> {
        let Some((start, last_updated)) = self.base_times(slot) else {
            return Ok(());
        };
        let at = slot - window.span.start;
        let is_visible = window.visible.as_ref().is_none_or(|v| v.value(at));
        let began_later = start > self.interval.from;
        if !is_visible && !began_later {
            return Ok(()); // it had ended
        }
        let base_is_newer = last_updated > self.interval.from;
        if !base_is_newer && self.entry(slot) == Entry::NONE {
            batch.push_base(at, start.max(last_updated));
            return Ok(());
        }
        let mut old_values = Vec::new();
        let mut changes = match base_is_newer {
            true => self.history_changes(slot, &mut old_values)?,
            false => Vec::new(),
        };
        self.tail_changes(slot, &mut changes)?;
        let first = start.max(self.interval.from);
        let later = changes.partition_point(|change| change.ts <= first);
        if !began_later && later == changes.len() {
            let newest = changes.iter().map(|change| change.ts).max();
            batch.push_base(
                at,
                newest
                    .unwrap_or(start)
                    .max(last_updated_by(last_updated, first)),
            );
            return Ok(());
        }
        let mut current = Current {
            values: window.values(at, &self.columns, &self.schema),
            from: start,
        };
        if began_later {
            // The window has base's values, which may be newer.
            old_values
                .into_iter()
                .for_each(|(at, value)| current.values[at] = value);
        }
        let known = changes.drain(..later).collect::<Vec<_>>();
        let mut is_there = true;
        for change in known {
            if began_later {
                is_there &= !change.ends;
                current.set(change.set);
            }
            current.from = current.from.max(change.ts);
        }
        current.from = current.from.max(last_updated_by(last_updated, first));
        if is_there {
            self.follow(current, changes, batch);
        }
        Ok(())
    }

    /// Returns the version in `current`, and the versions that follow from `changes`.
    fn follow(&self, mut current: Current, changes: Vec<Change>, batch: &mut Batch) {
        let mut changes = changes.into_iter().peekable();
        while let Some(next) = changes.next() {
            let (ts, mut ends) = (next.ts, next.ends);
            batch.push_changed(&current, Some(ts));
            current.set(next.set);
            while let Some(same) = changes.next_if(|change| change.ts == ts) {
                ends |= same.ends;
                current.set(same.set);
            }
            current.from = ts;
            if ends || ts > self.interval.through {
                return;
            }
        }
        batch.push_changed(&current, None);
    }

    /// The newest tail record of a row.
    fn entry(&self, slot: usize) -> Entry {
        match &self.version.tails[slot / UPDATE_ROWS] {
            Some(tail) => tail.row_map().entry(slot % UPDATE_ROWS),
            None => Entry::NONE,
        }
    }

    /// Adds the changes that base does not have, oldest first.
    fn tail_changes(&self, slot: usize, changes: &mut Vec<Change>) -> Result<()> {
        let Some(tail) = &self.version.tails[slot / UPDATE_ROWS] else {
            return Ok(());
        };
        let merged_through = self.version.base.merged().rows();
        let first = changes.len();
        let entry = self.entry(slot);
        let pages = tail.pages();
        let mut next = pages.head(entry);
        while next != 0 {
            let Some((page, i)) = locate(&pages, next - 1) else {
                break;
            };
            next = page.back(i);
            let Some(ts) = self.committed(page, i) else {
                continue;
            };
            let kind = page.slot_kind(i).1;
            let is_change = matches!(kind, RecordKind::Update | RecordKind::Delete);
            if !is_change || ts > self.interval.seen {
                continue;
            }
            if ts <= merged_through {
                break; // the older ones as well
            }
            let mut set = Vec::new();
            for (at, &column) in self.columns.iter().enumerate() {
                if page.has(i, column) {
                    set.push((at, page.value(i, column, self.schema.column(column))?));
                }
            }
            let ends = kind == RecordKind::Delete;
            changes.push(Change { ts, ends, set });
            if ts <= self.interval.from {
                break; // the window has the values of older ones
            }
        }
        changes[first..].reverse();
        Ok(())
    }

    /// The changes that base has, oldest first. The values before the first of them go to
    /// `old_values`.
    fn history_changes(
        &mut self,
        slot: usize,
        old_values: &mut Vec<(usize, Value)>,
    ) -> Result<Vec<Change>> {
        self.load_history(slot)?;
        let row = RowId::new(self.no, slot as u16);
        let first = self.history.partition_point(|record| record.row < row);
        let records = self.history[first..].iter().take_while(|r| r.row == row);
        let mut changes = Vec::new();
        for record in records {
            let wanted = |(column, value): &(ColumnId, Value)| {
                let at = self.columns.iter().position(|c| c == column)?;
                Some((at, value.clone()))
            };
            let set: Vec<_> = record.columns.iter().filter_map(wanted).collect();
            if record.kind == RunRecordKind::OldValue {
                // What compaction made of older versions tells when the last of them began.
                old_values.extend(set);
                changes.push(Change {
                    ts: record.ts,
                    ends: false,
                    set: Vec::new(),
                });
                continue;
            }
            let ends = record.kind == RunRecordKind::Delete;
            changes.push(Change {
                ts: record.ts,
                ends,
                set,
            });
        }
        // Newest first and old values last is almost the opposite order.
        changes.reverse();
        changes.sort_by_key(|change| change.ts);
        Ok(changes)
    }

    /// Reads the history of the group that `slot` is in.
    fn load_history(&mut self, slot: usize) -> Result<()> {
        if self.history_of.contains(&slot) {
            return Ok(());
        }
        let first = slot / GROUP_ROWS * GROUP_ROWS;
        let from = RowId::new(self.no, first as u16);
        let to = RowId(from.0 + GROUP_ROWS as u64);
        let known = self.version.base.merged().rows().min(self.interval.seen);
        self.history = self.lineage.history_records(from, to, known)?;
        self.history_of = first..first + GROUP_ROWS;
        Ok(())
    }

    fn finish(&self, window: &Window, batch: Batch) -> Result<VersionRows> {
        let mut columns = Vec::with_capacity(self.columns.len());
        for (at, values) in batch.changed.iter().enumerate() {
            let base = &window.arrays[at];
            let is_whole = batch.changed_rows == 0 && batch.places.len() == base.len();
            if is_whole {
                columns.push(base.clone());
                continue;
            }
            let spec = self.schema.column(self.columns[at]);
            let changed = array_of(spec.sql_type, values)?;
            let sources: [&dyn Array; 2] = [base.as_ref(), changed.as_ref()];
            let joined = interleave(&sources, &batch.places);
            columns.push(joined.map_err(|e| Error::internal(format!("joining versions: {e}")))?);
        }
        Ok(VersionRows {
            columns,
            from: batch.from,
            to: batch.to,
        })
    }
}

/// A row's last update if it was not later than `first`.
fn last_updated_by(last_updated: CommitTs, first: CommitTs) -> CommitTs {
    if last_updated <= first {
        last_updated
    } else {
        CommitTs::ZERO
    }
}

impl Window {
    fn values(&self, at: usize, columns: &[ColumnId], schema: &StorageSchema) -> Vec<Value> {
        let value = |(column, array): (&ColumnId, &ArrayRef)| {
            value_at(schema.column(*column).sql_type, array, at)
        };
        columns.iter().zip(&self.arrays).map(value).collect()
    }
}

impl Current {
    fn set(&mut self, values: Vec<(usize, Value)>) {
        for (at, value) in values {
            self.values[at] = value;
        }
    }
}

impl Batch {
    /// A version that has not ended, with the window's values.
    fn push_base(&mut self, row: usize, from: CommitTs) {
        self.places.push((0, row));
        self.from.push(from);
        self.to.push(None);
    }

    fn push_changed(&mut self, version: &Current, to: Option<CommitTs>) {
        if to == Some(version.from) {
            return; // nobody ever saw it
        }
        for (column, value) in self.changed.iter_mut().zip(&version.values) {
            column.push(value.clone());
        }
        self.places.push((1, self.changed_rows));
        self.changed_rows += 1;
        self.from.push(version.from);
        self.to.push(to);
    }
}
