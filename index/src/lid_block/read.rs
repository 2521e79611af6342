//! Reading: the blocks first, then the tree.

use super::LidIndex;
use super::directory::Block;
use super::layout::{State, successor};
use crate::access_method::{AccessMethod, Direction, KeyBytes, KeyRange};
use crate::entry::{EntryRange, parts_of};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use strandline_base::{Result, RowId};

/// Blocks that an estimate looks at one by one.
const COUNTED_BLOCKS: usize = 64;

/// The rows under a key.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// the index's, in order
    pub rows: Vec<RowId>,
    /// the tree's of which a block says that they are gone
    pub gone: Vec<RowId>,
}

impl LidIndex {
    /// The rows under a key.
    pub(super) fn look(&self, key: &KeyBytes) -> Result<Seen> {
        let mut said = Vec::new();
        if self.blocks.takes(key.as_slice()) {
            let before = successor(key.as_slice());
            let range = (key.as_slice(), before.as_deref());
            let within = self
                .blocks
                .directory
                .within(range, Direction::Forward, usize::MAX);
            for block in within {
                for slot in self.blocks.read(&block)? {
                    if let Some((of, row)) = parts_of(&slot.entry)
                        && of == key.as_slice()
                    {
                        said.push((row, slot.state));
                    }
                }
            }
        }
        let (mut seen, mut in_tree) = (Seen::default(), Vec::new());
        self.tree.lookup(key, &mut in_tree)?;
        if said.is_empty() {
            seen.rows = in_tree;
            return Ok(seen);
        }
        let oldest = self.tree.oldest();
        let is_gone = |row: &RowId| {
            let of_row = said.iter().rev().find(|(of, _)| of == row);
            of_row.is_some_and(|(_, state)| state.is_gone(oldest))
        };
        (seen.gone, seen.rows) = in_tree.into_iter().partition(is_gone);
        let is_added = |(row, state): &(RowId, State)| {
            !is_gone(row) && matches!(state, State::Live | State::Retired(_))
        };
        let added = said.iter().filter(|said| is_added(said));
        seen.rows.extend(added.map(|(row, _)| *row));
        seen.rows.sort_unstable();
        seen.rows.dedup();
        Ok(seen)
    }

    /// The tree's estimate, and what the blocks of the range add. Of many blocks the tree's share
    /// tells how many there are, but no fewer than the first ones have.
    pub(super) fn estimate_with_blocks(&self, range: &KeyRange) -> Option<usize> {
        let in_tree = self.tree.estimate(range)?;
        let total = |blocks: &[Arc<Block>]| {
            let added: isize = blocks.iter().map(|block| block.weight.load(Relaxed)).sum();
            in_tree.saturating_add_signed(added)
        };
        let EntryRange { from, before } = EntryRange::of(range);
        let within = self.blocks.directory.within(
            (&from, before.as_deref()),
            Direction::Forward,
            COUNTED_BLOCKS + 1,
        );
        let counted = total(&within);
        if within.len() <= COUNTED_BLOCKS {
            return Some(counted);
        }
        let share = in_tree as f64 / self.tree.len().max(1) as f64;
        Some(counted.max((share * self.len() as f64) as usize))
    }
}
