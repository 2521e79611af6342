//! Types and retention texts. The integration tests cover the statements.

use super::history::policy;
use super::types::{serial, sql_type};
use datafusion::sql::sqlparser::ast::{DataType, Expr};
use strandline_base::{SqlState, SqlType};
use strandline_engine::catalog::HistoryPolicy;

fn parsed(name: &str) -> DataType {
    match crate::parse::expression(&format!("CAST(NULL AS {name})")).expect(name) {
        Expr::Cast { data_type, .. } => data_type,
        other => panic!("{other}"),
    }
}

#[test]
fn postgres_names_of_types() {
    let numeric = |precision, scale| SqlType::Numeric { precision, scale };
    let cases = [
        ("boolean", SqlType::Boolean),
        ("bool", SqlType::Boolean),
        ("int2", SqlType::SmallInt),
        ("smallint", SqlType::SmallInt),
        ("int", SqlType::Integer),
        ("INTEGER", SqlType::Integer),
        ("int4", SqlType::Integer),
        ("int8", SqlType::BigInt),
        ("bigint", SqlType::BigInt),
        ("real", SqlType::Real),
        ("float4", SqlType::Real),
        ("float8", SqlType::Double),
        ("double precision", SqlType::Double),
        ("float", SqlType::Double),
        ("float(24)", SqlType::Real),
        ("numeric(12,2)", numeric(12, 2)),
        ("decimal(5)", numeric(5, 0)),
        ("numeric", numeric(38, 10)),
        ("text", SqlType::Text),
        ("varchar", SqlType::Text),
        ("varchar(10)", SqlType::Varchar(10)),
        ("character varying(10)", SqlType::Varchar(10)),
        ("char", SqlType::Char(1)),
        ("character(3)", SqlType::Char(3)),
        ("bytea", SqlType::Bytea),
        ("date", SqlType::Date),
        ("time", SqlType::Time),
        ("timestamp", SqlType::Timestamp),
        ("timestamp(6)", SqlType::Timestamp),
        ("timestamp without time zone", SqlType::Timestamp),
        ("timestamptz", SqlType::TimestampTz),
        ("timestamp with time zone", SqlType::TimestampTz),
        ("interval", SqlType::Interval),
        ("uuid", SqlType::Uuid),
        ("json", SqlType::Json),
    ];
    for (name, expected) in cases {
        assert_eq!(sql_type(&parsed(name)).expect(name), expected, "{name}");
    }
}

#[test]
fn displayed_types_read_back() {
    for t in [
        SqlType::Varchar(7),
        SqlType::Char(3),
        SqlType::Double,
        SqlType::TimestampTz,
    ] {
        assert_eq!(sql_type(&parsed(&t.to_string())).expect("reads"), t);
    }
}

#[test]
fn other_types_are_clear_errors() {
    let cases = [
        ("jsonb", SqlState::FEATURE_NOT_SUPPORTED),
        ("int[]", SqlState::FEATURE_NOT_SUPPORTED),
        ("timestamp(3)", SqlState::FEATURE_NOT_SUPPORTED),
        ("money", SqlState::FEATURE_NOT_SUPPORTED),
        ("nosuchtype", SqlState::UNDEFINED_OBJECT),
        ("numeric(39)", SqlState::INVALID_PARAMETER_VALUE),
        ("numeric(5,6)", SqlState::INVALID_PARAMETER_VALUE),
        ("varchar(0)", SqlState::INVALID_PARAMETER_VALUE),
        ("serial", SqlState::FEATURE_NOT_SUPPORTED),
        ("float(54)", SqlState::INVALID_PARAMETER_VALUE),
    ];
    for (name, state) in cases {
        let error = sql_type(&parsed(name)).expect_err(name);
        assert_eq!(error.sqlstate(), state, "{name}: {error}");
    }
    assert_eq!(serial(&parsed("bigserial")), Some(SqlType::BigInt));
    assert_eq!(serial(&parsed("int")), None);
}

#[test]
fn retentions_read_and_print() {
    let day = 86_400_000_000u64;
    let cases = [
        ("forever", HistoryPolicy::Forever),
        (" NONE ", HistoryPolicy::None),
        ("24 hours", HistoryPolicy::For(day)),
        ("1 day 12:00:00", HistoryPolicy::For(day + day / 2)),
        ("90s", HistoryPolicy::For(90_000_000)),
        ("2 weeks", HistoryPolicy::For(14 * day)),
        ("0 days", HistoryPolicy::For(0)),
    ];
    for (written, expected) in cases {
        assert_eq!(policy(written).expect(written), expected, "{written}");
    }
    for written in ["", "soon", "5", "-1 day", "5 parsecs", "1:75"] {
        assert!(policy(written).is_err(), "{written}");
    }
}
