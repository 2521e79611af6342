//! LIDBlocks: small blocks on the fast tier that take an index's changes before the tree on the
//! capacity tier does \[Indirection §3\].
//!
//! An insertion or a retirement writes one slot of a block. A full block's entries are moved to the
//! tree together, so that the capacity tier is read and written once for a block of entries. A
//! *dense* block has the entries of one value, a *sparse* one those of one leaf, which a partial
//! traversal finds without reading it.
//!
//! Invariants:
//! 1. What a block says of an entry takes precedence over the tree: the index has it, or not any
//!    more (`layout::State`). A block says nothing of an entry without a slot: the tree decides.
//! 2. Blocks cover disjoint ranges of entries (`directory`). So an entry has one block at most,
//!    wherever its leaf has gone since the block was made.
//! 3. A move writes entries to the tree before it frees their slots, and frees only slots that have
//!    not been written since it read them. So an entry is in a block, or in the tree, or in both.
//! 4. Who reads looks into the blocks first, then into the tree. By (3) no entry is missed: if it
//!    had left its block before the look there, it was in the tree before.
//! 5. The changes of one entry exclude each other by one of [`STRIPES`] locks. So a slot is written
//!    by one thread at a time, and its records in the log have the order of its states.
//! 6. [`AccessMethod::insert`] writes the entry and looks afterwards, and holds the key's lock. A
//!    bulk load enters its entries and looks afterwards. So of two adders one sees the other.
//! 7. A bulk load makes the retired ones of its entries live in their blocks before it enters them
//!    into the tree, so that no move takes them out again.
//!
//! Lock order: a key's lock, an entry's lock, a block's `moving`, the lock of the areas, the
//! directory's; below each of them the latches of the tree or of one page of blocks.
//!
//! docs/rfcs/5-lid-blocks.md has the protocol with its crash cases, docs/format.md the bytes.
//!
//! Differences from the paper: blocks are found by what they cover, in a map in memory that opening
//! reads from their pages, not in a hash table by value or leaf address. A hash by leaf address
//! loses entries when the leaf is split, and gives a cursor no order. Retirements wait in blocks,
//! too, so that a deletion reads no leaf. Blocks of an index without changes take no space.
//!
//! Rooms from below: `layout`, `directory`, `blocks`, then `write`, `moves`, `read` and `cursor`,
//! which add methods to the index.

mod blocks;
mod cursor;
mod directory;
mod layout;
mod moves;
mod read;
mod write;

use std::sync::Arc;

use strandline_base::sync::Mutex;
use strandline_base::{CommitTs, Error, Result, RowId, SqlState, Value};
use strandline_storage::pages::{PageFileId, PageStore};

use crate::access_method::{
    AccessMethod, BulkLoad, Capabilities, Cursor, Direction, KeyBytes, KeyRange, Lookup,
};
use crate::key_hash::hash_bytes;
use crate::search_tree::{PagedIndex, PagedIndexSettings};
use crate::sorted_load::{LoadTarget, SortedLoad};
use blocks::Blocks;
use cursor::MergeCursor;

/// Locks that keys share, and that entries share.
const STRIPES: usize = 64;

/// What a block's entries have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    /// a value: for values with more rows than a leaf has entries
    Dense,
    /// a leaf
    Sparse,
}

/// The form of an index's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LidForm {
    /// what a block's entries have in common
    pub kind: BlockKind,
    /// the entries of a block, at least 1
    pub entries: usize,
    /// the longest key that goes into blocks, in bytes; longer ones go into the tree at once
    pub key_bytes: usize,
}

/// An ordered index on a page file with LIDBlocks before it; see the module's documentation.
pub struct LidIndex {
    tree: PagedIndex,
    blocks: Blocks,
    key_locks: Box<[Mutex<()>]>,
    entry_locks: Box<[Mutex<()>]>,
}

