//! `check` of secondary indexes and of ordered keys, in both directions. Every visible row must
//! have its entry, and every entry must lead to a row that has the key, or had it.
//!
//! Writers and sweeps run beside the check, so each apparent error is verified a second time.

use crate::catalog::TableDef;
use crate::catalog::index::{IndexDef, IndexState};
use crate::store::{Store, StoredIndex, TableStore, VersionBounds, find_readable_index, newest};
use crate::transaction::index_build::{index_parts, key_text};
use std::collections::HashSet;
use strandline_base::{RANGE_ROWS, Result, RowId, Value};
use strandline_index::{Cursor, KeyBytes};
use strandline_txn::StartWord;

/// An index under check.
struct Check<'a> {
    table: &'a TableDef,
    def: &'a IndexDef,
    store: &'a Store,
    index: &'a StoredIndex,
    /// rows that have left a key, as of the start of the check
    left: HashSet<RowId>,
}

/// Verifies the indexes of a table, except hash indexes.
pub(super) fn check_indexes(
    table: &TableDef,
    store: &Store,
    damage: &mut Vec<String>,
) -> Result<()> {
    for def in table
        .readable_indexes()
        .filter(|def| def.state == IndexState::Valid)
    {
        let Some(index) = find_readable_index(store, table, def.id) else {
            damage.push(format!(
                "table \"{}\": index \"{}\" is not there",
                table.name, def.name
            ));
            continue;
        };
        let check = Check {
            table,
            def,
            store,
            index: &index,
            left: index.sweep.left_rows(),
        };
        let expected = check.expected()?;
        check.compare(&expected, damage)?;
    }
    Ok(())
}

/// Entries that have been gathered and sorted, as many bytes as the expected ones.
struct Sorted(std::vec::IntoIter<(KeyBytes, RowId)>);

impl Cursor for Sorted {
    fn next(&mut self) -> Result<Option<(KeyBytes, RowId)>> {
        Ok(self.0.next())
    }
}

impl Check<'_> {
    /// The entries of all visible rows, in order.
    fn expected(&self) -> Result<Vec<(KeyBytes, RowId)>> {
        let mut expected = Vec::new();
        for range in self.store.ranges() {
            for slot in 0..(range.slots() as usize).min(RANGE_ROWS) {
                let row = RowId::new(range.no(), slot as u16);
                if let Some((_, bytes)) = self.newest_key(row)? {
                    expected.push((bytes, row));
                }
            }
        }
        expected.sort_unstable();
        Ok(expected)
    }

    fn newest_key(&self, row: RowId) -> Result<Option<(Vec<Value>, KeyBytes)>> {
        let key = self
            .index
            .key_at(self.store.rows(), row, &newest(StartWord(0)))?;
        Ok(key.and_then(|key| {
            let bytes = self.index.key_bytes(&key)?;
            Some((key, bytes))
        }))
    }

    /// All entries in order.
    fn entries(&self) -> Result<Box<dyn Cursor + '_>> {
        let mut entries = self.index.entries()?;
        if self.index.is_ordered() {
            return Ok(entries);
        }
        let mut all = Vec::new();
        while let Some(entry) = entries.next()? {
            all.push(entry);
        }
        all.sort_unstable();
        Ok(Box::new(Sorted(all.into_iter())))
    }

    fn compare(&self, expected: &[(KeyBytes, RowId)], damage: &mut Vec<String>) -> Result<()> {
        let mut rows = expected.iter().peekable();
        let mut entries = self.entries()?;
        loop {
            let entry = entries.next()?;
            let is_before =
                |row: &&(KeyBytes, RowId)| entry.as_ref().is_none_or(|entry| **row < *entry);
            while let Some((bytes, row)) = rows.next_if(is_before) {
                self.check_entry(bytes, *row, damage)?;
            }
            let Some(entry) = entry else {
                break;
            };
            if rows.next_if(|row| **row == entry).is_none() && !self.is_right(&entry.0, entry.1)? {
                damage.push(format!(
                    "table \"{}\", index \"{}\": an entry leads to {:?}, which has never had its \
                     key",
                    self.table.name, self.def.name, entry.1
                ));
            }
        }
        if self.def.unique {
            self.check_unique(expected, damage)?;
        }
        Ok(())
    }

    /// Verifies again that the row has no entry, and then reports it.
    fn check_entry(&self, bytes: &KeyBytes, row: RowId, damage: &mut Vec<String>) -> Result<()> {
        match self.newest_key(row)? {
            Some((key, now)) if now == *bytes && !self.has(bytes, row)? => {
                let parts = index_parts(self.table, self.def)?;
                damage.push(format!(
                    "table \"{}\", index \"{}\": no entry leads to {row:?} with {}",
                    self.table.name,
                    self.def.name,
                    key_text(&parts, &key)
                ));
            }
            _ => {}
        }
        Ok(())
    }

    fn has(&self, bytes: &KeyBytes, row: RowId) -> Result<bool> {
        let mut rows = Vec::new();
        self.index.index.lookup(bytes, &mut rows)?;
        Ok(rows.contains(&row))
    }

    /// Whether an entry without a visible row is allowed: a reader may still find the row by it, or
    /// a sweep will remove it.
    fn is_right(&self, bytes: &KeyBytes, row: RowId) -> Result<bool> {
        let stored = self.store.rows();
        let now = self.newest_key(row)?;
        // On pages there may be entries of transactions that a crash has ended.
        if !self.index.is_in_memory()
            || now.as_ref().is_none_or(|(_, now)| now == bytes)
            || self.left.contains(&row)
            || stored
                .unfinished_writer(row, StartWord(0), false)?
                .is_some()
            || !self.has(bytes, row)?
        {
            return Ok(true);
        }
        let (mut had, bounds) = (false, VersionBounds::WantedChange);
        stored.visit_versions(row, &self.index.columns, bounds, &mut |version| {
            let key = self.index.key_of(version.values)?;
            had |= key.is_some_and(|key| self.index.index.encode(&key) == *bytes);
            Ok(())
        })?;
        if had {
            return Ok(true);
        }
        // The row may have left the key in the meantime, and a sweep may have been there since.
        Ok(self.index.sweep.left_rows().contains(&row) || !self.has(bytes, row)?)
    }

    fn check_unique(&self, expected: &[(KeyBytes, RowId)], damage: &mut Vec<String>) -> Result<()> {
        for same in expected
            .chunk_by(|a, b| a.0 == b.0)
            .filter(|same| same.len() > 1)
        {
            let mut found: Vec<(Vec<Value>, RowId)> = Vec::new();
            for (_, row) in same {
                let Some((key, _)) = self.newest_key(*row)? else {
                    continue;
                };
                let equal_nulls = self.def.nulls_not_distinct;
                let is_same = |(known, _): &&(Vec<Value>, RowId)| {
                    StoredIndex::are_duplicates(known, &key, equal_nulls)
                };
                if let Some((_, other)) = found.iter().find(is_same) {
                    let parts = index_parts(self.table, self.def)?;
                    damage.push(format!(
                        "table \"{}\", index \"{}\": {other:?} and {row:?} both have {}",
                        self.table.name,
                        self.def.name,
                        key_text(&parts, &key)
                    ));
                }
                found.push((key, *row));
            }
        }
        Ok(())
    }
}
