//! The database's counters, for `strandline_stats()` and the metrics.

use crate::db::Db;
use crate::db::pacing::PacingReport;
use crate::db::set_aside::Work;
use crate::store::Store;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use strandline_base::Error;
use strandline_storage::file::Access;

impl Db {
    /// Entries of all key indexes.
    fn key_entries(&self) -> u64 {
        let stores = self.stores.read();
        let keys = stores.values().flat_map(|store| store.keys().to_vec());
        keys.map(|key| key.index.len() as u64).sum()
    }

    /// Bytes of all key indexes; like those of secondary indexes they are taken from the cache's
    /// share.
    fn key_bytes(&self) -> u64 {
        let taken = self.shared.pool.taken_bytes().load(Ordering::Relaxed);
        let taken = taken.saturating_sub(self.index_files.taken_bytes());
        let block_cache = self.shared.files.block_cache();
        let taken = taken.saturating_sub(block_cache.map_or(0, |cache| cache.counted_bytes()));
        (taken as u64).saturating_sub(self.index_size().1)
    }

    /// Entries and bytes of all secondary indexes.
    fn index_size(&self) -> (u64, u64) {
        let stores = self.stores.read();
        let (mut entries, mut bytes) = (0, 0);
        for index in stores.values().flat_map(|store| store.secondary().to_vec()) {
            entries += index.index.len() as u64;
            bytes += index.index.memory_bytes() as u64;
        }
        (entries, bytes)
    }

    /// Counters since open, and how much there is at the moment.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        let counters = self.detailed_counters().into_iter();
        counters.map(|(name, value, _)| (name, value)).collect()
    }

    /// The same counters with their subjects, one line per subject; most have none.
    pub fn detailed_counters(&self) -> Vec<(&'static str, u64, String)> {
        let plain = self.plain_counters().into_iter();
        let plain = plain.map(|(name, value)| (name, value, String::new()));
        plain.chain(self.maintenance_counters()).collect()
    }

    fn plain_counters(&self) -> Vec<(&'static str, u64)> {
        let c = &self.counters;
        let get = |a: &AtomicU64| a.load(Ordering::Relaxed);
        let (index_entries, index_bytes) = self.index_size();
        let (writer_pauses, writer_pause_micros) = self.backpressure.paused();
        vec![
            ("commits", get(&c.commits)),
            ("rollbacks", get(&c.rollbacks)),
            ("checkpoints", get(&c.checkpoints)),
            ("checkpoint_micros", get(&c.checkpoint_micros)),
            ("merged_ranges", get(&c.merged_ranges)),
            ("run_records", get(&c.run_records)),
            ("compacted_files", get(&c.compacted_files)),
            ("bytes_written", get(&c.bytes_written)),
            ("cache_misses", self.shared.pool.misses()),
            ("random_reads", self.shared.files.reads(Access::Random)),
            (
                "sequential_reads",
                self.shared.files.reads(Access::Sequential),
            ),
            ("cache_bytes", self.shared.pool.frame_bytes() as u64),
            ("footer_bytes", self.shared.pool.kept_bytes() as u64),
            ("index_page_bytes", self.shared.pool.page_bytes() as u64),
            ("tail_bytes", self.shared.page_bytes.used() as u64),
            ("spare_tail_bytes", self.shared.page_bytes.spare() as u64),
            ("log_buffer_bytes", self.wal.memory_bytes() as u64),
            ("load_bytes", self.load_memory.used() as u64),
            ("load_bytes_max", self.load_memory.most() as u64),
            ("merge_bytes", self.merge_memory.used() as u64),
            ("merge_bytes_max", self.merge_memory.most() as u64),
            ("transaction_bytes", self.list_memory.used() as u64),
            ("transaction_bytes_max", self.list_memory.most() as u64),
            ("writer_pauses", writer_pauses),
            ("writer_pause_micros", writer_pause_micros),
            ("log_bytes", self.wal.end_lsn().0),
            ("log_syncs", self.wal.syncs()),
            ("key_entries", self.key_entries()),
            ("key_bytes", self.key_bytes()),
            ("index_entries", index_entries),
            ("index_bytes", index_bytes),
            ("indexes_moved", get(&self.index_moves.moved)),
            ("pending_records", self.pending_records()),
            ("run_bytes", self.run_bytes()),
            ("superseded_bytes", self.superseded_bytes()),
            ("recovery_micros", self.recovery.micros),
            ("clock_jumps", self.retention.jumps()),
            (
                "clock_behind_us",
                self.stable().0.saturating_sub(self.now_us()),
            ),
        ]
    }

    /// Records of all tails that no merge has folded into base yet.
    fn pending_records(&self) -> u64 {
        let stores: Vec<Arc<Store>> = self.stores.read().values().cloned().collect();
        let ranges = stores.iter().flat_map(|store| store.ranges());
        ranges.map(|range| u64::from(range.summary().pending)).sum()
    }

    /// Bytes of update runs: pending records that a checkpoint has written, and history.
    fn run_bytes(&self) -> u64 {
        let stores = self.stores.read();
        stores.values().map(|store| store.run_size().1).sum()
    }

    /// Bytes of chunk files in use that newer files have superseded.
    fn superseded_bytes(&self) -> u64 {
        let stores = self.stores.read();
        stores.values().map(|store| store.superseded_bytes()).sum()
    }

    fn cache_counters(&self) -> impl Iterator<Item = (&'static str, u64, String)> {
        let of = |name, failing: Option<String>| {
            let count = u64::from(failing.is_some());
            (name, count, failing.unwrap_or_default())
        };
        [
            of("ssd_cache_failing", self.failing_cache()),
            of("block_cache_failing", self.failing_block_cache()),
        ]
        .into_iter()
    }

    /// Counters of background work that fails or pauses, with their subjects, one line each.
    pub(crate) fn maintenance_counters(&self) -> Vec<(&'static str, u64, String)> {
        let all = self.set_aside_work();
        let of = |name, is_it: fn(&Work) -> bool| {
            let found = all.iter().filter(|w| is_it(&w.work));
            let lines: Vec<&str> = found.map(|w| w.line.as_str()).collect();
            (name, lines.len() as u64, lines.join("\n"))
        };
        let PacingReport {
            failure,
            is_in_vain,
            pause_us,
        } = self.pacing.report();
        let message = failure.as_ref().map_or("", Error::message).to_owned();
        let in_vain = "open transactions or snapshots keep what is pending";
        let in_vain = if is_in_vain { in_vain } else { "" };
        let mut counters = vec![
            of("ranges_set_aside", |w| matches!(w, Work::Merge(_))),
            of("compactions_set_aside", |w| matches!(w, Work::Compact(_))),
            of("unions_set_aside", |w| *w == Work::UniteRuns),
            of("tables_behind", |w| w.keeps_log()),
            of("tables_unrestored", |w| *w == Work::Restore),
            of("indexes_unusable", |w| *w == Work::BuildIndexes),
            ("checkpoints_failing", u64::from(failure.is_some()), message),
            ("checkpoints_in_vain", u64::from(is_in_vain), in_vain.into()),
            ("checkpoint_pause_micros", pause_us, String::new()),
        ];
        counters.extend(self.cache_counters());
        counters
    }
}
