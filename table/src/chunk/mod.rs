//! CONTRACT (helper `chunk` replaces the bodies). One column of one range, immutable.
use arrow_array::ArrayRef;
use std::sync::Arc;
use strandline_base::{Result, SqlType, Value};

/// What pruning and point reads need without touching the data. Kept in memory per chunk.
pub struct ChunkFooter {
    pub rows: u32,
    pub blocks: Vec<BlockEntry>,
    // + codec id, shared dictionary place
}
pub struct BlockEntry {
    pub offset: u32,
    pub len: u32,
    pub nulls: u32,
    /// None: no non-null value, or a type without order. Text bounds may be truncated (min down,
    /// max up); `exact` says whether they are real values.
    pub min: Option<Value>,
    pub max: Option<Value>,
    pub exact: bool,
}

/// Encodes ≤ 65,536 rows into `out` (chunk bytes followed by nothing; the footer is returned and
/// also stored at the end of the chunk bytes so that a chunk is self-describing). `identity` goes
/// into every block's CRC-32C. Reads every block back and compares before returning.
pub fn encode_chunk(
    _t: SqlType,
    _array: &ArrayRef,
    _identity: u64,
    _out: &mut Vec<u8>,
) -> Result<ChunkFooter> {
    todo!()
}
/// Decodes block `block` from its bytes, after the CRC check.
pub fn decode_block(
    _t: SqlType,
    _footer: &ChunkFooter,
    _identity: u64,
    _block: usize,
    _bytes: &[u8],
) -> Result<ArrayRef> {
    todo!()
}
/// Decodes a whole chunk (bytes as written by `encode_chunk`) into one contiguous array.
pub fn decode_chunk(
    _t: SqlType,
    _footer: &ChunkFooter,
    _identity: u64,
    _bytes: &[u8],
) -> Result<ArrayRef> {
    todo!()
}
pub type SharedFooter = Arc<ChunkFooter>;
