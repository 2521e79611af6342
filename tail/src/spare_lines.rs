//! The cache lines of dropped tail pages, kept for the next pages.
//!
//! Between two merges writers ask for about as much memory as the last one has given back. The
//! allocator would return it to the operating system in between, which clears every page of it
//! again: a seventh of a writer's time.
//!
//! Invariants:
//! 1. Lines are all zero when they are taken: their records are not published.
//! 2. Pages and spare lines together never hold more than pages once did; lines that are not needed
//!    any more are given back by and by ([`SpareLines::trim`]).
//!
//! Lock order: `shelves` comes last.

use crate::record_words::RecordWords;
use std::collections::BTreeMap;
use strandline_base::sync::Mutex;

/// Fewer lines are the allocator's business: 4 KiB.
const LINES_MIN: usize = 64;
/// The part of spare lines that a trim releases, if they were not needed since the last trim: half
/// of them within 22 trims.
const TRIMMED_PART: usize = 32;

/// Lines by how many a page has.
#[derive(Debug, Default)]
pub(crate) struct SpareLines {
    shelves: Mutex<BTreeMap<usize, Shelf>>,
}

/// Lines of pages of one size.
#[derive(Debug, Default)]
struct Shelf {
    pages: Vec<RecordWords>,
    /// the fewest that there were since the last trim
    unneeded: usize,
}

impl SpareLines {
    /// `lines` lines of zeros.
    pub fn take(&self, lines: usize) -> RecordWords {
        match self.take_kept(lines) {
            Some(mut kept) => {
                kept.clear();
                kept
            }
            None => RecordWords::zeros(lines),
        }
    }

    fn take_kept(&self, lines: usize) -> Option<RecordWords> {
        if lines < LINES_MIN {
            return None;
        }
        let mut shelves = self.shelves.lock();
        let shelf = shelves.get_mut(&lines)?;
        let kept = shelf.pages.pop();
        shelf.unneeded = shelf.unneeded.min(shelf.pages.len());
        kept
    }

    /// Keeps the lines of a page that no reader holds any more.
    pub fn give(&self, words: RecordWords) {
        let lines = words.lines();
        if lines >= LINES_MIN {
            let mut shelves = self.shelves.lock();
            shelves.entry(lines).or_default().pages.push(words);
        }
    }

    /// Releases a part of the lines not needed since the last call.
    pub fn trim(&self) {
        let mut dropped = Vec::new();
        let mut shelves = self.shelves.lock();
        for shelf in shelves.values_mut() {
            let most = shelf.unneeded.div_ceil(TRIMMED_PART);
            dropped.extend(shelf.pages.drain(..most));
            shelf.unneeded = shelf.pages.len();
        }
        shelves.retain(|_, shelf| !shelf.pages.is_empty());
        drop(shelves);
        // The allocator gets them with nothing locked.
        drop(dropped);
    }

    /// Bytes of all lines.
    pub fn bytes(&self) -> usize {
        let shelves = self.shelves.lock();
        let lines = shelves
            .iter()
            .map(|(lines, shelf)| lines * shelf.pages.len());
        RecordWords::bytes(lines.sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strandline_base::sync::Ordering;

    const WORDS: usize = LINES_MIN * 8;

    #[test]
    fn lines_come_back_empty() {
        let spare = SpareLines::default();
        let lines = spare.take(LINES_MIN);
        lines.at(59, 1)[0].store(5, Ordering::Relaxed);
        let address = lines.at(0, WORDS).as_ptr();
        spare.give(lines);
        assert_eq!(spare.bytes(), LINES_MIN * 64);
        assert_eq!(
            spare.take(LINES_MIN + 1).lines(),
            LINES_MIN + 1,
            "another size"
        );
        let again = spare.take(LINES_MIN);
        assert_eq!(again.at(0, WORDS).as_ptr(), address);
        assert!((0..WORDS).all(|at| again.load(at) == 0));
        assert_eq!(spare.bytes(), 0);
    }

    #[test]
    fn few_lines_are_not_kept() {
        let spare = SpareLines::default();
        spare.give(spare.take(LINES_MIN - 1));
        assert_eq!(spare.bytes(), 0);
    }

    #[test]
    fn what_nobody_needs_goes() {
        let spare = SpareLines::default();
        let pages: Vec<_> = (0..100).map(|_| spare.take(LINES_MIN)).collect();
        pages.into_iter().for_each(|page| spare.give(page));
        let kept = || spare.bytes() / (LINES_MIN * 64);
        spare.trim();
        assert_eq!(kept(), 100, "they have only just come");
        // A writer and a merge that use 90 of them by turns keep those.
        for _ in 0..200 {
            let pages: Vec<_> = (0..90).map(|_| spare.take(LINES_MIN)).collect();
            spare.trim();
            pages.into_iter().for_each(|page| spare.give(page));
            spare.trim();
        }
        assert_eq!(kept(), 90);
        (0..200).for_each(|_| spare.trim());
        assert_eq!(kept(), 0);
        assert!(spare.shelves.lock().is_empty());
    }
}
