//! The memory-resident directory: which block is where, free slots, the queue of the clock. No
//! device is used here.
//!
//! Invariants:
//! 1. `index` and `entries` have the same blocks. The slots of entries, `leaving`, replaced runs,
//!    free slots and slots given up are disjoint.
//! 2. `pending` has the entries that the durable directory does not list (`listed` is None).
//! 3. `fresh_files` counts the fresh entries by file.
//! 4. Each entry has one valid element in `queue`, except while a round holds it as a victim; an
//!    element is valid if slot and birth are those of an entry.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use strandline_base::{Error, Result};

use super::directory::{Change, Listed};
use super::free_slots::{FreeSlots, Run};
use super::settings::{Admission, BlockKey};

/// A cached block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub block: BlockKey,
    pub run: Run,
    /// fresher than what is durable on the capacity tier
    pub is_fresh: bool,
    /// what the durable directory says of it, or the round that is under way: whether it is fresh
    pub listed: Option<bool>,
    /// the older, clean version that this one replaces when it is listed
    pub replaces: Option<Run>,
    /// read or written since the clock's hand has passed
    pub is_touched: bool,
    /// distinguishes entries of the same slot
    pub born: u64,
    /// grows with every write of the slot
    pub version: u64,
    /// a thread writes the slot, or the block's place on the capacity tier
    pub is_writing: bool,
    /// an in-place write failed, or the slot was found damaged
    pub is_damaged: bool,
}

/// What the cache knows in memory.
#[derive(Debug)]
pub(super) struct State {
    index: BTreeMap<(u64, u64), u32>,
    /// by first slot
    pub entries: BTreeMap<u32, Entry>,
    pub(super) pending: BTreeSet<u32>,
    pub free: FreeSlots,
    /// slots of removed entries, until the removal is durable
    pub leaving: Vec<Run>,
    /// slots whose writes have failed; not used until the cache is opened again
    pub given_up: Vec<Run>,
    /// the clock's queue: first slot and birth
    pub(super) queue: VecDeque<(u32, u64)>,
    /// blocks written to the capacity tier since the last sync of their file: file → offsets
    pub unsynced: BTreeMap<u64, BTreeSet<u64>>,
    /// blocks whose place on the capacity tier is being written
    pub capacity_busy: BTreeSet<(u64, u64)>,
    /// the file of the capacity tier that is being synced
    pub syncing: Option<u64>,
    fresh_files: BTreeMap<u64, u64>,
    /// slots from here on are not used any more
    pub limit: u32,
    /// slots of the file
    pub allocated: u32,
    pub admission: Admission,
    /// the longest run that an admission has missed since the last step
    pub missed_run: u32,
    /// the error of a failed sync, after which no write is accepted
    pub failure: Option<Error>,
    next_id: u64,
}

impl State {
    /// An empty cache of `limit` slots in a file of `allocated`.
    pub fn new(limit: u32, allocated: u32, admission: Admission) -> Self {
        let mut free = FreeSlots::default();
        free.give(Run {
            start: 0,
            slots: limit,
        });
        Self {
            index: BTreeMap::new(),
            entries: BTreeMap::new(),
            pending: BTreeSet::new(),
            free,
            leaving: Vec::new(),
            given_up: Vec::new(),
            queue: VecDeque::new(),
            unsynced: BTreeMap::new(),
            capacity_busy: BTreeSet::new(),
            syncing: None,
            fresh_files: BTreeMap::new(),
            limit,
            allocated,
            admission,
            missed_run: 0,
            failure: None,
            next_id: 0,
        }
    }

    fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// An error since a sync has failed.
    pub fn check_usable(&self) -> Result<()> {
        self.failure.clone().map_or(Ok(()), Err)
    }

    /// The entry of a block.
    pub fn entry(&self, block: BlockKey) -> Option<&Entry> {
        self.entries.get(self.index.get(&block.place())?)
    }

    /// The entry of a block.
    pub fn entry_mut(&mut self, block: BlockKey) -> Option<&mut Entry> {
        self.entries.get_mut(self.index.get(&block.place())?)
    }

    /// The entry of `slot` that was born as `born`.
    pub fn living(&mut self, slot: u32, born: u64) -> Option<&mut Entry> {
        self.entries
            .get_mut(&slot)
            .filter(|entry| entry.born == born)
    }

