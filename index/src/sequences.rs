//! Sequences of consecutive rows whose keys are consecutive integers, so that the key determines
//! the row. They need a few numbers per range instead of an entry per row, and a lookup without a
//! cache miss.
//!
//! A table that is loaded in the order of a serial number consists of such rows. The sequences are
//! a short cut beside the index: every row has its entry there too. A row found here was inserted
//! with the key; the caller checks that it is visible and still has the key. A sequence is removed
//! when its rows have no entries any more.
//!
//! Invariants:
//! 1. The list is ordered by first key; it is replaced, never changed.
//! 2. Sequences that go on with one another are joined, whichever was added first. So a table that
//!    was loaded in order has one, also after an opening, when threads load its ranges in turns.
//!    Therefore callers keep the longest one at hand.
//! 3. Of more than [`SEQUENCES_MAX`] only long ones stay, of at least [`ROWS_AMONG_OTHERS`] rows.
//!    So the list takes less than a hundredth of a byte a row, and looks in it are short.
//!
//! An index in a file learns its sequences from its loads and from its sweeps, which go over the
//! entries in the order of their keys, and at an opening from a checkpoint. After an opening there
//! may be entries of rows that a crash has ended, and whose places have other rows: all rows count
//! as moved then, and a sequence is no more than a hint.

use arc_swap::ArcSwap;
use strandline_base::{Result, RowId, Value};

/// Consecutive rows with consecutive keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeySequence {
    first_key: i64,
    first_row: RowId,
    rows: u64,
}

impl KeySequence {
    /// The sequence that these keys and rows form; None if they form none, or are fewer than two.
    pub fn of(entries: impl Iterator<Item = (Option<i64>, RowId)>) -> Option<Self> {
        let mut builder = SequenceBuilder::default();
        entries.for_each(|(key, row)| builder.push(key, row));
        match builder.is_broken {
            true => None,
            false => builder.finish().pop(),
        }
    }

    /// A sequence of `rows` rows from `first_row` on, whose keys begin with `first_key`.
    pub fn new(first_key: i64, first_row: RowId, rows: u64) -> Self {
        Self {
            first_key,
            first_row,
            rows,
        }
    }

    /// First key, first row and the number of rows.
    pub fn parts(&self) -> (i64, RowId, u64) {
        (self.first_key, self.first_row, self.rows)
    }

    /// The keys and rows of the sequence, in order.
    pub fn entries(&self) -> impl Iterator<Item = (i64, RowId)> {
        let (key, row) = (self.first_key, self.first_row.0);
        (0..self.rows).map(move |at| (key.wrapping_add_unsigned(at), RowId(row + at)))
    }

    fn is_long(&self) -> bool {
        self.rows >= ROWS_AMONG_OTHERS
    }

    /// Whether an entry is the next one of the sequence.
    #[inline]
    fn goes_on(&self, key: i64, row: RowId) -> bool {
        let keys = i128::from(key) - i128::from(self.first_key);
        keys == i128::from(self.rows) && row.0.wrapping_sub(self.first_row.0) == self.rows
    }

    /// The row of `key`, if `key` is in the sequence.
    #[inline]
    pub fn row(&self, key: i64) -> Option<RowId> {
        let offset = key.checked_sub(self.first_key)?;
        let offset = u64::try_from(offset).ok().filter(|o| *o < self.rows)?;
        Some(RowId(self.first_row.0 + offset))
    }
}

/// Rows of a sequence that is kept beside others of the same load. Shorter ones would make the list
/// long, and a lookup in it slow.
const ROWS_AMONG_OTHERS: u64 = 4096;
/// Sequences among which short ones may be.
const SEQUENCES_MAX: usize = 256;

/// Finds the sequences of a load, entry by entry. A load may leave out ranges, which other threads
/// load, so that it has several.
#[derive(Debug, Default)]
pub(crate) struct SequenceBuilder {
    current: Option<KeySequence>,
    ended: Vec<KeySequence>,
    /// an entry has not continued the one before it
    is_broken: bool,
}

impl SequenceBuilder {
    /// Adds an entry; `key` is None if it is not an integer.
    #[inline]
    pub fn push(&mut self, key: Option<i64>, row: RowId) {
        match (key, &mut self.current) {
            (Some(key), Some(current)) if current.goes_on(key, row) => current.rows += 1,
            (key, _) => self.start(key, row),
        }
    }

    fn start(&mut self, key: Option<i64>, row: RowId) {
        self.is_broken |= self.current.is_some() || key.is_none();
        let first = |key| KeySequence {
            first_key: key,
            first_row: row,
            rows: 1,
        };
        let ended = std::mem::replace(&mut self.current, key.map(first));
        self.ended.extend(ended.filter(KeySequence::is_long));
    }

