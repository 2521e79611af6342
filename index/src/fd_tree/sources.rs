//! What a compaction merges: the old head, the entries of a load, and the old levels, each in
//! order of its keys.

use super::block::{Block, Item, Kind};
use super::buffer::Buffer;
use super::level::Level;
use super::loaded::Loaded;
use super::state::{Old, Shared, Slot};
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;
use strandline_base::Result;

/// Entries that are taken from the old head at once.
const HEAD_ENTRIES: usize = if cfg!(test) { 8 } else { 256 };

/// Entries that are taken from a load at once.
const LOAD_ENTRIES: usize = 16 * HEAD_ENTRIES;

/// Blocks of a level that are read at once: most are neighbours on the device, so that they are one
/// read.
const READ_BLOCKS: u64 = if cfg!(test) { 3 } else { 16 };

/// Places of the head and of a load among the sources of a key.
pub(super) const HEAD: usize = 0;
pub(super) const LOAD: usize = 1;

/// An old level.
#[derive(Debug)]
pub(super) struct Source {
    pub level: Arc<Level>,
    next: u64,
    end: u64,
    /// blocks from `next` on
    ahead: VecDeque<Arc<Block>>,
    buffer: Buffer,
    /// the blocks that are not reclaimed: ordinal and first key
    pub read: VecDeque<(u64, Box<[u8]>)>,
}

/// The old head.
#[derive(Debug, Default)]
pub(super) struct HeadSource {
    /// the last key that was taken
    pub after: Option<Box<[u8]>>,
    buffer: Buffer,
    is_ended: bool,
    /// pending entries that have been passed
    pub pending: Vec<Box<[u8]>>,
}

/// The entries of a load.
#[derive(Debug, Default)]
pub(super) struct LoadSource {
    loaded: Arc<Loaded>,
    /// entries that the buffer has had
    taken: usize,
    buffer: Buffer,
}

/// A source with the least key, and one with the least key of the others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Least {
    pub at: usize,
    rival: Option<usize>,
}

/// All sources.
#[derive(Debug, Default)]
pub(super) struct Sources {
    pub head: HeadSource,
    load: LoadSource,
    pub levels: Vec<Source>,
}

impl Sources {
    /// The sources of a compaction, from their first entries on.
    pub fn of(old: &Old) -> Self {
        let source = |slot: &Slot| Source {
            level: slot.level.clone(),
            next: slot.live_from,
            end: slot.level.end(),
            ahead: VecDeque::new(),
            buffer: Buffer::default(),
            read: VecDeque::new(),
        };
        Self {
            head: HeadSource::default(),
            load: LoadSource {
                loaded: old.loaded.clone().unwrap_or_default(),
                ..LoadSource::default()
            },
            levels: old.slots.iter().map(source).collect(),
        }
    }

    /// Ordinals of blocks that have been read, and blocks that have not.
    pub fn read_and_unread(&self) -> (u64, u64) {
        let read = self.levels.iter().map(|source| source.next);
        let unread = self.levels.iter().map(|source| source.end - source.next);
        (read.sum(), unread.sum())
    }

    /// Blocks of the filters that have not been passed.
    pub fn filter_blocks(&self) -> u64 {
        let levels = self.levels.iter();
        levels.map(|source| source.level.filter_blocks()).sum()
    }

    /// About the bytes of a load's entries that have not been taken.
    pub fn load_bytes(&self) -> usize {
        let loaded = &self.load.loaded;
        loaded.bytes() / loaded.len().max(1) * (loaded.len() - self.load.taken)
    }

    /// Takes the next block of every level whose entries are staged.
    pub fn fill(&mut self, shared: &Shared, wavefront: Option<&[u8]>) -> Result<()> {
        self.fill_levels(shared, wavefront, self.levels.len())
    }

