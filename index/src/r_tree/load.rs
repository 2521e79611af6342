//! Adds many entries: those of an empty tree are packed by sort-tile-recursive \[Leutenegger,
//! Edgington and Lopez, *STR*, ICDE 1997\], level by level from the leaves up.
//!
//! Packed nodes are nine tenths full. Nothing leads to them until the root is written, by the last
//! change; a load that fails before frees them. Writers wait for the packing of one run of up to
//! [`RUN_ENTRIES`] entries; searches do not.
//!
//! Entries of a tree that is not empty are added one by one, in the order in which STR would pack
//! them, so that those near each other follow each other.
//!
//! Differences from the paper: the nodes of a level have equally many entries, up to one, so that
//! no node is nearly empty. Runs behind the first one are not packed: their leaves would all
//! overlap with those of the first run.

use super::node::{Bound, Entry, Node, Tail, capacity};
use super::tree::Tree;
use super::{SpatialIndex, key_of, rect_of_key};
use crate::access_method::{AccessMethod, BulkLoad, Collision};
use crate::rect::Rect;
use crate::tree_pages::ROOT;
use std::cmp::Ordering;
use strandline_base::{Result, RowId, Value};
use strandline_storage::pages::{Access, PageNumber};

/// The maximum number of entries that a load packs together: 40 bytes each.
pub(super) const RUN_ENTRIES: usize = if cfg!(test) { 1000 } else { 1 << 20 };

/// The nodes that one change writes.
const CHANGE_PAGES: usize = 16;

impl Tree {
    /// Adds entries, unless they are there.
    pub fn load(&self, rects: Vec<(Rect, RowId)>) -> Result<()> {
        let bounds = rects.into_iter().map(|(rect, row)| Bound::of(rect, row));
        let tail = Tail::Live;
        let mut entries: Vec<_> = bounds.map(|bound| Entry { bound, tail }).collect();
        entries.sort_unstable_by_key(|entry| entry.bound);
        entries.dedup();
        let tiles = tiles(entries, self.packed(0));
        let others_wait = self.writers.lock();
        let root = self.read(ROOT, Access::Random)?;
        if root.entries.is_empty() {
            let count = tiles.iter().map(Vec::len).sum();
            self.pack(root, tiles)?;
            self.count.note(count, 0);
            return Ok(());
        }
        drop(others_wait);
        for entry in tiles.into_iter().flatten() {
            self.add(entry.bound.rect, entry.bound.row())?;
        }
        Ok(())
    }

    /// Entries of a packed node.
    fn packed(&self, level: u8) -> usize {
        let full = capacity(level, self.node_bytes);
        (full * 9 / 10).max(2)
    }

    /// Builds the tree below an empty root. Under the writers' lock.
    fn pack(&self, root: Node, tiles: Vec<Vec<Entry>>) -> Result<()> {
        let mut made = Vec::new();
        let packed = self.pack_below(root, tiles, &mut made);
        if packed.is_err() {
            for page in made {
                let mut change = self.begin();
                // A page that could not be freed is one that is not used again.
                let _ = change.free(page).and_then(|()| change.commit());
            }
        }
        packed
    }

    /// [`Tree::pack`]; appends the pages of new nodes to `made`.
    fn pack_below(
        &self,
        root: Node,
        mut tiles: Vec<Vec<Entry>>,
        made: &mut Vec<PageNumber>,
    ) -> Result<()> {
        let mut level = 0;
        while tiles.len() > 1 {
            let mut parents = Vec::with_capacity(tiles.len());
            for few in tiles.chunks(CHANGE_PAGES) {
                let mut change = self.begin();
                for entries in few {
                    let node = Node::new(level, entries.clone());
                    let page = change.allocate()?;
                    self.write(&mut change, page, &node)?;
                    let bound = node.bound().expect("no tile is empty");
                    parents.push(Entry::child(bound, page));
                }
                change.commit()?;
                made.extend(parents.iter().rev().take(few.len()).filter_map(child));
            }
            level += 1;
            tiles = match parents.len() <= capacity(level, self.node_bytes) {
                true => vec![parents],
                false => self::tiles(parents, self.packed(level)),
            };
        }
        let entries = tiles.pop().unwrap_or_default();
        let mut change = self.begin();
        change.write(ROOT)?;
        let root = Node {
            level,
            entries,
            ..root
        };
        self.write(&mut change, ROOT, &root)?;
        change.commit()?;
        Ok(())
    }
}

