//! The ordered access method in memory: a concurrent B-link tree (`tree` has the protocol). An
//! entry has a key's bytes and a row's number. The tree is built from the rows when a database is
//! opened.
//!
//! * An entry of 10 million bigint keys takes about 20 bytes. Leaves have 4 KB and store the common
//!   prefix of their entries once.
//! * A reader holds one latch at a time; a cursor holds none between two calls.
//! * A retired entry is removed at once. Leaves with few entries are joined, and the numbers of
//!   freed leaves are reused.
//! * Two threads that `insert` the same key run one after the other, so that the second sees the
//!   first one's entry. `add`, for keys of many rows, does not look at other entries.
//! * A load sorts its entries and adds them leaf by leaf, beside writers (`load`).

mod check;
mod cursor;
mod entries;
mod estimate;
mod leaf_table;
mod load;
mod node;
mod tree;

use crate::access_method::{
    AccessMethod, BulkLoad, Capabilities, Cursor, Direction, KeyBytes, KeyRange, Lookup,
};
use crate::ordered_key::{OrderedKeys, PartOrder};
use crate::sorted_load::SortedLoad;
use cursor::TreeCursor;
use entries::EntryBytes;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize as Counter; // counts bytes; no part of the protocol
use strandline_base::{CommitTs, Result, RowId, Value};
use tree::{NODE_BYTES, Tree};

/// The ordered index; see the module's documentation.
pub struct OrderedIndex {
    keys: OrderedKeys,
    tree: Tree,
}

impl OrderedIndex {
    /// An empty index over keys with these parts. Its bytes are counted in `memory` for as long as
    /// it lives.
    pub fn counted(parts: Vec<PartOrder>, memory: Arc<Counter>) -> Self {
        Self::with_node_bytes(parts, memory, NODE_BYTES)
    }

    fn with_node_bytes(parts: Vec<PartOrder>, memory: Arc<Counter>, node_bytes: usize) -> Self {
        Self {
            keys: OrderedKeys::new(parts),
            tree: Tree::new(node_bytes, memory),
        }
    }

    /// The encoder of the index's keys.
    pub fn keys(&self) -> &OrderedKeys {
        &self.keys
    }
}

impl AccessMethod for OrderedIndex {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            ordered: true,
            durable: false,
        }
    }

    fn encode(&self, key: &[Value]) -> KeyBytes {
        self.keys.encode(key)
    }

    fn insert(&self, key: &KeyBytes, row: RowId, others: &mut Vec<RowId>) -> Result<bool> {
        let entry = EntryBytes::new(key.as_slice(), row)?;
        Ok(self.tree.insert_seeing(&entry, others))
    }

    fn add(&self, key: &KeyBytes, row: RowId) -> Result<bool> {
        let entry = EntryBytes::new(key.as_slice(), row)?;
        Ok(self.tree.add(entry.as_slice()))
    }

    fn find(&self, key: &[Value]) -> Result<Lookup> {
        Ok(self.tree.find(self.keys.encode(key).as_slice()))
    }

    fn lookup(&self, key: &KeyBytes, rows: &mut Vec<RowId>) -> Result<()> {
        self.tree.visit_rows(key.as_slice(), |row| {
            rows.push(row);
            true
        });
        Ok(())
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
        let cursor = TreeCursor::after(&self.tree, range, direction, after)?;
        Ok(Box::new(cursor))
    }

    fn estimate(&self, range: &KeyRange) -> Option<usize> {
        Some(self.tree.estimate(range))
    }

    fn retire(&self, key: &KeyBytes, row: RowId, _since: CommitTs) -> Result<()> {
        let entry = EntryBytes::new(key.as_slice(), row)?;
        self.tree.remove(entry.as_slice());
        Ok(())
    }

    fn retain(&self, keep: &mut dyn FnMut(&KeyBytes, RowId) -> bool) -> Result<()> {
        self.tree.retain(keep);
        Ok(())
    }

    fn bulk_load(&self) -> Box<dyn BulkLoad + '_> {
        Box::new(SortedLoad::new(self, false))
    }

    fn bulk_load_unique(&self) -> Box<dyn BulkLoad + '_> {
        Box::new(SortedLoad::new(self, true))
    }

    fn check(&self, damage: &mut Vec<String>) -> Result<()> {
        self.tree.check(damage);
        Ok(())
    }

    fn len(&self) -> usize {
        let (added, removed) = self.tree.changes();
        added.saturating_sub(removed)
    }

    fn memory_bytes(&self) -> usize {
        self.tree.memory_bytes()
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests;
