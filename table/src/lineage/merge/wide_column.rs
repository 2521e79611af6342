//! Merging one column of text or bytea in bounded memory, for values of any size.
//!
//! Updates may put any number of bytes into the rows of a range that was full when its rows were
//! narrow. A column of more than `wide_bytes` ([`Shared::merge_column_bytes`]) is read, patched,
//! encoded and written block by block (4,096 rows).
//!
//! [`Shared::merge_column_bytes`]: crate::lineage::Shared::merge_column_bytes
//!
//! Invariants:
//! 1. Of a wide column the merge holds `wide_bytes` of distinct values, and one block in four
//!    forms: base's, patched, encoded, and decoded again for the comparison.
//! 2. Blocks of a wide column's old chunk are read past the pool: readers keep their frames.
//! 3. A column whose distinct values have at most `wide_bytes` is encoded as a whole, so that it
//!    gets a dictionary if that is smaller.

use super::scrub;
use crate::lineage::base::row_meta::RowMeta;
use crate::lineage::scan::RangeSnapshot;
use arrow_array::builder::GenericByteViewBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::{BinaryViewType, ByteViewType, StringViewType};
use arrow_array::{Array, ArrayRef, GenericByteViewArray};
use arrow_schema::DataType;
use std::sync::Arc;
use strandline_base::cell::StorageColumn;
use strandline_base::{BLOCK_ROWS, Result};
use strandline_column::chunk::{ChunkFooter, ChunkStream, encode_chunk};
use strandline_column::types::{arrow_type, is_of_any_length};
use strandline_storage::file::Extent;
use strandline_storage::file::data_file::DataFileWriter;

/// A column of a range as it is to be written.
pub(super) struct MergedColumn<'a> {
    /// the range
    pub snapshot: &'a RangeSnapshot,
    /// the column's position in the snapshot
    pub at: usize,
    /// its definition
    pub spec: &'a StorageColumn,
    /// the rows' metadata; rows that were never there lose their values
    pub meta: &'a RowMeta,
    /// a column of more bytes, as base and tails have them, is merged block by block
    pub wide_bytes: usize,
}

impl MergedColumn<'_> {
    /// Encodes and writes the column; its place and its footer.
    pub fn write(&self, writer: &mut DataFileWriter) -> Result<(Extent, ChunkFooter)> {
        let (t, rows) = (self.spec.sql_type, self.snapshot.rows());
        let part = self.snapshot.part(0..rows);
        if !is_of_any_length(t) || part.stored_bytes(self.at) <= self.wide_bytes as u64 {
            let array = scrub(self.spec, part.column(self.at)?, self.meta, 0)?;
            return writer.blob(|identity, out| encode_chunk(t, &array, identity, out));
        }
        drop(part);
        let head = match arrow_type(t) {
            DataType::Utf8View => self.head::<StringViewType>()?,
            _ => self.head::<BinaryViewType>()?,
        };
        if head.len() == rows {
            return writer.blob(|identity, out| encode_chunk(t, &head, identity, out));
        }
        writer.blob_in_pieces(|identity, pieces| {
            let mut stream = ChunkStream::new(t, rows, &head, identity)?;
            for first in (0..rows).step_by(BLOCK_ROWS) {
                let block = match first < head.len() {
                    true => head.slice(first, BLOCK_ROWS),
                    false => self.block(first)?,
                };
                stream.push(&block, pieces.buffer())?;
                pieces.written()?;
            }
            stream.finish(pieces.buffer())
        })
    }

    /// The block that begins at row `first`.
    fn block(&self, first: usize) -> Result<ArrayRef> {
        let end = self.snapshot.rows().min(first + BLOCK_ROWS);
        let part = self.snapshot.part(first..end).past_the_pool();
        scrub(self.spec, part.column(self.at)?, self.meta, first)
    }

    /// The first blocks, each distinct value once: all, or until they have `wide_bytes`.
    fn head<T: ByteViewType>(&self) -> Result<ArrayRef> {
        let mut values = GenericByteViewBuilder::<T>::new().with_deduplicate_strings();
        for first in (0..self.snapshot.rows()).step_by(BLOCK_ROWS) {
            let block = self.block(first)?;
            let block: &GenericByteViewArray<T> = block.as_byte_view();
            block.iter().for_each(|value| values.append_option(value));
            if values.allocated_size() > self.wide_bytes {
                break;
            }
        }
        Ok(Arc::new(values.finish()))
    }
}

#[cfg(test)]
mod tests;
