//! The log: records of pages, and of transactions. A transaction's first record has all its changes
//! and commits it; the second one says that they are in the pages' records before it.
//!
//! ```text
//! u8  0 pages: the page store's record
//!     1 begin: a write set
//!     2 end: u64, the end position of the transaction's begin
//! ```
//!
//! Invariant: a transaction is *running* from before its begin is appended until its end is. Redo
//! begins at or before the begin of every running transaction.
//!
//! Lock order: `running` → the log's locks.

use std::collections::BTreeMap;
use std::sync::Arc;

use strandline_base::bytes::{ByteReader, PutBytes};
use strandline_base::sync::Mutex;
use strandline_base::{Error, Result};
use strandline_device::Device;
use strandline_storage::pages::PageLog;
use strandline_storage::wal::{Lsn, Wal, WalSettings};

use super::write_set::WriteSet;

const PAGES: u8 = 0;
const BEGIN: u8 = 1;
const END: u8 = 2;

/// The running transactions.
#[derive(Debug, Default)]
struct Running {
    next: u64,
    /// by number: a position at or before the begin
    from: BTreeMap<u64, Lsn>,
}

/// The log of a database.
#[derive(Debug)]
pub struct Journal {
    wal: Wal,
    running: Mutex<Running>,
}

/// A transaction whose changes are being made.
#[derive(Debug)]
pub struct Begun {
    number: u64,
    /// the end of its begin: it is committed once the log is durable up to it
    pub commit: Lsn,
}

/// A record that redo meets.
#[derive(Debug)]
pub enum Record {
    Pages(Vec<u8>),
    Begin(WriteSet),
    /// the position of its begin
    End(Lsn),
}

impl Journal {
    /// Creates an empty log.
    pub fn create(device: Arc<dyn Device>, settings: WalSettings, id: u128) -> Result<Self> {
        Ok(Self::of(Wal::create(device, settings, id)?))
    }

    /// Opens the log and returns its records from `redo` on with the positions of their ends.
    pub fn open(
        device: Arc<dyn Device>,
        settings: WalSettings,
        id: u128,
        redo: Lsn,
    ) -> Result<(Self, Vec<(Lsn, Record)>)> {
        let mut records = Vec::new();
        let mut keep = |lsn: Lsn, bytes: &[u8]| {
            records.push((lsn, decode(lsn, bytes)?));
            Ok(())
        };
        let wal = Wal::open(device, settings, id, redo, redo, &mut keep)?;
        Ok((Self::of(wal), records))
    }

    fn of(wal: Wal) -> Self {
        Self {
            wal,
            running: Mutex::default(),
        }
    }

    fn put(&self, mut record: Vec<u8>) -> Result<Lsn> {
        let appended = self.wal.append(&mut record, &mut |_, _| Ok(()))?;
        Ok(appended.end)
    }

    /// Commits a transaction as soon as the log is durable up to [`Begun::commit`].
    pub fn begin(&self, writes: &WriteSet) -> Result<Begun> {
        let mut record = vec![BEGIN];
        writes.encode(&mut record);
        let number = {
            let mut running = self.running.lock();
            let number = running.next;
            running.next += 1;
            let from = self.wal.end_lsn();
            running.from.insert(number, from);
            number
        };
        match self.put(record) {
            Ok(commit) => Ok(Begun { number, commit }),
            Err(e) => {
                self.running.lock().from.remove(&number);
                Err(e)
            }
        }
    }

    /// Ends a transaction whose changes are made.
    pub fn finish(&self, begun: &Begun) -> Result<()> {
        self.put_end(begun.commit)?;
        self.running.lock().from.remove(&begun.number);
        Ok(())
    }

    /// Ends a transaction that redo has made again.
    pub fn put_end(&self, begin: Lsn) -> Result<()> {
        let mut record = vec![END];
        record.put_u64(begin.0);
        self.put(record).map(drop)
    }

    /// A position from which redo may begin after a checkpoint that begins after this call.
    pub fn redo_bound(&self) -> Lsn {
        let running = self.running.lock();
        let end = self.wal.end_lsn();
        running.from.values().copied().fold(end, Lsn::min)
    }

    /// Removes the log's files before `redo`.
    pub fn cut_before(&self, redo: Lsn) -> Result<()> {
        self.wal.cut_before(redo)
    }

    /// Syncs of the log so far.
    pub fn syncs(&self) -> u64 {
        self.wal.syncs()
    }
}

impl PageLog for Journal {
    fn append(&self, record: &[u8]) -> Result<Lsn> {
        let mut bytes = Vec::with_capacity(record.len() + 1);
        bytes.push(PAGES);
        bytes.extend_from_slice(record);
        self.put(bytes)
    }

    fn make_durable(&self, through: Lsn) -> Result<()> {
        self.wal.wait_durable(through)
    }

    fn end(&self) -> Lsn {
        self.wal.end_lsn()
    }
}

fn decode(lsn: Lsn, bytes: &[u8]) -> Result<Record> {
    let mut reader = ByteReader::new(bytes);
    let damaged = |what: &str| Error::corrupt(format!("the log before position {}", lsn.0), what);
    match reader.u8() {
        Some(PAGES) => Ok(Record::Pages(bytes.get(1..).unwrap_or_default().to_vec())),
        Some(BEGIN) => WriteSet::decode(&mut reader).map(Record::Begin),
        Some(END) => {
            let begin = reader
                .u64()
                .ok_or_else(|| damaged("an end without its begin"))?;
            Ok(Record::End(Lsn(begin)))
        }
        _ => Err(damaged("a record of no known kind")),
    }
}
