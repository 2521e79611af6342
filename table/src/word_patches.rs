//! Patches of fixed-width columns, as tails' views have them, on their way into decoded values.

use std::ops::Range;
use strandline_tail::patches::PatchList;

/// Lists of words to be put in place of values, one after the other.
pub struct WordPatches<'a> {
    /// slots in the range, and words
    lists: Vec<(&'a [u16], &'a [u64])>,
    /// slots of the values that they are for; all lists' are at or after its start
    span: Range<usize>,
}

impl<'a> WordPatches<'a> {
    /// Patches of the values of some slots of a range; None if some are not words.
    pub fn of(lists: &[PatchList<'a>], span: &Range<usize>) -> Option<Self> {
        let lists = lists.iter().map(PatchList::words);
        let (lists, span) = (lists.collect::<Option<Vec<_>>>()?, span.clone());
        Some(Self { lists, span })
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
