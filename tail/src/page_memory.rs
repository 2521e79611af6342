//! The memory that record pages and row maps hold.

use crate::record_words::zeros;
use crate::spare_lines::SpareLines;
use strandline_base::sync::{Arc, AtomicU64, AtomicUsize, Ordering};

/// The memory of all tails and insert pages of a database.
pub type PageBytes = Arc<PageAccount>;

/// Bytes held by pages, and spare bytes that merged pages have left.
#[derive(Debug, Default)]
pub struct PageAccount {
    used: AtomicUsize,
    spare: SpareLines,
    first_record: u64,
}

impl PageAccount {
    /// An account whose tails number their records from `first_record` on, for tests of large
    /// numbers.
    pub fn with_first_record(first_record: u64) -> Self {
        Self {
            first_record,
            ..Self::default()
        }
    }
    pub(crate) fn first_record(&self) -> u64 {
        self.first_record
    }
    /// Bytes that pages, row maps and overlays hold.
    #[inline]
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
    /// Spare bytes: held by no page, kept for the next ones.
    pub fn spare(&self) -> usize {
        self.spare.bytes()
    }
    /// Releases a part of the spare memory that was not needed since the last call. Call it a few
    /// times per second.
    pub fn trim_spare(&self) {
        self.spare.trim();
    }
    pub(crate) fn spare_lines(&self) -> &SpareLines {
        &self.spare
    }
    pub(crate) fn add(&self, bytes: usize) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }
    pub(crate) fn subtract(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// The share of a page or a tail in [`PageBytes`], given back when it is dropped.
#[derive(Debug)]
pub(crate) struct PageMemory {
    all: PageBytes,
    own: AtomicUsize,
}

impl PageMemory {
    /// A share of `bytes`.
    pub fn new(all: &PageBytes, bytes: usize) -> Self {
        let memory = Self {
            all: all.clone(),
            own: AtomicUsize::new(0),
        };
        memory.add(bytes);
        memory
    }
    /// The account this is a share of.
    pub fn all(&self) -> &PageBytes {
        &self.all
    }
    /// Bytes that this share holds.
    pub fn own(&self) -> usize {
        self.own.load(Ordering::Relaxed)
    }
    /// It holds `bytes` more.
    pub fn add(&self, bytes: usize) {
        self.all.add(bytes);
        self.own.fetch_add(bytes, Ordering::Relaxed);
    }
    /// `n` words, counted.
    pub fn words(&self, n: usize) -> Box<[AtomicU64]> {
        self.add(n * size_of::<u64>());
        zeros(n)
    }
}

impl Drop for PageMemory {
    fn drop(&mut self) {
        self.all.subtract(*self.own.get_mut());
    }
}
