//! What the cache knows in memory: the index, the segments that are not written yet, the order in
//! which segments are overwritten. No device is used here.
//!
//! Invariants:
//! 1. An entry `Stored { slot, .. }` belongs to the segment that `slots[slot]` describes. All
//!    entries of a slot are removed, and its number changes, before the slot is overwritten.
//! 2. `ring` has every slot once, except the one that is being written.
//! 3. The numbers of segments written grow, and no two slots have the same one.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::ghost::Ghost;
use super::layout::{Head, Place, segment_len};
use super::settings::{ENTRY_BYTES, GHOST_BYTES, Settings};
use crate::block_key::BlockKey;

/// A cached block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub len: u32,
    pub crc: u32,
    pub home: Home,
    /// read since its segment was filled
    pub is_touched: bool,
}

/// Where the bytes of a block are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Home {
    /// in the segment that is being filled, by its place in the order
    Open(u32),
    /// in the segment that waits to be written
    Sealed(u32),
    Stored {
        slot: u32,
        at: u32,
    },
}

/// Blocks that are not written yet.
#[derive(Debug, Default)]
pub(super) struct Segment {
    pub blocks: Vec<(BlockKey, u32, Arc<[u8]>)>,
    bytes: usize,
}

/// A segment of the file.
#[derive(Debug, Default)]
pub(super) struct Slot {
    /// the segment's number; 0: no segment
    pub number: u64,
    /// file and offset of its blocks
    pub blocks: Vec<(u64, u64)>,
}

/// A segment of the file, for the inspector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentSummary {
    /// its place in the file, from 0
    pub slot: u32,
    /// grows with every segment written
    pub number: u64,
    /// cached blocks
    pub blocks: usize,
    /// their bytes
    pub bytes: u64,
}

/// The bytes of a block, or where to read them.
#[derive(Debug)]
pub(super) enum Lookup {
    Memory(Arc<[u8]>),
    Stored {
        slot: u32,
        number: u64,
        place: Place,
    },
}

/// The result of asking for room in the segment that is being filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    Found,
    /// found in a new segment: the one before waits to be written
    Sealed,
    Full,
}

/// What the cache knows in memory.
#[derive(Debug)]
pub(super) struct State {
    pub settings: Settings,
    index: BTreeMap<(u64, u64), Entry>,
    bytes: u64,
    open: Segment,
    pub sealed: Option<Arc<Segment>>,
    pub slots: Vec<Slot>,
    /// the slots in the order in which they are overwritten
    pub ring: VecDeque<u32>,
    pub ghost: Ghost,
    /// only blocks of files with smaller numbers are admitted
    pub files_end: u64,
    /// admissions to refuse before the next one is tried
    pub paused: u64,
    /// segments in a row that could not be written
    pub failures: u32,
    pub is_closed: bool,
    pub last_number: u64,
}

impl State {
    /// An empty cache without slots.
    pub fn new(settings: Settings, files_end: u64) -> Self {
        Self {
            settings,
            index: BTreeMap::new(),
            bytes: 0,
            open: Segment::default(),
            sealed: None,
            slots: Vec::new(),
            ring: VecDeque::new(),
            ghost: Ghost::new(settings.blocks_max()),
            files_end,
            paused: 0,
            failures: 0,
            is_closed: false,
            last_number: 0,
        }
    }

    /// The number of slots that the settings ask for.
    pub fn slots_wanted(&self) -> u32 {
        self.settings.slots()
    }

    /// New segments at the end of the file, up to `wanted` in all. They are taken first.
    pub fn add_slots(&mut self, wanted: u32) {
        let found = self.slots.len() as u32;
        if found < wanted {
            self.slots.resize_with(wanted as usize, Slot::default);
        }
        (found..wanted)
            .rev()
            .for_each(|slot| self.ring.push_front(slot));
    }

    /// Changes the settings; segments beyond a reduced size are gone. No segment is being written.
    /// The number of blocks removed from the file.
    pub fn resize(&mut self, settings: Settings) -> u64 {
        self.settings = settings;
        self.ghost.set_capacity(settings.blocks_max());
        let wanted = settings.slots();
        let beyond = wanted..self.slots.len() as u32;
        let mut removed: u64 = beyond.map(|slot| self.clear_slot(slot)).sum();
        self.ring.retain(|&slot| slot < wanted);
        self.slots.truncate(wanted as usize);
        if wanted == 0 {
            removed += self.index.len() as u64;
            self.index.clear();
            (self.bytes, self.open, self.sealed) = (0, Segment::default(), None);
        }
        removed
    }

    /// The number of entries and their bytes.
    pub fn content(&self) -> (usize, u64) {
        (self.index.len(), self.bytes)
    }

