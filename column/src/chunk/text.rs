//! Codec 3, text: strings as codes of 12 bits into a token table that all blocks of the chunk
//! share \[OnPair §3\].
//!
//! The table is trained on a sample of the chunk with the crate `onpair`; a token has 1 to 16
//! bytes. A block has the lengths of its strings and one stream of codes for all of them. Strings
//! are not addressable within a block, so they need no offsets. Decoding copies 16 bytes per code
//! for any token and then advances by the token's length, with bounds checks and without unsafe
//! code. Blocks that the table does not shrink, and chunks too short for a table, store their bytes
//! unencoded.
//!
//! Differences from the paper: rows are encoded one by one but stored as one stream; codes are
//! packed to 12 bits, the table never exceeds 4,096 tokens.

use super::integers;
use super::strings::Strings;
use super::undecodable;
use super::{BlockDecoder, BlockEncoder, ChunkCodec, Column};
use crate::types::{bytes_at, is_of_any_length};
use arrow_array::{Array, ArrayRef};
use arrow_buffer::NullBuffer;
use onpair::{Config, MaxDictBits, Parser, Threshold};
use std::ops::Range;
use strandline_base::bytes::{ByteReader, PutBytes};
use strandline_base::{Error, Result, SqlType, Value};

const PLAIN: u8 = 0;
const TOKENS: u8 = 1;

/// Bits per code.
const CODE_BITS: u8 = 12;
const MAX_TOKENS: usize = 1 << CODE_BITS;
/// The longest token in bytes, which decoding copies at once.
const TOKEN_BYTES: usize = 16;
/// Chunks with less text than this get no token table.
const MIN_TRAINING_BYTES: usize = 16 << 10;
/// Bytes of text on which a table is trained.
const SAMPLE_BYTES: usize = 2 << 20;
/// Longest piece of one string in the sample.
const SAMPLE_STRING_BYTES: usize = 4 << 10;

/// The codec.
pub(super) struct Text;

impl ChunkCodec for Text {
    fn id(&self) -> u8 {
        3
    }

    fn encoder<'a>(&self, column: Column<'a>) -> Result<Option<Box<dyn BlockEncoder + 'a>>> {
        if !is_of_any_length(column.t) {
            return Ok(None);
        }
        let blocks = TextBlocks::train(column)?;
        Ok(Some(Box::new(TextEncoder { column, blocks })))
    }

    fn decoder(&self, t: SqlType, shared: &[u8], rows: usize) -> Result<Box<dyn BlockDecoder>> {
        let table = if shared.is_empty() {
            None
        } else {
            Some(Table::decode(shared)?)
        };
        Ok(Box::new(TextDecoder {
            t,
            table,
            strings: Strings::with_capacity(rows),
        }))
    }
}

/// A token table for the column; `None` if it would not save space.
fn train(column: Column<'_>) -> Result<Option<Parser>> {
    let strings =
        || (0..column.array.len()).filter_map(|row| bytes_at(column.t, column.array, row));
    let total: usize = strings().map(<[u8]>::len).sum();
    if total < MIN_TRAINING_BYTES {
        return Ok(None);
    }
    let step = total.div_ceil(SAMPLE_BYTES);
    let sample: Vec<&[u8]> = strings()
        .step_by(step)
        .map(|s| &s[..s.len().min(SAMPLE_STRING_BYTES)])
        .scan(0, |taken, s| {
            *taken += s.len();
            (*taken <= SAMPLE_BYTES).then_some(s)
        })
        .collect();
    let config = Config {
        max_dict_bits: MaxDictBits::new(CODE_BITS).map_err(training_failed)?,
        threshold: Threshold::new(0.25).map_err(training_failed)?,
        seed: Some(0),
    };
    let parser = Parser::train_rows(&sample[..], config);
    // The estimate uses a quarter of the sample, spread over it.
    let probe: Vec<&[u8]> = sample.iter().copied().step_by(4).collect();
    let probe_bytes: usize = probe.iter().map(|s| s.len()).sum();
    let (mut codes, mut offsets) = (Vec::new(), Vec::<u64>::new());
    parser.parse_rows_into(&probe[..], &mut codes, &mut offsets);
    let ratio = packed_len(codes.len()) as f64 / probe_bytes.max(1) as f64;
    let size = total as f64 * ratio + parser.dict.logical_len() as f64;
    let usable = parser.dict.num_tokens() <= MAX_TOKENS && size < total as f64 * 0.9;
    Ok(usable.then_some(parser))
}

