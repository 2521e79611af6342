//! Insert ranges: rows that have not been turned into chunks yet \[L-Store §3.2\].
//!
//! Row `slot` of the range is record `slot` of its pages (the paper's aligned base and tail RIDs).
//! The first pages are small (64, 64, 128 … rows up to 4,096), later ones hold 4,096 rows.
//!
//! Invariants:
//! 1. Slots are claimed once, in order; a claimed slot is published by its writer, as aborted if
//!    the row could not be written; recovery marks slots without a committed row as aborted.
//! 2. Once `close` was called no slot is claimed any more.
//!
//! Differences from the paper: a table has one open insert range, where the paper has several, one
//! for each group of concurrent inserters. All claim slots of it with one compare-and-swap; each
//! writes values into its own slots only. So rows lie in the order of the claims.

use crate::change::{PendingStamp, Writer};
use crate::claimed::Claimed;
use crate::page_memory::PageBytes;
use crate::record_page::RecordPage;
use crate::schema::StorageSchema;
use std::sync::Arc;
use strandline_base::sync::{AtomicU32, AtomicU64, OnceLock, Ordering};
use strandline_base::{ColumnId, CommitTs, Error, RANGE_ROWS, Result, UPDATE_ROWS, Value};
use strandline_txn::StartWord;

const FIRST_PAGE: usize = 64;
const FIRST_PAGE_BITS: usize = FIRST_PAGE.ilog2() as usize;
/// 64, 64, 128, …, 2048: seven pages up to 4,096 rows, then one per 4,096.
const SMALL_PAGES: usize = UPDATE_ROWS.ilog2() as usize - FIRST_PAGE_BITS + 1;
const PAGES: usize = SMALL_PAGES + RANGE_ROWS / UPDATE_ROWS - 1;

const CLOSED: u32 = 1 << 31;

/// The rows of a range before its first merge.
#[derive(Debug)]
pub struct InsertRange {
    schema: Arc<StorageSchema>,
    pages: [OnceLock<Arc<RecordPage>>; PAGES],
    next: AtomicU32,
    /// every committed row up to this timestamp is in a run
    persisted_through: AtomicU64,
    bytes: PageBytes,
}

fn page_of(slot: usize) -> usize {
    if slot < FIRST_PAGE {
        0
    } else if slot < UPDATE_ROWS {
        slot.ilog2() as usize - FIRST_PAGE_BITS + 1
    } else {
        SMALL_PAGES - 1 + slot / UPDATE_ROWS
    }
}

fn page_bounds(page: usize) -> (usize, usize) {
    match page {
        0 => (0, FIRST_PAGE),
        p if p < SMALL_PAGES => (FIRST_PAGE << (p - 1), FIRST_PAGE << (p - 1)),
        p => ((p + 1 - SMALL_PAGES) * UPDATE_ROWS, UPDATE_ROWS),
    }
}

impl InsertRange {
    /// An empty insert range for rows of `schema`.
    pub fn new(schema: Arc<StorageSchema>, bytes: &PageBytes) -> Self {
        Self {
            schema,
            pages: [const { OnceLock::new() }; PAGES],
            next: AtomicU32::new(0),
            persisted_through: AtomicU64::new(0),
            bytes: bytes.clone(),
        }
    }
    /// The columns its rows have. Columns added later show their missing value.
    pub fn schema(&self) -> &Arc<StorageSchema> {
        &self.schema
    }
    /// Claims up to `wanted` consecutive slots; None if the range is full or closed.
    pub fn claim(&self, wanted: u32) -> Option<std::ops::Range<u32>> {
        let mut next = self.next.load(Ordering::Acquire);
        loop {
            let end = (next & !CLOSED)
                .saturating_add(wanted)
                .min(RANGE_ROWS as u32);
            if next >= end {
                return None;
            }
            match self
                .next
                .compare_exchange(next, end, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => return Some(next..end),
                Err(seen) => next = seen,
            }
        }
    }
    /// Inserts one row, `values` by column id; its slot, or None if the range is full or closed.
    /// Appends the records to be stamped to `written`.
    pub fn insert(
        &self,
        values: &[Value],
        writer: &Writer,
        written: &mut Vec<PendingStamp>,
    ) -> Result<Option<u16>> {
        let Some(slots) = self.claim(1) else {
            return Ok(None);
        };
        let (page, i) = self.page(slots.start as usize);
        let claimed = Claimed::new(page, i);
        self.schema.iter().try_for_each(|(column, spec)| {
            let value = values.get(column.0 as usize).unwrap_or(&Value::Null);
            page.put(i, column, spec, value)
        })?;
        page.set_statement(i, writer.statement);
        claimed.publish(writer.word);
        written.push(PendingStamp::Records(page.clone(), i, i + 1));
        Ok(Some(slots.start as u16))
    }

