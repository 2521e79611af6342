//! Plans: conditions that scans can use, names of result columns, refused statements.

use crate::sql::{normalize, output_name};
use crate::testing::{failure, value};
use datafusion::sql::sqlparser::ast::Statement;
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;

fn normalized(sql: &str) -> Statement {
    let mut statement = Parser::parse_sql(&PostgreSqlDialect {}, sql)
        .expect("valid SQL")
        .pop()
        .expect("one statement");
    normalize(&mut statement).expect("a supported statement");
    statement
}

#[test]
fn dates_are_compared_as_dates() {
    for (condition, shown) in [
        (
            "d < date '1998-12-01' - interval '90' day",
            "column1 < Date32(\"1998-09-02\")",
        ),
        (
            "d >= timestamp '2024-01-01 00:00:01'",
            "column1 >= Date32(\"2024-01-02\")",
        ),
        (
            "timestamp '2024-01-01' > d",
            "column1 < Date32(\"2024-01-01\")",
        ),
        (
            "d <= timestamp '2024-01-01 12:00:00'",
            "column1 <= Date32(\"2024-01-01\")",
        ),
    ] {
        let plan = value(&format!(
            "explain select d from (values (date '2024-01-01')) t(d) where {condition}"
        ));
        assert!(plan.contains(shown), "{condition}:\n{plan}");
    }
    let days = "(values (date '2024-01-01'), (date '2024-01-02')) t(d)";
    for (condition, count) in [
        ("d < timestamp '2024-01-01 12:00:00'", "1"),
        ("d > timestamp '2024-01-01 12:00:00'", "1"),
        ("d >= timestamp '2024-01-02'", "1"),
        ("d <= timestamp '2024-01-01 12:00:00'", "1"),
        ("d = timestamp '2024-01-01 12:00:00'", "0"),
        ("d <> timestamp '2024-01-01 12:00:00'", "2"),
        ("d = timestamp '2024-01-02 00:00:00'", "1"),
    ] {
        assert_eq!(
            value(&format!("select count(*) from {days} where {condition}")),
            count
        );
    }
}

#[test]
fn literals_take_the_columns_type() {
    let from = "from (values (1::smallint, 1.00::numeric(15,2), 'a'::char(4))) t(s, n, c)";
    for (condition, shown) in [
        ("n between 0.05 and 10", "column2 >= Decimal64(0.05,15,2)"),
        ("n < 24", "column2 < Decimal64(24.00,15,2)"),
        ("c = 'ab'", "Utf8View(\"ab  \")"),
        ("s = 5", "column1 = Int16(5)"),
    ] {
        let plan = value(&format!("explain select count(*) {from} where {condition}"));
        assert!(plan.contains(shown), "{condition}:\n{plan}");
    }
    // A literal that does not fit the column's type is still compared exactly.
    assert_eq!(
        value(&format!("select count(*) {from} where n < 1.001")),
        "1"
    );
    assert_eq!(
        value(&format!("select count(*) {from} where n = 1.001")),
        "0"
    );
    assert_eq!(
        value(&format!("select count(*) {from} where s < 100000")),
        "1"
    );
}

#[test]
fn columns_are_named_as_in_postgres() {
    for (item, name) in [
        ("1", "?column?"),
        ("a + 1", "?column?"),
        ("upper(x)", "upper"),
        ("x::int", "x"),
        ("'1'::int", "int4"),
        ("1::numeric(5,2)", "numeric"),
        ("date '2024-01-01'", "date"),
        ("case when a then b end", "case"),
        ("case when a then b else c end", "c"),
        ("count(*)", "count"),
        ("coalesce(a, 1)", "coalesce"),
        ("extract(year from d)", "extract"),
        ("substring(x from 1)", "substring"),
        ("trim(x)", "btrim"),
        ("exists(select 1)", "exists"),
        ("(select max(a) from t)", "max"),
        ("array[1]", "array"),
        ("current_date", "current_date"),
        ("interval '1 day'", "interval"),
        ("true", "bool"),
        ("x at time zone 'utc'", "timezone"),
    ] {
        let statement = normalized(&format!("select {item} from t")).to_string();
        assert!(
            statement.contains(&format!("AS \"{name}\"")),
            "{item}: {statement}"
        );
    }
    let twice = normalized("select a, a, 1, 2 from t").to_string();
    assert_eq!(twice.matches('\u{1f}').count(), 2, "{twice}");
    assert_eq!(output_name("a\u{1f}2"), "a");
    assert_eq!(output_name("a"), "a");
}

#[test]
fn positions_and_limits_stay_plain() {
    let sql = "select a, sum(b) over (order by a rows 1 preceding), lag(a, 2) over (order by a) \
               from t group by 1 order by 2, a + 1 limit 10 offset 5";
    let text = normalized(sql).to_string();
    for plain in [
        "GROUP BY 1",
        "ORDER BY 2,",
        "LIMIT 10",
        "OFFSET 5",
        "ROWS 1 PRECEDING",
        "lag(a, 2)",
    ] {
        assert!(text.contains(plain), "{plain}: {text}");
    }
}

#[test]
fn what_would_be_ignored_is_refused() {
    for sql in [
        "select * from t for update",
        "select * from t for share",
        "select * from (select * from t for update) u",
        "select * from t tablesample system (10)",
    ] {
        assert!(failure(sql).starts_with("0A000"), "{sql}");
    }
}
