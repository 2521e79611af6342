//! Casts against PostgreSQL 15's.

use crate::testing::{failure, value};

#[test]
fn numbers_round_as_postgres_does() {
    for (sql, expected) in [
        ("select 2.5::int, 3.5::int, -2.5::int", "3|4|-3"),
        (
            "select 2.5::float8::int, 3.5::float8::int, (-2.5::float8)::int",
            "2|4|-2",
        ),
        (
            "select 1.005::numeric(10,2), (-1.005)::numeric(10,2)",
            "1.01|-1.01",
        ),
        ("select 1e10::numeric::bigint", "10000000000"),
        ("select 0.1::float8::numeric(20,18)", "0.100000000000000000"),
        ("select 1234567.891::real::numeric(12,2)", "1234570.00"),
        (
            "select 123456789012345678::numeric(18,0)::float8",
            "1.2345678901234568e+17",
        ),
        ("select 0.3::float8 = 0.3::numeric", "t"),
        ("select 5::numeric(10,2)", "5.00"),
        (
            "select 1.50::numeric, 1.5::numeric(3,1)::numeric",
            "1.50|1.5",
        ),
        ("select '1.50'::numeric, 7::numeric", "1.50|7"),
        ("select true::int, 0::boolean, 5::boolean", "1|f|t"),
    ] {
        assert_eq!(value(sql), expected, "{sql}");
    }
}

#[test]
fn what_does_not_fit_is_an_error() {
    for (sql, expected) in [
        ("select 40000::smallint", "22003 smallint out of range"),
        ("select 3000000000::int", "22003 integer out of range"),
        ("select 1e20::bigint", "22003 bigint out of range"),
        (
            "select 9223372036854775807.5::bigint",
            "22003 bigint out of range",
        ),
        ("select 1e19::float8::bigint", "22003 bigint out of range"),
        ("select 'NaN'::float8::int", "22003 integer out of range"),
        ("select 1000::numeric(3,0)", "22003 numeric field overflow"),
        (
            "select 999.999::numeric(5,2)",
            "22003 numeric field overflow",
        ),
        (
            "select 1e300::float8::real",
            "22003 value out of range: overflow",
        ),
        (
            "select a::smallint from (values (1), (40000)) t(a)",
            "22003 smallint out of range",
        ),
    ] {
        assert_eq!(failure(sql), expected, "{sql}");
    }
}

#[test]
fn text_is_read_strictly() {
    for (sql, expected) in [
        (
            "select 'abc'::int",
            "22P02 invalid input syntax for type integer: \"abc\"",
        ),
        (
            "select '40000'::smallint",
            "22003 value \"40000\" is out of range for type smallint",
        ),
        (
            "select 'maybe'::boolean",
            "22P02 invalid input syntax for type boolean: \"maybe\"",
        ),
        (
            "select '2024-02-30'::date",
            "22008 date/time field value out of range: \"2024-02-30\"",
        ),
        (
            "select 'x'::date",
            "22007 invalid input syntax for type date: \"x\"",
        ),
        (
            "select 'x'::uuid",
            "22P02 invalid input syntax for type uuid: \"x\"",
        ),
        (
            "select '{'::json",
            "22P02 invalid input syntax for type json",
        ),
        (
            "select 'x'::interval",
            "22007 invalid input syntax for type interval: \"x\"",
        ),
        (
            "select x::int from (values ('1'), ('b')) t(x)",
            "22P02 invalid input syntax for type integer: \"b\"",
        ),
    ] {
        assert_eq!(failure(sql), expected, "{sql}");
    }
    for (sql, expected) in [
        ("select ' 42 '::int, '-7'::bigint, '1.5'::real", "42|-7|1.5"),
        ("select 'yes'::boolean, 'off'::boolean", "t|f"),
        (
            "select '2024-02-29'::date, '03:04'::time",
            "2024-02-29|03:04:00",
        ),
        (
            "select '2024-01-02 03:04:05'::timestamp",
            "2024-01-02 03:04:05",
        ),
        (
            "select '2024-01-02 03:04:05+02'::timestamptz",
            "2024-01-02 01:04:05+00",
        ),
        ("select '1 day 2 hours'::interval", "1 day 02:00:00"),
        ("select '\\xdead'::bytea", "\\xdead"),
        (
            "select 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'::uuid",
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        ),
        (
            "select x::int + 1 from (values ('1'), (null), ('41')) t(x)",
            "2\nNULL\n42",
        ),
    ] {
        assert_eq!(value(sql), expected, "{sql}");
    }
}

#[test]
fn every_type_writes_itself_as_text() {
    for (sql, expected) in [
        (
            "select true::text, 1::text, 1.50::text, 1e20::float8::text",
            "true|1|1.50|1e+20",
        ),
        ("select '2024-01-02'::date::text || '!'", "2024-01-02!"),
        (
            "select ('2024-01-02 03:04:05'::timestamp)::text",
            "2024-01-02 03:04:05",
        ),
        ("select interval '1 month 1 hour'::text", "1 mon 01:00:00"),
        (
            "select ('a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid)::text",
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        ),
        ("select 'x' || 1 || true || 1.5", "x1true1.5"),
        ("select 1 || 'x' || null", "NULL"),
    ] {
        assert_eq!(value(sql), expected, "{sql}");
    }
}

#[test]
fn bounded_text() {
    for (sql, expected) in [
        ("select 'abcdef'::varchar(3)", "abc"),
        ("select 'äöü'::varchar(2)", "äö"),
        ("select 'ab'::char(4) || '!'", "ab!"),
        ("select 'abcdef'::char(3)", "abc"),
        ("select length('ab'::char(4))", "2"),
        ("select 12345::varchar(2)", "12"),
        ("select 'ab'::char(4) = 'ab', 'ab'::char(4) = 'ab  '", "t|t"),
        ("select 'ab'::char(4) = 'ab'::char(6)", "t"),
        ("select 'ab ' = 'ab'", "f"),
    ] {
        assert_eq!(value(sql), expected, "{sql}");
    }
}

#[test]
fn dates_and_times() {
    for (sql, expected) in [
        ("select timestamp '2024-01-02 03:04:05'::date", "2024-01-02"),
        ("select timestamp '1969-12-31 23:00:00'::date", "1969-12-31"),
        ("select (timestamp '2024-01-02 03:04:05')::time", "03:04:05"),
        ("select date '2024-01-02'::timestamp", "2024-01-02 00:00:00"),
        (
            "select date '2024-01-02'::timestamptz",
            "2024-01-02 00:00:00+00",
        ),
        ("select time '03:04'::interval", "03:04:00"),
        ("select interval '1 day 25:00:00'::time", "01:00:00"),
    ] {
        assert_eq!(value(sql), expected, "{sql}");
    }
}

#[test]
fn casts_that_do_not_exist_are_refused() {
    for (sql, expected) in [
        ("select 1::date", "42846 cannot cast type integer to date"),
        (
            "select true::float8",
            "42846 cannot cast type boolean to double precision",
        ),
        (
            "select 1::bigint::boolean",
            "42846 cannot cast type bigint to boolean",
        ),
        (
            "select date '2024-01-01'::int",
            "42846 cannot cast type date to integer",
        ),
    ] {
        assert_eq!(failure(sql), expected, "{sql}");
    }
}
