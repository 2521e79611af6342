//! Pages of rows as text.

use super::{Batches, PrintError, cell, printable};

/// Rows of a page. So many are read before the first is printed.
const PAGE_ROWS: usize = 10_000;

/// A page of rows as text. `None` is NULL.
pub(super) type Page = Vec<Vec<Option<String>>>;

/// Reads a page of rows at a time; a page is shorter only at the end.
pub(super) struct Pages<'a> {
    batches: &'a mut dyn Batches,
    pending: Option<(arrow::array::RecordBatch, usize)>,
}

impl<'a> Pages<'a> {
    pub(super) fn new(batches: &'a mut dyn Batches) -> Self {
        Self {
            batches,
            pending: None,
        }
    }

    pub(super) fn next_page(&mut self) -> Result<Page, PrintError> {
        let mut page = Page::new();
        while page.len() < PAGE_ROWS {
            let Some((batch, mut row)) = (match self.pending.take() {
                Some(pending) => Some(pending),
                None => self.batches.next_batch()?.map(|batch| (batch, 0)),
            }) else {
                break;
            };
            while row < batch.num_rows() && page.len() < PAGE_ROWS {
                page.push(
                    batch
                        .columns()
                        .iter()
                        .map(|array| cell(array, row).map(|text| printable(&text)))
                        .collect(),
                );
                row += 1;
            }
            if row < batch.num_rows() {
                self.pending = Some((batch, row));
            }
        }
        Ok(page)
    }
}
