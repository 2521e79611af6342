//! Work on one table that failed and is set aside, so that all other work goes on.
//!
//! A checkpoint does three things per table: it merges ranges, unites runs, and writes the
//! committed records that are in no run. Each may fail alone: a damaged block, an unreadable file,
//! a panic. The effects of a failure stay with its table:
//!
//! * *Merge of a range*: the range keeps its base and its tails. Its records go to runs all the
//!   same, so the log is cut.
//! * *Union of runs*: the runs stay as they are.
//! * *Records of a table*: the table stays as of its last checkpoint, and the log is kept from
//!   there.
//!
//! A *sweep of an index* on pages that cannot be read leaves all its entries.
//!
//! Opening a database has two more kinds of such work: restoring a table's rows, and building its
//! indexes. A table that cannot be restored is closed off, and an index that cannot be built is
//! unusable (see `recovery::restore`). Both are tried again by the next open only.
//!
//! A failure is reported once. The work of checkpoints is tried again after growing pauses, by
//! every checkpoint that is asked to merge all, and after the database has been reopened.
//!
//! Memory: the tails of a range that cannot be merged cannot be freed. Up to half the tails' share
//! they count neither as lack of memory nor against writers of other tables. Beyond it, writes to
//! the tables that hold them are refused.

use crate::catalog::TableDef;
use crate::db::Db;
use crate::db::set_aside::{Entry, Work};
use crate::maintenance::key_sweep::is_defined;
use crate::store::Store;
use std::sync::Arc;
use strandline_base::{Error, ErrorKind, RangeNo, Result, StorageId};
use tracing::{error, info};

/// Work that is set aside, for reports.
#[derive(Clone, Debug)]
pub(crate) struct SetAsideWork {
    pub work: Work,
    pub failure: Error,
    /// table, work and failure in one line
    pub line: String,
}

impl Db {
    /// Notes how a piece of a checkpoint's work on `store` ended, and tells when that has changed.
    pub(crate) fn note_work(
        &self,
        store: &Store,
        work: Work,
        outcome: std::result::Result<(), &Error>,
    ) {
        let (storage, set_aside) = (store.id(), &self.set_aside);
        match outcome {
            Ok(()) if set_aside.succeed(storage, work) => {
                info!(table = self.table_name(storage), "{work} works again");
            }
            Ok(()) => {}
            Err(failure) if set_aside.fail(storage, work, failure, self.elapsed_us()) => error!(
                table = self.table_name(storage),
                sqlstate = failure.sqlstate().0,
                "{work} fails and is set aside, to be tried again later: {failure}"
            ),
            Err(_) => {}
        }
    }

    /// Notes what opening the database could not do for a storage.
    pub(crate) fn note_unrestored(&self, storage: StorageId, work: Work, failure: &Error) {
        let now_us = self.elapsed_us();
        if self.set_aside.fail(storage, work, failure, now_us) {
            error!(
                table = self.table_name(storage),
                sqlstate = failure.sqlstate().0,
                "{work} fails, and all other tables go on: {failure}"
            );
        }
    }

    /// The error of whoever reads or writes a storage that could not be restored.
    pub(crate) fn unrestored(&self, storage: StorageId, failure: Error) -> Error {
        let what = format!(
            "table {} could not be restored when the database was opened",
            self.table_name(storage)
        );
        failure.context(what).with_hint(
            "Put the file back and open the database again, or restore a backup; DROP TABLE gives \
             the table up. All other tables work.",
        )
    }

    /// The failure of `work` while it is not to be tried again. `all`: everything is tried.
    pub(crate) fn pausing_failure(&self, store: &Store, work: Work, all: bool) -> Option<Error> {
        let entry = self.set_aside.get(store.id(), work).filter(|_| !all)?;
        let is_pausing = entry.pauses.is_pausing(self.elapsed_us());
        is_pausing.then_some(entry.failure)
    }

    /// Whether the merge of a range is set aside, and if so whether it is to be tried again.
    pub(crate) fn merge_retry(&self, store: &Store, range: RangeNo) -> Option<bool> {
        let entry = self.set_aside.get(store.id(), Work::Merge(range))?;
        Some(!entry.pauses.is_pausing(self.elapsed_us()))
    }

