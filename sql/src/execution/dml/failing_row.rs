//! Constraint errors in PostgreSQL's words, with the failing row.

use super::operation::{Constraint, Operation};
use datafusion::arrow::array::{ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::datatypes::UInt64Type;
use strandline_base::{Error, ErrorKind, RowId, SqlState};
use strandline_engine::Statement;
use strandline_engine::catalog::TableDef;
use strandline_semantics::text::write_value;

/// 23514 or 23502.
pub(super) fn violation(table: &TableDef, constraint: &Constraint) -> Error {
    let (state, subject, message) = match constraint {
        Constraint::Check(name) => (
            SqlState::CHECK_VIOLATION,
            table.constraint_subject(name),
            format!(
                "new row for relation \"{}\" violates check constraint \"{name}\"",
                table.name
            ),
        ),
        Constraint::NotNull(column) => (
            SqlState::NOT_NULL_VIOLATION,
            table.column_subject(column),
            format!(
                "null value in column \"{column}\" of relation \"{}\" violates not-null constraint",
                table.name
            ),
        ),
    };
    Error::new(ErrorKind::Constraint, state, message).with_subject(subject)
}

/// `Failing row contains (1, null, abc).` Columns that the statement does not compute are read from
/// the existing row. `None` if that row cannot be read.
pub(super) fn detail(
    operation: &Operation,
    statement: &Statement,
    batch: &RecordBatch,
    row: usize,
) -> Option<String> {
    let table = &operation.table;
    let layout = &operation.layout;
    let old = if layout.columns.iter().any(Option::is_none) {
        let ids = batch.column(layout.row_id?).as_primitive::<UInt64Type>();
        let columns: Vec<_> = table.columns.iter().map(|c| c.id).collect();
        let (_, found) = statement
            .fetch(table, &[RowId(ids.value(row))], &columns)
            .ok()?;
        (found.num_rows() == 1).then_some(found)?
    } else {
        RecordBatch::new_empty(batch.schema())
    };
    let shown: Vec<String> = layout
        .columns
        .iter()
        .enumerate()
        .map(|(position, index)| match index {
            Some(index) => shown(batch.column(*index), row),
            None => shown(old.column(position), 0),
        })
        .collect();
    Some(format!("Failing row contains ({}).", shown.join(", ")))
}

/// A value, cut after 64 characters.
fn shown(array: &ArrayRef, row: usize) -> String {
    match write_value(array, row) {
        Ok(Some(text)) => match text.char_indices().nth(64) {
            Some((end, _)) => format!("{}...", &text[..end]),
            None => text,
        },
        Ok(None) => "null".to_string(),
        Err(_) => "?".to_string(),
    }
}
