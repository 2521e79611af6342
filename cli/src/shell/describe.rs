//! `\d` and its relatives: the catalog's objects in the snapshot of the session's transaction.

use super::interpreter::{Failure, Interpreter};
use super::related;
use crate::render::{self, Format, Style};
use crate::session::catalog::{Catalog, HistoryPolicy, KeyDef, TableDef, ViewDef};
use crate::session::{Error, SqlState};
use std::io::Write;
use std::time::Duration;

/// The schema whose relations can be named without their schema.
const DEFAULT_SCHEMA: &str = "public";

/// Lists tables and views of all schemas.
pub fn relations(shell: &mut Interpreter, tables: bool, views: bool) -> Result<(), Failure> {
    let catalog = shell.connection().catalog();
    let mut rows = Vec::new();
    if tables {
        for t in catalog.tables.values() {
            rows.push(relation_row(
                &t.schema,
                &t.name,
                "table",
                t.comment.as_deref(),
            ));
        }
    }
    if views {
        for v in &catalog.views {
            rows.push(relation_row(
                &v.schema,
                &v.name,
                "view",
                v.comment.as_deref(),
            ));
        }
    }
    rows.sort();
    if rows.is_empty() && shell.style.format == Format::Table {
        let kinds = if tables && views {
            "tables or views"
        } else if tables {
            "tables"
        } else {
            "views"
        };
        writeln!(shell.writer(), "There are no {kinds}.")?;
        return Ok(());
    }
    print(
        shell,
        Some("Relations"),
        &["Schema", "Name", "Type", "Comment"],
        &rows,
    )
}

fn relation_row(schema: &str, name: &str, kind: &str, comment: Option<&str>) -> Vec<String> {
    vec![
        schema.into(),
        name.into(),
        kind.into(),
        comment.unwrap_or_default().into(),
    ]
}

/// Lists indexes of all schemas.
pub fn indexes(shell: &mut Interpreter) -> Result<(), Failure> {
    let rows = related::all_indexes(shell)?;
    if rows.is_empty() && shell.style.format == Format::Table {
        writeln!(shell.writer(), "There are no indexes.")?;
        return Ok(());
    }
    let columns = ["Schema", "Name", "Table", "Definition"];
    print(shell, Some("Indexes"), &columns, &rows)
}

/// Lists schemas.
pub fn schemas(shell: &mut Interpreter) -> Result<(), Failure> {
    let catalog = shell.connection().catalog();
    let row = |(name, comment): (&String, &Option<String>)| {
        vec![name.clone(), comment.clone().unwrap_or_default()]
    };
    let rows: Vec<_> = catalog.schemas.iter().map(row).collect();
    print(shell, Some("Schemas"), &["Name", "Comment"], &rows)
}

/// Prints the database's location and its number of tables.
pub fn database(shell: &mut Interpreter) -> Result<(), Failure> {
    let place = shell.database().location().to_string();
    let tables = shell.connection().catalog().tables.len();
    writeln!(
        shell.writer(),
        "The database is {place}; it has {tables} tables."
    )?;
    Ok(())
}

/// Describes a table or view.
pub fn relation(shell: &mut Interpreter, name: &str) -> Result<(), Failure> {
    let catalog = shell.connection().catalog();
    let (schema, relation) = split_name(name);
    let schema = schema.unwrap_or_else(|| DEFAULT_SCHEMA.to_string());
    if let Some(table) = catalog.table(&schema, &relation) {
        return describe_table(shell, table);
    }
    if let Some(view) = catalog.view(&schema, &relation) {
        return describe_view(shell, view);
    }
    Err(not_found(&catalog, name, &relation).into())
}

/// `schema.name` as SQL reads it: folded to lower case unless quoted.
fn split_name(text: &str) -> (Option<String>, String) {
    let mut parts = vec![String::new()];
    let mut quoted = false;
    for c in text.chars() {
        let last = parts.last_mut().expect("there is always a part");
        match c {
            '"' => quoted = !quoted,
            '.' if !quoted => parts.push(String::new()),
            c if quoted => last.push(c),
            c => last.extend(c.to_lowercase()),
        }
    }
    let relation = parts.pop().expect("there is always a part");
    (parts.pop(), relation)
}

fn not_found(catalog: &Catalog, name: &str, relation: &str) -> Error {
    let message = format!("there is no table or view {name}");
    let error = Error::invalid(SqlState::UNDEFINED_TABLE, message);
    let elsewhere = catalog.tables.values().find(|t| t.name == relation);
    match elsewhere {
        Some(table) => error.with_hint(format!("there is {}.{}", table.schema, table.name)),
        None => error.with_hint("\\d lists them all."),
    }
}

