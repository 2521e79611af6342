//! Cursors in both directions. A batch takes the state's lock once, copies what the heads have,
//! and needs about a block of each level, which it may have read ahead (`read_ahead`). Between two
//! batches a cursor holds no era.
//!
//! A batch lies on one side of the wavefront (I6). Of the entries with one key the newest decides.

use super::block::EntryKey;
use super::head::{Data, Head};
use super::loaded::Loaded;
use super::read_ahead::ReadAhead;
use super::state::{Shared, Slot};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound::{Excluded, Included};
use strandline_base::Result;

use super::block::Kind;
use crate::access_method::{Direction, KeyBytes};
use crate::entry::ROW_BYTES;

/// Entries that the first batch takes of a head or a level; each following one takes twice as many.
const ENTRIES_FIRST: usize = if cfg!(test) { 2 } else { 16 };
/// The most of them.
const ENTRIES_MAX: usize = if cfg!(test) { 8 } else { 512 };
/// The most bytes of an entry: a key that is cut, and a row id.
pub(super) const ENTRY_BYTES_MAX: usize = KeyBytes::CUT_BYTES + ROW_BYTES;
/// Greater than every entry.
const INFINITE: [u8; ENTRY_BYTES_MAX + 1] = [u8::MAX; ENTRY_BYTES_MAX + 1];

/// Goes over the entries of `from..before` in batches.
pub(super) struct Scan<'a> {
    shared: &'a Shared,
    direction: Direction,
    from: Vec<u8>,
    before: Vec<u8>,
    buffer: VecDeque<Box<[u8]>>,
    is_ended: bool,
    ahead: ReadAhead,
    /// entries that the next batch takes of a source
    entries: usize,
}

