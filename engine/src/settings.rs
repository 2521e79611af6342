//! Settings: plain data with units in the names. Components (device, clock) are in `DbOptions`.

use crate::expressions::RowExpressions;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use strandline_base::{Clock, Error, Result, SqlState};
use strandline_device::{Device, Tier};
use strandline_index::{FilterMemory, HeadMemory};
use strandline_storage::block_cache::{
    Admission as BlockCacheAdmission, Settings as BlockCacheSettings,
};
use strandline_storage::ssd_cache::{
    Admission as SsdCacheAdmission, Mode as SsdCacheMode, Settings as SsdCacheSettings, SsdCache,
};
use strandline_txn::Isolation;

/// Settings of a database.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Bound on the memory of tails, cached blocks and queries together, in bytes. Half goes to
    /// queries, 3/8 to cached blocks, pages of indexes and key indexes in memory, 1/8 to tails. Key
    /// indexes take what they need, and tails borrow up to 3/8; a quarter of the 3/8 stays with
    /// blocks and pages, which share what is there by use. Default: 2 GiB.
    pub memory_bytes: usize,
    /// Bound on the bytes of cached blocks and key indexes, below their share of `memory_bytes`.
    /// Default: none; benchmarks make it small.
    pub cache_bytes_max: usize,
    /// Bytes of one log segment. Default: 16 MiB.
    pub wal_segment_bytes: u64,
    /// A checkpoint starts when more bytes than this have been logged since the last one. Default:
    /// 256 MiB.
    pub checkpoint_wal_bytes: u64,
    /// A checkpoint merges a range that has this many pending records. Default: 2^15, half a range,
    /// which the paper finds best \[L-Store §4.4\]; until then overlays keep scans fast.
    pub merge_pending_records: u32,
    /// A checkpoint also merges a range that has had pending records for this long. Default: 30 s.
    pub merge_age: Duration,
    /// Share of one processor's time, in percent, that background merges may take; 100: all of it.
    /// A merge that the log's size or a lack of memory requires is not delayed. Default: 25.
    pub merge_percent: u32,
    /// Ranges that a checkpoint merges at the same time, one per thread. Default: half the
    /// processors, at most 4.
    pub merge_threads: usize,
    /// Threads that rebuild row maps and tails when a database is opened. The result does not
    /// depend on their number. 1: all on the opening thread, so that the order of device operations
    /// is fixed too. Default: the number of processors, at most 8.
    pub recovery_threads: usize,
    /// Bytes of disk space reserved, in a file of its own, for operations that free space on a full
    /// disk. 0: none. Default: 32 MiB.
    pub reserve_bytes: u64,
    /// Bytes of the SSD cache: pages of indexes that are kept on the fast tier when they leave
    /// memory. It needs two directories. Default: 0, no cache, because its space is allocated at
    /// once on the device of the log, and only the operator knows what that device can spare.
    pub ssd_cache_bytes: u64,
    /// How the SSD cache treats changed pages. Default: `pc`.
    pub ssd_cache_mode: SsdCacheMode,
    /// The pages that the SSD cache takes. Default: those that were read at random.
    pub ssd_cache_admission: SsdCacheAdmission,
    /// Bytes of the block cache: blocks of chunk files and of history that single rows were read
    /// from, kept on the fast tier. It needs two directories. Default: 0, no cache, for the same
    /// reason.
    pub block_cache_bytes: u64,
    /// The blocks that the block cache takes. Default: at their first read.
    pub block_cache_admission: BlockCacheAdmission,
    /// Whether the opening only looks: for checks, inspections and backups. Transactions are
    /// read-only, and nothing works in the background. The caches on the fast tier have the sizes
    /// of their files, in place of `ssd_cache_bytes` and `block_cache_bytes`. A file of an index
    /// that cannot be used stays, and its index is unusable. Default: no.
    pub only_looks: bool,
    /// Bound on the bytes of the block cache's segments, see [`Settings::block_cache`]. Default:
    /// none; tests make it small.
    pub block_cache_segment_bytes_max: u32,
    /// Bound on the memory for pages of indexes, beside [`Settings::cache_bytes`]. Default: none;
    /// tests make it small.
    pub index_page_bytes_max: usize,
    /// Bound on the head of an index in levels, below what [`Settings::index_heads`] tells.
    /// Default: none; tests make it small.
    pub index_head_bytes_max: usize,
    /// Whether a background thread merges and checkpoints. Tests turn it off and call both.
    pub background_maintenance: bool,
    /// Evaluators of index expressions and of partial indexes' predicates. Default: none; such
    /// indexes are then refused.
    pub expressions: Option<Arc<dyn RowExpressions>>,
    /// Entries of an opened index in a file that one turn of the maintenance compares with their
    /// rows, beside the others of the last key. Default: 2^20; tests need several turns.
    pub comparison_turn_entries: usize,
    /// Bound on the memory of a sweep, below what [`Settings::sweep_bytes`] tells. Default: none;
    /// tests make it small.
    pub sweep_bytes_max: usize,
    /// The number of a tail's first record. Default: 0; tests begin close to a limit.
    pub first_tail_record: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            memory_bytes: 2 << 30,
            cache_bytes_max: usize::MAX,
            wal_segment_bytes: 16 << 20,
            checkpoint_wal_bytes: 256 << 20,
            merge_pending_records: 1 << 15,
            merge_age: Duration::from_secs(30),
            merge_percent: 25,
            merge_threads: (processors() / 2).clamp(1, 4),
            recovery_threads: processors().min(8),
            reserve_bytes: 32 << 20,
            ssd_cache_bytes: 0,
            ssd_cache_mode: SsdCacheMode::default(),
            ssd_cache_admission: SsdCacheAdmission::default(),
            block_cache_bytes: 0,
            block_cache_admission: BlockCacheAdmission::default(),
            only_looks: false,
            block_cache_segment_bytes_max: u32::MAX,
            index_page_bytes_max: usize::MAX,
            index_head_bytes_max: usize::MAX,
            background_maintenance: true,
            expressions: None,
            comparison_turn_entries: 1 << 20,
            sweep_bytes_max: usize::MAX,
            first_tail_record: 0,
        }
    }
}

