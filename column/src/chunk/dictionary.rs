//! Codec 2, dictionary: the footer has the chunk's distinct values, and each row the number of its
//! value, as [`integers`] of 16 bits. It is chosen for columns of few distinct values if the result
//! is clearly smaller. Text also decodes fast, because all rows share the dictionary's buffers.

use super::integers;
use super::numbers::{fill_nulls, is_words, words_of};
use super::raw::{self, Raw};
use super::undecodable;
use super::{BlockDecoder, BlockEncoder, ChunkCodec, Column};
use crate::types::{bytes_at, is_of_any_length, wide_at, word_at};
use arrow_array::types::UInt16Type;
use arrow_array::{Array, ArrayRef, PrimitiveArray, UInt32Array};
use arrow_buffer::{NullBuffer, ScalarBuffer};
use arrow_select::take::take;
use hashbrown::HashMap;
use std::hash::Hash;
use std::ops::Range;
use strandline_base::bytes::{ByteReader, PutBytes};
use strandline_base::value_words::{Physical, physical};
use strandline_base::{Error, Result, SqlType, Value};

/// The rows of the sample that decides about a dictionary.
const SAMPLE_ROWS: usize = 4096;
/// Most entries of a dictionary.
const MAX_ENTRIES: usize = 8192;
/// The most bytes of a dictionary's values: a point read reads all of them.
const MAX_DICTIONARY_BYTES: usize = 96 << 10;

/// The codec.
pub(super) struct Dictionary;

impl ChunkCodec for Dictionary {
    fn id(&self) -> u8 {
        2
    }

    fn encoder<'a>(&self, column: Column<'a>) -> Result<Option<Box<dyn BlockEncoder + 'a>>> {
        if column.t == SqlType::Boolean || !promising(column) {
            return Ok(None);
        }
        let (t, array) = (column.t, column.array);
        let found = match physical(t) {
            Physical::Word => distinct(array.len(), |row| word_at(t, array, row)),
            Physical::Wide => distinct(array.len(), |row| wide_at(t, array, row)),
            Physical::Bytes => distinct(array.len(), |row| bytes_at(t, array, row)),
        };
        let Some((codes, first_rows)) = found else {
            return Ok(None);
        };
        let entries = first_rows.len();
        let values = take(array, &UInt32Array::from(first_rows), None)
            .map_err(|e| Error::internal(format!("building a dictionary failed: {e}")))?;
        let mut shared = Vec::new();
        shared.put_varint(entries as u64);
        raw::encode_values(t, &values, &mut shared);
        if shared.len() > MAX_DICTIONARY_BYTES {
            return Ok(None);
        }
        let size = shared.len() + array.len() * bits_for(entries) / 8;
        let alternative = match physical(t) {
            _ if packs(column) => array.len() * packed_bits(column) / 8,
            Physical::Word | Physical::Wide => array.len() * 16,
            Physical::Bytes if !is_of_any_length(t) => total_bytes(column),
            Physical::Bytes => array.len() + total_bytes(column) / 4,
        };
        if size * 10 > alternative * 8 {
            return Ok(None);
        }
        Ok(Some(Box::new(DictionaryEncoder { codes, shared })))
    }

    fn decoder(&self, t: SqlType, shared: &[u8], rows: usize) -> Result<Box<dyn BlockDecoder>> {
        let mut reader = ByteReader::new(shared);
        let entries = reader.varint().and_then(|n| usize::try_from(n).ok());
        let entries = entries.filter(|&n| n <= MAX_ENTRIES);
        let entries = entries.ok_or_else(|| undecodable("no dictionary".to_owned()))?;
        let mut values = Raw.decoder(t, &[], entries)?;
        values.append(entries, &mut reader)?;
        Ok(Box::new(DictionaryDecoder {
            dictionary: values.finish(None)?,
            codes: integers::room::<u16, u16>(rows),
        }))
    }
}

/// Whether a sample has few enough distinct values to try a dictionary.
fn promising(column: Column<'_>) -> bool {
    let (t, array) = (column.t, column.array);
    let step = array.len().div_ceil(SAMPLE_ROWS).max(1);
    let rows = array.len().div_ceil(step);
    let found = match physical(t) {
        Physical::Word => distinct(rows, |i| word_at(t, array, i * step)),
        Physical::Wide => distinct(rows, |i| wide_at(t, array, i * step)),
        Physical::Bytes => distinct(rows, |i| bytes_at(t, array, i * step)),
    };
    let Some((_, first_rows)) = found else {
        return false;
    };
    let entries = first_rows.len();
    entries > 0
        && entries * 2 <= rows.max(4)
        && (!packs(column) || bits_for(entries) * 10 <= packed_bits(column) * 7)
}

