//! The ordered access method on the fast tier: an FD+tree of (key bytes, row) entries.
//!
//! * Entries may exceed memory. Modifications go into the tree's head and cost no write of a block;
//!   compactions, which [`FdIndex::compact_step`] drives, write batches in sequence.
//! * Modifications are durable by the transactions' log records: the engine replays them over the
//!   last image, which [`FdIndex::checkpoint`] writes. An entry is a hint that the row's versions
//!   prove, so a replay may set an entry that is there, and an entry too many does no harm.
//! * A retired entry waits in memory for the oldest snapshot (`retired`). Retirements are not
//!   durable: after a crash the sweep ([`AccessMethod::retain`]) finds the entries.
//!
//! Lock order: a key's latch, retired entries; then the tree's locks (`fd_tree`).

mod retired;

use crate::access_method::{
    AccessMethod, BulkLoad, Capabilities, Cursor, Direction, KeyBytes, KeyRange, Lookup,
    OldestSnapshot,
};
use crate::entry::{EntryRange, entry_of, parts_of};
use crate::fd_tree::{Entries, FdTree, FilterMemory, HeadMemory, Settings};
use crate::ordered_key::{OrderedKeys, PartOrder};
use crate::sequences::{KeySequences, integer_key};
use crate::sorted_load::{LoadTarget, SortedLoad};
use retired::Retired;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize as Counter; // counts bytes; no part of the protocol
use std::sync::atomic::Ordering::Relaxed;
use strandline_base::{CommitTs, Error, ErrorKind, Result, RowId, SqlState, Value};
use strandline_storage::level_blocks::LevelBlocks;
use strandline_storage::pool::Pool;

/// Bytes of retired entries that wait in memory; later ones are left to the sweep.
const RETIRED_BYTES_MAX: usize = 1 << 20;
/// Expired entries that one modification removes.
const EXPIRED_MAX: usize = 4;

/// What an index on an FD+tree needs beside its blocks.
#[derive(Clone)]
pub struct FdIndexSettings {
    /// the parts of the keys
    pub parts: Vec<PartOrder>,
    /// the tree's settings
    pub tree: Settings,
    /// keeps the blocks that lookups read, within its budget
    pub pool: Arc<Pool>,
    /// gives the oldest snapshot's timestamp, by which retired entries go
    pub oldest_snapshot: OldestSnapshot,
    /// counts the bytes of memory that loads take
    pub memory: Arc<Counter>,
    /// memory that the head shares with those of other indexes; None: the tree's settings tell
    pub heads: Option<Arc<HeadMemory>>,
    /// memory that its filters share with those of other indexes; None: as much as they need
    pub filters: Option<Arc<FilterMemory>>,
}

impl FdIndexSettings {
    /// Settings for keys with these parts; nothing is cached.
    pub fn new(parts: Vec<PartOrder>, oldest_snapshot: OldestSnapshot) -> Self {
        Self {
            parts,
            pool: Pool::new(0),
            tree: Settings::default(),
            oldest_snapshot,
            memory: Arc::default(),
            heads: None,
            filters: None,
        }
    }
}

/// The ordered index on an FD+tree; see the module's documentation.
pub struct FdIndex {
    keys: OrderedKeys,
    tree: FdTree,
    sequences: KeySequences,
    retired: Retired,
    oldest_snapshot: OldestSnapshot,
    memory: Arc<Counter>,
}

impl FdIndex {
    /// Opens the index of the newest image of `blocks`; it is empty without one.
    ///
    /// # Errors
    /// XX001 if the image or a block of an interrupted compaction is damaged.
    pub fn open(blocks: Arc<dyn LevelBlocks>, settings: FdIndexSettings) -> Result<Self> {
        let mut tree = FdTree::open(settings.tree, blocks, settings.pool)?;
        if let Some(heads) = settings.heads {
            tree = tree.with_head_memory(heads);
        }
        if let Some(filters) = settings.filters {
            tree = tree.with_filter_memory(filters);
        }
        Ok(Self {
            keys: OrderedKeys::new(settings.parts),
            tree,
            sequences: KeySequences::default(),
            retired: Retired::new(RETIRED_BYTES_MAX),
            oldest_snapshot: settings.oldest_snapshot,
            memory: settings.memory,
        })
    }

    /// The encoder of the index's keys.
    pub fn keys(&self) -> &OrderedKeys {
        &self.keys
    }

    /// The tree, for figures about its shape.
    pub fn tree(&self) -> &FdTree {
        &self.tree
    }

