//! The rows that may have entries under several keys of one secondary index.
//!
//! Readers take values from an entry instead of its row (`statement::covered_rows`). They may do so
//! while the entry is the only one of its row. A row is *marked* here before a second entry of it
//! can be found, and while it has no entry although it had one.
//!
//! Invariants:
//! 1. An update marks its row before it enters the row's new key, so before it commits. A build
//!    marks each row whose versions have, or had, other values.
//! 2. A sweep removes a mark when it has left the row one entry, under the key that every moment
//!    sees that may be asked for, and while no key can be entered ([`RowKeys`]). It advances
//!    `settled` before that.
//! 3. A rollback removes no mark. Its entries have been seen by readers.
//! 4. An index that is no longer maintained has all rows marked.
//! 5. The rows of an index whose entries were there at opening count as marked until each entry has
//!    been compared with its row (`maintenance::opened_entries`).
//!
//! A reader loads `settled`, reads entries, reads the rows' marks and loads `settled` again. If
//! both are equal, no mark was removed in between. So an unmarked row was unmarked all that time
//! (or was settled before, and its other entries with it), and its entry is the only one.
//!
//! Memory: a bit for each row in blocks of 4,096 rows that have a marked one. It counts as indexes'
//! memory.
//!
//! [`RowKeys`]: strandline_index::RowKeys

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use strandline_base::RowId;
use strandline_base::sync::{AtomicBool, AtomicU64, Ordering, RwLock};

/// Rows whose marks stand together.
const BLOCK_ROWS: u64 = 4096;
const WORD_BITS: u64 = u64::BITS as u64;
const WORDS: usize = (BLOCK_ROWS / WORD_BITS) as usize;

type Block = [AtomicU64; WORDS];

/// See the module's documentation.
pub(crate) struct MovedRows {
    /// by row number / [`BLOCK_ROWS`]
    blocks: RwLock<Vec<Option<Box<Block>>>>,
    /// whether every row is marked
    all: AtomicBool,
    /// whether there are entries that have not been compared with their rows
    unknown: AtomicBool,
    /// how often marks were removed
    settled: AtomicU64,
    /// bytes of the blocks
    counted: AtomicUsize,
    /// bytes that indexes use
    memory: Arc<AtomicUsize>,
}

/// A moment before entries are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settled(u64);

impl MovedRows {
    /// No row is marked.
    pub fn counted(memory: Arc<AtomicUsize>) -> Self {
        Self {
            blocks: RwLock::default(),
            all: AtomicBool::new(false),
            unknown: AtomicBool::new(false),
            settled: AtomicU64::new(0),
            counted: AtomicUsize::new(0),
            memory,
        }
    }

    /// Marks a row.
    pub fn mark(&self, row: RowId) {
        let (at, word, bit) = place(row);
        if let Some(Some(block)) = self.blocks.read().get(at) {
            // Rows that move often are marked already: a load leaves the cache line shared.
            if block[word].load(Ordering::Relaxed) & bit == 0 {
                block[word].fetch_or(bit, Ordering::Release);
            }
            return;
        }
        let mut blocks = self.blocks.write();
        if blocks.len() <= at {
            let before = blocks.capacity();
            blocks.resize_with(at + 1, || None);
            self.count((blocks.capacity() - before) * size_of::<Option<Box<Block>>>());
        }
        let block = blocks[at].get_or_insert_with(|| {
            self.count(size_of::<Block>());
            Box::new(std::array::from_fn(|_| AtomicU64::new(0)))
        });
        block[word].fetch_or(bit, Ordering::Release);
    }

    /// Marks all rows, for good.
    pub fn mark_all(&self) {
        self.all.store(true, Ordering::Release);
    }

    /// Nothing is known of the entries.
    pub fn note_unknown(&self) {
        self.unknown.store(true, Ordering::Release);
    }

    /// Whether nothing is known of the entries.
    pub fn are_unknown(&self) -> bool {
        self.unknown.load(Ordering::Acquire)
    }