    /// Recovery: puts a row committed at `ts` back into `slot`, unless it is there already: a run
    /// and the log may both have it.
    ///
    /// # Errors
    /// Internal if a value is of a column that the range does not have.
    pub fn restore(&self, slot: u16, values: &[(ColumnId, Value)], ts: CommitTs) -> Result<()> {
        self.claim_through(u32::from(slot));
        let (page, i) = self.page(usize::from(slot));
        if page.start(i) != StartWord::UNPUBLISHED {
            return Ok(());
        }
        let len = self.schema.len();
        if let Some((column, _)) = values.iter().find(|(c, _)| c.0 as usize >= len) {
            return Err(Error::internal(format!(
                "row {slot} of a range has a value of column {column}, the range has {len} columns"
            )));
        }
        // Other rows of the page may have columns that this row is older than.
        for (column, spec) in self.schema.iter() {
            let value = values.iter().find(|(c, _)| *c == column);
            page.put(i, column, spec, value.map_or(&spec.missing, |(_, v)| v))?;
        }
        page.set_start(i, StartWord::committed(ts));
        Ok(())
    }

    /// Recovery: makes sure that `slot` counts as claimed.
    pub fn claim_through(&self, slot: u32) {
        self.next.fetch_max(slot + 1, Ordering::AcqRel);
    }
    /// Stops further claims, so that the range can become base; returns the rows it has.
    pub fn close(&self) -> u32 {
        self.next.fetch_or(CLOSED, Ordering::AcqRel);
        self.rows()
    }
    /// Whether further claims are refused.
    pub fn is_closed(&self) -> bool {
        self.next.load(Ordering::Acquire) & CLOSED != 0
    }
    /// Claimed slots.
    pub fn rows(&self) -> u32 {
        self.next.load(Ordering::Acquire) & !CLOSED
    }
    /// The page of `slot` and the row's index in it, allocated if need be.
    pub fn page(&self, slot: usize) -> (&Arc<RecordPage>, u32) {
        let page = page_of(slot);
        let (first, capacity) = page_bounds(page);
        let page = self.pages[page].get_or_init(|| {
            let page = RecordPage::insert(first as u32, capacity as u32, &self.schema, &self.bytes);
            Arc::new(page)
        });
        (page, (slot - first) as u32)
    }
    /// The page of `slot` if it exists: an unallocated page holds no published row.
    pub fn existing_page(&self, slot: usize) -> Option<(&Arc<RecordPage>, u32)> {
        let page = page_of(slot);
        Some((self.pages[page].get()?, (slot - page_bounds(page).0) as u32))
    }
    /// Bytes that its pages hold.
    pub fn memory_bytes(&self) -> usize {
        let pages = self.pages.iter().filter_map(OnceLock::get);
        pages.map(|page| page.memory_bytes()).sum()
    }
    /// Recovery is over: claimed slots that hold no row by now never will.
    pub fn abandon_unpublished(&self) {
        for slot in 0..self.rows() as usize {
            let (page, i) = self.page(slot);
            if page.start(i) == StartWord::UNPUBLISHED {
                page.set_start(i, StartWord::ABORTED);
            }
        }
    }
    /// Every committed row up to this timestamp is in a run.
    pub fn persisted_through(&self) -> u64 {
        self.persisted_through.load(Ordering::Acquire)
    }
    /// Notes that every committed row up to `ts` is in a run.
    pub fn set_persisted_through(&self, ts: u64) {
        self.persisted_through.store(ts, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_map_to_pages_without_gaps() {
        let mut slot = 0;
        for page in 0..PAGES {
            let (first, capacity) = page_bounds(page);
            assert_eq!(first, slot, "page {page}");
            assert_eq!(page_of(first), page);
            assert_eq!(page_of(first + capacity - 1), page);
            slot = first + capacity;
        }
        assert_eq!(slot, RANGE_ROWS);
    }

    #[test]
    fn claims_stop_at_the_end() {
        let range = InsertRange::new(StorageSchema::new([]), &PageBytes::default());
        assert_eq!(range.claim(10), Some(0..10));
        assert_eq!(range.claim(RANGE_ROWS as u32), Some(10..RANGE_ROWS as u32));
        assert_eq!(range.claim(1), None);
        assert_eq!(range.rows(), RANGE_ROWS as u32);
    }
}
