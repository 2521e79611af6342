//! Codec 0, raw: values in Arrow's layout, little-endian. It is the fallback of every other codec,
//! and the codec of types that need no other: booleans (one bit each), interval, uuid and point (16
//! bytes each), box (32 bytes), decimals that need 128 bits. Text is one 32-bit length per row and then all bytes.
//!
//! A dictionary's values are also a raw block.

use super::strings::Strings;
use super::undecodable;
use super::{BlockDecoder, BlockEncoder, ChunkCodec, Column};
use crate::types::{arrow_type, bytes_at, coordinate_array, coordinates, fixed_width};
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal64Type, Decimal128Type, Float32Type, Float64Type,
    Int16Type, Int32Type, Int64Type, IntervalMonthDayNanoType, Time64MicrosecondType,
    TimestampMicrosecondType,
};
use arrow_array::{Array, ArrayRef, BooleanArray, FixedSizeBinaryArray, PrimitiveArray};
use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder, Buffer, MutableBuffer, NullBuffer};
use arrow_buffer::{ScalarBuffer, ToByteSlice};
use arrow_schema::DataType;
use std::ops::Range;
use std::sync::Arc;
use strandline_base::bytes::{ByteReader, PutBytes};
use strandline_base::value_words::{wide_of, word_of};
use strandline_base::{Result, SqlType, Value};

/// The codec.
pub(super) struct Raw;

impl ChunkCodec for Raw {
    fn id(&self) -> u8 {
        0
    }

    fn encoder<'a>(&self, column: Column<'a>) -> Result<Option<Box<dyn BlockEncoder + 'a>>> {
        Ok(Some(Box::new(RawEncoder { column })))
    }

    fn decoder(&self, t: SqlType, _: &[u8], rows: usize) -> Result<Box<dyn BlockDecoder>> {
        Ok(match arrow_type(t) {
            DataType::Utf8View | DataType::BinaryView => Box::new(RawStrings {
                t,
                strings: Strings::with_capacity(rows),
            }),
            DataType::Boolean => Box::new(RawBooleans {
                values: BooleanBufferBuilder::new(rows),
            }),
            _ => {
                let width = fixed_width(&arrow_type(t))
                    .ok_or_else(|| undecodable(format!("{t} has no fixed width")))?;
                let values = MutableBuffer::with_capacity(rows * width);
                Box::new(RawFixed { t, width, values })
            }
        })
    }
}

struct RawEncoder<'a> {
    column: Column<'a>,
}

impl BlockEncoder for RawEncoder<'_> {
    fn encode(&mut self, rows: Range<usize>, out: &mut Vec<u8>) -> Result<()> {
        encode_values(
            self.column.t,
            &self.column.array.slice(rows.start, rows.len()),
            out,
        );
        Ok(())
    }
}

/// Appends the values of `array` in raw form. NULL slots may have any value.
pub(super) fn encode_values(t: SqlType, array: &ArrayRef, out: &mut Vec<u8>) {
    match arrow_type(t) {
        DataType::Utf8View | DataType::BinaryView => {
            let bytes = |row| bytes_at(t, array, row).unwrap_or_default();
            (0..array.len()).for_each(|row| out.put_u32(bytes(row).len() as u32));
            (0..array.len()).for_each(|row| out.extend_from_slice(bytes(row)));
        }
        DataType::Boolean => {
            let mut bits = vec![0u8; array.len().div_ceil(8)];
            array
                .as_boolean()
                .values()
                .set_indices()
                .for_each(|i| bits[i / 8] |= 1 << (i % 8));
            out.extend_from_slice(&bits);
        }
        DataType::Int16 => plain::<Int16Type>(array, out),
        DataType::Int32 => plain::<Int32Type>(array, out),
        DataType::Int64 => plain::<Int64Type>(array, out),
        DataType::Float32 => plain::<Float32Type>(array, out),
        DataType::Float64 => plain::<Float64Type>(array, out),
        DataType::Decimal64(..) => plain::<Decimal64Type>(array, out),
        DataType::Decimal128(..) => plain::<Decimal128Type>(array, out),
        DataType::Date32 => plain::<Date32Type>(array, out),
        DataType::Time64(_) => plain::<Time64MicrosecondType>(array, out),
        DataType::Timestamp(..) => plain::<TimestampMicrosecondType>(array, out),
        DataType::Interval(_) => plain::<IntervalMonthDayNanoType>(array, out),
        DataType::FixedSizeBinary(_) => {
            let array = array.as_fixed_size_binary();
            (0..array.len()).for_each(|row| out.extend_from_slice(array.value(row)));
        }
        DataType::FixedSizeList(..) => out.extend_from_slice(coordinates(array).to_byte_slice()),
        other => unreachable!("no SQL type maps to {other}"),
    }
}

fn plain<P: ArrowPrimitiveType>(array: &ArrayRef, out: &mut Vec<u8>) {
    // Arrow keeps values in host order; the format is little-endian.
    const { assert!(cfg!(target_endian = "little")) };
    out.extend_from_slice(array.as_primitive::<P>().values().to_byte_slice());
}