/// The settings of the caches on the fast tier that can be changed while the database is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheSettings {
    /// see [`Settings::ssd_cache_bytes`]
    pub ssd_cache_bytes: u64,
    /// see [`Settings::ssd_cache_admission`]
    pub ssd_cache_admission: SsdCacheAdmission,
    /// see [`Settings::block_cache_bytes`]
    pub block_cache_bytes: u64,
    /// see [`Settings::block_cache_admission`]
    pub block_cache_admission: BlockCacheAdmission,
}

impl CacheSettings {
    /// The values by the names of the settings.
    pub fn named(&self) -> [(&'static str, String); 4] {
        [
            ("ssd_cache_bytes", self.ssd_cache_bytes.to_string()),
            (
                "ssd_cache_admission",
                self.ssd_cache_admission.name().to_owned(),
            ),
            ("block_cache_bytes", self.block_cache_bytes.to_string()),
            (
                "block_cache_admission",
                self.block_cache_admission.name().to_owned(),
            ),
        ]
    }
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
}

impl Settings {
    /// The smallest `memory_bytes`.
    pub const MEMORY_BYTES_MIN: usize = 16 << 20;
    /// The smallest `ssd_cache_bytes` but for 0.
    pub const SSD_CACHE_BYTES_MIN: u64 = 64 << 10;

