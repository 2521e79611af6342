//! Lookups of one entry, and of the entries of one key: from the head down, without a cursor.
//!
//! A lookup takes the state's lock once, and reads a block of each level down to the last one whose
//! filter does not exclude what is wanted. Of the entries of a key that continue in the next block
//! it reads that block, too.

use super::block::{Block, Kind};
use super::level::Wanted;
use super::state::{Shared, Slot, State};
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
        let path = self.wanted_part(&path, Wanted::entry(entry))?;
        for (at, Slot { level, .. }) in path.iter().enumerate() {
            let Some(ordinal) = pointer else { break };
            let block = self.read_cached(level, ordinal)?;
            if let Some(is_insert) = block.find(entry) {
                return Ok((is_insert, loads));
            }
            pointer = match at + 1 < path.len() {
                true => block.floor_fence(entry),
                false => None,
            };
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
        let path = self.wanted_part(&path, wanted)?;
        for (at, slot) in path.iter().enumerate() {
            let (Some(ordinal), false) = (pointer, found.is_full()) else {
                break;
            };
            let is_last = at + 1 == path.len();
            let block = self.read_cached(&slot.level, ordinal)?;
            // The last level may have them: else it would not be part of the path.
            if is_last || self.may_contain(&slot.level, wanted)? {
                self.gather(slot, (ordinal, &block), key, &mut found)?;
            }
            pointer = match is_last {
                true => None,
                false => block.floor_fence(key),
            };
        }
        Ok((!found.is_full()).then(|| found.into_entries()))
    }

    /// The levels down to the last one that may have what is wanted.
    fn wanted_part<'a>(&self, path: &'a [Slot], wanted: Wanted<'_>) -> Result<&'a [Slot]> {
        let mut path = path;
        while let Some((last, above)) = path.split_last()
            && !self.may_contain(&last.level, wanted)?
        {
            path = above;
        }
        Ok(path)
    }

    /// Adds a level's entries of a key, from the block on that a fence has led to.
    fn gather(
        &self,
        slot: &Slot,
        (ordinal, first): (u64, &Block),
        key: &[u8],
        found: &mut Found,
    ) -> Result<()> {
        if !gather_in(first, key, found) {
            return Ok(());
        }
        for ordinal in ordinal + 1..slot.level.end() {
            if !gather_in(&*self.read_cached(&slot.level, ordinal)?, key, found) {
                break;
            }
        }
        Ok(())
    }
}

/// Adds a block's entries of a key. Returns whether the next block may have more of them.
fn gather_in(block: &Block, key: &[u8], found: &mut Found) -> bool {
    for at in block.below(key)..block.len() {
        match block.get(at) {
            Some((entry, kind)) if entry.starts_with(key) && !found.is_full() => {
                if kind.is_data() {
                    found.add(entry, kind == Kind::Insert);
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