    /// Whether the capacity tier's place of a block was written since its last sync.
    pub fn is_unsynced(&self, block: BlockKey) -> bool {
        let offsets = self.unsynced.get(&block.file);
        offsets.is_some_and(|offsets| offsets.contains(&block.offset))
    }

    /// Notes a write of a block's place on the capacity tier.
    pub fn note_unsynced(&mut self, block: BlockKey) {
        let offsets = self.unsynced.entry(block.file).or_default();
        offsets.insert(block.offset);
    }

    /// Puts a block into `run`, which was free. The caller writes it.
    pub fn insert(&mut self, block: BlockKey, run: Run, is_fresh: bool) -> u64 {
        let (born, version) = (self.new_id(), self.new_id());
        let entry = Entry {
            block,
            run,
            is_fresh,
            listed: None,
            replaces: None,
            is_touched: false,
            born,
            version,
            is_writing: true,
            is_damaged: false,
        };
        self.put(entry);
        self.enqueue(run.start, born);
        born
    }

    /// An entry that the durable directory has, at an opening.
    pub fn restore(&mut self, listed: Listed, slots: u32) {
        let start = listed.slot;
        let born = self.insert(listed.block, Run { start, slots }, listed.is_fresh);
        if let Some(entry) = self.living(start, born) {
            entry.is_writing = false;
            entry.listed = Some(listed.is_fresh);
        }
        self.pending.remove(&start);
    }

    /// Puts an entry, new or one that was taken out, into all lists but the queue.
    pub fn put(&mut self, entry: Entry) {
        let slot = entry.run.start;
        self.index.insert(entry.block.place(), slot);
        if entry.listed.is_none() {
            self.pending.insert(slot);
        }
        self.entries.insert(slot, entry);
        self.count_fresh(entry.block.file, entry.is_fresh, true);
    }

    /// Takes an entry out of all lists; its slots are the caller's.
    pub fn take_out(&mut self, slot: u32) -> Option<Entry> {
        let entry = self.entries.remove(&slot)?;
        self.pending.remove(&slot);
        if self.index.get(&entry.block.place()) == Some(&slot) {
            self.index.remove(&entry.block.place());
        }
        self.count_fresh(entry.block.file, entry.is_fresh, false);
        Some(entry)
    }

    /// Removes an entry. Its slots become free at once if the durable directory does not list it.
    pub fn remove(&mut self, slot: u32) {
        let Some(entry) = self.take_out(slot) else {
            return;
        };
        match entry.listed {
            None => self.release(entry.run),
            Some(_) => self.leaving.push(entry.run),
        }
        self.leaving.extend(entry.replaces);
    }

    /// Gives slots back; those beyond the limit are not used any more.
    pub fn release(&mut self, run: Run) {
        let slots = run.end().min(self.limit).saturating_sub(run.start);
        self.free.give(Run { slots, ..run });
    }

    fn count_fresh(&mut self, file: u64, is_fresh: bool, is_more: bool) {
        if !is_fresh {
            return;
        }
        let count = self.fresh_files.entry(file).or_default();
        match is_more {
            true => *count += 1,
            false => *count -= 1,
        }
        if *count == 0 {
            self.fresh_files.remove(&file);
        }
    }

    /// Sets whether the entry of `slot` is fresh.
    pub fn set_fresh(&mut self, slot: u32, is_fresh: bool) {
        let Some(entry) = self.entries.get_mut(&slot) else {
            return;
        };
        let (file, was_fresh) = (entry.block.file, entry.is_fresh);
        entry.is_fresh = is_fresh;
        if was_fresh != is_fresh {
            self.count_fresh(file, true, is_fresh);
        }
    }

    /// A thread begins to write the slot of an entry in place.
    pub fn begin_write(&mut self, slot: u32, is_fresh: bool) {
        let version = self.new_id();
        if let Some(entry) = self.entries.get_mut(&slot) {
            entry.version = version;
            entry.is_writing = true;
            entry.is_touched = true;
        }
        self.set_fresh(slot, is_fresh);
    }

    /// Files with fresh entries.
    pub fn fresh_files(&self) -> BTreeSet<u64> {
        self.fresh_files.keys().copied().collect()
    }

    /// The number of fresh entries.
    pub fn fresh_count(&self) -> u64 {
        self.fresh_files.values().sum()
    }

    /// The number of entries whose listing waits.
    pub fn pending_count(&self) -> usize {
        self.pending.len()
    }

