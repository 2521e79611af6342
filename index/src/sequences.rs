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
//! 2. A sequence that continues the one before it is joined with it, so a table that was loaded in
//!    order has one. Therefore callers keep the longest one at hand.

use arc_swap::ArcSwap;
use strandline_base::{RowId, Value};

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
        builder.finish()
    }

    /// The keys and rows of the sequence, in order.
    pub fn entries(&self) -> impl Iterator<Item = (i64, RowId)> {
        let (key, row) = (self.first_key, self.first_row.0);
        (0..self.rows).map(move |at| (key.wrapping_add_unsigned(at), RowId(row + at)))
    }

    fn goes_on_with(&self, next: &Self) -> bool {
        let keys = i128::from(next.first_key) - i128::from(self.first_key);
        keys == i128::from(self.rows) && next.first_row.0 == self.first_row.0 + self.rows
    }

    /// The row of `key`, if `key` is in the sequence.
    #[inline]
    pub fn row(&self, key: i64) -> Option<RowId> {
        let offset = key.checked_sub(self.first_key)?;
        let offset = u64::try_from(offset).ok().filter(|o| *o < self.rows)?;
        Some(RowId(self.first_row.0 + offset))
    }
}

/// Builds a sequence entry by entry.
#[derive(Debug, Default)]
pub(crate) struct SequenceBuilder {
    sequence: Option<KeySequence>,
    /// an entry did not continue the sequence
    is_broken: bool,
}

impl SequenceBuilder {
    /// Adds an entry; `key` is None if it is not an integer.
    #[inline]
    pub fn push(&mut self, key: Option<i64>, row: RowId) {
        if self.is_broken {
            return;
        }
        let (Some(key), sequence) = (key, &mut self.sequence) else {
            self.is_broken = true;
            return;
        };
        match sequence {
            None => {
                *sequence = Some(KeySequence {
                    first_key: key,
                    first_row: row,
                    rows: 1,
                });
            }
            Some(s) => {
                let offset = i128::from(key) - i128::from(s.first_key);
                if offset != i128::from(s.rows) || row.0.wrapping_sub(s.first_row.0) != s.rows {
                    self.is_broken = true;
                    return;
                }
                s.rows += 1;
            }
        }
    }

    /// The sequence of all entries; None if they form none, or are fewer than two.
    pub fn finish(self) -> Option<KeySequence> {
        self.sequence.filter(|s| s.rows > 1 && !self.is_broken)
    }
}

/// The sequences of one key.
#[derive(Debug, Default)]
pub struct KeySequences(ArcSwap<Vec<KeySequence>>);

impl KeySequences {
    /// Adds a sequence.
    pub fn add(&self, sequence: KeySequence) {
        self.0.rcu(|known| {
            let mut all = Vec::clone(known);
            let at = all.partition_point(|s| s.first_key <= sequence.first_key);
            match at.checked_sub(1).map(|before| &mut all[before]) {
                Some(before) if before.goes_on_with(&sequence) => before.rows += sequence.rows,
                _ => all.insert(at, sequence),
            }
            all
        });
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
                all.add(sequence);
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
            all.add(of.expect("a sequence"));
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
            all.add(KeySequence::of(entries(keys, row)).expect("a sequence"));
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
}