    /// Goes over the fences before the first data entry of all sources but the lowest level.
    /// Appends the first keys of that level's blocks, from its first block on, up to the block in
    /// which the data entry's key would be. Takes at most one block of every level above. Returns
    /// whether it has come to the data entry, or to the end.
    pub fn pass_fences(
        &mut self,
        shared: &Shared,
        first_keys: &mut Vec<Box<[u8]>>,
    ) -> Result<bool> {
        let above = self.levels.len().saturating_sub(1);
        // The source whose fences lead to the lowest level.
        let parent = match above {
            0 => HEAD,
            _ => LOAD + above,
        };
        self.fill_levels(shared, None, above)?;
        loop {
            if self.has_unread_of(above) {
                return Ok(false);
            }
            let fronts = (0..LOAD + 1 + above).filter_map(|at| self.buffer(at)?.front_key());
            let Some(key) = fronts.min().map(Box::<[u8]>::from) else {
                return Ok(true);
            };
            let mut is_data = false;
            for (at, buffer) in self.buffers_mut().take(LOAD + 1 + above).enumerate() {
                while let Some((front, kind)) = buffer.front().filter(|(front, _)| **front == *key)
                {
                    if kind.is_data() {
                        is_data = true;
                        break;
                    }
                    // Later fences to the same block are copies (I2).
                    let is_next = kind == Kind::Fence(first_keys.len() as u64);
                    first_keys.extend((at == parent && is_next).then(|| front.into()));
                    buffer.advance();
                }
            }
            if is_data {
                return Ok(!self.has_unread_of(above));
            }
        }
    }

    /// The lowest level is read from this block on.
    pub fn begin_lowest_at(&mut self, ordinal: u64) {
        if let Some(lowest) = self.levels.last_mut() {
            debug_assert!(lowest.read.is_empty(), "nothing of it has been read");
            lowest.next = ordinal;
        }
    }

    /// As [`Sources::fill`], of the upper `count` levels, the head and the load.
    fn fill_levels(
        &mut self,
        shared: &Shared,
        wavefront: Option<&[u8]>,
        count: usize,
    ) -> Result<()> {
        for source in self.levels.iter_mut().take(count) {
            while source.buffer.is_empty() && source.next < source.end {
                let block = source.read_next(shared)?;
                let first = block.first_key().unwrap_or_default().as_slice().into();
                source.read.push_back((source.next, first));
                source.next += 1;
                source.buffer = Buffer::of_block(block, wavefront);
            }
        }
        if self.head.buffer.is_empty() && !self.head.is_ended {
            self.head.fill(shared);
        }
        self.load.fill();
        Ok(())
    }

    /// Whether a source without entries here has more of them.
    pub fn has_unread(&self) -> bool {
        self.has_unread_of(self.levels.len())
    }

    /// As [`Sources::has_unread`], of the upper `count` levels, the head and the load.
    fn has_unread_of(&self, count: usize) -> bool {
        let is_unread = |source: &Source| source.buffer.is_empty() && source.next < source.end;
        self.levels.iter().take(count).any(is_unread)
            || self.head.buffer.is_empty() && !self.head.is_ended
            || self.load.buffer.is_empty() && self.load.taken < self.load.loaded.len()
    }

    /// The source whose key is next; None: no source has an entry in memory.
    pub fn least(&self) -> Option<Least> {
        let mut least: Option<(usize, &[u8])> = None;
        let mut rival: Option<(usize, &[u8])> = None;
        for at in 0..LOAD + 1 + self.levels.len() {
            let Some(key) = self.front_key(at) else {
                continue;
            };
            if least.is_none_or(|(_, least)| key < least) {
                rival = least.replace((at, key));
            } else if rival.is_none_or(|(_, rival)| key < rival) {
                rival = Some((at, key));
            }
        }
        Some(Least {
            at: least?.0,
            rival: rival.map(|(at, _)| at),
        })
    }

