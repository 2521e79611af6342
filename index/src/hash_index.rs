//! The memory-resident index: 256 hash tables, each under its own lock, so that
//! writers seldom meet and the pause while one of them grows is short.
//!
//! An entry is the hash and the row id, 16 bytes, so that a table can grow without reading keys.
//! Rows of one key lie in one table, whose lock makes [`KeyIndex::insert`] collect the others and
//! add its own entry in one step: the later of two adders of a key finds the earlier one's entry.
//!
//! Lock order: one table at a time, nothing is called while its lock is held.

use crate::{Found, KeyIndex};
use hashbrown::HashTable;
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

/// Alone on its cache line.
#[repr(align(64))]
#[derive(Default)]
struct Shard(RwLock<HashTable<Entry>>);

/// See the module's documentation.
pub struct HashIndex {
    shards: Box<[Shard]>,
}

impl HashIndex {
    /// An empty index.
    pub fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
        }
    }

    /// Makes room for `additional` more entries, for bulk loads.
    pub fn reserve(&self, additional: usize) {
        // Random hashes fill the shards evenly up to a few standard deviations.
        let mean = additional / SHARDS;
        let per_shard = mean + 4 * mean.isqrt();
        for shard in &self.shards {
            shard.0.write().reserve(per_shard, |entry| entry.hash);
        }
    }

    /// The table looks at the lowest bits (position) and the highest 7 (tag): the shard is chosen
    /// by the bits below those.
    fn shard(&self, hash: u64) -> &RwLock<HashTable<Entry>> {
        &self.shards[(hash >> (57 - SHARD_BITS)) as usize % SHARDS].0
    }
}

impl Default for HashIndex {
    fn default() -> Self {
        Self::new()
    }
}

impl KeyIndex for HashIndex {
    fn insert(&self, hash: u64, row: RowId, others: &mut Vec<RowId>) {
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
        if !present {
            table.insert_unique(hash, entry, |entry| entry.hash);
        }
    }

    fn find(&self, hash: u64) -> Found {
        let table = self.shard(hash).read();
        let mut found = table.iter_hash(hash).filter(|found| found.hash == hash);
        match (found.next(), found.next()) {
            (None, _) => Found::None,
            (Some(one), None) => Found::One(one.row),
            (Some(_), Some(_)) => Found::Several,
        }
    }

    fn lookup(&self, hash: u64, rows: &mut Vec<RowId>) {
        let table = self.shard(hash).read();
        let found = table.iter_hash(hash).filter(|found| found.hash == hash);
        rows.extend(found.map(|found| found.row));
    }

    fn remove(&self, hash: u64, row: RowId) {
        let entry = Entry { hash, row };
        let mut table = self.shard(hash).write();
        if let Ok(found) = table.find_entry(hash, |found| *found == entry) {
            found.remove();
        }
    }

    fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.0.read().len()).sum()
    }

    fn memory_bytes(&self) -> usize {
        let tables: usize = self
            .shards
            .iter()
            .map(|s| s.0.read().allocation_size())
            .sum();
        tables + SHARDS * size_of::<Shard>() + size_of::<Self>()
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests;
