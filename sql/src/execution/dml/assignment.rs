//! Assignment casts of values to column types.
//!
//! There are three cases, as in PostgreSQL. A quoted literal has no type yet and is read by the
//! column type's input rules. An expression of an assignable type is converted, with rounding and
//! range checks but never silently cut. Anything else is 42804 with a hint: a text, in particular,
//! becomes a number or a date only by an explicit cast.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::logical_expr::{Expr, ExprSchemable};
use std::sync::Arc;
use strandline_base::{Error, Result, SqlState, SqlType};
use strandline_column::types::arrow_type;
use strandline_engine::catalog::ColumnDef;
use strandline_semantics::cast::{Mode, cast_expression};
use strandline_semantics::error::convert;
use strandline_semantics::types;

/// Converts `expr`, whose columns are in `schema`, to the type of `column`.
pub(super) fn assign(expr: Expr, schema: &DFSchema, column: &ColumnDef) -> Result<Expr> {
    let mut expr = super::query::strip_alias(expr);
    if let Expr::Placeholder(parameter) = &mut expr
        && parameter.field.is_none()
    {
        // A parameter takes its column's type, as a quoted literal does.
        parameter.field = Some(Arc::new(types::field("", column.sql_type, true)));
        return Ok(expr);
    }
    if let Expr::Literal(scalar, _) = &expr {
        if scalar.is_null() {
            return null(column.sql_type);
        }
        if scalar.data_type().is_string() {
            let text = scalar.data_type();
            return cast_expression(expr, &text, column.sql_type, Mode::Assignment)
                .map_err(convert);
        }
    }
    let field = expr.to_field(schema).map_err(convert)?.1;
    if !is_assignable(field.data_type(), column.sql_type) {
        return Err(mismatch(column, field.data_type()));
    }
    if types::sql_type_of(&field) == Some(column.sql_type)
        && *field.data_type() == arrow_type(column.sql_type)
    {
        return Ok(expr);
    }
    cast_expression(expr, field.data_type(), column.sql_type, Mode::Assignment).map_err(convert)
}

/// NULL of a column's type.
pub(super) fn null(sql_type: SqlType) -> Result<Expr> {
    let scalar = ScalarValue::try_from(&arrow_type(sql_type)).map_err(convert)?;
    Ok(Expr::Literal(scalar, None))
}

/// 42804.
pub(super) fn mismatch(column: &ColumnDef, from: &DataType) -> Error {
    Error::invalid(
        SqlState::DATATYPE_MISMATCH,
        format!(
            "column \"{}\" is of type {} but expression is of type {}",
            column.name,
            types::sql_name(&arrow_type(column.sql_type)),
            types::sql_name(from)
        ),
    )
    .with_hint("You will need to rewrite or cast the expression.")
}

/// Whether PostgreSQL has an assignment cast from the type to the column's.
pub(crate) fn is_assignable(from: &DataType, to: SqlType) -> bool {
    use SqlType as S;
    if let DataType::Dictionary(_, values) = from {
        return is_assignable(values, to);
    }
    match to {
        // Every type can be assigned to text; json takes text and checks it.
        S::Text | S::Varchar(_) | S::Char(_) => !from.is_nested() || types::is_geometric(from),
        S::Json => from.is_string() || from.is_null(),
        S::Boolean => matches!(from, DataType::Boolean | DataType::Null),
        S::SmallInt | S::Integer | S::BigInt | S::Real | S::Double | S::Numeric { .. } => {
            from.is_numeric() || from.is_null()
        }
        S::Bytea => from.is_binary() || from.is_null(),
        S::Point => from.is_null() || *from == arrow_type(S::Point),
        S::Box => from.is_null() || types::is_geometric(from),
        S::Uuid => matches!(from, DataType::FixedSizeBinary(16) | DataType::Null),
        S::Date => matches!(
            from,
            DataType::Date32 | DataType::Date64 | DataType::Timestamp(..) | DataType::Null
        ),
        S::Timestamp | S::TimestampTz => matches!(
            from,
            DataType::Date32 | DataType::Date64 | DataType::Timestamp(..) | DataType::Null
        ),
        S::Time => matches!(
            from,
            DataType::Time32(_)
                | DataType::Time64(_)
                | DataType::Timestamp(..)
                | DataType::Interval(_)
                | DataType::Null
        ),
        S::Interval => matches!(
            from,
            DataType::Interval(_)
                | DataType::Duration(_)
                | DataType::Time32(_)
                | DataType::Time64(_)
                | DataType::Null
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::logical_expr::Cast;
    use datafusion::prelude::{col, lit};

    fn column(sql_type: SqlType) -> ColumnDef {
        ColumnDef::new(strandline_base::ColumnId(0), "c", sql_type)
    }

    fn assigned(expr: Expr, to: SqlType) -> Result<Expr> {
        assign(expr, &DFSchema::empty(), &column(to))
    }

    #[test]
    fn quoted_literals_take_the_columns_type() {
        let date = assigned(lit("2024-02-29"), SqlType::Date).unwrap();
        assert_eq!(date, Expr::Literal(ScalarValue::Date32(Some(19_782)), None));
        let number = assigned(lit("12"), SqlType::SmallInt).unwrap();
        assert_eq!(number, Expr::Literal(ScalarValue::Int16(Some(12)), None));
        let bad = assigned(lit("x"), SqlType::Integer).unwrap_err();
        assert_eq!(bad.sqlstate(), SqlState::INVALID_TEXT_REPRESENTATION);
        let long = assigned(lit("abcd"), SqlType::Varchar(3)).unwrap_err();
        assert_eq!(long.sqlstate(), SqlState::STRING_DATA_RIGHT_TRUNCATION);
        let null = assigned(Expr::Literal(ScalarValue::Null, None), SqlType::Date).unwrap();
        assert_eq!(null, Expr::Literal(ScalarValue::Date32(None), None));
    }

    #[test]
    fn text_expressions_need_a_cast() {
        let text = Expr::Cast(Cast::new(Box::new(lit("1")), DataType::Utf8View));
        let e = assigned(text.clone(), SqlType::Integer).unwrap_err();
        assert_eq!(e.sqlstate(), SqlState::DATATYPE_MISMATCH);
        assert_eq!(
            e.message(),
            "column \"c\" is of type integer but expression is of type text"
        );
        assert!(e.hint().is_some());
        assert!(assigned(text, SqlType::Text).is_ok());
        assert!(assigned(lit(true), SqlType::Integer).is_err());
        assert!(assigned(lit(1i64), SqlType::Boolean).is_err());
        assert!(assigned(lit(1i64), SqlType::Date).is_err());
        assert!(assigned(lit(1i64), SqlType::Text).is_ok());
        assert!(
            assigned(
                lit(1.5f64),
                SqlType::Numeric {
                    precision: 3,
                    scale: 0
                }
            )
            .is_ok()
        );
    }

    #[test]
    fn same_types_are_left_alone() {
        assert_eq!(assigned(lit(7i32), SqlType::Integer).unwrap(), lit(7i32));
        assert!(assigned(col("missing"), SqlType::Integer).is_err());
    }
}