impl LidIndex {
    /// Creates both files and an empty index: the tree's on the capacity tier, the blocks' on the
    /// fast tier.
    ///
    /// # Errors
    /// 22023 for blocks that do not fit into a page, or for keys that the tree does not take; those
    /// of the page store.
    pub fn create(
        store: Arc<PageStore>,
        (tree, blocks): (PageFileId, PageFileId),
        settings: PagedIndexSettings,
        form: LidForm,
    ) -> Result<Self> {
        let memory = settings.memory.clone();
        let tree = PagedIndex::create(Arc::clone(&store), tree, settings)?;
        let limit = tree.key_bytes_max();
        if form.key_bytes > limit {
            let message = format!(
                "blocks for keys of up to {} bytes before a tree for keys of up to {limit}",
                form.key_bytes
            );
            return Err(Error::invalid(SqlState::INVALID_PARAMETER_VALUE, message));
        }
        let blocks = Blocks::create(store, blocks, form, memory)?;
        Ok(Self::over(tree, blocks))
    }

    /// Opens the index in two files that the page store has opened, as the replay of the log has
    /// left them. Reads all pages of blocks.
    ///
    /// # Errors
    /// Those of [`PagedIndex::open`]; XX001 if a page of blocks is damaged.
    pub fn open(
        store: Arc<PageStore>,
        (tree, blocks): (PageFileId, PageFileId),
        settings: PagedIndexSettings,
    ) -> Result<Self> {
        let memory = settings.memory.clone();
        let tree = PagedIndex::open(Arc::clone(&store), tree, settings)?;
        Ok(Self::over(tree, Blocks::open(store, blocks, memory)?))
    }

    /// The index with memory of so many bytes for its blocks' fences and places. Without room for
    /// another block, an entry that no block covers goes into the tree at once.
    #[must_use]
    pub fn with_block_memory(mut self, bytes_max: usize) -> Self {
        self.blocks.directory.bound(bytes_max);
        self
    }

    fn over(tree: PagedIndex, blocks: Blocks) -> Self {
        let locks = || (0..STRIPES).map(|_| Mutex::new(())).collect();
        Self {
            tree,
            blocks,
            key_locks: locks(),
            entry_locks: locks(),
        }
    }

    /// The tree behind the blocks.
    pub fn tree(&self) -> &PagedIndex {
        &self.tree
    }

    /// The form of the blocks.
    pub fn form(&self) -> LidForm {
        self.blocks.form
    }

    /// The number of blocks with entries.
    pub fn blocks(&self) -> usize {
        self.blocks.directory.len()
    }

    /// Changes of blocks since the opening: without new ones no move becomes due.
    pub fn changes(&self) -> u64 {
        self.blocks.changes()
    }

    /// The slots that blocks use: additions and retirements that the tree does not have yet. Reads
    /// all blocks.
    ///
    /// # Errors
    /// Those of the page store; XX001 if a page of blocks is damaged.
    pub fn waiting(&self) -> Result<usize> {
        let everything = (&[][..], None);
        let within = self
            .blocks
            .directory
            .within(everything, Direction::Forward, usize::MAX);
        within
            .iter()
            .try_fold(0, |slots, block| Ok(slots + self.blocks.read(block)?.len()))
    }

    fn key_lock(&self, key: &[u8]) -> &Mutex<()> {
        lock_of(&self.key_locks, key)
    }

    fn entry_lock(&self, entry: &[u8]) -> &Mutex<()> {
        lock_of(&self.entry_locks, entry)
    }
}

fn lock_of<'a>(locks: &'a [Mutex<()>], bytes: &[u8]) -> &'a Mutex<()> {
    let at = hash_bytes(bytes) as usize % locks.len();
    locks.get(at).expect("there are as many locks")
}

impl AccessMethod for LidIndex {
    fn capabilities(&self) -> Capabilities {
        self.tree.capabilities()
    }

    fn encode(&self, key: &[Value]) -> KeyBytes {
        self.tree.encode(key)
    }

