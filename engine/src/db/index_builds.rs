//! Builds of secondary indexes in progress, for reports of their progress.

use crate::catalog::index::IndexId;
use crate::db::Db;
use crate::store::index_build::BuildObserver;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use strandline_base::sync::Mutex;
use strandline_base::{Error, ErrorKind, Result, SqlState, TableId};

/// Phase of a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildPhase {
    /// rows are read and added
    Filling,
    /// uniqueness is checked
    Checking,
}

/// The progress of a build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildProgress {
    /// the table
    pub table: TableId,
    /// the index
    pub index: IndexId,
    /// current phase
    pub phase: BuildPhase,
    /// rows to visit, rows without a visible version included
    pub rows_total: u64,
    /// rows processed
    pub rows_done: u64,
}

/// A running build.
pub(crate) struct Build {
    table: TableId,
    index: IndexId,
    phase: AtomicU8,
    rows_total: AtomicU64,
    rows_done: AtomicU64,
    /// its entries are in memory
    takes_memory: bool,
    /// set when its statement is cancelled
    cancel: Arc<AtomicBool>,
}

impl Build {
    pub fn set_phase(&self, phase: BuildPhase) {
        self.phase.store(phase as u8, Ordering::Relaxed);
    }
    fn progress(&self) -> BuildProgress {
        let is_filling = self.phase.load(Ordering::Relaxed) == BuildPhase::Filling as u8;
        BuildProgress {
            table: self.table,
            index: self.index,
            phase: match is_filling {
                true => BuildPhase::Filling,
                false => BuildPhase::Checking,
            },
            rows_total: self.rows_total.load(Ordering::Relaxed),
            rows_done: self.rows_done.load(Ordering::Relaxed),
        }
    }
}

/// The builds under way, and what unfinished ones have left.
#[derive(Default)]
pub(crate) struct IndexBuilds {
    running: Mutex<Vec<Arc<Build>>>,
    /// indexes whose build has failed and whose definition could not be removed yet, since another
    /// transaction holds the table or changes definitions
    left: Mutex<Vec<(TableId, IndexId)>>,
}

impl IndexBuilds {
    /// Keeps an index whose definition is to be removed later.
    pub fn leave(&self, index: (TableId, IndexId)) {
        self.left.lock().push(index);
    }
    /// Takes the indexes whose definitions are to be removed.
    pub fn take_left(&self) -> Vec<(TableId, IndexId)> {
        std::mem::take(&mut *self.left.lock())
    }
}

/// A build that is in the list as long as this value lives.
pub(crate) struct ListedBuild<'a> {
    db: &'a Db,
    pub build: Arc<Build>,
}

impl Drop for ListedBuild<'_> {
    fn drop(&mut self) {
        let mut builds = self.db.index_builds.running.lock();
        builds.retain(|build| !Arc::ptr_eq(build, &self.build));
    }
}

impl BuildObserver for ListedBuild<'_> {
    fn advanced(&self, slots: u64) -> Result<()> {
        self.build.rows_done.fetch_add(slots, Ordering::Relaxed);
        if self.build.cancel.load(Ordering::Relaxed) {
            return Err(strandline_txn::query_cancelled());
        }
        match self.build.takes_memory {
            true => self.db.check_index_memory(),
            false => Ok(()),
        }
    }
    fn is_memory_short(&self) -> bool {
        // What is gathered must not keep writers from entering keys into indexes in memory.
        let used = self.db.shared.pool.taken_bytes().load(Ordering::Relaxed);
        !self.build.takes_memory && used > self.db.settings.index_bytes() / 2
    }
}

impl Db {
    /// The running builds of secondary indexes.
    pub fn index_builds(&self) -> Vec<BuildProgress> {
        let builds = self.index_builds.running.lock();
        builds.iter().map(|build| build.progress()).collect()
    }

    /// Lists a new build over `rows` rows of an index that is in memory or not; `cancel` ends it.
    pub(crate) fn list_build(
        &self,
        (table, index): (TableId, IndexId),
        (rows, takes_memory): (u64, bool),
        cancel: &Arc<AtomicBool>,
    ) -> ListedBuild<'_> {
        let build = Arc::new(Build {
            table,
            index,
            phase: AtomicU8::new(BuildPhase::Filling as u8),
            rows_total: AtomicU64::new(rows),
            rows_done: AtomicU64::new(0),
            takes_memory,
            cancel: cancel.clone(),
        });
        self.index_builds.running.lock().push(build.clone());
        ListedBuild { db: self, build }
    }

    /// 53200 if indexes take so much memory that cached blocks must not lose more of it.
    #[inline]
    pub(crate) fn check_index_memory(&self) -> Result<()> {
        let used = self.shared.pool.taken_bytes().load(Ordering::Relaxed);
        match used <= self.settings.index_bytes() {
            true => Ok(()),
            false => self.check_more_index_memory(used),
        }
    }

    /// While an index moves out of memory, others may take all that is the cache's.
    #[cold]
    fn check_more_index_memory(&self, used: usize) -> Result<()> {
        let limit = match self.index_moves.is_under_way() {
            true => self.settings.cache_bytes(),
            false => self.settings.index_bytes(),
        };
        match used <= limit {
            true => Ok(()),
            false => Err(no_index_memory(used, limit)),
        }
    }
}

#[cold]
fn no_index_memory(used: usize, limit: usize) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        SqlState::OUT_OF_MEMORY,
        format!("indexes use {used} bytes of memory, their share is {limit}"),
    )
    .with_hint(
        "Raise memory_bytes, or keep indexes in files: ALTER INDEX ... SET (storage = 'levels'), \
         ALTER TABLE ... SET (key_index = 'fdtree').",
    )
}
