//! The memory-resident index: 256 hash tables, each with its own lock. Writers seldom meet, and the
//! pause while one table grows is short.
//!
//! An entry is the hash and the row id, 16 bytes, so a table can grow without reading keys. Rows of
//! one key are in one table. Under its lock [`HashIndex::insert`] collects the other rows and adds
//! its own entry in one step. The later of two threads that add one key therefore finds the earlier
//! one's entry.
//!
//! A table that is mostly empty shrinks, so its memory follows its present number of entries.
//!
//! Lock order: one table at a time. Under its lock only the closure of [`HashIndex::retain`] is
//! called.

use crate::Lookup;
use hashbrown::HashTable;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize as Counter, Ordering}; // counts bytes; no part of the protocol
use strandline_base::RowId;
use strandline_base::sync::RwLock;

const SHARD_BITS: u32 = if cfg!(shuttle) { 1 } else { 8 };
const SHARDS: usize = 1 << SHARD_BITS;

#[derive(Clone, Copy, PartialEq, Eq)]
struct Entry {
    hash: u64,
    row: RowId,
}

const _: () = assert!(size_of::<Entry>() == 16);

/// A table shrinks if its capacity is at least this many times its number of entries.
const ROOM_MAX: usize = 8;
/// A table of at most this capacity does not shrink.
const ROOM_MIN: usize = 56;

/// A table alone on its cache line.
#[repr(align(64))]
#[derive(Default)]
struct Shard(RwLock<HashTable<Entry>>);

/// The hash index; see the module's documentation.
pub struct HashIndex {
    shards: Box<[Shard]>,
    /// bytes of all indexes that share this counter
    memory: Arc<Counter>,
}

impl HashIndex {
    /// An empty index.
    pub fn new() -> Self {
        Self::counted(Arc::default())
    }

    /// An empty index whose bytes are counted in `memory` for as long as it lives.
    pub fn counted(memory: Arc<Counter>) -> Self {
        memory.fetch_add(Self::EMPTY_BYTES, Ordering::Relaxed);
        Self {
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            memory,
        }
    }

    const EMPTY_BYTES: usize = SHARDS * size_of::<Shard>() + size_of::<Self>();

    /// Reserves capacity for `additional` more entries at once. Growth by doubling would leave the
    /// allocator as many bytes of tables that were too small. A shard that gets more than its share
    /// of the entries grows again.
    pub fn reserve(&self, additional: usize) {
        for shard in &self.shards {
            self.resize(&mut shard.0.write(), |table| {
                table.reserve(additional / SHARDS, |entry| entry.hash);
            });
        }
    }

    /// Shrinks the tables that are mostly empty.
    pub fn trim(&self) {
        for shard in &self.shards {
            self.shrink(&mut shard.0.write());
        }
    }

    /// Runs `change`, which may grow or shrink the table, and counts the difference in bytes.
    fn resize(&self, table: &mut HashTable<Entry>, change: impl FnOnce(&mut HashTable<Entry>)) {
        let before = table.allocation_size();
        change(table);
        let grown = table.allocation_size().wrapping_sub(before);
        self.memory.fetch_add(grown, Ordering::Relaxed);
    }

    /// Shrinks the table if it is mostly empty, to a capacity of twice its entries.
    fn shrink(&self, table: &mut HashTable<Entry>) {
        let len = table.len();
        if table.capacity() > ROOM_MIN && table.capacity() / ROOM_MAX >= len {
            self.resize(table, |table| table.shrink_to(len * 2, |entry| entry.hash));
        }
    }

    /// The shard of a hash. The table uses the lowest bits (position) and the highest 7 (tag), so
    /// the bits below the tag choose the shard.
    fn shard(&self, hash: u64) -> &RwLock<HashTable<Entry>> {
        &self.shards[(hash >> (57 - SHARD_BITS)) as usize % SHARDS].0
    }
}

impl Default for HashIndex {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for HashIndex {
    fn drop(&mut self) {
        self.memory
            .fetch_sub(self.memory_bytes(), Ordering::Relaxed);
    }
}

impl HashIndex {
    /// Adds an entry unless it exists, and appends to `others` the other rows that this hash had
    /// before. Both happen atomically: of two threads that add one hash, at least one sees the
    /// other's row. Returns whether the entry is new.
    pub fn insert(&self, hash: u64, row: RowId, others: &mut Vec<RowId>) -> bool {
        let entry = Entry { hash, row };
        let mut table = self.shard(hash).write();
        let mut present = false;
        for found in table.iter_hash(hash).filter(|found| found.hash == hash) {
            if found.row == row {
                present = true;
            } else {
                others.push(found.row);
            }
        }
        if present {
            return false;
        }
        if table.len() < table.capacity() {
            table.insert_unique(hash, entry, |entry| entry.hash);
        } else {
            self.resize(&mut table, |table| {
                table.insert_unique(hash, entry, |entry| entry.hash);
            });
        }
        true
    }

    /// The row of this hash, if there is only one.
    #[inline]
    pub fn find(&self, hash: u64) -> Lookup {
        let table = self.shard(hash).read();
        let mut found = table.iter_hash(hash).filter(|found| found.hash == hash);
        match (found.next(), found.next()) {
            (None, _) => Lookup::None,
            (Some(one), None) => Lookup::One(one.row),
            (Some(_), Some(_)) => Lookup::Several,
        }
    }

    /// Appends all rows of this hash.
    pub fn lookup(&self, hash: u64, rows: &mut Vec<RowId>) {
        let table = self.shard(hash).read();
        let found = table.iter_hash(hash).filter(|found| found.hash == hash);
        rows.extend(found.map(|found| found.row));
    }

    /// Removes an entry if it exists.
    pub fn remove(&self, hash: u64, row: RowId) {
        let entry = Entry { hash, row };
        let mut table = self.shard(hash).write();
        if let Ok(found) = table.find_entry(hash, |found| *found == entry) {
            found.remove();
            self.shrink(&mut table);
        }
    }

    /// Removes every entry for which `keep` returns false; see [`crate::AccessMethod::retain`].
    pub fn retain(&self, mut keep: impl FnMut(u64, RowId) -> bool) {
        for shard in &self.shards {
            let mut table = shard.0.write();
            table.retain(|entry| keep(entry.hash, entry.row));
            self.shrink(&mut table);
        }
    }

    /// Whether the entry exists.
    pub fn has(&self, hash: u64, row: RowId) -> bool {
        let table = self.shard(hash).read();
        table
            .find(hash, |found| *found == Entry { hash, row })
            .is_some()
    }

    /// Appends a line for every entry that lookups do not find.
    pub fn check(&self, damage: &mut Vec<String>) {
        for (no, shard) in self.shards.iter().enumerate() {
            let table = shard.0.read();
            let is_found = |entry: &Entry| {
                let found = table.find(entry.hash, |found| found == entry);
                found.is_some() && std::ptr::eq(self.shard(entry.hash), &raw const shard.0)
            };
            for entry in table.iter().filter(|entry| !is_found(entry)) {
                let Entry { hash, row } = entry;
                damage.push(format!(
                    "table {no} of a hash index: {row:?} is not found by {hash:x}"
                ));
            }
        }
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.0.read().len()).sum()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The index's memory in bytes.
    pub fn memory_bytes(&self) -> usize {
        let tables: usize = self
            .shards
            .iter()
            .map(|s| s.0.read().allocation_size())
            .sum();
        tables + Self::EMPTY_BYTES
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests;
