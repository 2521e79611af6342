//! Lookups of one entry, and of the entries of one key: from the head down, without a cursor.
//!
//! A lookup takes the state's lock once, and reads a block of each level down to the last one whose
//! filter does not exclude what is wanted. Of the entries of a key that continue in the next block
//! it reads that block, too.

use super::block::{Block, EntryKey, Kind};
use super::level::{Level, Wanted};
use super::state::{Path, Shared, Slot, State};
use std::ops::Bound::{Included, Unbounded};
use strandline_base::Result;

/// The most entries of a key that are gathered without a cursor.
const ENTRIES_MAX: usize = 64;

/// Entries of a key, the newest first; true: it inserts.
#[derive(Default)]
struct Found(Vec<(Box<[u8]>, bool)>);

impl Found {
    /// Adds an entry unless a newer one decides.
    fn add(&mut self, entry: &[u8], is_insert: bool) {
        if !self.0.iter().any(|(newer, _)| **newer == *entry) {
            self.0.push((entry.into(), is_insert));
        }
    }

    fn is_full(&self) -> bool {
        self.0.len() > ENTRIES_MAX
    }

    /// The entries that are there, in order.
    fn into_entries(self) -> Vec<Box<[u8]>> {
        let there = self.0.into_iter().filter(|(_, is_insert)| *is_insert);
        let mut entries: Vec<_> = there.map(|(entry, _)| entry).collect();
        entries.sort_unstable();
        entries
    }
}

impl Shared {
    /// Whether the entry is in the tree, and the loads begun when this was so.
    pub fn find(&self, entry: &[u8]) -> Result<(bool, u64)> {
        let state = self.state.lock();
        let loads = state.loads;
        if let Some(is_present) = state.find_in_memory(entry) {
            return Ok((is_present, loads));
        }
        let (mut pointer, path) = state.path(entry);
        let _era = state.enter();
        drop(state);
        let depth = self.wanted_levels(&path, Wanted::entry(entry, self.settings.filter_of))?;
        for Slot { level, .. } in path.iter().take(depth) {
            let Some(ordinal) = pointer else { break };
            let (found, below) = self.look(level, ordinal, |block| block.find(entry))?;
            if let Some(is_insert) = found {
                return Ok((is_insert, loads));
            }
            pointer = below;
        }
        Ok((false, loads))
    }

    /// The entries of a key, in order. None: a cursor has to go over them, because they are many or
    /// lie on both sides of the wavefront.
    ///
    /// # Errors
    /// The device's; XX001 if a block or a filter is damaged.
    pub fn entries_of(&self, key: &[u8]) -> Result<Option<Vec<Box<[u8]>>>> {
        let state = self.state.lock();
        let old = state.old.as_ref();
        let wavefront = old.and_then(|old| old.wavefront.as_deref());
        if wavefront.is_some_and(|wave| wave.starts_with(key)) {
            return Ok(None);
        }
        let mut found = Found::default();
        gather_in_memory(&state, key, &mut found);
        let (mut pointer, path) = state.path(key);
        let _era = state.enter();
        drop(state);
        let wanted = Wanted::key(key);
        let depth = self.wanted_levels(&path, wanted)?;
        for (at, Slot { level, .. }) in path.iter().take(depth).enumerate() {
            let (Some(ordinal), false) = (pointer, found.is_full()) else {
                break;
            };
            // The last level may have them: else it would not be part of the path.
            let is_last = at + 1 == depth;
            let may_have = is_last || self.may_contain(level, wanted)?;
            let goes_on;
            (goes_on, pointer) = self.look(level, ordinal, |block| {
                let below = if is_last {
                    None
                } else {
                    block.floor_fence(key)
                };
                (may_have && gather_in(block, key, &mut found), below)
            })?;
            if goes_on {
                self.gather_from(level, ordinal + 1, key, &mut found)?;
            }
        }
        Ok((!found.is_full()).then(|| found.into_entries()))
    }

    /// The number of levels down to the last one that may have what is wanted.
    fn wanted_levels(&self, path: &Path, wanted: Wanted<'_>) -> Result<usize> {
        let mut levels = path.len();
        for slot in path.iter().rev() {
            if self.may_contain(&slot.level, wanted)? {
                break;
            }
            levels -= 1;
        }
        Ok(levels)
    }

    /// Adds a level's entries of a key, from a block on.
    fn gather_from(&self, level: &Level, first: u64, key: &[u8], found: &mut Found) -> Result<()> {
        for ordinal in first..level.end() {
            if !self.look(level, ordinal, |block| gather_in(block, key, found))? {
                break;
            }
        }
        Ok(())
    }
}

/// Adds a block's entries of a key. Returns whether the next block may have more of them.
fn gather_in(block: &Block, key: &[u8], found: &mut Found) -> bool {
    let mut entry = EntryKey::new();
    for at in block.below(key)..block.len() {
        match block.read(at, &mut entry) {
            Some(kind) if entry.starts_with(key) && !found.is_full() => {
                if kind.is_data() {
                    found.add(&entry, kind == Kind::Insert);
                }
            }
            _ => return false,
        }
    }
    true
}

/// Adds the entries of a key that are in the heads, and in a load under way.
fn gather_in_memory(state: &State, key: &[u8], found: &mut Found) {
    let old = state.old.as_ref().filter(|old| old.has(key));
    let heads = std::iter::once(&state.head).chain(old.map(|old| &old.head));
    for head in heads {
        let from = head.data.range::<[u8], _>((Included(key), Unbounded));
        let own = from.take_while(|(entry, _)| entry.starts_with(key));
        for (entry, data) in own.take(ENTRIES_MAX + 1) {
            found.add(entry, data.is_insert);
        }
    }
    let Some(loaded) = old.and_then(|old| old.loaded.as_deref()) else {
        return;
    };
    let from = (loaded.below(key)..loaded.len()).map_while(|at| loaded.get(at));
    let own = from.take_while(|entry| entry.starts_with(key));
    for entry in own.take(ENTRIES_MAX + 1) {
        found.add(entry, true);
    }
}
