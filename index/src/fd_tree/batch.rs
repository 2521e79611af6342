//! Blocks on their way to the device: written in parts, then synced, then in their levels' lists.

use super::block::{Block, Identity};
use super::level::{Level, Place};
use super::state::Shared;
use std::sync::Arc;
use strandline_base::Result;

/// The most bytes of a batch that one step writes.
const WRITE_BYTES_MAX: usize = 256 << 10;

/// A block, and where it will be.
#[derive(Debug)]
struct Unwritten {
    number: u64,
    level: Arc<Level>,
    ordinal: u64,
    block: Arc<Block>,
}

/// Published blocks with the numbers of their places. They stay in memory until the end.
#[derive(Debug)]
pub(super) struct Batch {
    blocks: Vec<Unwritten>,
    written: usize,
}

impl Batch {
    /// Allocates places for blocks: their levels, ordinals and contents.
    pub fn of(shared: &Shared, blocks: Vec<(Arc<Level>, u64, Arc<Block>)>) -> Result<Self> {
        let numbers = shared.blocks.allocate(blocks.len())?;
        let blocks = blocks.into_iter().zip(numbers);
        let unwritten = |((level, ordinal, block), number)| Unwritten {
            number,
            level,
            ordinal,
            block,
        };
        let mut blocks: Vec<Unwritten> = blocks.map(unwritten).collect();
        blocks.sort_unstable_by_key(|block| block.number);
        Ok(Self { blocks, written: 0 })
    }

    pub fn len(&self) -> u64 {
        self.blocks.len() as u64
    }

    /// Blocks that are not written.
    pub fn left(&self) -> u64 {
        (self.blocks.len() - self.written) as u64
    }

    /// Writes the next part, if there is one.
    pub fn write_part(&mut self, shared: &Shared) -> Result<()> {
        let block_bytes = shared.blocks.block_bytes();
        let part = self.blocks.iter().skip(self.written);
        let part = part.take((WRITE_BYTES_MAX / block_bytes).max(1));
        let encode = |unwritten: &Unwritten| {
            let at = Identity {
                tree: shared.settings.tree,
                number: unwritten.number,
                run: unwritten.level.run,
                ordinal: unwritten.ordinal,
            };
            let bytes = unwritten.block.encode(at, block_bytes);
            (unwritten.number, bytes)
        };
        let part: Vec<_> = part.map(encode).collect();
        shared.blocks.write(&part)?;
        self.written += part.len();
        Ok(())
    }

    /// Makes all written blocks durable, and has readers read them there.
    pub fn sync(self, shared: &Shared) -> Result<()> {
        debug_assert_eq!(self.left(), 0, "a batch is written whole");
        shared.blocks.sync()?;
        for unwritten in self.blocks {
            let place = Place::Stored(unwritten.number, None);
            unwritten.level.set(unwritten.ordinal, place);
        }
        Ok(())
    }
}
