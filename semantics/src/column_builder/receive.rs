//! Values in PostgreSQL's binary form, the input of its receive functions.

use super::{ColumnBuilder, Values, fit};
use crate::decimal::Shape;
use crate::numeric_send::read_numeric;
use crate::text::{number, utf8};
use datafusion::arrow::datatypes::IntervalMonthDayNano;
use strandline_base::{BoxCorners, Error, Point, Result, SqlState, SqlType, Value};

/// Days from 1970-01-01 to 2000-01-01, PostgreSQL's epoch.
const EPOCH_DAYS: i32 = 10_957;
const EPOCH_US: i64 = EPOCH_DAYS as i64 * DAY_US;
const DAY_US: i64 = 86_400_000_000;

impl ColumnBuilder {
    /// Appends the value of `bytes` (22P03, and the codes of values that do not fit).
    pub fn receive(&mut self, bytes: &[u8]) -> Result<()> {
        let t = self.sql_type;
        let wrong = || invalid(t);
        match &mut self.values {
            Values::Boolean(b) => match bytes {
                [value] => b.append_value(*value != 0),
                _ => return Err(wrong()),
            },
            Values::SmallInt(b) => b.append_value(i16::from_be_bytes(exactly(t, bytes)?)),
            Values::Integer(b) => b.append_value(i32::from_be_bytes(exactly(t, bytes)?)),
            Values::BigInt(b) => b.append_value(i64::from_be_bytes(exactly(t, bytes)?)),
            Values::Real(b) => {
                let value = f32::from_be_bytes(exactly(t, bytes)?);
                b.append_value(if value.is_nan() { f32::NAN } else { value });
            }
            Values::Double(b) => {
                let value = f64::from_be_bytes(exactly(t, bytes)?);
                b.append_value(if value.is_nan() { f64::NAN } else { value });
            }
            Values::Narrow(b, shape) => {
                let n = i64::try_from(shaped(bytes, *shape)?);
                b.append_value(n.map_err(|_| number::field_overflow(*shape))?);
            }
            Values::Wide(b, shape) => b.append_value(shaped(bytes, *shape)?),
            Values::Text(b) => {
                let text = utf8(bytes)?;
                match t {
                    SqlType::Json => {
                        crate::text::binary::check_json(text)?;
                        b.append_value(text);
                    }
                    SqlType::Varchar(_) | SqlType::Char(_) => b.append_value(fit(t, text)?),
                    _ => b.append_value(text),
                }
            }
            Values::Bytea(b) => b.append_value(bytes),
            Values::Date(b) => {
                let days = i32::from_be_bytes(exactly(t, bytes)?);
                b.append_value(days.checked_add(EPOCH_DAYS).ok_or_else(|| no_moment(t))?);
            }
            Values::Time(b) => {
                let us = i64::from_be_bytes(exactly(t, bytes)?);
                if !(0..=DAY_US).contains(&us) {
                    return Err(no_moment(t));
                }
                b.append_value(us);
            }
            Values::Timestamp(b) | Values::TimestampTz(b) => {
                let us = i64::from_be_bytes(exactly(t, bytes)?);
                b.append_value(us.checked_add(EPOCH_US).ok_or_else(|| no_moment(t))?);
            }
            Values::Interval(b) => b.append_value(interval(exactly(t, bytes)?)?),
            Values::Uuid(b) => b.append_value(bytes).map_err(|_| wrong())?,
            Values::Geometric(values) => values.push(match t {
                SqlType::Point => Value::Point(Point::new(coordinates(exactly::<16>(t, bytes)?))),
                _ => {
                    let bytes: [u8; 32] = exactly(t, bytes)?;
                    let [x, y, other_x, other_y] = coordinates(bytes);
                    Value::Box(BoxCorners::new([x, y], [other_x, other_y]))
                }
            }),
        }
        Ok(())
    }
}

fn exactly<const N: usize>(t: SqlType, bytes: &[u8]) -> Result<[u8; N]> {
    bytes.try_into().map_err(|_| invalid(t))
}

/// `N` coordinates of 8 bytes each.
fn coordinates<const N: usize>(bytes: impl AsRef<[u8]>) -> [f64; N] {
    let words = bytes.as_ref().as_chunks::<8>().0;
    std::array::from_fn(|at| f64::from_be_bytes(words[at]))
}

fn invalid(t: SqlType) -> Error {
    Error::invalid(
        SqlState("22P03"),
        format!("incorrect binary data format of a value of type {t}"),
    )
}

/// Out-of-range values, including infinities, which do not exist here.
fn no_moment(t: SqlType) -> Error {
    Error::invalid(
        SqlState::DATETIME_FIELD_OVERFLOW,
        format!("{t} out of range"),
    )
}

fn shaped(bytes: &[u8], shape: Shape) -> Result<i128> {
    let (unscaled, scale) = read_numeric(bytes)?;
    let decimal = number::Decimal {
        unscaled,
        scale: scale.into(),
        inexact: false,
    };
    decimal
        .at(shape)
        .ok_or_else(|| number::field_overflow(shape))
}

fn interval(bytes: [u8; 16]) -> Result<IntervalMonthDayNano> {
    let (us, rest) = bytes.split_at(8);
    let (days, months) = rest.split_at(4);
    let number = |b: &[u8]| b.iter().fold(0i64, |n, b| n << 8 | i64::from(*b));
    let nanos = number(us).checked_mul(1_000);
    Ok(IntervalMonthDayNano::new(
        number(months) as i32,
        number(days) as i32,
        nanos.ok_or_else(|| no_moment(SqlType::Interval))?,
    ))
}