    /// The rows of all entries have been marked, except those with one entry under the right key.
    pub fn tell(&self) {
        self.settled.fetch_add(1, Ordering::AcqRel);
        self.unknown.store(false, Ordering::Release);
    }

    /// Removes the mark of a row; see invariant 2.
    pub fn settle(&self, row: RowId) {
        let (at, word, bit) = place(row);
        if let Some(Some(block)) = self.blocks.read().get(at) {
            self.settled.fetch_add(1, Ordering::AcqRel);
            block[word].fetch_and(!bit, Ordering::Release);
        }
    }

    /// To be called before entries are read.
    pub fn settled(&self) -> Settled {
        Settled(self.settled.load(Ordering::Acquire))
    }

    /// For each of `rows`, of which entries have been read since `since`, whether its entry is its
    /// only one.
    pub fn unmoved(&self, since: Settled, rows: &[RowId]) -> Vec<bool> {
        let blocks = self.blocks.read();
        let unmarked = rows.iter().map(|row| !is_marked(&blocks, *row));
        let mut unmoved: Vec<bool> = unmarked.collect();
        if !self.is_told_since(since) {
            unmoved.fill(false);
        }
        unmoved
    }

    /// The same of one row.
    pub fn is_unmoved(&self, since: Settled, row: RowId) -> bool {
        !is_marked(&self.blocks.read(), row) && self.is_told_since(since)
    }

    /// Whether marks that were there at `since` or later are there still. To be asked after the
    /// marks.
    fn is_told_since(&self, since: Settled) -> bool {
        !self.are_unknown() && self.settled() == since && !self.all.load(Ordering::Acquire)
    }

    fn count(&self, bytes: usize) {
        self.counted.fetch_add(bytes, Ordering::Relaxed);
        self.memory.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Drop for MovedRows {
    fn drop(&mut self) {
        let bytes = self.counted.load(Ordering::Relaxed);
        self.memory.fetch_sub(bytes, Ordering::Relaxed);
    }
}

fn is_marked(blocks: &[Option<Box<Block>>], row: RowId) -> bool {
    let (at, word, bit) = place(row);
    let block = blocks.get(at).and_then(Option::as_ref);
    block.is_some_and(|block| block[word].load(Ordering::Acquire) & bit != 0)
}

/// The block of a row, the word within it and the bit within that.
fn place(row: RowId) -> (usize, usize, u64) {
    let within = row.0 % BLOCK_ROWS;
    let (word, bit) = (within / WORD_BITS, within % WORD_BITS);
    ((row.0 / BLOCK_ROWS) as usize, word as usize, 1 << bit)
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use strandline_base::RangeNo;

    fn rows() -> Vec<RowId> {
        let at = |range, slot| RowId::new(RangeNo(range), slot);
        vec![at(0, 0), at(0, 4095), at(0, 4096), at(3, 65535), at(4, 7)]
    }

    #[test]
    fn marked_rows_are_moved_until_they_are_settled() {
        let memory: Arc<AtomicUsize> = Arc::default();
        let moved = MovedRows::counted(memory.clone());
        let (rows, since) = (rows(), moved.settled());
        assert_eq!(moved.unmoved(since, &rows), [true; 5]);
        moved.mark(rows[1]);
        moved.mark(rows[3]);
        assert_eq!(
            moved.unmoved(since, &rows),
            [true, false, true, false, true]
        );
        moved.settle(rows[1]);
        // Entries that were read before may be those that the sweep has removed.
        assert_eq!(moved.unmoved(since, &rows), [false; 5]);
        let since = moved.settled();
        assert_eq!(moved.unmoved(since, &rows), [true, true, true, false, true]);
        moved.mark_all();
        assert_eq!(moved.unmoved(since, &rows), [false; 5]);
        assert!(memory.load(Ordering::Relaxed) >= 2 * size_of::<Block>());
        drop(moved);
        assert_eq!(memory.load(Ordering::Relaxed), 0);
    }
}
