//! The entries of one source that a compaction has read and not staged.

use super::block::{Block, EntryKey, Item, Kind};
use super::loaded::Loaded;
use std::sync::Arc;

/// Where the entries are.
#[derive(Debug)]
enum Entries {
    Block(Arc<Block>),
    Items(Vec<Item>),
    Loaded(Arc<Loaded>),
}

/// Entries in order of their keys.
#[derive(Debug)]
pub(super) struct Buffer {
    entries: Entries,
    next: usize,
    end: usize,
    /// the next entry, if it is of a block
    front: EntryKey,
    kind: Option<Kind>,
}

impl Default for Buffer {
    fn default() -> Self {
        Self::of_items(Vec::new())
    }
}

impl Buffer {
    fn of(entries: Entries, next: usize, end: usize) -> Self {
        let mut buffer = Self {
            entries,
            next,
            end,
            front: EntryKey::new(),
            kind: None,
        };
        buffer.read_front();
        buffer
    }

    pub fn of_items(items: Vec<Item>) -> Self {
        let end = items.len();
        Self::of(Entries::Items(items), 0, end)
    }

    /// The entries of a block with keys above `after`; None: all.
    pub fn of_block(block: Arc<Block>, after: Option<&[u8]>) -> Self {
        let end = block.len();
        let next = after.map_or(0, |after| block.up_to(after));
        Self::of(Entries::Block(block), next, end)
    }

    /// The entries of a load from one up to another, without this one.
    pub fn of_load(loaded: Arc<Loaded>, next: usize, end: usize) -> Self {
        Self::of(Entries::Loaded(loaded), next, end)
    }

    pub fn is_empty(&self) -> bool {
        self.next >= self.end
    }

    /// The next entry.
    pub fn front(&self) -> Option<(&[u8], Kind)> {
        if self.is_empty() {
            return None;
        }
        match &self.entries {
            Entries::Block(_) => Some((&self.front, self.kind?)),
            Entries::Items(items) => items.get(self.next).map(|(key, kind)| (&**key, *kind)),
            Entries::Loaded(loaded) => Some((loaded.get(self.next)?, Kind::Insert)),
        }
    }

    pub fn front_key(&self) -> Option<&[u8]> {
        self.front().map(|(key, _)| key)
    }

    /// Passes the next entry.
    pub fn advance(&mut self) {
        self.next += 1;
        self.read_front();
    }

    fn read_front(&mut self) {
        if let Entries::Block(block) = &self.entries {
            self.kind = block.read(self.next, &mut self.front);
        }
    }
}
