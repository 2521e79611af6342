//! The memory that record pages and row maps hold.

use strandline_base::sync::{Arc, AtomicU64, AtomicUsize, Ordering};

/// The bytes held by all tails and insert pages of a database.
pub type PageBytes = Arc<AtomicUsize>;

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
    /// It holds `bytes` more.
    pub fn add(&self, bytes: usize) {
        self.all.fetch_add(bytes, Ordering::Relaxed);
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
        self.all.fetch_sub(*self.own.get_mut(), Ordering::Relaxed);
    }
}

/// `n` words.
pub(crate) fn zeros(n: usize) -> Box<[AtomicU64]> {
    (0..n).map(|_| AtomicU64::new(0)).collect()
}
