//! Chunks: one column of one range, immutable.
//!
//! A chunk is up to 16 blocks of 4,096 rows, each separately checksummed and decodable, and a
//! footer with the data for pruning and point reads ([`ChunkFooter`]). A [`ChunkCodec`], named by
//! one byte in the footer, defines the encoding of a column's blocks:
//!
//! | id | codec | for |
//! |---|---|---|
//! | 0 | [`raw`] | fallback, and types without a better codec |
//! | 1 | [`numbers`] | integers, dates, times, numerics: bit-packed; floats: as decimals |
//! | 2 | [`dictionary`] | few distinct values of any type |
//! | 3 | [`text`] | all other text and bytea |
//!
//! NULLs and blocks of one value are handled here for all codecs. A block stores the positions of
//! its NULLs and then the codec's values. A block with only NULLs or only one value (which the
//! footer has) stores nothing.
//!
//! Invariants:
//! 1. no byte of a block is interpreted before its checksum matched, and the checksum covers the
//!    chunk's identity and the block's number;
//! 2. For any bytes, decoding ends in an array or a corruption error, never in a panic;
//! 3. every block that [`encode_chunk`], [`ChunkEncoder`] and [`ChunkStream`] give has been decoded
//!    and compared bit for bit.
//!
//! The byte layout is in docs/format.md, section "Chunks".

mod bit_packing;
mod bounds;
mod dictionary;
mod encoder;
mod floats;
mod footer;
mod integers;
mod nulls;
mod numbers;
mod packed_block;
mod raw;
mod stream;
mod strings;
#[cfg(test)]
mod tests;
mod text;

use crate::types::arrow_type;
use crate::word_patches::WordPatches;
use arrow_array::{Array, ArrayRef, new_null_array};
use arrow_buffer::{BooleanBufferBuilder, NullBuffer};
use std::ops::Range;
use strandline_base::bytes::ByteReader;
use strandline_base::{Error, RANGE_ROWS, Result, SqlType, Value, checksum};

pub use bounds::MAX_BOUND_BYTES;
pub use encoder::ChunkEncoder;
use footer::NewBlock;
pub use footer::{BlockBounds, BlockEntry, ChunkFooter, FOOTER_BYTES_MAX, TRAILER_BYTES};
pub use packed_block::{PackedBlock, PackedLayout};
pub use stream::ChunkStream;

/// Most rows of a chunk.
pub const MAX_CHUNK_ROWS: usize = RANGE_ROWS;

/// A column to encode.
#[derive(Clone, Copy)]
pub(crate) struct Column<'a> {
    t: SqlType,
    array: &'a ArrayRef,
}

/// A way to encode the blocks of a column.
pub(crate) trait ChunkCodec: Sync {
    /// The byte that names the codec in footers.
    fn id(&self) -> u8;

    /// Examines the whole column and prepares to encode its blocks; `None` if another codec is
    /// better for it.
    fn encoder<'a>(&self, column: Column<'a>) -> Result<Option<Box<dyn BlockEncoder + 'a>>>;

    /// Prepares to decode blocks of `rows` rows in total. `shared` is the encoder's shared data.
    fn decoder(&self, t: SqlType, shared: &[u8], rows: usize) -> Result<Box<dyn BlockDecoder>>;
}

/// Encodes the blocks of one column.
pub(crate) trait BlockEncoder {
    /// Appends the values of `rows`, one block. NULL slots may decode to any value.
    fn encode(&mut self, rows: Range<usize>, out: &mut Vec<u8>) -> Result<()>;

    /// The data shared by all blocks, for the footer.
    fn shared(&self) -> &[u8] {
        &[]
    }

    /// Whether blocks of one value are left to the footer.
    fn omits_constants(&self) -> bool {
        true
    }
}

