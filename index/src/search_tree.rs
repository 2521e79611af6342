//! The ordered access method on a device: a generalised search tree \[Hellerstein, Naughton and
//! Pfeffer, *GiST*, VLDB 1995; Indirection §4\] on the pages of a file. Its kind is the
//! B-tree over ordered key bytes.
//!
//! An entry has a key's bytes and a row's number, which never changes: so an update touches only
//! the indexes of columns that it changes \[Indirection §2\]. An entry is a hint that the row's
//! versions prove. So pages know no transactions: a page's change is redone after a crash whatever
//! became of the transaction, and the key sweep finds and removes entries that no row needs.
//!
//! * Nodes may exceed memory; the page store (`strandline_storage::pages`) keeps the recently used
//!   ones, and logs and replays their changes. The tree is not rebuilt at opening.
//! * A retired entry stays as long as a snapshot may need it. It goes when a write needs its space,
//!   when it is retired again, and by every sweep ([`AccessMethod::retain`]).
//! * The number of entries is not stored: after opening it is an estimate, until a check has
//!   counted the entries.
//!
//! `tree` has invariants, protocol and lock order; `node` and docs/format.md have the bytes;
//! docs/rfcs/1-pages-and-search-tree.md has the whole with the page store.
//!
//! Differences from the papers: `kind` and `tree`. LIDBlocks (Indirection §3) are in `lid_block`.
//!
//! Rooms from below: `entries`, `node`, `kind`, `tree`, then `write`, `join`, `ahead`, `cursor`,
//! `load`, `estimate`, `partial` and `check`, which add methods to the tree.

mod ahead;
mod check;
mod cursor;
mod entries;
mod estimate;
mod join;
mod kind;
mod load;
mod node;
mod partial;
mod tree;
mod write;

use crate::access_method::{
    AccessMethod, BulkLoad, Capabilities, Cursor, Direction, KeyBytes, KeyRange, Lookup,
    OldestSnapshot,
};
use crate::entry::parts_of;
use crate::ordered_key::{OrderedKeys, PartOrder};
use crate::sequences::{KeySequences, integer_key};
use crate::sorted_load::{LoadTarget, SortedLoad};
use cursor::TreeCursor;
use kind::BTree;
pub(crate) use partial::LeafRange;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize as Counter; // counts bytes; no part of the protocol
use std::sync::atomic::Ordering::Relaxed;
use strandline_base::{CommitTs, Error, Result, RowId, Value};
use strandline_storage::pages::{PAGE_BODY_BYTES, PageFileId, PageStore};
use tree::Tree;

/// The fewest bytes of a node: keys have up to 12 bytes then.
pub const NODE_BYTES_MIN: usize = 216;

/// What an index on pages needs beside its file.
#[derive(Clone)]
pub struct PagedIndexSettings {
    /// the parts of the keys
    pub parts: Vec<PartOrder>,
    /// bytes of a page that a node uses, from [`NODE_BYTES_MIN`] on; PAGE_BODY_BYTES but in tests.
    /// A file keeps the number that it was created with.
    pub node_bytes: usize,
    /// gives the oldest snapshot's timestamp, by which retired entries go
    pub oldest_snapshot: OldestSnapshot,
    /// counts the bytes of memory, which are those of loads
    pub memory: Arc<Counter>,
}

impl PagedIndexSettings {
    /// Settings for keys with these parts.
    pub fn new(parts: Vec<PartOrder>, oldest_snapshot: OldestSnapshot) -> Self {
        Self {
            parts,
            node_bytes: PAGE_BODY_BYTES,
            oldest_snapshot,
            memory: Arc::default(),
        }
    }
}

/// The ordered index on a page file; see the module's documentation.
pub struct PagedIndex {
    keys: OrderedKeys,
    tree: Tree<BTree>,
    sequences: KeySequences,
    memory: Arc<Counter>,
}

impl PagedIndex {
    /// Creates the file and an empty index in it.
    ///
    /// # Errors
    /// Those of the page store.
    pub fn create(
        store: Arc<PageStore>,
        file: PageFileId,
        settings: PagedIndexSettings,
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
        settings: PagedIndexSettings,
    ) -> Result<Self> {
        let index = Self::over(store, file, settings)?;
        let held = index.tree.count_roughly()?;
        index.tree.count.set((0, 0), held);
        Ok(index)
    }

    fn over(store: Arc<PageStore>, file: PageFileId, settings: PagedIndexSettings) -> Result<Self> {
        let PagedIndexSettings {
            parts,
            node_bytes,
            oldest_snapshot,
            memory,
        } = settings;
        if !(NODE_BYTES_MIN..=PAGE_BODY_BYTES).contains(&node_bytes) {
            let message = format!(
                "a node of {node_bytes} bytes; between {NODE_BYTES_MIN} and {PAGE_BODY_BYTES} fit"
            );
            return Err(Error::internal(message));
        }
        Ok(Self {
            keys: OrderedKeys::new(parts),
            tree: Tree::new(store, file, node_bytes, oldest_snapshot),
            sequences: KeySequences::default(),
            memory,
        })
    }