    /// The sequences: that of all entries, or the long ones.
    pub fn finish(mut self) -> Vec<KeySequence> {
        let is_wanted = |s: &KeySequence| match self.is_broken {
            true => s.is_long(),
            false => s.rows > 1,
        };
        self.ended.extend(self.current.filter(is_wanted));
        self.ended
    }
}

/// The sequences of one key.
#[derive(Debug, Default)]
pub struct KeySequences(ArcSwap<Vec<KeySequence>>);

impl KeySequences {
    /// Adds sequences, and joins those that go on with one another.
    pub fn add(&self, sequences: &[KeySequence]) {
        if sequences.is_empty() {
            return;
        }
        self.0.rcu(|known| {
            let mut all = Vec::clone(known);
            all.extend_from_slice(sequences);
            // Stable: of sequences with one first key the one that was added last is found.
            all.sort_by_key(|s| s.first_key);
            all.dedup_by(|next, before| {
                let is_joined = before.goes_on(next.first_key, next.first_row);
                before.rows += if is_joined { next.rows } else { 0 };
                is_joined
            });
            if all.len() > SEQUENCES_MAX {
                all.retain(KeySequence::is_long);
            }
            all
        });
    }

    /// Runs `sweep`, which goes over the entries of an index in the order of their keys and removes
    /// those that `keep` does not want. From then on there are the sequences of the entries that it
    /// kept, whose keys have the numbers `number`, and those that loads have added meanwhile.
    pub(crate) fn learn<K>(
        &self,
        number: impl Fn(&K) -> Option<i64>,
        keep: &mut dyn FnMut(&K, RowId) -> bool,
        sweep: impl FnOnce(&mut dyn FnMut(&K, RowId) -> bool) -> Result<()>,
    ) -> Result<()> {
        let before = self.0.load_full();
        let mut kept = SequenceBuilder::default();
        sweep(&mut |key, row| {
            let is_kept = keep(key, row);
            if is_kept {
                kept.push(number(key), row);
            }
            is_kept
        })?;
        self.retain(|sequence| !before.contains(sequence));
        self.add(&kept.finish());
        Ok(())
    }

    /// Removes every sequence for which `keep` returns false.
    pub fn retain(&self, keep: impl Fn(&KeySequence) -> bool) {
        let unwanted: Vec<_> = self.0.load().iter().filter(|s| !keep(s)).copied().collect();
        if !unwanted.is_empty() {
            // A sequence that has grown in the meantime is a different value, and stays.
            self.0.rcu(|known| {
                let kept = known.iter().filter(|s| !unwanted.contains(s));
                kept.copied().collect::<Vec<_>>()
            });
        }
    }

    /// The number of sequences.
    pub fn len(&self) -> usize {
        self.0.load().len()
    }

    /// Whether there are no sequences.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The longest sequence, if there is any.
    pub fn longest(&self) -> Option<KeySequence> {
        self.0.load().iter().max_by_key(|s| s.rows).copied()
    }

    /// The longest sequences, `at_most` so many.
    pub fn of_most_rows(&self, at_most: usize) -> Vec<KeySequence> {
        let mut all = Vec::clone(&self.0.load());
        all.sort_by_key(|s| std::cmp::Reverse(s.rows));
        all.truncate(at_most);
        all
    }

    /// A row that was inserted with `key`, if `key` is in a sequence.
    #[inline]
    pub fn find(&self, key: i64) -> Option<RowId> {
        let all = self.0.load();
        let after = all.partition_point(|s| s.first_key <= key);
        all.get(after.checked_sub(1)?)?.row(key)
    }
}