/// Decodes consecutive blocks into one array.
pub(crate) trait BlockDecoder {
    /// Appends one encoded block of `rows` rows.
    fn append(&mut self, rows: usize, reader: &mut ByteReader<'_>) -> Result<()>;
    /// Appends `rows` times `value`.
    fn append_constant(&mut self, rows: usize, value: &Value) -> Result<()>;
    /// Appends `rows` slots for NULLs.
    fn append_nulls(&mut self, rows: usize);
    /// Replaces values by words; false if this decoder does not support it.
    fn patch(&mut self, _: &WordPatches<'_>) -> bool {
        false
    }
    /// The array of everything appended.
    fn finish(self: Box<Self>, nulls: Option<NullBuffer>) -> Result<ArrayRef>;
}

/// All codecs; the first one that accepts a column encodes it.
static CODECS: [&dyn ChunkCodec; 4] = [
    &dictionary::Dictionary,
    &numbers::Numbers,
    &text::Text,
    &raw::Raw,
];

/// Encodes at most [`MAX_CHUNK_ROWS`] rows, an array of [`arrow_type`]`(t)`, and appends blocks,
/// footer and trailer to `out`. `identity` goes into every checksum. Each block is decoded and
/// compared; if a codec fails this, another one replaces it.
///
/// # Errors
/// An array of another type or too many rows is an internal error.
pub fn encode_chunk(
    t: SqlType,
    array: &ArrayRef,
    identity: u64,
    out: &mut Vec<u8>,
) -> Result<ChunkFooter> {
    encoder::check_column(t, array)?;
    let start = out.len();
    let mut failure = None;
    for codec in CODECS {
        let column = Column { t, array };
        let encoder = ChunkEncoder::with(codec, column, identity);
        let encode =
            |encoder: Option<ChunkEncoder<'_>>| encoder.map(|e| e.encode_all(out)).transpose();
        match encoder.and_then(encode) {
            Ok(None) => {}
            Ok(Some(footer)) => return Ok(footer),
            Err(e) => failure = Some(e),
        }
        out.truncate(start);
    }
    Err(failure.unwrap_or_else(|| Error::internal(format!("no codec for type {t}"))))
}

/// Decodes block `number`, which was just encoded as `bytes`, and compares it with its `values`.
fn read_back(
    t: SqlType,
    footer: &ChunkFooter,
    number: usize,
    bytes: &[u8],
    shared: &[u8],
    values: &ArrayRef,
) -> Result<()> {
    let source = |_| Some(bytes);
    let (decoded, _) = decode_blocks(t, footer, number..number + 1, source, shared, None)?;
    match same(&decoded, values) {
        true => Ok(()),
        false => Err(Error::internal(format!(
            "codec {} does not reproduce block {number} of a chunk of type {t}",
            footer.codec()
        ))),
    }
}

/// Whether the arrays have the same NULLs and, bit for bit, the same values elsewhere.
fn same(decoded: &ArrayRef, array: &ArrayRef) -> bool {
    decoded.data_type() == array.data_type() && decoded.as_ref() == array.as_ref()
}

/// Appends one block, the `number`-th of the chunk with `identity`; `encode` appends its values.
fn encode_block(
    values: &ArrayRef,
    t: SqlType,
    (identity, number): (u64, usize),
    omits_constants: bool,
    encode: impl FnOnce(&mut Vec<u8>) -> Result<()>,
    out: &mut Vec<u8>,
) -> Result<NewBlock> {
    let start = out.len();
    let mut bounds = bounds::bounds_of(t, values);
    bounds.constant &= omits_constants;
    if let Some(nulls) = values.nulls() {
        nulls::encode(nulls, out);
    }
    if !bounds.constant && values.null_count() < values.len() {
        encode(out)?;
    }
    let len = (out.len() - start) as u64;
    let crc = checksum(&[identity, number as u64], &out[start..]);
    let nulls = values.null_count() as u16;
    Ok(NewBlock {
        len,
        crc,
        nulls,
        constant: bounds.constant,
        bounds,
    })
}

/// Decodes block `block` from its bytes ([`ChunkFooter::block_range`] of the chunk) and, if the
/// footer lacks the shared data, from the bytes of [`ChunkFooter::shared_range`].
///
/// # Errors
/// Bytes whose checksum does not match, or that cannot be decoded, are a corruption error.
pub fn decode_block(
    t: SqlType,
    footer: &ChunkFooter,
    identity: u64,
    block: usize,
    bytes: &[u8],
    shared: Option<&[u8]>,
) -> Result<ArrayRef> {
    check_block(footer, identity, block, bytes)?;
    let shared = footer.checked_shared(shared, identity)?;
    let source = |_| Some(bytes);
    let (array, _) = decode_blocks(t, footer, block..block + 1, source, shared, None)?;
    Ok(array)
}

/// Decodes a whole chunk (its bytes as [`encode_chunk`] wrote them, with or without the footer)
/// into one array.
///
/// # Errors
/// As [`decode_block`].
pub fn decode_chunk(
    t: SqlType,
    footer: &ChunkFooter,
    identity: u64,
    bytes: &[u8],
) -> Result<ArrayRef> {
    let shared = check_bytes(footer, identity, bytes)?;
    let source = |block| part(bytes, footer.block_range(block));
    let (array, _) = decode_blocks(t, footer, 0..footer.block_count(), source, shared, None)?;
    Ok(array)
}

/// Compares every checksum of a whole chunk; returns the shared data of its blocks.
fn check_bytes<'a>(footer: &'a ChunkFooter, identity: u64, bytes: &'a [u8]) -> Result<&'a [u8]> {
    for block in 0..footer.block_count() {
        let bytes = part(bytes, footer.block_range(block)).ok_or_else(|| cut_off(block))?;
        check_block(footer, identity, block, bytes)?;
    }
    let shared = footer.shared_range().and_then(|range| part(bytes, range));
    footer.checked_shared(shared, identity)
}

/// A whole encoded chunk in memory with verified checksums, for repeated decoding.
#[derive(Debug)]
pub struct CheckedChunk {
    bytes: Vec<u8>,
    shared: Vec<u8>,
}

impl CheckedChunk {
    /// Compares the checksums of a chunk's bytes (with or without the footer).
    ///
    /// # Errors
    /// One that does not match, or a missing part, is a corruption error.
    pub fn new(footer: &ChunkFooter, identity: u64, bytes: Vec<u8>) -> Result<Self> {
        let shared = Self::check(footer, identity, &bytes)?;
        Ok(Self::of_checked(bytes, shared))
    }

