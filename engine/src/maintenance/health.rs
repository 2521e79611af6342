//! The health of background work: the outcome of each checkpoint is noted, and `/health` shows it.

use crate::db::pacing::{Moment, Success};
use crate::db::{Db, closed};
use crate::maintenance::outcome::CheckpointOutcome;
use std::sync::atomic::Ordering;
use strandline_base::{Error, ErrorKind, Result, SqlState};
use strandline_storage::block_cache::Stats as BlockCacheStats;
use strandline_storage::ssd_cache::{SsdCache, Stats as SsdCacheStats};

impl Db {
    /// Notes how a checkpoint ended.
    pub(crate) fn note_attempt(&self, outcome: &Result<CheckpointOutcome>) {
        let failure = match outcome {
            Ok(outcome) => outcome.failure.as_ref(),
            Err(error) => Some(error),
        };
        if let Some(failure) = failure {
            return self.note_failure(failure);
        }
        self.look_for_room();
        let merged = outcome.as_ref().map_or(0, |o| o.report.merged_ranges);
        let success = Success {
            is_in_vain: merged == 0 && self.is_short_of_memory(),
            stable: self.stable(),
            oldest: self.txns().oldest_snapshot(),
            tail_bytes: self.shared.page_bytes.used(),
        };
        self.pacing.note_success(&success, self.elapsed_us());
    }

    /// Notes that checkpoints fail, and tells it if they did not before.
    pub(crate) fn note_failure(&self, failure: &Error) {
        let catalog = self.catalogs.newest();
        self.pacing
            .note_failure(failure, catalog, self.elapsed_us());
    }

    /// The failure of the last checkpoint.
    pub(crate) fn pacing_failure(&self) -> Option<Error> {
        self.pacing.report().failure
    }

    /// Whether no background checkpoint is to be made now.
    pub(crate) fn is_pausing(&self) -> bool {
        self.pacing.is_pausing(&Moment {
            now_us: self.elapsed_us(),
            catalog: self.catalogs.newest(),
            oldest: self.txns().oldest_snapshot(),
            logged_bytes: self.maintenance.logged_bytes.load(Ordering::Relaxed),
            tail_bytes: self.settings.tail_bytes(),
            checkpoint_wal_bytes: self.settings.checkpoint_wal_bytes,
        })
    }

    /// One line for each piece of work on a table, and one for each cache, that fails while the
    /// database goes on; and one for each cache that is smaller than its setting.
    pub fn failing_work(&self) -> Vec<String> {
        let all = self.set_aside_work().into_iter();
        all.map(|work| work.line)
            .chain(self.failing_cache())
            .chain(self.failing_block_cache())
            .chain(self.small_caches())
            .collect()
    }

    /// Counts of the block cache since the database was opened, and its content; None without one.
    pub fn block_cache_stats(&self) -> Option<BlockCacheStats> {
        self.shared.files.block_cache().map(|cache| cache.stats())
    }

    /// The failure of the block cache's opening or of its last write, in one line.
    pub(crate) fn failing_block_cache(&self) -> Option<String> {
        let failure = self.caches.block.failure()?;
        Some(format!("the block cache: {}", failure.message()))
    }

    /// Counts of the SSD cache since the database was opened, and its content; None without one.
    pub fn ssd_cache_stats(&self) -> Option<SsdCacheStats> {
        self.index_files.cache().map(SsdCache::stats)
    }

    /// The SSD cache's failure in one line.
    pub(crate) fn failing_cache(&self) -> Option<String> {
        let of_cache = self.index_files.cache().and_then(|cache| cache.failure());
        let failure = of_cache.or_else(|| self.caches.ssd.failure())?;
        Some(format!("the SSD cache: {}", failure.message()))
    }

    /// The first condition that prevents work, as an error: the database is closed, the log or the
    /// manifest refuses writes for good, checkpoints fail, commits find no room on the disk, a
    /// table's records cannot be written, or writers are refused for lack of memory.
    pub fn check_health(&self) -> Result<()> {
        if self.maintenance.closed.load(Ordering::Acquire) {
            return Err(closed());
        }
        self.check_writable()?;
        let pacing = self.pacing.report();
        if let Some(failure) = pacing.failure {
            return Err(failure.context("checkpoints fail"));
        }
        if self.reserve.is_full() {
            return Err(self.full_disk());
        }
        let behind = self.set_aside_work();
        if let Some(behind) = behind.iter().find(|w| w.work.keeps_log()) {
            let what = format!("the log cannot be cut: {}", behind.line);
            let state = behind.failure.sqlstate();
            return Err(Error::new(ErrorKind::Unavailable, state, what));
        }
        let (used, limit) = (self.shared.page_bytes.used(), self.tail_limit());
        if pacing.is_in_vain && used > limit {
            return Err(Error::new(
                ErrorKind::Unavailable,
                SqlState::OUT_OF_MEMORY,
                format!(
                    "writers are refused: pending updates use {used} bytes of memory, their share \
                     is {limit}, and checkpoints free none"
                ),
            ));
        }
        Ok(())
    }
}
