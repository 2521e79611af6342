//! Values as text, for error messages and inspection.

use strandline_base::{SqlType, Value};

/// A value as PostgreSQL would print it in a message. Dates and times come in their integer form
/// and are printed in calendar form.
pub fn value_text(sql_type: SqlType, value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Boolean(v) => if *v { "t" } else { "f" }.into(),
        Value::SmallInt(v) => v.to_string(),
        Value::Integer(v) => v.to_string(),
        Value::BigInt(v) => v.to_string(),
        Value::Real(v) => v.to_string(),
        Value::Double(v) => v.to_string(),
        Value::Numeric(v) => match sql_type {
            SqlType::Numeric { scale, .. } => numeric_text(*v, scale),
            _ => v.to_string(),
        },
        Value::Text(v) => v.to_string(),
        Value::Bytea(v) => {
            let mut text = String::from("\\x");
            v.iter().for_each(|b| text.push_str(&format!("{b:02x}")));
            text
        }
        Value::Date(v) => date_text(i64::from(*v)),
        Value::Time(v) => time_text(*v),
        Value::Timestamp(v) => timestamp_text(*v),
        Value::TimestampTz(v) => format!("{}+00", timestamp_text(*v)),
        Value::Interval(v) => format!("{} mons {} days {} ns", v.months, v.days, v.nanos),
        Value::Uuid(v) => uuid_text(v),
        Value::Point(v) => point_text(v.coordinates()),
        Value::Box(v) => format!("{},{}", point_text(v.high()), point_text(v.low())),
    }
}

fn numeric_text(unscaled: i128, scale: u8) -> String {
    let digits = unscaled.unsigned_abs().to_string();
    let scale = usize::from(scale);
    let sign = if unscaled < 0 { "-" } else { "" };
    if scale == 0 {
        return format!("{sign}{digits}");
    }
    let padded = format!("{digits:0>width$}", width = scale + 1);
    let (whole, fraction) = padded.split_at(padded.len() - scale);
    format!("{sign}{whole}.{fraction}")
}

/// Days since 1970-01-01 as a proleptic Gregorian date.
fn date_text(days: i64) -> String {
    // Count from 0000-03-01, so that the leap day is the last day of a year.
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

fn time_text(us: i64) -> String {
    let (seconds, fraction) = (us.div_euclid(1_000_000), us.rem_euclid(1_000_000));
    let text = format!(
        "{:02}:{:02}:{:02}",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60
    );
    if fraction == 0 {
        return text;
    }
    format!("{text}.{fraction:06}")
        .trim_end_matches('0')
        .to_string()
}

/// Microseconds since 1970-01-01 as `YYYY-MM-DD HH:MM:SS[.ffffff]`.
pub fn timestamp_text(us: i64) -> String {
    const DAY_US: i64 = 86_400_000_000;
    format!(
        "{} {}",
        date_text(us.div_euclid(DAY_US)),
        time_text(us.rem_euclid(DAY_US))
    )
}

fn point_text([x, y]: [f64; 2]) -> String {
    format!("({x},{y})")
}

fn uuid_text(bytes: &[u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for (i, b) in bytes.iter().enumerate() {
        if matches!(i, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{b:02x}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use strandline_base::{BoxCorners, Point};

    #[test]
    fn values_look_as_in_postgresql() {
        let numeric = SqlType::Numeric {
            precision: 10,
            scale: 2,
        };
        assert_eq!(value_text(numeric, &Value::Numeric(-5)), "-0.05");
        assert_eq!(value_text(numeric, &Value::Numeric(12345)), "123.45");
        assert_eq!(value_text(SqlType::Date, &Value::Date(0)), "1970-01-01");
        assert_eq!(value_text(SqlType::Date, &Value::Date(-1)), "1969-12-31");
        assert_eq!(value_text(SqlType::Date, &Value::Date(11016)), "2000-02-29");
        assert_eq!(
            timestamp_text(1_700_000_000_500_000),
            "2023-11-14 22:13:20.5"
        );
        assert_eq!(timestamp_text(-1), "1969-12-31 23:59:59.999999");
        let point = Value::Point(Point::new([-1.5, 2.0]));
        assert_eq!(value_text(SqlType::Point, &point), "(-1.5,2)");
        let corners = Value::Box(BoxCorners::new([1.0, 2.0], [3.0, 0.25]));
        assert_eq!(value_text(SqlType::Box, &corners), "(3,2),(1,0.25)");
        let uuid = value_text(SqlType::Uuid, &Value::Uuid([0xab; 16]));
        assert_eq!(uuid, "abababab-abab-abab-abab-abababababab");
    }
}
