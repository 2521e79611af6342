//! A block of integers that stays encoded, and gives one value at a time.
//!
//! A point read of a cold block needs one of its 4,096 values. Decoding all of them takes longer,
//! and they take up to 32 KiB of memory, often more than twice the encoded bytes. Integers, dates,
//! times and numerics have this form unless a block's values are runs ([`super::integers`]).

use super::integers::{LineLayout, Word};
use super::numbers::{Width, integer_width};
use super::{ChunkFooter, check_block, decode_blocks, nulls, numbers, undecodable};
use crate::types::arrow_type;
use arrow_array::ArrayRef;
use arrow_buffer::{BooleanBufferBuilder, NullBuffer};
use strandline_base::bytes::ByteReader;
use strandline_base::value_words::value_of_word;
use strandline_base::{Result, SqlType, Value};

/// The places of a block's values in its bytes.
#[derive(Clone, Debug)]
pub struct PackedLayout {
    sql_type: SqlType,
    rows: usize,
    nulls: Option<NullBuffer>,
    values: Values,
}

/// Where the values are that are not NULL.
#[derive(Clone, Debug)]
enum Values {
    /// there is no more than this one
    Constant(Value),
    Line(LineLayout, Width),
}

/// The bytes of a block with their layout; the checksum has been compared.
#[derive(Debug)]
pub struct PackedBlock {
    layout: PackedLayout,
    bytes: Vec<u8>,
}

impl PackedLayout {
    /// The layout of block `block`, whose checksum is compared; None: its values can only be
    /// decoded together.
    ///
    /// # Errors
    /// As [`decode_block`](super::decode_block).
    pub fn of(
        t: SqlType,
        footer: &ChunkFooter,
        identity: u64,
        block: usize,
        bytes: &[u8],
    ) -> Result<Option<Self>> {
        let width = integer_width(&arrow_type(t)).filter(|_| footer.codec() == numbers::ID);
        let Some(width) = width else {
            return Ok(None);
        };
        check_block(footer, identity, block, bytes)?;
        let (rows, null_count) = (footer.block_rows(block), footer.block_nulls(block));
        let reader = &mut ByteReader::new(bytes);
        let mut valid = BooleanBufferBuilder::new(rows);
        nulls::decode(rows, null_count, reader, &mut valid)?;
        let values = if null_count == rows {
            Values::Constant(Value::Null)
        } else if footer.is_constant(block) {
            let (_, max) = footer.bounds(block);
            Values::Constant(max.unwrap_or(Value::Null))
        } else {
            let line = match width {
                Width::Two => LineLayout::read::<u16>(rows, reader),
                Width::Four => LineLayout::read::<u32>(rows, reader),
                Width::Eight => LineLayout::read::<u64>(rows, reader),
            };
            match line? {
                Some(line) => Values::Line(line, width),
                None => return Ok(None),
            }
        };
        let nulls = (null_count > 0).then(|| NullBuffer::new(valid.finish()));
        Ok(Some(Self {
            sql_type: t,
            rows,
            nulls,
            values,
        }))
    }

    /// The block, given the bytes whose layout this is.
    pub fn with_bytes(self, bytes: Vec<u8>) -> PackedBlock {
        PackedBlock {
            layout: self,
            bytes,
        }
    }
}

impl PackedBlock {
    /// The value of a row.
    ///
    /// # Errors
    /// A row that the block does not have, and bytes of another layout, are a corruption error.
    #[inline]
    pub fn value(&self, row: usize) -> Result<Value> {
        let layout = &self.layout;
        if row >= layout.rows {
            return Err(undecodable(format!("row {row} of {}", layout.rows)));
        }
        if layout
            .nulls
            .as_ref()
            .is_some_and(|nulls| nulls.is_null(row))
        {
            return Ok(Value::Null);
        }
        let (line, width) = match &layout.values {
            Values::Constant(value) => return Ok(value.clone()),
            Values::Line(line, width) => (line, width),
        };
        let word = match width {
            Width::Two => line.value::<u16>(&self.bytes, row).map(Word::word),
            Width::Four => line.value::<u32>(&self.bytes, row).map(Word::word),
            Width::Eight => line.value::<u64>(&self.bytes, row).map(Word::word),
        };
        let word = word.ok_or_else(|| undecodable("the bytes end early".to_owned()))?;
        Ok(value_of_word(layout.sql_type, word))
    }

    /// All values; `footer` and `block` are those of the layout.
    ///
    /// # Errors
    /// Bytes that cannot be decoded are a corruption error.
    pub fn decode(&self, footer: &ChunkFooter, block: usize) -> Result<ArrayRef> {
        let (t, source) = (self.layout.sql_type, |_| Some(self.bytes.as_slice()));
        let (array, _) = decode_blocks(t, footer, block..block + 1, source, &[], None)?;
        Ok(array)
    }

    /// Bytes in memory.
    pub fn memory_bytes(&self) -> usize {
        let nulls = self.layout.nulls.as_ref();
        size_of::<Self>() + self.bytes.capacity() + nulls.map_or(0, |nulls| nulls.len() / 8)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ChunkFooter, encode_chunk};
    use super::*;
    use crate::types::value_at;
    use arrow_array::{Array, Date32Array, Decimal128Array, Int16Array, Int32Array, Int64Array};
    use std::sync::Arc;
    use strandline_base::BLOCK_ROWS;
    use strandline_base::rng::Rng;

    const IDENTITY: u64 = 77;

