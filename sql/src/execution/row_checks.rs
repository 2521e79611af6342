//! CHECK constraints compiled for rows that do not come from SQL (point operations, bulk loads).

use super::row_values::not_null;
use crate::planning::expressions::{Role, analyze, compile, is_immutable, plan};
use crate::planning::provider::table_schema::{arrow_schema, condition_schema};
use datafusion::arrow::array::cast::AsArray;
use datafusion::arrow::array::{Array, RecordBatch};
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::arrow::temporal_conversions::timestamp_us_to_datetime;
use datafusion::execution::session_state::SessionState;
use datafusion::physical_expr::PhysicalExpr;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use strandline_base::{Error, ErrorKind, Result, SqlState, TableId, Value};
use strandline_column::types;
use strandline_engine::catalog::TableDef;
use strandline_semantics::error::convert;

/// The table definition of compiled conditions, and the conditions.
type Compiled = (Arc<TableDef>, Arc<CheckSet>);

/// The compiled conditions, by table.
#[derive(Default)]
pub(crate) struct RowChecks {
    compiled: Mutex<HashMap<TableId, Compiled>>,
}

impl RowChecks {
    /// The conditions of `table`; conditions that depend on the time are compiled at each call.
    pub(crate) fn of(
        &self,
        table: &Arc<TableDef>,
        state: &SessionState,
        now_us: u64,
    ) -> Result<Arc<CheckSet>> {
        if let Some((def, set)) = self.compiled.lock().get(&table.id)
            && Arc::ptr_eq(def, table)
        {
            return Ok(set.clone());
        }
        let mut state = state.clone();
        if let Some(now) = timestamp_us_to_datetime(now_us as i64) {
            state.execution_props_mut().query_execution_start_time = Some(now.and_utc());
        }
        let set = Arc::new(CheckSet::compile(table, &state)?);
        if !set.immutable {
            return Ok(set);
        }
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
    /// Whether the conditions are independent of the time.
    immutable: bool,
}

impl CheckSet {
    fn compile(table: &TableDef, state: &SessionState) -> Result<Self> {
        let schema = Arc::new(condition_schema(table)?);
        let mut conditions = Vec::with_capacity(table.checks.len());
        let mut immutable = true;
        for check in &table.checks {
            let planned = plan(&check.expression, &schema, state)?;
            let planned = analyze(planned, Role::Condition, &schema, state)?;
            immutable &= is_immutable(&planned)?;
            let condition = compile(planned, &schema, state).map_err(convert)?;
            conditions.push((check.name.clone(), condition));
        }
        Ok(Self {
            schema: arrow_schema(table),
            conditions,
            immutable,
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
                return Err(not_null(table, column));
            }
        }
        let batch = RecordBatch::try_new(self.schema.clone(), columns)
            .map_err(|error| Error::internal(format!("a row as a batch: {error}")))?;
        self.check_batch(table, &batch)
    }

    /// Checks all rows of a batch, whose columns are in the table's order. NULL passes, as in the
    /// standard.
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
                )
                .with_subject(table.constraint_subject(name)));
            }
        }
        Ok(())
    }
}