    /// The segments in the file, in the order of their writing.
    pub fn segments(&self) -> Vec<SegmentSummary> {
        let summary = |(slot, of): (u32, &Slot)| {
            let is_here = |home| matches!(home, Home::Stored { slot: of, .. } if of == slot);
            let entries = of.blocks.iter().filter_map(|place| self.index.get(place));
            let lens = entries
                .filter(|entry| is_here(entry.home))
                .map(|entry| entry.len);
            let (blocks, bytes) = lens.fold((0, 0), |(blocks, bytes), len| {
                (blocks + 1, bytes + u64::from(len))
            });
            SegmentSummary {
                slot,
                number: of.number,
                blocks,
                bytes,
            }
        };
        let written = (0..).zip(&self.slots).filter(|(_, of)| of.number > 0);
        let mut segments: Vec<_> = written.map(summary).collect();
        segments.sort_unstable_by_key(|segment| segment.number);
        segments
    }

    /// Bytes of memory, without those of a write under way.
    pub fn memory_bytes(&self) -> usize {
        let sealed = self.sealed.as_ref().map_or(0, |sealed| sealed.bytes);
        let lists = self.index.len() * ENTRY_BYTES + self.ghost.len() * GHOST_BYTES;
        lists + self.open.bytes + sealed
    }

    /// The entry of a block.
    pub fn entry(&mut self, block: BlockKey) -> Option<&mut Entry> {
        let entry = self.index.get_mut(&block.place())?;
        (entry.len == block.len).then_some(entry)
    }

    /// The block's bytes or their place; notes the use.
    pub fn look_up(&mut self, block: BlockKey) -> Option<Lookup> {
        let entry = self.entry(block)?;
        entry.is_touched = true;
        let (crc, home) = (entry.crc, entry.home);
        let in_memory = |segment: &Segment, at: u32| segment.blocks[at as usize].2.clone();
        Some(match home {
            Home::Open(at) => Lookup::Memory(in_memory(&self.open, at)),
            Home::Sealed(at) => Lookup::Memory(in_memory(self.sealed.as_ref()?, at)),
            Home::Stored { slot, at } => Lookup::Stored {
                slot,
                number: self.slots[slot as usize].number,
                place: Place { block, at, crc },
            },
        })
    }

    /// Makes room for an admitted block of `len` bytes. While a segment waits to be written, part
    /// of the next one is kept free for reinsertions.
    pub fn make_room(&mut self, len: u32) -> Room {
        let (bytes, blocks) = match self.sealed {
            Some(_) => self.settings.admitted_beside_write(),
            None => self.whole_segment(),
        };
        if self.open.has_room(len, bytes, blocks) {
            return Room::Found;
        }
        if self.sealed.is_some() {
            return Room::Full;
        }
        self.seal();
        Room::Sealed
    }

    fn whole_segment(&self) -> (usize, usize) {
        let bytes = self.settings.segment_bytes as usize;
        (bytes, self.settings.segment_blocks_max())
    }

    /// The segment that is being filled, if it has a block, waits to be written from now on.
    pub fn seal(&mut self) {
        if self.sealed.is_some() || self.open.blocks.is_empty() {
            return;
        }
        let sealed = std::mem::take(&mut self.open);
        for (at, (block, ..)) in sealed.blocks.iter().enumerate() {
            let at = at as u32;
            if let Some(entry) = self.index.get_mut(&block.place())
                && entry.home == Home::Open(at)
            {
                entry.home = Home::Sealed(at);
            }
        }
        self.sealed = Some(Arc::new(sealed));
    }

    /// Puts a block into the segment that is being filled, which has room.
    pub fn admit(&mut self, block: BlockKey, crc: u32, bytes: Arc<[u8]>) {
        let entry = Entry {
            len: block.len,
            crc,
            home: self.open.push(block, crc, bytes),
            is_touched: false,
        };
        self.put(block.place(), entry);
    }

    /// Keeps a block of the segment in `slot`, which is about to be overwritten, if it is still
    /// there and there is room. Whether it was kept.
    pub fn reinsert(&mut self, slot: u32, place: Place, bytes: Arc<[u8]>) -> bool {
        let (block, at) = (place.block, place.at);
        let is_there = self
            .entry(block)
            .is_some_and(|entry| entry.home == Home::Stored { slot, at });
        let (bytes_max, blocks_max) = self.whole_segment();
        if !is_there || !self.open.has_room(block.len, bytes_max, blocks_max) {
            return false;
        }
        self.admit(block, place.crc, bytes);
        true
    }

    /// The blocks of `slot` that were read since their admission, at most those that a segment
    /// keeps free for reinsertions.
    pub fn touched_of(&mut self, slot: u32) -> Vec<Place> {
        let (whole_bytes, whole_blocks) = self.whole_segment();
        let (admitted_bytes, admitted_blocks) = self.settings.admitted_beside_write();
        let (bytes_max, blocks_max) =
            (whole_bytes - admitted_bytes, whole_blocks - admitted_blocks);
        let (mut touched, mut bytes) = (Vec::new(), 0);
        for &(file, offset) in &self.slots[slot as usize].blocks {
            let Some(entry) = self.index.get(&(file, offset)) else {
                continue;
            };
            let Entry { len, crc, home, .. } = *entry;
            let Home::Stored { slot: of, at } = home else {
                continue;
            };
            let fits = segment_len(touched.len() + 1, bytes + len as usize) <= bytes_max;
            if of == slot && entry.is_touched && fits && touched.len() < blocks_max {
                let block = BlockKey { file, offset, len };
                touched.push(Place { block, at, crc });
                bytes += len as usize;
            }
        }
        touched
    }

