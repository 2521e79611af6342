//! Moves of blocks' entries to the tree: of full blocks, early, and of all.

use super::LidIndex;
use super::directory::Block;
use super::layout::State;
use crate::access_method::{AccessMethod, Direction, KeyBytes};
use crate::entry::parts_of;
use crate::sorted_load::LoadTarget;
use std::sync::Arc;
use strandline_base::sync::Ordering;
use strandline_base::{CommitTs, Result, RowId};

impl LidIndex {
    /// Moves a block's entries to the tree, in one change per leaf. An entry that is written
    /// meanwhile stays in the block.
    pub(super) fn move_block(&self, block: &Arc<Block>) -> Result<()> {
        let _moving = block.moving.lock();
        let (slots, oldest) = (self.blocks.read(block)?, self.tree.oldest());
        if slots.is_empty() {
            return Ok(());
        }
        let is_live = |state| matches!(state, State::Live);
        let live = slots.iter().filter(|slot| is_live(slot.state));
        let mut live: Vec<&[u8]> = live.map(|slot| slot.entry.as_slice()).collect();
        live.sort_unstable();
        self.tree.enter(&live, None)?;
        for slot in &slots {
            let Some((key, row)) = parts_of(&slot.entry) else {
                continue;
            };
            let key = KeyBytes::encoded(key);
            match slot.state {
                State::Live => {}
                state if state.is_gone(oldest) => self.tree.retire(&key, row, CommitTs::ZERO)?,
                state => self.put_in_tree(&key, row, state)?,
            }
        }
        self.blocks.clear(block, &slots)
    }

    /// Moves the entries of all blocks that there are now.
    pub(super) fn move_all(&self) -> Result<()> {
        let everything = (&[][..], None);
        let within = self
            .blocks
            .directory
            .within(everything, Direction::Forward, usize::MAX);
        within.iter().try_for_each(|block| self.move_block(block))
    }

    /// Whether there is a nearly full block.
    pub fn is_flush_due(&self) -> bool {
        self.blocks.is_any_due()
    }

    /// Moves the entries of a nearly full block to the tree, so that no insertion meets it full.
    /// Returns whether there is another one. Without one and without memory for another block it
    /// moves any: blocks of a range that changes no more make room, one for each call.
    ///
    /// # Errors
    /// The tree's and the page store's; the block waits until it is full.
    pub fn flush_step(&self) -> Result<bool> {
        if let Some(block) = self.blocks.take_due() {
            self.move_block(&block)
                .inspect_err(|_| block.is_due.store(false, Ordering::Release))?;
        }
        Ok(self.is_flush_due())
    }

    /// Moves the entries of all blocks to the tree, and removes every entry that no snapshot needs
    /// \[Indirection §3.4\].
    ///
    /// # Errors
    /// The tree's and the page store's; what was moved stays moved.
    pub fn vacuum(&self) -> Result<()> {
        self.move_all()?;
        self.tree.retain(&mut |_, _| true)
    }

    /// Removes an entry from the tree that a block says is gone, and frees the block's slot, unless
    /// the block's entries are being moved.
    pub(super) fn settle(&self, entry: &[u8]) -> Result<()> {
        let (Some(block), Some((key, row))) =
            (self.blocks.directory.covering(entry), parts_of(entry))
        else {
            return Ok(());
        };
        let _alone = self.entry_lock(entry).lock();
        let Some(_moving) = block.moving.try_lock() else {
            return Ok(());
        };
        let mut slots = self.blocks.read(&block)?;
        let oldest = self.tree.oldest();
        slots.retain(|slot| slot.entry == entry && slot.state.is_gone(oldest));
        if slots.is_empty() {
            return Ok(());
        }
        self.tree
            .retire(&KeyBytes::encoded(key), row, CommitTs::ZERO)?;
        self.blocks.clear(&block, &slots)
    }

    /// [`LidIndex::settle`] for rows that a reader has met in the tree. What fails is left to the
    /// next reader, or to the block's move.
    pub(super) fn settle_rows(&self, key: &KeyBytes, gone: &[RowId]) {
        for row in gone {
            let entry = crate::entry::entry_of(key.as_slice(), *row);
            let _ = self.settle(&entry);
        }
    }
}
