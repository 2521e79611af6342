//! Values of Arrow arrays as text.

use super::array;
use crate::types::is_geometric;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, FixedSizeBinaryArray};
use datafusion::arrow::datatypes::{
    DataType, Date32Type, Decimal64Type, Decimal128Type, Float32Type, Float64Type, Int16Type,
    Int32Type, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit,
    Time64MicrosecondType, TimeUnit, TimestampMicrosecondType,
};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::common::Result;
use std::fmt::{self, Write};
use strandline_base::{Interval, value_text};
use strandline_column::types::coordinates_at;

/// The engine's form of Arrow's interval.
pub fn interval_of(value: IntervalMonthDayNano) -> Interval {
    Interval {
        months: value.months,
        days: value.days,
        nanos: value.nanoseconds,
    }
}

/// Writes the values of one array in the form of PostgreSQL's output functions. Types that SQL does
/// not have (other time units, structs) are written in Arrow's form.
pub struct ValueWriter<'a> {
    array: &'a ArrayRef,
    other: Other<'a>,
}

/// The form of values whose types tables do not store.
enum Other<'a> {
    /// The array's type has its own form.
    None,
    /// `{a,b}`
    List(Box<ValueWriter<'a>>, Offsets<'a>),
    /// `(a,b)`
    Record(Vec<ValueWriter<'a>>),
    /// In Arrow's form.
    Arrow(ArrayFormatter<'a>),
}

/// The range of a list's items.
type Offsets<'a> = Box<dyn Fn(usize) -> std::ops::Range<usize> + 'a>;

fn has_own_form(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Boolean
            | DataType::Int16
            | DataType::Int32
            | DataType::Int64
            | DataType::Float32
            | DataType::Float64
            | DataType::Decimal64(..)
            | DataType::Decimal128(..)
            | DataType::Utf8
            | DataType::Utf8View
            | DataType::BinaryView
            | DataType::Binary
            | DataType::FixedSizeBinary(16)
            | DataType::Date32
            | DataType::Time64(TimeUnit::Microsecond)
            | DataType::Timestamp(TimeUnit::Microsecond, _)
            | DataType::Interval(IntervalUnit::MonthDayNano)
    ) || is_geometric(data_type)
}

impl<'a> ValueWriter<'a> {
    /// A writer of `array`'s values.
    pub fn new(array: &'a ArrayRef) -> Result<Self> {
        const OPTIONS: FormatOptions = FormatOptions::new();
        let other = match array.data_type() {
            own if has_own_form(own) => Other::None,
            DataType::List(_) => {
                let list = array.as_list::<i32>();
                let offsets = list.value_offsets();
                let range = |row: usize| offsets[row] as usize..offsets[row + 1] as usize;
                Other::List(Box::new(Self::new(list.values())?), Box::new(range))
            }
            DataType::LargeList(_) => {
                let list = array.as_list::<i64>();
                let offsets = list.value_offsets();
                let range = |row: usize| offsets[row] as usize..offsets[row + 1] as usize;
                Other::List(Box::new(Self::new(list.values())?), Box::new(range))
            }
            DataType::Struct(_) => {
                let columns = array.as_struct().columns().iter();
                Other::Record(columns.map(Self::new).collect::<Result<_>>()?)
            }
            _ => Other::Arrow(ArrayFormatter::try_new(array.as_ref(), &OPTIONS)?),
        };
        Ok(Self { array, other })
    }

