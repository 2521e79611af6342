//! One statement for many rows of parameters, all or nothing.
//!
//! `INSERT INTO t (…) VALUES ($1, $2, …)` is loaded in bulk, as by an appender: constraints are
//! checked, and columns that are not listed get identity values or NULL. An INSERT with DEFAULTs,
//! computed values, ON CONFLICT, RETURNING or values for identity columns, and every other
//! statement, runs once per row.

use crate::api::appender::Appender;
use crate::api::rows::TableHandle;
use crate::backends::activity::TransactionStatus;
use crate::parse::names;
use crate::session::Session;
use crate::session::outcome::Output;
use crate::session::prepared::PreparedStatement;
use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use datafusion::arrow::datatypes::{Field, Schema};
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::{self, Expr, Statement as Parsed, Value as Literal};
use std::sync::Arc;
use strandline_base::Result;
use strandline_semantics::error::convert;

/// Runs `sql` for each row of `rows`, whose columns are `$1`, `$2`, …, as one transaction or as
/// part of the open block. Returns the number of affected rows.
pub(crate) fn run(session: &mut Session, sql: &str, rows: &RecordBatch) -> Result<u64> {
    let prepared = session.prepare_plain(sql)?;
    if let Some(load) = Load::of(session, &prepared.statement, rows)? {
        return load.run(session, rows);
    }
    let shared = session.shared.clone();
    shared.block_on(async {
        if session.transaction_status() != TransactionStatus::Idle {
            return each_row(session, &prepared, rows).await;
        }
        session.run_text("BEGIN", &[]).await?;
        let affected = each_row(session, &prepared, rows).await;
        let end = match affected {
            Ok(_) => "COMMIT",
            Err(_) => "ROLLBACK",
        };
        session.run_text(end, &[]).await?;
        affected
    })
}

async fn each_row(
    session: &mut Session,
    prepared: &PreparedStatement,
    rows: &RecordBatch,
) -> Result<u64> {
    let mut affected = 0;
    let mut params = Vec::with_capacity(rows.num_columns());
    for row in 0..rows.num_rows() {
        params.clear();
        for column in rows.columns() {
            params.push(ScalarValue::try_from_array(column, row).map_err(convert)?);
        }
        affected += match session.run_prepared(prepared, &params).await? {
            Output::Done(summary) => summary.rows_affected(),
            Output::Row(row) => row.row_count() as u64,
            Output::Batch(result) => result.row_count() as u64,
            Output::Rows(query) => session.count(query).await?,
        };
    }
    Ok(affected)
}

/// An INSERT that can be loaded in bulk.
struct Load {
    table: TableHandle,
    name: String,
    /// per column of the table its parameter, from 0; None: not listed
    parameters: Vec<Option<usize>>,
}

impl Load {
    fn of(session: &Session, statement: &Parsed, rows: &RecordBatch) -> Result<Option<Self>> {
        let Some((name, listed, cells)) = plain_insert(statement) else {
            return Ok(None);
        };
        let name = name.to_string();
        let Ok(table) = TableHandle::find(session, &name) else {
            return Ok(None);
        };
        let columns = &table.definition().columns;
        let mut parameters = vec![None; columns.len()];
        for (at, parameter) in cells.iter().enumerate() {
            let position = match listed.is_empty() {
                true => Some(at),
                false => position(table.definition(), &listed[at]),
            };
            let taken = position.and_then(|position| parameters.get_mut(position));
            match taken {
                Some(slot @ None) if *parameter < rows.num_columns() => *slot = Some(*parameter),
                _ => return Ok(None),
            }
        }
        let is_simple =
            columns
                .iter()
                .zip(&parameters)
                .all(|(column, parameter)| match parameter {
                    Some(_) => column.identity.is_none(),
                    None => column.default.is_none(),
                });
        let used = parameters.iter().flatten().count();
        Ok((is_simple && used == rows.num_columns()).then_some(Self {
            table,
            name,
            parameters,
        }))
    }

    fn run(&self, session: &mut Session, rows: &RecordBatch) -> Result<u64> {
        let mut appender = Appender::begin(session, &self.name)?;
        let definition = self.table.definition();
        let mut fields = Vec::with_capacity(self.parameters.len());
        let mut arrays: Vec<ArrayRef> = Vec::with_capacity(self.parameters.len());
        for (position, parameter) in self.parameters.iter().enumerate() {
            let array = match parameter {
                Some(parameter) => rows.column(*parameter).clone(),
                None => {
                    let field = appender.schema().field(position);
                    new_null_array(field.data_type(), rows.num_rows())
                }
            };
            let name = &definition.columns[position].name;
            fields.push(Field::new(name, array.data_type().clone(), true));
            arrays.push(array);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        let schema = Arc::new(Schema::new(fields));
        let batch = RecordBatch::try_new_with_options(schema, arrays, &options)
            .map_err(|error| strandline_semantics::error::from_arrow(&error))?;
        appender.append_batch(&batch)?;
        appender.finish()
    }
}

fn position(table: &strandline_engine::catalog::TableDef, name: &ast::ObjectName) -> Option<usize> {
    let name = names::single(name).ok()?;
    table.columns.iter().position(|column| column.name == name)
}

/// Target, listed columns and parameters (from 0) of `INSERT INTO t (…) VALUES ($1, …)`.
fn plain_insert(statement: &Parsed) -> Option<(&ast::ObjectName, &[ast::ObjectName], Vec<usize>)> {
    let Parsed::Insert(insert) = statement else {
        return None;
    };
    let ast::TableObject::TableName(name) = &insert.table else {
        return None;
    };
    let cells = crate::execution::dml::plain_row(insert)?;
    let parameters = cells.iter().map(parameter).collect::<Option<Vec<_>>>()?;
    let fits = insert.columns.is_empty() || insert.columns.len() == parameters.len();
    fits.then_some((name, insert.columns.as_slice(), parameters))
}

fn parameter(cell: &Expr) -> Option<usize> {
    let Expr::Value(value) = cell else {
        return None;
    };
    let Literal::Placeholder(name) = &value.value else {
        return None;
    };
    let number: usize = name.strip_prefix('$')?.parse().ok()?;
    number.checked_sub(1)
}
