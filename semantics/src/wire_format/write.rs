//! Columns written value by value into the bytes of a message.

use super::types::{ColumnType, item_of};
use super::{EPOCH_DAYS, EPOCH_US, Format};
use crate::cast::strict_cast;
use crate::error::convert;
use crate::numeric_send::write_numeric;
use crate::text::ValueWriter;
use crate::types::{arrow_type, is_geometric, sql_type_of_arrow};
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BinaryViewArray, BooleanArray, FixedSizeBinaryArray,
    GenericListArray, OffsetSizeTrait, PrimitiveArray, StringArray, StringViewArray,
};
use datafusion::arrow::datatypes::{
    DataType, Date32Type, Decimal64Type, Decimal128Type, Float32Type, Float64Type, Int16Type,
    Int32Type, Int64Type, IntervalMonthDayNanoType, IntervalUnit, Time64MicrosecondType, TimeUnit,
    TimestampMicrosecondType,
};
use std::fmt;
use strandline_base::{Error, Result};
use strandline_column::types::coordinates_at;

/// `array` in the Arrow type of a stored column, which [`ColumnWriter`] accepts; usually unchanged.
pub fn storable_form(array: &ArrayRef) -> Result<ArrayRef> {
    let t = array.data_type();
    if is_writable(t) {
        return Ok(array.clone());
    }
    if let Some(item) = item_of(t) {
        let target = sql_type_of_arrow(item.data_type()).map(arrow_type);
        return match target {
            Some(target) if !is_writable(item.data_type()) => {
                let item = item.as_ref().clone().with_data_type(target);
                strict_cast(array, &DataType::List(item.into()))
            }
            _ => Ok(array.clone()),
        };
    }
    match sql_type_of_arrow(t) {
        Some(sql_type) => strict_cast(array, &arrow_type(sql_type)),
        None => Ok(array.clone()),
    }
}

fn is_writable(t: &DataType) -> bool {
    use DataType as T;
    is_geometric(t)
        || matches!(
            t,
            T::Null
                | T::Boolean
                | T::Int16
                | T::Int32
                | T::Int64
                | T::Float32
                | T::Float64
                | T::Decimal64(..)
                | T::Decimal128(..)
                | T::Utf8
                | T::Utf8View
                | T::Binary
                | T::BinaryView
                | T::FixedSizeBinary(16)
                | T::Date32
                | T::Time64(TimeUnit::Microsecond)
                | T::Timestamp(TimeUnit::Microsecond, _)
                | T::Interval(IntervalUnit::MonthDayNano)
        )
}

/// Writes the values of one array in one format.
pub struct ColumnWriter<'a> {
    array: &'a ArrayRef,
    kind: Kind<'a>,
}

