//! Immutable expressions over one table's columns, for indexes: whether an expression is one, and
//! the evaluators that the engine asks for.

use crate::parse;
use datafusion::arrow::array::{ArrayRef, RecordBatch};
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{DFSchema, DFSchemaRef};
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::{
    EmptyRelation, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Volatility,
};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::sql::sqlparser::ast::ExprWithAlias;
use std::sync::{Arc, LazyLock};
use strandline_base::{Error, Result, SqlType, Value};
use strandline_column::types;
use strandline_engine::expressions::{RowExpression, RowExpressions};
use strandline_semantics as semantics;
use strandline_semantics::cast::{Mode, cast_array};
use strandline_semantics::error::convert;

/// `expr` over `schema` as DataFusion's analyzer leaves it: types agree, our casts are in place.
pub(crate) fn analyze(expr: Expr, schema: &DFSchemaRef, state: &SessionState) -> Result<Expr> {
    let nothing = LogicalPlan::EmptyRelation(EmptyRelation {
        produce_one_row: false,
        schema: schema.clone(),
    });
    let plan = LogicalPlanBuilder::from(nothing)
        .project(vec![expr])
        .and_then(LogicalPlanBuilder::build)
        .and_then(|plan| {
            state
                .analyzer()
                .execute_and_check(plan, state.config_options(), |_, _| {})
        })
        .map_err(convert)?;
    match plan {
        LogicalPlan::Projection(mut projection) if projection.expr.len() == 1 => {
            Ok(projection.expr.remove(0).unalias_nested().data)
        }
        other => Err(Error::internal(format!("an expression became {other}"))),
    }
}

/// Whether it gives the same value for the same row at any time.
pub(crate) fn is_immutable(expr: &Expr) -> Result<bool> {
    let changing = expr.exists(|e| {
        Ok(match e {
            Expr::ScalarFunction(call) => call.func.signature().volatility != Volatility::Immutable,
            _ => false,
        })
    });
    changing.map(|changing| !changing).map_err(convert)
}

/// Makes evaluators of the expressions of a database's indexes.
#[derive(Debug)]
pub(crate) struct SqlExpressions {
    /// made at the first expression
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
        let field = |(name, sql_type): &(&str, SqlType)| {
            Field::new(*name, types::arrow_type(*sql_type), true)
        };
        let schema = Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()));
        let names = Arc::new(DFSchema::try_from(schema.clone()).map_err(convert)?);
        let mut parsed = parse::expression(sql)?;
        semantics::sql::normalize(&mut parsed)?;
        let parsed = ExprWithAlias {
            expr: parsed,
            alias: None,
        };
        let planned = self
            .state
            .create_logical_expr_from_sql_expr(parsed, &names)
            .map_err(convert)?;
        let analyzed = analyze(planned, &names, &self.state)?;
        let expression = super::row_checks::compile(analyzed, &names, &self.state);
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

/// The type of an analyzed expression.
pub(crate) fn type_of(expr: &Expr, schema: &DFSchema) -> Result<SqlType> {
    let found = expr.get_type(schema).map_err(convert)?;
    match found.is_null() {
        // A condition that is NULL is true of no row.
        true => Ok(SqlType::Boolean),
        false => crate::values::value::sql_type_of(&found),
    }
}
