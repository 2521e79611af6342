//! The access method over boxes: an R-tree \[Guttman 1984\] as a generalised search tree
//! \[Hellerstein, Naughton and Pfeffer, *GiST*, VLDB 1995; Kornacker, Mohan and Hellerstein, SIGMOD
//! 1997; Indirection §4\] on the pages of a file.
//!
//! A key is a point or a box: one value, or the coordinates (x, y) of a point or (x, y, x, y) of
//! two opposite corners, of double precision. An entry has a box and a row's number, which never
//! changes. It is a hint that the row's versions prove, as an entry of the B-tree on pages is one
//! (`search_tree`): retired entries, sweeps, and the estimated number of entries after opening are
//! the same.
//!
//! Why it is no kind of `search_tree`'s tree: that tree finds and verifies a node by two fences of
//! ordered bytes. Boxes have no order, a box may be below several children, and a bound changes
//! with every entry. So descents, splits, links, checks and cursors would all be two programs in
//! one. The two trees share the page store with its log records, the root's place, retired entries
//! and their number (`tree_pages`).
//!
//! Limits: entries of a lookup or a search come in no order. A node that has few entries left stays
//! until it has none.
//!
//! `tree` has invariants, protocol and lock order; `node` and docs/format.md have the bytes;
//! docs/rfcs/1-pages-and-search-tree.md has the whole with the page store.
//!
//! Differences from the papers: `tree`, `divide` and `load`.
//!
//! Rooms from below: `node`, `searches` and `divide`, `tree`, then `write`, `load`, `cursor` and
//! `check`, which add to the tree.

mod check;
mod cursor;
mod divide;
mod load;
mod node;
mod searches;
mod tree;
mod write;

use crate::access_method::{
    AccessMethod, BulkLoad, Capabilities, Cursor, KeyBytes, Lookup, NearestCursor, OldestSnapshot,
    SpatialMethod,
};
use crate::rect::{Rect, SpatialQuery};
use cursor::{ConditionCursor, DistanceCursor};
use load::SpatialLoad;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize as Counter; // counts bytes; no part of the protocol
use std::sync::atomic::Ordering::Relaxed;
use strandline_base::{CommitTs, Error, Result, RowId, Value};
use strandline_storage::pages::{PAGE_BODY_BYTES, PageFileId, PageStore};
use tree::Tree;

/// The fewest bytes of a node, which has four entries then.
pub const SPATIAL_NODE_BYTES_MIN: usize = node::NODE_BYTES_MIN;

/// What a spatial index needs beside its file.
#[derive(Clone)]
pub struct SpatialIndexSettings {
    /// bytes of a page that a node uses, from [`SPATIAL_NODE_BYTES_MIN`] on; PAGE_BODY_BYTES but in
    /// tests. A file keeps the number that it was created with.
    pub node_bytes: usize,
    /// gives the oldest snapshot's timestamp, by which retired entries go
    pub oldest_snapshot: OldestSnapshot,
    /// counts the bytes of memory, which are those of loads
    pub memory: Arc<Counter>,
}

impl SpatialIndexSettings {
    /// Settings for nodes of whole pages.
    pub fn new(oldest_snapshot: OldestSnapshot) -> Self {
        Self {
            node_bytes: PAGE_BODY_BYTES,
            oldest_snapshot,
            memory: Arc::default(),
        }
    }
}

/// The index over boxes on a page file; see the module's documentation.
pub struct SpatialIndex {
    tree: Arc<Tree>,
    memory: Arc<Counter>,
}

impl SpatialIndex {
    /// Creates the file and an empty index in it.
    ///
    /// # Errors
    /// Those of the page store.
    pub fn create(
        store: Arc<PageStore>,
        file: PageFileId,
        settings: SpatialIndexSettings,
    ) -> Result<Self> {
        store.create_file(file)?;
        let index = Self::over(store, file, settings)?;
        index.tree.plant()?;
        Ok(index)
    }

    /// Opens the index in a file that the page store has opened, as the replay of the log has left
    /// it.
    ///
    /// # Errors
    /// XX001 if the root or one of the nodes from which the number of entries is estimated is
    /// damaged.
    pub fn open(
        store: Arc<PageStore>,
        file: PageFileId,
        settings: SpatialIndexSettings,
    ) -> Result<Self> {
        let index = Self::over(store, file, settings)?;
        let held = index.tree.count_roughly()?;
        index.tree.count.set((0, 0), held);
        Ok(index)
    }

    fn over(
        store: Arc<PageStore>,
        file: PageFileId,
        settings: SpatialIndexSettings,
    ) -> Result<Self> {
        let SpatialIndexSettings {
            node_bytes,
            oldest_snapshot,
            memory,
        } = settings;
        Ok(Self {
            tree: Arc::new(Tree::new(store, file, node_bytes, oldest_snapshot)?),
            memory,
        })
    }

    /// The bytes of a box as a key.
    pub fn key(rect: &Rect) -> KeyBytes {
        key_of(rect)
    }

