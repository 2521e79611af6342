//! The log of the page files: their changes are records of the database's log.
//!
//! A record of the log begins with a byte of its kind: the version of a transaction's record
//! (`redo`), [`PAGES`] or [`SWEPT`]. Records of these two kinds belong to no transaction and have
//! no timestamp of a commit. A transaction's entries are in records before its own, so a commit
//! that is found in the log has all its entries.

use std::fmt;
use std::sync::{Arc, OnceLock};
use strandline_base::bytes::{ByteReader, PutBytes};
use strandline_base::sync::{AtomicU64, Ordering};
use strandline_base::{CommitTs, Error, Result, StorageId};
use strandline_storage::pages::PageLog;
use strandline_storage::wal::{Lsn, Wal};

/// The first byte of a record of pages. No version of a transaction's record has it.
const PAGES: u8 = b'P';

/// The first byte of a record of a sweep: then the storage and the moment, as in `super::swept`.
const SWEPT: u8 = b'S';

/// A record of the log that belongs to no transaction.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum IndexRecord<'a> {
    /// the page store's record
    Pages(&'a [u8]),
    /// Sweeps of the storage's indexes remove entries of versions superseded before the moment.
    Swept(StorageId, CommitTs),
}

impl<'a> IndexRecord<'a> {
    /// None: the record of the log is a transaction's.
    ///
    /// # Errors
    /// XX001 for damage.
    pub fn decode(record: &'a [u8]) -> Result<Option<Self>> {
        match record.split_first() {
            Some((&PAGES, rest)) => Ok(Some(Self::Pages(rest))),
            Some((&SWEPT, rest)) => {
                let mut reader = ByteReader::new(rest);
                let (storage, moment) = (reader.u32(), reader.u64());
                match (storage, moment, reader.remaining()) {
                    (Some(storage), Some(moment), 0) => {
                        Ok(Some(Self::Swept(StorageId(storage), CommitTs(moment))))
                    }
                    _ => Err(Error::corrupt(
                        "log record of a sweep",
                        "it has another length",
                    )),
                }
            }
            _ => Ok(None),
        }
    }
}

fn swept_record(storage: StorageId, from: CommitTs) -> Vec<u8> {
    let mut record = vec![SWEPT];
    record.put_u32(storage.0);
    record.put_u64(from.0);
    record
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

    /// Appends a record of a sweep; see [`super::swept`].
    pub fn append_swept(&self, storage: StorageId, from: CommitTs) -> Result<()> {
        self.put(swept_record(storage, from)).map(|_| ())
    }

    fn put(&self, mut record: Vec<u8>) -> Result<Lsn> {
        let appended = self.wal()?.append(&mut record, &mut |_, _| Ok(()))?;
        self.logged
            .fetch_add(record.len() as u64, Ordering::Relaxed);
        Ok(appended.end)
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
        self.put(bytes)
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

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn records_of_sweeps_round_trip_and_damage_is_told() {
        let moment = CommitTs(1_700_000_000_000_000);
        let record = swept_record(StorageId(7), moment);
        let decoded = IndexRecord::decode(&record).expect("whole");
        assert_eq!(decoded, Some(IndexRecord::Swept(StorageId(7), moment)));
        for length in 1..record.len() {
            let damaged = IndexRecord::decode(&record[..length]);
            assert!(damaged.is_err(), "{length} bytes");
        }
        let longer = [&record[..], &[0]].concat();
        assert!(IndexRecord::decode(&longer).is_err());
        let pages = IndexRecord::decode(b"Pages").expect("whole");
        assert_eq!(pages, Some(IndexRecord::Pages(b"ages")));
        for transaction in [&b""[..], &[2, 0]] {
            assert_eq!(IndexRecord::decode(transaction).expect("another"), None);
        }
    }
}
