//! Codec 1, numbers.
//!
//! Integers, dates, times, timestamps and numerics are [`integers`] of the width of their Arrow
//! type; numerics of more than 18 digits as well when every value of the chunk fits 64 bits.
//! Floats are [`floats`].

use super::floats::{self, Float};
use super::integers::{self, Word};
use super::raw::fixed_array;
use super::undecodable;
use super::{BlockDecoder, BlockEncoder, ChunkCodec, Column};
use crate::types::arrow_type;
use crate::word_patches::WordPatches;
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal64Type, Decimal128Type, Float32Type, Float64Type,
    Int16Type, Int32Type, Int64Type, Time64MicrosecondType, TimestampMicrosecondType,
};
use arrow_array::{Array, ArrayRef};
use arrow_buffer::{Buffer, NullBuffer};
use arrow_schema::DataType;
use std::ops::Range;
use strandline_base::bytes::ByteReader;
use strandline_base::value_words::word_of;
use strandline_base::{Result, SqlType, Value};

/// The codec.
pub(super) struct Numbers;

/// The codec's number in footers.
pub(super) const ID: u8 = 1;

impl ChunkCodec for Numbers {
    fn id(&self) -> u8 {
        ID
    }

    fn encoder<'a>(&self, column: Column<'a>) -> Result<Option<Box<dyn BlockEncoder + 'a>>> {
        let data_type = column.array.data_type();
        Ok(match data_type {
            DataType::Float32 | DataType::Float64 => Some(Box::new(FloatEncoder { column })),
            _ if is_words(column.array) => Some(Box::new(WordEncoder { column })),
            _ => None,
        })
    }

    fn decoder(&self, t: SqlType, _: &[u8], rows: usize) -> Result<Box<dyn BlockDecoder>> {
        let data_type = arrow_type(t);
        Ok(match (integer_width(&data_type), data_type) {
            (_, DataType::Float32) => Box::new(Floats::<f32>::new(t, rows)),
            (_, DataType::Float64) => Box::new(Floats::<f64>::new(t, rows)),
            (Some(Width::Two), _) => Box::new(Words::<u16>::new(t, rows)),
            (Some(Width::Four), _) => Box::new(Words::<u32>::new(t, rows)),
            (Some(Width::Eight), _) => Box::new(Words::<u64>::new(t, rows)),
            (None, other) => return Err(undecodable(format!("{other} is not stored as numbers"))),
        })
    }
}

/// The bytes of an integer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Width {
    Two,
    Four,
    Eight,
}

/// The width of the integers that a type's values are stored as; None: they are none.
pub(super) fn integer_width(data_type: &DataType) -> Option<Width> {
    match data_type {
        DataType::Int16 => Some(Width::Two),
        DataType::Int32 | DataType::Date32 => Some(Width::Four),
        DataType::Int64
        | DataType::Decimal64(..)
        | DataType::Decimal128(..)
        | DataType::Time64(_)
        | DataType::Timestamp(..) => Some(Width::Eight),
        _ => None,
    }
}

/// Whether the values are words, or numerics that all fit a word.
pub(super) fn is_words(array: &ArrayRef) -> bool {
    match array.data_type() {
        DataType::Decimal128(..) => fits_words(array),
        _ => words_of(array, 0..0).is_some(),
    }
}

/// Whether every non-null value of a `Decimal128` array fits 64 bits.
fn fits_words(array: &ArrayRef) -> bool {
    array
        .as_primitive::<Decimal128Type>()
        .iter()
        .flatten()
        .all(|v| i64::try_from(v).is_ok())
}

/// The values of `rows` as sign-extended words; NULL slots repeat the value before them, which
/// costs the least space. `None` for types that are not words.
pub(super) fn words_of(array: &ArrayRef, rows: Range<usize>) -> Option<Vec<i64>> {
    let block = array.slice(rows.start, rows.len());
    let mut words = match array.data_type() {
        DataType::Int16 => widen::<Int16Type>(&block),
        DataType::Int32 => widen::<Int32Type>(&block),
        DataType::Int64 => widen::<Int64Type>(&block),
        DataType::Decimal64(..) => widen::<Decimal64Type>(&block),
        DataType::Date32 => widen::<Date32Type>(&block),
        DataType::Time64(_) => widen::<Time64MicrosecondType>(&block),
        DataType::Timestamp(..) => widen::<TimestampMicrosecondType>(&block),
        DataType::Decimal128(..) => block
            .as_primitive::<Decimal128Type>()
            .values()
            .iter()
            .map(|&v| v as i64)
            .collect(),
        _ => return None,
    };
    fill_nulls(&mut words, block.nulls());
    Some(words)
}

fn widen<P: ArrowPrimitiveType>(block: &ArrayRef) -> Vec<i64>
where
    P::Native: Into<i64>,
{
    block
        .as_primitive::<P>()
        .values()
        .iter()
        .map(|&v| v.into())
        .collect()
}

