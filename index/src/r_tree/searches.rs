//! Which searches run, so that the page of a node that has been taken away is used again only when
//! no search can come to it.
//!
//! A search that has read a node's parent before the node was taken away still goes to its page.
//! The registry has an epoch, which every removal ends. A search that begins after a removal does
//! not meet the node. So its page is free once all searches of the epochs up to the removal's have
//! ended. Pages that wait when the database is closed stay unused until REINDEX.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use strandline_base::sync::Mutex;
use strandline_storage::pages::PageNumber;

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Searches(Mutex<State>);

#[derive(Default)]
struct State {
    epoch: u64,
    /// the number of searches that began in an epoch, if there are any
    running: BTreeMap<u64, usize>,
    /// pages that wait, each with the epoch that its removal has ended
    left: VecDeque<(u64, PageNumber)>,
}

/// A search that runs.
pub(super) struct Running {
    searches: Arc<Searches>,
    epoch: u64,
}

impl Searches {
    /// A search begins; it has not read a page yet.
    pub fn begin(self: &Arc<Self>) -> Running {
        let mut state = self.0.lock();
        let epoch = state.epoch;
        *state.running.entry(epoch).or_default() += 1;
        Running {
            searches: self.clone(),
            epoch,
        }
    }

    /// Nodes have been taken away: no node leads to their pages. Returns the pages that no search
    /// comes to any more, of these and earlier ones.
    pub fn end_epoch(&self, pages: &[PageNumber]) -> Vec<PageNumber> {
        let mut state = self.0.lock();
        let epoch = state.epoch;
        state.epoch += 1;
        state.left.extend(pages.iter().map(|page| (epoch, *page)));
        let oldest = state.running.first_key_value().map(|(epoch, _)| *epoch);
        let mut free = Vec::new();
        while let Some((epoch, page)) = state.left.front().copied()
            && oldest.is_none_or(|oldest| epoch < oldest)
        {
            state.left.pop_front();
            free.push(page);
        }
        free
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut state = self.searches.0.lock();
        if let Some(searches) = state.running.get_mut(&self.epoch) {
            *searches -= 1;
            if *searches == 0 {
                state.running.remove(&self.epoch);
            }
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn a_page_waits_for_the_searches_that_began_before_its_removal() {
        let searches = Arc::new(Searches::default());
        let page = |no| [PageNumber(no)];
        assert_eq!(searches.end_epoch(&page(1)), page(1), "nothing runs");
        let (first, second) = (searches.begin(), searches.begin());
        assert_eq!(searches.end_epoch(&page(2)), []);
        let third = searches.begin();
        assert_eq!(searches.end_epoch(&page(3)), []);
        drop(first);
        assert_eq!(
            searches.end_epoch(&[]),
            [],
            "the second one may come to page 2"
        );
        drop(second);
        assert_eq!(searches.end_epoch(&page(4)), page(2));
        drop(third);
        assert_eq!(searches.end_epoch(&[]), [PageNumber(3), PageNumber(4)]);
    }
}
