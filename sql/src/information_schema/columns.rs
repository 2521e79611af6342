//! `information_schema.columns`.

use super::{Rows, text, yes_no};
use crate::names;
use strandline_base::SqlType;
use strandline_engine::catalog::{Catalog, ColumnDef};

/// Every column of every table. Columns of views are not listed: their types are known only when
/// the view is planned.
pub(super) fn columns(catalog: &Catalog) -> Rows {
    let mut rows = Rows::new(&[
        "table_catalog",
        "table_schema",
        "table_name",
        "column_name",
        "ordinal_position",
        "column_default",
        "is_nullable",
        "data_type",
        "character_maximum_length",
        "numeric_precision",
        "numeric_scale",
        "datetime_precision",
        "is_identity",
        "identity_generation",
        "identity_start",
        "identity_increment",
        "is_generated",
        "is_updatable",
        "comment",
    ]);
    for table in catalog.tables.values() {
        for (i, column) in table.columns.iter().enumerate() {
            let mut row = vec![
                text(names::DATABASE),
                text(&table.schema),
                text(&table.name),
                text(&column.name),
                text((i + 1).to_string()),
                column.default.clone(),
                yes_no(!column.not_null),
            ];
            row.extend(type_columns(column.sql_type));
            row.extend(identity_columns(column));
            row.extend([text("NEVER"), yes_no(true), column.comment.clone()]);
            rows.push(row);
        }
    }
    rows
}

/// data_type, character_maximum_length, numeric_precision, numeric_scale, datetime_precision
fn type_columns(t: SqlType) -> [Option<String>; 5] {
    let name = match t {
        SqlType::Varchar(_) => "character varying".to_string(),
        SqlType::Char(_) => "character".to_string(),
        SqlType::Numeric { .. } => "numeric".to_string(),
        other => other.to_string(),
    };
    let length = match t {
        SqlType::Varchar(n) | SqlType::Char(n) => text(n.to_string()),
        _ => None,
    };
    let (precision, scale) = match t {
        SqlType::Numeric { precision, scale } => {
            (text(precision.to_string()), text(scale.to_string()))
        }
        SqlType::SmallInt => (text("16"), text("0")),
        SqlType::Integer => (text("32"), text("0")),
        SqlType::BigInt => (text("64"), text("0")),
        SqlType::Real => (text("24"), None),
        SqlType::Double => (text("53"), None),
        _ => (None, None),
    };
    let datetime = match t {
        SqlType::Date => text("0"),
        SqlType::Time | SqlType::Timestamp | SqlType::TimestampTz | SqlType::Interval => text("6"),
        _ => None,
    };
    [text(name), length, precision, scale, datetime]
}

/// is_identity, identity_generation, identity_start, identity_increment
fn identity_columns(column: &ColumnDef) -> [Option<String>; 4] {
    match &column.identity {
        None => [yes_no(false), None, None, None],
        Some(identity) => [
            yes_no(true),
            text(if identity.always {
                "ALWAYS"
            } else {
                "BY DEFAULT"
            }),
            text(identity.start.to_string()),
            text(identity.increment.to_string()),
        ],
    }
}
