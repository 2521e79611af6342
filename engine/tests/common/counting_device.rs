//! A device in memory that counts accesses, and the bytes that pass through it, by kind of file.

use std::collections::BTreeMap;
use std::sync::Arc;
use strandline_base::sync::Mutex;
use strandline_device::{File, MemoryDevice, ReadAt};
use strandline_engine::{Device, Result};

/// A number by the first part of files' names, such as `run`.
#[derive(Clone, Debug, Default)]
struct Counts(Arc<Mutex<BTreeMap<String, u64>>>);

impl Counts {
    fn add(&self, kind: &str, n: u64) {
        let mut counts = self.0.lock();
        match counts.get_mut(kind) {
            Some(count) => *count += n,
            None => drop(counts.insert(kind.to_string(), n)),
        }
    }
    fn raise(&self, kind: &str, to: u64) {
        let mut counts = self.0.lock();
        let most = counts.entry(kind.to_string()).or_default();
        *most = to.max(*most);
    }
    fn of(&self, kind: &str) -> u64 {
        self.0.lock().get(kind).copied().unwrap_or_default()
    }
}

/// The device.
#[derive(Debug, Default)]
pub struct CountingDevice {
    inner: MemoryDevice,
    reads: Counts,
    waits: Counts,
    read: Counts,
    written: Counts,
    largest_writes: Counts,
}

impl CountingDevice {
    fn counting(&self, name: &str, inner: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(CountingFile {
            inner,
            kind: name.split('-').next().unwrap_or(name).to_string(),
            reads: self.reads.clone(),
            waits: self.waits.clone(),
            read: self.read.clone(),
            written: self.written.clone(),
            largest_writes: self.largest_writes.clone(),
        })
    }

    /// Bytes written to files of a kind so far.
    pub fn written(&self, kind: &str) -> u64 {
        self.written.of(kind)
    }

    /// Bytes of the largest write to files of a kind so far.
    pub fn largest_write(&self, kind: &str) -> u64 {
        self.largest_writes.of(kind)
    }

    /// Reads of files of a kind so far.
    pub fn reads(&self, kind: &str) -> u64 {
        self.reads.of(kind)
    }

    /// How often somebody has waited for reads of files of a kind so far: the reads of a batch are
    /// waited for once.
    pub fn waits(&self, kind: &str) -> u64 {
        self.waits.of(kind)
    }

    /// The device below, whose accesses are not counted.
    pub fn inner(&self) -> &MemoryDevice {
        &self.inner
    }

    /// Bytes read of files of a kind so far.
    pub fn read(&self, kind: &str) -> u64 {
        self.read.of(kind)
    }

    /// All bytes of a file.
    pub fn content(&self, name: &str) -> Vec<u8> {
        let file = self.inner.open(name).expect("open");
        let mut content = vec![0; file.len().expect("len") as usize];
        file.read_exact_at(&mut content, 0).expect("read");
        content
    }

    /// Bytes of the files of a kind that are there.
    pub fn stored(&self, kind: &str) -> u64 {
        let names = self.inner.list().expect("list").into_iter();
        let names = names.filter(|name| name.starts_with(kind));
        let len = |name: String| self.inner.open(&name).expect("open").len().expect("len");
        names.map(len).sum()
    }

    /// How often `work` reads all bytes of a kind that were stored before it.
    pub fn passes<R>(&self, kind: &str, work: impl FnOnce() -> R) -> (R, f64) {
        let (before, stored) = (self.read(kind), self.stored(kind));
        let done = work();
        let read = self.read(kind) - before;
        (done, read as f64 / stored as f64)
    }
}

impl Device for CountingDevice {
    strandline_device::forward!(inner: remove rename list sync_directory lock location);

    fn create(&self, name: &str) -> Result<Arc<dyn File>> {
        Ok(self.counting(name, self.inner.create(name)?))
    }
    fn open(&self, name: &str) -> Result<Arc<dyn File>> {
        Ok(self.counting(name, self.inner.open(name)?))
    }
}

#[derive(Debug)]
struct CountingFile {
    inner: Arc<dyn File>,
    kind: String,
    reads: Counts,
    waits: Counts,
    read: Counts,
    written: Counts,
    largest_writes: Counts,
}

impl File for CountingFile {
    strandline_device::forward!(inner: name sync len set_len);

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.waits.add(&self.kind, 1);
        self.reads.add(&self.kind, 1);
        self.read.add(&self.kind, buf.len() as u64);
        self.inner.read_exact_at(buf, offset)
    }
    fn read_batch(&self, reads: &mut [ReadAt<'_>]) -> Result<()> {
        self.waits.add(&self.kind, 1);
        for read in &*reads {
            self.reads.add(&self.kind, 1);
            self.read.add(&self.kind, read.buf.len() as u64);
        }
        self.inner.read_batch(reads)
    }
    fn write_all_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.written.add(&self.kind, buf.len() as u64);
        self.largest_writes.raise(&self.kind, buf.len() as u64);
        self.inner.write_all_at(buf, offset)
    }
}