    /// The box of a key that [`AccessMethod::encode`] or a cursor gave.
    ///
    /// # Errors
    /// XX000 if it is not one.
    pub fn rect(key: &KeyBytes) -> Result<Rect> {
        rect_of_key(key)
    }

    /// A load's memory has changed, in bytes.
    fn account(&self, before: usize, after: usize) {
        self.memory.fetch_add(after.wrapping_sub(before), Relaxed);
    }
}

/// The box of a key's values; None if they are no point, no box, and not two or four numbers of
/// double precision.
fn rect_of_values(key: &[Value]) -> Option<Rect> {
    match key {
        [Value::Point(point)] => Some(Rect::point(point.coordinates())),
        [Value::Box(corners)] => Some(Rect::new(corners.high(), corners.low())),
        [Value::Double(x), Value::Double(y)] => Some(Rect::point([*x, *y])),
        [
            Value::Double(ax),
            Value::Double(ay),
            Value::Double(bx),
            Value::Double(by),
        ] => Some(Rect::new([*ax, *ay], [*bx, *by])),
        _ => None,
    }
}

/// The bytes of a box as a key: least x, least y, greatest x, greatest y, big-endian.
fn key_of(rect: &Rect) -> KeyBytes {
    let (low, high) = (rect.low(), rect.high());
    let coordinates = low.into_iter().chain(high);
    let bytes: Vec<u8> = coordinates.flat_map(f64::to_be_bytes).collect();
    KeyBytes::encoded(bytes)
}

fn rect_of_key(key: &KeyBytes) -> Result<Rect> {
    let (coordinates, rest) = key.as_slice().as_chunks();
    let coordinates: Vec<f64> = coordinates
        .iter()
        .copied()
        .map(f64::from_be_bytes)
        .collect();
    let rect = match coordinates.as_slice() {
        [a, b, c, d] if rest.is_empty() => Rect::from_stored([*a, *b], [*c, *d]),
        _ => None,
    };
    rect.ok_or_else(|| {
        Error::internal(
            "a spatial index was given a key that is no box: its value must be a point or a box, \
             or two or four numbers of double precision",
        )
    })
}

impl AccessMethod for SpatialIndex {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            ordered: false,
            durable: true,
        }
    }

    /// Values that are no point and no box have no bytes, and every use of them is an error.
    fn encode(&self, key: &[Value]) -> KeyBytes {
        let rect = rect_of_values(key);
        rect.map_or_else(|| KeyBytes::encoded([]), |rect| key_of(&rect))
    }

    fn insert(&self, key: &KeyBytes, row: RowId, others: &mut Vec<RowId>) -> Result<bool> {
        self.tree.insert_seeing(rect_of_key(key)?, row, others)
    }

    fn add(&self, key: &KeyBytes, row: RowId) -> Result<bool> {
        self.tree.add(rect_of_key(key)?, row)
    }

    fn find(&self, key: &[Value]) -> Result<Lookup> {
        let rect = rect_of_key(&self.encode(key))?;
        let mut found = ConditionCursor::new(&self.tree, SpatialQuery::Equals(rect));
        Ok(match (found.next()?, found.next()?) {
            (None, _) => Lookup::None,
            (Some((_, row)), None) => Lookup::One(row),
            (Some(_), Some(_)) => Lookup::Several,
        })
    }

    fn lookup(&self, key: &KeyBytes, rows: &mut Vec<RowId>) -> Result<()> {
        self.tree.rows_of(&rect_of_key(key)?, rows)
    }

    fn retire(&self, key: &KeyBytes, row: RowId, since: CommitTs) -> Result<()> {
        self.tree.retire(rect_of_key(key)?, row, since)
    }

    fn retain(&self, keep: &mut dyn FnMut(&KeyBytes, RowId) -> bool) -> Result<()> {
        self.tree.retain(&mut |rect, row| keep(&key_of(rect), row))
    }

    fn bulk_load(&self) -> Box<dyn BulkLoad + '_> {
        Box::new(SpatialLoad::new(self, false))
    }

    fn bulk_load_unique(&self) -> Box<dyn BulkLoad + '_> {
        Box::new(SpatialLoad::new(self, true))
    }

    fn check(&self, damage: &mut Vec<String>) -> Result<()> {
        self.tree.check(damage)
    }

    fn spatial(&self) -> Option<&dyn SpatialMethod> {
        Some(self)
    }

    /// After opening an estimate, until a check has counted the entries.
    fn len(&self) -> usize {
        self.tree.count.get()
    }

    /// The index itself: its pages belong to the page store.
    fn memory_bytes(&self) -> usize {
        size_of::<Self>()
    }
}

impl SpatialMethod for SpatialIndex {
    fn search(&self, query: &SpatialQuery) -> Result<Box<dyn Cursor + '_>> {
        Ok(Box::new(ConditionCursor::new(&self.tree, *query)))
    }

    fn nearest(&self, point: [f64; 2]) -> Result<Box<dyn NearestCursor>> {
        Ok(Box::new(DistanceCursor::new(self.tree.clone(), point)))
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests;
