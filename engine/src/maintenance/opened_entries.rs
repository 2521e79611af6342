//! The entries that an index in a file had when the database was opened: each is compared with its
//! row once.
//!
//! Such an index may have entries that nothing in memory tells of: of rows that left a key before
//! the opening, of transactions that a crash has ended, and of their rows, whose places other rows
//! may have by now. Until the comparison all its rows count as moved, so readers take no values
//! from entries, and no sweep knows of such an entry.
//!
//! A row whose only entry is the key of its newest version is not moved. All other rows are marked
//! (`store::moved_rows`) and noted as having left a key, so a sweep looks at them. Nothing is
//! removed here.
//!
//! Why no row is missed that writers change meanwhile: an update marks its row before it enters the
//! new key. A row that is inserted meanwhile has the entries found here, or none of them: if one is
//! not that of its key, it is marked, in whatever order its row and its entries were read.
//!
//! Most ranges have nothing to mark. So one walk over the index makes a sum of hashes of (row, key)
//! for each range, and each sum is compared with that of the range's rows under their newest keys.
//! Equal sums are taken for equal entries (64 bits): each visible row then has the entry of its
//! key, and there is no other. Why that is enough beside writers: an entry that is in no sum was
//! entered behind the walk, by a writer that has marked its row or has inserted it.
//!
//! The entries of the ranges that differ are gathered and compared one by one, in *parts*: those of
//! some ranges, 16 bytes each, in another walk over the whole index, so that they take a 32nd of
//! `memory_bytes`. A *turn* reads entries of a walk, or rows, up to
//! `Settings::comparison_turn_entries`. A walk over points or boxes has no order to go on in, so it
//! is one turn. Checkpoints run between turns.
//!
//! Entries may be swept between the turns of a walk. A row of which entries were removed has been
//! marked before, or had none that a reader needs; comparing what was gathered marks too many rows
//! at worst.
//!
//! A range that cannot be read has all its rows with entries marked. An index that cannot be read
//! is set aside by the caller, and its comparison begins anew after the pause.
//!
//! Lock order: [`OpenedEntries`] is taken below the index's `done`, and never waited for: one index
//! is compared at a time, for the sake of memory.
//!
//! [`OpenedEntries`]: crate::db::opened_entries::OpenedEntries

use crate::db::opened_entries::{Comparison, EntrySum, Part, Stage, Walk, has_unknown};
use crate::db::{Db, closed};
use crate::store::all_rows::{visit_range, visit_rows};
use crate::store::{Store, StoredIndex, newest};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use strandline_base::{CommitTs, RANGE_ROWS, RangeNo, Result, RowId};
use strandline_index::{Direction, KeyBytes, KeyRange};
use strandline_txn::StartWord;
use tracing::warn;

/// Bytes of a gathered entry.
const ENTRY_BYTES: usize = size_of::<(RowId, u64)>();

/// Entries that are read between two looks whether the database is being closed.
const CHECKED_ENTRIES: usize = 1 << 12;

fn hash(key: &KeyBytes) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(key.as_slice())
}

/// As [`hash`], of an entry.
fn hash_entry(row: RowId, key: &KeyBytes) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one((row.0, key.as_slice()))
}

impl Db {
    /// A turn of comparing the entries of an opened index with their rows, if that has not been
    /// done. The caller keeps sweeps away. Returns whether there was anything to do.
    ///
    /// # Errors
    /// Those of the index; the next turn begins anew.
    pub(super) fn compare_opened(&self, store: &Store, index: &Arc<StoredIndex>) -> Result<bool> {
        let Some(moved) = index.moved_rows().filter(|_| has_unknown(index)) else {
            return Ok(false);
        };
        let Some(mut kept) = self.maintenance.opened_entries.try_lock() else {
            return Ok(false);
        };
        if kept.as_ref().is_some_and(|kept| !kept.is_of(index)) {
            return Ok(false);
        }
        let rows = self.settings.memory_bytes / 32 / ENTRY_BYTES;
        let ranges = (rows / RANGE_ROWS).max(1);
        let mut comparison = kept.take().unwrap_or_else(|| Comparison::of(index));
        // A small index is done in one turn.
        let (turn, mut read) = (self.settings.comparison_turn_entries.max(1), 0);
        while read < turn {
            let at_most = turn - read;
            let Comparison { sums, stage, .. } = &mut comparison;
            match stage {
                Stage::Sum(Walk::Done) => comparison.stage = Stage::CompareSums,
                Stage::Sum(walk) => {
                    read += self.walk(index, walk, at_most, &mut |row, key| {
                        let sum = sums.entry(row.range().0).or_default();
                        sum.add(hash_entry(row, key));
                    })?;
                }
                Stage::CompareSums => match compare_sum((store, index), &mut comparison) {
                    Some(rows) => read += rows,
                    None if comparison.begin_part(ranges) => {}
                    None => {
                        moved.tell();
                        return Ok(true);
                    }
                },
                Stage::Gather(part) => match &mut part.walk {
                    Walk::Done => {
                        read += part.entries.len();
                        self.compare_part((store, index), part);
                        if !comparison.begin_part(ranges) {
                            moved.tell();
                            return Ok(true);
                        }
                    }
                    walk => {
                        let (ranges, entries) = (&part.ranges, &mut part.entries);
                        read += self.walk(index, walk, at_most, &mut |row, key| {
                            if ranges.contains(&row.range().0) {
                                entries.push((row, hash(key)));
                            }
                        })?;
                    }
                },
            }
        }
        *kept = Some(comparison);
        Ok(true)
    }

