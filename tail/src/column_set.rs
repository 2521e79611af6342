//! Sets of columns: a bit per column id.

use strandline_base::ColumnId;

/// Columns of a storage. The first 64, nearly always all, need no memory of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ColumnSet {
    first: u64,
    more: Vec<u64>,
}

/// The word of a column's bit, and the bit.
#[inline]
pub(crate) fn place(column: ColumnId) -> (usize, u64) {
    (column.0 as usize / 64, 1 << (column.0 % 64))
}

/// The columns of a word's bits.
#[inline]
pub(crate) fn columns_of_word(
    word: usize,
    mut bits: u64,
) -> impl Iterator<Item = ColumnId> + Clone {
    std::iter::from_fn(move || {
        let bit = bits.trailing_zeros();
        bits &= bits.wrapping_sub(1);
        (bit < 64).then_some(ColumnId(word as u32 * 64 + bit))
    })
}

impl ColumnSet {
    /// A word of bits; words behind the last are 0.
    #[inline]
    pub fn word(&self, at: usize) -> u64 {
        match at {
            0 => self.first,
            at => self.more.get(at - 1).copied().unwrap_or(0),
        }
    }
    /// Up to this many words have bits.
    #[inline]
    pub fn words(&self) -> usize {
        1 + self.more.len()
    }
    #[inline]
    fn word_mut(&mut self, at: usize) -> &mut u64 {
        match at {
            0 => &mut self.first,
            at => self.later_word(at),
        }
    }
    #[cold]
    fn later_word(&mut self, at: usize) -> &mut u64 {
        if self.more.len() < at {
            self.more.resize(at, 0);
        }
        &mut self.more[at - 1]
    }
    /// Adds a column.
    #[inline]
    pub fn insert(&mut self, column: ColumnId) {
        let (word, bit) = place(column);
        *self.word_mut(word) |= bit;
    }
    /// Adds the columns of a word of bits.
    #[inline]
    pub fn insert_word(&mut self, at: usize, bits: u64) {
        if bits != 0 {
            *self.word_mut(at) |= bits;
        }
    }
    /// Takes the columns of a word of bits away.
    #[inline]
    pub fn remove_word(&mut self, at: usize, bits: u64) {
        if self.word(at) & bits != 0 {
            *self.word_mut(at) &= !bits;
        }
    }
    /// Adds the columns of another set.
    pub fn insert_all(&mut self, other: &Self) {
        (0..other.words()).for_each(|at| self.insert_word(at, other.word(at)));
    }
    /// Takes the columns of another set away.
    pub fn remove_all(&mut self, other: &Self) {
        (0..other.words()).for_each(|at| self.remove_word(at, other.word(at)));
    }
    /// Takes the columns away that `keep` does not want.
    pub fn retain(&mut self, mut keep: impl FnMut(ColumnId) -> bool) {
        for at in 0..self.words() {
            let gone = columns_of_word(at, self.word(at)).filter(|column| !keep(*column));
            let gone = gone.fold(0, |bits, column| bits | place(column).1);
            self.remove_word(at, gone);
        }
    }
    /// Whether a column is in it.
    #[inline]
    pub fn contains(&self, column: ColumnId) -> bool {
        let (word, bit) = place(column);
        self.word(word) & bit != 0
    }
    /// Whether it has all the columns of another set.
    #[inline]
    pub fn contains_all(&self, other: &Self) -> bool {
        (0..other.words()).all(|at| other.word(at) & !self.word(at) == 0)
    }
    /// Whether no column is in it.
    #[inline]
    pub fn is_empty(&self) -> bool {
        (0..self.words()).all(|at| self.word(at) == 0)
    }
    /// The columns, in order.
    pub fn iter(&self) -> impl Iterator<Item = ColumnId> + Clone + '_ {
        (0..self.words()).flat_map(|at| columns_of_word(at, self.word(at)))
    }
}

impl FromIterator<ColumnId> for ColumnSet {
    fn from_iter<I: IntoIterator<Item = ColumnId>>(columns: I) -> Self {
        let mut set = Self::default();
        columns.into_iter().for_each(|column| set.insert(column));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(columns: &[u32]) -> ColumnSet {
        columns.iter().map(|&column| ColumnId(column)).collect()
    }

    #[test]
    fn sets_hold_what_was_put_in_across_words() {
        let some = set(&[200, 3, 63, 64, 3]);
        let ids: Vec<u32> = some.iter().map(|column| column.0).collect();
        assert_eq!(ids, [3, 63, 64, 200]);
        assert!(some.contains(ColumnId(64)) && !some.contains(ColumnId(65)));
        assert!(!some.contains(ColumnId(100_000)));
        assert!(!some.is_empty() && set(&[]).is_empty());
    }

    #[test]
    fn sets_compare_and_join_whatever_their_lengths() {
        let (short, long) = (set(&[1, 2]), set(&[1, 2, 130]));
        assert!(long.contains_all(&short) && !short.contains_all(&long));
        assert!(short.contains_all(&set(&[])) && set(&[]).contains_all(&set(&[])));
        let mut joined = short.clone();
        joined.insert_all(&long);
        assert_eq!(joined, long);
        joined.retain(|column| column.0 != 130);
        joined.remove_word(7, u64::MAX);
        assert!(short.contains_all(&joined) && joined.contains_all(&short));
        joined.remove_all(&set(&[2, 500]));
        assert!(joined.iter().eq([ColumnId(1)]));
    }
}
