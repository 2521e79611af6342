//! Names in SQL text: unquoted identifiers fold to lower case, quoted ones do not. As in PostgreSQL
//! only ASCII letters fold. A table's name
//! is `[database.]schema.table`, or a bare name in the default schema.

use datafusion::sql::sqlparser::ast::Expr;
use datafusion::sql::sqlparser::ast::{Ident, ObjectName, ObjectNamePart};
use strandline_base::{Error, Result, SqlState};
use strandline_semantics::sql::walk::any_expression;

/// The name of the one database, DataFusion's catalog.
pub const DATABASE: &str = "strandline";
/// The schema that always exists.
pub const PUBLIC: &str = "public";
/// The longest name accepted, in bytes.
pub const MAX_NAME_BYTES: usize = 255;
/// The hidden column that holds a row's id.
pub const ROW_ID: &str = "_rowid";
/// The hidden column that holds the oid of a row's table.
pub const TABLE_OID: &str = "tableoid";

/// The name of an identifier.
pub fn fold(ident: &Ident) -> String {
    match ident.quote_style {
        Some(_) => ident.value.clone(),
        None => ident.value.to_ascii_lowercase(),
    }
}

/// Whether an expression is the column `name`, with or without a qualifier.
pub fn is_column(expr: &Expr, name: &str) -> bool {
    let last = match expr {
        Expr::Identifier(ident) => ident,
        Expr::CompoundIdentifier(parts) => match parts.last() {
            Some(last) => last,
            None => return false,
        },
        _ => return false,
    };
    match last.quote_style {
        Some(_) => last.value == name,
        None => last.value.eq_ignore_ascii_case(name),
    }
}

/// `name` in SQL text, quoted where folding or syntax would change it.
pub fn quote(name: &str) -> String {
    let plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        && !is_reserved(name);
    if plain {
        name.to_string()
    } else {
        format!("\"{}\"", name.replace('"', "\"\""))
    }
}

/// An identifier that means `name` in any spelling.
pub fn ident(name: &str) -> Ident {
    Ident::with_quote('"', name)
}

fn is_reserved(name: &str) -> bool {
    use datafusion::sql::sqlparser::keywords as k;
    k::ALL_KEYWORDS
        .binary_search(&name.to_uppercase().as_str())
        .is_ok_and(|i| {
            let keyword = k::ALL_KEYWORDS_INDEX[i];
            k::RESERVED_FOR_IDENTIFIER.contains(&keyword)
                || k::RESERVED_FOR_COLUMN_ALIAS.contains(&keyword)
                || k::RESERVED_FOR_TABLE_ALIAS.contains(&keyword)
        })
}

/// The parts of an object's name, folded.
pub fn parts(name: &ObjectName) -> Result<Vec<String>> {
    name.0
        .iter()
        .map(|part| match part {
            ObjectNamePart::Identifier(ident) => Ok(fold(ident)),
            ObjectNamePart::Function(_) => Err(Error::invalid(
                SqlState::SYNTAX_ERROR,
                format!("\"{name}\" is not a name"),
            )),
        })
        .collect()
}

/// (schema, name) of a table, view or other object in a schema.
pub fn qualified(name: &ObjectName, default_schema: &str) -> Result<(String, String)> {
    let mut parts = parts(name)?;
    let last = parts.pop().unwrap_or_default();
    check(&last)?;
    match parts.as_slice() {
        [] => Ok((default_schema.to_string(), last)),
        [schema] => Ok((schema.clone(), last)),
        [database, schema] if database == DATABASE => Ok((schema.clone(), last)),
        [_, _] => Err(Error::unsupported(format!(
            "cross-database references are not implemented: {name}"
        ))),
        _ => Err(Error::invalid(
            SqlState::SYNTAX_ERROR,
            format!("improper qualified name (too many dotted names): {name}"),
        )),
    }
}

/// The only part of an unqualified name, such as a savepoint's or a schema's.
pub fn single(name: &ObjectName) -> Result<String> {
    match parts(name)?.as_slice() {
        [one] => Ok(one.clone()),
        _ => Err(Error::invalid(
            SqlState::SYNTAX_ERROR,
            format!("\"{name}\" must not be qualified"),
        )),
    }
}

/// Refuses names that are empty, too long, or reserved for the system.
pub fn check(name: &str) -> Result<()> {
    if name.is_empty() {
        return Err(Error::invalid(
            SqlState::SYNTAX_ERROR,
            "a name must not be empty",
        ));
    }
    if name.len() > MAX_NAME_BYTES {
        let start: String = name.chars().take(20).collect();
        return Err(Error::invalid(
            SqlState("42622"),
            format!("name \"{start}…\" is longer than {MAX_NAME_BYTES} bytes"),
        ));
    }
    if name.contains('\0') {
        return Err(Error::invalid(
            SqlState::SYNTAX_ERROR,
            "a name must not contain a zero byte",
        ));
    }
    Ok(())
}

/// Refuses the names that [`check`] refuses, and the names of hidden columns.
pub fn check_column(name: &str) -> Result<()> {
    check(name)?;
    if [ROW_ID, TABLE_OID].contains(&name) {
        return Err(Error::invalid(
            SqlState::DUPLICATE_COLUMN,
            format!("column name \"{name}\" conflicts with a system column name"),
        )
        .with_hint("Choose another name."));
    }
    Ok(())
}

/// The error for a missing table.
pub fn undefined_table(schema: &str, name: &str) -> Error {
    let shown = if schema == PUBLIC {
        name.to_string()
    } else {
        format!("{schema}.{name}")
    };
    Error::invalid(
        SqlState::UNDEFINED_TABLE,
        format!("relation \"{shown}\" does not exist"),
    )
}

/// The error for a missing schema.
pub fn undefined_schema(schema: &str) -> Error {
    Error::invalid(
        SqlState::INVALID_SCHEMA_NAME,
        format!("schema \"{schema}\" does not exist"),
    )
}

/// Whether a stored condition uses the column.
pub(crate) fn mentions(expr: &Expr, column: &str) -> bool {
    any_expression(expr, |e| match e {
        Expr::Identifier(ident) => fold(ident) == column,
        Expr::CompoundIdentifier(parts) => parts.last().is_some_and(|last| fold(last) == column),
        _ => false,
    })
}