    /// Bytes for record pages. Memory is short when more are used; checkpoints then merge.
    pub fn tail_bytes(&self) -> usize {
        self.memory_bytes / 8
    }
    /// Bound on the bytes of record pages, borrowed memory included. Writers pause above half of it
    /// and are refused above it.
    pub fn tail_bytes_max(&self) -> usize {
        self.memory_bytes / 2
    }
    /// Bytes for cached frames, pages of indexes' files and key indexes in memory.
    pub fn cache_bytes(&self) -> usize {
        (self.memory_bytes / 8 * 3).min(self.cache_bytes_max)
    }
    /// Bytes of indexes above which secondary indexes get no further entries: the cache keeps a
    /// quarter of its share.
    pub fn index_bytes(&self) -> usize {
        self.cache_bytes() / 4 * 3
    }
    /// Bytes of indexes in memory above which the largest moves into levels. Hints, which grow up
    /// to [`Settings::hint_bytes`], and what is added during the move have room besides.
    pub fn memory_index_bytes(&self) -> usize {
        self.index_bytes() / 8 * 3
    }
    /// Hints of keys grow while all indexes together take less.
    pub(crate) fn hint_bytes(&self) -> usize {
        self.index_bytes() / 2
    }
    /// The memory of the heads of indexes in levels: 8 KiB each, up to [`Settings::index_bytes`]
    /// together. A busy one grows to 1/32 of half of that, at most 4 MiB, as long as half is left.
    pub fn index_heads(&self) -> HeadMemory {
        let limit = self.index_bytes();
        let bounded = |bytes: usize| bytes.min(self.index_head_bytes_max);
        let most = (limit / 2 / 32).clamp(32 << 10, 4 << 20);
        HeadMemory::new(bounded(8 << 10), bounded(most), limit)
    }
    /// The memory of the filters of indexes in levels: half of [`Settings::index_bytes`]. Blocks of
    /// the other filters are in the cache while they are used.
    pub fn index_filters(&self) -> FilterMemory {
        FilterMemory::new(self.index_bytes() / 2)
    }
    /// Bytes of rows and entries that a sweep of an index holds at a time. One row's entries may be
    /// more.
    pub fn sweep_bytes(&self) -> usize {
        (self.index_bytes() / 16)
            .clamp(1 << 20, 64 << 20)
            .min(self.sweep_bytes_max)
    }
    /// Bytes that the places and fences of one index's LIDBlocks may take.
    pub fn index_blocks_bytes(&self) -> usize {
        self.index_bytes() / 8
    }
    /// Bytes that a compaction of an index in levels gathers before it writes them.
    pub fn index_batch_bytes(&self) -> usize {
        (self.memory_bytes / 64).clamp(256 << 10, 4 << 20)
    }
    /// Bytes of memory for the directory of the SSD cache. The cache of blocks lends them.
    pub fn ssd_cache_memory_bytes(&self) -> usize {
        let directory = SsdCacheSettings::new(0, self.ssd_cache_bytes).directory_bytes();
        usize::try_from(directory).unwrap_or(usize::MAX)
    }
    /// The part about the caches.
    pub fn caches(&self) -> CacheSettings {
        CacheSettings {
            ssd_cache_bytes: self.ssd_cache_bytes,
            ssd_cache_admission: self.ssd_cache_admission,
            block_cache_bytes: self.block_cache_bytes,
            block_cache_admission: self.block_cache_admission,
        }
    }
    /// These settings with others of the caches.
    pub fn with_caches(&self, caches: CacheSettings) -> Self {
        Self {
            ssd_cache_bytes: caches.ssd_cache_bytes,
            ssd_cache_admission: caches.ssd_cache_admission,
            block_cache_bytes: caches.block_cache_bytes,
            block_cache_admission: caches.block_cache_admission,
            ..self.clone()
        }
    }
    /// These settings with an SSD cache of the size of its file on `device`, if the opening only
    /// looks. Another process, with more memory perhaps, has judged the size.
    pub(crate) fn with_found_cache(self, device: &dyn Device) -> Result<Self> {
        if !self.only_looks {
            return Ok(self);
        }
        Ok(Self {
            ssd_cache_bytes: SsdCache::bytes_found(device)?,
            ..self
        })
    }
    /// The block cache of the database `identity`; None without one. A segment is a power of two,
    /// between 256 KiB and 4 MiB, of which three fit into an eighth of [`Settings::cache_bytes`].
    pub fn block_cache(&self, identity: u128) -> Option<BlockCacheSettings> {
        if self.block_cache_bytes == 0 {
            return None;
        }
        let share = u32::try_from(self.cache_bytes() / 24).unwrap_or(u32::MAX);
        let largest = BlockCacheSettings::SEGMENT_BYTES;
        let segment_bytes = (1 << share.max(1).ilog2()).clamp(256 << 10, largest);
        Some(BlockCacheSettings {
            segment_bytes: segment_bytes.min(self.block_cache_segment_bytes_max),
            admission: self.block_cache_admission,
            ..BlockCacheSettings::new(identity, self.block_cache_bytes)
        })
    }
    /// Bytes of the rows of one range; wider rows get ranges of fewer rows. It is a 16th, between 1
    /// MiB and 64 MiB, so that the copies of a range in loads and merges fit side by side.
    pub fn range_bytes(&self) -> usize {
        (self.memory_bytes / 16).clamp(1 << 20, 64 << 20)
    }
    /// Bytes of rows that wait or are being encoded, in all bulk loads together. Each load has at
    /// least a 128th of `memory_bytes`, also if others use up this share.
    pub fn load_bytes(&self) -> usize {
        self.memory_bytes / 8
    }
    /// Bound on the bytes that open transactions keep until they end. They are borrowed from the
    /// cache's share, so the bound equals that share.
    pub fn list_bytes(&self) -> usize {
        self.cache_bytes()
    }
    /// Bytes for the operators of queries.
    pub fn query_bytes(&self) -> usize {
        self.memory_bytes / 2
    }
    /// Refuses invalid values.
    pub fn check(&self) -> Result<()> {
        if self.memory_bytes < Self::MEMORY_BYTES_MIN {
            return Err(Error::invalid(
                SqlState::INVALID_PARAMETER_VALUE,
                format!(
                    "memory_bytes is {}, but must be at least {}",
                    self.memory_bytes,
                    Self::MEMORY_BYTES_MIN
                ),
            ));
        }
        self.check_ssd_cache()?;
        self.check_block_cache()
    }