/// Gives every NULL slot the value of the nearest valid slot before it (else after it).
pub(super) fn fill_nulls<T: Copy>(values: &mut [T], nulls: Option<&NullBuffer>) {
    let Some(nulls) = nulls else { return };
    let Some(first) = nulls.valid_indices().next() else {
        return;
    };
    let mut last = values[first];
    for (i, value) in values.iter_mut().enumerate() {
        if nulls.is_valid(i) {
            last = *value;
        } else {
            *value = last;
        }
    }
}

struct WordEncoder<'a> {
    column: Column<'a>,
}

impl BlockEncoder for WordEncoder<'_> {
    fn encode(&mut self, rows: Range<usize>, out: &mut Vec<u8>) -> Result<()> {
        let words = words_of(self.column.array, rows).expect("the codec took a column of words");
        match self.column.array.data_type().primitive_width() {
            Some(2) => integers::encode::<u16>(&words, out),
            Some(4) => integers::encode::<u32>(&words, out),
            _ => integers::encode::<u64>(&words, out),
        }
        Ok(())
    }
}

struct Words<T> {
    t: SqlType,
    values: Vec<T>,
}

impl<T: Word> Words<T> {
    fn new(t: SqlType, rows: usize) -> Self {
        Self {
            t,
            values: integers::room::<T, T>(rows),
        }
    }
}

impl<T: Word> BlockDecoder for Words<T> {
    fn append(&mut self, rows: usize, reader: &mut ByteReader<'_>) -> Result<()> {
        integers::decode(rows, reader, &mut self.values)
    }

    fn append_constant(&mut self, rows: usize, value: &Value) -> Result<()> {
        let word = word_of(value).ok_or_else(|| undecodable(format!("constant {value:?}")))?;
        self.values.resize(self.values.len() + rows, T::of(word));
        Ok(())
    }

    fn append_nulls(&mut self, rows: usize) {
        self.values.resize(self.values.len() + rows, T::of(0));
    }

    fn patch(&mut self, patches: &WordPatches<'_>) -> bool {
        patches.for_each(|row, word| self.values[row] = T::of(word));
        true
    }

    fn finish(self: Box<Self>, nulls: Option<NullBuffer>) -> Result<ArrayRef> {
        let rows = self.values.len();
        let buffer = if matches!(arrow_type(self.t), DataType::Decimal128(..)) {
            let wide = |v: &T| i128::from(v.word() as i64);
            Buffer::from_vec(self.values.iter().map(wide).collect::<Vec<i128>>())
        } else {
            Buffer::from_vec(self.values)
        };
        Ok(fixed_array(self.t, buffer, rows, nulls))
    }
}

struct FloatEncoder<'a> {
    column: Column<'a>,
}

impl BlockEncoder for FloatEncoder<'_> {
    fn encode(&mut self, rows: Range<usize>, out: &mut Vec<u8>) -> Result<()> {
        let block = self.column.array.slice(rows.start, rows.len());
        if block.data_type() == &DataType::Float32 {
            encode_floats::<Float32Type>(&block, out);
        } else {
            encode_floats::<Float64Type>(&block, out);
        }
        Ok(())
    }
}

fn encode_floats<P: ArrowPrimitiveType>(block: &ArrayRef, out: &mut Vec<u8>)
where
    P::Native: Float,
{
    let mut values = block.as_primitive::<P>().values().to_vec();
    fill_nulls(&mut values, block.nulls());
    floats::encode(&values, out);
}

struct Floats<T> {
    t: SqlType,
    values: Vec<T>,
}

impl<T: Float> Floats<T> {
    fn new(t: SqlType, rows: usize) -> Self {
        Self {
            t,
            values: integers::room::<T::Integer, T>(rows),
        }
    }
}

impl<T: Float> BlockDecoder for Floats<T> {
    fn append(&mut self, rows: usize, reader: &mut ByteReader<'_>) -> Result<()> {
        floats::decode(rows, reader, &mut self.values)
    }

    fn append_constant(&mut self, rows: usize, value: &Value) -> Result<()> {
        let word = word_of(value).ok_or_else(|| undecodable(format!("constant {value:?}")))?;
        self.values
            .resize(self.values.len() + rows, T::of_word(word));
        Ok(())
    }

    fn append_nulls(&mut self, rows: usize) {
        self.values.resize(self.values.len() + rows, T::default());
    }

    fn patch(&mut self, patches: &WordPatches<'_>) -> bool {
        patches.for_each(|row, word| self.values[row] = T::of_word(word));
        true
    }

    fn finish(self: Box<Self>, nulls: Option<NullBuffer>) -> Result<ArrayRef> {
        let rows = self.values.len();
        let buffer = Buffer::from_vec(self.values);
        Ok(fixed_array(self.t, buffer, rows, nulls))
    }
}
