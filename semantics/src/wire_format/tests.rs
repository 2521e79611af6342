//! The expected binary forms are results of PostgreSQL 15's send functions (`SELECT
//! encode(numeric_send(…), 'hex')` and so on).

use super::*;
use crate::column_builder::ColumnBuilder;
use datafusion::arrow::array::{ArrayRef, ListArray};
use datafusion::arrow::datatypes::{Field, Int32Type};
use std::sync::Arc;
use strandline_base::SqlType;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn written(array: &ArrayRef, format: Format) -> Vec<u8> {
    let array = storable_form(array).unwrap();
    let mut out = Vec::new();
    ColumnWriter::new(&array, format)
        .unwrap()
        .write(0, &mut out)
        .unwrap();
    out
}

fn column(t: SqlType, text: &str) -> ArrayRef {
    let mut builder = ColumnBuilder::new(t);
    builder.push(text).unwrap();
    builder.finish()
}

const fn numeric(precision: u8, scale: u8) -> SqlType {
    SqlType::Numeric { precision, scale }
}

const FORMS: &[(SqlType, &str, &str)] = &[
    (SqlType::Boolean, "t", "01"),
    (SqlType::SmallInt, "-2", "fffe"),
    (SqlType::Integer, "258", "00000102"),
    (SqlType::BigInt, "-1", "ffffffffffffffff"),
    (SqlType::Real, "1.5", "3fc00000"),
    (SqlType::Double, "-2.25", "c002000000000000"),
    (numeric(12, 2), "0.00", "0000000000000002"),
    (numeric(12, 2), "12345.60", "0003000100000002000109291770"),
    (numeric(12, 2), "-0.05", "0001ffff4000000201f4"),
    (
        numeric(38, 10),
        "10000.0000000001",
        "000500010000000a00010000000000000064",
    ),
    (numeric(9, 0), "100000000", "00010002000000000001"),
    (SqlType::Text, "aé", "61c3a9"),
    (SqlType::Json, "{\"a\": 1}", "7b2261223a20317d"),
    (SqlType::Bytea, "\\x00ff", "00ff"),
    (SqlType::Date, "2000-01-02", "00000001"),
    (SqlType::Date, "1999-12-31", "ffffffff"),
    (SqlType::Time, "00:00:01", "00000000000f4240"),
    (
        SqlType::Timestamp,
        "2000-01-01 00:00:00.000001",
        "0000000000000001",
    ),
    (
        SqlType::TimestampTz,
        "1999-12-31 23:59:59+00",
        "fffffffffff0bdc0",
    ),
    (
        SqlType::Interval,
        "1 mon 2 days 00:00:03",
        "00000000002dc6c00000000200000001",
    ),
    (
        SqlType::Uuid,
        "00112233-4455-6677-8899-aabbccddeeff",
        "00112233445566778899aabbccddeeff",
    ),
];

#[test]
fn binary_forms_are_postgresqls() {
    for (t, text, expected) in FORMS {
        let array = column(*t, text);
        let binary = written(&array, Format::Binary);
        assert_eq!(hex(&binary), *expected, "{t} {text}");
        let mut builder = ColumnBuilder::new(*t);
        builder.receive(&binary).unwrap();
        let back = builder.finish();
        assert_eq!(
            String::from_utf8(written(&back, Format::Text)).unwrap(),
            *text,
            "{t}"
        );
    }
}

#[test]
fn lists_have_both_forms() {
    let rows = vec![Some(vec![Some(7), None, Some(-1)])];
    let list: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(rows));
    assert_eq!(written(&list, Format::Text), b"{7,NULL,-1}");
    let expected = "0000000100000001000000170000000300000001\
                    0000000400000007ffffffff00000004ffffffff";
    assert_eq!(hex(&written(&list, Format::Binary)), expected);
    let field = Field::new("a", list.data_type().clone(), true);
    assert_eq!(ColumnType::of(&field).oid, 1007);
}

#[test]
fn parameters_of_wrong_length_are_refused() {
    for (t, _, _) in FORMS {
        if matches!(t, SqlType::Text | SqlType::Json | SqlType::Bytea) {
            continue;
        }
        for bytes in [&b""[..], b"abc", &[0xff; 17]] {
            assert!(
                read_parameter(Some(*t), Format::Binary, bytes).is_err(),
                "{t} {bytes:?}"
            );
        }
    }
    let bad = read_parameter(None, Format::Text, b"a\xff").unwrap_err();
    assert_eq!(bad.sqlstate().0, "22021");
    assert!(read_parameter(None, Format::Text, b"a\0b").is_err());
}
