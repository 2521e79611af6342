//! The footer of a chunk: the data for pruning and point reads that do not read blocks.
//!
//! A footer stays in memory as long as its chunk is known, so it is compact: 24 bytes per block
//! plus the encoded bounds, which [`ChunkFooter::block`] decodes on demand. Data shared by all
//! blocks (a dictionary, a token table) is in the footer if it is small. Otherwise it is between
//! the last block and the footer, and is read when a block is decoded.
//!
//! Invariants:
//! 1. blocks are contiguous from the chunk's first byte, the separate shared part follows the
//!    last, then the footer;
//! 2. every block but the last has [`BLOCK_ROWS`] rows, the last 1 to [`BLOCK_ROWS`];
//! 3. a bound that is present holds for every non-null value of its block in the order of
//!    [`compare`](strandline_base::Value::compare).
//!
//! The byte layout is in docs/format.md, section "Chunks".

use super::MAX_CHUNK_ROWS;
use super::bounds::Bounds;
use crate::types::{arrow_type, put_value, take_value};
use arrow_schema::DataType;
use std::cmp::Ordering;
use strandline_base::bytes::{ByteReader, PutBytes};
use strandline_base::{BLOCK_ROWS, Error, Result, SqlType, Value, checksum};

/// Bytes of the trailer, the last bytes of every chunk.
pub const TRAILER_BYTES: usize = 12;

/// No footer is longer, with its trailer: 16 blocks with bounds of up to 64 bytes, and a shared
/// part of up to 1 KiB. So that many bytes from the end of a chunk have all of it.
pub const FOOTER_BYTES_MAX: usize = 4 << 10;

/// A block's lower and upper bound; `None` where there is none.
pub type BlockBounds = (Option<Value>, Option<Value>);
/// The last four bytes of a chunk.
const MAGIC: u32 = u32::from_le_bytes(*b"SLCK");
/// Version of the layout of footers and blocks; others are not read.
pub(super) const VERSION: u8 = 4;
/// Second identity words of the checksums of footer and shared part; blocks have their number
/// there.
const FOOTER_IDENTITY: u64 = u64::MAX;
const SHARED_IDENTITY: u64 = u64::MAX - 1;
/// Most bytes of a shared part that stays in the footer.
const MAX_INLINE_BYTES: usize = 1 << 10;

const EXACT: u8 = 1;
const CONSTANT: u8 = 2;

const INLINE: u8 = 0;
const SEPARATE: u8 = 1;

/// A chunk's footer; see the module documentation.
#[derive(Clone, Debug, PartialEq)]
pub struct ChunkFooter {
    sql_type: SqlType,
    rows: u32,
    codec: u8,
    blocks: Vec<BlockPosition>,
    blocks_end: u64,
    bounds: Vec<u8>,
    shared: SharedBytes,
}

/// The data shared by all blocks.
#[derive(Clone, Debug, PartialEq)]
enum SharedBytes {
    Inline(Vec<u8>),
    /// After the last block.
    Separate {
        len: u32,
        crc: u32,
    },
}

/// The position of a block, and of its bounds in the footer.
#[derive(Clone, Copy, Debug, PartialEq)]
struct BlockPosition {
    /// the start; a block ends at the start of the next one, the last block at the footer's
    /// `blocks_end`
    offset: u64,
    crc: u32,
    bounds_at: u32,
    nulls: u16,
    flags: u8,
}

/// The description of one block.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockEntry {
    /// First byte, from the start of the chunk.
    pub offset: u64,
    /// Bytes; 0 when all values are NULL or all equal `max`.
    pub len: u64,
    /// CRC-32C of the chunk's identity, the block's number and its bytes.
    pub crc: u32,
    /// Rows in the block.
    pub rows: u32,
    /// NULL values.
    pub nulls: u32,
    /// A lower bound of the non-null values. `None`: no non-null value, or unknown. Text and
    /// bytea longer than 64 bytes are cut.
    pub min: Option<Value>,
    /// An upper bound of the non-null values. `None`: no non-null value, or unknown. NaN as soon
    /// as one value is NaN. Text and bytea longer than 64 bytes are cut and rounded up.
    pub max: Option<Value>,
    /// Whether `min` and `max` are values of the block.
    pub exact: bool,
    /// Whether every non-null value is `max`, bit for bit; the block then stores no values.
    pub constant: bool,
}