fn child(entry: &Entry) -> Option<PageNumber> {
    match entry.tail {
        Tail::Child(page) => Some(page),
        Tail::Live | Tail::Retired(_) => None,
    }
}

/// Divides entries into groups of up to `size`: by x into vertical slices, each by y into tiles.
fn tiles(mut entries: Vec<Entry>, size: usize) -> Vec<Vec<Entry>> {
    let count = entries.len();
    let tiles = count.div_ceil(size);
    let slices = (tiles as f64).sqrt().ceil() as usize;
    let begin_of = |tile: usize| count * tile / tiles.max(1);
    entries.sort_unstable_by(|a, b| by_centre(a, b, [0, 1]));
    let mut all = Vec::with_capacity(tiles);
    for slice in 0..slices {
        let (first, end) = (tiles * slice / slices, tiles * (slice + 1) / slices);
        let Some(part) = entries.get_mut(begin_of(first)..begin_of(end)) else {
            continue;
        };
        part.sort_unstable_by(|a, b| by_centre(a, b, [1, 0]));
        for tile in first..end {
            let places = begin_of(tile) - begin_of(first)..begin_of(tile + 1) - begin_of(first);
            all.extend(part.get(places).map(<[Entry]>::to_vec));
        }
    }
    all
}

/// By the centres of boxes along two axes; equal ones by row.
fn by_centre(a: &Entry, b: &Entry, axes: [usize; 2]) -> Ordering {
    let centre = |entry: &Entry, axis: usize| {
        let (low, high) = (entry.bound.rect.low(), entry.bound.rect.high());
        let pick = |[x, y]: [f64; 2]| if axis == 0 { x } else { y };
        pick(low) / 2.0 + pick(high) / 2.0
    };
    let along = |axis| centre(a, axis).total_cmp(&centre(b, axis));
    let by_axes = axes
        .into_iter()
        .map(along)
        .fold(Ordering::Equal, Ordering::then);
    by_axes.then_with(|| (a.bound.rows, a.bound.rect).cmp(&(b.bound.rows, b.bound.rect)))
}

/// A load of an index.
pub(super) struct SpatialLoad<'a> {
    index: &'a SpatialIndex,
    run: Vec<(Rect, RowId)>,
    /// rows of equal boxes, to be reported; None: not looked for
    collisions: Option<Vec<Collision>>,
    /// bytes that are counted in the index's memory
    counted: usize,
}

impl<'a> SpatialLoad<'a> {
    /// A load; if `is_unique`, it looks for rows of equal boxes.
    pub fn new(index: &'a SpatialIndex, is_unique: bool) -> Self {
        Self {
            index,
            run: Vec::new(),
            collisions: is_unique.then(Vec::new),
            counted: 0,
        }
    }

    fn count(&mut self, bytes: usize) {
        self.index.account(self.counted, bytes);
        self.counted = bytes;
    }

    /// Adds the collected entries to the index.
    fn enter(&mut self) -> Result<()> {
        let run = std::mem::take(&mut self.run);
        // The pairs, the entries, and the entries in tiles.
        let bytes =
            run.capacity() * size_of::<(Rect, RowId)>() + 2 * run.len() * size_of::<Entry>();
        self.count(bytes);
        let pushed = match &self.collisions {
            Some(_) => run.clone(),
            None => Vec::new(),
        };
        self.index.tree.load(run)?;
        for (rect, row) in pushed {
            let mut others = Vec::new();
            self.index.tree.rows_of(&rect, &mut others)?;
            others.retain(|other| *other != row);
            if !others.is_empty() {
                let key = key_of(&rect);
                let collision = Collision { key, row, others };
                self.collisions.get_or_insert_default().push(collision);
            }
        }
        self.count(0);
        Ok(())
    }
}

impl BulkLoad for SpatialLoad<'_> {
    fn push(&mut self, key: &[Value], row: RowId, _others: &mut Vec<RowId>) -> Result<()> {
        let rect = rect_of_key(&self.index.encode(key))?;
        self.run.push((rect, row));
        if self.run.len() >= RUN_ENTRIES {
            self.enter()?;
        } else if self.run.len().is_multiple_of(1 << 12) {
            self.count(self.run.capacity() * size_of::<(Rect, RowId)>());
        }
        Ok(())
    }

    fn collisions(&mut self) -> Result<Vec<Collision>> {
        self.enter()?;
        let found = self.collisions.as_mut().map(std::mem::take);
        Ok(found.unwrap_or_default())
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        self.enter()
    }
}

impl Drop for SpatialLoad<'_> {
    fn drop(&mut self) {
        self.count(0);
    }
}
