//! Patches of fixed-width columns, as tails' views have them, on their way into decoded values.

use strandline_base::UPDATE_ROWS;
use strandline_tail::overlay::Patches;

/// Lists of words to be put in place of values, one after the other, each for an update range that
/// begins at a row.
pub struct WordPatches<'a> {
    lists: Vec<(usize, &'a Patches)>,
    rows: usize,
}

impl<'a> WordPatches<'a> {
    /// Patches of an array of `rows` rows; None if some are not words.
    pub fn of(lists: &[(usize, &'a Patches)], rows: usize) -> Option<Self> {
        let all = lists.iter().all(|(_, list)| list.words().is_some());
        all.then(|| Self {
            lists: lists.to_vec(),
            rows,
        })
    }

    /// Visits rows and words in order; of one row the last counts.
    pub fn for_each(&self, mut visit: impl FnMut(usize, u64)) {
        for (first, list) in &self.lists {
            let is_whole = first + UPDATE_ROWS <= self.rows;
            for (slot, word) in list.words().into_iter().flatten() {
                let row = first + usize::from(slot);
                // The last update range may have got rows since.
                if is_whole || row < self.rows {
                    visit(row, word);
                }
            }
        }
    }
}