/// The key that follows `key`.
pub(super) fn following(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

/// What a batch has of one source, and where it was cut.
#[derive(Default)]
struct Part {
    data: Vec<(Box<[u8]>, bool)>,
    cut: Option<Box<[u8]>>,
}

impl<'a> Scan<'a> {
    pub fn new(
        shared: &'a Shared,
        from: &[u8],
        before: Option<&[u8]>,
        direction: Direction,
    ) -> Self {
        Self {
            shared,
            direction,
            from: from.to_vec(),
            before: before.unwrap_or(&INFINITE).to_vec(),
            buffer: VecDeque::new(),
            is_ended: false,
            ahead: ReadAhead::new(direction),
            entries: ENTRIES_FIRST,
        }
    }

    /// The cursor goes on behind one that has ended: it begins with the largest batches.
    #[must_use]
    pub fn going_on(mut self) -> Self {
        self.entries = ENTRIES_MAX;
        self
    }

    /// The next entry.
    pub fn next(&mut self) -> Result<Option<Box<[u8]>>> {
        while self.buffer.is_empty() && !self.is_ended && self.from < self.before {
            self.batch()?;
        }
        Ok(self.buffer.pop_front())
    }

    fn is_forward(&self) -> bool {
        self.direction == Direction::Forward
    }

    fn batch(&mut self) -> Result<()> {
        let state = self.shared.state.lock();
        let (mut low, mut high) = (self.from.clone(), self.before.clone());
        let mut parts = Vec::new();
        let mut path = state.new_path();
        let mut pointer_of = None;
        if let Some(old) = &state.old {
            let border = old.wavefront.as_deref().map_or(Vec::new(), following);
            let is_old = match self.direction {
                Direction::Forward => low >= border,
                Direction::Backward => high > border,
            };
            if is_old {
                low = low.max(border);
                path = state.old_path(old);
                pointer_of = Some(old);
            } else {
                high = high.min(border);
            }
        }
        parts.push(self.head_part(&state.head, &low, &high));
        let seek = if self.is_forward() { &low } else { &high };
        let pointer = match pointer_of {
            Some(old) => {
                parts.push(self.head_part(&old.head, &low, &high));
                parts.extend(
                    old.loaded
                        .as_ref()
                        .map(|run| self.load_part(run, &low, &high)),
                );
                old.head.floor_fence(seek).or(old.pointer)
            }
            None => state.head.floor_fence(seek),
        };
        let _era = state.enter();
        drop(state);
        self.ahead.retain(&path);
        let mut pointer = pointer;
        for (at, slot) in path.iter().enumerate() {
            let Some(ordinal) = pointer else { break };
            let block = self.ahead.block(self.shared, slot, ordinal)?;
            pointer = match at + 1 < path.len() {
                true => block.floor_fence(seek),
                false => None,
            };
            if !slot.level.only_fences {
                parts.push(self.level_part(slot, ordinal, &low, &high)?);
            }
        }
        self.unite(parts, low, high);
        self.entries = (2 * self.entries).min(ENTRIES_MAX);
        Ok(())
    }

    fn head_part(&self, head: &Head, low: &[u8], high: &[u8]) -> Part {
        let range = head.data.range::<[u8], _>((Included(low), Excluded(high)));
        let own = |(key, data): (&EntryKey, &Data)| (Box::from(key.as_slice()), data.is_insert);
        match self.direction {
            Direction::Forward => self.part(range.map(own)),
            Direction::Backward => self.part(range.rev().map(own)),
        }
    }

    fn load_part(&self, loaded: &Loaded, low: &[u8], high: &[u8]) -> Part {
        let range = loaded.below(low)..loaded.below(high);
        let own = |at| loaded.get(at).map(|key| (Box::from(key), true));
        match self.direction {
            Direction::Forward => self.part(range.filter_map(own)),
            Direction::Backward => self.part(range.rev().filter_map(own)),
        }
    }

    /// As many entries as the batch takes.
    fn part(&self, entries: impl Iterator<Item = (Box<[u8]>, bool)>) -> Part {
        let data: Vec<_> = entries.take(self.entries).collect();
        let is_cut = data.len() == self.entries;
        let cut = data.last().filter(|_| is_cut).map(|(key, _)| key.clone());
        Part { data, cut }
    }

    /// The data entries of a level, from the block on that the seek has led to: of the first block
    /// that has any, as many as the batch takes.
    fn level_part(&mut self, slot: &Slot, from: u64, low: &[u8], high: &[u8]) -> Result<Part> {
        let mut ordinal = from;
        loop {
            let block = self.ahead.block(self.shared, slot, ordinal)?;
            let range = block.below(low)..block.below(high);
            let own = |at| {
                let (key, kind) = block.get(at)?;
                let is_insert = kind == Kind::Insert;
                kind.is_data().then(|| (key.as_slice().into(), is_insert))
            };
            let mut part = match self.direction {
                Direction::Forward => self.part(range.filter_map(own)),
                Direction::Backward => self.part(range.rev().filter_map(own)),
            };
            if part.cut.is_some() {
                return Ok(part);
            }
            let edge = match self.direction {
                Direction::Forward => block.last_key(),
                Direction::Backward => block.first_key(),
            };
            let edge = edge.unwrap_or_default();
            let edge = edge.as_slice();
            let is_last = match self.direction {
                Direction::Forward => edge >= high || ordinal + 1 >= slot.level.end(),
                Direction::Backward => edge <= low || ordinal <= slot.live_from,
            };
            if is_last {
                return Ok(part);
            }
            if !part.data.is_empty() {
                part.cut = Some(edge.into());
                return Ok(part);
            }
            ordinal = if self.is_forward() {
                ordinal + 1
            } else {
                ordinal - 1
            };
        }
    }

    /// Fills the buffer with what is certain: up to the nearest cut.
    fn unite(&mut self, parts: Vec<Part>, low: Vec<u8>, high: Vec<u8>) {
        let cuts = parts.iter().filter_map(|part| part.cut.clone());
        let cut = match self.direction {
            Direction::Forward => cuts.min(),
            Direction::Backward => cuts.max(),
        };
        let is_forward = self.is_forward();
        let is_certain = |key: &[u8]| match (&cut, is_forward) {
            (Some(cut), true) => *key <= **cut,
            (Some(cut), false) => *key >= **cut,
            (None, _) => true,
        };
        let mut newest = BTreeMap::new();
        for (key, is_insert) in parts.into_iter().flat_map(|part| part.data) {
            newest.entry(key).or_insert(is_insert);
        }
        let found = newest
            .into_iter()
            .filter(|(key, is_insert)| *is_insert && is_certain(key));
        let found = found.map(|(key, _)| key);
        match self.direction {
            Direction::Forward => {
                self.buffer.extend(found);
                self.is_ended = cut.is_none() && high >= self.before;
                self.from = cut.map_or(high, |cut| following(&cut));
            }
            Direction::Backward => {
                let found: Vec<_> = found.collect();
                self.buffer.extend(found.into_iter().rev());
                self.is_ended = cut.is_none() && low <= self.from;
                self.before = cut.map_or(low, |cut| cut.to_vec());
            }
        }
    }
}
