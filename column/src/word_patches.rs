//! New words for rows of a fixed-width column, to be put in place of decoded values.

use std::ops::Range;

/// Lists of words to be put in place of values, one after the other.
pub struct WordPatches<'a> {
    /// slots in the range, and words
    lists: Vec<(&'a [u16], &'a [u64])>,
    /// slots of the values that they are for; all lists' are at or after its start
    span: Range<usize>,
}

impl<'a> WordPatches<'a> {
    /// `lists` of slots in the range and words, for the values of the slots in `span`. Every slot
    /// is at or after the start of `span`.
    pub fn new(lists: Vec<(&'a [u16], &'a [u64])>, span: Range<usize>) -> Self {
        Self { lists, span }
    }

    /// Visits rows and words in order; of one row the last counts.
    pub fn for_each(&self, mut visit: impl FnMut(usize, u64)) {
        let rows = self.span.len();
        for (slots, words) in &self.lists {
            for (slot, word) in slots.iter().zip(*words) {
                let row = usize::from(*slot) - self.span.start;
                // The last update range may have got rows since.
                if row < rows {
                    visit(row, *word);
                }
            }
        }
    }
}