    /// Compares the checksums of a chunk's bytes; the bytes that its blocks share.
    ///
    /// # Errors
    /// As [`CheckedChunk::new`].
    pub fn check(footer: &ChunkFooter, identity: u64, bytes: &[u8]) -> Result<Vec<u8>> {
        Ok(check_bytes(footer, identity, bytes)?.to_vec())
    }

    /// A chunk of bytes that [`CheckedChunk::check`] has compared, and its result.
    pub fn of_checked(bytes: Vec<u8>, shared: Vec<u8>) -> Self {
        Self { bytes, shared }
    }

    /// Bytes in memory.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.shared.capacity()
    }

    /// Decodes consecutive blocks; also returns whether `patches` have been applied, which some
    /// codecs do not support. `footer` is the footer that the chunk was checked with.
    ///
    /// # Errors
    /// Bytes that cannot be decoded are a corruption error.
    pub fn decode(
        &self,
        t: SqlType,
        footer: &ChunkFooter,
        blocks: Range<usize>,
        patches: Option<&WordPatches<'_>>,
    ) -> Result<(ArrayRef, bool)> {
        let source = |block| part(&self.bytes, footer.block_range(block));
        decode_blocks(t, footer, blocks, source, &self.shared, patches)
    }
}

fn codec_of(footer: &ChunkFooter) -> Result<&'static dyn ChunkCodec> {
    let codec = CODECS.iter().find(|c| c.id() == footer.codec());
    codec
        .copied()
        .ok_or_else(|| Error::corrupt("chunk footer", format!("unknown codec {}", footer.codec())))
}

