//! Claimed records. Drop publishes them, also when their writer panics.

use crate::record_page::RecordPage;
use strandline_txn::StartWord;

/// A record that is published as a tombstone unless its writer gets as far as publishing it.
pub struct Claimed<'a> {
    page: &'a RecordPage,
    i: u32,
    word: StartWord,
}

impl<'a> Claimed<'a> {
    /// Record `i` of `page`, which the caller has claimed.
    pub fn new(page: &'a RecordPage, i: u32) -> Self {
        let word = StartWord::ABORTED;
        Self { page, i, word }
    }
    /// Publishes it.
    pub fn publish(mut self, word: StartWord) {
        self.word = word;
    }
}

impl Drop for Claimed<'_> {
    fn drop(&mut self) {
        self.page.set_start(self.i, self.word);
    }
}
