//! `to_char`, `to_date`, `to_timestamp` and `to_number`.

use super::number_pattern::NumberPattern;
use super::overload::Parameter::{Double, Interval, Numeric, Text, Timestamp, TimestampTz};
use super::overload::{Call, Function, Overload, Returns};
use super::pattern::{Pattern, Shown};
use crate::calendar::{split_micros, timestamp_out_of_range};
use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, TimestampMicrosecondType,
};
use datafusion::common::Result;
use datafusion::scalar::ScalarValue;
use strandline_base::SqlType;

/// The functions of this file.
pub fn functions() -> Vec<Function> {
    vec![
        Function::new(
            "to_char",
            vec![
                Overload::new(&[TimestampTz, Text], SqlType::Text, |c| moment(c, true)),
                Overload::new(&[Timestamp, Text], SqlType::Text, |c| moment(c, false)),
                Overload::new(&[Interval, Text], SqlType::Text, interval),
                Overload::new(&[Numeric, Text], SqlType::Text, numeric),
                Overload::new(&[Double, Text], SqlType::Text, double),
            ],
        ),
        Function::new(
            "to_date",
            vec![Overload::new(&[Text, Text], SqlType::Date, |c| {
                let patterns = Cached::new(c, 1, |text| Ok(Pattern::parse(text)))?;
                c.map::<Date32Type>(|row| {
                    let micros = patterns.at(row).read(c.text(0).value(row))?;
                    Ok(Some(split_micros(micros).0 as i32))
                })
            })],
        ),
        Function::new(
            "to_timestamp",
            vec![
                Overload::new(&[Double], SqlType::TimestampTz, from_epoch),
                Overload::new(&[Text, Text], SqlType::TimestampTz, |c| {
                    let patterns = Cached::new(c, 1, |text| Ok(Pattern::parse(text)))?;
                    c.map::<TimestampMicrosecondType>(|row| {
                        patterns.at(row).read(c.text(0).value(row)).map(Some)
                    })
                }),
            ],
        ),
        Function::new(
            "to_number",
            vec![Overload::new(
                &[Text, Text],
                Returns::Computed(number_type),
                to_number,
            )],
        ),
    ]
}

/// The parsed form of a text argument, row by row; equal neighbours share it.
struct Cached<T> {
    parsed: Vec<T>,
    of_row: Vec<usize>,
}

impl<T> Cached<T> {
    fn new(call: &Call, argument: usize, parse: impl Fn(&str) -> Result<T>) -> Result<Self> {
        let texts = call.text(argument);
        let mut cached = Self {
            parsed: Vec::new(),
            of_row: Vec::with_capacity(call.rows),
        };
        let mut last = None;
        for row in 0..call.rows {
            if !texts.is_null(row) && last != Some(texts.value(row)) {
                cached.parsed.push(parse(texts.value(row))?);
                last = Some(texts.value(row));
            }
            cached.of_row.push(cached.parsed.len().saturating_sub(1));
        }
        Ok(cached)
    }
    /// The parsed text of a row whose argument is not NULL.
    fn at(&self, row: usize) -> &T {
        &self.parsed[self.of_row[row]]
    }
}

fn moment(call: &Call, zoned: bool) -> Result<ArrayRef> {
    shown(call, |row| Shown::moment(call.micros(0, row), zoned))
}

fn interval(call: &Call) -> Result<ArrayRef> {
    shown(call, |row| Shown::interval(call.interval(0, row)))
}

/// Formats every row's moment or interval; NULL for an empty pattern.
fn shown(call: &Call, fields: impl Fn(usize) -> Shown) -> Result<ArrayRef> {
    let patterns = Cached::new(call, 1, |text| Ok(Pattern::parse(text)))?;
    call.map_text(|row| {
        let pattern = patterns.at(row);
        if pattern.is_empty() {
            return Ok(None);
        }
        pattern.write(&fields(row)).map(Some)
    })
}

fn numeric(call: &Call) -> Result<ArrayRef> {
    let patterns = Cached::new(call, 1, NumberPattern::parse)?;
    let (values, scale) = call.numeric(0)?;
    call.map_text(|row| patterns.at(row).write(values.value(row), scale).map(Some))
}

fn double(call: &Call) -> Result<ArrayRef> {
    let patterns = Cached::new(call, 1, NumberPattern::parse)?;
    call.map_text(|row| patterns.at(row).write_double(call.double(0, row)).map(Some))
}

fn from_epoch(call: &Call) -> Result<ArrayRef> {
    call.map::<TimestampMicrosecondType>(|row| {
        let micros = (call.double(0, row) * 1e6).round();
        let fits = micros.abs() < 9.2e18;
        if fits {
            Ok(Some(micros as i64))
        } else {
            Err(timestamp_out_of_range())
        }
    })
}

fn number_type(_: &[DataType], literals: &[Option<&ScalarValue>]) -> Result<DataType> {
    let pattern = literals
        .get(1)
        .copied()
        .flatten()
        .and_then(|v| v.try_as_str())
        .flatten();
    let scale = match pattern {
        Some(pattern) => NumberPattern::parse(pattern)?.scale(),
        None => 16,
    };
    Ok(DataType::Decimal128(38, scale as i8))
}

fn to_number(call: &Call) -> Result<ArrayRef> {
    let patterns = Cached::new(call, 1, NumberPattern::parse)?;
    let scale = match call.returns {
        DataType::Decimal128(_, scale) => *scale as u8,
        _ => 0,
    };
    call.map::<Decimal128Type>(|row| {
        let pattern = patterns.at(row);
        let shift = scale.abs_diff(pattern.scale());
        let factor = crate::decimal::power_of_ten(shift);
        let value = pattern.read(call.text(0).value(row))?;
        Ok(Some(if scale >= pattern.scale() {
            value * factor
        } else {
            value / factor
        }))
    })
}
