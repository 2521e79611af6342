//! The rows whose entries in indexes in levels the images may lack: those that the log has changed
//! since the last checkpoint of the indexes.
//!
//! The storages concerned are those of which a definition has a valid or unfinished index in levels
//! when the log's record is read: an index that is made valid later has an image with all entries
//! of earlier commits.
//!
//! Memory: a range with a noted row takes 8 KiB, and all together a 32nd of `memory_bytes`. Of
//! ranges that find no room all rows count as noted, and so do those of loaded ranges.

use crate::catalog::Catalog;
use crate::catalog::index::IndexStorage;
use crate::catalog::versions::Version;
use crate::redo::{Operation, Scope};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use strandline_base::{RANGE_ROWS, RangeNo, RowId, StorageId};
use strandline_storage::wal::Lsn;

/// Words of a range's bits.
const WORDS: usize = RANGE_ROWS / u64::BITS as usize;

/// The noted rows of a range.
enum Noted {
    Slots(Box<[u64; WORDS]>),
    All,
}

/// See the module's documentation.
pub(super) struct NotedRows {
    /// the end of the last record of which every entry is in the images
    from: Lsn,
    /// ranges that may still have bits of their own
    room: usize,
    ranges: BTreeMap<(StorageId, RangeNo), Noted>,
    /// the definitions by which `storages` was found
    catalog: Option<Arc<Catalog>>,
    /// storages with indexes in levels
    storages: BTreeSet<StorageId>,
}

impl NotedRows {
    /// None yet. Replay begins behind `from`.
    pub fn new(from: Lsn, memory_bytes: usize) -> Self {
        Self {
            from,
            room: memory_bytes / 32 / size_of::<[u64; WORDS]>(),
            ranges: BTreeMap::new(),
            catalog: None,
            storages: BTreeSet::new(),
        }
    }

    /// Whether rows of a record that ends there are noted.
    pub fn wants(&self, end: Lsn) -> bool {
        end > self.from
    }

    /// Notes the rows of an operation. `versions`: the definitions as of it.
    pub fn note(&mut self, operation: &Operation, versions: &[Version]) {
        let newest = versions.last().map(|(_, catalog)| catalog);
        let is_known = match (&self.catalog, newest) {
            (Some(known), Some(newest)) => Arc::ptr_eq(known, newest),
            (known, newest) => known.is_none() && newest.is_none(),
        };
        if !is_known {
            self.catalog = newest.cloned();
            self.storages = newest.map_or_else(BTreeSet::new, |newest| with_levels(newest));
        }
        match operation.scope() {
            Scope::Row(storage, row) if self.storages.contains(&storage) => {
                self.note_row(storage, row);
            }
            Scope::Storage(storage) if self.storages.contains(&storage) => {
                let range = operation.loaded_range();
                self.ranges
                    .extend(range.map(|range| ((storage, range), Noted::All)));
            }
            _ => {}
        }
    }

    fn note_row(&mut self, storage: StorageId, row: RowId) {
        let room = &mut self.room;
        let noted = self
            .ranges
            .entry((storage, row.range()))
            .or_insert_with(|| match room.checked_sub(1) {
                Some(left) => {
                    *room = left;
                    Noted::Slots(Box::new([0; WORDS]))
                }
                None => Noted::All,
            });
        if let Noted::Slots(words) = noted {
            let slot = row.slot();
            if let Some(word) = words.get_mut(slot / 64) {
                *word |= 1 << (slot % 64);
            }
        }
    }

    /// The noted ranges of a storage, ascending, each with its noted rows; None: all of them.
    pub fn of(&self, storage: StorageId) -> impl Iterator<Item = (RangeNo, Option<Vec<RowId>>)> {
        let from = (storage, RangeNo(0));
        let ranges = self.ranges.range(from..=(storage, RangeNo(u32::MAX)));
        ranges.map(|((_, range), noted)| (*range, noted.rows(*range)))
    }
}

impl Noted {
    fn rows(&self, range: RangeNo) -> Option<Vec<RowId>> {
        let Self::Slots(words) = self else {
            return None;
        };
        let is_noted = |slot: &usize| {
            words
                .get(slot / 64)
                .is_some_and(|w| w >> (slot % 64) & 1 == 1)
        };
        let slots = (0..RANGE_ROWS).filter(is_noted);
        Some(slots.map(|slot| RowId::new(range, slot as u16)).collect())
    }
}

fn with_levels(catalog: &Catalog) -> BTreeSet<StorageId> {
    let tables = catalog.tables.values().filter(|table| {
        let mut defs = table.readable_indexes();
        defs.any(|def| def.storage == IndexStorage::Levels)
    });
    tables.map(|table| table.storage).collect()
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    fn row(range: u32, slot: u16) -> RowId {
        RowId::new(RangeNo(range), slot)
    }

    /// Rows are noted once. Ranges beyond the memory for bits count as a whole.
    #[test]
    fn rows_are_noted_within_the_memory() {
        let own = size_of::<[u64; WORDS]>();
        let mut noted = NotedRows::new(Lsn(0), 2 * 32 * own);
        let storage = StorageId(3);
        for (range, slot) in [(7, 65_535), (1, 64), (7, 0), (1, 64), (9, 5), (7, 63)] {
            noted.note_row(storage, row(range, slot));
        }
        noted.note_row(StorageId(4), row(1, 1));
        let expected = [
            (RangeNo(1), Some(vec![row(1, 64)])),
            (
                RangeNo(7),
                Some(vec![row(7, 0), row(7, 63), row(7, 65_535)]),
            ),
            (RangeNo(9), None),
        ];
        assert_eq!(noted.of(storage).collect::<Vec<_>>(), expected);
        let other: Vec<_> = noted.of(StorageId(4)).collect();
        assert_eq!(other, [(RangeNo(1), None)]);
        assert_eq!(noted.of(StorageId(2)).count(), 0);
    }

    #[test]
    fn records_up_to_the_position_are_not_noted() {
        let noted = NotedRows::new(Lsn(10), 0);
        assert!(!noted.wants(Lsn(10)) && noted.wants(Lsn(11)));
    }
}