    /// How the next key of the least source compares with the least key of the others. None: the
    /// source has no entry in memory.
    pub fn compare(&self, least: Least) -> Option<Ordering> {
        let key = self.front_key(least.at)?;
        let rival = least.rival.and_then(|rival| self.front_key(rival));
        Some(rival.map_or(Ordering::Less, |rival| key.cmp(rival)))
    }

    /// The next key of a source.
    pub fn front_key(&self, at: usize) -> Option<&[u8]> {
        self.buffer(at)?.front_key()
    }

    fn buffer(&self, at: usize) -> Option<&Buffer> {
        match at {
            HEAD => Some(&self.head.buffer),
            LOAD => Some(&self.load.buffer),
            _ => Some(&self.levels.get(at - LOAD - 1)?.buffer),
        }
    }

    /// The entries of all sources, from the newest to the oldest: the head, a load, the levels.
    pub fn buffers_mut(&mut self) -> impl Iterator<Item = &mut Buffer> {
        let levels = self.levels.iter_mut().map(|source| &mut source.buffer);
        let above = [&mut self.head.buffer, &mut self.load.buffer];
        above.into_iter().chain(levels)
    }
}

impl Source {
    /// The block at `next`. The old levels' blocks do not change.
    fn read_next(&mut self, shared: &Shared) -> Result<Arc<Block>> {
        if self.ahead.is_empty() {
            let end = self.end.min(self.next + READ_BLOCKS);
            let ordinals: Vec<u64> = (self.next..end).collect();
            self.ahead = shared.read_many(&self.level, &ordinals)?.into();
        }
        match self.ahead.pop_front() {
            Some(block) => Ok(block),
            None => shared.read(&self.level, self.next),
        }
    }
}

impl LoadSource {
    fn fill(&mut self) {
        if self.buffer.is_empty() {
            let end = self.loaded.len().min(self.taken + LOAD_ENTRIES);
            self.buffer = Buffer::of_load(self.loaded.clone(), self.taken, end);
            self.taken = end;
        }
    }
}

impl HeadSource {
    fn fill(&mut self, shared: &Shared) {
        let state = shared.state.lock();
        let Some(old) = &state.old else { return };
        let from = self.after.as_deref().map_or(Unbounded, Excluded);
        let data: Vec<_> = old
            .head
            .data
            .range::<[u8], _>((from, Unbounded))
            .take(HEAD_ENTRIES)
            .collect();
        let fences: Vec<_> = old
            .head
            .fences
            .range::<[u8], _>((from, Unbounded))
            .take(HEAD_ENTRIES)
            .collect();
        // Up to the least key behind which a list may be cut: no key is staged in two parts.
        let cuts = [
            data.last()
                .filter(|_| data.len() == HEAD_ENTRIES)
                .map(|(key, _)| *key),
            fences
                .last()
                .filter(|_| fences.len() == HEAD_ENTRIES)
                .map(|(key, _)| *key),
        ];
        let cut = cuts.into_iter().flatten().min();
        let cut: Option<Box<[u8]>> = cut.map(|key| key.as_slice().into());
        let is_within = |key: &[u8]| cut.as_deref().is_none_or(|cut| key <= cut);
        let mut items: Vec<Item> = Vec::new();
        for (key, to) in fences {
            if is_within(key) {
                items.push((key.as_slice().into(), Kind::Fence(*to)));
            }
        }
        for (key, data) in data {
            let own = || Box::from(key.as_slice());
            match (is_within(key), data.is_pending, data.is_insert) {
                (false, ..) => {}
                (_, true, _) => self.pending.push(own()),
                (.., true) => items.push((own(), Kind::Insert)),
                (.., false) => items.push((own(), Kind::Delete)),
            }
        }
        // Stable: the fence of a key stays before its data entry.
        items.sort_by(|a, b| a.0.cmp(&b.0));
        self.buffer = Buffer::of_items(items);
        self.is_ended = cut.is_none();
        self.after = cut;
    }
}
