//! Functions by topic.

use crate::testing::{failure, value};

#[test]
fn text_functions() {
    for (sql, expected) in [
        (
            "select length('äöü'), octet_length('äöü'), upper('abc'), initcap('hello wORLD')",
            "3|6|ABC|Hello World",
        ),
        (
            "select substr('alphabet', 3, 2), substr('alphabet', -1, 4), left('abc', -1), right('abc', 2)",
            "ph|al|ab|bc",
        ),
        (
            "select lpad('hi', 5, 'xy'), rpad('hi', 4), trim('  a '), btrim('xyaxy', 'xy')",
            "xyxhi|hi  |a|a",
        ),
        (
            "select split_part('a,b,c', ',', -1), position('b' in 'abc'), replace('abcabc', 'b', 'XX')",
            "c|2|aXXcaXXc",
        ),
        (
            "select concat('a', 1, null, true, 1.5), concat_ws(',', 'a', null, 'b', 3)",
            "a1t1.5|a,b,3",
        ),
        (
            "select format('%s %I %L %%', 'a', 'B c', 'd'), quote_ident('Foo'), quote_literal('O''Reilly')",
            "a \"B c\" 'd' %|\"Foo\"|'O''Reilly'",
        ),
        (
            "select 'abc' similar to '%(b|d)%', 'abc' similar to 'b', 'a%c' like 'a#%c' escape '#'",
            "t|f|t",
        ),
        (
            "select to_hex(255), to_hex(-1), length('\\x4142'::bytea)",
            "ff|ffffffff|2",
        ),
    ] {
        assert_eq!(value(sql), expected, "{sql}");
    }
}

#[test]
fn number_functions() {
    for (sql, expected) in [
        (
            "select round(2.5), round(-2.5), round(1.005, 2), round(1234.567, -2), round(2.5::float8)",
            "3|-3|1.01|1200|2",
        ),
        (
            "select trunc(-2.9), trunc(1.999, 2), ceil(-1.2), floor(-1.2), sign(-2.5)",
            "-2|1.99|-1|-2|-1",
        ),
        (
            "select abs(-5), abs(-1.5), mod(-7, 3), div(-7.5, 2), sqrt(4::float8), power(2::float8, 10)",
            "5|1.5|-1|-3|2|1024",
        ),
        (
            "select greatest(1, 2, null), least(null, 3, 2), greatest(null, null)",
            "2|2|NULL",
        ),
        ("select ~5, 5 # 3, 1 << 4, -(-5)", "-6|6|16|5"),
    ] {
        assert_eq!(value(sql), expected, "{sql}");
    }
}

#[test]
fn parts_of_moments() {
    for (sql, expected) in [
        (
            "select extract(year from timestamp '2024-02-29 13:14:15.678'), extract(second from timestamp '2024-02-29 13:14:15.678'), extract(epoch from timestamp '2024-02-29 13:14:15.678')",
            "2024|15.678000|1709212455.678000",
        ),
        (
            "select extract(dow from date '2024-03-03'), extract(isodow from date '2024-03-03'), extract(week from date '2024-01-01'), extract(isoyear from date '2023-01-01'), extract(century from date '2001-01-01')",
            "0|7|1|2022|21",
        ),
        (
            "select date_part('second', timestamp '2024-02-29 13:14:15.678'), extract(epoch from interval '1 year')",
            "15.678|31557600.000000",
        ),
        (
            "select date_trunc('week', timestamp '2024-02-29 13:14:15'), date_trunc('quarter', timestamp '2024-05-29'), date_trunc('millennium', timestamp '2024-05-29')",
            "2024-02-26 00:00:00|2024-04-01 00:00:00|2001-01-01 00:00:00",
        ),
        (
            "select age(timestamp '2024-03-01', timestamp '2023-12-31'), age(timestamp '2023-12-31', timestamp '2024-03-01')",
            "2 mons 1 day|-2 mons -1 days",
        ),
        (
            "select justify_hours(interval '27 hours'), justify_days(interval '35 days'), justify_interval(interval '1 mon -1 hour')",
            "1 day 03:00:00|1 mon 5 days|29 days 23:00:00",
        ),
        (
            "select timestamp '2024-01-01 00:00:00' at time zone 'UTC', timestamptz '2024-01-01 00:00:00+00' at time zone '+02'",
            "2024-01-01 00:00:00+00|2023-12-31 22:00:00",
        ),
    ] {
        assert_eq!(value(sql), expected, "{sql}");
    }
}

