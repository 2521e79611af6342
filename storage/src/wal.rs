//! CONTRACT (helper `storage` replaces the bodies).
use std::sync::Arc;
use strandline_base::Result;
use strandline_device::Device;

/// A position in the log: bytes since the log's beginning, over all segments, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Lsn(pub u64);

#[derive(Clone, Debug)]
pub struct WalSettings {
    /// Bytes of one preallocated, recycled segment file.
    pub segment_bytes: u64,
}

/// What `Wal::append` runs under the log's lock, so that commit order is log order.
pub struct Appended {
    /// End of the record: durable once `durable_lsn() >= end`.
    pub end: Lsn,
}

pub struct Wal;

impl Wal {
    /// Creates an empty log in an empty database.
    pub fn create(_device: Arc<dyn Device>, _settings: WalSettings) -> Result<Self> {
        todo!()
    }
    /// Opens the log and hands every whole record from `from` on to `replay`, in order, as
    /// (lsn of its end, payload). A torn tail is cut; damage before the last valid record, or a
    /// log that ends before `known_durable`, is a corruption error with file and offset.
    pub fn open(
        _device: Arc<dyn Device>,
        _settings: WalSettings,
        _from: Lsn,
        _known_durable: Lsn,
        _replay: &mut dyn FnMut(Lsn, &[u8]) -> Result<()>,
    ) -> Result<Self> {
        todo!()
    }
    /// Appends one record to the in-memory buffer. `stamp` runs under the log lock, receives the
    /// payload so that it can patch the commit timestamp into it, and the record's end.
    pub fn append(&self, _payload: &mut Vec<u8>, _stamp: &mut dyn FnMut(&mut [u8], Lsn)) -> Result<Appended> {
        todo!()
    }
    /// Returns once everything up to `lsn` is durable. The caller that finds no sync running
    /// becomes the leader and writes and syncs for all (group commit, no extra thread).
    /// A failed sync poisons the log: every later call returns the same `Closed` error.
    pub fn wait_durable(&self, _lsn: Lsn) -> Result<()> {
        todo!()
    }
    /// Writes the buffer to the file without sync (background, `synchronous_commit = off`).
    pub fn write_out(&self) -> Result<()> {
        todo!()
    }
    pub fn end_lsn(&self) -> Lsn {
        todo!()
    }
    pub fn durable_lsn(&self) -> Lsn {
        todo!()
    }
    /// Everything before `lsn` is no longer needed: whole segments before it are recycled.
    pub fn cut_before(&self, _lsn: Lsn) -> Result<()> {
        todo!()
    }
    /// The sticky error of a poisoned log.
    pub fn check_usable(&self) -> Result<()> {
        todo!()
    }
}