    fn check_block_cache(&self) -> Result<()> {
        let Some(cache) = self.block_cache(0) else {
            return Ok(());
        };
        let (bytes, least) = (self.block_cache_bytes, cache.cache_bytes_min());
        let refused = |what: String| Error::invalid(SqlState::INVALID_PARAMETER_VALUE, what);
        if bytes < least {
            let what = format!("block_cache_bytes is {bytes}, but must be 0 or at least {least}");
            return Err(refused(what).with_hint("0 turns the block cache off."));
        }
        let memory = cache.memory_bytes_max();
        let most = (self.cache_bytes() / 4).saturating_sub(self.ssd_cache_memory_bytes());
        if memory > most {
            let what = format!(
                "block_cache_bytes is {bytes}, but such a cache needs up to {memory} bytes of \
                 memory, more than {most}"
            );
            return Err(
                refused(what).with_hint("Make the block cache smaller, or raise memory_bytes.")
            );
        }
        Ok(())
    }

    fn check_ssd_cache(&self) -> Result<()> {
        let (bytes, memory) = (self.ssd_cache_bytes, self.ssd_cache_memory_bytes());
        if bytes == 0 || self.ssd_cache_mode == SsdCacheMode::Off {
            return Ok(());
        }
        let refused = |what: String| Error::invalid(SqlState::INVALID_PARAMETER_VALUE, what);
        if bytes < Self::SSD_CACHE_BYTES_MIN {
            let least = Self::SSD_CACHE_BYTES_MIN;
            let what = format!("ssd_cache_bytes is {bytes}, but must be 0 or at least {least}");
            return Err(refused(what).with_hint("0 turns the SSD cache off."));
        }
        let most = self.cache_bytes() / 4;
        if memory > most {
            let what = format!(
                "ssd_cache_bytes is {bytes}, but the directory of such a cache needs {memory} \
                 bytes of memory, more than {most}"
            );
            return Err(
                refused(what).with_hint("Make the SSD cache smaller, or raise memory_bytes.")
            );
        }
        Ok(())
    }

