//! Blocks in memory, for tests and databases without a directory.

use super::{FreeList, LevelBlocks};
use std::collections::BTreeMap;
use strandline_base::sync::Mutex;
use strandline_base::{Error, Result};

/// Blocks in memory.
#[derive(Debug)]
pub struct MemoryBlocks {
    block_bytes: usize,
    content: Mutex<Content>,
}

#[derive(Debug, Default)]
struct Content {
    list: FreeList,
    blocks: BTreeMap<u64, Vec<u8>>,
    image: Option<Vec<u8>>,
}

impl MemoryBlocks {
    /// No blocks yet.
    pub fn new(block_bytes: usize) -> Self {
        Self {
            block_bytes,
            content: Mutex::default(),
        }
    }
}

impl LevelBlocks for MemoryBlocks {
    fn block_bytes(&self) -> usize {
        self.block_bytes
    }
    fn allocate(&self, count: usize) -> Result<Vec<u64>> {
        Ok(self.content.lock().list.allocate(count))
    }
    fn read(&self, block: u64) -> Result<Vec<u8>> {
        let content = self.content.lock();
        let bytes = content.blocks.get(&block).cloned();
        bytes.ok_or_else(|| Error::corrupt(format!("block {block} in memory"), "it is free"))
    }
    fn write(&self, blocks: &[(u64, Vec<u8>)]) -> Result<()> {
        let mut content = self.content.lock();
        for (block, bytes) in blocks {
            content.blocks.insert(*block, bytes.clone());
        }
        Ok(())
    }
    fn sync(&self) -> Result<()> {
        Ok(())
    }
    fn free(&self, blocks: &[u64]) {
        let mut content = self.content.lock();
        content.list.free(blocks);
        for block in blocks {
            content.blocks.remove(block);
        }
    }
    fn used(&self) -> usize {
        self.content.lock().list.used()
    }
    fn set_used(&self, blocks: &[u64]) {
        self.content.lock().list.set_used(blocks);
    }
    fn put_image(&self, image: &[u8]) -> Result<()> {
        self.content.lock().image = Some(image.to_vec());
        Ok(())
    }
    fn image(&self) -> Result<Option<Vec<u8>>> {
        Ok(self.content.lock().image.clone())
    }
}
