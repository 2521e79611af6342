//! An index on a page store in memory, and what tests look at.

use crate::search_tree::kind::Kind;
use crate::search_tree::node::Probe;
use crate::search_tree::tree::{ROOT, Tree};
use crate::search_tree::{PagedIndex, PagedIndexSettings};
pub use crate::tree_pages::tests::*;
use crate::{AccessMethod, Direction, KeyBytes, KeyRange, PartOrder};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize as Counter;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use strandline_base::{CommitTs, RowId, Value};
use strandline_device::MemoryDevice;
use strandline_storage::pages::{Access, PageNumber, PageStore};

/// An index under test and its surroundings.
pub struct Tested {
    pub store: Arc<PageStore>,
    pub index: PagedIndex,
    pub memory: Arc<Counter>,
    oldest: Arc<AtomicU64>,
    pub node_bytes: usize,
}

pub fn settings(node_bytes: usize, oldest: &Arc<AtomicU64>) -> PagedIndexSettings {
    let oldest = oldest.clone();
    let oldest_snapshot = Arc::new(move || CommitTs(oldest.load(Relaxed)));
    let mut settings = PagedIndexSettings::new(vec![PartOrder::default()], oldest_snapshot);
    settings.node_bytes = node_bytes;
    settings
}

impl Tested {
    pub fn new(node_bytes: usize) -> Self {
        let device = Arc::new(MemoryDevice::default());
        Self::on(store(device, Arc::default(), 10_000), node_bytes)
    }

    /// A new index on a page store.
    pub fn on(store: Arc<PageStore>, node_bytes: usize) -> Self {
        let oldest = Arc::default();
        let settings = settings(node_bytes, &oldest);
        let memory = settings.memory.clone();
        let index = PagedIndex::create(store.clone(), FILE, settings).expect("created");
        Self {
            store,
            index,
            memory,
            oldest,
            node_bytes,
        }
    }

    /// The same file, opened anew.
    pub fn reopened(&self) -> Self {
        let settings = settings(self.node_bytes, &self.oldest);
        let memory = settings.memory.clone();
        let index = PagedIndex::open(self.store.clone(), FILE, settings).expect("opened");
        Self {
            store: self.store.clone(),
            index,
            memory,
            oldest: self.oldest.clone(),
            node_bytes: self.node_bytes,
        }
    }

    pub fn oldest(&self) -> u64 {
        self.oldest.load(Relaxed)
    }

    pub fn advance(&self, by: u64) {
        self.oldest.fetch_add(by, Relaxed);
    }

    pub fn key(&self, v: i64) -> KeyBytes {
        self.index.encode(&number(v))
    }

    /// Verifies everything: nothing is changed meanwhile, so that no node is unposted and no page
    /// is lost.
    pub fn assert_whole(&self) {
        assert_sound(&self.index);
        let (nodes, unposted) = nodes(&self.index.tree);
        assert_eq!(unposted, 0, "nodes without an entry in their parents");
        assert_eq!(nodes.len(), self.pages(), "pages in use and nodes");
    }

    /// Pages in use.
    pub fn pages(&self) -> usize {
        self.store.check(FILE).expect("whole").used.len()
    }

    /// The leaves' pages from left to right, and the bytes in use.
    pub fn leaves(&self) -> Vec<(u32, usize)> {
        let tree = &self.index.tree;
        let (mut leaves, mut from) = (Vec::new(), Some(Box::<[u8]>::default()));
        while let Some(at) = from {
            let (number, page) = tree.leaf(Probe::At(&at), Access::Random).expect("read");
            let leaf = tree.node(number, &page).expect("whole").expect("a leaf");
            leaves.push((number.0, leaf.size()));
            from = leaf.high();
        }
        leaves
    }
}

/// Verifies what holds at any moment.
pub fn assert_sound(index: &PagedIndex) {
    let mut damage = Vec::new();
    index.check(&mut damage).expect("checked");
    assert_eq!(damage, Vec::<String>::new());
}

/// The pages of all nodes, found by right links, and the number of those that no parent has.
pub(in crate::search_tree) fn nodes<K: Kind>(tree: &Tree<K>) -> (BTreeSet<PageNumber>, usize) {
    let (mut found, mut posted) = (BTreeSet::from([ROOT]), BTreeSet::from([ROOT]));
    for level in (0..=tree.height().expect("read")).rev() {
        let mut from = Some(Box::<[u8]>::default());
        while let Some(at) = from {
            let located = tree.locate(level, Probe::At(&at), Access::Random, &mut Vec::new());
            let (number, page) = located.expect("read").expect("not above the root");
            let node = tree.node(number, &page).expect("whole").expect("a node");
            found.insert(number);
            if level > 0 {
                posted.extend((0..node.len()).map(|at| node.child(at).expect("whole")));
            }
            from = node.high();
        }
    }
    let unposted = found.difference(&posted).count();
    assert!(
        posted.is_subset(&found),
        "a parent has a child that is no node"
    );
    (found, unposted)
}

pub fn number(v: i64) -> [Value; 1] {
    [Value::BigInt(v)]
}

pub fn collect(
    index: &PagedIndex,
    range: &KeyRange,
    direction: Direction,
) -> Vec<(KeyBytes, RowId)> {
    let mut cursor = index.cursor(range, direction).expect("ordered");
    std::iter::from_fn(|| cursor.next().expect("read")).collect()
}

pub fn collect_after(
    index: &PagedIndex,
    range: &KeyRange,
    direction: Direction,
    after: &(KeyBytes, RowId),
) -> Vec<(KeyBytes, RowId)> {
    let cursor = index.cursor_after(range, direction, after);
    let mut cursor = cursor.expect("ordered");
    std::iter::from_fn(|| cursor.next().expect("read")).collect()
}
