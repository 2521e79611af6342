//! Blocks of one size for the levels of an index, with the image that says which of them are used.
//! [`FileBlocks`] has them in a file of a device, [`MemoryBlocks`] in memory.
//!
//! Invariants:
//! 1. A block that an image names is not written again before a later image is durable: the owner
//!    frees a block only then.
//! 2. [`LevelBlocks::put_image`] replaces the image as a whole: a crash leaves the older or the
//!    newer one.

mod block_queue;
mod file_blocks;
mod forward;
mod memory_blocks;

pub use block_queue::BlockQueue;
pub use file_blocks::FileBlocks;
pub use memory_blocks::MemoryBlocks;

use strandline_base::Result;

/// The number of an index's level files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LevelFileId(pub u32);

/// The name of the level file `id`, which has the blocks; [`file_names`] has all names.
pub fn level_file_name(id: LevelFileId) -> String {
    format!("levels-{:08x}", id.0)
}

/// The number in the name of a level file or of one of its images; None for other names.
pub fn level_file_id(name: &str) -> Option<LevelFileId> {
    let rest = name.strip_prefix("levels-")?;
    let (digits, image) = rest.split_at_checked(8)?;
    let number = u32::from_str_radix(digits, 16).ok()?;
    let is_name = ["", "-image0", "-image1"].contains(&image);
    is_name.then_some(LevelFileId(number))
}

/// The names of the files of an index with blocks in `name`: the blocks, then the two images.
pub fn file_names(name: &str) -> [String; 3] {
    ["", "-image0", "-image1"].map(|part| format!("{name}{part}"))
}

/// Where an index has its levels.
pub trait LevelBlocks: Send + Sync + std::fmt::Debug {
    /// Bytes of a block.
    fn block_bytes(&self) -> usize;
    /// The numbers of `count` free blocks, which are used from now on.
    fn allocate(&self, count: usize) -> Result<Vec<u64>>;
    /// The bytes of a block.
    fn read(&self, block: u64) -> Result<Vec<u8>>;
    /// The bytes of blocks, in this order, read at the same time if the device can.
    fn read_many(&self, blocks: &[u64]) -> Result<Vec<Vec<u8>>> {
        blocks.iter().map(|block| self.read(*block)).collect()
    }
    /// Writes whole blocks; durable after [`LevelBlocks::sync`].
    fn write(&self, blocks: &[(u64, Vec<u8>)]) -> Result<()>;
    /// Makes the blocks written so far durable.
    fn sync(&self) -> Result<()>;
    /// The blocks may be allocated again.
    fn free(&self, blocks: &[u64]);
    /// Blocks that are allocated.
    fn used(&self) -> usize;
    /// Says after an opening which blocks are used; all others are free.
    fn set_used(&self, blocks: &[u64]);
    /// The content of the next image is about to be gathered.
    fn begin_image(&self) {}
    /// Replaces the image, durably.
    fn put_image(&self, image: &[u8]) -> Result<()>;
    /// The newest image; None before the first.
    fn image(&self) -> Result<Option<Vec<u8>>>;
}

/// The free numbers among `0..end`.
#[derive(Debug, Default)]
struct FreeList {
    end: u64,
    free: std::collections::BTreeSet<u64>,
}

impl FreeList {
    fn allocate(&mut self, count: usize) -> Vec<u64> {
        (0..count)
            .map(|_| {
                self.free.pop_first().unwrap_or_else(|| {
                    self.end += 1;
                    self.end - 1
                })
            })
            .collect()
    }
    fn free(&mut self, blocks: &[u64]) {
        for &block in blocks {
            let is_new = self.free.insert(block);
            debug_assert!(is_new && block < self.end, "block {block} is freed twice");
        }
    }
    fn used(&self) -> usize {
        self.end as usize - self.free.len()
    }
    fn set_used(&mut self, blocks: &[u64]) {
        self.end = blocks.iter().max().map_or(0, |last| last + 1);
        self.free = (0..self.end).collect();
        for block in blocks {
            self.free.remove(block);
        }
    }
}

#[cfg(test)]
mod tests;