fn training_failed(error: onpair::Error) -> Error {
    Error::internal(format!("training a token table failed: {error}"))
}

/// The token table in the footer's form: number of tokens, their lengths, their bytes.
fn table_bytes(parser: &Parser) -> Vec<u8> {
    let (bytes, offsets) = (parser.dict.bytes(), parser.dict.offsets());
    let mut out = Vec::with_capacity(parser.dict.logical_len() + offsets.len() + 2);
    out.put_u16(parser.dict.num_tokens() as u16);
    offsets
        .windows(2)
        .for_each(|w| out.put_u8((w[1] - w[0]) as u8));
    out.extend_from_slice(&bytes[..parser.dict.logical_len()]);
    out
}

/// Encodes blocks with one token table, for strings of any arrays.
pub(super) struct TextBlocks {
    parser: Option<Parser>,
    shared: Vec<u8>,
    codes: Vec<u16>,
}

impl TextBlocks {
    /// Trains a token table on the strings of `column`.
    pub fn train(column: Column<'_>) -> Result<Self> {
        let parser = train(column)?;
        let shared = parser.as_ref().map_or_else(Vec::new, table_bytes);
        Ok(Self {
            parser,
            shared,
            codes: Vec::new(),
        })
    }

    /// The token table for the footer.
    pub fn shared(&self) -> &[u8] {
        &self.shared
    }

    /// Appends the values of `rows` of `column`, one block.
    pub fn encode(
        &mut self,
        column: Column<'_>,
        rows: Range<usize>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let bytes = |row| bytes_at(column.t, column.array, row).unwrap_or_default();
        let strings: Vec<&[u8]> = rows.map(bytes).collect();
        let lengths: Vec<i64> = strings.iter().map(|s| s.len() as i64).collect();
        let total: usize = strings.iter().map(|s| s.len()).sum();
        integers::encode::<u32>(&lengths, out);
        if let Some(parser) = &self.parser {
            parser.parse_rows_into(&strings[..], &mut self.codes, &mut Vec::<u64>::new());
            if packed_len(self.codes.len()) < total {
                out.put_u8(TOKENS);
                out.put_varint(self.codes.len() as u64);
                pack(&self.codes, out);
                return Ok(());
            }
        }
        out.put_u8(PLAIN);
        out.reserve(total);
        strings.iter().for_each(|s| out.extend_from_slice(s));
        Ok(())
    }
}

struct TextEncoder<'a> {
    column: Column<'a>,
    blocks: TextBlocks,
}

impl BlockEncoder for TextEncoder<'_> {
    fn encode(&mut self, rows: Range<usize>, out: &mut Vec<u8>) -> Result<()> {
        self.blocks.encode(self.column, rows, out)
    }

    fn shared(&self) -> &[u8] {
        self.blocks.shared()
    }
}

/// Bytes of `codes` packed codes.
fn packed_len(codes: usize) -> usize {
    codes.div_ceil(2) * 3
}

/// Two codes in three bytes, the first in the low bits; a last odd code is followed by zeros.
fn pack(codes: &[u16], out: &mut Vec<u8>) {
    out.reserve(packed_len(codes.len()));
    for pair in codes.chunks(2) {
        let second = pair.get(1).copied().unwrap_or(0);
        let bits = u32::from(pair[0]) | (u32::from(second) << CODE_BITS);
        out.extend_from_slice(&bits.to_le_bytes()[..3]);
    }
}

/// A token table for decoding: for every possible code 16 bytes and the length.
struct Table {
    tokens: Vec<([u8; TOKEN_BYTES], u8)>,
}

