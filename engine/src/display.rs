//! Values as text, for error messages and inspection.

use std::fmt::{self, Write};
use strandline_base::value_text as text;
use strandline_base::{SqlType, Value};

/// A value as PostgreSQL prints it in a message.
pub fn value_text(sql_type: SqlType, value: &Value) -> String {
    let mut out = String::new();
    // A string takes everything.
    let _ = write_value(&mut out, sql_type, value);
    out
}

fn write_value(out: &mut String, sql_type: SqlType, value: &Value) -> fmt::Result {
    match value {
        Value::Null => out.write_str("null"),
        Value::Boolean(v) => out.write_str(if *v { "t" } else { "f" }),
        Value::SmallInt(v) => write!(out, "{v}"),
        Value::Integer(v) => write!(out, "{v}"),
        Value::BigInt(v) => write!(out, "{v}"),
        Value::Real(v) => text::write_real(out, *v),
        Value::Double(v) => text::write_double(out, *v),
        Value::Numeric(v) => match sql_type {
            SqlType::Numeric { scale, .. } => text::write_numeric(out, *v, scale),
            _ => write!(out, "{v}"),
        },
        Value::Text(v) => out.write_str(v),
        Value::Bytea(v) => text::write_bytea(out, v),
        Value::Date(v) => text::write_date(out, i64::from(*v)),
        Value::Time(v) => text::write_time(out, *v),
        Value::Timestamp(v) => text::write_timestamp(out, *v),
        Value::TimestampTz(v) => text::write_timestamptz(out, *v),
        Value::Interval(v) => text::write_interval(out, *v),
        Value::Uuid(v) => text::write_uuid(out, v),
        Value::Point(v) => text::write_point(out, v.coordinates()),
        Value::Box(v) => text::write_box(out, v.high(), v.low()),
    }
}

/// Microseconds since 1970-01-01 as `YYYY-MM-DD HH:MM:SS[.ffffff]`.
pub fn timestamp_text(us: i64) -> String {
    value_text(SqlType::Timestamp, &Value::Timestamp(us))
}

#[cfg(test)]
mod tests {
    use super::*;
    use strandline_base::{BoxCorners, Interval, Point};

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
        let bc = Value::Date(-735_160);
        assert_eq!(value_text(SqlType::Date, &bc), "0044-03-15 BC");
        let interval = Value::Interval(Interval {
            months: 14,
            days: -3,
            nanos: 3_600_500_000_000,
        });
        let shown = "1 year 2 mons -3 days +01:00:00.5";
        assert_eq!(value_text(SqlType::Interval, &interval), shown);
        assert_eq!(value_text(SqlType::Double, &Value::Double(1e30)), "1e+30");
        assert_eq!(
            value_text(SqlType::Real, &Value::Real(f32::NEG_INFINITY)),
            "-Infinity"
        );
        let point = Value::Point(Point::new([-1.5, 2.0]));
        assert_eq!(value_text(SqlType::Point, &point), "(-1.5,2)");
        let corners = Value::Box(BoxCorners::new([1.0, 2.0], [3.0, 0.25]));
        assert_eq!(value_text(SqlType::Box, &corners), "(3,2),(1,0.25)");
        let uuid = value_text(SqlType::Uuid, &Value::Uuid([0xab; 16]));
        assert_eq!(uuid, "abababab-abab-abab-abab-abababababab");
    }
}