#[test]
fn patterns() {
    for (sql, expected) in [
        (
            "select to_char(timestamp '2024-02-29 13:14:15.678', 'YYYY-MM-DD HH24:MI:SS.MS'), to_char(date '2024-02-09', 'FMDay, FMMonth FMDDth')",
            "2024-02-29 13:14:15.678|Friday, February 9th",
        ),
        (
            "select to_char(1234.5, 'FM9,999.00'), to_char(-5, '999'), to_char(12345, '999'), to_char(-12, '999PR'), to_char(0.5, '9.9')",
            "1,234.50|  -5| ###| <12>|  .5",
        ),
        (
            "select to_date('29 Feb 2024', 'DD Mon YYYY'), to_timestamp('05 Dec 2000 03:04 PM', 'DD Mon YYYY HH12:MI AM')",
            "2024-02-29|2000-12-05 15:04:00+00",
        ),
        (
            "select to_number('1,234.50', '9,999.99'), to_number('12.5-', '99.9S')",
            "1234.50|-12.5",
        ),
    ] {
        assert_eq!(value(sql), expected, "{sql}");
    }
}

#[test]
fn json_functions() {
    for (sql, expected) in [
        (
            "select '{\"a\": 1, \"b\": [1, 2, {\"c\": \"x\"}]}'::json -> 'b' -> 2 ->> 'c', '[1, 1.50]'::json -> 1",
            "x|1.50",
        ),
        (
            "select '{\"a\": {\"b\": [10, 20]}}'::json #>> '{a,b,1}', json_typeof('[1]'), json_array_length('[1, [2, 3], \"a,b\"]')",
            "20|array|3",
        ),
        (
            "select json_build_object('a', json_build_array(1, 'x', null)), to_json('a\"b'::text)",
            "{\"a\" : [1, \"x\", null]}|\"a\\\"b\"",
        ),
    ] {
        assert_eq!(value(sql), expected, "{sql}");
    }
}

#[test]
fn series() {
    for (sql, expected) in [
        ("select * from generate_series(1, 10, 4) as g", "1\n5\n9"),
        ("select * from generate_series(3, 1, -1)", "3\n2\n1"),
        (
            "select * from generate_series(timestamp '2024-01-30', timestamp '2024-03-30', interval '1 month')",
            "2024-01-30 00:00:00\n2024-02-29 00:00:00\n2024-03-29 00:00:00",
        ),
        (
            "select count(*), sum(g) from generate_series(1, 100000) g",
            "100000|5000050000",
        ),
    ] {
        assert_eq!(value(sql), expected, "{sql}");
    }
}

#[test]
fn faults() {
    for (sql, expected) in [
        (
            "select sqrt(-1::float8)",
            "2201F cannot take square root of a negative number",
        ),
        (
            "select ln(0::float8)",
            "2201E cannot take logarithm of zero",
        ),
        (
            "select power(0::float8, -1)",
            "2201F zero raised to a negative power is undefined",
        ),
        (
            "select abs((-2147483648)::int)",
            "22003 integer out of range",
        ),
        (
            "select substr('abc', 2, -1)",
            "22011 negative substring length not allowed",
        ),
        (
            "select json_array_length('{}')",
            "22023 cannot get array length of a non-array",
        ),
        (
            "select to_date('2024-13-01', 'YYYY-MM-DD')",
            "22008 date/time field value out of range: \"2024-13-01\"",
        ),
        (
            "select make_date(2023, 2, 29)",
            "22008 date field value out of range: 2023-02-29",
        ),
        (
            "select extract(hour from date '2024-01-01')",
            "0A000 unit \"hour\" not supported for type date",
        ),
        (
            "select upper(1)",
            "42883 function upper(integer) does not exist",
        ),
        (
            "select length(1)",
            "42883 function length(integer) does not exist",
        ),
        (
            "select * from generate_series(1, 3, 0)",
            "22023 step size cannot equal zero",
        ),
    ] {
        assert_eq!(failure(sql), expected, "{sql}");
    }
}
