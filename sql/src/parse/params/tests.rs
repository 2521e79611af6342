use super::*;
use datafusion::sql::sqlparser::ast::Statement;

fn bound(sql: &str, params: impl Params) -> Result<String> {
    let mut statement: Statement = parse::statement(sql)?;
    substitute(&mut statement, &params.scalars())?;
    Ok(statement.to_string())
}

#[test]
fn values_become_literals_everywhere() {
    let sql = "SELECT * FROM t WHERE a = $1 AND b IN ($2, $2) LIMIT $3";
    let text = bound(sql, (-7i64, "it's", 3i32)).expect("binds");
    assert_eq!(
        text,
        "SELECT * FROM t WHERE a = -7 AND b IN ('it''s', 'it''s') LIMIT 3"
    );
    let insert = bound(
        "INSERT INTO t VALUES ($1, $2, $3)",
        (None::<i64>, true, vec![0xABu8, 0]),
    );
    assert_eq!(
        insert.expect("binds"),
        "INSERT INTO t VALUES (NULL, true, X'AB00')"
    );
}

#[test]
fn extreme_numbers_keep_their_value() {
    for (value, text) in [
        (i64::MIN, "-9223372036854775808"),
        (i64::MAX, "9223372036854775807"),
    ] {
        assert_eq!(
            bound("SELECT $1", (value,)).expect("binds"),
            format!("SELECT {text}")
        );
    }
    let double = bound("SELECT $1", (0.1f64 + 0.2,)).expect("binds");
    assert_eq!(
        double,
        "SELECT CAST('0.30000000000000004' AS DOUBLE PRECISION)"
    );
    let nan = bound("SELECT $1", (f64::NAN,)).expect("binds");
    assert_eq!(nan, "SELECT CAST('NaN' AS DOUBLE PRECISION)");
    let decimal = ScalarValue::Decimal128(Some(-5), 10, 2);
    assert_eq!(
        bound("SELECT $1", (decimal,)).expect("binds"),
        "SELECT -0.05"
    );
}

#[test]
fn times_become_typed_literals() {
    let at = Value::TimestampTz(1_700_000_000_123_456);
    let text = bound("SELECT * FROM t WHERE x > $1", (at,)).expect("binds");
    assert!(text.contains("'2023-11-14 22:13:20.123456+00'"), "{text}");
    let day = bound("SELECT $1", (Value::Date(-1),)).expect("binds");
    assert_eq!(day, "SELECT CAST('1969-12-31' AS DATE)");
}

#[test]
fn a_parameter_without_value_is_an_error() {
    for (sql, n) in [("SELECT $2", 1), ("SELECT $1", 0), ("SELECT $0", 3)] {
        let error = bound(sql, vec![1i64; n]).expect_err(sql);
        assert_eq!(error.sqlstate(), SqlState::UNDEFINED_PARAMETER, "{sql}");
    }
    let mut statement = parse::statement("SELECT $2 + $5").expect("parses");
    assert_eq!(highest(&mut statement).expect("counts"), 5);
}
