//! Append-only versions of rows: the history of [`Iuh`](super::Iuh) and the deltas of
//! [`Dbm`](super::Dbm). A version has only the updated columns, an optimization that the paper gave
//! both.
//!
//! Versions are numbered from 1; 0 is none. A version's fields are set before its number is
//! published (with release) and read after its number was read (with acquire). Only `start` changes
//! later.

use super::super::engine::UPDATED;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use strandline_txn::StartWord;

/// Versions of one chunk, which is allocated with its first version.
const CHUNK_VERSIONS: u64 = 1_024;

/// One version of a row.
pub struct Version {
    start: AtomicU64,
    older: AtomicU64,
    values: [AtomicI64; UPDATED],
}

impl Version {
    /// The version's start; see [`transactions`](super::transactions).
    pub fn start(&self) -> StartWord {
        StartWord(self.start.load(Ordering::Acquire))
    }

    /// Changes the start to the final one.
    pub fn stamp(&self, start: StartWord) {
        self.start.store(start.0, Ordering::Release);
    }

    /// The number of the older version.
    pub fn older(&self) -> u64 {
        self.older.load(Ordering::Relaxed)
    }

    /// The value of one of the updated columns.
    pub fn value(&self, column: usize) -> i64 {
        self.values[column].load(Ordering::Relaxed)
    }

    /// The values of all updated columns.
    pub fn values(&self) -> [i64; UPDATED] {
        std::array::from_fn(|column| self.value(column))
    }

    /// Changes a version that only its transaction sees.
    pub fn set(&self, values: &[i64; UPDATED]) {
        for (place, value) in self.values.iter().zip(values) {
            place.store(*value, Ordering::Relaxed);
        }
    }
}

/// Versions in the order of their creation.
pub struct Versions {
    count: AtomicU64,
    chunks: Box<[OnceLock<Box<[Version]>>]>,
}

impl Versions {
    /// Capacity for `chunks` times 1,024 versions.
    pub fn new(chunks: usize) -> Self {
        Self {
            count: AtomicU64::new(0),
            chunks: (0..chunks).map(|_| OnceLock::new()).collect(),
        }
    }

    /// Appends a version; returns its number, or None if the capacity is used up.
    pub fn append(&self, older: u64, start: StartWord, values: &[i64; UPDATED]) -> Option<u64> {
        let position = self.count.fetch_add(1, Ordering::Relaxed);
        let chunk = self.chunks.get((position / CHUNK_VERSIONS) as usize)?;
        let version = &chunk.get_or_init(empty_chunk)[(position % CHUNK_VERSIONS) as usize];
        version.older.store(older, Ordering::Relaxed);
        version.start.store(start.0, Ordering::Relaxed);
        version.set(values);
        Some(position + 1)
    }

    /// The version with this number, which must have been appended.
    pub fn get(&self, number: u64) -> &Version {
        let position = number - 1;
        let chunk = self.chunks[(position / CHUNK_VERSIONS) as usize].get();
        &chunk.expect("its chunk is there")[(position % CHUNK_VERSIONS) as usize]
    }

    /// The number of appended versions.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

fn empty_chunk() -> Box<[Version]> {
    let empty = || Version {
        start: AtomicU64::new(0),
        older: AtomicU64::new(0),
        values: [const { AtomicI64::new(0) }; UPDATED],
    };
    (0..CHUNK_VERSIONS).map(|_| empty()).collect()
}
