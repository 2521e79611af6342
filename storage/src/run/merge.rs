//! The k-way merge of runs, record by record.

use super::{Run, RunCodec, RunCursor, RunItem};
use std::ops::Range;
use std::sync::Arc;
use strandline_base::{Result, RowId};

/// Merges the records of several runs in run order. A block and a decoded group of each run are in
/// memory, however many records a row has. A record that several runs hold comes once.
#[derive(Debug)]
#[doc(alias = "k_way_merge")]
pub struct RunMerge<'a, C: RunCodec> {
    cursors: Vec<RunCursor<'a, C>>,
}

impl<'a, C: RunCodec> RunMerge<'a, C> {
    /// Before the first record of the rows in `rows`. Of records whose order is the same, those of
    /// earlier runs come first. `read_bytes`: as for [`Run::cursor`].
    pub fn new(
        runs: impl IntoIterator<Item = &'a Arc<Run<C>>>,
        rows: &Range<RowId>,
        read_bytes: u64,
    ) -> Self {
        let runs = runs.into_iter();
        Self {
            cursors: runs
                .map(|run| run.cursor(rows.clone(), read_bytes))
                .collect(),
        }
    }

    /// The next record; `None` after the last.
    ///
    /// # Errors
    /// The errors of [`Run::records`].
    pub fn next_record(&mut self) -> Result<Option<C::Record>> {
        let mut least: Option<usize> = None;
        for at in 0..self.cursors.len() {
            if self.cursors[at].peek()?.is_none() {
                continue;
            }
            // A cursor keeps the head that was found by peeking.
            let head = |at: usize| self.cursors[at].head();
            let is_less = |least: usize| match (head(least), head(at)) {
                (Some(least), Some(record)) => !least.may_precede(record),
                _ => true,
            };
            if least.is_none_or(is_less) {
                least = Some(at);
            }
        }
        let Some(least) = least else { return Ok(None) };
        let record = self.cursors[least].next_record()?;
        for cursor in &mut self.cursors {
            while cursor.peek()? == record.as_ref() {
                cursor.next_record()?;
            }
        }
        Ok(record)
    }
}