    /// The encoder of the index's keys.
    pub fn keys(&self) -> &OrderedKeys {
        &self.keys
    }

    /// The leaf that an entry belongs to, by the inner nodes alone.
    ///
    /// # Errors
    /// Those of reading the inner nodes.
    pub(crate) fn leaf_range(&self, entry: &[u8]) -> Result<LeafRange> {
        self.tree.leaf_range(entry)
    }

    /// The longest key that the tree takes, in bytes.
    pub(crate) fn key_bytes_max(&self) -> usize {
        self.tree.key_bytes_max()
    }

    /// The timestamp of the oldest snapshot.
    pub(crate) fn oldest(&self) -> CommitTs {
        self.tree.oldest()
    }

    /// The number of levels of the tree.
    ///
    /// # Errors
    /// Those of reading the root.
    pub fn levels(&self) -> Result<usize> {
        Ok(usize::from(self.tree.height()?) + 1)
    }
}

impl AccessMethod for PagedIndex {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            ordered: true,
            durable: true,
        }
    }

    fn encode(&self, key: &[Value]) -> KeyBytes {
        self.keys.encode(key)
    }

    fn insert(&self, key: &KeyBytes, row: RowId, others: &mut Vec<RowId>) -> Result<bool> {
        self.tree.insert_seeing(key.as_slice(), row, others)
    }

    fn add(&self, key: &KeyBytes, row: RowId) -> Result<bool> {
        self.tree.add(key.as_slice(), row)
    }

    fn find(&self, key: &[Value]) -> Result<Lookup> {
        let by_sequence = integer_key(key).and_then(|number| self.sequences.find(number));
        match by_sequence {
            Some(row) => Ok(Lookup::One(row)),
            None => self.tree.find(self.keys.encode(key).as_slice()),
        }
    }

    fn lookup(&self, key: &KeyBytes, rows: &mut Vec<RowId>) -> Result<()> {
        self.tree.visit_rows(key.as_slice(), |row| {
            rows.push(row);
            true
        })
    }

    fn cursor(&self, range: &KeyRange, direction: Direction) -> Result<Box<dyn Cursor + '_>> {
        Ok(Box::new(TreeCursor::new(&self.tree, range, direction)))
    }

    fn cursor_after(
        &self,
        range: &KeyRange,
        direction: Direction,
        after: &(KeyBytes, RowId),
    ) -> Result<Box<dyn Cursor + '_>> {
        let cursor = TreeCursor::after(&self.tree, range, direction, after);
        Ok(Box::new(cursor))
    }

    /// None, too, if a page cannot be read.
    fn estimate(&self, range: &KeyRange) -> Option<usize> {
        self.tree.estimate(range).ok()
    }

    fn retire(&self, key: &KeyBytes, row: RowId, since: CommitTs) -> Result<()> {
        self.tree.retire(key.as_slice(), row, since)
    }

    fn retain(&self, keep: &mut dyn FnMut(&KeyBytes, RowId) -> bool) -> Result<()> {
        let number = |key: &KeyBytes| self.keys.integer(key);
        self.sequences
            .learn(number, keep, |keep| self.tree.retain(keep))
    }

    fn bulk_load(&self) -> Box<dyn BulkLoad + '_> {
        Box::new(SortedLoad::new(self, false))
    }

    fn bulk_load_unique(&self) -> Box<dyn BulkLoad + '_> {
        Box::new(SortedLoad::new(self, true))
    }

    fn check(&self, damage: &mut Vec<String>) -> Result<()> {
        self.tree.check(damage)
    }

    fn sequences(&self) -> Option<&KeySequences> {
        Some(&self.sequences)
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

impl LoadTarget for PagedIndex {
    fn put_entry(&self, key: &[Value], row: RowId, bytes: &mut Vec<u8>) -> Result<()> {
        let start = bytes.len();
        self.keys.encode_onto(key, bytes);
        self.tree
            .check_key(bytes.get(start..).unwrap_or_default())?;
        bytes.extend(row.0.to_be_bytes());
        Ok(())
    }

    fn enter(&self, entries: &[&[u8]], met: Option<&mut Vec<Vec<u8>>>) -> Result<()> {
        self.tree.enter_all(entries, met)
    }

    fn parts<'e>(&self, entry: &'e [u8]) -> Option<(&'e [u8], RowId)> {
        parts_of(entry)
    }

    fn account(&self, before: usize, after: usize) {
        self.memory.fetch_add(after.wrapping_sub(before), Relaxed);
    }
}

#[cfg(all(test, not(shuttle)))]
pub(crate) mod tests;
