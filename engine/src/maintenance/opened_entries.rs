//! The entries that an index on pages had when the database was opened: each is compared with its
//! row once.
//!
//! Such an index may have entries that nothing in memory tells of: of rows that left a key before
//! the opening, of transactions that a crash has ended, and of their rows, whose places other rows
//! may have by now. Until the comparison all its rows count as moved, so readers take no values
//! from
//! entries, and no sweep knows of such an entry.
//!
//! A row whose only entry is the key of its newest version is not moved. All other rows are marked
//! (`store::moved_rows`) and noted as having left a key, so a sweep looks at them. Nothing is
//! removed here.
//!
//! Why no row is missed that writers change meanwhile: an update marks its row before it enters the
//! new key. A row that is inserted meanwhile has the entries found here, or none of them: if one is
//! not that of its key, it is marked, in whatever order its row and its entries were read.
//!
//! Memory: entries are gathered for a part of the rows at a time, 16 bytes each, so that they
//! take a
//! 32nd of `memory_bytes`; each part costs a walk over the index. Keys are compared by 64-bit
//! hashes.

use crate::db::{Db, closed};
use crate::store::all_rows::visit_range;
use crate::store::{Store, StoredIndex, newest};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::ops::Range;
use std::sync::atomic::Ordering;
use strandline_base::{CommitTs, RANGE_ROWS, RangeNo, Result, RowId};
use strandline_index::{Direction, KeyBytes, KeyRange};
use strandline_txn::StartWord;

/// Bytes of a gathered entry.
const ENTRY_BYTES: usize = size_of::<(RowId, u64)>();

/// Entries that are read between two looks whether the database is being closed.
const CHECKED_ENTRIES: usize = 1 << 12;

fn hash(key: &KeyBytes) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(key.as_slice())
}

impl Db {
    /// Compares the entries of an opened index with their rows, if that has not been done. The
    /// caller keeps sweeps away. Returns whether it has been done now; an index or a row that
    /// cannot
    /// be read is left for another turn.
    pub(super) fn settle_opened(&self, store: &Store, index: &StoredIndex) -> bool {
        let Some(moved) = index.moved_rows().filter(|moved| moved.are_unknown()) else {
            return false;
        };
        let rows = self.settings.memory_bytes / 32 / ENTRY_BYTES;
        let ranges = (rows / RANGE_ROWS).max(1) as u32;
        let mut from = 0_u32;
        loop {
            let part = from..from.saturating_add(ranges);
            match self.settle_part((store, index), part.clone()) {
                Ok(true) => from = part.end,
                Ok(false) => break,
                Err(_) => return false,
            }
        }
        moved.tell();
        true
    }

    /// Compares the entries of the rows in some ranges. False: there are none of these ranges or of
    /// later ones.
    fn settle_part(
        &self,
        (store, index): (&Store, &StoredIndex),
        part: Range<u32>,
    ) -> Result<bool> {
        let (entries, are_later) = self.entries_of(index, &part)?;
        let now = self.stable();
        let mut own = &entries[..];
        // Ranges are listed behind the entries: one that is missing is that of a lost row.
        let last = store.ranges().len() as u32;
        for no in part.start..part.end.min(last) {
            let split = own.partition_point(|(row, _)| row.range().0 <= no);
            let (of_range, rest) = own.split_at(split);
            compare((store, index), RangeNo(no), of_range, now)?;
            own = rest;
        }
        for (row, _) in own {
            note_moved(index, *row, now);
        }
        Ok(are_later || part.end < last)
    }

    /// The entries of the rows in some ranges, by row, and whether there are any of later ranges.
    fn entries_of(
        &self,
        index: &StoredIndex,
        part: &Range<u32>,
    ) -> Result<(Vec<(RowId, u64)>, bool)> {
        let all = KeyRange::default();
        let mut cursor = index.index.cursor(&all, Direction::Forward)?;
        let (mut entries, mut are_later, mut read) = (Vec::new(), false, 0_usize);
        while let Some((key, row)) = cursor.next()? {
            let no = row.range().0;
            are_later |= no >= part.end;
            if part.contains(&no) {
                entries.push((row, hash(&key)));
            }
            read += 1;
            if read.is_multiple_of(CHECKED_ENTRIES)
                && self.maintenance.closed.load(Ordering::Acquire)
            {
                return Err(closed());
            }
        }
        entries.sort_unstable();
        Ok((entries, are_later))
    }
}

/// Marks the rows of a range with entries that are not the key of their newest version.
fn compare(
    (store, index): (&Store, &StoredIndex),
    no: RangeNo,
    entries: &[(RowId, u64)],
    now: CommitTs,
) -> Result<()> {
    let mut rows = entries.chunk_by(|a, b| a.0 == b.0).peekable();
    if rows.peek().is_none() {
        return Ok(());
    }
    let visibility = newest(StartWord(0));
    let unseen =
        |own: &[(RowId, u64)]| own.iter().for_each(|(row, _)| note_moved(index, *row, now));
    visit_range(
        store,
        no,
        &index.columns,
        &visibility,
        &mut |row, values| {
            // Ranges that have grown since may have rows without entries here.
            while let Some(before) = rows.next_if(|own| own[0].0 < row) {
                unseen(before);
            }
            let Some(own) = rows.next_if(|own| own[0].0 == row) else {
                return;
            };
            let key = index.key_of(values).ok().flatten();
            let is_right = key.is_some_and(|key| hash(&index.index.encode(&key)) == own[0].1);
            if own.len() > 1 || !is_right {
                unseen(own);
            }
        },
    )?;
    rows.for_each(unseen);
    Ok(())
}

fn note_moved(index: &StoredIndex, row: RowId, now: CommitTs) {
    index.note_moved_row(row);
    index.sweep.note_left(row, now);
}