impl Table {
    fn decode(shared: &[u8]) -> Result<Self> {
        let mut tokens = vec![([0; TOKEN_BYTES], 0); MAX_TOKENS];
        let mut reader = ByteReader::new(shared);
        let lengths = reader.u16().and_then(|n| reader.take(usize::from(n)));
        for (i, &len) in lengths.unwrap_or_default().iter().enumerate() {
            let token = reader
                .take(usize::from(len))
                .filter(|t| t.len() <= TOKEN_BYTES);
            let (Some(token), Some(entry)) = (token, tokens.get_mut(i)) else {
                return Err(undecodable("malformed token table".to_owned()));
            };
            entry.0[..token.len()].copy_from_slice(token);
            entry.1 = len;
        }
        Ok(Self { tokens })
    }

    /// Writes the tokens of `count` packed codes to `out`, at most `limit` bytes; returns the
    /// number of bytes, or `None` if there would be more.
    fn expand(&self, packed: &[u8], count: usize, out: &mut [u8]) -> Option<usize> {
        let mut at = 0;
        let mut put = |code: u32| -> Option<()> {
            let (token, len) = self.tokens.get(code as usize % MAX_TOKENS)?;
            out.get_mut(at..at + TOKEN_BYTES)?.copy_from_slice(token);
            at += usize::from(*len);
            Some(())
        };
        let (pairs, last) = packed.split_at(count / 2 * 3);
        for pair in pairs.chunks_exact(3) {
            let bits = u32::from_le_bytes([pair[0], pair[1], pair[2], 0]);
            put(bits)?;
            put(bits >> CODE_BITS)?;
        }
        if let [low, high, _] = last {
            put(u32::from_le_bytes([*low, *high, 0, 0]))?;
        }
        Some(at)
    }
}

struct TextDecoder {
    t: SqlType,
    table: Option<Table>,
    strings: Strings,
}

impl TextDecoder {
    fn append_tokens(&mut self, total: usize, reader: &mut ByteReader<'_>) -> Result<()> {
        let count = reader.varint().and_then(|n| usize::try_from(n).ok());
        let packed = count.and_then(|n| reader.take(n.div_ceil(2).checked_mul(3)?));
        let (Some(table), Some(count), Some(packed)) = (&self.table, count, packed) else {
            return Err(undecodable(
                "no token table, or not as many codes as announced".to_owned(),
            ));
        };
        if total > count.saturating_mul(TOKEN_BYTES) {
            return Err(undecodable(format!("{total} bytes from {count} codes")));
        }
        let expand = |out: &mut [u8]| table.expand(packed, count, out);
        let written = self.strings.append_with(total, TOKEN_BYTES, expand);
        if written != Some(total) {
            return Err(undecodable(format!(
                "expected {total} bytes of text, got {written:?}"
            )));
        }
        Ok(())
    }
}

impl BlockDecoder for TextDecoder {
    fn append(&mut self, rows: usize, reader: &mut ByteReader<'_>) -> Result<()> {
        let mut lengths = integers::room::<u32, u32>(rows);
        integers::decode(rows, reader, &mut lengths)?;
        let total = self.strings.append_lengths(lengths.iter().copied());
        match reader.u8() {
            Some(TOKENS) => self.append_tokens(total, reader),
            Some(PLAIN) => {
                let bytes = reader.take(total);
                let bytes = bytes.ok_or_else(|| undecodable("the text is cut off".to_owned()))?;
                self.strings.append_bytes(bytes);
                Ok(())
            }
            form => Err(undecodable(format!("unknown form {form:?} of text"))),
        }
    }

    fn append_constant(&mut self, rows: usize, value: &Value) -> Result<()> {
        self.strings.append_constant(rows, value)
    }

    fn append_nulls(&mut self, rows: usize) {
        self.strings.append_empty(rows);
    }

    fn finish(self: Box<Self>, nulls: Option<NullBuffer>) -> Result<ArrayRef> {
        self.strings.finish(self.t, nulls)
    }
}
