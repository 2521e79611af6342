//! The ordered access method in memory; built from the rows when a database is opened.

use crate::access_method::{
    AccessMethod, BulkLoad, Capabilities, Cursor, Direction, Found, KeyBytes, KeyRange,
};
use crate::ordered_key::{OrderedKeys, PartOrder};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize as Counter, Ordering}; // counts bytes; no part of the protocol
use strandline_base::sync::RwLock;
use strandline_base::{CommitTs, Result, RowId, Value};

/// See the module's documentation.
pub struct OrderedIndex {
    keys: OrderedKeys,
    entries: RwLock<BTreeSet<(KeyBytes, RowId)>>,
    /// bytes of this and other indexes
    memory: Arc<Counter>,
}

/// Bytes of an entry and its key, about.
const ENTRY_BYTES: usize = 48;

impl OrderedIndex {
    /// An empty index over keys with these parts, whose bytes are part of `memory` for as long as
    /// it lives.
    pub fn counted(parts: Vec<PartOrder>, memory: Arc<Counter>) -> Self {
        Self {
            keys: OrderedKeys::new(parts),
            entries: RwLock::new(BTreeSet::new()),
            memory,
        }
    }

    /// The encoder of its keys.
    pub fn keys(&self) -> &OrderedKeys {
        &self.keys
    }

    fn rows(&self, key: &KeyBytes) -> Vec<RowId> {
        let entries = self.entries.read();
        let rows = entries.range((key.clone(), RowId(0))..=(key.clone(), RowId(u64::MAX)));
        rows.map(|(_, row)| *row).collect()
    }
}

impl Drop for OrderedIndex {
    fn drop(&mut self) {
        let bytes = self.memory_bytes();
        self.memory.fetch_sub(bytes, Ordering::Relaxed);
    }
}

struct Entries(Vec<(KeyBytes, RowId)>);

impl Cursor for Entries {
    fn next(&mut self) -> Result<Option<(KeyBytes, RowId)>> {
        Ok(self.0.pop())
    }
}

struct Load<'a>(&'a OrderedIndex);

impl BulkLoad for Load<'_> {
    fn push(&mut self, key: &[Value], row: RowId, others: &mut Vec<RowId>) -> Result<()> {
        self.0.insert(&self.0.encode(key), row, others).map(|_| ())
    }
    fn finish(self: Box<Self>) -> Result<()> {
        Ok(())
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
        let mut entries = self.entries.write();
        let rows = entries.range((key.clone(), RowId(0))..=(key.clone(), RowId(u64::MAX)));
        others.extend(rows.map(|(_, other)| *other).filter(|other| *other != row));
        let is_new = entries.insert((key.clone(), row));
        if is_new {
            self.memory.fetch_add(ENTRY_BYTES, Ordering::Relaxed);
        }
        Ok(is_new)
    }

    fn find(&self, key: &[Value]) -> Result<Found> {
        Ok(match self.rows(&self.encode(key)).as_slice() {
            [] => Found::None,
            [row] => Found::One(*row),
            _ => Found::Several,
        })
    }

    fn lookup(&self, key: &KeyBytes, rows: &mut Vec<RowId>) -> Result<()> {
        rows.extend(self.rows(key));
        Ok(())
    }

    fn cursor(&self, range: &KeyRange, direction: Direction) -> Result<Box<dyn Cursor + '_>> {
        let entries = self.entries.read();
        let is_within = |entry: &&(KeyBytes, RowId)| {
            range.from.as_ref().is_none_or(|from| entry.0 >= *from)
                && range.before.as_ref().is_none_or(|before| entry.0 < *before)
        };
        let mut entries: Vec<_> = entries.iter().filter(is_within).cloned().collect();
        if direction == Direction::Forward {
            entries.reverse();
        }
        Ok(Box::new(Entries(entries)))
    }

    fn retire(&self, key: &KeyBytes, row: RowId, _since: CommitTs) -> Result<()> {
        if self.entries.write().remove(&(key.clone(), row)) {
            self.memory.fetch_sub(ENTRY_BYTES, Ordering::Relaxed);
        }
        Ok(())
    }

    fn retain(&self, keep: &mut dyn FnMut(&KeyBytes, RowId) -> bool) -> Result<()> {
        let mut entries = self.entries.write();
        let before = entries.len();
        entries.retain(|(key, row)| keep(key, *row));
        let bytes = (before - entries.len()) * ENTRY_BYTES;
        self.memory.fetch_sub(bytes, Ordering::Relaxed);
        Ok(())
    }

    fn bulk_load(&self) -> Box<dyn BulkLoad + '_> {
        Box::new(Load(self))
    }

    fn check(&self, _damage: &mut Vec<String>) -> Result<()> {
        Ok(())
    }

    fn len(&self) -> usize {
        self.entries.read().len()
    }

    fn memory_bytes(&self) -> usize {
        self.len() * ENTRY_BYTES
    }
}