/// A block to be added to a footer.
pub(super) struct NewBlock {
    pub len: u64,
    pub crc: u32,
    pub nulls: u16,
    pub constant: bool,
    pub bounds: Bounds,
}

impl ChunkFooter {
    pub(super) fn new(sql_type: SqlType, rows: u32, codec: u8) -> Self {
        let (blocks, bounds, shared) = (Vec::new(), Vec::new(), SharedBytes::Inline(Vec::new()));
        Self {
            sql_type,
            rows,
            codec,
            blocks,
            blocks_end: 0,
            bounds,
            shared,
        }
    }

    /// Sets the data shared by all blocks; returns the part to write after the last block.
    pub(super) fn share<'a>(&mut self, shared: &'a [u8], identity: u64) -> Result<&'a [u8]> {
        if shared.len() <= MAX_INLINE_BYTES {
            self.shared = SharedBytes::Inline(shared.to_vec());
            return Ok(&[]);
        }
        let len = u32::try_from(shared.len())
            .map_err(|_| Error::internal("the blocks of a chunk share more than 4 GiB"))?;
        let crc = checksum(&[identity, SHARED_IDENTITY], shared);
        self.shared = SharedBytes::Separate { len, crc };
        Ok(shared)
    }

    pub(super) fn push(&mut self, block: NewBlock) {
        let offset = self.blocks_end;
        let flags =
            if block.bounds.exact { EXACT } else { 0 } | if block.constant { CONSTANT } else { 0 };
        let bounds_at = self.bounds.len() as u32;
        put_value(
            &mut self.bounds,
            block.bounds.min.as_ref().unwrap_or(&Value::Null),
        );
        put_value(
            &mut self.bounds,
            block.bounds.max.as_ref().unwrap_or(&Value::Null),
        );
        let (crc, nulls) = (block.crc, block.nulls);
        self.blocks.push(BlockPosition {
            offset,
            crc,
            bounds_at,
            nulls,
            flags,
        });
        self.blocks_end += block.len;
    }

    /// The type the chunk was encoded as.
    pub fn sql_type(&self) -> SqlType {
        self.sql_type
    }

    /// Rows in the chunk, at most [`MAX_CHUNK_ROWS`].
    pub fn rows(&self) -> usize {
        self.rows as usize
    }

    /// The id of the [`ChunkCodec`](super::ChunkCodec) that wrote the blocks.
    pub fn codec(&self) -> u8 {
        self.codec
    }

    /// The range of the chunk that [`decode_block`](super::decode_block) needs besides the block:
    /// the data shared by all blocks, unless the footer has it.
    pub fn shared_range(&self) -> Option<std::ops::Range<u64>> {
        match self.shared {
            SharedBytes::Inline(_) => None,
            SharedBytes::Separate { .. } => Some(self.blocks_end..self.footer_offset()),
        }
    }

    /// The data shared by all blocks, given the bytes of [`ChunkFooter::shared_range`].
    pub(super) fn checked_shared<'a>(
        &'a self,
        bytes: Option<&'a [u8]>,
        identity: u64,
    ) -> Result<&'a [u8]> {
        let (len, crc) = match &self.shared {
            SharedBytes::Inline(shared) => return Ok(shared),
            SharedBytes::Separate { len, crc } => (*len, *crc),
        };
        let bytes = bytes.filter(|b| b.len() == len as usize);
        let bytes = bytes.ok_or_else(|| {
            Error::corrupt(
                "what the blocks of a chunk share",
                format!("expected {len} bytes"),
            )
        })?;
        let got = checksum(&[identity, SHARED_IDENTITY], bytes);
        if got != crc {
            let place = "what the blocks of a chunk share";
            return Err(Error::checksum_mismatch(place, crc, got));
        }
        Ok(bytes)
    }

    /// Number of blocks.
    pub fn block_count(&self) -> usize {
        self.blocks.len()
    }

    /// Rows of block `block`.
    pub fn block_rows(&self, block: usize) -> usize {
        BLOCK_ROWS.min(self.rows() - block * BLOCK_ROWS)
    }

    /// The byte range of block `block` in the chunk.
    pub fn block_range(&self, block: usize) -> std::ops::Range<u64> {
        let next = self.blocks.get(block + 1);
        let end = next.map_or(self.blocks_end, |next| next.offset);
        self.blocks[block].offset..end
    }

    /// The description of block `block`.
    ///
    /// # Panics
    /// If there is no such block.
    pub fn block(&self, block: usize) -> BlockEntry {
        let place = self.blocks[block];
        let (min, max) = self.bounds(block);
        let range = self.block_range(block);
        BlockEntry {
            offset: range.start,
            len: range.end - range.start,
            crc: place.crc,
            rows: self.block_rows(block) as u32,
            nulls: u32::from(place.nulls),
            min,
            max,
            exact: place.flags & EXACT != 0,
            constant: place.flags & CONSTANT != 0,
        }
    }

    /// The bounds of block `block`: its [`BlockEntry`]'s `min` and `max`.
    pub fn bounds(&self, block: usize) -> BlockBounds {
        let mut reader = ByteReader::new(&self.bounds[self.blocks[block].bounds_at as usize..]);
        let mut next = || {
            let value = take_value(&mut reader, self.sql_type);
            value.expect("bounds are checked when a footer is made or decoded")
        };
        let (min, max) = (next(), next());
        (
            Some(min).filter(|v| !v.is_null()),
            Some(max).filter(|v| !v.is_null()),
        )
    }

    pub(super) fn is_constant(&self, block: usize) -> bool {
        self.blocks[block].flags & CONSTANT != 0
    }

    pub(super) fn block_nulls(&self, block: usize) -> usize {
        usize::from(self.blocks[block].nulls)
    }

    pub(super) fn block_crc(&self, block: usize) -> u32 {
        self.blocks[block].crc
    }

    /// NULL values in the whole chunk.
    pub fn nulls(&self) -> usize {
        self.blocks.iter().map(|b| usize::from(b.nulls)).sum()
    }

    /// A lower bound of the non-null values of all blocks; `None` if there is none or it is
    /// unknown.
    pub fn min(&self) -> Option<Value> {
        self.fold(|(min, _)| min, Ordering::Less)
    }

    /// An upper bound of the non-null values of all blocks; `None` if there is none or it is
    /// unknown.
    pub fn max(&self) -> Option<Value> {
        self.fold(|(_, max)| max, Ordering::Greater)
    }

    fn fold(&self, side: fn(BlockBounds) -> Option<Value>, wanted: Ordering) -> Option<Value> {
        let mut best: Option<Value> = None;
        for block in 0..self.block_count() {
            if self.block_nulls(block) == self.block_rows(block) {
                continue;
            }
            let bound = side(self.bounds(block))?;
            if best
                .as_ref()
                .is_none_or(|b| bound.compare(b) == Some(wanted))
            {
                best = Some(bound);
            }
        }
        best
    }

    /// Whether the bounds of all blocks are existing values.
    pub fn exact(&self) -> bool {
        self.blocks.iter().all(|b| b.flags & EXACT != 0)
    }

    /// The start of the footer: the bytes of all blocks and of their shared data.
    pub fn footer_offset(&self) -> u64 {
        let shared = match self.shared {
            SharedBytes::Inline(_) => 0,
            SharedBytes::Separate { len, .. } => u64::from(len),
        };
        self.blocks_end + shared
    }

    /// Bytes this footer takes in memory.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.blocks.capacity() * size_of::<BlockPosition>()
            + self.bounds.capacity()
            + self.shared.memory_bytes()
    }

    /// The bytes of the footer and the trailer.
    pub fn encode(&self, identity: u64) -> Vec<u8> {
        let mut out = Vec::with_capacity(256 + self.bounds.len());
        out.put_u8(VERSION);
        out.put_u8(self.codec);
        out.put_u8(storage_code(self.sql_type));
        out.put_varint(u64::from(self.rows));
        for (i, place) in self.blocks.iter().enumerate() {
            let range = self.block_range(i);
            out.put_varint(range.end - range.start);
            out.put_u32(place.crc);
            out.put_varint(u64::from(place.nulls));
            out.put_u8(place.flags);
            let end = self
                .blocks
                .get(i + 1)
                .map_or(self.bounds.len(), |b| b.bounds_at as usize);
            out.extend_from_slice(&self.bounds[place.bounds_at as usize..end]);
        }
        match &self.shared {
            SharedBytes::Inline(shared) => {
                out.put_u8(INLINE);
                out.put_bytes(shared);
            }
            SharedBytes::Separate { len, crc } => {
                out.put_u8(SEPARATE);
                out.put_varint(u64::from(*len));
                out.put_u32(*crc);
            }
        }
        Self::sealed(out, identity)
    }

    /// Appends the trailer to a footer's bytes.
    pub(super) fn sealed(mut footer: Vec<u8>, identity: u64) -> Vec<u8> {
        let (len, crc) = (
            footer.len(),
            checksum(&[identity, FOOTER_IDENTITY], &footer),
        );
        footer.put_u32(len as u32);
        footer.put_u32(crc);
        footer.put_u32(MAGIC);
        debug_assert!(footer.len() <= FOOTER_BYTES_MAX, "{} bytes", footer.len());
        footer
    }

    /// Reads the footer at the end of `tail`, the last bytes of a chunk: [`FOOTER_BYTES_MAX`] of
    /// them are enough, and the whole chunk is not too much.
    ///
    /// # Errors
    /// A checksum that does not match, a malformed footer and a type stored differently from `t`
    /// are corruption errors; another version of the layout is not supported.
    pub fn decode(t: SqlType, identity: u64, tail: &[u8]) -> Result<Self> {
        let (len, crc) = trailer_of(tail)?;
        let end = tail.len() - TRAILER_BYTES;
        let start = end
            .checked_sub(len)
            .ok_or_else(|| damaged("the footer is cut off"))?;
        let bytes = &tail[start..end];
        let got = checksum(&[identity, FOOTER_IDENTITY], bytes);
        if got != crc {
            return Err(Error::checksum_mismatch("chunk footer", crc, got));
        }
        let mut reader = ByteReader::new(bytes);
        let version = reader.u8().ok_or_else(|| damaged("malformed footer"))?;
        if version != VERSION {
            let what = format!("a chunk has format version {version}");
            return Err(Error::unsupported(format!(
                "{what}, but this Strandline reads version {VERSION} only"
            ))
            .with_hint("Open the database with the Strandline version that wrote it."));
        }
        let footer = Self::read(t, &mut reader).ok_or_else(|| damaged("malformed footer"))??;
        if reader.remaining() != 0 {
            return Err(damaged("bytes after the footer's end"));
        }
        Ok(footer)
    }

    fn read(t: SqlType, reader: &mut ByteReader<'_>) -> Option<Result<Self>> {
        let (codec, storage) = (reader.u8()?, reader.u8()?);
        if storage != storage_code(t) {
            let what = format!("the chunk stores type code {storage}, the column is {t}");
            return Some(Err(damaged(what)));
        }
        let rows = u32::try_from(reader.varint()?).ok()?;
        if rows as usize > MAX_CHUNK_ROWS {
            return None;
        }
        let mut footer = Self::new(t, rows, codec);
        for block in 0..(rows as usize).div_ceil(BLOCK_ROWS) {
            let len = reader.varint()?;
            let crc = reader.u32()?;
            let nulls = u16::try_from(reader.varint()?).ok()?;
            let flags = reader.u8()?;
            let mut bounds = *reader;
            take_value(reader, t)?;
            let max = take_value(reader, t)?;
            let constant_of_nothing = flags & CONSTANT != 0 && max.is_null();
            if usize::from(nulls) > footer.block_rows(block) || constant_of_nothing {
                return None;
            }
            let bounds_len = reader.position() - bounds.position();
            let bounds_at = footer.bounds.len() as u32;
            footer.bounds.extend_from_slice(bounds.take(bounds_len)?);
            let offset = footer.blocks_end;
            footer.blocks_end = offset.checked_add(len)?;
            footer.blocks.push(BlockPosition {
                offset,
                crc,
                bounds_at,
                nulls,
                flags,
            });
        }
        footer.shared = SharedBytes::read(reader)?;
        footer.blocks.shrink_to_fit();
        footer.bounds.shrink_to_fit();
        Some(Ok(footer))
    }
}

