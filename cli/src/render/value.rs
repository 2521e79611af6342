//! Values of Arrow arrays as text, the way PostgreSQL's output functions write them.

use arrow::array::cast::AsArray;
use arrow::array::{Array, ArrayRef};
use arrow::datatypes::{
    DataType, Date32Type, Date64Type, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type,
    DecimalType, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    IntervalDayTimeType, IntervalMonthDayNanoType, IntervalYearMonthType, Time32MillisecondType,
    Time32SecondType, Time64MicrosecondType, Time64NanosecondType, TimeUnit,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use std::fmt::Write;

const NANOS_PER_SECOND: i128 = 1_000_000_000;
const SECONDS_PER_DAY: i64 = 86_400;

/// Appends the value at `row` of `array` to `out`; NULL appends nothing and returns false.
pub fn write_value(array: &dyn Array, row: usize, out: &mut String) -> bool {
    if array.is_null(row) || array.data_type() == &DataType::Null {
        return false;
    }
    match array.data_type() {
        DataType::Boolean => out.push(if array.as_boolean().value(row) {
            't'
        } else {
            'f'
        }),
        DataType::Utf8 => out.push_str(array.as_string::<i32>().value(row)),
        DataType::LargeUtf8 => out.push_str(array.as_string::<i64>().value(row)),
        DataType::Utf8View => out.push_str(array.as_string_view().value(row)),
        DataType::Binary => hex(array.as_binary::<i32>().value(row), out),
        DataType::LargeBinary => hex(array.as_binary::<i64>().value(row), out),
        DataType::BinaryView => hex(array.as_binary_view().value(row), out),
        DataType::FixedSizeBinary(16) => uuid(array.as_fixed_size_binary().value(row), out),
        DataType::FixedSizeBinary(_) => hex(array.as_fixed_size_binary().value(row), out),
        other if other.is_numeric() => number(array, row, out),
        other if other.is_temporal() => temporal(array, row, out),
        _ => nested(array, row, out),
    }
    true
}

/// Whether values of this type are numbers: aligned to the right, bare in JSON.
pub fn is_number(data_type: &DataType) -> bool {
    data_type.is_numeric()
}

macro_rules! plain {
    ($type:ty, $array:expr, $row:expr, $out:expr) => {
        append($out, $array.as_primitive::<$type>().value($row))
    };
}

fn append(out: &mut String, value: impl std::fmt::Display) {
    write!(out, "{value}").expect("writing to a string cannot fail");
}

fn number(array: &dyn Array, row: usize, out: &mut String) {
    match array.data_type() {
        DataType::Int8 => plain!(Int8Type, array, row, out),
        DataType::Int16 => plain!(Int16Type, array, row, out),
        DataType::Int32 => plain!(Int32Type, array, row, out),
        DataType::Int64 => plain!(Int64Type, array, row, out),
        DataType::UInt8 => plain!(UInt8Type, array, row, out),
        DataType::UInt16 => plain!(UInt16Type, array, row, out),
        DataType::UInt32 => plain!(UInt32Type, array, row, out),
        DataType::UInt64 => plain!(UInt64Type, array, row, out),
        DataType::Float16 => {
            float(
                f64::from(array.as_primitive::<Float16Type>().value(row)),
                7,
                out,
            );
        }
        DataType::Float32 => {
            let value = array.as_primitive::<Float32Type>().value(row);
            if value.is_finite() && value != 0.0 && !(1e-4..1e6).contains(&value.abs()) {
                exponent(&format!("{value:e}"), out);
            } else {
                finite_or_name(value.into(), &value, out);
            }
        }
        DataType::Float64 => float(array.as_primitive::<Float64Type>().value(row), 15, out),
        DataType::Decimal32(p, s) => decimal::<Decimal32Type>(array, row, *p, *s, out),
        DataType::Decimal64(p, s) => decimal::<Decimal64Type>(array, row, *p, *s, out),
        DataType::Decimal128(p, s) => decimal::<Decimal128Type>(array, row, *p, *s, out),
        DataType::Decimal256(p, s) => decimal::<Decimal256Type>(array, row, *p, *s, out),
        other => unreachable!("{other} is no number"),
    }
}

fn decimal<T: DecimalType>(array: &dyn Array, row: usize, p: u8, s: i8, out: &mut String) {
    out.push_str(&T::format_decimal(
        array.as_primitive::<T>().value(row),
        p,
        s,
    ));
}

/// The shortest digits that read back the same; an exponent outside 1e-4 … 1e`digits`.
fn float(value: f64, digits: i32, out: &mut String) {
    if value.is_finite() && value != 0.0 && !(1e-4..10f64.powi(digits)).contains(&value.abs()) {
        exponent(&format!("{value:e}"), out);
    } else {
        finite_or_name(value, &value, out);
    }
}

fn finite_or_name(value: f64, display: &dyn std::fmt::Display, out: &mut String) {
    if value.is_nan() {
        out.push_str("NaN");
    } else if value.is_infinite() {
        out.push_str(if value > 0.0 { "Infinity" } else { "-Infinity" });
    } else {
        append(out, display);
    }
}

/// `1.5e-7` as PostgreSQL writes it: sign and at least two digits in the exponent.
fn exponent(text: &str, out: &mut String) {
    let (mantissa, exponent) = text.split_once('e').expect("`{:e}` writes an exponent");
    let (sign, digits) = match exponent.strip_prefix('-') {
        Some(digits) => ('-', digits),
        None => ('+', exponent),
    };
    write!(out, "{mantissa}e{sign}{digits:0>2}").expect("writing to a string cannot fail");
}

fn hex(bytes: &[u8], out: &mut String) {
    out.push_str("\\x");
    for byte in bytes {
        append(out, format_args!("{byte:02x}"));
    }
}

fn uuid(bytes: &[u8], out: &mut String) {
    for (i, byte) in bytes.iter().enumerate() {
        if matches!(i, 4 | 6 | 8 | 10) {
            out.push('-');
        }
        append(out, format_args!("{byte:02x}"));
    }
}

fn temporal(array: &dyn Array, row: usize, out: &mut String) {
    macro_rules! get {
        ($type:ty) => {
            i128::from(array.as_primitive::<$type>().value(row))
        };
    }
    match array.data_type() {
        DataType::Date32 => date(array.as_primitive::<Date32Type>().value(row).into(), out),
        DataType::Date64 => timestamp(get!(Date64Type) * 1_000_000, out),
        DataType::Time32(TimeUnit::Second) => time(get!(Time32SecondType) * NANOS_PER_SECOND, out),
        DataType::Time32(_) => time(get!(Time32MillisecondType) * 1_000_000, out),
        DataType::Time64(TimeUnit::Microsecond) => time(get!(Time64MicrosecondType) * 1_000, out),
        DataType::Time64(_) => time(get!(Time64NanosecondType), out),
        DataType::Timestamp(unit, zone) => {
            let nanos = match unit {
                TimeUnit::Second => get!(TimestampSecondType) * NANOS_PER_SECOND,
                TimeUnit::Millisecond => get!(TimestampMillisecondType) * 1_000_000,
                TimeUnit::Microsecond => get!(TimestampMicrosecondType) * 1_000,
                TimeUnit::Nanosecond => get!(TimestampNanosecondType),
            };
            timestamp(nanos, out);
            // Arrow keeps the instant in UTC whatever the zone's name is.
            if zone.is_some() {
                out.push_str("+00");
            }
        }
        DataType::Interval(_) => interval(array, row, out),
        _ => nested(array, row, out),
    }
}

fn date(days: i64, out: &mut String) {
    let (year, month, day) = civil(days);
    let (shown, era) = if year > 0 {
        (year, "")
    } else {
        (1 - year, " BC")
    };
    append(out, format_args!("{shown:04}-{month:02}-{day:02}{era}"));
}

fn time(nanos: i128, out: &mut String) {
    let seconds = nanos.div_euclid(NANOS_PER_SECOND);
    append(
        out,
        format_args!(
            "{:02}:{:02}:{:02}",
            seconds / 3600,
            seconds / 60 % 60,
            seconds % 60
        ),
    );
    fraction(nanos.rem_euclid(NANOS_PER_SECOND), out);
}

/// `.5` for half a second; nothing for none.
fn fraction(nanos: i128, out: &mut String) {
    if nanos != 0 {
        let digits = format!("{nanos:09}");
        out.push('.');
        out.push_str(digits.trim_end_matches('0'));
    }
}

fn timestamp(nanos: i128, out: &mut String) {
    let per_day = i128::from(SECONDS_PER_DAY) * NANOS_PER_SECOND;
    let days = i64::try_from(nanos.div_euclid(per_day)).expect("at most 2^63 seconds");
    let mut day = String::new();
    date(days, &mut day);
    let (day, era) = match day.strip_suffix(" BC") {
        Some(day) => (day, " BC"),
        None => (day.as_str(), ""),
    };
    out.push_str(day);
    out.push(' ');
    time(nanos.rem_euclid(per_day), out);
    out.push_str(era);
}

/// Year, month and day of a day number since 1970-01-01 in the proleptic Gregorian calendar.
/// Years are counted from March, so that the leap day is the last of its year.
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468; // 0000-03-01 is day 0
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

fn interval(array: &dyn Array, row: usize, out: &mut String) {
    let (months, days, nanos) = match array.data_type() {
        DataType::Interval(arrow::datatypes::IntervalUnit::YearMonth) => (
            array.as_primitive::<IntervalYearMonthType>().value(row),
            0,
            0,
        ),
        DataType::Interval(arrow::datatypes::IntervalUnit::DayTime) => {
            let value = array.as_primitive::<IntervalDayTimeType>().value(row);
            (0, value.days, i64::from(value.milliseconds) * 1_000_000)
        }
        _ => {
            let value = array.as_primitive::<IntervalMonthDayNanoType>().value(row);
            (value.months, value.days, value.nanoseconds)
        }
    };
    // After a negative field a positive one shows its sign.
    let begin = out.len();
    let mut negative = false;
    for (value, unit) in [(months / 12, "year"), (months % 12, "mon"), (days, "day")] {
        if value != 0 {
            let space = if out.len() > begin { " " } else { "" };
            let sign = if negative && value > 0 { "+" } else { "" };
            let plural = if value == 1 { "" } else { "s" };
            append(out, format_args!("{space}{sign}{value} {unit}{plural}"));
            negative = value < 0;
        }
    }
    if nanos != 0 || out.len() == begin {
        if out.len() > begin {
            out.push(' ');
        }
        if nanos < 0 {
            out.push('-');
        } else if negative {
            out.push('+');
        }
        time(i128::from(nanos).abs(), out);
    }
}

/// Arrays as `{1,2,NULL}`, structs as `(1,2)`, the rest as Arrow prints it.
fn nested(array: &dyn Array, row: usize, out: &mut String) {
    match array.data_type() {
        DataType::List(_) => list(&array.as_list::<i32>().value(row), out),
        DataType::LargeList(_) => list(&array.as_list::<i64>().value(row), out),
        DataType::FixedSizeList(..) => list(&array.as_fixed_size_list().value(row), out),
        DataType::Struct(_) => {
            out.push('(');
            for (i, column) in array.as_struct().columns().iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write_value(column, row, out);
            }
            out.push(')');
        }
        DataType::Dictionary(..) => {
            let dictionary = array.as_any_dictionary();
            let key = dictionary.normalized_keys()[row];
            write_value(dictionary.values(), key, out);
        }
        _ => {
            let options = arrow::util::display::FormatOptions::default();
            match arrow::util::display::ArrayFormatter::try_new(array, &options) {
                Ok(formatter) => append(out, formatter.value(row)),
                Err(error) => append(out, error),
            }
        }
    }
}

fn list(values: &ArrayRef, out: &mut String) {
    out.push('{');
    for i in 0..values.len() {
        if i > 0 {
            out.push(',');
        }
        let mut element = String::new();
        if !write_value(values, i, &mut element) {
            out.push_str("NULL");
        } else if needs_quotes(&element) && !matches!(values.data_type(), DataType::List(_)) {
            out.push('"');
            out.push_str(&element.replace('\\', "\\\\").replace('"', "\\\""));
            out.push('"');
        } else {
            out.push_str(&element);
        }
    }
    out.push('}');
}

fn needs_quotes(element: &str) -> bool {
    element.is_empty()
        || element.eq_ignore_ascii_case("null")
        || element.contains(|c: char| c.is_whitespace() || "{},\"\\".contains(c))
}

#[cfg(test)]
mod tests;
