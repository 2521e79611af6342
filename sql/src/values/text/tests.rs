use super::*;
use datafusion::scalar::ScalarValue;

fn shown(value: ScalarValue) -> String {
    cell(&value.to_array().expect("array"), 0).unwrap_or_else(|| "NULL".to_string())
}

#[test]
fn values_print_as_in_postgres() {
    let cases = [
        (ScalarValue::Boolean(Some(true)), "t"),
        (ScalarValue::Int32(None), "NULL"),
        (ScalarValue::Null, "NULL"),
        (ScalarValue::Float64(Some(0.1)), "0.1"),
        (ScalarValue::UInt64(Some(u64::MAX)), "18446744073709551615"),
        (ScalarValue::Decimal128(Some(-5), 10, 2), "-0.05"),
        (ScalarValue::LargeBinary(Some(vec![0, 255])), "\\x00ff"),
        (ScalarValue::Date32(Some(19_782)), "2024-02-29"),
        (ScalarValue::Date64(Some(86_400_000)), "1970-01-02"),
        (
            ScalarValue::TimestampMicrosecond(Some(-1), None),
            "1969-12-31 23:59:59.999999",
        ),
        (
            ScalarValue::TimestampNanosecond(Some(1_500_000_000), Some("+00:00".into())),
            "1970-01-01 00:00:01.5+00",
        ),
        (
            ScalarValue::TimestampSecond(Some(60), None),
            "1970-01-01 00:01:00",
        ),
        (
            ScalarValue::Time64Nanosecond(Some(3_661_000_000_000)),
            "01:01:01",
        ),
    ];
    for (value, text) in cases {
        assert_eq!(shown(value.clone()), text, "{value:?}");
    }
}

#[test]
fn lists_print_as_arrays() {
    let texts = ["a", "", "b c", "nUll", "q\"\\"].map(ScalarValue::from);
    let list = ScalarValue::List(ScalarValue::new_list_nullable(&texts, &DataType::Utf8));
    assert_eq!(shown(list), r#"{a,"","b c","nUll","q\"\\"}"#);
    let nested = ScalarValue::List(ScalarValue::new_list_nullable(&[], &DataType::Int64));
    assert_eq!(shown(nested), "{}");
}
