//! Blocks that a cursor has read of the levels. A cursor that goes from block to block of a level
//! reads more and more of them at once, which are at the device at the same time: 2, then 4, up
//! to 64. So it reads at most as many blocks in vain as it has used.
//!
//! A kept block needs no era. It was sealed when it was read, and a sealed block of a run has the
//! same entries for ever. The last block of a level may still grow, so it is not kept.

use super::block::Block;
use super::state::{Path, Shared, Slot};
use crate::access_method::Direction;
use std::collections::VecDeque;
use std::sync::Arc;
use strandline_base::Result;

/// The most blocks that are read at once.
const WINDOW_MAX: u64 = 64;

/// Blocks of one level.
#[derive(Debug)]
struct Kept {
    run: u64,
    /// the last ordinal that was asked for
    at: u64,
    /// blocks of the last read
    window: u64,
    blocks: VecDeque<(u64, Arc<Block>)>,
}

/// The blocks of a cursor.
#[derive(Debug)]
pub(super) struct ReadAhead {
    direction: Direction,
    levels: Vec<Kept>,
}

impl ReadAhead {
    pub fn new(direction: Direction) -> Self {
        Self {
            direction,
            levels: Vec::new(),
        }
    }

    /// Forgets levels that are gone.
    pub fn retain(&mut self, path: &Path) {
        let is_there = |kept: &Kept| path.iter().any(|slot| slot.level.run == kept.run);
        self.levels.retain(is_there);
    }

    /// A block of a level of the tree as the caller's era has it.
    pub fn block(&mut self, shared: &Shared, slot: &Slot, ordinal: u64) -> Result<Arc<Block>> {
        let level = &slot.level;
        // Before the block is read: it does not grow any more if it is not the last one.
        let (run, end) = (level.run, level.end());
        let Some(kept) = self.levels.iter_mut().find(|kept| kept.run == run) else {
            let block = shared.read_cached(level, ordinal)?;
            let blocks = (ordinal + 1 < end).then(|| (ordinal, block.clone()));
            self.levels.push(Kept {
                run,
                at: ordinal,
                window: 1,
                blocks: blocks.into_iter().collect(),
            });
            return Ok(block);
        };
        let before = std::mem::replace(&mut kept.at, ordinal);
        if let Some((_, block)) = kept.blocks.iter().find(|(at, _)| *at == ordinal) {
            return Ok(block.clone());
        }
        let is_next = match self.direction {
            Direction::Forward => before + 1 == ordinal,
            Direction::Backward => ordinal + 1 == before,
        };
        if !is_next || ordinal + 1 >= end {
            kept.window = 1;
            let block = shared.read_cached(level, ordinal)?;
            kept.blocks.clear();
            kept.blocks
                .extend((ordinal + 1 < end).then(|| (ordinal, block.clone())));
            return Ok(block);
        }
        kept.window = (2 * kept.window).min(WINDOW_MAX);
        let ordinals: Vec<u64> = match self.direction {
            Direction::Forward => (ordinal..(ordinal + kept.window).min(end - 1)).collect(),
            Direction::Backward => {
                let last = (ordinal + 1)
                    .saturating_sub(kept.window)
                    .max(slot.live_from);
                (last..=ordinal).rev().collect()
            }
        };
        let blocks = shared.read_many(level, &ordinals)?;
        // The block before: the next batch of the cursor may begin in it.
        kept.blocks.retain(|(at, _)| *at == before);
        kept.blocks.extend(ordinals.into_iter().zip(blocks));
        let found = kept.blocks.iter().find(|(at, _)| *at == ordinal);
        match found {
            Some((_, block)) => Ok(block.clone()),
            None => shared.read(level, ordinal),
        }
    }
}