    /// The table that a storage belongs to, in words.
    pub(crate) fn table_name(&self, storage: StorageId) -> String {
        let catalog = self.catalog();
        let name = |t: &Arc<TableDef>| format!("{}.{}", t.schema, t.name);
        let mut tables = catalog.tables.values();
        let found = tables.find(|t| t.storage == storage).map(name);
        found.unwrap_or_else(|| format!("storage {storage} of a table that was dropped"))
    }

    /// The work that is set aside, in the order of storages.
    pub(crate) fn set_aside_work(&self) -> Vec<SetAsideWork> {
        let line = |((storage, work), entry): ((StorageId, Work), Entry)| SetAsideWork {
            work,
            line: format!(
                "{}: {work}: {}",
                self.table_name(storage),
                entry.failure.message()
            ),
            failure: entry.failure,
        };
        let all = self.set_aside.all().into_iter();
        all.filter(|((storage, work), _)| !self.is_over(*storage, *work))
            .map(line)
            .collect()
    }

    /// Whether every index that the work is about has been dropped since.
    fn is_over(&self, storage: StorageId, work: Work) -> bool {
        if !matches!(
            work,
            Work::BuildIndexes | Work::SweepIndex(_) | Work::CompactIndex(_) | Work::MoveIndexes
        ) {
            return false;
        }
        let Ok(store) = self.any_store(storage) else {
            return true;
        };
        if work == Work::MoveIndexes {
            return !self.has_movable_index(&store);
        }
        if let Work::SweepIndex(file) | Work::CompactIndex(file) = work {
            let mut indexes = store.indexes().into_iter();
            return indexes.all(|index| index.file() != Some(file) || !index.is_usable());
        }
        let catalog = self.catalog();
        let table = catalog.tables.values().find(|t| t.storage == storage);
        let mut indexes = store.indexes().into_iter();
        indexes.all(|index| index.is_usable() || !is_defined(&index, table))
    }

    /// Looks how much memory ranges hold that cannot be merged.
    pub(crate) fn measure_set_aside(&self) {
        if self.set_aside.is_empty() {
            self.set_aside.note_held(0);
            return;
        }
        let mut bytes = 0;
        for ((storage, work), _) in self.set_aside.all() {
            if let (Work::Merge(no), Ok(store)) = (work, self.store(storage))
                && let Some(range) = store.range(no)
            {
                bytes += range.memory_bytes();
            }
        }
        self.set_aside.note_held(bytes);
    }

    /// Bytes of record pages above which writers are refused: the tails' own share and the most
    /// that they may borrow, plus the tails of ranges that cannot be merged, up to half the tails'
    /// own share.
    pub(crate) fn tail_limit(&self) -> usize {
        let held = self.set_aside.held_bytes();
        self.settings.tail_bytes_max() + held.min(self.settings.tail_bytes() / 2)
    }

    /// Refuses writes to a table with a range that cannot be merged once such ranges hold more
    /// memory than they may.
    ///
    /// # Errors
    /// The SQLSTATE of the failed merge, naming the table, the range and the cause.
    pub(crate) fn check_mergeable(&self, store: &Store) -> Result<()> {
        let held = self.set_aside.held_bytes();
        if held <= self.settings.tail_bytes() / 2 {
            return Ok(());
        }
        let mut all = self.set_aside.all().into_iter();
        let is_own = |((storage, work), _): &((StorageId, Work), Entry)| {
            *storage == store.id() && matches!(work, Work::Merge(_))
        };
        let Some(((_, work), entry)) = all.find(is_own) else {
            return Ok(());
        };
        Err(Error::new(
            ErrorKind::Unavailable,
            entry.failure.sqlstate(),
            format!(
                "table {} takes no more changes: {work} fails, and what waits for such merges uses \
                 {held} bytes of memory: {}",
                self.table_name(store.id()),
                entry.failure.message()
            ),
        )
        .with_hint(
            "Copy what can be read into another table and drop this one, or restore a backup.",
        ))
    }
}

/// Runs work on one table; a panic of it is an error.
pub(crate) fn contained<R>(work: impl FnOnce() -> Result<R>) -> Result<R> {
    // What the work shares with others are locks, which a panic releases, and memory that only
    // grows: a new run or chunk file is published after it has returned.
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
    outcome.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        let text = text.unwrap_or("without a message");
        Err(Error::internal(format!("background work panicked: {text}")))
    })
}