    /// The first slots of a file's blocks from an offset on.
    fn slots_from(&self, (file, offset): (u64, u64)) -> Vec<u32> {
        let places = self.index.range((file, offset)..=(file, u64::MAX));
        places.map(|(_, &slot)| slot).collect()
    }

    /// Removes the entries of a file's blocks from an offset on.
    pub fn remove_from(&mut self, first: (u64, u64)) {
        for slot in self.slots_from(first) {
            self.remove(slot);
        }
    }

    /// The files with cached blocks.
    pub fn files(&self) -> BTreeSet<u64> {
        self.index.keys().map(|&(file, _)| file).collect()
    }

    /// Whether a thread writes a block of a file from an offset on.
    pub fn is_busy_from(&self, (file, offset): (u64, u64)) -> bool {
        let places = (file, offset)..=(file, u64::MAX);
        let mut busy = self.capacity_busy.range(places);
        let is_writing = |slot| {
            let entry = self.entries.get(slot);
            entry.is_some_and(|entry| entry.is_writing)
        };
        busy.next().is_some() || self.slots_from((file, offset)).iter().any(is_writing)
    }

    /// Lists all pending entries whose writes are done, and returns the changes of this round:
    /// these entries and the slots of removed ones. The second part has the runs that are free once
    /// the changes are durable.
    pub fn take_changes(&mut self) -> (Vec<Change>, Vec<Run>) {
        let mut changes = Vec::new();
        let mut freed = std::mem::take(&mut self.leaving);
        changes.extend(freed.iter().map(|run| Change::Take(run.start)));
        for slot in std::mem::take(&mut self.pending) {
            let Some(entry) = self.entries.get_mut(&slot) else {
                continue;
            };
            if entry.is_writing {
                self.pending.insert(slot);
                continue;
            }
            entry.listed = Some(entry.is_fresh);
            let replaces = entry.replaces.take();
            freed.extend(replaces);
            changes.push(Change::Put(
                Listed {
                    slot,
                    block: entry.block,
                    is_fresh: entry.is_fresh,
                },
                replaces.map(|run| run.start),
            ));
        }
        (changes, freed)
    }

    /// The entries of the durable directory, for a new one.
    pub fn listed(&self) -> Vec<Listed> {
        let entries = self.entries.iter();
        entries
            .filter_map(|(&slot, entry)| {
                let is_fresh = entry.listed?;
                let block = entry.block;
                Some(Listed {
                    slot,
                    block,
                    is_fresh,
                })
            })
            .collect()
    }

    /// Makes an entry the clock's last one. Elements of removed entries are dropped if most are.
    pub(super) fn enqueue(&mut self, slot: u32, born: u64) {
        self.queue.push_back((slot, born));
        if self.queue.len() > 2 * self.entries.len() + 64 {
            let entries = &self.entries;
            let is_living = |&(slot, born): &(u32, u64)| {
                entries.get(&slot).is_some_and(|entry| entry.born == born)
            };
            self.queue.retain(is_living);
        }
    }

    /// Slots that are free, or will be after the next round.
    pub fn coming_free(&self) -> u32 {
        let leaving: u32 = self.leaving.iter().map(|run| run.slots).sum();
        let replaced = self.pending.iter().filter_map(|slot| {
            let entry = self.entries.get(slot)?;
            entry.replaces.map(|run| run.slots)
        });
        self.free.count() + leaving + replaced.sum::<u32>()
    }

    /// Sets the limit, and which slots are free by it.
    pub fn set_limit(&mut self, limit: u32) {
        self.limit = limit;
        let entries = self.entries.values();
        let used = entries.flat_map(|entry| [Some(entry.run), entry.replaces]);
        let used = used.flatten().chain(self.leaving.iter().copied());
        let mut used: Vec<Run> = used.chain(self.given_up.iter().copied()).collect();
        used.sort_unstable_by_key(|run| run.start);
        self.free = FreeSlots::default();
        let mut start = 0;
        for run in used {
            self.release(Run {
                start,
                slots: run.start.saturating_sub(start),
            });
            start = run.end();
        }
        self.release(Run {
            start,
            slots: limit.saturating_sub(start),
        });
    }

    /// Whether slots beyond the limit are in use.
    pub fn is_shrinking(&self) -> bool {
        let entries = self.entries.values();
        let used = entries.flat_map(|entry| [Some(entry.run), entry.replaces]);
        let mut used = used.flatten().chain(self.leaving.iter().copied());
        self.limit < self.allocated && used.any(|run| run.end() > self.limit)
    }
}
