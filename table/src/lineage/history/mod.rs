//! Versions that base no longer holds: read from the update runs \[L-Store §4.3\].
//!
//! Differences from the paper: historic tail records are not a separate structure. The runs that
//! checkpoints write anyway are sorted by row and hold every committed record, old-value records
//! included; those at or below a range's `merged_through` are its history.
//!
//! Versions that no moment of the [`Horizon`] sees leave the runs in two ways. Versions at or
//! before the oldest moment are *reduced* to the values it sees, when the oldest run is rewritten.
//! A version between two moments is *thinned out*, whenever a run that has it is written: the next
//! newer record takes on its values, and so is as right for recovery as both were.
//!
//! Tail records are cumulative; records of runs are not: see `repeats`.
//!
//! Invariants:
//! 1. Runs are read and rewritten record by record: memory does not grow with the number of a row's
//!    versions.
//! 2. Runs are disjoint in commit time, and listed newest first: the first record in list order
//!    that has a column has its newest value.

pub mod pending;
mod repeats;
mod rewrite;

pub use rewrite::{Reduction, unite};

use crate::lineage::Lineage;
use crate::lineage::base::BaseBody;
use crate::lineage::range::Range;
use crate::update_run::{Run, RunRecord};
use std::collections::BTreeSet;
use std::sync::Arc;
use strandline_base::{ColumnId, CommitTs, Result, RowId, UPDATE_ROWS};
use strandline_storage::run::RunMerge;

/// Bytes of a run that are read together.
const READ_BYTES: u64 = 256 << 10;

impl Lineage {
    /// Visits the records of rows `from..to` committed at or before `ts`, by row, newest first;
    /// old-value records last. Records that several runs hold come once.
    pub fn visit_history(
        &self,
        (from, to): (RowId, RowId),
        ts: CommitTs,
        mut visit: impl FnMut(RunRecord) -> Result<()>,
    ) -> Result<()> {
        let runs = self.runs();
        let may_have =
            |run: &&Arc<Run>| run.min_ts() <= ts && run.max_row() >= from && run.min_row() < to;
        let mut merge = RunMerge::new(runs.iter().filter(may_have), &(from..to), READ_BYTES);
        while let Some(record) = merge.next_record()? {
            if record.ts <= ts {
                visit(record)?;
            }
        }
        Ok(())
    }

    /// The records that [`Lineage::visit_history`] visits.
    pub fn history_records(&self, from: RowId, to: RowId, ts: CommitTs) -> Result<Vec<RunRecord>> {
        let mut records = Vec::new();
        self.visit_history((from, to), ts, |record| {
            records.push(record);
            Ok(())
        })?;
        Ok(records)
    }

    /// The rows of a range that had an update of any of `columns`, as far as anything kept shows.
    pub fn rows_with_updates_of(
        &self,
        range: &Range,
        columns: &[ColumnId],
    ) -> Result<BTreeSet<RowId>> {
        let version = range.load_full();
        let mut rows = BTreeSet::new();
        if let BaseBody::Chunks(chunks) = &version.base.body
            && let Some(meta) = &chunks.meta
        {
            let meta = meta.load()?;
            for bits in columns.iter().filter_map(|c| meta.updated.get(c)) {
                rows.extend(bits.iter().map(|slot| RowId::new(range.no(), slot as u16)));
            }
        }
        for (at, tail) in version.tails.iter().enumerate() {
            let Some(tail) = tail else { continue };
            for page in tail.pages().iter() {
                for i in 0..page.claimed() {
                    if columns.iter().any(|c| page.has(i, *c)) {
                        let slot = at * UPDATE_ROWS + usize::from(page.slot_kind(i).0);
                        rows.insert(RowId::new(range.no(), slot as u16));
                    }
                }
            }
        }
        Ok(rows)
    }
}

#[cfg(test)]
mod tests;