struct RawFixed {
    t: SqlType,
    width: usize,
    values: MutableBuffer,
}

impl BlockDecoder for RawFixed {
    fn append(&mut self, rows: usize, reader: &mut ByteReader<'_>) -> Result<()> {
        self.values
            .extend_from_slice(take(reader, rows * self.width)?);
        Ok(())
    }

    fn append_constant(&mut self, rows: usize, value: &Value) -> Result<()> {
        let words = match (word_of(value), wide_of(value)) {
            (_, Some([low, high])) if self.width == 16 => [low, high],
            (Some(word), _) => [word, 0],
            _ => {
                return Err(undecodable(format!(
                    "constant {value:?} of type {}",
                    self.t
                )));
            }
        };
        let bytes = words.map(u64::to_le_bytes).concat();
        (0..rows).for_each(|_| self.values.extend_from_slice(&bytes[..self.width]));
        Ok(())
    }

    fn append_nulls(&mut self, rows: usize) {
        self.values.extend_zeros(rows * self.width);
    }

    fn finish(self: Box<Self>, nulls: Option<NullBuffer>) -> Result<ArrayRef> {
        let rows = self.values.len() / self.width;
        Ok(fixed_array(self.t, self.values.into(), rows, nulls))
    }
}

/// An array of `t`, a type of fixed width but not boolean, over a buffer of `rows` values.
pub(super) fn fixed_array(
    t: SqlType,
    values: Buffer,
    rows: usize,
    nulls: Option<NullBuffer>,
) -> ArrayRef {
    let data_type = arrow_type(t);
    match &data_type {
        DataType::Int16 => typed::<Int16Type>(data_type, values, rows, nulls),
        DataType::Int32 => typed::<Int32Type>(data_type, values, rows, nulls),
        DataType::Int64 => typed::<Int64Type>(data_type, values, rows, nulls),
        DataType::Float32 => typed::<Float32Type>(data_type, values, rows, nulls),
        DataType::Float64 => typed::<Float64Type>(data_type, values, rows, nulls),
        DataType::Decimal64(..) => typed::<Decimal64Type>(data_type, values, rows, nulls),
        DataType::Decimal128(..) => typed::<Decimal128Type>(data_type, values, rows, nulls),
        DataType::Date32 => typed::<Date32Type>(data_type, values, rows, nulls),
        DataType::Time64(_) => typed::<Time64MicrosecondType>(data_type, values, rows, nulls),
        DataType::Timestamp(..) => {
            typed::<TimestampMicrosecondType>(data_type, values, rows, nulls)
        }
        DataType::Interval(_) => typed::<IntervalMonthDayNanoType>(data_type, values, rows, nulls),
        DataType::FixedSizeBinary(width) => {
            Arc::new(FixedSizeBinaryArray::new(*width, values, nulls))
        }
        DataType::FixedSizeList(..) => coordinate_array(&data_type, values, nulls),
        other => unreachable!("{other} is not of fixed width"),
    }
}

fn typed<P: ArrowPrimitiveType>(
    data_type: DataType,
    values: Buffer,
    rows: usize,
    nulls: Option<NullBuffer>,
) -> ArrayRef {
    let values = ScalarBuffer::<P::Native>::new(values, 0, rows);
    Arc::new(PrimitiveArray::<P>::new(values, nulls).with_data_type(data_type))
}

struct RawBooleans {
    values: BooleanBufferBuilder,
}

impl BlockDecoder for RawBooleans {
    fn append(&mut self, rows: usize, reader: &mut ByteReader<'_>) -> Result<()> {
        self.values
            .append_packed_range(0..rows, take(reader, rows.div_ceil(8))?);
        Ok(())
    }

    fn append_constant(&mut self, rows: usize, value: &Value) -> Result<()> {
        self.values.append_n(rows, *value == Value::Boolean(true));
        Ok(())
    }

    fn append_nulls(&mut self, rows: usize) {
        self.values.append_n(rows, false);
    }

    fn finish(mut self: Box<Self>, nulls: Option<NullBuffer>) -> Result<ArrayRef> {
        let values: BooleanBuffer = self.values.finish();
        Ok(Arc::new(BooleanArray::new(values, nulls)))
    }
}

struct RawStrings {
    t: SqlType,
    strings: Strings,
}

impl BlockDecoder for RawStrings {
    fn append(&mut self, rows: usize, reader: &mut ByteReader<'_>) -> Result<()> {
        let lengths = take(reader, rows * 4)?;
        let lengths = lengths
            .chunks_exact(4)
            .map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
        let total = self.strings.append_lengths(lengths);
        self.strings.append_bytes(take(reader, total)?);
        Ok(())
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

fn take<'a>(reader: &mut ByteReader<'a>, len: usize) -> Result<&'a [u8]> {
    reader
        .take(len)
        .ok_or_else(|| undecodable("the bytes end early".to_owned()))
}