/// The integer of a key of one integer column.
#[inline]
pub fn integer_key(key: &[Value]) -> Option<i64> {
    match key {
        [Value::BigInt(v)] => Some(*v),
        [Value::Integer(v)] => Some(i64::from(*v)),
        [Value::SmallInt(v)] => Some(i64::from(*v)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(
        keys: impl IntoIterator<Item = i64>,
        row: u64,
    ) -> impl Iterator<Item = (Option<i64>, RowId)> {
        let keys = keys.into_iter().zip(row..);
        keys.map(|(key, row)| (Some(key), RowId(row)))
    }

    #[test]
    fn only_consecutive_keys_in_consecutive_rows_are_a_sequence() {
        assert!(KeySequence::of(entries(5..9, 100)).is_some());
        for keys in [
            vec![],
            vec![5],
            vec![5, 7],
            vec![5, 4],
            vec![5, 5],
            vec![5, 6, 8],
        ] {
            assert_eq!(KeySequence::of(entries(keys, 0)), None);
        }
        let null = [(Some(1), RowId(0)), (None, RowId(1))];
        assert_eq!(KeySequence::of(null.into_iter()), None);
        let gap = [(Some(1), RowId(0)), (Some(2), RowId(2))];
        assert_eq!(KeySequence::of(gap.into_iter()), None);
        let extremes = [(Some(i64::MAX), RowId(0)), (Some(i64::MIN), RowId(1))];
        assert_eq!(KeySequence::of(extremes.into_iter()), None);
    }

    #[test]
    fn sequences_that_go_on_are_joined() {
        let all = KeySequences::default();
        assert_eq!(all.longest(), None);
        for (keys, row) in [
            (0..9, 100),
            (9..20, 109),
            (20..30, 500),
            (30..31, 600),
            (30..40, 600),
        ] {
            if let Some(sequence) = KeySequence::of(entries(keys, row)) {
                all.add(&[sequence]);
            }
        }
        let longest = all.longest().expect("one");
        assert_eq!((longest.first_key, longest.first_row), (0, RowId(100)));
        assert_eq!(longest.rows, 20);
        for (key, row) in [
            (0, 100),
            (9, 109),
            (19, 119),
            (20, 500),
            (30, 600),
            (39, 609),
        ] {
            assert_eq!(all.find(key), Some(RowId(row)));
        }
        assert_eq!((all.find(40), longest.row(20)), (None, None));
    }

    #[test]
    fn sequences_that_are_not_kept_go() {
        let all = KeySequences::default();
        for first in [0, 100, 200] {
            let of = KeySequence::of(entries(first..first + 10, first as u64 * 10));
            all.add(&[of.expect("a sequence")]);
        }
        all.retain(|sequence| sequence.entries().any(|entry| entry == (109, RowId(1009))));
        assert_eq!(all.len(), 1);
        assert_eq!(all.find(5), None);
        assert_eq!(all.find(109), Some(RowId(1009)));
        assert_eq!(all.find(205), None);
        all.retain(|_| false);
        assert!(all.is_empty() && all.longest().is_none());
    }

    #[test]
    fn a_key_leads_to_its_row_and_others_nowhere() {
        let all = KeySequences::default();
        assert_eq!(all.find(0), None);
        for (first, row) in [(1_000, 50), (i64::MIN, 900), (0, 0), (i64::MAX - 9, 2_000)] {
            let keys = first..=first + 9;
            all.add(&[KeySequence::of(entries(keys, row)).expect("a sequence")]);
        }
        assert_eq!(all.find(0), Some(RowId(0)));
        assert_eq!(all.find(9), Some(RowId(9)));
        assert_eq!(all.find(1_003), Some(RowId(53)));
        assert_eq!(all.find(i64::MIN), Some(RowId(900)));
        assert_eq!(all.find(i64::MAX), Some(RowId(2_009)));
        for absent in [-1, 10, 999, 1_010, i64::MIN + 10, i64::MAX - 10] {
            assert_eq!(all.find(absent), None, "{absent}");
        }
    }

    #[test]
    fn loads_of_ranges_in_turns_become_one_sequence() {
        let range = ROWS_AMONG_OTHERS as i64;
        let load = |ranges: &[i64]| {
            let mut builder = SequenceBuilder::default();
            for first in ranges.iter().map(|no| no * range) {
                let entries = entries(first..first + range, 7 + first as u64);
                entries.for_each(|(key, row)| builder.push(key, row));
            }
            builder.finish()
        };
        let all = KeySequences::default();
        for ranges in [&[1, 3, 4][..], &[0, 5], &[2]] {
            all.add(&load(ranges));
        }
        assert_eq!(
            (all.len(), all.longest().map(|s| s.rows)),
            (1, Some(6 * range as u64))
        );
        assert_eq!(
            all.find(6 * range - 1),
            Some(RowId(7 + 6 * range as u64 - 1))
        );
        assert_eq!((all.find(-1), all.find(6 * range)), (None, None));
    }

    #[test]
    fn short_sequences_between_others_are_not_kept() {
        let mut builder = SequenceBuilder::default();
        let short = entries(0..ROWS_AMONG_OTHERS as i64 - 1, 0);
        let long = entries(-5_000..-5_000 + ROWS_AMONG_OTHERS as i64, 90_000);
        for (key, row) in short
            .chain(long)
            .chain([(None, RowId(99)), (Some(1), RowId(100))])
        {
            builder.push(key, row);
        }
        let kept = builder.finish();
        let rows: Vec<_> = kept.iter().map(|s| (s.first_key, s.rows)).collect();
        assert_eq!(rows, [(-5_000, ROWS_AMONG_OTHERS)]);
    }
}