    /// Refuses settings that `device` cannot serve.
    ///
    /// # Errors
    /// 22023 for an SSD cache or a block cache on one directory, and for an SSD cache beside an
    /// object store.
    pub fn check_on(&self, device: &dyn Device) -> Result<()> {
        let ssd_cache_bytes = match self.ssd_cache_mode {
            SsdCacheMode::Off => 0,
            _ => self.ssd_cache_bytes,
        };
        if let Some(tiers) = device.tiers() {
            let is_object_store = device.is_written_once(Tier::Capacity);
            return match ssd_cache_bytes > 0 && is_object_store {
                true => Err(self.cache_beside_objects(&**tiers.device_of(Tier::Capacity))),
                false => Ok(()),
            };
        }
        let caches = [
            (
                "ssd_cache_bytes",
                ssd_cache_bytes,
                "the SSD cache keeps pages",
            ),
            (
                "block_cache_bytes",
                self.block_cache_bytes,
                "the block cache keeps blocks",
            ),
        ];
        let wanted = caches.into_iter().find(|(_, bytes, _)| *bytes > 0);
        let Some((name, bytes, cache_keeps)) = wanted else {
            return Ok(());
        };
        let what = format!(
            "{name} is {bytes}, but the database in \"{}\" has no capacity directory",
            device.location()
        );
        let hint = format!(
            "Set capacity_dir too: {cache_keeps} of that directory on the fast device. Or leave \
             {name} out."
        );
        Err(Error::invalid(SqlState::INVALID_PARAMETER_VALUE, what).with_hint(hint))
    }

    /// Page files cannot be overwritten in an object store, so they are on the fast device. A cache
    /// of theirs would be on the device that it spares, and could not overwrite its marker.
    fn cache_beside_objects(&self, objects: &dyn Device) -> Error {
        let what = format!(
            "ssd_cache_bytes is {}, but the capacity tier is the object store \"{}\"",
            self.ssd_cache_bytes,
            objects.location()
        );
        Error::invalid(SqlState::INVALID_PARAMETER_VALUE, what).with_hint(
            "Leave ssd_cache_bytes out: beside an object store the pages of indexes are on the \
             fast device already.",
        )
    }
}

/// The components and settings a database is opened with.
pub struct DbOptions {
    /// the device with its files
    pub device: Arc<dyn Device>,
    /// the wall clock
    pub clock: Arc<dyn Clock>,
    /// the settings
    pub settings: Settings,
}

/// Behaviour of a writer that meets another transaction's uncommitted change of a row, or its lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConflictPolicy {
    /// waits for the other one to end
    #[default]
    Wait,
    /// fails with 40001 at once, as in the paper \[L-Store §5.1.1\]
    Abort,
}

/// The options of a transaction.
#[derive(Clone, Debug)]
pub struct TxnOptions {
    /// read committed, snapshot or serializable
    pub isolation: Isolation,
    /// writes are errors (25006)
    pub read_only: bool,
    /// false: commit returns before the log is durable
    pub synchronous_commit: bool,
    /// Whether a writer waits for other writers.
    pub conflicts: ConflictPolicy,
    /// Reads other transactions' commits, and writes on top of them, before they are durable.
    /// Nothing that depends on them is acknowledged before they are durable: the commit waits for
    /// them, and fails if the log fails.
    pub speculative: bool,
    /// None: wait without a limit
    pub lock_timeout: Option<Duration>,
    /// Set to true by another thread to cancel the running statement (57014).
    pub cancel: Arc<AtomicBool>,
}

impl Default for TxnOptions {
    fn default() -> Self {
        Self {
            isolation: Isolation::ReadCommitted,
            read_only: false,
            synchronous_commit: true,
            conflicts: ConflictPolicy::Wait,
            speculative: false,
            lock_timeout: None,
            cancel: Arc::default(),
        }
    }
}
