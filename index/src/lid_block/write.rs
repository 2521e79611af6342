//! Writing entries into blocks: additions, retirements, and bulk loads beside them.

use super::LidIndex;
use super::blocks::{Blocks, Put};
use super::layout::{State, successor};
use crate::access_method::{AccessMethod, Direction, KeyBytes};
use crate::entry::{entry_of, key_of, parts_of};
use crate::sorted_load::LoadTarget;
use strandline_base::{CommitTs, Result, RowId};

impl LidIndex {
    /// Writes the state that `want` gives by the state before into the entry's slot; returns the
    /// state before. Makes a block if none covers the entry, and moves a full one. The caller has
    /// the entry's lock.
    fn put(
        &self,
        key: &[u8],
        entry: &[u8],
        want: &dyn Fn(Option<State>) -> State,
    ) -> Result<Option<State>> {
        loop {
            let Some(block) = self.blocks.directory.covering(entry) else {
                if self.blocks.directory.is_full() {
                    // The caller has the entry's lock: no block says anything of it meanwhile.
                    if let Some((key, row)) = parts_of(entry) {
                        self.put_in_tree(&KeyBytes::encoded(key), row, want(None))?;
                    }
                    return Ok(None);
                }
                let range = match self.blocks.is_dense() {
                    true => Blocks::dense_range(key),
                    false => self.tree.leaf_range(entry)?,
                };
                if self.blocks.make(entry, range, want(None))? {
                    return Ok(None);
                }
                continue;
            };
            match self.blocks.put(&block, entry, want)? {
                Put::Done(before) => return Ok(before),
                Put::Full => self.move_block(&block)?,
                Put::Gone => self.blocks.await_changes(),
            }
        }
    }

    /// Writes into the tree what a block says of an entry, or would say.
    pub(super) fn put_in_tree(&self, key: &KeyBytes, row: RowId, state: State) -> Result<()> {
        match state {
            State::Live => self.tree.add(key, row).map(drop),
            State::RetiredInTree(since) => self.tree.retire(key, row, since),
            State::Retired(since) => {
                self.tree.add(key, row)?;
                self.tree.retire(key, row, since)
            }
        }
    }

    /// Adds an entry and looks at nothing else.
    pub(super) fn add_blind(&self, key: &KeyBytes, row: RowId) -> Result<bool> {
        let entry = entry_of(key.as_slice(), row);
        let _alone = self.entry_lock(&entry).lock();
        let before = self.put(key.as_slice(), &entry, &|_| State::Live)?;
        Ok(before.is_some_and(|state| state.is_gone(self.tree.oldest())))
    }

    /// Adds an entry, then looks for other rows under its key.
    pub(super) fn insert_seeing(
        &self,
        key: &KeyBytes,
        row: RowId,
        others: &mut Vec<RowId>,
    ) -> Result<bool> {
        let entry = entry_of(key.as_slice(), row);
        let _others_wait = self.key_lock(key.as_slice()).lock();
        let _alone = self.entry_lock(&entry).lock();
        // The entry's lock keeps its state, whatever is moved meanwhile.
        let is_new = !self.look(key)?.rows.contains(&row);
        self.put(key.as_slice(), &entry, &|_| State::Live)?;
        let seen = self.look(key)?;
        others.extend(seen.rows.iter().filter(|other| **other != row));
        Ok(is_new)
    }

    /// Notes since when no snapshot needs an entry. Whether the tree has it is not looked at.
    pub(super) fn retire_blind(&self, key: &KeyBytes, row: RowId, since: CommitTs) -> Result<()> {
        let entry = entry_of(key.as_slice(), row);
        let since = match since <= self.tree.oldest() {
            true => CommitTs::ZERO,
            false => since,
        };
        let _alone = self.entry_lock(&entry).lock();
        let retired = |before| State::retired(before, since);
        self.put(key.as_slice(), &entry, &retired).map(drop)
    }

    /// Revives those of sorted entries that blocks have as retired, and adds all to the tree. Then
    /// appends to `met` those under whose keys blocks have entries.
    pub(super) fn enter_beside_blocks(
        &self,
        entries: &[&[u8]],
        mut met: Option<&mut Vec<Vec<u8>>>,
    ) -> Result<()> {
        // First: a move that ends behind this takes the entry for a live one. One that has freed
        // the slot before has removed the entry from the tree before.
        self.visit_slots_beside(entries, &mut |slot| {
            if entries.binary_search(&slot).is_ok() {
                let _alone = self.entry_lock(slot).lock();
                self.put(key_of(slot), slot, &|_| State::Live)?;
            }
            Ok(())
        })?;
        self.tree.enter(entries, met.as_deref_mut())?;
        let Some(met) = met else {
            return Ok(());
        };
        self.visit_slots_beside(entries, &mut |slot| {
            let key = key_of(slot);
            let start = entries.partition_point(|entry| *entry < key);
            let same = entries.iter().skip(start);
            let same = same.take_while(|entry| key_of(entry) == key);
            met.extend(same.map(|entry| entry.to_vec()));
            Ok(())
        })?;
        met.sort_unstable();
        met.dedup();
        Ok(())
    }

    /// Visits the entries that blocks say something of, among the keys of sorted entries.
    fn visit_slots_beside(
        &self,
        entries: &[&[u8]],
        visit: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let (Some(first), Some(last)) = (entries.first(), entries.last()) else {
            return Ok(());
        };
        let before = successor(key_of(last));
        let range = (key_of(first), before.as_deref());
        let within = self
            .blocks
            .directory
            .within(range, Direction::Forward, usize::MAX);
        for block in within {
            for slot in self.blocks.read(&block)? {
                visit(&slot.entry)?;
            }
        }
        Ok(())
    }
}
