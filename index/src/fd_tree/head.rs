//! The head, L0: data entries and fences in memory [FD+ §2.1].

use super::block::EntryKey;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Bytes that an entry takes besides its key.
const ENTRY_BYTES: usize = 24;

/// A data entry of the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Data {
    pub is_insert: bool,
    /// not committed durably: enters no level and no image
    pub is_pending: bool,
}

/// A change of the numbers of insert and delete entries, N_delta and N_nabla.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    pub inserts: i64,
    pub deletes: i64,
}

impl Change {
    pub fn of(is_insert: bool, by: i64) -> Self {
        match is_insert {
            true => Self {
                inserts: by,
                deletes: 0,
            },
            false => Self {
                inserts: 0,
                deletes: by,
            },
        }
    }
    pub fn add(&mut self, other: Self) {
        self.inserts += other.inserts;
        self.deletes += other.deletes;
    }
}

/// L0.
#[derive(Clone, Debug, Default)]
pub(super) struct Head {
    pub data: BTreeMap<EntryKey, Data>,
    pub fences: BTreeMap<EntryKey, u64>,
    data_bytes: usize,
    fence_bytes: usize,
}

impl Head {
    /// Bytes of the budget that an entry with a key of so many bytes takes.
    pub fn bytes_of(key_bytes: usize) -> usize {
        key_bytes + ENTRY_BYTES
    }

    /// Bytes of the budget that are taken.
    pub fn bytes(&self) -> usize {
        self.data_bytes + self.fence_bytes
    }
    pub fn data_bytes(&self) -> usize {
        self.data_bytes
    }
    pub fn fence_bytes(&self) -> usize {
        self.fence_bytes
    }

    /// Puts a data entry over what is there: an entry of the other kind is cancelled.
    pub fn put(&mut self, key: &[u8], data: Data) -> Change {
        match self.data.entry(key.into()) {
            Entry::Occupied(known) if known.get().is_insert == data.is_insert => {
                debug_assert!(false, "the kinds of one entry alternate");
                Change::default()
            }
            Entry::Occupied(known) => {
                self.data_bytes -= Self::bytes_of(key.len());
                Change::of(known.remove().is_insert, -1)
            }
            Entry::Vacant(place) => {
                self.data_bytes += Self::bytes_of(key.len());
                place.insert(data);
                Change::of(data.is_insert, 1)
            }
        }
    }

    /// Removes a data entry without counting.
    pub fn remove(&mut self, key: &[u8]) -> Option<Data> {
        let data = self.data.remove(key)?;
        self.data_bytes -= Self::bytes_of(key.len());
        Some(data)
    }

    pub fn add_fence(&mut self, key: &[u8], to: u64) {
        if self.fences.insert(key.into(), to).is_none() {
            self.fence_bytes += Self::bytes_of(key.len());
        }
    }

    /// Removes the fences up to `key`; returns the target of the last.
    pub fn remove_fences(&mut self, key: &[u8]) -> Option<u64> {
        let mut last = None;
        while let Some(first) = self.fences.first_entry() {
            if first.key().as_slice() > key {
                break;
            }
            self.fence_bytes -= Self::bytes_of(first.key().len());
            last = Some(first.remove());
        }
        last
    }

    pub fn set_fences(&mut self, fences: BTreeMap<EntryKey, u64>) {
        self.fence_bytes = fences.keys().map(|key| Self::bytes_of(key.len())).sum();
        self.fences = fences;
    }

    pub fn floor_fence(&self, key: &[u8]) -> Option<u64> {
        use std::ops::Bound::{Included, Unbounded};
        let range = (Unbounded, Included(key));
        let last = self.fences.range::<[u8], _>(range).next_back();
        last.map(|(_, to)| *to)
    }
}
