//! Lookups of ascending entries in the levels of a tree while no compaction changes them. Of most
//! that are absent the filters tell so, and a filter serves a part of a level, so that the lookups
//! of one part find it in the processor's cache. For the others each block of a level is read at
//! most once, whatever the number of entries that are looked up in it.

use super::block::{Block, EntryKey};
use super::filter::FilterOf;
use super::level::Level;
use super::partition::Partition;
use super::read_ahead::ReadAhead;
use super::state::{Shared, Slot};
use crate::access_method::Direction;
use crate::entry::key_of;
use std::sync::Arc;
use strandline_base::Result;

/// Lookups in the levels. The entries that they are called with ascend.
pub(super) struct SortedLookup<'a> {
    shared: &'a Shared,
    filters: Vec<Filters>,
    /// by key, and by entry
    descents: [Descent; 2],
}

impl<'a> SortedLookup<'a> {
    pub fn new(shared: &'a Shared) -> Self {
        let state = shared.state.lock();
        let fences = state.head.fences.iter();
        let fences: Vec<_> = fences
            .map(|(key, to)| (Box::from(key.as_slice()), *to))
            .collect();
        let descent = || Descent {
            fences: fences.clone(),
            passed: 0,
            path: state.slots.clone(),
            at: vec![None; state.slots.len()],
            ahead: ReadAhead::new(Direction::Forward),
        };
        Self {
            shared,
            filters: state.slots.iter().map(Filters::of).collect(),
            descents: [descent(), descent()],
        }
    }

    /// The number of levels down to the last one that may have this entry, or if `wants_key` any of
    /// its key, of those from `first` on; 0: none has.
    pub fn depth(&mut self, entry: &[u8], first: usize, wants_key: bool) -> Result<usize> {
        for (at, filters) in self.filters.iter_mut().enumerate().skip(first).rev() {
            if filters.may_contain(self.shared, entry, wants_key)? {
                return Ok(at + 1);
            }
        }
        Ok(0)
    }

    /// Whether the first `depth` levels have the entry.
    pub fn has(&mut self, entry: &[u8], depth: usize) -> Result<bool> {
        let [_, descent] = &mut self.descents;
        let mut found = None;
        descent.descend(self.shared, entry, depth, |block, _| {
            (found, _) = block.find(entry);
            Ok(found.is_none())
        })?;
        Ok(found == Some(true))
    }

    /// What the first `depth` levels have of an entry's key: any data entry, and one that is not
    /// this entry. A deleted entry counts.
    pub fn of_key(&mut self, entry: &[u8], depth: usize) -> Result<(bool, bool)> {
        let [descent, _] = &mut self.descents;
        let (key, shared) = (key_of(entry), self.shared);
        let (mut has_any, mut has_other) = (false, false);
        descent.descend(shared, key, depth, |block, (slot, ordinal)| {
            let mut see = |found: &[u8]| {
                has_any = true;
                has_other |= found != entry;
                !has_other
            };
            let mut goes_on = see_key(block, key, &mut see);
            let mut ordinal = ordinal + 1;
            while goes_on && ordinal < slot.level.end() {
                let block = shared.read_cached(&slot.level, ordinal)?;
                goes_on = see_key(&block, key, &mut see);
                ordinal += 1;
            }
            Ok(!has_other)
        })?;
        Ok((has_any, has_other))
    }
}

/// Calls `see` with a block's data entries of a key until it returns false. Returns whether the
/// next block may have more of them.
fn see_key(block: &Block, key: &[u8], see: &mut impl FnMut(&[u8]) -> bool) -> bool {
    let mut found = EntryKey::new();
    for at in block.below(key)..block.len() {
        match block.read(at, &mut found) {
            Some(kind) if found.starts_with(key) => {
                if kind.is_data() && !see(&found) {
                    return false;
                }
            }
            _ => return false,
        }
    }
    true
}

/// A way down to ascending entries.
struct Descent {
    /// those of the head
    fences: Vec<(Box<[u8]>, u64)>,
    /// the head's fences up to the last entry
    passed: usize,
    path: Arc<Vec<Slot>>,
    /// the block of each level that the last descent has used
    at: Vec<Option<(u64, Arc<Block>)>>,
    ahead: ReadAhead,
}

impl Descent {
    /// Calls `each` with the blocks of data on the way to an entry until it returns false, or the
    /// first `depth` levels are done.
    fn descend(
        &mut self,
        shared: &Shared,
        entry: &[u8],
        depth: usize,
        mut each: impl FnMut(&Block, (&Slot, u64)) -> Result<bool>,
    ) -> Result<()> {
        let ahead = self.fences.get(self.passed..).unwrap_or_default();
        self.passed += ahead.partition_point(|(key, _)| **key <= *entry);
        let last = self.passed.checked_sub(1);
        let mut pointer = last.and_then(|last| Some(self.fences.get(last)?.1));
        let levels = self.path.iter().zip(&mut self.at).take(depth);
        for (slot, at) in levels {
            let Some(ordinal) = pointer else { break };
            let block = match at {
                Some((known, block)) if *known == ordinal => block,
                _ => {
                    let block = self.ahead.block(shared, slot, ordinal)?;
                    &at.insert((ordinal, block)).1
                }
            };
            if !slot.level.only_fences && !each(block, (slot, ordinal))? {
                break;
            }
            pointer = block.floor_fence(entry);
        }
        Ok(())
    }
}

/// The filters of a level, from the last key on.
struct Filters {
    level: Arc<Level>,
    partitions: Vec<Arc<Partition>>,
    /// those that begin up to the last key
    begun: usize,
}

impl Filters {
    fn of(slot: &Slot) -> Self {
        Self {
            level: slot.level.clone(),
            partitions: slot.level.partitions(),
            begun: 0,
        }
    }

    /// As [`Level::may_contain`], of ascending entries or their keys.
    fn may_contain(&mut self, shared: &Shared, entry: &[u8], wants_key: bool) -> Result<bool> {
        if self.level.only_fences || self.level.filters.bits == 0 {
            return Ok(!self.level.only_fences);
        }
        let of = self.level.filters.of;
        let (from, is_key) = match (of, wants_key) {
            (FilterOf::Keys, _) => (key_of(entry), true),
            (FilterOf::Entries, false) => (entry, false),
            (FilterOf::Entries, true) => return Ok(true),
        };
        let hash = of.hash(entry);
        let is_begun = |one: &Arc<Partition>| *one.first <= *from;
        while self.partitions.get(self.begun).is_some_and(is_begun) {
            self.begun += 1;
        }
        let Some(floor) = self.begun.checked_sub(1) else {
            return Ok(true);
        };
        for (at, one) in self.partitions.iter().enumerate().skip(floor) {
            if at > floor && !(is_key && one.first.starts_with(from)) {
                break;
            }
            if one.may_contain(hash, shared.filter_source())? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