    /// Does one step of a compaction, if one is under way or due. Returns whether there is more to
    /// do.
    ///
    /// # Errors
    /// The device's; see [`FdTree::compact_step`].
    pub fn compact_step(&self) -> Result<bool> {
        self.remove_expired(EXPIRED_MAX)?;
        self.tree.compact_step()
    }

    /// Why compactions and checkpoints fail until the index is opened again.
    ///
    /// # Errors
    /// That failure.
    pub fn check_usable(&self) -> Result<()> {
        self.tree.check_usable()
    }

    /// Whether an image that was written since the opening has every entry.
    pub fn is_saved(&self) -> bool {
        self.tree.is_saved()
    }

    /// Makes all entries durable.
    ///
    /// # Errors
    /// The device's.
    pub fn checkpoint(&self) -> Result<()> {
        self.tree.checkpoint()
    }

    /// The entry of a row.
    ///
    /// # Errors
    /// 54000 if a block cannot hold it.
    fn entry(&self, key: &KeyBytes, row: RowId) -> Result<Vec<u8>> {
        let entry = entry_of(key.as_slice(), row);
        self.check_entry(&entry)?;
        Ok(entry)
    }

    fn check_entry(&self, entry: &[u8]) -> Result<()> {
        let limit = self.tree.entry_bytes_max();
        if entry.len() <= limit {
            return Ok(());
        }
        let bytes = entry.len();
        let message =
            format!("an entry of {bytes} bytes exceeds the {limit} of the index's blocks");
        let state = SqlState::PROGRAM_LIMIT_EXCEEDED;
        let error = Error::new(ErrorKind::Invalid, state, message);
        Err(error.with_hint("Index fewer or shorter columns."))
    }

    /// Removes up to `at_most` retired entries that no snapshot needs.
    fn remove_expired(&self, at_most: usize) -> Result<()> {
        if self.retired.is_empty() {
            return Ok(());
        }
        let oldest = (self.oldest_snapshot)();
        for entry in self.retired.expired(oldest, at_most) {
            self.tree
                .remove_if(&entry, || self.retired.take(&entry, oldest))?;
        }
        Ok(())
    }

    /// Removes the entries that `keep` does not want, and retired ones that no snapshot needs.
    fn sweep(&self, keep: &mut dyn FnMut(&KeyBytes, RowId) -> bool) -> Result<()> {
        let mut entries = self
            .tree
            .entries(&EntryRange::default(), Direction::Forward);
        while let Some(entry) = entries.next()? {
            let Some((key, row)) = parts_of(&entry) else {
                continue;
            };
            let (key, oldest) = (KeyBytes::encoded(key), (self.oldest_snapshot)());
            self.tree.remove_if(&entry, || {
                let is_wanted = !self.retired.take(&entry, oldest) && keep(&key, row);
                if !is_wanted {
                    self.retired.forget(&entry);
                }
                !is_wanted
            })?;
        }
        Ok(())
    }
}