enum Kind<'a> {
    Null,
    /// By the type's output function.
    Text(ValueWriter<'a>),
    Utf8(&'a StringArray),
    Utf8View(&'a StringViewArray),
    /// Integers in decimal.
    Digits16(&'a PrimitiveArray<Int16Type>),
    Digits32(&'a PrimitiveArray<Int32Type>),
    Digits64(&'a PrimitiveArray<Int64Type>),
    Boolean(&'a BooleanArray),
    Int16(&'a PrimitiveArray<Int16Type>),
    Int32(&'a PrimitiveArray<Int32Type>),
    Int64(&'a PrimitiveArray<Int64Type>),
    Float32(&'a PrimitiveArray<Float32Type>),
    Float64(&'a PrimitiveArray<Float64Type>),
    Decimal64(&'a PrimitiveArray<Decimal64Type>, u8),
    Decimal128(&'a PrimitiveArray<Decimal128Type>, u8),
    Binary(&'a BinaryArray),
    BinaryView(&'a BinaryViewArray),
    Uuid(&'a FixedSizeBinaryArray),
    Date(&'a PrimitiveArray<Date32Type>),
    Time(&'a PrimitiveArray<Time64MicrosecondType>),
    Timestamp(&'a PrimitiveArray<TimestampMicrosecondType>),
    Interval(&'a PrimitiveArray<IntervalMonthDayNanoType>),
    /// Points or boxes.
    Coordinates(&'a ArrayRef),
    List(Box<List<'a>>),
}

/// A one-dimensional array's items.
struct List<'a> {
    offsets: Offsets<'a>,
    items: ColumnWriter<'a>,
    item_oid: u32,
}

enum Offsets<'a> {
    Short(&'a [i32]),
    Long(&'a [i64]),
}

impl Offsets<'_> {
    fn range(&self, row: usize) -> std::ops::Range<usize> {
        match self {
            Self::Short(o) => o[row] as usize..o[row + 1] as usize,
            Self::Long(o) => o[row] as usize..o[row + 1] as usize,
        }
    }
}

impl<'a> ColumnWriter<'a> {
    /// A writer of `array`, a result of [`storable_form`].
    pub fn new(array: &'a ArrayRef, format: Format) -> Result<Self> {
        let kind = match format {
            Format::Text => Kind::text(array)?,
            Format::Binary => Kind::binary(array)?,
        };
        Ok(Self { array, kind })
    }

    /// Whether the value at `row` is NULL.
    pub fn is_null(&self, row: usize) -> bool {
        matches!(self.kind, Kind::Null) || self.array.is_null(row)
    }

    /// Appends the value at `row`, which is not NULL.
    pub fn write(&self, row: usize, out: &mut Vec<u8>) -> Result<()> {
        match &self.kind {
            Kind::Null => {}
            Kind::Text(writer) => writer
                .write(&mut Utf8Bytes(out), row, ["f", "t"])
                .map_err(|_| Error::internal("a value could not be written as text"))?,
            Kind::Utf8(a) => out.extend_from_slice(a.value(row).as_bytes()),
            Kind::Utf8View(a) => out.extend_from_slice(a.value(row).as_bytes()),
            Kind::Digits16(a) => write_integer(out, a.value(row).into()),
            Kind::Digits32(a) => write_integer(out, a.value(row).into()),
            Kind::Digits64(a) => write_integer(out, a.value(row)),
            Kind::Boolean(a) => out.push(u8::from(a.value(row))),
            Kind::Int16(a) => out.extend_from_slice(&a.value(row).to_be_bytes()),
            Kind::Int32(a) => out.extend_from_slice(&a.value(row).to_be_bytes()),
            Kind::Int64(a) => out.extend_from_slice(&a.value(row).to_be_bytes()),
            Kind::Float32(a) => out.extend_from_slice(&a.value(row).to_be_bytes()),
            Kind::Float64(a) => out.extend_from_slice(&a.value(row).to_be_bytes()),
            Kind::Decimal64(a, scale) => write_numeric(out, a.value(row).into(), *scale),
            Kind::Decimal128(a, scale) => write_numeric(out, a.value(row), *scale),
            Kind::Binary(a) => out.extend_from_slice(a.value(row)),
            Kind::BinaryView(a) => out.extend_from_slice(a.value(row)),
            Kind::Uuid(a) => out.extend_from_slice(a.value(row)),
            Kind::Date(a) => {
                out.extend_from_slice(&a.value(row).wrapping_sub(EPOCH_DAYS).to_be_bytes());
            }
            Kind::Time(a) => out.extend_from_slice(&a.value(row).to_be_bytes()),
            Kind::Timestamp(a) => {
                out.extend_from_slice(&a.value(row).wrapping_sub(EPOCH_US).to_be_bytes());
            }
            Kind::Interval(a) => {
                let value = a.value(row);
                out.extend_from_slice(&(value.nanoseconds / 1_000).to_be_bytes());
                out.extend_from_slice(&value.days.to_be_bytes());
                out.extend_from_slice(&value.months.to_be_bytes());
            }
            Kind::Coordinates(a) => {
                let coordinates = coordinates_at(a, row).iter();
                coordinates.for_each(|c| out.extend_from_slice(&c.to_be_bytes()));
            }
            Kind::List(list) => list.write(row, out)?,
        }
        Ok(())
    }

    /// Appends the value at `row` after its length, as in messages; the length of NULL is -1.
    pub fn write_with_length(&self, row: usize, out: &mut Vec<u8>) -> Result<()> {
        if self.is_null(row) {
            out.extend_from_slice(&(-1i32).to_be_bytes());
            return Ok(());
        }
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        self.write(row, out)?;
        let length = i32::try_from(out.len() - start - 4)
            .map_err(|_| Error::unsupported("a value has more than 2 GiB"))?;
        out[start..start + 4].copy_from_slice(&length.to_be_bytes());
        Ok(())
    }
}

impl<'a> Kind<'a> {
    fn text(array: &'a ArrayRef) -> Result<Self> {
        Ok(match array.data_type() {
            DataType::Null => Self::Null,
            DataType::Utf8 => Self::Utf8(array.as_string::<i32>()),
            DataType::Utf8View => Self::Utf8View(array.as_string_view()),
            DataType::Int16 => Self::Digits16(array.as_primitive()),
            DataType::Int32 => Self::Digits32(array.as_primitive()),
            DataType::Int64 => Self::Digits64(array.as_primitive()),
            _ => Self::Text(ValueWriter::new(array).map_err(convert)?),
        })
    }

    fn binary(array: &'a ArrayRef) -> Result<Self> {
        use DataType as T;
        Ok(match array.data_type() {
            T::Null => Self::Null,
            T::Boolean => Self::Boolean(array.as_boolean()),
            T::Int16 => Self::Int16(array.as_primitive()),
            T::Int32 => Self::Int32(array.as_primitive()),
            T::Int64 => Self::Int64(array.as_primitive()),
            T::Float32 => Self::Float32(array.as_primitive()),
            T::Float64 => Self::Float64(array.as_primitive()),
            T::Decimal64(_, scale) => Self::Decimal64(array.as_primitive(), *scale as u8),
            T::Decimal128(_, scale) => Self::Decimal128(array.as_primitive(), *scale as u8),
            T::Utf8 => Self::Utf8(array.as_string::<i32>()),
            T::Utf8View => Self::Utf8View(array.as_string_view()),
            T::Binary => Self::Binary(array.as_binary::<i32>()),
            T::BinaryView => Self::BinaryView(array.as_binary_view()),
            T::FixedSizeBinary(16) => Self::Uuid(array.as_fixed_size_binary()),
            T::Date32 => Self::Date(array.as_primitive()),
            T::Time64(TimeUnit::Microsecond) => Self::Time(array.as_primitive()),
            T::Timestamp(TimeUnit::Microsecond, _) => Self::Timestamp(array.as_primitive()),
            T::Interval(IntervalUnit::MonthDayNano) => Self::Interval(array.as_primitive()),
            T::List(_) => {
                let list = array.as_list::<i32>();
                Self::list(list, Offsets::Short(list.value_offsets()))?
            }
            T::LargeList(_) => {
                let list = array.as_list::<i64>();
                Self::list(list, Offsets::Long(list.value_offsets()))?
            }
            other if is_geometric(other) => Self::Coordinates(array),
            other => return Err(no_binary_form(other)),
        })
    }

    fn list<O: OffsetSizeTrait>(
        list: &'a GenericListArray<O>,
        offsets: Offsets<'a>,
    ) -> Result<Self> {
        let item = item_of(list.data_type()).ok_or_else(|| Error::internal("a list is no list"))?;
        if item_of(item.data_type()).is_some() {
            return Err(no_binary_form(list.data_type()));
        }
        Ok(Self::List(Box::new(List {
            offsets,
            items: ColumnWriter::new(list.values(), Format::Binary)?,
            item_oid: ColumnType::of(item).oid,
        })))
    }
}

fn no_binary_form(t: &DataType) -> Error {
    let name = crate::types::sql_name(t);
    Error::unsupported(format!(
        "no binary output function available for type {name}"
    ))
}

impl List<'_> {
    fn write(&self, row: usize, out: &mut Vec<u8>) -> Result<()> {
        let rows = self.offsets.range(row);
        let has_null = rows.clone().any(|item| self.items.is_null(item));
        let dimensions = i32::from(!rows.is_empty());
        out.extend_from_slice(&dimensions.to_be_bytes());
        out.extend_from_slice(&i32::from(has_null).to_be_bytes());
        out.extend_from_slice(&self.item_oid.to_be_bytes());
        if rows.is_empty() {
            return Ok(());
        }
        out.extend_from_slice(&(rows.len() as i32).to_be_bytes());
        // Arrays have the lower bound 1.
        out.extend_from_slice(&1i32.to_be_bytes());
        for item in rows {
            self.items.write_with_length(item, out)?;
        }
        Ok(())
    }
}

/// Appends formatted text.
struct Utf8Bytes<'a>(&'a mut Vec<u8>);

impl fmt::Write for Utf8Bytes<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

/// Appends `value` in decimal.
fn write_integer(out: &mut Vec<u8>, value: i64) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    let mut rest = value.unsigned_abs();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[at..]);
}
