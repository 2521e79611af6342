//! Operators: types, overflow, division, rounding, dates and intervals.

use crate::testing::{failure, value};

#[test]
fn integers_overflow_as_errors() {
    for (sql, message) in [
        (
            "select 32767::smallint + 1::smallint",
            "22003 smallint out of range",
        ),
        (
            "select 2147483647::int + 1::int",
            "22003 integer out of range",
        ),
        (
            "select 9223372036854775807::bigint + 1",
            "22003 bigint out of range",
        ),
        (
            "select (-9223372036854775807)::bigint - 2",
            "22003 bigint out of range",
        ),
        (
            "select 3037000500::bigint * 3037000500::bigint",
            "22003 bigint out of range",
        ),
        (
            "select (-2147483648)::int / (-1)::int",
            "22003 integer out of range",
        ),
        ("select 1 / 0", "22012 division by zero"),
        ("select 1 % 0", "22012 division by zero"),
        ("select 1.5 / 0", "22012 division by zero"),
        ("select 1.5 % 0.0", "22012 division by zero"),
        ("select 1::float8 / 0::float8", "22012 division by zero"),
        ("select 0::float8 / 0::float8", "22012 division by zero"),
        (
            "select 1e308::float8 * 10::float8",
            "22003 value out of range: overflow",
        ),
        (
            "select 1e-308::float8 / 1e308::float8",
            "22003 value out of range: underflow",
        ),
    ] {
        assert_eq!(failure(sql), message, "{sql}");
    }
}

#[test]
fn overflow_is_found_in_columns_and_not_in_null_rows() {
    let values = "from (values (1, 1), (2147483647, null), (5, 2147483642)) t(a, b)";
    assert_eq!(
        value(&format!("select a::int + b::int {values}")),
        "2\nNULL\n2147483647"
    );
    assert_eq!(
        failure("select a::int * b::int from (values (1, 1), (65536, 65536)) t(a, b)"),
        "22003 integer out of range"
    );
    assert_eq!(
        value("select a / b from (values (4, 2), (null, 0)) t(a, b)"),
        "2\nNULL"
    );
    assert_eq!(
        failure("select a / b from (values (4, 2), (4, 0)) t(a, b)"),
        "22012 division by zero"
    );
}

#[test]
fn integer_division_truncates_and_remainders_take_the_dividends_sign() {
    for (sql, expected) in [
        ("select 7 / 2", "3"),
        ("select -7 / 2", "-3"),
        ("select 7 % 3", "1"),
        ("select -7 % 3", "-1"),
        ("select 7 % -3", "1"),
        ("select (-2147483648)::int % (-1)::int", "0"),
    ] {
        assert_eq!(value(sql), expected, "{sql}");
    }
}

#[test]
fn integer_types_widen_to_the_wider_and_no_further() {
    for (sql, expected) in [
        ("select arrow_typeof(1::smallint + 1::smallint)", "Int16"),
        ("select arrow_typeof(1::smallint + 1::int)", "Int32"),
        ("select arrow_typeof(1::int + 1::int)", "Int32"),
        ("select arrow_typeof(1::int * 1::bigint)", "Int64"),
        ("select arrow_typeof(1::real * 2::real)", "Float32"),
        ("select arrow_typeof(1::real * 2::int)", "Float64"),
        ("select arrow_typeof(1::float8 + 1.5)", "Float64"),
        ("select arrow_typeof(1::int + 1.5)", "Decimal64(12, 1)"),
    ] {
        assert_eq!(value(sql), expected, "{sql}");
    }
}

#[test]
fn numeric_arithmetic_is_exact() {
    for (sql, expected) in [
        ("select 1.5 + 2.25", "3.75"),
        ("select 1 - 0.05", "0.95"),
        ("select 0.1 * 0.1", "0.01"),
        (
            "select 12345678901234.56 * 98765432109876.54",
            "1219326311370217133348575181.2224",
        ),
        (
            "select 99999999999999999999.99 + 0.01",
            "100000000000000000000.00",
        ),
        ("select 1.0 / 3", "0.33333333333333333333"),
        ("select 2.0 / 3", "0.66666666666666666667"),
        ("select -2.0 / 3", "-0.66666666666666666667"),
        ("select 7.5 % 2", "1.5"),
        ("select -7.5 % 2", "-1.5"),
        ("select 10.00 % 0.3", "0.10"),
        ("select 12345678901234567890.5 % 7", "1.5"),
    ] {
        assert_eq!(value(sql), expected, "{sql}");
    }
    // PostgreSQL computes these with more than 38 digits; here they are errors, never wrapped.
    for sql in [
        "select 99999999999999999999.9 * 99999999999999999999.9",
        "select 99999999999999999999999999999999999999 + 1",
        "select 99999999999999999999999999999999999999 * 10",
    ] {
        assert_eq!(
            failure(sql),
            "22003 value overflows numeric format",
            "{sql}"
        );
    }
}

#[test]
fn a_product_keeps_its_digits_whatever_the_operands_width() {
    let sql = "select a::numeric(15,2) * (1 - b::numeric(15,2)) * (1 + c::numeric(15,2)) \
               from (values (9999999999999.99, 0.10, 0.08), (0.01, 0.99, 0.01)) t(a, b, c)";
    assert_eq!(value(sql), "9719999999999.990280\n0.000101");
    let wide = "select a::numeric(38,16) * b::numeric(38,16) \
                from (values (1.5, 2.5), (123456789.123456789, 1000000.5)) t(a, b)";
    assert_eq!(
        value(wide),
        "3.75000000000000000000\n123456850851851.35072839450000000000"
    );
}

#[test]
fn dates_and_intervals() {
    for (sql, expected) in [
        ("select date '2024-01-31' + 1", "2024-02-01"),
        ("select 1 + date '2024-01-31'", "2024-02-01"),
        ("select date '2024-03-01' - 1", "2024-02-29"),
        ("select date '2024-03-01' - date '2024-02-01'", "29"),
        (
            "select arrow_typeof(date '2024-03-01' - date '2024-02-01')",
            "Int32",
        ),
        (
            "select date '2024-01-31' + interval '1 month'",
            "2024-02-29 00:00:00",
        ),
        (
            "select date '1998-12-01' - interval '90 days'",
            "1998-09-02 00:00:00",
        ),
        (
            "select date '2024-01-31' + time '12:30:00'",
            "2024-01-31 12:30:00",
        ),
        (
            "select timestamp '2024-03-31 12:00:00' - interval '1 month 1 hour'",
            "2024-02-29 11:00:00",
        ),
        ("select time '23:30' + interval '2 hours'", "01:30:00"),
        ("select time '01:30' - interval '2 hours'", "23:30:00"),
    ] {
        assert_eq!(value(sql), expected, "{sql}");
    }
    let span = "select arrow_typeof(timestamp '2024-01-02' - timestamp '2024-01-01')";
    assert_eq!(value(span), "Interval(MonthDayNano)");
    let null = "select arrow_typeof(null + date '2024-01-01'), arrow_typeof(1 + null)";
    assert_eq!(value(null), "Date32|Int32");
}

#[test]
fn there_is_no_arithmetic_on_text_columns() {
    assert_eq!(
        failure("select a + 1 from (values ('x')) t(a)"),
        "42883 operator does not exist: text + integer"
    );
    assert_eq!(
        failure("select true + 1"),
        "42883 operator does not exist: boolean + integer"
    );
}
