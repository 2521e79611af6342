//! Encodes a column of text or bytea block by block, for columns too large to be in memory as a
//! whole.
//!
//! Invariants:
//! 1. Only one block, as an array and encoded, and the data shared by all blocks are in memory.
//! 2. A block is decoded again and compared before [`ChunkStream::push`] returns.
//! 3. The token table is trained on the sample that the caller gives at the start; a block may
//!    still store its bytes unencoded.

use super::text::{Text, TextBlocks};
use super::{ChunkCodec, ChunkFooter, Column, MAX_CHUNK_ROWS, encode_block, read_back};
use crate::types::arrow_type;
use arrow_array::{Array, ArrayRef};
use strandline_base::{Error, Result, SqlType};

/// A chunk being encoded. Its bytes are those that [`ChunkStream::push`] and
/// [`ChunkStream::finish`] append, in this order.
pub struct ChunkStream {
    t: SqlType,
    identity: u64,
    footer: ChunkFooter,
    blocks: TextBlocks,
}

impl ChunkStream {
    /// A chunk of `rows` rows of `t`, which is text or bytea. `sample`: some of the rows.
    /// `identity` goes into every checksum.
    ///
    /// # Errors
    /// A sample of another type or too many rows is an internal error.
    pub fn new(t: SqlType, rows: usize, sample: &ArrayRef, identity: u64) -> Result<Self> {
        let column = Column { t, array: sample };
        if sample.data_type() != &arrow_type(t) || rows > MAX_CHUNK_ROWS {
            return Err(Error::internal(format!(
                "a stream of {rows} rows of type {t} has a sample of {}",
                sample.data_type()
            )));
        }
        Ok(Self {
            t,
            identity,
            footer: ChunkFooter::new(t, rows as u32, Text.id()),
            blocks: TextBlocks::train(column)?,
        })
    }

    /// Appends the next block to `out`. Every block but the last has
    /// [`BLOCK_ROWS`](strandline_base::BLOCK_ROWS) rows.
    ///
    /// # Errors
    /// A block out of order, or one that the codec does not reproduce, is an internal error.
    pub fn push(&mut self, block: &ArrayRef, out: &mut Vec<u8>) -> Result<()> {
        let (t, number, start) = (self.t, self.footer.block_count(), out.len());
        let column = Column { t, array: block };
        let encode = |out: &mut Vec<u8>| self.blocks.encode(column, 0..block.len(), out);
        let entry = encode_block(block, t, (self.identity, number), true, encode, out)?;
        self.footer.push(entry);
        if self.footer.block_rows(number) != block.len() {
            return Err(Error::internal(format!(
                "block {number} of a stream has {} rows",
                block.len()
            )));
        }
        let shared = self.blocks.shared();
        read_back(t, &self.footer, number, &out[start..], shared, block)
    }

    /// Appends the shared data and the footer.
    pub fn finish(mut self, out: &mut Vec<u8>) -> Result<ChunkFooter> {
        let shared = self.footer.share(self.blocks.shared(), self.identity)?;
        out.extend_from_slice(shared);
        out.extend_from_slice(&self.footer.encode(self.identity));
        Ok(self.footer)
    }
}
