//! The blocks by the entries that they cover, in memory.
//!
//! Invariants:
//! 1. Blocks do not overlap: each covers the entries from its low fence to its high fence, and no
//!    entry has two blocks.
//! 2. A block is in the directory while its area has its number, except within a change that makes
//!    or frees the block, during which the lock of the areas is held.
//! 3. The bytes are counted in the indexes' memory. Writers make no block in a full directory.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering::Relaxed}; // counters only

use strandline_base::sync::{AtomicBool, Mutex, RwLock};
use strandline_storage::pages::PageNumber;

use super::layout::BlockHeader;
use crate::access_method::Direction;

/// Bytes of a block's place in the map, about.
const PLACE_BYTES: usize = 64;

/// A block: what it covers, and where it is.
#[derive(Debug)]
pub(super) struct Block {
    pub header: BlockHeader,
    pub page: PageNumber,
    /// the area in the page
    pub area: usize,
    /// held while the block's entries are moved to the tree
    pub moving: Mutex<()>,
    /// the block is nearly full and waits for an early move
    pub is_due: AtomicBool,
    /// the block is no more, or a change is about to free it: the tree has its entries, and its
    /// page may be free
    pub is_gone: AtomicBool,
    /// the sum of its slots' weights
    pub weight: AtomicIsize,
}

impl Block {
    /// A block without entries.
    pub fn new(header: BlockHeader, page: PageNumber, area: usize) -> Self {
        Self {
            header,
            page,
            area,
            moving: Mutex::new(()),
            is_due: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
            weight: AtomicIsize::new(0),
        }
    }

    /// Whether the block ends at or before these bytes.
    fn ends_by(&self, bytes: &[u8]) -> bool {
        let high = self.header.high.as_deref();
        high.is_some_and(|high| high <= bytes)
    }

    fn memory_bytes(&self) -> usize {
        let high = self.header.high.as_ref().map_or(0, |high| high.len());
        PLACE_BYTES + size_of::<Self>() + 2 * self.header.low.len() + high
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Directory {
    blocks: RwLock<BTreeMap<Box<[u8]>, Arc<Block>>>,
    bytes: AtomicUsize,
    /// no block is made from so many bytes on
    bytes_max: usize,
    /// bytes that indexes use
    memory: Arc<AtomicUsize>,
}

fn up_to(bytes: &[u8]) -> (Bound<&[u8]>, Bound<&[u8]>) {
    (Bound::Unbounded, Bound::Included(bytes))
}

impl Directory {
    /// No blocks; their bytes are counted in `memory`.
    pub fn counted(memory: Arc<AtomicUsize>) -> Self {
        Self {
            blocks: RwLock::default(),
            bytes: AtomicUsize::new(0),
            bytes_max: usize::MAX,
            memory,
        }
    }

    /// The same with memory for so many bytes.
    pub fn bound(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
    }

    /// Whether there is no memory for another block.
    pub fn is_full(&self) -> bool {
        self.memory_bytes() >= self.bytes_max
    }

    /// The block with the lowest fences.
    pub fn first(&self) -> Option<Arc<Block>> {
        self.blocks.read().values().next().map(Arc::clone)
    }

    fn count(&self, more: usize, fewer: usize) {
        let delta = more.wrapping_sub(fewer);
        self.bytes.fetch_add(delta, Relaxed);
        self.memory.fetch_add(delta, Relaxed);
    }

    /// The block that covers an entry.
    pub fn covering(&self, entry: &[u8]) -> Option<Arc<Block>> {
        let blocks = self.blocks.read();
        let (_, block) = blocks.range::<[u8], _>(up_to(entry)).next_back()?;
        (!block.ends_by(entry)).then(|| Arc::clone(block))
    }

    /// The blocks that cover entries from `from` on and before `before`, in order, up to `at_most`.
    pub fn within(
        &self,
        (from, before): (&[u8], Option<&[u8]>),
        direction: Direction,
        at_most: usize,
    ) -> Vec<Arc<Block>> {
        let blocks = self.blocks.read();
        if before.is_some_and(|before| before <= from) {
            return Vec::new();
        }
        let end = before.map_or(Bound::Unbounded, Bound::Excluded);
        match direction {
            Direction::Forward => {
                let first = blocks.range::<[u8], _>(up_to(from)).next_back();
                let first = first.map(|(_, block)| block);
                let first = first.filter(|block| !block.ends_by(from));
                let rest = blocks.range::<[u8], _>((Bound::Excluded(from), end));
                let all = first.into_iter().chain(rest.map(|(_, block)| block));
                all.take(at_most).map(Arc::clone).collect()
            }
            Direction::Backward => {
                let all = blocks.range::<[u8], _>((Bound::Unbounded, end)).rev();
                let all = all.map(|(_, block)| block);
                let all = all.take_while(|block| !block.ends_by(from));
                all.take(at_most).map(Arc::clone).collect()
            }
        }
    }

    /// Reduces a range around an entry that no block covers to what no block covers.
    pub fn clip(&self, entry: &[u8], low: &mut Box<[u8]>, high: &mut Option<Box<[u8]>>) {
        let blocks = self.blocks.read();
        let before = blocks.range::<[u8], _>(up_to(entry)).next_back();
        if let Some(end) = before.and_then(|(_, block)| block.header.high.as_ref()) {
            *low = std::mem::take(low).max(end.clone());
        }
        let behind = (Bound::Excluded(entry), Bound::Unbounded);
        if let Some((begin, _)) = blocks.range::<[u8], _>(behind).next() {
            let end = high
                .take()
                .map_or(begin.clone(), |high| high.min(begin.clone()));
            *high = Some(end);
        }
    }

    /// Adds a block, which overlaps with no other.
    pub fn insert(&self, block: Arc<Block>) {
        self.count(block.memory_bytes(), 0);
        let low = block.header.low.clone();
        self.blocks.write().insert(low, block);
    }

    /// Removes a block.
    pub fn remove(&self, block: &Block) {
        self.count(0, block.memory_bytes());
        self.blocks.write().remove(&block.header.low);
    }

    /// The number of blocks.
    pub fn len(&self) -> usize {
        self.blocks.read().len()
    }

    /// Bytes of memory, about.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        self.count(0, self.memory_bytes());
    }
}
