//! Values of every type through every representation.

use super::*;
use strandline_base::Point;
use strandline_base::value_words::{bytes_of, value_of_bytes, wide_of, word_of};

fn samples() -> Vec<(SqlType, Vec<Value>)> {
    let numeric = |precision| SqlType::Numeric {
        precision,
        scale: 2,
    };
    vec![
        (SqlType::Boolean, vec![true.into(), false.into()]),
        (
            SqlType::SmallInt,
            vec![i16::MIN.into(), (-1i16).into(), i16::MAX.into()],
        ),
        (
            SqlType::Integer,
            vec![i32::MIN.into(), (-1i32).into(), i32::MAX.into()],
        ),
        (
            SqlType::BigInt,
            vec![i64::MIN.into(), (-1i64).into(), i64::MAX.into()],
        ),
        (
            SqlType::Real,
            vec![f32::NEG_INFINITY.into(), (-0.0f32).into(), f32::MAX.into()],
        ),
        (
            SqlType::Double,
            vec![f64::NEG_INFINITY.into(), (-0.0f64).into(), 1e300.into()],
        ),
        (
            numeric(18),
            vec![Value::Numeric(-999_999_999_999_999_999), Value::Numeric(7)],
        ),
        (
            numeric(38),
            vec![
                Value::Numeric(-(10i128.pow(38) - 1)),
                Value::Numeric(1 << 64),
            ],
        ),
        (
            SqlType::Text,
            vec![
                "".into(),
                "twelve bytes".into(),
                "naïve → 日本 🦀 long".into(),
            ],
        ),
        (SqlType::Varchar(9), vec!["a".into()]),
        (SqlType::Char(3), vec!["a  ".into()]),
        (SqlType::Json, vec!["{}".into()]),
        (
            SqlType::Bytea,
            vec![(&[][..]).into(), (&[0u8, 255, 128, 0][..]).into()],
        ),
        (
            SqlType::Date,
            vec![Value::Date(i32::MIN), Value::Date(0), Value::Date(20_000)],
        ),
        (
            SqlType::Time,
            vec![Value::Time(0), Value::Time(86_399_999_999)],
        ),
        (
            SqlType::Timestamp,
            vec![Value::Timestamp(i64::MIN), Value::Timestamp(1)],
        ),
        (
            SqlType::TimestampTz,
            vec![Value::TimestampTz(-1), Value::TimestampTz(i64::MAX)],
        ),
        (
            SqlType::Interval,
            vec![
                Value::Interval(Interval {
                    months: -1,
                    days: i32::MIN,
                    nanos: -5,
                }),
                Value::Interval(Interval {
                    months: i32::MAX,
                    days: 0,
                    nanos: i64::MAX,
                }),
            ],
        ),
        (
            SqlType::Uuid,
            vec![Value::Uuid([0; 16]), Value::Uuid(*b"0123456789abcdef")],
        ),
        (
            SqlType::Point,
            vec![
                Value::Point(Point::new([-0.0, f64::INFINITY])),
                Value::Point(Point::from_words([0xfff8_0000_dead_beef, 1])),
            ],
        ),
        (
            SqlType::Box,
            vec![
                Value::Box(BoxCorners::new([1.0, 2.0], [-3.0, -0.0])),
                Value::Box(BoxCorners::new([f64::NAN, 0.0], [f64::INFINITY, 1e-320])),
            ],
        ),
    ]
}

#[test]
fn every_type_goes_through_arrays_words_and_bytes() {
    for (t, mut values) in samples() {
        values.insert(1, Value::Null);
        values.push(Value::Null);
        let array = array_of(t, &values).unwrap();
        assert_eq!(array.data_type(), &arrow_type(t), "{t}");
        for (row, value) in values.iter().enumerate() {
            assert_eq!(&value_at(t, &array, row), value, "{t} row {row}");
            let (word, wide, bytes) = (word_of(value), wide_of(value), bytes_of(value));
            match physical(t) {
                Physical::Word => {
                    assert_eq!(word_at(t, &array, row), word);
                    assert_eq!(word.map_or(Value::Null, |w| value_of_word(t, w)), *value);
                }
                Physical::Wide => {
                    assert_eq!(wide_at(t, &array, row), wide);
                    assert_eq!(wide.map_or(Value::Null, |w| value_of_wide(t, w)), *value);
                }
                Physical::Bytes => {
                    assert_eq!(bytes_at(t, &array, row), bytes);
                    let back = bytes.map_or(Value::Null, |b| value_of_bytes(t, b).unwrap());
                    assert_eq!(back, *value);
                }
            }
            assert_eq!(
                value.is_null(),
                word.is_none() && wide.is_none() && bytes.is_none()
            );
        }
        assert_eq!(array_of(t, &[]).unwrap().len(), 0);
    }
}

