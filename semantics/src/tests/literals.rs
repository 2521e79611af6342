//! Literals without a type, comparisons, names of types.

use crate::testing::{failure, value};

#[test]
fn open_literals_take_their_neighbours_type() {
    for (sql, expected) in [
        ("select '1' + 1, '1.5' + 1.0, 2 * '3'", "2|2.5|6"),
        (
            "select x from (values (date '2024-01-01'), (date '2024-02-01')) t(x) where x >= '2024-01-15'",
            "2024-02-01",
        ),
        (
            "select x from (values (1), (2)) t(x) where x in ('2', '3')",
            "2",
        ),
        (
            "select x from (values (1.5), (2.5)) t(x) where x between '2' and '3'",
            "2.5",
        ),
        (
            "select coalesce(null, 1), nullif('a', 'b'), case when false then 1 else 2.5 end",
            "1|a|2.5",
        ),
        (
            "select interval '1 month' = '30 days', interval '1 day' < '25 hours'",
            "t|t",
        ),
        (
            "select 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid = 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'",
            "t",
        ),
    ] {
        assert_eq!(value(sql), expected, "{sql}");
    }
}

#[test]
fn types_that_do_not_compare() {
    for (sql, expected) in [
        (
            "select 'abc' = 1",
            "22P02 invalid input syntax for type integer: \"abc\"",
        ),
        (
            "select date '2024-01-01' = 1",
            "42883 operator does not exist: date = integer",
        ),
        (
            "select true = 1",
            "42883 operator does not exist: boolean = integer",
        ),
        (
            "select x from (values ('1'), ('2')) t(x) where x = 1",
            "42883 operator does not exist: text = integer",
        ),
        (
            "select x from (values (1), (2)) t(x) where x = 'abc'",
            "22P02 invalid input syntax for type integer: \"abc\"",
        ),
        (
            "select 1 where 1",
            "42804 argument of WHERE must be type boolean, not type integer",
        ),
        (
            "select not 1",
            "42804 argument of NOT must be type boolean, not type integer",
        ),
    ] {
        assert_eq!(failure(sql), expected, "{sql}");
    }
}

#[test]
fn types_of_literals() {
    for (sql, expected) in [
        (
            "select pg_typeof(1), pg_typeof(2147483648), pg_typeof(9223372036854775808), pg_typeof(1.5), pg_typeof(1e5)",
            "integer|bigint|numeric|numeric|numeric",
        ),
        (
            "select pg_typeof(sum(1)), pg_typeof(sum(1::bigint)), pg_typeof(avg(1)), pg_typeof(sum(1::real)), pg_typeof(count(*))",
            "bigint|numeric|numeric|real|bigint",
        ),
        (
            "select pg_typeof(1::real + 1), pg_typeof(1::smallint + 1::smallint), pg_typeof(1::bigint + 1)",
            "double precision|smallint|bigint",
        ),
        (
            "select pg_typeof(row_number() over ()), pg_typeof(ntile(2) over ()), pg_typeof(extract(year from date '2024-01-01'))",
            "bigint|integer|numeric",
        ),
    ] {
        assert_eq!(value(sql), expected, "{sql}");
    }
}

#[test]
fn floats_beside_numerics() {
    for (sql, expected) in [
        (
            "select 0.1::float8 + 0.2 = 0.3, 0.5::float8 > 0.4, pg_typeof(coalesce(1.5, 1::float8))",
            "f|t|double precision",
        ),
        (
            "select x from (values (0.1::float8), (0.3)) t(x) where x in (0.1, 0.2)",
            "0.1",
        ),
    ] {
        assert_eq!(value(sql), expected, "{sql}");
    }
}

#[test]
fn rows() {
    for (sql, expected) in [
        (
            "select (1, 2) = (1, 2), (1, 2) < (1, 3), (2, 1) <= (1, 9), (1, null) = (2, 1)",
            "t|t|f|f",
        ),
        (
            "select * from (values (1, 'a'), (2, 'b')) t(x, y) where (x, y) in ((1, 'a'), (3, 'c'))",
            "1|a",
        ),
    ] {
        assert_eq!(value(sql), expected, "{sql}");
    }
}

#[test]
fn conditions_that_can_fail() {
    for (sql, expected) in [
        (
            "select x from (values (0), (2)) t(x) where x <> 0 and 10 / x > 1",
            "2",
        ),
        (
            "select x from (values ('1'), ('b')) t(x) where x ~ '^[0-9]+$' and x::int > 0",
            "1",
        ),
        (
            "select case when x = 0 then 0 else 10 / x end from (values (0), (2)) t(x)",
            "0\n5",
        ),
    ] {
        assert_eq!(value(sql), expected, "{sql}");
    }
}

#[test]
fn queries() {
    for (sql, expected) in [
        (
            "select exists(select 1 where false), not exists(select 1)",
            "f|f",
        ),
        (
            "select x, exists(select 1 from (values (1), (3)) u(y) where u.y = t.x) from (values (1), (2)) t(x) order by x",
            "1|t\n2|f",
        ),
        (
            "select distinct x + 1 from (values (2), (1), (2)) t(x) order by x + 1",
            "2\n3",
        ),
        ("select 1, 1, 2 as a, 3 as a", "1|1|2|3"),
        (
            "select sum(x), sum(x::numeric), sum(x::float8) from (values (1), (2)) t(x)",
            "3|3|3",
        ),
        (
            "select x from (values (1), (null), (2)) t(x) order by x desc",
            "NULL\n2\n1",
        ),
        ("select 1 fetch first 1 rows only", "1"),
    ] {
        assert_eq!(value(sql), expected, "{sql}");
    }
}
