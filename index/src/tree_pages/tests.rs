//! A page store over a log in memory, for the tests of trees.

use std::sync::Arc;
use std::sync::Mutex;
use strandline_base::{Error, Result};
use strandline_device::Device;
use strandline_storage::pages::{PAGE_BYTES, PageFileId, PageLog, PageSettings, PageStore};
use strandline_storage::pool::Pool;
use strandline_storage::wal::Lsn;

pub const FILE: PageFileId = PageFileId(7);

/// A log in memory: records with their ends, and the end of the durable ones.
#[derive(Debug, Default)]
pub struct MemoryLog(pub Mutex<Logged>);

#[derive(Clone, Debug, Default)]
pub struct Logged {
    pub records: Vec<(Lsn, Vec<u8>)>,
    pub durable: Lsn,
    /// appends fail from the time on when it is 0
    pub appends_left: Option<usize>,
}

impl Logged {
    pub fn end(&self) -> Lsn {
        self.records.last().map_or(Lsn(64), |(end, _)| *end)
    }
}

impl PageLog for MemoryLog {
    fn append(&self, record: &[u8]) -> Result<Lsn> {
        let mut log = self.0.lock().expect("not poisoned");
        if let Some(left) = &mut log.appends_left {
            *left = left
                .checked_sub(1)
                .ok_or_else(|| Error::internal("the log is full"))?;
        }
        let end = Lsn(log.end().0 + 8 + record.len() as u64);
        log.records.push((end, record.to_vec()));
        Ok(end)
    }
    fn make_durable(&self, through: Lsn) -> Result<()> {
        let mut log = self.0.lock().expect("not poisoned");
        log.durable = log.durable.max(through);
        Ok(())
    }
    fn end(&self) -> Lsn {
        self.0.lock().expect("not poisoned").end()
    }
}

/// A page store with memory for so many pages.
pub fn store(device: Arc<dyn Device>, log: Arc<MemoryLog>, pages: usize) -> Arc<PageStore> {
    let settings = PageSettings {
        pool: Pool::new(pages * PAGE_BYTES),
        ..PageSettings::default()
    };
    PageStore::new(device, log, settings)
}