/// The number of the distinct value of each row (0 for NULL until a block is encoded), and the
/// row where each distinct value occurs first; `None` when there are too many.
fn distinct<K: Hash + Eq>(
    rows: usize,
    key: impl Fn(usize) -> Option<K>,
) -> Option<(Vec<Option<u16>>, Vec<u32>)> {
    let mut numbers: HashMap<K, u16> = HashMap::new();
    let (mut codes, mut first_rows) = (Vec::with_capacity(rows), Vec::new());
    for row in 0..rows {
        let Some(key) = key(row) else {
            codes.push(None);
            continue;
        };
        let next = first_rows.len() as u16;
        let code = *numbers.entry(key).or_insert(next);
        if code == next {
            if first_rows.len() == MAX_ENTRIES {
                return None;
            }
            first_rows.push(row as u32);
        }
        codes.push(Some(code));
    }
    Some((codes, first_rows))
}

fn bits_for(entries: usize) -> usize {
    (usize::BITS - entries.saturating_sub(1).leading_zeros()) as usize
}

/// Whether codec 1 would pack the column's values instead of storing them in full.
fn packs(column: Column<'_>) -> bool {
    match physical(column.t) {
        Physical::Word => true,
        Physical::Wide => is_words(column.array),
        Physical::Bytes => false,
    }
}

/// The approximate bits per row in codec 1: of a sample's range, in units of its divisor.
fn packed_bits(column: Column<'_>) -> usize {
    let sample = 0..column.array.len().min(SAMPLE_ROWS);
    let Some(words) = words_of(column.array, sample) else {
        return 8 * column.array.data_type().primitive_width().unwrap_or(8) / 2;
    };
    integers::packed_bits(&words)
}

fn total_bytes(column: Column<'_>) -> usize {
    let rows = 0..column.array.len();
    rows.filter_map(|row| bytes_at(column.t, column.array, row))
        .map(<[u8]>::len)
        .sum()
}

struct DictionaryEncoder {
    codes: Vec<Option<u16>>,
    shared: Vec<u8>,
}

impl BlockEncoder for DictionaryEncoder {
    fn encode(&mut self, rows: Range<usize>, out: &mut Vec<u8>) -> Result<()> {
        let block = &self.codes[rows];
        let nulls: NullBuffer = block.iter().map(Option::is_some).collect();
        let mut codes: Vec<i64> = block.iter().map(|c| i64::from(c.unwrap_or(0))).collect();
        fill_nulls(&mut codes, Some(&nulls));
        integers::encode::<u16>(&codes, out);
        Ok(())
    }

    fn shared(&self) -> &[u8] {
        &self.shared
    }

    fn omits_constants(&self) -> bool {
        false
    }
}

struct DictionaryDecoder {
    dictionary: ArrayRef,
    codes: Vec<u16>,
}

impl BlockDecoder for DictionaryDecoder {
    fn append(&mut self, rows: usize, reader: &mut ByteReader<'_>) -> Result<()> {
        integers::decode(rows, reader, &mut self.codes)
    }

    fn append_constant(&mut self, _: usize, value: &Value) -> Result<()> {
        Err(undecodable(format!(
            "constant {value:?} in a dictionary chunk"
        )))
    }

    fn append_nulls(&mut self, rows: usize) {
        self.codes.resize(self.codes.len() + rows, 0);
    }

    fn finish(self: Box<Self>, nulls: Option<NullBuffer>) -> Result<ArrayRef> {
        let greatest = self.codes.iter().copied().max().unwrap_or(0);
        if usize::from(greatest) >= self.dictionary.len() {
            let entries = self.dictionary.len();
            return Err(undecodable(format!(
                "value {greatest} of a dictionary of {entries}"
            )));
        }
        let codes = PrimitiveArray::<UInt16Type>::new(ScalarBuffer::from(self.codes), nulls);
        take(&self.dictionary, &codes, None).map_err(|e| undecodable(e.to_string()))
    }
}