fn part(bytes: &[u8], range: Range<u64>) -> Option<&[u8]> {
    bytes.get(usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?)
}

/// A failed decode: the bytes are not the output of an encoder.
fn undecodable(reason: String) -> Error {
    Error::corrupt("encoded values", reason)
}

fn cut_off(block: usize) -> Error {
    Error::corrupt(format!("block {block}"), "the chunk is cut off")
}

fn decode_blocks<'a>(
    t: SqlType,
    footer: &ChunkFooter,
    blocks: Range<usize>,
    source: impl Fn(usize) -> Option<&'a [u8]>,
    shared: &[u8],
    patches: Option<&WordPatches<'_>>,
) -> Result<(ArrayRef, bool)> {
    let rows: usize = blocks.clone().map(|b| footer.block_rows(b)).sum();
    let nulls: usize = blocks.clone().map(|b| footer.block_nulls(b)).sum();
    if nulls == rows {
        return Ok((new_null_array(&arrow_type(t), rows), false));
    }
    let codec = codec_of(footer)?;
    let mut decoder = codec.decoder(t, shared, rows)?;
    let mut valid = (nulls > 0).then(|| BooleanBufferBuilder::new(rows));
    for block in blocks {
        let bytes = source(block).ok_or_else(|| cut_off(block))?;
        append_block(footer, block, bytes, decoder.as_mut(), valid.as_mut())
            .map_err(|e| e.context(format!("block {block}")))?;
    }
    let is_patched = patches.is_some_and(|patches| decoder.patch(patches));
    if let (Some(valid), Some(patches), true) = (&mut valid, patches, is_patched) {
        patches.for_each(|row, _| valid.set_bit(row, true));
    }
    let nulls = valid.map(|mut v| NullBuffer::new(v.finish()));
    let array = decoder.finish(nulls)?;
    if array.len() != rows || array.data_type() != &arrow_type(t) {
        return Err(undecodable(format!(
            "expected {rows} rows of {}, got {} of {}",
            arrow_type(t),
            array.len(),
            array.data_type()
        )));
    }
    Ok((array, is_patched))
}

/// Compares a block's length and checksum with its entry.
fn check_block(footer: &ChunkFooter, identity: u64, block: usize, bytes: &[u8]) -> Result<()> {
    let range = footer.block_range(block);
    if bytes.len() as u64 != range.end - range.start {
        let (expected, got) = (range.end - range.start, bytes.len());
        let what = format!("expected {expected} bytes, got {got}");
        return Err(Error::corrupt(format!("block {block} of a chunk"), what));
    }
    let (expected, got) = (
        footer.block_crc(block),
        checksum(&[identity, block as u64], bytes),
    );
    if expected != got {
        return Err(Error::checksum_mismatch(
            format!("block {block} of a chunk"),
            expected,
            got,
        ));
    }
    Ok(())
}

fn append_block(
    footer: &ChunkFooter,
    block: usize,
    bytes: &[u8],
    decoder: &mut dyn BlockDecoder,
    valid: Option<&mut BooleanBufferBuilder>,
) -> Result<()> {
    let (rows, nulls) = (footer.block_rows(block), footer.block_nulls(block));
    let mut reader = ByteReader::new(bytes);
    if let Some(valid) = valid {
        nulls::decode(rows, nulls, &mut reader, valid)?;
    }
    if nulls == rows {
        decoder.append_nulls(rows);
    } else if footer.is_constant(block) {
        let (_, max) = footer.bounds(block);
        decoder.append_constant(rows, &max.expect("a constant block has an upper bound"))?;
    } else {
        decoder.append(rows, &mut reader)?;
    }
    if reader.remaining() != 0 {
        return Err(undecodable(format!(
            "{} bytes too many",
            reader.remaining()
        )));
    }
    Ok(())
}
