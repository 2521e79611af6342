//! Functions about the session and the server, and random identifiers.

use super::overload::Parameter::Any;
use super::overload::{Call, Function, Overload};
use crate::types::{PG_TYPE_KEY, sql_name, sql_type_of};
use datafusion::arrow::array::{
    Array, ArrayRef, FixedSizeBinaryBuilder, Int32Array, StringViewArray,
};
use datafusion::common::Result;
use std::sync::Arc;
use strandline_base::SqlType;

/// The user that every session runs as.
pub const USER: &str = "strandline";

/// The functions of this file.
pub fn functions() -> Vec<Function> {
    let text = SqlType::Text;
    let user = |c: &Call| everywhere(c, USER);
    let schema = |c: &Call| everywhere(c, &c.options.catalog.default_schema);
    let database = |c: &Call| everywhere(c, &c.options.catalog.default_catalog);
    vec![
        Function::new("version", vec![Overload::new(&[], text, version)]).stable(),
        Function::new("current_user", vec![Overload::new(&[], text, user)])
            .also(&["session_user", "user", "current_role"])
            .stable(),
        Function::new("current_schema", vec![Overload::new(&[], text, schema)]).stable(),
        Function::new("current_database", vec![Overload::new(&[], text, database)])
            .also(&["current_catalog"])
            .stable(),
        Function::new(
            "num_nulls",
            vec![Overload::variadic(&[Any], SqlType::Integer, |c| {
                count_nulls(c, true)
            })],
        )
        .not_strict(),
        Function::new(
            "num_nonnulls",
            vec![Overload::variadic(&[Any], SqlType::Integer, |c| {
                count_nulls(c, false)
            })],
        )
        .not_strict(),
        Function::new("pg_typeof", vec![Overload::new(&[Any], text, type_of)]).not_strict(),
        Function::new(
            "gen_random_uuid",
            vec![Overload::new(&[], SqlType::Uuid, random_uuid)],
        )
        .also(&["uuid"])
        .volatile(),
    ]
}

fn everywhere(call: &Call, text: &str) -> Result<ArrayRef> {
    let array: StringViewArray = (0..call.rows).map(|_| Some(text)).collect();
    Ok(Arc::new(array))
}

fn version(call: &Call) -> Result<ArrayRef> {
    let version = env!("CARGO_PKG_VERSION");
    everywhere(
        call,
        &format!("Strandline {version} (PostgreSQL 15 dialect)"),
    )
}

fn type_of(call: &Call) -> Result<ArrayRef> {
    let field = &call.fields[0];
    if let Some(name) = field.metadata().get(PG_TYPE_KEY) {
        return everywhere(call, name);
    }
    let name = match sql_type_of(field) {
        Some(SqlType::Numeric { .. }) => "numeric".to_string(),
        Some(SqlType::Varchar(_)) => "character varying".to_string(),
        Some(SqlType::Char(_)) => "character".to_string(),
        Some(sql_type) if !field.data_type().is_null() => sql_type.to_string(),
        _ => sql_name(field.data_type()),
    };
    everywhere(call, &name)
}

/// Counts the arguments that are NULL, or that are not NULL.
fn count_nulls(call: &Call, wanted: bool) -> Result<ArrayRef> {
    let is_null = |a: &ArrayRef, row| a.is_null(row) || a.data_type().is_null();
    let counts = (0..call.rows).map(|row| {
        call.arrays
            .iter()
            .filter(|a| is_null(a, row) == wanted)
            .count() as i32
    });
    Ok(Arc::new(Int32Array::from_iter_values(counts)))
}

/// Version 4 uuids from the system's random source.
fn random_uuid(call: &Call) -> Result<ArrayRef> {
    let mut builder = FixedSizeBinaryBuilder::with_capacity(call.rows, 16);
    for _ in 0..call.rows {
        builder.append_value(uuid::Uuid::new_v4().as_bytes())?;
    }
    Ok(Arc::new(builder.finish()))
}
