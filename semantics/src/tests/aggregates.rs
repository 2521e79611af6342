//! `sum` and `avg`: types, exactness, overflow, groups, windows, DISTINCT.

use crate::testing::{failure, value};

#[test]
fn result_types() {
    for (input, sum, average) in [
        ("1::smallint", "Int64", "Decimal128(38, 16)"),
        ("1::int", "Int64", "Decimal128(38, 16)"),
        ("1::bigint", "Decimal128(38, 0)", "Decimal128(38, 16)"),
        (
            "1::numeric(15,2)",
            "Decimal128(38, 2)",
            "Decimal128(38, 16)",
        ),
        (
            "1::numeric(38,20)",
            "Decimal128(38, 20)",
            "Decimal128(38, 20)",
        ),
        ("1::real", "Float32", "Float64"),
        ("1::float8", "Float64", "Float64"),
    ] {
        let sql = format!(
            "select arrow_typeof(sum(x)), arrow_typeof(avg(x)) from (values ({input})) t(x)"
        );
        assert_eq!(value(&sql), format!("{sum}|{average}"), "{input}");
    }
}

#[test]
fn sums_do_not_overflow_their_input_type() {
    let values = "(values (9223372036854775807), (9223372036854775807), (null), (3)) t(x)";
    assert_eq!(
        value(&format!("select sum(x) from {values}")),
        "18446744073709551617"
    );
    let ints = "(values (2147483647::int), (2147483647::int)) t(x)";
    assert_eq!(value(&format!("select sum(x) from {ints}")), "4294967294");
    let narrow = "(values (9999999999999999.99::numeric(18,2)), (0.02)) t(x)";
    assert_eq!(
        value(&format!("select sum(x::numeric(18,2)) from {narrow}")),
        "10000000000000000.01"
    );
    assert_eq!(
        failure("select sum(x) from (values (99999999999999999999999999999999999999), (1)) t(x)"),
        "22003 value overflows numeric format"
    );
    assert_eq!(
        failure("select sum(x) from (values (1e308::float8), (1e308::float8)) t(x)"),
        "22003 value out of range: overflow"
    );
}

#[test]
fn averages_are_exact() {
    for (values, expected) in [
        ("(1), (2)", "1.5000000000000000"),
        ("(1), (1), (2)", "1.3333333333333333"),
        ("(-1), (-1), (-2)", "-1.3333333333333333"),
        ("(0.01), (0.02), (0.02)", "0.0166666666666667"),
    ] {
        assert_eq!(
            value(&format!("select avg(x) from (values {values}) t(x)")),
            expected
        );
    }
}

#[test]
fn nothing_sums_to_null() {
    let sql = "select sum(x), avg(x) from (values (1), (2)) t(x) where x > 5";
    assert_eq!(value(sql), "NULL|NULL");
    let nulls = "select g, sum(x), avg(x), sum(x) filter (where x > 1) \
                 from (values (1, null), (1, 2), (2, null), (3, 1)) t(g, x) group by g order by g";
    assert_eq!(
        value(nulls),
        "1|2|2.0000000000000000|2\n2|NULL|NULL|NULL\n3|1|1.0000000000000000|NULL"
    );
}

#[test]
fn groups_of_every_type() {
    for (input, expected) in [
        ("x::smallint", "1|5\n2|5"),
        ("x::int", "1|5\n2|5"),
        ("x::bigint", "1|5\n2|5"),
        ("x::numeric(10,1)", "1|5.0\n2|5.0"),
        ("x::numeric(30,1)", "1|5.0\n2|5.0"),
        ("x::float8", "1|5\n2|5"),
        ("x::real", "1|5\n2|5"),
    ] {
        let sql = format!(
            "select g, sum({input}) from (values (1, 2), (2, 1), (1, 3), (2, 4)) t(g, x) \
             group by g order by g"
        );
        assert_eq!(value(&sql), expected, "{input}");
    }
}

#[test]
fn distinct_counts_a_value_once() {
    let values = "(values (1, 5), (1, 5), (1, 6), (2, 5)) t(g, x)";
    let sql = format!(
        "select g, sum(distinct x), avg(distinct x), count(distinct g), sum(distinct x::float8) \
         from {values} group by g order by g"
    );
    assert_eq!(
        value(&sql),
        "1|11|5.5000000000000000|1|11\n2|5|5.0000000000000000|1|5"
    );
}

#[test]
fn sliding_frames_take_rows_back() {
    let sql = "select i, sum(x) over w, avg(x) over w, sum(f) over w, sum(distinct x) over w \
               from (values (1, 10, 'Infinity'::float8), (2, null, 1), (3, 5, 2), (4, 5, 3)) \
               t(i, x, f) window w as (order by i rows between 1 preceding and current row) \
               order by i";
    assert_eq!(
        value(sql),
        "1|10|10.0000000000000000|Infinity|10\n2|10|10.0000000000000000|Infinity|10\n\
         3|5|5.0000000000000000|3|5\n4|10|5.0000000000000000|5|5"
    );
}

#[test]
fn there_is_no_sum_of_text() {
    assert_eq!(
        failure("select sum(x) from (values ('a')) t(x)"),
        "42883 function sum(text) does not exist"
    );
}
