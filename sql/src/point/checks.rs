//! CHECK constraints compiled for rows that come without SQL (point operations, bulk loads).

use crate::ddl::constraint::condition_schema;
use crate::error::convert;
use crate::parse;
use crate::provider::table::arrow_schema;
use datafusion::arrow::array::cast::AsArray;
use datafusion::arrow::array::{Array, RecordBatch};
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::execution::session_state::SessionState;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::sql::sqlparser::ast::ExprWithAlias;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use strandline_base::{Error, ErrorKind, Result, SqlState, TableId, Value};
use strandline_engine::catalog::TableDef;
use strandline_engine::types;

/// The compiled conditions of the tables that were asked for.
#[derive(Default)]
pub(crate) struct PointChecks {
    compiled: Mutex<HashMap<TableId, (Arc<TableDef>, Arc<CheckSet>)>>,
}

impl PointChecks {
    /// The conditions of `table`.
    pub(crate) fn of(&self, table: &Arc<TableDef>, state: &SessionState) -> Result<Arc<CheckSet>> {
        if let Some((def, set)) = self.compiled.lock().get(&table.id)
            && Arc::ptr_eq(def, table)
        {
            return Ok(set.clone());
        }
        let set = Arc::new(CheckSet::compile(table, state)?);
        self.compiled
            .lock()
            .insert(table.id, (table.clone(), set.clone()));
        Ok(set)
    }
}

/// The conditions of one definition of a table.
pub(crate) struct CheckSet {
    schema: SchemaRef,
    conditions: Vec<(String, Arc<dyn PhysicalExpr>)>,
}

impl CheckSet {
    fn compile(table: &TableDef, state: &SessionState) -> Result<Self> {
        let schema = condition_schema(table)?;
        let mut conditions = Vec::with_capacity(table.checks.len());
        for check in &table.checks {
            let expr = ExprWithAlias {
                expr: parse::expression(&check.expression)?,
                alias: None,
            };
            let planned = state
                .create_logical_expr_from_sql_expr(expr, &schema)
                .map_err(convert)?;
            let condition = state
                .create_physical_expr(planned, &schema)
                .map_err(convert)?;
            conditions.push((check.name.clone(), condition));
        }
        Ok(Self {
            schema: arrow_schema(table),
            conditions,
        })
    }

    /// Checks one row, its values in column order.
    pub(crate) fn check_row(&self, table: &TableDef, row: &[Value]) -> Result<()> {
        let columns = table
            .columns
            .iter()
            .zip(row)
            .map(|(column, value)| types::array_of(column.sql_type, std::slice::from_ref(value)))
            .collect::<Result<Vec<_>>>()?;
        for (column, value) in table.columns.iter().zip(row) {
            if column.not_null && value.is_null() {
                return Err(super::not_null(table, column));
            }
        }
        let batch = RecordBatch::try_new(self.schema.clone(), columns)
            .map_err(|error| Error::internal(format!("a row as a batch: {error}")))?;
        self.check_batch(table, &batch)
    }

    /// Checks all rows of a batch, its columns in order. NULL passes, as in the standard.
    pub(crate) fn check_batch(&self, table: &TableDef, batch: &RecordBatch) -> Result<()> {
        for (name, condition) in &self.conditions {
            let value = condition.evaluate(batch).map_err(convert)?;
            let result = value.into_array(batch.num_rows()).map_err(convert)?;
            if result.data_type() == &DataType::Null {
                continue;
            }
            let passed = result.as_boolean();
            if passed.false_count() > 0 {
                return Err(Error::new(
                    ErrorKind::Constraint,
                    SqlState::CHECK_VIOLATION,
                    format!(
                        "new row for relation \"{}\" violates check constraint \"{name}\"",
                        table.name
                    ),
                ));
            }
        }
        Ok(())
    }
}
