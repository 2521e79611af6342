//! An index on a page store in memory, and what tests look at.

use super::*;
use crate::r_tree::tree::Visit;
use std::collections::BTreeSet;
use std::sync::atomic::AtomicU64;
use strandline_device::MemoryDevice;
use strandline_storage::pages::{Access, PageNumber};

/// An index under test and its surroundings.
pub struct Tested {
    pub store: Arc<PageStore>,
    pub index: SpatialIndex,
    pub memory: Arc<Counter>,
    oldest: Arc<AtomicU64>,
    node_bytes: usize,
}

/// An entry and its distance.
pub type Near = (f64, Rect, RowId);

pub fn settings(node_bytes: usize, oldest: &Arc<AtomicU64>) -> SpatialIndexSettings {
    let oldest = oldest.clone();
    let oldest_snapshot = Arc::new(move || CommitTs(oldest.load(Relaxed)));
    let mut settings = SpatialIndexSettings::new(oldest_snapshot);
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
        let index = SpatialIndex::create(store.clone(), FILE, settings).expect("created");
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
        let index = SpatialIndex::open(self.store.clone(), FILE, settings).expect("opened");
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

    pub fn add(&self, rect: Rect, row: RowId) -> bool {
        self.index.add(&key_of(&rect), row).expect("added")
    }

    pub fn retire(&self, rect: Rect, row: RowId, since: CommitTs) {
        let retired = self.index.retire(&key_of(&rect), row, since);
        retired.expect("retired");
    }

    pub fn remove(&self, rect: Rect, row: RowId) {
        self.retire(rect, row, CommitTs::ZERO);
    }

    pub fn load(&self, entries: &[(Rect, RowId)]) {
        let mut load = self.index.bulk_load();
        for (rect, row) in entries {
            let pushed = load.push(&values(rect), *row, &mut Vec::new());
            pushed.expect("pushed");
        }
        load.finish().expect("loaded");
    }

    /// The entries that a search finds, sorted; each must come once.
    pub fn collect(&self, query: SpatialQuery) -> Vec<(Rect, RowId)> {
        collect(&self.index, query)
    }

    pub fn nearest(&self, point: [f64; 2]) -> Vec<Near> {
        let mut cursor = self.index.nearest(point).expect("spatial");
        let next = || cursor.next().expect("read");
        let found = std::iter::from_fn(next);
        found.map(|n| (n.distance, n.rect, n.row)).collect()
    }

    /// The rows of equal boxes, sorted.
    pub fn rows_of(&self, rect: Rect) -> Vec<RowId> {
        let mut rows = Vec::new();
        self.index.lookup(&key_of(&rect), &mut rows).expect("read");
        rows.sort_unstable();
        rows
    }

    /// Verifies everything: nothing is changed meanwhile, and no search runs, so that no page is
    /// lost.
    pub fn assert_whole(&self) {
        assert_sound(&self.index);
        assert_eq!(
            nodes(&self.index).len(),
            self.pages(),
            "pages in use and nodes"
        );
    }

    /// Pages in use.
    pub fn pages(&self) -> usize {
        self.store.check(FILE).expect("whole").used.len()
    }

    /// The numbers of entries of all nodes of a level.
    pub fn fills(&self, level: u8) -> Vec<usize> {
        let read = |page| self.index.tree.read(page, Access::Random).expect("whole");
        let nodes = nodes(&self.index).into_iter().map(read);
        let of_level = nodes.filter(|node| node.level == level);
        of_level.map(|node| node.entries.len()).collect()
    }

    /// The number of levels.
    pub fn levels(&self) -> usize {
        let root = self.index.tree.visit(&Visit::ROOT, Access::Random);
        usize::from(root.expect("whole").level) + 1
    }
}

pub fn collect(index: &SpatialIndex, query: SpatialQuery) -> Vec<(Rect, RowId)> {
    let mut cursor = index.search(&query).expect("spatial");
    let next = || cursor.next().expect("read");
    let entries = std::iter::from_fn(next);
    let rect = |key| SpatialIndex::rect(&key).expect("a box");
    let mut entries: Vec<_> = entries.map(|(key, row)| (rect(key), row)).collect();
    entries.sort_unstable();
    assert!(entries.is_sorted_by(|a, b| a < b), "an entry came twice");
    entries
}

/// Verifies what holds at any moment.
pub fn assert_sound(index: &SpatialIndex) {
    let mut damage = Vec::new();
    index.check(&mut damage).expect("checked");
    assert_eq!(damage, Vec::<String>::new());
}

/// The pages of all nodes, found from the root.
pub fn nodes(index: &SpatialIndex) -> BTreeSet<PageNumber> {
    let (mut found, mut visits) = (BTreeSet::new(), vec![Visit::ROOT]);
    while let Some(visit) = visits.pop() {
        let node = index.tree.visit(&visit, Access::Random).expect("whole");
        assert!(!node.is_gone && found.insert(visit.page));
        let children = node.children();
        visits.extend(children.map(|(_, page)| Tree::child_of(&node, page)));
    }
    found
}

pub fn values(rect: &Rect) -> [Value; 4] {
    let ([a, b], [c, d]) = (rect.low(), rect.high());
    [a, b, c, d].map(Value::Double)
}

/// A point of its own for each number.
pub fn number(v: u64) -> Rect {
    Rect::point([(v % 64) as f64, (v / 64) as f64])
}
