//! The filters of a level under construction. Readers see each filter from its first entry on; at
//! the end of a batch the last one is replaced by one for as many entries as it has.

use super::filter::{Filter, FilterOf};
use super::level::{Kept, Level};
use super::partition::{Partition, blocks_of, entries_max};
use std::sync::Arc;

/// A filter that takes entries.
#[derive(Debug)]
struct Open {
    first: Box<[u8]>,
    filter: Arc<Filter>,
    of: FilterOf,
    /// of its entries
    hashes: Vec<u64>,
}

impl Open {
    fn add(&mut self, entry: &[u8]) {
        let hash = self.of.hash(entry);
        self.filter.add(hash);
        self.hashes.push(hash);
    }
}

/// A filter that is to be written.
#[derive(Clone, Debug)]
pub(super) struct Whole {
    pub level: Arc<Level>,
    pub first: Box<[u8]>,
    pub ordinal: u64,
    pub filter: Arc<Filter>,
}

/// Fills the filters of a level.
#[derive(Debug)]
pub(super) struct Filtering {
    /// None: the level has no filters
    level: Option<Arc<Level>>,
    block_bytes: usize,
    entries_max: usize,
    open: Option<Open>,
    /// those that are whole and not written
    whole: Vec<Whole>,
    /// filter blocks of the level's own run
    blocks: u64,
    /// whether the level has a filter, or keeps one
    is_begun: bool,
}

impl Filtering {
    /// Goes on with the filters of a level.
    pub fn new(block_bytes: usize, level: Option<&Arc<Level>>) -> Self {
        let level = level.filter(|level| level.filters.bits > 0);
        let last = level.and_then(|level| level.partitions().pop());
        let is_begun = last.is_some();
        let own = last.filter(|last| level.is_some_and(|level| last.run == level.run));
        let blocks = own.map_or(0, |last| last.ordinal + last.numbers.len() as u64);
        let entries_max = level.map_or(0, |level| entries_max(block_bytes, level.filters.bits));
        Self {
            level: level.cloned(),
            block_bytes,
            entries_max,
            open: None,
            whole: Vec::new(),
            blocks,
            is_begun,
        }
    }

    /// The level will keep filters, before its own ones.
    pub fn keep(&mut self, kept: &Kept) {
        self.is_begun |= kept.has_filters();
    }

    /// Adds a data entry. It is greater than those before.
    pub fn add(&mut self, entry: &[u8]) {
        if let Some(open) = &mut self.open
            && open.hashes.len() < self.entries_max
        {
            return open.add(entry);
        }
        let Some(level) = self.level.clone() else {
            return;
        };
        if let Some(open) = self
            .open
            .take_if(|open| open.hashes.len() >= self.entries_max)
        {
            self.end(open);
        }
        let open = self.open.get_or_insert_with(|| {
            let first: Box<[u8]> = match std::mem::replace(&mut self.is_begun, true) {
                true => entry.into(),
                false => Box::default(),
            };
            let filter = Arc::new(Filter::new(self.entries_max, level.filters.bits));
            let partition = Partition::of(first.clone(), level.run, self.blocks, filter.clone());
            level.push_partition(Arc::new(partition));
            Open {
                first,
                filter,
                of: level.filters.of,
                hashes: Vec::new(),
            }
        });
        open.add(entry);
    }

    fn end(&mut self, open: Open) {
        let Some(level) = &self.level else { return };
        let mut filter = open.filter;
        if open.hashes.len() < self.entries_max {
            let exact = Filter::new(open.hashes.len(), level.filters.bits);
            open.hashes.iter().for_each(|hash| exact.add(*hash));
            filter = Arc::new(exact);
        }
        let blocks = blocks_of(&filter, self.block_bytes);
        self.whole.push(Whole {
            level: level.clone(),
            first: open.first,
            ordinal: self.blocks,
            filter,
        });
        self.blocks += blocks as u64;
    }

    /// The filters that are not written, of all entries so far.
    pub fn unwritten(&mut self) -> &[Whole] {
        if let Some(open) = self.open.take() {
            self.end(open);
        }
        &self.whole
    }

    /// They are written.
    pub fn clear(&mut self) {
        self.whole.clear();
    }
}