    /// Compares each value with the decoded ones; returns the blocks that have a layout.
    fn compare(t: SqlType, array: &ArrayRef) -> usize {
        let mut bytes = Vec::new();
        let footer = encode_chunk(t, array, IDENTITY, &mut bytes).expect("encode");
        let mut packed = 0;
        for block in 0..footer.block_count() {
            let bytes = block_bytes(&footer, block, &bytes);
            let layout = PackedLayout::of(t, &footer, IDENTITY, block, bytes).expect("layout");
            let Some(layout) = layout else { continue };
            packed += 1;
            let block_rows = footer.block_rows(block);
            let read = layout.with_bytes(bytes.to_vec());
            assert!(read.memory_bytes() >= bytes.len());
            let first = block * BLOCK_ROWS;
            for row in 0..block_rows {
                let expected = value_at(t, array, first + row);
                assert_eq!(read.value(row).expect("value"), expected, "{t} {row}");
            }
            assert!(read.value(block_rows).is_err());
            let decoded = read.decode(&footer, block).expect("decode");
            assert_eq!(&decoded, &array.slice(first, block_rows));
        }
        packed
    }

    fn block_bytes<'a>(footer: &ChunkFooter, block: usize, bytes: &'a [u8]) -> &'a [u8] {
        let range = footer.block_range(block);
        &bytes[range.start as usize..range.end as usize]
    }

    #[test]
    fn one_value_is_that_of_the_decoded_block() {
        let rng = &mut Rng::new(11);
        let rows = 2 * BLOCK_ROWS + 77;
        for bits in [0, 1, 7, 16, 17, 31, 32, 33, 50, 63] {
            for null_one_in in [0, 2, 50] {
                let mut value = |row: usize| {
                    let is_null = null_one_in > 0 && rng.one_in(null_one_in);
                    // A line with residuals, and some outliers.
                    let outlier = if rng.one_in(500) { 1 << 62 } else { 0 };
                    let value =
                        (rng.below(1 << bits) as i64).wrapping_add(row as i64 * 3 - 9 + outlier);
                    (!is_null).then_some(value)
                };
                let values: Vec<Option<i64>> = (0..rows).map(&mut value).collect();
                let longs: ArrayRef = Arc::new(Int64Array::from(values.clone()));
                let ints = values.iter().map(|v| v.map(|v| v as i32));
                let ints: ArrayRef = Arc::new(ints.collect::<Int32Array>());
                let shorts = values.iter().map(|v| v.map(|v| v as i16));
                let shorts: ArrayRef = Arc::new(shorts.collect::<Int16Array>());
                let dates = values.iter().map(|v| v.map(|v| v as i32));
                let dates: ArrayRef = Arc::new(dates.collect::<Date32Array>());
                let wide = values.iter().map(|v| v.map(i128::from));
                let wide = wide.collect::<Decimal128Array>();
                let wide: ArrayRef = Arc::new(wide.with_precision_and_scale(30, 0).unwrap());
                let numeric = SqlType::Numeric {
                    precision: 30,
                    scale: 0,
                };
                // With many NULLs, which repeat the value before, runs may be shorter.
                let least = if null_one_in == 2 { 0 } else { 3 };
                assert!(compare(SqlType::BigInt, &longs) >= least);
                assert!(compare(numeric, &wide) >= least);
                compare(SqlType::Integer, &ints);
                compare(SqlType::SmallInt, &shorts);
                compare(SqlType::Date, &dates);
            }
        }
    }

    #[test]
    fn constants_and_nulls_have_a_layout_and_runs_have_none() {
        let constant: ArrayRef = Arc::new(Int64Array::from(vec![Some(7); 50]));
        let with_null: ArrayRef = Arc::new(Int64Array::from(vec![Some(7), None, Some(7)]));
        let nulls: ArrayRef = Arc::new(Int64Array::from(vec![None; 5000]));
        let serial: ArrayRef = Arc::new(Int64Array::from_iter_values(3..5000));
        for array in [&constant, &with_null, &nulls, &serial] {
            let blocks = array.len().div_ceil(BLOCK_ROWS);
            assert_eq!(compare(SqlType::BigInt, array), blocks);
        }
        let runs = (0..4000).map(|row| (row / 100) * 1_000_003 % 40_961);
        let runs: ArrayRef = Arc::new(Int64Array::from_iter_values(runs));
        assert!(compare(SqlType::BigInt, &runs) <= 1);
    }

    #[test]
    fn damage_is_an_error_and_other_bytes_are_no_panic() {
        let array: ArrayRef = Arc::new(Int64Array::from_iter_values((0..4096).map(|n| n * n)));
        let mut bytes = Vec::new();
        let footer = encode_chunk(SqlType::BigInt, &array, IDENTITY, &mut bytes).expect("encode");
        let block = block_bytes(&footer, 0, &bytes);
        let of =
            |identity, bytes: &[u8]| PackedLayout::of(SqlType::BigInt, &footer, identity, 0, bytes);
        let layout = of(IDENTITY, block).expect("layout").expect("a line");
        assert!(of(IDENTITY + 1, block).is_err());
        for at in 0..block.len() {
            let mut bad = block.to_vec();
            bad[at] ^= 1 << (at % 8);
            assert!(of(IDENTITY, &bad).is_err(), "byte {at}");
        }
        let cut = layout.with_bytes(block[..block.len() - 1].to_vec());
        assert!((0..4096).all(|row| cut.value(row).is_err()));
    }
}
