//! Encodes a column that is in memory, block by block, so that the encoded chunk need not be there
//! as a whole.
//!
//! A block is decoded again and compared before [`ChunkEncoder::next_block`] returns: a chunk is
//! never decoded as a whole either.

use super::{
    BlockEncoder, CODECS, ChunkCodec, ChunkFooter, Column, MAX_CHUNK_ROWS, encode_block, read_back,
};
use crate::types::arrow_type;
use arrow_array::{Array, ArrayRef};
use strandline_base::{BLOCK_ROWS, Error, Result, SqlType};

/// A chunk being encoded. Its bytes are those that [`ChunkEncoder::next_block`] and
/// [`ChunkEncoder::finish`] append, in this order.
pub struct ChunkEncoder<'a> {
    column: Column<'a>,
    identity: u64,
    encoder: Box<dyn BlockEncoder + 'a>,
    footer: ChunkFooter,
}

/// Refuses what cannot be a chunk's column.
pub(super) fn check_column(t: SqlType, array: &ArrayRef) -> Result<()> {
    if array.data_type() == &arrow_type(t) && array.len() <= MAX_CHUNK_ROWS {
        return Ok(());
    }
    Err(Error::internal(format!(
        "a chunk of type {t} takes up to {MAX_CHUNK_ROWS} rows of {}, got {} rows of {}",
        arrow_type(t),
        array.len(),
        array.data_type()
    )))
}

impl<'a> ChunkEncoder<'a> {
    /// A chunk of at most [`MAX_CHUNK_ROWS`] rows, an array of [`arrow_type`]`(t)`, with the codec
    /// that is best for it. `identity` goes into every checksum.
    ///
    /// # Errors
    /// An array of another type or too many rows is an internal error.
    pub fn new(t: SqlType, array: &'a ArrayRef, identity: u64) -> Result<Self> {
        check_column(t, array)?;
        for codec in CODECS {
            if let Some(encoder) = Self::with(codec, Column { t, array }, identity)? {
                return Ok(encoder);
            }
        }
        Err(Error::internal(format!("no codec for type {t}")))
    }

    /// A chunk with a given codec; `None` if another one is better.
    pub(super) fn with(
        codec: &dyn ChunkCodec,
        column: Column<'a>,
        identity: u64,
    ) -> Result<Option<Self>> {
        let encoder = codec.encoder(column)?;
        Ok(encoder.map(|encoder| Self {
            column,
            identity,
            encoder,
            footer: ChunkFooter::new(column.t, column.array.len() as u32, codec.id()),
        }))
    }

    /// Appends the next block to `out`; false if there is none left.
    ///
    /// # Errors
    /// A block that the codec does not reproduce is an internal error.
    pub fn next_block(&mut self, out: &mut Vec<u8>) -> Result<bool> {
        let Column { t, array } = self.column;
        let (number, start) = (self.footer.block_count(), out.len());
        let first = number * BLOCK_ROWS;
        if first >= array.len() {
            return Ok(false);
        }
        let rows = first..array.len().min(first + BLOCK_ROWS);
        let values = array.slice(rows.start, rows.len());
        let (place, omits) = ((self.identity, number), self.encoder.omits_constants());
        let encode = |out: &mut Vec<u8>| self.encoder.encode(rows, out);
        let block = encode_block(&values, t, place, omits, encode, out)?;
        self.footer.push(block);
        let (bytes, shared) = (&out[start..], self.encoder.shared());
        read_back(t, &self.footer, number, bytes, shared, &values)?;
        Ok(true)
    }

    /// Appends the shared data and the footer.
    pub fn finish(mut self, out: &mut Vec<u8>) -> Result<ChunkFooter> {
        let shared = self.footer.share(self.encoder.shared(), self.identity)?;
        out.extend_from_slice(shared);
        out.extend_from_slice(&self.footer.encode(self.identity));
        Ok(self.footer)
    }

    /// Appends all blocks, the shared data and the footer.
    pub(super) fn encode_all(mut self, out: &mut Vec<u8>) -> Result<ChunkFooter> {
        while self.next_block(out)? {}
        self.finish(out)
    }
}