    /// Removes all entries of `slot`, and gives it the number of a new segment. The number of
    /// removed entries.
    pub fn clear_slot(&mut self, slot: u32) -> u64 {
        self.last_number += 1;
        let new = Slot {
            number: self.last_number,
            blocks: Vec::new(),
        };
        let old = std::mem::replace(&mut self.slots[slot as usize], new);
        let is_here = |home| matches!(home, Home::Stored { slot: of, .. } if of == slot);
        let mut removed = 0;
        for place in old.blocks {
            removed += u64::from(self.remove_if(place, is_here));
        }
        removed
    }

    /// The places and bytes of the waiting segment, without blocks that were forgotten.
    pub fn waiting(&self) -> Vec<(Place, Arc<[u8]>)> {
        let sealed = self.sealed.iter().flat_map(|sealed| &sealed.blocks);
        let mut waiting = Vec::new();
        for (at, (block, crc, bytes)) in (0..).zip(sealed) {
            let entry = self.index.get(&block.place());
            if entry.is_some_and(|entry| entry.home == Home::Sealed(at)) {
                let (block, crc) = (*block, *crc);
                waiting.push((Place { block, at: 0, crc }, bytes.clone()));
            }
        }
        waiting
    }

    /// The waiting segment was written to `slot` at `places`. Its other blocks are removed.
    pub fn end_write(&mut self, slot: u32, places: &[Place]) {
        let Some(sealed) = self.sealed.take() else {
            return;
        };
        for &Place { block, at, .. } in places {
            if let Some(entry) = self.index.get_mut(&block.place())
                && matches!(entry.home, Home::Sealed(_))
            {
                entry.home = Home::Stored { slot, at };
                self.slots[slot as usize].blocks.push(block.place());
            }
        }
        let is_waiting = |home| matches!(home, Home::Sealed(_));
        for (block, ..) in &sealed.blocks {
            self.remove_if(block.place(), is_waiting);
        }
    }

    /// The entries of a segment that an opening has found; entries that exist are newer.
    pub fn restore(&mut self, slot: u32, head: &Head, is_live: &dyn Fn(u64) -> bool) {
        self.last_number = self.last_number.max(head.number);
        self.slots[slot as usize].number = head.number;
        for &Place { block, at, crc } in &head.places {
            let is_wanted = block.len <= self.settings.block_bytes_max()
                && is_live(block.file)
                && !self.index.contains_key(&block.place())
                && self.index.len() < self.settings.blocks_max();
            if !is_wanted {
                continue;
            }
            let entry = Entry {
                len: block.len,
                crc,
                home: Home::Stored { slot, at },
                is_touched: false,
            };
            self.put(block.place(), entry);
            self.slots[slot as usize].blocks.push(block.place());
        }
    }

    /// Removes a block if it is still where it was found.
    pub fn remove_found(&mut self, slot: u32, number: u64, place: Place) -> bool {
        let at = place.at;
        let found = self.slots.get(slot as usize);
        let is_same = found.is_some_and(|found| found.number == number);
        let is_here = |home| home == Home::Stored { slot, at };
        is_same && self.remove_if(place.block.place(), is_here)
    }

    /// Removes the blocks of a file; their number.
    pub fn forget_file(&mut self, file: u64) -> u64 {
        let places = self.index.range((file, 0)..=(file, u64::MAX));
        let places: Vec<_> = places.map(|(&place, _)| place).collect();
        let count = places.len() as u64;
        for place in places {
            self.remove_if(place, |_| true);
        }
        count
    }

    fn put(&mut self, place: (u64, u64), entry: Entry) {
        self.bytes += u64::from(entry.len);
        if let Some(old) = self.index.insert(place, entry) {
            self.bytes -= u64::from(old.len);
        }
    }

    fn remove_if(&mut self, place: (u64, u64), is_it: impl FnOnce(Home) -> bool) -> bool {
        let entry = self.index.get(&place).filter(|entry| is_it(entry.home));
        let Some(len) = entry.map(|entry| entry.len) else {
            return false;
        };
        self.index.remove(&place);
        self.bytes -= u64::from(len);
        true
    }
}

impl Segment {
    /// Whether a block of `len` bytes fits into `bytes` and `blocks`.
    fn has_room(&self, len: u32, bytes: usize, blocks: usize) -> bool {
        let count = self.blocks.len() + 1;
        count <= blocks.max(1) && segment_len(count, self.bytes + len as usize) <= bytes
    }

    fn push(&mut self, block: BlockKey, crc: u32, bytes: Arc<[u8]>) -> Home {
        let at = self.blocks.len() as u32;
        self.bytes += bytes.len();
        self.blocks.push((block, crc, bytes));
        Home::Open(at)
    }
}
