//! Names of constraints, which are distinct within a table.

use crate::parse::names;
use strandline_base::{Error, Result, SqlState};
use strandline_engine::catalog::TableDef;

/// Whether the table has a constraint called `name`.
pub fn is_constraint(table: &TableDef, name: &str) -> bool {
    table.keys.iter().any(|k| k.name == name)
        || table.checks.iter().any(|c| c.name == name)
        || table.foreign_keys.iter().any(|k| k.name == name)
}

/// The given name, if it is free, or `base` made free with a number.
pub fn constraint_name(table: &TableDef, given: Option<String>, base: &str) -> Result<String> {
    let taken = |name: &str| is_constraint(table, name);
    if let Some(name) = given {
        names::check(&name)?;
        if taken(&name) {
            return Err(Error::invalid(
                SqlState::DUPLICATE_OBJECT,
                format!(
                    "constraint \"{name}\" for relation \"{}\" already exists",
                    table.name
                ),
            ));
        }
        return Ok(name);
    }
    if !taken(base) {
        return Ok(base.to_string());
    }
    Ok((1..)
        .map(|n| format!("{base}{n}"))
        .find(|name| !taken(name))
        .expect("numbers do not end"))
}

/// The error for a missing constraint.
pub fn undefined_constraint(name: &str, table: &str) -> Error {
    Error::invalid(
        SqlState::UNDEFINED_OBJECT,
        format!("constraint \"{name}\" of relation \"{table}\" does not exist"),
    )
}
