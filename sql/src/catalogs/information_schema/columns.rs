//! `information_schema.columns`.

use super::{Rows, text, yes_no};
use crate::catalogs::pg_catalog::{PG_CATALOG, ViewColumns, type_name};
use crate::parse::names;
use strandline_base::SqlType;
use strandline_engine::catalog::{Catalog, ColumnDef};

/// Every column of every table and view.
pub(super) fn columns(catalog: &Catalog, views: &ViewColumns) -> Rows {
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
        "udt_catalog",
        "udt_schema",
        "udt_name",
        "numeric_precision_radix",
        "character_octet_length",
        "generation_expression",
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
            row.extend(type_names(column.sql_type));
            rows.push(row);
        }
    }
    for ((schema, view), columns) in views {
        for (i, (name, sql_type)) in columns.iter().enumerate() {
            let sql_type = sql_type.unwrap_or(SqlType::Text);
            let mut row = vec![
                text(names::DATABASE),
                text(schema),
                text(view),
                text(name),
                text((i + 1).to_string()),
                None,
                yes_no(true),
            ];
            row.extend(type_columns(sql_type));
            row.extend([yes_no(false), None, None, None]);
            row.extend([text("NEVER"), yes_no(false), None]);
            row.extend(type_names(sql_type));
            rows.push(row);
        }
    }
    rows
}

/// udt_catalog, udt_schema, udt_name, numeric_precision_radix, character_octet_length,
/// generation_expression
fn type_names(t: SqlType) -> [Option<String>; 6] {
    let radix = match t {
        SqlType::Numeric { .. } => text("10"),
        SqlType::SmallInt
        | SqlType::Integer
        | SqlType::BigInt
        | SqlType::Real
        | SqlType::Double => text("2"),
        _ => None,
    };
    let octets = match t {
        SqlType::Varchar(n) | SqlType::Char(n) => text((u64::from(n) * 4).to_string()),
        SqlType::Text => text((1 << 30).to_string()),
        _ => None,
    };
    [
        text(names::DATABASE),
        text(PG_CATALOG),
        text(type_name(t)),
        radix,
        octets,
        None,
    ]
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