impl AccessMethod for FdIndex {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            ordered: true,
            durable: true,
        }
    }

    fn encode(&self, key: &[Value]) -> KeyBytes {
        self.keys.encode(key)
    }

    fn insert(&self, key: &KeyBytes, row: RowId, others: &mut Vec<RowId>) -> Result<bool> {
        self.remove_expired(EXPIRED_MAX)?;
        let entry = self.entry(key, row)?;
        let mut found = Vec::new();
        let is_new = self.tree.add_seeing(
            &entry,
            || self.retired.forget(&entry),
            |other| found.extend(parts_of(other).map(|(_, row)| row)),
        )?;
        others.append(&mut found);
        Ok(is_new)
    }

    fn add(&self, key: &KeyBytes, row: RowId) -> Result<bool> {
        self.remove_expired(EXPIRED_MAX)?;
        let entry = self.entry(key, row)?;
        self.tree.add_after(&entry, || self.retired.forget(&entry))
    }

    fn find(&self, key: &[Value]) -> Result<Lookup> {
        let by_sequence = integer_key(key).and_then(|number| self.sequences.find(number));
        if let Some(row) = by_sequence {
            return Ok(Lookup::One(row));
        }
        let mut found = Lookup::None;
        self.tree
            .scan_key(self.keys.encode(key).as_slice(), |entry| {
                found = match (found, parts_of(entry)) {
                    (Lookup::None, Some((_, row))) => Lookup::One(row),
                    _ => Lookup::Several,
                };
                found != Lookup::Several
            })?;
        Ok(found)
    }

    fn lookup(&self, key: &KeyBytes, rows: &mut Vec<RowId>) -> Result<()> {
        self.tree.scan_key(key.as_slice(), |entry| {
            rows.extend(parts_of(entry).map(|(_, row)| row));
            true
        })
    }

    fn cursor(&self, range: &KeyRange, direction: Direction) -> Result<Box<dyn Cursor + '_>> {
        let entries = self.tree.entries(&EntryRange::of(range), direction);
        Ok(Box::new(FdCursor(entries)))
    }

    fn cursor_after(
        &self,
        range: &KeyRange,
        direction: Direction,
        (key, row): &(KeyBytes, RowId),
    ) -> Result<Box<dyn Cursor + '_>> {
        let mut range = EntryRange::of(range);
        range.cut_through(direction, &entry_of(key.as_slice(), *row));
        let entries = self.tree.entries(&range, direction);
        Ok(Box::new(FdCursor(entries.going_on())))
    }

    /// None, too, if a block cannot be read.
    fn estimate(&self, range: &KeyRange) -> Option<usize> {
        self.tree.estimate(&EntryRange::of(range)).ok()
    }

    fn retire(&self, key: &KeyBytes, row: RowId, since: CommitTs) -> Result<()> {
        let entry = self.entry(key, row)?;
        let oldest = (self.oldest_snapshot)();
        self.tree.remove_if(&entry, || {
            let is_expired = since <= oldest;
            match is_expired {
                true => self.retired.forget(&entry),
                false => self.retired.put(&entry, since),
            }
            is_expired
        })?;
        self.remove_expired(EXPIRED_MAX)
    }

    fn retain(&self, keep: &mut dyn FnMut(&KeyBytes, RowId) -> bool) -> Result<()> {
        let number = |key: &KeyBytes| self.keys.integer(key);
        self.sequences.learn(number, keep, |keep| self.sweep(keep))
    }

    fn bulk_load(&self) -> Box<dyn BulkLoad + '_> {
        Box::new(SortedLoad::new(self, false))
    }

    fn bulk_load_unique(&self) -> Box<dyn BulkLoad + '_> {
        Box::new(SortedLoad::new(self, true))
    }

    fn check(&self, damage: &mut Vec<String>) -> Result<()> {
        match self.tree.check(damage) {
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                damage.push(error.to_string());
                Ok(())
            }
            checked => checked,
        }
    }

    fn sequences(&self) -> Option<&KeySequences> {
        Some(&self.sequences)
    }

    fn len(&self) -> usize {
        self.tree.len()
    }

    /// The heads, the lists of blocks, a load's entries and retired entries; not the cached blocks,
    /// which belong to the pool.
    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.tree.memory_bytes() + self.retired.memory_bytes()
    }
}

impl LoadTarget for FdIndex {
    fn put_entry(&self, key: &[Value], row: RowId, bytes: &mut Vec<u8>) -> Result<()> {
        let start = bytes.len();
        self.keys.encode_onto(key, bytes);
        bytes.extend(row.0.to_be_bytes());
        self.check_entry(bytes.get(start..).unwrap_or_default())
    }

    fn enter(&self, entries: &[&[u8]], met: Option<&mut Vec<Vec<u8>>>) -> Result<()> {
        for entry in self.retired.among(entries) {
            self.tree.with_latch(entry, || self.retired.forget(entry));
        }
        // Who has taken one of them out to remove it has removed it before the load looks.
        self.tree.pass_latches();
        self.tree.load(entries, met)
    }

    fn parts<'e>(&self, entry: &'e [u8]) -> Option<(&'e [u8], RowId)> {
        parts_of(entry)
    }

    fn account(&self, before: usize, after: usize) {
        self.memory.fetch_add(after.wrapping_sub(before), Relaxed);
    }
}

/// A cursor over the tree's entries.
struct FdCursor<'a>(Entries<'a>);

impl Cursor for FdCursor<'_> {
    fn next(&mut self) -> Result<Option<(KeyBytes, RowId)>> {
        let entry = self.0.next()?;
        let parts = entry.as_deref().and_then(parts_of);
        Ok(parts.map(|(key, row)| (KeyBytes::encoded(key), row)))
    }

    fn next_rows(&mut self, at_most: usize, rows: &mut Vec<RowId>) -> Result<bool> {
        for _ in 0..at_most {
            let Some(entry) = self.0.next()? else {
                return Ok(false);
            };
            rows.extend(parts_of(&entry).map(|(_, row)| row));
        }
        Ok(true)
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests;
