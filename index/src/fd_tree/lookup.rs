//! Lookups of one entry, and of the entries of one key: from the head down, without a cursor.
//!
//! A lookup takes the state's lock once, and reads a block of each level down to the last one whose
//! filter does not exclude what is wanted. Of the entries of a key that continue in the next block
//! it reads that block, too.
//!
//! Where a block is in memory, a search of it costs about as much as its level's filter does. So
//! what is expected to be there is looked for in blocks first, and the filters are asked before the
//! first read of the device. What is expected to be absent the filters are asked for at once.

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

/// What a lookup is likely to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    Present,
    Absent,
}

/// The filters of the levels of a path, asked once at most.
struct Filters<'a> {
    shared: &'a Shared,
    path: &'a Path,
    wanted: Wanted<'a>,
    /// levels down to the last one that may have what is wanted; None: not asked
    depth: Option<usize>,
}

impl<'a> Filters<'a> {
    fn of(
        shared: &'a Shared,
        path: &'a Path,
        wanted: Wanted<'a>,
        expected: Expected,
    ) -> Result<Self> {
        let mut filters = Self {
            shared,
            path,
            wanted,
            depth: None,
        };
        if expected == Expected::Absent {
            filters.depth()?;
        }
        Ok(filters)
    }

    fn depth(&mut self) -> Result<usize> {
        if let Some(depth) = self.depth {
            return Ok(depth);
        }
        let mut depth = self.path.len();
        for slot in self.path.iter().rev() {
            if self.shared.may_contain(&slot.level, self.wanted)? {
                break;
            }
            depth -= 1;
        }
        self.depth = Some(depth);
        Ok(depth)
    }

    /// Whether it is known that this level and those below have nothing.
    fn exclude(&self, at: usize) -> bool {
        self.depth.is_some_and(|depth| at >= depth)
    }
}

impl Shared {
    /// Whether the entry is in the tree, and the loads begun when this was so.
    pub fn find(&self, entry: &[u8], expected: Expected) -> Result<(bool, u64)> {
        let state = self.state.lock();
        let loads = state.loads;
        if let Some(is_present) = state.find_in_memory(entry) {
            return Ok((is_present, loads));
        }
        let (mut pointer, path) = state.path(entry);
        let _era = state.enter();
        drop(state);
        let wanted = Wanted::entry(entry, self.settings.filter_of);
        let mut filters = Filters::of(self, &path, wanted, expected)?;
        for (at, Slot { level, .. }) in path.iter().enumerate() {
            let (Some(ordinal), false) = (pointer, filters.exclude(at)) else {
                break;
            };
            let in_memory = level.look(ordinal, |block| block.find(entry));
            let (found, below) = match in_memory {
                Some(found) => found,
                None if filters.depth()? <= at => break,
                None => self.read_cached(level, ordinal)?.find(entry),
            };
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
    pub fn entries_of(&self, key: &[u8], expected: Expected) -> Result<Option<Vec<Box<[u8]>>>> {
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
        let mut filters = Filters::of(self, &path, Wanted::key(key), expected)?;
        for (at, Slot { level, .. }) in path.iter().enumerate() {
            let is_over = found.is_full() || filters.exclude(at);
            let (Some(ordinal), false) = (pointer, is_over) else {
                break;
            };
            let in_memory = level.look(ordinal, |block| gather_in(block, key, &mut found));
            let (goes_on, below) = match in_memory {
                Some(gathered) => gathered,
                None if filters.depth()? <= at => break,
                None => gather_in(&*self.read_cached(level, ordinal)?, key, &mut found),
            };
            if goes_on {
                self.gather_from(level, ordinal + 1, key, &mut found)?;
            }
            pointer = below;
        }
        Ok((!found.is_full()).then(|| found.into_entries()))
    }

    /// Adds a level's entries of a key, from a block on.
    fn gather_from(&self, level: &Level, first: u64, key: &[u8], found: &mut Found) -> Result<()> {
        for ordinal in first..level.end() {
            let in_memory = level.look(ordinal, |block| gather_in(block, key, found));
            let (goes_on, _) = match in_memory {
                Some(gathered) => gathered,
                // Mostly the block before has ended below the key, and the level has nothing of it.
                None if !self.may_contain(level, Wanted::key(key))? => break,
                None => gather_in(&*self.read_cached(level, ordinal)?, key, found),
            };
            if !goes_on {
                break;
            }
        }
        Ok(())
    }
}

/// Adds a block's entries of a key. Returns whether the next block may have more of them, and, as
/// [`Block::floor_fence`], the way down.
fn gather_in(block: &Block, key: &[u8], found: &mut Found) -> (bool, Option<u64>) {
    let (begin, below) = block.seek(key);
    let mut entry = EntryKey::new();
    for at in begin..block.len() {
        match block.read(at, &mut entry) {
            Some(kind) if entry.starts_with(key) && !found.is_full() => {
                if kind.is_data() {
                    found.add(&entry, kind == Kind::Insert);
                }
            }
            _ => return (false, below),
        }
    }
    (true, below)
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
