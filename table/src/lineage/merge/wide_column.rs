//! Merging one column of text or bytea in bounded memory, for values of any size.
//!
//! Updates may put any number of bytes into the rows of a range that was full when its rows were
//! narrow. A column of more than [`WIDE_BYTES`] is read, patched, encoded and written block by
//! block (4,096 rows).
//!
//! Invariants:
//! 1. Of a wide column the merge holds [`WIDE_BYTES`] of distinct values, and one block in four
//!    forms: base's, patched, encoded, and decoded again for the comparison.
//! 2. Blocks of a wide column's old chunk are read past the pool: readers keep their frames.
//! 3. A column whose distinct values have at most [`WIDE_BYTES`] is encoded as a whole, so that it
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
use strandline_column::chunk::{ChunkStream, encode_chunk};
use strandline_column::types::{arrow_type, is_of_any_length};
use strandline_storage::file::Extent;
use strandline_storage::file::data_file::DataFileWriter;

/// A column of more bytes, as base and tails have them, is merged block by block.
const WIDE_BYTES: usize = 4 << 20;

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
}

impl MergedColumn<'_> {
    /// Encodes and writes the column.
    pub fn write(&self, writer: &mut DataFileWriter) -> Result<Extent> {
        let (t, rows) = (self.spec.sql_type, self.snapshot.rows());
        let part = self.snapshot.part(0..rows);
        if !is_of_any_length(t) || part.stored_bytes(self.at) <= WIDE_BYTES as u64 {
            let array = scrub(self.spec, part.column(self.at)?, self.meta, 0)?;
            let blob = writer.blob(|identity, out| encode_chunk(t, &array, identity, out));
            return Ok(blob?.0);
        }
        drop(part);
        let head = match arrow_type(t) {
            DataType::Utf8View => self.head::<StringViewType>()?,
            _ => self.head::<BinaryViewType>()?,
        };
        if head.len() == rows {
            let blob = writer.blob(|identity, out| encode_chunk(t, &head, identity, out));
            return Ok(blob?.0);
        }
        let blob = writer.blob_in_pieces(|identity, pieces| {
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
        });
        Ok(blob?.0)
    }

    /// The block that begins at row `first`.
    fn block(&self, first: usize) -> Result<ArrayRef> {
        let end = self.snapshot.rows().min(first + BLOCK_ROWS);
        let part = self.snapshot.part(first..end).past_the_pool();
        scrub(self.spec, part.column(self.at)?, self.meta, first)
    }

    /// The first blocks, each distinct value once: all, or until they have [`WIDE_BYTES`].
    fn head<T: ByteViewType>(&self) -> Result<ArrayRef> {
        let mut values = GenericByteViewBuilder::<T>::new().with_deduplicate_strings();
        for first in (0..self.snapshot.rows()).step_by(BLOCK_ROWS) {
            let block = self.block(first)?;
            let block: &GenericByteViewArray<T> = block.as_byte_view();
            block.iter().for_each(|value| values.append_option(value));
            if values.allocated_size() > WIDE_BYTES {
                break;
            }
        }
        Ok(Arc::new(values.finish()))
    }
}

#[cfg(test)]
mod tests;