#[test]
fn all_words_of_an_array_are_those_of_its_rows() {
    let words = samples()
        .into_iter()
        .filter(|(t, _)| physical(*t) == Physical::Word);
    for (t, values) in words {
        let with_nulls = values
            .iter()
            .flat_map(|v| [v.clone(), Value::Null])
            .collect();
        for values in [values, with_nulls] {
            let array = array_of(t, &values).unwrap();
            let mut all = Vec::new();
            each_word(t, &array, |word| all.push(word));
            let one_by_one: Vec<_> = values.iter().map(word_of).collect();
            assert_eq!(all, one_by_one, "{t}");
        }
    }
}

#[test]
fn float_bits_survive() {
    let nan = f64::from_bits(0xfff8_0000_dead_beef);
    let array = array_of(SqlType::Double, &[nan.into(), (-0.0f64).into()]).unwrap();
    assert_eq!(word_at(SqlType::Double, &array, 0), Some(nan.to_bits()));
    assert_eq!(
        word_at(SqlType::Double, &array, 1),
        Some((-0.0f64).to_bits())
    );
}

#[test]
fn values_of_other_types_and_damaged_text_are_errors() {
    assert!(array_of(SqlType::Integer, &[Value::BigInt(1)]).is_err());
    assert!(array_of(SqlType::Uuid, &["x".into()]).is_err());
    let point = Value::Point(Point::new([1.0, 2.0]));
    assert!(array_of(SqlType::Box, &[point]).is_err());
    assert!(value_of_bytes(SqlType::Box, &[0; 31]).is_err());
    let small = SqlType::Numeric {
        precision: 18,
        scale: 0,
    };
    assert!(array_of(small, &[Value::Numeric(i128::from(i64::MAX) + 1)]).is_err());
    assert!(value_of_bytes(SqlType::Text, &[0xff]).is_err());
    assert!(value_of_bytes(SqlType::Integer, b"1").is_err());
}

#[test]
fn order_is_postgresqls() {
    use std::cmp::Ordering::{Equal, Greater, Less};
    let of = |a: f64, b: f64| Value::from(a).compare(&b.into());
    assert_eq!(of(f64::NAN, f64::INFINITY), Some(Greater));
    assert_eq!(of(f64::NAN, -f64::NAN), Some(Equal));
    assert_eq!(of(1.0, f64::NAN), Some(Less));
    assert_eq!(of(-0.0, 0.0), Some(Equal));
    let interval = |months, days| {
        Value::Interval(Interval {
            months,
            days,
            nanos: 0,
        })
    };
    assert_eq!(interval(1, 0).compare(&interval(0, 30)), Some(Equal));
    assert_eq!(interval(0, 31).compare(&interval(1, 0)), Some(Greater));
    assert_eq!(Value::from("Z").compare(&"a".into()), Some(Less));
    assert_eq!(Value::Null.compare(&Value::Null), None);
    assert_eq!(Value::from(1i32).compare(&1i64.into()), None);
}

#[test]
fn encoded_values_come_back_and_can_be_skipped() {
    use strandline_base::bytes::ByteReader;
    for (t, mut values) in samples() {
        values.push(Value::Null);
        let mut bytes = Vec::new();
        for v in &values {
            put_value(&mut bytes, v);
        }
        let mut reader = ByteReader::new(&bytes);
        let mut skipper = ByteReader::new(&bytes);
        for v in &values {
            assert_eq!(take_value(&mut reader, t).as_ref(), Some(v), "{t}");
            StoredValue::take(&mut skipper).unwrap();
            assert_eq!(reader.position(), skipper.position(), "{t}");
        }
        assert_eq!(reader.remaining(), 0);
        for cut in 0..bytes.len() {
            let mut reader = ByteReader::new(&bytes[..cut]);
            let whole = values.iter().all(|_| take_value(&mut reader, t).is_some());
            assert!(!whole, "{t} cut at {cut}");
        }
    }
    assert_eq!(
        take_value(&mut ByteReader::new(&[9]), SqlType::Integer),
        None
    );
    assert_eq!(
        take_value(&mut ByteReader::new(&[4, 1, 0xff]), SqlType::Text),
        None
    );
    assert_eq!(StoredValue::take(&mut ByteReader::new(&[9])), None);
}