    /// Appends the value at `row`, which is not NULL. `booleans` are the words for false and true.
    pub fn write<W: Write>(&self, out: &mut W, row: usize, booleans: [&str; 2]) -> fmt::Result {
        let array = self.array;
        match &self.other {
            Other::None => {}
            Other::List(items, range) => return items.write_list(out, range(row)),
            Other::Record(columns) => return write_record(out, columns, row),
            Other::Arrow(other) => return write!(out, "{}", other.value(row)),
        }
        match array.data_type() {
            DataType::Boolean => {
                out.write_str(booleans[usize::from(array.as_boolean().value(row))])
            }
            DataType::Int16 => write!(out, "{}", array.as_primitive::<Int16Type>().value(row)),
            DataType::Int32 => write!(out, "{}", array.as_primitive::<Int32Type>().value(row)),
            DataType::Int64 => write!(out, "{}", array.as_primitive::<Int64Type>().value(row)),
            DataType::Float32 => {
                value_text::write_real(out, array.as_primitive::<Float32Type>().value(row))
            }
            DataType::Float64 => {
                value_text::write_double(out, array.as_primitive::<Float64Type>().value(row))
            }
            DataType::Decimal64(_, scale) => {
                let value = array.as_primitive::<Decimal64Type>().value(row);
                value_text::write_numeric(out, value.into(), *scale as u8)
            }
            DataType::Decimal128(_, scale) => {
                let value = array.as_primitive::<Decimal128Type>().value(row);
                value_text::write_numeric(out, value, *scale as u8)
            }
            DataType::Utf8 => out.write_str(array.as_string::<i32>().value(row)),
            DataType::Utf8View => out.write_str(array.as_string_view().value(row)),
            DataType::Binary => value_text::write_bytea(out, array.as_binary::<i32>().value(row)),
            DataType::BinaryView => value_text::write_bytea(out, array.as_binary_view().value(row)),
            DataType::FixedSizeBinary(_) => value_text::write_uuid(out, uuid_at(array, row)),
            DataType::FixedSizeList(..) => match *coordinates_at(array, row) {
                [x, y] => value_text::write_point(out, [x, y]),
                [high_x, high_y, low_x, low_y] => {
                    value_text::write_box(out, [high_x, high_y], [low_x, low_y])
                }
                _ => Err(fmt::Error),
            },
            _ => self.write_temporal(out, row),
        }
    }

    /// `{1,NULL,"a b"}`: items that have special characters or look like NULL are quoted.
    fn write_list<W: Write>(&self, out: &mut W, rows: std::ops::Range<usize>) -> fmt::Result {
        out.write_char('{')?;
        for (n, row) in rows.enumerate() {
            if n > 0 {
                out.write_char(',')?;
            }
            if self.array.is_null(row) || self.array.data_type().is_null() {
                out.write_str("NULL")?;
                continue;
            }
            let mut item = String::new();
            self.write(&mut item, row, ["f", "t"])?;
            match self.other {
                Other::List(..) => out.write_str(&item)?,
                _ => array::write_item(out, &item)?,
            }
        }
        out.write_char('}')
    }

    fn write_temporal<W: Write>(&self, out: &mut W, row: usize) -> fmt::Result {
        let array = self.array;
        match array.data_type() {
            DataType::Date32 => {
                value_text::write_date(out, array.as_primitive::<Date32Type>().value(row).into())
            }
            DataType::Time64(_) => value_text::write_time(
                out,
                array.as_primitive::<Time64MicrosecondType>().value(row),
            ),
            DataType::Timestamp(_, zone) => {
                let micros = array.as_primitive::<TimestampMicrosecondType>().value(row);
                match zone {
                    None => value_text::write_timestamp(out, micros),
                    Some(_) => value_text::write_timestamptz(out, micros),
                }
            }
            _ => {
                let value = array.as_primitive::<IntervalMonthDayNanoType>().value(row);
                value_text::write_interval(out, interval_of(value))
            }
        }
    }
}

/// `(1,"a b",,"")`: NULL is empty, and an empty text is quoted.
fn write_record<W: Write>(out: &mut W, columns: &[ValueWriter<'_>], row: usize) -> fmt::Result {
    out.write_char('(')?;
    for (n, column) in columns.iter().enumerate() {
        if n > 0 {
            out.write_char(',')?;
        }
        if column.array.is_null(row) || column.array.data_type().is_null() {
            continue;
        }
        let mut text = String::new();
        column.write(&mut text, row, ["f", "t"])?;
        let special = |c: char| c.is_ascii_whitespace() || "()\",\\".contains(c);
        match text.is_empty() || text.contains(special) {
            true => {
                let escaped = text.replace('\\', "\\\\").replace('"', "\"\"");
                write!(out, "\"{escaped}\"")?;
            }
            false => out.write_str(&text)?,
        }
    }
    out.write_char(')')
}

fn uuid_at(array: &ArrayRef, row: usize) -> &[u8] {
    array
        .as_any()
        .downcast_ref::<FixedSizeBinaryArray>()
        .map_or(&[], |a| a.value(row))
}

/// One value as clients see it (`t` and `f` for booleans); `None` for NULL.
pub fn write_value(array: &ArrayRef, row: usize) -> Result<Option<String>> {
    if array.is_null(row) || *array.data_type() == DataType::Null {
        return Ok(None);
    }
    let mut out = String::new();
    ValueWriter::new(array)?
        .write(&mut out, row, ["f", "t"])
        .map_err(|_| datafusion::common::internal_datafusion_err!("formatting failed"))?;
    Ok(Some(out))
}