    /// Frees the comparison of an index that has been removed or replaced, so that another one can
    /// begin.
    pub(super) fn drop_ended_comparison(&self) {
        if let Some(mut kept) = self.maintenance.opened_entries.try_lock() {
            kept.take_if(|kept| !kept.goes_on());
        }
    }

    /// Forgets how far the comparison of an index has come.
    pub(super) fn forget_comparison(&self, index: &Arc<StoredIndex>) {
        if let Some(mut kept) = self.maintenance.opened_entries.try_lock() {
            kept.take_if(|kept| kept.is_of(index));
        }
    }

    /// Compares a part that has been gathered.
    fn compare_part(&self, (store, index): (&Store, &StoredIndex), part: &mut Part) {
        let now = self.stable();
        part.entries.sort_unstable();
        // Ranges are listed behind the entries: one that is missing is that of a lost row.
        let last = store.ranges().len() as u32;
        for of_range in part.entries.chunk_by(|a, b| a.0.range() == b.0.range()) {
            let no = of_range[0].0.range();
            if no.0 >= last {
                note_all_moved(index, of_range, now);
            } else if let Err(failure) = compare((store, index), no, of_range, now) {
                warn!(
                    table = self.table_name(store.id()),
                    range = no.0,
                    sqlstate = failure.sqlstate().0,
                    "the entries of an index cannot be compared with their rows, and readers take \
                     no values from them: {failure}"
                );
                note_all_moved(index, of_range, now);
            }
        }
    }

    /// Goes on with a walk over all entries, over `at_most` and the others of the last key. Returns
    /// how many it has read.
    fn walk(
        &self,
        index: &StoredIndex,
        walk: &mut Walk,
        at_most: usize,
        visit: &mut dyn FnMut(RowId, &KeyBytes),
    ) -> Result<usize> {
        let from = match walk {
            Walk::From(from) => from.clone(),
            Walk::Done => return Ok(0),
        };
        let can_resume = index.is_ordered();
        let mut cursor = match can_resume {
            true => {
                let range = KeyRange { from, before: None };
                index.index.cursor(&range, Direction::Forward)?
            }
            false => index.entries()?,
        };
        let (mut read, mut last) = (0_usize, None);
        while let Some((key, row)) = cursor.next()? {
            if can_resume && read >= at_most && last.as_ref() != Some(&key) {
                *walk = Walk::From(Some(key));
                return Ok(read);
            }
            visit(row, &key);
            read += 1;
            if can_resume && read >= at_most {
                last = Some(key);
            }
            if read.is_multiple_of(CHECKED_ENTRIES)
                && self.maintenance.closed.load(Ordering::Acquire)
            {
                return Err(closed());
            }
        }
        *walk = Walk::Done;
        Ok(read)
    }
}

/// Compares the sum of the entries of the next range with that of its rows. Returns how many rows
/// were read; None: all sums have been compared.
fn compare_sum(
    (store, index): (&Store, &StoredIndex),
    comparison: &mut Comparison,
) -> Option<usize> {
    let (no, found) = comparison.sums.pop_first()?;
    // What cannot be read differs; the comparison of its entries tells why.
    let sum = sum_of_rows(store, index, RangeNo(no)).ok();
    if sum.is_none_or(|(wanted, _)| wanted != found) {
        comparison.differing.insert(no);
    }
    Some(sum.map_or(1, |(_, slots)| slots.max(1)))
}

/// The sum of the entries that the visible rows of a range have if none of them has moved, and how
/// many slots the range has.
fn sum_of_rows(store: &Store, index: &StoredIndex, no: RangeNo) -> Result<(EntrySum, usize)> {
    let mut sum = EntrySum::default();
    let visibility = newest(StartWord(0));
    let slots = visit_rows(
        store,
        no,
        &index.columns,
        &visibility,
        &mut |row, values| {
            // A row whose key cannot be computed has no entry that is right.
            if let Some(key) = index.key_of(values).ok().flatten() {
                sum.add(hash_entry(row, &index.index.encode(&key)));
            }
        },
    )?;
    Ok((sum, slots))
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

fn note_all_moved(index: &StoredIndex, entries: &[(RowId, u64)], now: CommitTs) {
    for own in entries.chunk_by(|a, b| a.0 == b.0) {
        note_moved(index, own[0].0, now);
    }
}

fn note_moved(index: &StoredIndex, row: RowId, now: CommitTs) {
    index.note_moved_row(row);
    index.sweep.note_left(row, now);
}