impl SharedBytes {
    fn read(reader: &mut ByteReader<'_>) -> Option<Self> {
        match reader.u8()? {
            INLINE => Some(Self::Inline(reader.bytes()?.to_vec())),
            SEPARATE => {
                let len = u32::try_from(reader.varint()?).ok()?;
                Some(Self::Separate {
                    len,
                    crc: reader.u32()?,
                })
            }
            _ => None,
        }
    }

    fn memory_bytes(&self) -> usize {
        match self {
            Self::Inline(shared) => shared.capacity(),
            Self::Separate { .. } => 0,
        }
    }
}

fn damaged(what: impl std::fmt::Display) -> Error {
    Error::corrupt("chunk footer", what)
}

/// Length and checksum of the footer.
fn trailer_of(tail: &[u8]) -> Result<(usize, u32)> {
    let start = tail
        .len()
        .checked_sub(TRAILER_BYTES)
        .ok_or_else(|| damaged("no trailer"))?;
    let mut reader = ByteReader::new(&tail[start..]);
    match (reader.u32(), reader.u32(), reader.u32()) {
        (Some(len), Some(crc), Some(MAGIC)) => Ok((len as usize, crc)),
        (_, _, magic) => Err(damaged(format!(
            "expected magic {MAGIC:#010x}, got {magic:#010x?}"
        ))),
    }
}