fn describe_table(shell: &mut Interpreter, table: &TableDef) -> Result<(), Failure> {
    let related = related::of_table(shell, &table.schema, &table.name)?;
    let rows: Vec<_> = table
        .columns
        .iter()
        .map(|column| {
            let default = match (&column.identity, &column.default) {
                (Some(identity), _) if identity.always => "generated always as identity".into(),
                (Some(_), _) => "generated by default as identity".into(),
                (None, Some(expression)) => expression.clone(),
                (None, None) => String::new(),
            };
            let nullable = if column.not_null { "not null" } else { "" };
            let comment = column.comment.clone().unwrap_or_default();
            vec![
                column.name.clone(),
                column.sql_type.to_string(),
                nullable.into(),
                default,
                comment,
            ]
        })
        .collect();
    let title = format!("Table \"{}.{}\"", table.schema, table.name);
    let columns = ["Column", "Type", "Nullable", "Default", "Comment"];
    print_without_count(shell, &title, &columns, &rows)?;
    if shell.style.format != Format::Table {
        return Ok(());
    }
    let mut out = shell.writer();
    if !table.keys.is_empty() {
        writeln!(out, "Keys:")?;
        for key in &table.keys {
            writeln!(out, "    {}", key_text(table, key))?;
        }
    }
    if !table.checks.is_empty() {
        writeln!(out, "Check constraints:")?;
        for check in &table.checks {
            writeln!(out, "    \"{}\" CHECK ({})", check.name, check.expression)?;
        }
    }
    for (heading, lines) in related {
        writeln!(out, "{heading}")?;
        for line in lines {
            writeln!(out, "    {}", render::printable(&line))?;
        }
    }
    writeln!(out, "History: {}", history_text(table.history))?;
    if let Some(comment) = &table.comment {
        writeln!(out, "Comment: {}", render::printable(comment))?;
    }
    writeln!(out)?;
    Ok(())
}

fn key_text(table: &TableDef, key: &KeyDef) -> String {
    let columns: Vec<&str> = key
        .columns
        .iter()
        .filter_map(|id| table.column_by_id(*id))
        .map(|column| column.name.as_str())
        .collect();
    let kind = if key.primary { "PRIMARY KEY" } else { "UNIQUE" };
    format!("\"{}\" {kind} ({})", key.name, columns.join(", "))
}

fn history_text(policy: HistoryPolicy) -> String {
    match policy {
        HistoryPolicy::Forever => "forever".to_string(),
        HistoryPolicy::None => "none".to_string(),
        HistoryPolicy::For(micros) => duration_text(Duration::from_micros(micros)),
    }
}

/// `24 hours`, `7 days`, `1.5 seconds`.
fn duration_text(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let units = [
        (86_400, "day"),
        (3_600, "hour"),
        (60, "minute"),
        (1, "second"),
    ];
    if duration.subsec_nanos() == 0 {
        for (length, unit) in units {
            if seconds.is_multiple_of(length)
                && seconds / length > 0
                && (length != 86_400 || seconds > length)
            {
                let count = seconds / length;
                return format!("{count} {unit}{}", if count == 1 { "" } else { "s" });
            }
        }
    }
    format!("{} seconds", duration.as_secs_f64())
}

fn describe_view(shell: &mut Interpreter, view: &ViewDef) -> Result<(), Failure> {
    let mut out = shell.writer();
    writeln!(out, "View \"{}.{}\"", view.schema, view.name)?;
    if !view.columns.is_empty() {
        writeln!(out, "Columns: {}", view.columns.join(", "))?;
    }
    writeln!(out, "{}", render::printable(&view.query))?;
    if let Some(comment) = &view.comment {
        writeln!(out, "Comment: {}", render::printable(comment))?;
    }
    writeln!(out)?;
    Ok(())
}

fn print(
    shell: &mut Interpreter,
    title: Option<&str>,
    columns: &[&str],
    rows: &[Vec<String>],
) -> Result<(), Failure> {
    let style = shell.effective_style();
    render::print_text(title, columns, &[], rows, &style, &mut *shell.writer())?;
    Ok(())
}

/// Prints a table without its row count, since more lines follow it.
fn print_without_count(
    shell: &mut Interpreter,
    title: &str,
    columns: &[&str],
    rows: &[Vec<String>],
) -> Result<(), Failure> {
    let style = Style {
        row_count: false,
        ..shell.effective_style()
    };
    render::print_text(
        Some(title),
        columns,
        &[],
        rows,
        &style,
        &mut *shell.writer(),
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fold_like_sql() {
        assert_eq!(split_name("Orders"), (None, "orders".into()));
        assert_eq!(split_name("S.\"T.x\""), (Some("s".into()), "T.x".into()));
    }

    #[test]
    fn durations() {
        let texts = [86_400, 604_800, 60, 1, 90].map(|s| duration_text(Duration::from_secs(s)));
        assert_eq!(
            texts,
            ["24 hours", "7 days", "1 minute", "1 second", "90 seconds"]
        );
        assert_eq!(duration_text(Duration::from_millis(1_500)), "1.5 seconds");
        assert_eq!(duration_text(Duration::ZERO), "0 seconds");
    }
}
