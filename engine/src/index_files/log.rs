//! The log of the page files: their changes are records of the database's log.
//!
//! A record of the log begins with a byte of its kind: the version of a transaction's record
//! (`redo`), or [`PAGES`]. Records of pages belong to no transaction and have no timestamp. A
//! transaction's entries are in records before its own, so a commit that is found in the log has
//! all its entries.

use std::fmt;
use std::sync::{Arc, OnceLock};
use strandline_base::sync::{AtomicU64, Ordering};
use strandline_base::{Error, Result};
use strandline_storage::pages::PageLog;
use strandline_storage::wal::{Lsn, Wal};

/// The first byte of a record of pages. No version of a transaction's record has it.
const PAGES: u8 = b'P';

/// The page store's record in a record of the log; None: it is a transaction's.
pub(crate) fn page_record(record: &[u8]) -> Option<&[u8]> {
    match record.split_first() {
        Some((&PAGES, rest)) => Some(rest),
        _ => None,
    }
}

/// See the module's documentation. The page store has it before the log is open.
#[derive(Default)]
pub(super) struct IndexLog {
    wal: OnceLock<Arc<Wal>>,
    /// bytes of records since the last look
    logged: AtomicU64,
}

impl IndexLog {
    /// From here on records can be written.
    pub fn attach(&self, wal: &Arc<Wal>) {
        let _ = self.wal.set(wal.clone());
    }

    /// Bytes of the records that were appended since the last call.
    pub fn take_logged(&self) -> u64 {
        // Every commit asks: without page indexes no cache line is written.
        match self.logged.load(Ordering::Relaxed) {
            0 => 0,
            _ => self.logged.swap(0, Ordering::Relaxed),
        }
    }

    fn wal(&self) -> Result<&Arc<Wal>> {
        let unopened = || Error::internal("pages are changed before the log is open");
        self.wal.get().ok_or_else(unopened)
    }
}

impl PageLog for IndexLog {
    fn append(&self, record: &[u8]) -> Result<Lsn> {
        let mut bytes = Vec::with_capacity(record.len() + 1);
        bytes.push(PAGES);
        bytes.extend_from_slice(record);
        let appended = self.wal()?.append(&mut bytes, &mut |_, _| Ok(()))?;
        self.logged.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(appended.end)
    }

    fn make_durable(&self, through: Lsn) -> Result<()> {
        self.wal()?.wait_durable(through)
    }

    fn end(&self) -> Lsn {
        self.wal.get().map_or(Lsn(0), |wal| wal.end_lsn())
    }
}

impl fmt::Debug for IndexLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("IndexLog").field(&self.wal.get()).finish()
    }
}
