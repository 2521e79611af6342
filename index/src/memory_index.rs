//! The unordered access method in memory: a hash index of all entries, and sequences as a short cut
//! for keys that are serial numbers. It is built from the rows when a database is opened.

use crate::access_method::{AccessMethod, BulkLoad, Capabilities, KeyBytes, Lookup};
use crate::hash_index::HashIndex;
use crate::key_hash::{hash_integer, hash_key};
use crate::sequences::{KeySequences, SequenceBuilder, integer_key};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize as Counter; // counts bytes; no part of the protocol
use strandline_base::{CommitTs, Result, RowId, Value};

/// The access method; see the module's documentation.
#[derive(Default)]
pub struct MemoryIndex {
    entries: HashIndex,
    sequences: KeySequences,
}

impl MemoryIndex {
    /// An empty index whose bytes are counted in `memory` for as long as it lives.
    pub fn counted(memory: Arc<Counter>) -> Self {
        Self {
            entries: HashIndex::counted(memory),
            sequences: KeySequences::default(),
        }
    }
}

struct Load<'a> {
    index: &'a MemoryIndex,
    sequences: SequenceBuilder,
}

impl BulkLoad for Load<'_> {
    fn push(&mut self, key: &[Value], row: RowId, others: &mut Vec<RowId>) -> Result<()> {
        self.index.entries.insert(hash_key(key), row, others);
        self.sequences.push(integer_key(key), row);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<()> {
        // The sequences come last, so that a row found by one always has its entry.
        self.index.sequences.add(&self.sequences.finish());
        Ok(())
    }
}

impl AccessMethod for MemoryIndex {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            ordered: false,
            durable: false,
        }
    }

    #[inline]
    fn encode(&self, key: &[Value]) -> KeyBytes {
        KeyBytes::hashed(hash_key(key))
    }

    fn insert(&self, key: &KeyBytes, row: RowId, others: &mut Vec<RowId>) -> Result<bool> {
        Ok(self.entries.insert(key.hash()?, row, others))
    }

    fn find(&self, key: &[Value]) -> Result<Lookup> {
        let by_sequence = integer_key(key).and_then(|number| self.sequences.find(number));
        Ok(match by_sequence {
            Some(row) => Lookup::One(row),
            None => self.entries.find(hash_key(key)),
        })
    }

    fn lookup(&self, key: &KeyBytes, rows: &mut Vec<RowId>) -> Result<()> {
        self.entries.lookup(key.hash()?, rows);
        Ok(())
    }

    fn retire(&self, key: &KeyBytes, row: RowId, _since: CommitTs) -> Result<()> {
        self.entries.remove(key.hash()?, row);
        Ok(())
    }

    fn retain(&self, keep: &mut dyn FnMut(&KeyBytes, RowId) -> bool) -> Result<()> {
        self.entries
            .retain(|hash, row| keep(&KeyBytes::hashed(hash), row));
        let has = |(key, row)| self.entries.has(hash_integer(key), row);
        self.sequences
            .retain(|sequence| sequence.entries().any(has));
        Ok(())
    }

    fn bulk_load(&self) -> Box<dyn BulkLoad + '_> {
        Box::new(Load {
            index: self,
            sequences: SequenceBuilder::default(),
        })
    }

    fn expect_entries(&self, more: usize) {
        match more {
            0 => self.entries.trim(),
            more => self.entries.reserve(more),
        }
    }

    fn check(&self, damage: &mut Vec<String>) -> Result<()> {
        self.entries.check(damage);
        Ok(())
    }

    fn sequences(&self) -> Option<&KeySequences> {
        Some(&self.sequences)
    }

    fn len(&self) -> usize {
        self.entries.len()
    }

    fn memory_bytes(&self) -> usize {
        self.entries.memory_bytes()
    }
}