    /// A failed look at the others leaves the entry.
    fn insert(&self, key: &KeyBytes, row: RowId, others: &mut Vec<RowId>) -> Result<bool> {
        match self.blocks.takes(key.as_slice()) {
            true => self.insert_seeing(key, row, others),
            false => self.tree.insert(key, row, others),
        }
    }

    /// False, too, if only the tree could tell that the entry is new: it is not read.
    fn add(&self, key: &KeyBytes, row: RowId) -> Result<bool> {
        match self.blocks.takes(key.as_slice()) {
            true => self.add_blind(key, row),
            false => self.tree.add(key, row),
        }
    }

    fn find(&self, key: &[Value]) -> Result<Lookup> {
        let mut rows = Vec::new();
        self.lookup(&self.encode(key), &mut rows)?;
        Ok(match rows.as_slice() {
            [] => Lookup::None,
            [row] => Lookup::One(*row),
            _ => Lookup::Several,
        })
    }

    fn lookup(&self, key: &KeyBytes, rows: &mut Vec<RowId>) -> Result<()> {
        let seen = self.look(key)?;
        rows.extend(&seen.rows);
        self.settle_rows(key, &seen.gone);
        Ok(())
    }

    fn cursor(&self, range: &KeyRange, direction: Direction) -> Result<Box<dyn Cursor + '_>> {
        Ok(Box::new(MergeCursor::new(self, range, direction)))
    }

    fn cursor_after(
        &self,
        range: &KeyRange,
        direction: Direction,
        after: &(KeyBytes, RowId),
    ) -> Result<Box<dyn Cursor + '_>> {
        let cursor = MergeCursor::after(self, range, direction, after);
        Ok(Box::new(cursor))
    }

    fn estimate(&self, range: &KeyRange) -> Option<usize> {
        self.estimate_with_blocks(range)
    }

    fn retire(&self, key: &KeyBytes, row: RowId, since: CommitTs) -> Result<()> {
        match self.blocks.takes(key.as_slice()) {
            true => self.retire_blind(key, row, since),
            false => self.tree.retire(key, row, since),
        }
    }

    /// Moves the blocks' entries to the tree first.
    fn retain(&self, keep: &mut dyn FnMut(&KeyBytes, RowId) -> bool) -> Result<()> {
        self.move_all()?;
        self.tree.retain(keep)
    }

    fn bulk_load(&self) -> Box<dyn BulkLoad + '_> {
        Box::new(SortedLoad::new(self, false))
    }

    fn bulk_load_unique(&self) -> Box<dyn BulkLoad + '_> {
        Box::new(SortedLoad::new(self, true))
    }

    fn check(&self, damage: &mut Vec<String>) -> Result<()> {
        let pages = match self.blocks.pages() {
            Ok(pages) => pages,
            Err(error) => {
                damage.push(error.message().to_owned());
                return self.tree.check(damage);
            }
        };
        for page in pages {
            self.blocks.check_page(page, damage);
        }
        self.tree.check(damage)
    }

    /// Exact if no block has entries; otherwise an estimate, which takes every entry that a block
    /// adds for a new one, and every retired one that it did not add for one of the tree.
    fn len(&self) -> usize {
        self.tree.len().saturating_add_signed(self.blocks.held())
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.blocks.directory.memory_bytes()
    }
}

impl LoadTarget for LidIndex {
    fn put_entry(&self, key: &[Value], row: RowId, bytes: &mut Vec<u8>) -> Result<()> {
        self.tree.put_entry(key, row, bytes)
    }

    fn enter(&self, entries: &[&[u8]], met: Option<&mut Vec<Vec<u8>>>) -> Result<()> {
        self.enter_beside_blocks(entries, met)
    }

    fn parts<'e>(&self, entry: &'e [u8]) -> Option<(&'e [u8], RowId)> {
        self.tree.parts(entry)
    }

    fn account(&self, before: usize, after: usize) {
        self.tree.account(before, after);
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests;
