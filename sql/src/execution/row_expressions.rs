//! The evaluators of indexes' expressions and predicates, for the engine.

use crate::planning::expressions::{Role, analyze, compile, plan};
use crate::planning::provider::table_schema::arrow_field;
use datafusion::arrow::array::{ArrayRef, RecordBatch};
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::DFSchema;
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::physical_expr::PhysicalExpr;
use std::sync::{Arc, LazyLock};
use strandline_base::{Error, Result, SqlType, Value};
use strandline_column::types;
use strandline_engine::expressions::{RowExpression, RowExpressions};
use strandline_semantics as semantics;
use strandline_semantics::cast::{Mode, cast_array};
use strandline_semantics::error::convert;

/// Makes the evaluators of a database's index expressions.
#[derive(Debug)]
pub(crate) struct SqlExpressions {
    /// made for the first expression
    state: LazyLock<SessionState>,
}

impl SqlExpressions {
    pub(crate) fn new() -> Arc<Self> {
        let make = || {
            let builder = SessionStateBuilder::new().with_config(semantics::session_config());
            semantics::configure(builder).build()
        };
        Arc::new(Self {
            state: LazyLock::new(make),
        })
    }
}

impl RowExpressions for SqlExpressions {
    fn compile(
        &self,
        sql: &str,
        columns: &[(&str, SqlType)],
        result: SqlType,
    ) -> Result<Arc<dyn RowExpression>> {
        let field = |(name, sql_type): &(&str, SqlType)| arrow_field(name, *sql_type, true);
        let schema = Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()));
        let names = Arc::new(DFSchema::try_from(schema.clone()).map_err(convert)?);
        let planned = plan(sql, &names, &self.state)?;
        let analyzed = analyze(planned, Role::Value, &names, &self.state)?;
        let expression = compile(analyzed, &names, &self.state);
        Ok(Arc::new(Compiled {
            expression: expression.map_err(convert)?,
            schema,
            types: columns.iter().map(|(_, sql_type)| *sql_type).collect(),
            result,
        }))
    }
}

/// A physical expression over the columns that it reads.
struct Compiled {
    expression: Arc<dyn PhysicalExpr>,
    schema: SchemaRef,
    types: Vec<SqlType>,
    result: SqlType,
}

impl RowExpression for Compiled {
    fn evaluate(&self, columns: &RecordBatch) -> Result<ArrayRef> {
        let rows = columns.num_rows();
        let value = self.expression.evaluate(columns).map_err(convert)?;
        let array = value.into_array(rows).map_err(convert)?;
        if array.data_type() == &types::arrow_type(self.result) {
            return Ok(array);
        }
        cast_array(&array, self.result, Mode::Assignment).map_err(convert)
    }

    fn evaluate_row(&self, columns: &[Value]) -> Result<Value> {
        let arrays = self.types.iter().zip(columns);
        let arrays = arrays.map(|(t, value)| types::array_of(*t, std::slice::from_ref(value)));
        let arrays = arrays.collect::<Result<Vec<_>>>()?;
        let options = datafusion::arrow::array::RecordBatchOptions::new().with_row_count(Some(1));
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options)
            .map_err(|error| Error::internal(format!("a row as a batch: {error}")))?;
        let array = self.evaluate(&batch)?;
        Ok(types::value_at(self.result, &array, 0))
    }
}