/// A code of a type's storage, which must not change while a chunk exists.
fn storage_code(t: SqlType) -> u8 {
    match arrow_type(t) {
        DataType::Boolean => 0,
        DataType::Int16 => 1,
        DataType::Int32 => 2,
        DataType::Int64 => 3,
        DataType::Float32 => 4,
        DataType::Float64 => 5,
        DataType::Decimal64(..) => 6,
        DataType::Decimal128(..) => 7,
        DataType::Utf8View => 8,
        DataType::BinaryView => 9,
        DataType::Date32 => 10,
        DataType::Time64(_) => 11,
        DataType::Timestamp(_, None) => 12,
        DataType::Timestamp(_, Some(_)) => 13,
        DataType::Interval(_) => 14,
        DataType::FixedSizeBinary(_) => 15,
        DataType::FixedSizeList(_, 2) => 16,
        DataType::FixedSizeList(_, 4) => 17,
        other => unreachable!("no SQL type maps to {other}"),
    }
}

#[cfg(test)]
impl ChunkFooter {
    /// A footer in which block `block` has other bytes; the later blocks move.
    pub(super) fn with_block(&self, block: usize, len: u64, crc: u32) -> Self {
        let mut footer = self.clone();
        let range = self.block_range(block);
        let moved = |offset: u64| offset - (range.end - range.start) + len;
        footer.blocks[block].crc = crc;
        for later in &mut footer.blocks[block + 1..] {
            later.offset = moved(later.offset);
        }
        footer.blocks_end = moved(self.blocks_end);
        footer
    }

    /// A footer with another shared part, which is inline.
    pub(super) fn with_shared(&self, shared: Vec<u8>) -> Self {
        Self {
            shared: SharedBytes::Inline(shared),
            ..self.clone()
        }
    }
}
