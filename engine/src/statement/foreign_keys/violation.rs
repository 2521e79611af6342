//! Violations of foreign keys in PostgreSQL's words.

use crate::catalog::index::ForeignKeyDef;
use crate::catalog::{TableDef, column_of};
use crate::display::value_text;
use strandline_base::{ColumnId, Error, ErrorKind, Result, SqlState, Value};

fn violation(child: &TableDef, key: &ForeignKeyDef, message: String) -> Error {
    Error::new(
        ErrorKind::Constraint,
        SqlState::FOREIGN_KEY_VIOLATION,
        message,
    )
    .with_subject(child.constraint_subject(&key.name))
}

/// `Key (a, b)=(1, 2)`.
fn shown(table: &TableDef, columns: &[ColumnId], values: &[Value]) -> Result<String> {
    let (mut names, mut texts) = (Vec::new(), Vec::new());
    for (id, value) in columns.iter().zip(values) {
        let column = column_of(table, *id)?;
        names.push(column.name.as_str());
        texts.push(value_text(column.sql_type, value));
    }
    Ok(format!("Key ({})=({})", names.join(", "), texts.join(", ")))
}

fn of_child(child: &TableDef, key: &ForeignKeyDef) -> Error {
    let message = format!(
        "insert or update on table \"{}\" violates foreign key constraint \"{}\"",
        child.name, key.name
    );
    violation(child, key, message)
}

/// A referencing row has no referenced one.
pub(super) fn not_present(
    child: &TableDef,
    key: &ForeignKeyDef,
    parent: &TableDef,
    values: &[Value],
) -> Result<Error> {
    let row = shown(child, &key.columns, values)?;
    let detail = format!("{row} is not present in table \"{}\".", parent.name);
    Ok(of_child(child, key).with_detail(detail))
}

/// MATCH FULL, and some of the values are NULL.
pub(super) fn mixed_nulls(child: &TableDef, key: &ForeignKeyDef) -> Error {
    of_child(child, key)
        .with_detail("MATCH FULL does not allow mixing of null and nonnull key values.")
}

/// A referenced row goes while others reference it.
pub(super) fn still_referenced(
    parent: &TableDef,
    key: &ForeignKeyDef,
    child: &TableDef,
    old: &[Value],
) -> Result<Error> {
    let message = format!(
        "update or delete on table \"{}\" violates foreign key constraint \"{}\" on table \"{}\"",
        parent.name, key.name, child.name
    );
    let row = shown(parent, &key.parent_columns, old)?;
    Ok(violation(child, key, message).with_detail(format!(
        "{row} is still referenced from table \"{}\".",
        child.name
    )))
}
