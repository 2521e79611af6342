//! Blocks on their way to the device: written in parts, then synced, then in their levels' lists.

use super::block::{Block, Identity};
use super::filter::Filter;
use super::filtering::Whole;
use super::level::Level;
use super::partition::{Partition, blocks_of, encode_block};
use super::places::Place;
use super::state::Shared;
use std::sync::Arc;
use strandline_base::Result;

/// The most bytes of a batch that one step writes.
const WRITE_BYTES_MAX: usize = 256 << 10;

/// What a block is.
#[derive(Debug)]
enum Content {
    Entries(Arc<Block>),
    /// a filter, and which of its blocks
    Filter(Arc<Filter>, usize),
}

/// A block, and where it will be.
#[derive(Debug)]
struct Unwritten {
    number: u64,
    level: Arc<Level>,
    ordinal: u64,
    content: Content,
}

impl Unwritten {
    fn encode(&self, tree: u64, block_bytes: usize) -> Vec<u8> {
        let at = Identity {
            tree,
            number: self.number,
            run: self.level.run,
            ordinal: self.ordinal,
        };
        match &self.content {
            Content::Entries(block) => block.encode(at, block_bytes),
            Content::Filter(filter, nth) => encode_block(filter, *nth, at, block_bytes),
        }
    }
}

/// Published blocks with the numbers of their places. They stay in memory until the end.
#[derive(Debug)]
pub(super) struct Batch {
    blocks: Vec<Unwritten>,
    written: usize,
    /// filters with their numbers
    partitions: Vec<(Arc<Level>, Arc<Partition>)>,
}

impl Batch {
    /// Allocates places for blocks (their levels, ordinals and contents) and filters.
    pub fn of(
        shared: &Shared,
        blocks: Vec<(Arc<Level>, u64, Arc<Block>)>,
        filters: Vec<Whole>,
    ) -> Result<Self> {
        let block_bytes = shared.blocks.block_bytes();
        let filter_blocks = filters
            .iter()
            .map(|one| blocks_of(&one.filter, block_bytes));
        let count = blocks.len() + filter_blocks.sum::<usize>();
        let mut numbers = shared.blocks.allocate(count)?.into_iter();
        let mut batch = Self {
            blocks: Vec::with_capacity(count),
            written: 0,
            partitions: Vec::new(),
        };
        for ((level, ordinal, block), number) in blocks.into_iter().zip(numbers.by_ref()) {
            batch.blocks.push(Unwritten {
                number,
                level,
                ordinal,
                content: Content::Entries(block),
            });
        }
        for one in filters {
            let own = blocks_of(&one.filter, block_bytes);
            let own: Vec<u64> = numbers.by_ref().take(own).collect();
            for (nth, (number, ordinal)) in own.iter().zip(one.ordinal..).enumerate() {
                batch.blocks.push(Unwritten {
                    number: *number,
                    level: one.level.clone(),
                    ordinal,
                    content: Content::Filter(one.filter.clone(), nth),
                });
            }
            let stored = Partition::stored(one.first, one.level.run, one.ordinal, own);
            let stored = stored.written(one.filter, &shared.filters);
            batch.partitions.push((one.level, Arc::new(stored)));
        }
        batch.blocks.sort_unstable_by_key(|block| block.number);
        Ok(batch)
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
        let tree = shared.settings.tree;
        let encode = |one: &Unwritten| (one.number, one.encode(tree, block_bytes));
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
            if let Content::Entries(_) = unwritten.content {
                let place = Place::Stored(unwritten.number, None);
                unwritten.level.set(unwritten.ordinal, place);
            }
        }
        for (level, partition) in &self.partitions {
            level.store_partition(partition);
        }
        Ok(())
    }
}
