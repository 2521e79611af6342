use super::*;
use arrow::array::*;
use arrow::datatypes::{IntervalDayTime, IntervalMonthDayNano};
use std::sync::Arc;

fn texts(array: impl Array) -> Vec<String> {
    (0..array.len())
        .map(|row| {
            let mut out = String::new();
            if write_value(&array, row, &mut out) {
                out
            } else {
                "NULL".to_string()
            }
        })
        .collect()
}

#[test]
fn numbers() {
    assert_eq!(
        texts(Int64Array::from(vec![Some(i64::MIN), None, Some(7)])),
        ["-9223372036854775808", "NULL", "7"]
    );
    let decimals = Decimal64Array::from(vec![-5, 0, 123_456]);
    let decimals = decimals.with_precision_and_scale(15, 2).expect("valid");
    assert_eq!(texts(decimals), ["-0.05", "0.00", "1234.56"]);
    let wide = Decimal128Array::from(vec![i128::from(u64::MAX) * 10]);
    let wide = wide.with_precision_and_scale(38, 0).expect("valid");
    assert_eq!(texts(wide), ["184467440737095516150"]);
}

#[test]
fn floats_as_postgresql_writes_them() {
    let values = [
        0.1 + 0.2,
        1e15,
        123456789012345.0,
        0.0001,
        0.00001,
        1e300,
        -0.0,
    ];
    assert_eq!(
        texts(Float64Array::from(values.to_vec())),
        [
            "0.30000000000000004",
            "1e+15",
            "123456789012345",
            "0.0001",
            "1e-05",
            "1e+300",
            "-0"
        ]
    );
    let specials = vec![f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
    assert_eq!(
        texts(Float64Array::from(specials)),
        ["NaN", "Infinity", "-Infinity"]
    );
    assert_eq!(
        texts(Float32Array::from(vec![0.1, 1e6, 999_999.0])),
        ["0.1", "1e+06", "999999"]
    );
}

#[test]
fn dates_and_times() {
    let days = vec![0, -1, 19_782, 11_016, -719_163, -719_162, 2_932_896];
    assert_eq!(
        texts(Date32Array::from(days)),
        [
            "1970-01-01",
            "1969-12-31",
            "2024-02-29",
            "2000-02-29",
            "0001-12-31 BC",
            "0001-01-01",
            "9999-12-31"
        ]
    );
    assert_eq!(
        texts(Time64MicrosecondArray::from(vec![
            0,
            86_399_999_999,
            3_600_500_000
        ])),
        ["00:00:00", "23:59:59.999999", "01:00:00.5"]
    );
    let stamps = vec![-1, 1_709_164_800_000_000, 1_500_000];
    assert_eq!(
        texts(TimestampMicrosecondArray::from(stamps.clone())),
        [
            "1969-12-31 23:59:59.999999",
            "2024-02-29 00:00:00",
            "1970-01-01 00:00:01.5"
        ]
    );
    let zoned = TimestampMicrosecondArray::from(stamps).with_timezone("+00:00");
    assert_eq!(texts(zoned)[1], "2024-02-29 00:00:00+00");
    let early = TimestampSecondArray::from(vec![-62_135_596_801]);
    assert_eq!(texts(early), ["0001-12-31 23:59:59 BC"]);
}

#[test]
fn intervals() {
    let values = vec![
        IntervalMonthDayNano::new(14, 3, 4 * 3_600_000_000_000 + 500_000_000),
        IntervalMonthDayNano::new(0, 0, 0),
        IntervalMonthDayNano::new(-1, 1, -1_000_000_000),
        IntervalMonthDayNano::new(0, 0, 100 * 3_600_000_000_000),
    ];
    assert_eq!(
        texts(IntervalMonthDayNanoArray::from(values)),
        [
            "1 year 2 mons 3 days 04:00:00.5",
            "00:00:00",
            "-1 mons +1 day -00:00:01",
            "100:00:00"
        ]
    );
    let days = IntervalDayTimeArray::from(vec![IntervalDayTime::new(2, 1_500)]);
    assert_eq!(texts(days), ["2 days 00:00:01.5"]);
}

#[test]
fn texts_bytes_and_identifiers() {
    assert_eq!(texts(StringViewArray::from(vec!["ä", ""])), ["ä", ""]);
    assert_eq!(texts(BooleanArray::from(vec![true, false])), ["t", "f"]);
    assert_eq!(
        texts(BinaryArray::from(vec![&b"\x00\xff"[..]])),
        ["\\x00ff"]
    );
    let id: Vec<u8> = (0..16).collect();
    let ids = FixedSizeBinaryArray::try_from_iter([id].into_iter()).expect("16 bytes");
    assert_eq!(texts(ids), ["00010203-0405-0607-0809-0a0b0c0d0e0f"]);
    assert_eq!(texts(NullArray::new(1)), ["NULL"]);
}

#[test]
fn nested_values() {
    let mut builder = ListBuilder::new(StringBuilder::new());
    builder.append_value([Some("a"), None, Some("b c"), Some(""), Some("q\"")]);
    builder.append_null();
    assert_eq!(
        texts(builder.finish()),
        ["{a,NULL,\"b c\",\"\",\"q\\\"\"}", "NULL"]
    );
    let dictionary: DictionaryArray<Int32Type> = ["x", "y", "x"].into_iter().collect();
    assert_eq!(texts(dictionary), ["x", "y", "x"]);
    let fields: StructArray = vec![(
        Arc::new(arrow::datatypes::Field::new("a", DataType::Int32, true)),
        Arc::new(Int32Array::from(vec![1])) as ArrayRef,
    )]
    .into();
    assert_eq!(texts(fields), ["(1)"]);
}

/// Every day of eight centuries against counting one by one.
#[test]
fn the_calendar_agrees_with_counting() {
    let leap = |y: i64| y % 4 == 0 && (y % 100 != 0 || y % 400 == 0);
    let (mut year, mut month, mut day) = (1600, 1, 1);
    for number in -135_140..157_000 {
        assert_eq!(civil(number), (year, month, day));
        let length = match month {
            2 => 28 + i64::from(leap(year)),
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        };
        day += 1;
        if day > length {
            (day, month) = (1, month + 1);
        }
        if month > 12 {
            (month, year) = (1, year + 1);
        }
    }
}
