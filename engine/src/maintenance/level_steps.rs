//! The background work of indexes in levels, steps of the compactions that are under way or due,
//! and of indexes with LIDBlocks, moves of nearly full blocks to the tree: some of each index in
//! turn.
//!
//! A thread of its own does them, since a checkpoint may take long and a writer without room in a
//! head would wait for it. Without background threads they are part of a turn of the maintenance.
//! Writers that owe work do steps themselves (docs/rfcs/3-fd-tree.md), and a writer that meets a
//! full block moves it.
//!
//! A step that fails is told, and tried again after growing pauses. An index whose compaction
//! cannot go on is given up by the next checkpoint, which is asked for.

use crate::catalog::index_file::IndexFile;
use crate::db::set_aside::Work;
use crate::db::{Db, Maintenance};
use crate::maintenance::set_aside::contained;
use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::time::Duration;
use strandline_base::{ErrorKind, Result};

/// Interval of the thread's looks whether a step is due. A head that is half full, or a block that
/// is nearly full, when it is seen has room for the writers meanwhile, or they do steps.
const IDLE: Duration = Duration::from_millis(20);
/// That interval while nobody changes such an index. The first writers do steps themselves.
const IDLE_WITHOUT_CHANGES: Duration = Duration::from_secs(1);

/// The thread: it ends when the database is closed or dropped.
pub(super) fn run(db: &Weak<Db>, maintenance: &Maintenance) {
    let mut seen = 0;
    loop {
        let Some(db) = db.upgrade() else {
            return;
        };
        let is_more_due = db.do_level_steps();
        let changes = db.index_files.changes();
        let idle = match changes != seen {
            true => IDLE,
            false => IDLE_WITHOUT_CHANGES,
        };
        seen = changes;
        drop(db);
        let mut state = maintenance.state.lock();
        if maintenance.closed.load(Ordering::Acquire) {
            return;
        }
        if !is_more_due {
            maintenance.work.wait_for(&mut state, idle);
        }
    }
}

impl Db {
    /// Ends the thread. The database is marked as closed.
    pub(super) fn end_level_steps(&self) {
        let thread = self.maintenance.state.lock().level_steps.take();
        super::join(thread);
    }

    /// Does the steps that are due, unless a thread does so.
    pub(super) fn make_level_steps(&self) {
        if !self.settings.background_maintenance {
            while self.do_level_steps() {}
        }
    }

    /// Some steps of each compaction. Returns whether there are more.
    fn do_level_steps(&self) -> bool {
        let mut is_more_due = false;
        self.index_files.compact(
            &|file| self.is_compaction_pausing(file),
            &mut |file, compact| {
                let outcome = contained(compact);
                is_more_due |= matches!(outcome, Ok(true));
                self.note_compaction(file, outcome.map(|_| ()));
            },
        );
        is_more_due && !self.maintenance.closed.load(Ordering::Acquire)
    }

    fn is_compaction_pausing(&self, file: IndexFile) -> bool {
        if self.set_aside.is_empty() {
            return false;
        }
        let index = self.index_of(file);
        index.is_some_and(|(store, _)| {
            let work = Work::CompactIndex(file);
            self.pausing_failure(&store, work, false).is_some()
        })
    }

    fn note_compaction(&self, file: IndexFile, outcome: Result<()>) {
        if outcome.is_ok() && self.set_aside.is_empty() {
            return;
        }
        let Some((store, _)) = self.index_of(file) else {
            return;
        };
        self.note_work(
            &store,
            Work::CompactIndex(file),
            outcome.as_ref().map(|_| ()),
        );
        if outcome.is_err_and(|failure| failure.kind() != ErrorKind::Unavailable) {
            self.maintenance.want();
        }
    }
}
