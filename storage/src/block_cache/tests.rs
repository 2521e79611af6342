//! Tests of the cache on a simulated disk.

mod admission;
mod crash;
mod damage;
mod failures;
mod format;
mod model;
mod opening;
mod size;
mod state;
mod threads;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use strandline_base::Result;
use strandline_sim::SimDisk;

use super::*;

const IDENTITY: u128 = 0xab_cdef;
const SEGMENT_BYTES: u32 = 1_024;
/// No test has files with greater numbers.
const FILES_END: u64 = 1_000;

/// A disk and the account of the memory.
struct Rig {
    disk: SimDisk,
    taken_bytes: Arc<AtomicUsize>,
}

impl Rig {
    fn new() -> Self {
        Self::on(SimDisk::new(1))
    }

    fn on(disk: SimDisk) -> Self {
        Self {
            disk,
            taken_bytes: Arc::default(),
        }
    }

    fn try_open(&self, settings: Settings, end: u64) -> Result<BlockCache> {
        let is_live = &|_| true;
        let known = KnownFiles { end, is_live };
        BlockCache::open(&*self.disk.device(), settings, known, &self.taken_bytes)
    }

    fn open(&self, settings: Settings) -> BlockCache {
        self.try_open(settings, FILES_END).unwrap()
    }

    fn inspect(&self) -> Inspection {
        inspect(&*self.disk.device()).unwrap().expect("a cache")
    }
}

/// A cache of so many segments of [`SEGMENT_BYTES`].
fn settings(segments: u64) -> Settings {
    Settings {
        segment_bytes: SEGMENT_BYTES,
        index_bytes_max: 1 << 20,
        ..Settings::new(IDENTITY, 4_096 + segments * u64::from(SEGMENT_BYTES))
    }
}

/// The `n`-th block of a file; its length depends on `n`.
fn block(file: u64, n: u64) -> BlockKey {
    let offset = n * 256;
    let len = 60 + (n * 37 % 140) as u32;
    BlockKey { file, offset, len }
}

/// The bytes of a block, which depend on all of its address.
fn content(block: BlockKey) -> Vec<u8> {
    let BlockKey { file, offset, len } = block;
    let seed = file.wrapping_mul(0x9e37_79b9) ^ offset.wrapping_mul(0x85eb_ca6b);
    let byte = |i| ((seed >> (i % 4 * 8)) as u8) ^ (i as u8) ^ (len as u8);
    (0..len).map(byte).collect()
}

/// Whether the block is cached. Its bytes are right then.
fn is_cached(cache: &BlockCache, block: BlockKey) -> bool {
    let mut memory = vec![0; block.len as usize];
    let is_hit = cache.read(block, &mut memory);
    assert!(!is_hit || memory == content(block), "{block}: other bytes");
    is_hit
}

/// Reads a block as the files of the capacity tier do; whether it was cached.
fn read_through(cache: &BlockCache, block: BlockKey) -> bool {
    let is_hit = is_cached(cache, block);
    if !is_hit {
        cache.admit(block, &content(block));
    }
    is_hit
}

/// Reads blocks of file 1 through the cache, and writes whenever a segment waits.
fn fill(cache: &BlockCache, blocks: std::ops::Range<u64>) {
    for n in blocks {
        read_through(cache, block(1, n));
        cache.step().unwrap();
    }
}

/// How many of these blocks of file 1 are cached.
fn hits(cache: &BlockCache, blocks: std::ops::Range<u64>) -> usize {
    blocks.filter(|&n| is_cached(cache, block(1, n))).count()
}

/// Reads blocks of file 1 through the cache; how many were cached.
fn read_all(cache: &BlockCache, blocks: std::ops::Range<u64>) -> usize {
    blocks.filter(|&n| read_through(cache, block(1, n))).count()
}
