//! An index with blocks on a page store in memory, and what tests look at.

use super::*;
use crate::PartOrder;
pub use crate::search_tree::tests::support::{Logged, MemoryLog, number, store};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use strandline_device::MemoryDevice;
pub use strandline_storage::pages::PAGE_BODY_BYTES;

/// The tree's file and the blocks' file.
pub const FILES: (PageFileId, PageFileId) = (PageFileId(7), PageFileId(8));
pub const KINDS: [BlockKind; 2] = [BlockKind::Sparse, BlockKind::Dense];

pub fn seed() -> u64 {
    let text = std::env::var("STRANDLINE_SEED").ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(1)
}

pub fn form(kind: BlockKind, entries: usize) -> LidForm {
    LidForm {
        kind,
        entries,
        key_bytes: 12,
    }
}

pub fn settings(node_bytes: usize, oldest: &Arc<AtomicU64>) -> PagedIndexSettings {
    let oldest = oldest.clone();
    let oldest_snapshot = Arc::new(move || CommitTs(oldest.load(Relaxed)));
    let mut settings = PagedIndexSettings::new(vec![PartOrder::default()], oldest_snapshot);
    settings.node_bytes = node_bytes;
    settings
}

/// An index under test and its surroundings.
pub struct Tested {
    pub store: Arc<PageStore>,
    pub index: LidIndex,
    oldest: Arc<AtomicU64>,
    node_bytes: usize,
}

impl Tested {
    pub fn new(kind: BlockKind, entries: usize, node_bytes: usize) -> Self {
        let device = Arc::new(MemoryDevice::default());
        let store = store(device, Arc::default(), 40);
        Self::on(store, form(kind, entries), node_bytes).expect("created")
    }

    /// A new index on a page store.
    pub fn on(store: Arc<PageStore>, form: LidForm, node_bytes: usize) -> Result<Self> {
        let oldest = Arc::default();
        let settings = settings(node_bytes, &oldest);
        Ok(Self {
            index: LidIndex::create(store.clone(), FILES, settings, form)?,
            store,
            oldest,
            node_bytes,
        })
    }

    /// Opens the same files anew.
    pub fn reopen(&mut self) {
        let settings = settings(self.node_bytes, &self.oldest);
        let (form, blocks) = (self.index.form(), self.index.blocks());
        self.index = LidIndex::open(self.store.clone(), FILES, settings).expect("opened");
        assert_eq!((self.index.form(), self.index.blocks()), (form, blocks));
    }

    pub fn oldest(&self) -> CommitTs {
        CommitTs(self.oldest.load(Relaxed))
    }

    pub fn advance(&self, by: u64) {
        self.oldest.fetch_add(by, Relaxed);
    }

    /// The number of entries after a vacuum.
    pub fn vacuumed(&self) -> usize {
        vacuumed(&self.index)
    }

    pub fn key(&self, v: i64) -> KeyBytes {
        self.index.encode(&number(v))
    }

    pub fn rows(&self, v: i64) -> Vec<u64> {
        let mut rows = Vec::new();
        self.index.lookup(&self.key(v), &mut rows).expect("read");
        rows.into_iter().map(|row| row.0).collect()
    }
}

/// Verifies what holds at any moment.
pub fn assert_sound(index: &LidIndex) {
    let mut damage = Vec::new();
    index.check(&mut damage).expect("checked");
    assert_eq!(damage, Vec::<String>::new());
}

pub fn collect(index: &LidIndex, range: &KeyRange, direction: Direction) -> Vec<(KeyBytes, RowId)> {
    rest_of(index.cursor(range, direction).expect("ordered"))
}

pub fn rest_of(mut cursor: Box<dyn Cursor + '_>) -> Vec<(KeyBytes, RowId)> {
    std::iter::from_fn(|| cursor.next().expect("read")).collect()
}

/// The number of entries after a vacuum; the check has counted them.
pub fn vacuumed(index: &LidIndex) -> usize {
    index.vacuum().expect("vacuumed");
    assert_sound(index);
    index.len()
}
