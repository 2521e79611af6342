//! New words that replace decoded values of a fixed-width column.

use std::ops::Range;

/// Lists of words that replace values, applied in order.
pub struct WordPatches<'a> {
    /// slots within the range, and words
    lists: Vec<(&'a [u16], &'a [u64])>,
    /// the slots of the values; all lists' slots are at or after its start
    span: Range<usize>,
}

impl<'a> WordPatches<'a> {
    /// `lists` of slots within the range and words, for the values of the slots in `span`. Every
    /// slot is at or after the start of `span`.
    pub fn new(lists: Vec<(&'a [u16], &'a [u64])>, span: Range<usize>) -> Self {
        Self { lists, span }
    }

    /// Visits rows and words in order; the last word of a row wins.
    pub fn for_each(&self, mut visit: impl FnMut(usize, u64)) {
        let rows = self.span.len();
        for (slots, words) in &self.lists {
            for (slot, word) in slots.iter().zip(*words) {
                let row = usize::from(*slot) - self.span.start;
                // The last update range may have grown since.
                if row < rows {
                    visit(row, *word);
                }
            }
        }
    }
}
