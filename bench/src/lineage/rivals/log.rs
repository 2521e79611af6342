//! The rivals' log: the product's write-ahead log on a device in memory, with redo records in the
//! product's format (`docs/format.md`).
//!
//! Commits are relaxed: they do not wait for the device. The merge thread writes and cuts the log,
//! like the product's maintenance thread and checkpoints. A cut segment is used again, so that the
//! memory does not grow.

use std::sync::Arc;
use strandline_base::bytes::{PutBytes, zigzag};
use strandline_base::{ColumnId, CommitTs, Error, Result, RowId, StorageId, Value};
use strandline_device::MemoryDevice;
use strandline_storage::wal::{Lsn, Wal, WalSettings};

/// The table's storage.
const STORAGE: StorageId = StorageId(1);
const DATABASE: u128 = 1;
/// Pending bytes at which the merge thread writes them. An appender would write at 8 MiB.
const WRITE_BYTES: u64 = 2 << 20;

const VERSION: u8 = 1;
const UPDATE: u8 = 2;
const BIGINT: u8 = 5;
/// The position of the timestamp in a record.
const TS_AT: std::ops::Range<usize> = 1..9;

/// The log of one engine.
pub struct Log(Wal);

impl Log {
    /// An empty log.
    pub fn new() -> Result<Self> {
        let device = Arc::new(MemoryDevice::new());
        Wal::create(device, WalSettings::default(), DATABASE).map(Self)
    }

    /// Appends a record. `queue` runs under the log's lock: it receives the end of the record and
    /// returns the record's timestamp.
    pub fn append(
        &self,
        record: &mut Record,
        queue: &mut dyn FnMut(Lsn) -> CommitTs,
    ) -> Result<()> {
        let appended = self.0.append(&mut record.0, &mut |bytes, end| {
            bytes[TS_AT].copy_from_slice(&queue(end).0.to_le_bytes());
            Ok(())
        });
        appended.map(drop)
    }

    /// Keeps a segment ready. Writes the log and cuts it once there are enough bytes.
    pub fn maintain(&self) -> Result<()> {
        self.0.prepare_next_segment()?;
        if self.0.end_lsn().0 - self.0.durable_lsn().0 >= WRITE_BYTES {
            self.0.sync_all()?;
            self.0.cut_before(self.0.durable_lsn())?;
        }
        Ok(())
    }
}

/// The redo record of one transaction; a session reuses it for its next transaction.
pub struct Record(Vec<u8>);

impl Record {
    /// A record without changes.
    pub fn new() -> Self {
        let mut record = Self(Vec::new());
        record.begin();
        record
    }

    /// Empties the record for the next transaction.
    pub fn begin(&mut self) {
        self.0.clear();
        self.0.put_u8(VERSION);
        self.0.put_u64(0);
    }

    /// Adds an update of a row. The table has bigint columns only.
    pub fn put_update(&mut self, row: RowId, set: &[(ColumnId, Value)]) -> Result<()> {
        let out = &mut self.0;
        out.put_u8(UPDATE);
        out.put_varint(u64::from(STORAGE.0));
        out.put_varint(row.0);
        out.put_varint(set.len() as u64);
        for (column, value) in set {
            let Value::BigInt(value) = value else {
                return Err(Error::internal("a value was not checked"));
            };
            out.put_varint(u64::from(column.0));
            out.put_u8(BIGINT);
            out.put_varint(zigzag(*value));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_maintained_log_keeps_few_segments() {
        let (log, mut record) = (Log::new().unwrap(), Record::new());
        let set = vec![(ColumnId(0), Value::BigInt(i64::MIN)); 1_000];
        record.put_update(RowId(1 << 40), &set).unwrap();
        let segment = WalSettings::default().segment_bytes;
        while log.0.end_lsn().0 < 8 * segment {
            log.append(&mut record, &mut |_| CommitTs(7)).unwrap();
            log.maintain().unwrap();
        }
        assert!(log.0.segments().len() <= 4);
    }

    #[test]
    fn records_are_those_of_the_format() {
        let (log, mut record) = (Log::new().unwrap(), Record::new());
        let set = [
            (ColumnId(0), Value::BigInt(-1)),
            (ColumnId(3), Value::BigInt(64)),
        ];
        record.put_update(RowId(300), &set).unwrap();
        log.append(&mut record, &mut |_| CommitTs(7)).unwrap();
        let expected = [
            &[1, 7, 0, 0, 0, 0, 0, 0, 0][..], // version and timestamp
            &[2, 1, 0xac, 2, 2],              // update, storage, row, columns
            &[0, 5, 1],
            &[3, 5, 0x80, 1],
        ];
        assert_eq!(record.0, expected.concat());
    }
}
