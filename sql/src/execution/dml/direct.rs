//! INSERT … VALUES with only literals, without a plan: the rows are built and inserted at once.
//!
//! The result is the same as with a plan. A statement with computed cells, CHECK, ON CONFLICT,
//! RETURNING, or DEFAULTs that are not literals takes the plan.

use super::apply::Applier;
use super::defaults;
use super::insert::{columns_for, listed_columns, takes_value, target_of};
use super::operation::{Action, Layout, Operation, Repeated};
use super::target::Target;
use super::values::{self, Values, ValuesItem};
use crate::parse::dml_spellings::{Overriding, overriding};
use crate::parse::long_values;
use crate::planning::context::StatementContext;
use crate::runtime::blocking::in_place;
use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{Field, Schema};
use datafusion::sql::sqlparser::ast;
use std::sync::Arc;
use strandline_base::Result;
use strandline_engine::catalog::ColumnDef;
use strandline_semantics::column_builder::ColumnBuilder;
use strandline_semantics::error::from_arrow;

/// Whether the form of an INSERT permits it to run without a plan.
pub(crate) fn may_be_direct(insert: &ast::Insert) -> bool {
    let source = insert.source.as_deref();
    let is_rows = source.is_none_or(|query| long_values::plain_rows(query).is_some());
    is_rows && insert.on.is_none() && insert.returning.is_none()
}

/// The number of rows inserted; `None` if the statement needs a plan.
pub(super) fn execute(context: &StatementContext, insert: &ast::Insert) -> Result<Option<u64>> {
    if !may_be_direct(insert) {
        return Ok(None);
    }
    let target = target_of(context, insert)?;
    if target.table.columns.is_empty() || !target.table.checks.is_empty() {
        return Ok(None);
    }
    let overriding = overriding(insert)?;
    let Some((rows, given)) = given_columns(&target, insert, overriding)? else {
        return Ok(None);
    };
    let Some(batch) = full_rows(context, &target, rows, given)? else {
        return Ok(None);
    };
    let operation = Operation {
        tag: "INSERT",
        actions: vec![Action::Insert],
        repeated: Repeated::Skipped,
        arbiters: Vec::new(),
        layout: Layout {
            columns: (0..target.table.columns.len()).map(Some).collect(),
            ..Layout::default()
        },
        table: target.table,
    };
    let mut applier = Applier::new(
        Arc::new(operation),
        context.statement.clone(),
        Arc::default(),
    );
    in_place(|| {
        applier.apply(&batch)?;
        applier.finish()
    })?;
    Ok(Some(rows as u64))
}

/// The number of rows, and per column of the table its literals.
fn given_columns(
    target: &Target,
    insert: &ast::Insert,
    overriding: Option<Overriding>,
) -> Result<Option<(usize, Vec<Option<ArrayRef>>)>> {
    let mut given = vec![None; target.table.columns.len()];
    let Some(query) = &insert.source else {
        return Ok(Some((1, given)));
    };
    let Some(rows) = long_values::plain_rows(query) else {
        return Ok(None);
    };
    let listed = listed_columns(target, &insert.columns)?;
    let columns_for = |width| columns_for(target, listed, width);
    let (values, columns) = Values::read(target, rows, columns_for)?;
    let rows = values.rows();
    let Some(literals) = values.into_literals()? else {
        return Ok(None);
    };
    for (position, literal) in columns.into_iter().zip(literals) {
        let column = &target.table.columns[position];
        if takes_value(column, overriding, literal.is_none())? {
            given[position] = literal;
        }
    }
    Ok(Some((rows, given)))
}

/// The rows, with DEFAULTs and identity values in the missing columns.
fn full_rows(
    context: &StatementContext,
    target: &Target,
    rows: usize,
    given: Vec<Option<ArrayRef>>,
) -> Result<Option<RecordBatch>> {
    let table = &target.table;
    let written = context.defaults(table)?;
    let mut arrays = Vec::with_capacity(given.len());
    let is_missing = |p: usize| given[p].is_none() && table.columns[p].identity.is_none();
    let mut constants = vec![None; given.len()];
    for (position, column) in table.columns.iter().enumerate() {
        if is_missing(position) {
            let Some(constant) = constant(written[position].as_ref(), column, rows)? else {
                return Ok(None);
            };
            constants[position] = Some(constant);
        }
    }
    // Identity values are drawn last, when the statement can no longer need a plan.
    for (position, column) in table.columns.iter().enumerate() {
        let known = given[position]
            .clone()
            .or_else(|| constants[position].take());
        arrays.push(match known {
            Some(array) => array,
            None => defaults::identity_values(&context.statement, table, column, rows)?,
        });
    }
    let fields: Vec<Field> = table
        .columns
        .iter()
        .zip(&arrays)
        .map(|(column, array)| Field::new(&column.name, array.data_type().clone(), true))
        .collect();
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options)
        .map(Some)
        .map_err(|e| from_arrow(&e))
}

/// A DEFAULT repeated in `rows` rows; `None` if it is not a literal.
fn constant(
    default: Option<&ast::Expr>,
    column: &ColumnDef,
    rows: usize,
) -> Result<Option<ArrayRef>> {
    let cell = match default {
        None => ValuesItem::Null,
        Some(expr) => values::literal(expr, column)?,
    };
    let mut builder = ColumnBuilder::new(column.sql_type);
    for _ in 0..rows {
        match &cell {
            ValuesItem::Null => builder.push_null(),
            ValuesItem::Text(text) => builder.push(text)?,
            ValuesItem::Default | ValuesItem::Computed(_) => return Ok(None),
        }
    }
    Ok(Some(builder.finish()))
}
