//! The k-way merge of runs, row by row.

use super::{Run, RunCodec, RunCursor};
use std::sync::Arc;
use strandline_base::{Result, RowId};

/// Merges the records of several runs in row order. A block of each run and the records of one row
/// are in memory.
#[derive(Debug)]
#[doc(alias = "k_way_merge")]
pub struct RowMerge<'a, C: RunCodec> {
    cursors: Vec<RunCursor<'a, C>>,
}

impl<'a, C: RunCodec> RowMerge<'a, C> {
    /// A merge before the first row of `runs`.
    pub fn new(runs: &'a [Arc<Run<C>>]) -> Self {
        let cursors = runs.iter().map(|run| run.cursor()).collect();
        Self { cursors }
    }

    /// The next row, whose records are appended to `out` run by run; `None` after the last.
    ///
    /// # Errors
    /// The errors of [`Run::records`].
    pub fn next_row(&mut self, out: &mut Vec<C::Record>) -> Result<Option<RowId>> {
        let mut row: Option<RowId> = None;
        for cursor in &mut self.cursors {
            let next = cursor.row()?;
            row = row.into_iter().chain(next).min();
        }
        if let Some(row) = row {
            for cursor in &mut self.cursors {
                cursor.take_row(row, out)?;
            }
        }
        Ok(row)
    }
}
