//! SQL expressions over one table's columns, outside any query: from text to evaluator.

use crate::parse;
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{DFSchema, DFSchemaRef};
use datafusion::error::DataFusionError;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{
    EmptyRelation, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Volatility,
};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::physical_expr::{PhysicalExpr, create_physical_expr};
use datafusion::sql::sqlparser::ast::{self, ExprWithAlias};
use std::sync::Arc;
use strandline_base::{Error, Result, SqlType};
use strandline_semantics as semantics;
use strandline_semantics::error::convert;

/// The role of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// an expression for its value
    Value,
    /// a predicate that selects rows
    Condition,
}

/// The expression `text` with its names resolved over `schema`.
pub(crate) fn plan(text: &str, schema: &DFSchema, state: &SessionState) -> Result<Expr> {
    plan_parsed(parse::expression(text)?, schema, state)
}

/// A parsed expression with its names resolved over `schema`.
pub(crate) fn plan_parsed(
    mut parsed: ast::Expr,
    schema: &DFSchema,
    state: &SessionState,
) -> Result<Expr> {
    semantics::sql::normalize(&mut parsed)?;
    let parsed = ExprWithAlias {
        expr: parsed,
        alias: None,
    };
    state
        .create_logical_expr_from_sql_expr(parsed, schema)
        .map_err(convert)
}

/// `expr` over `schema` after DataFusion's analyzer: types agree, and our casts are inserted.
pub(crate) fn analyze(
    expr: Expr,
    role: Role,
    schema: &DFSchemaRef,
    state: &SessionState,
) -> Result<Expr> {
    let nothing = LogicalPlanBuilder::from(LogicalPlan::EmptyRelation(EmptyRelation {
        produce_one_row: false,
        schema: schema.clone(),
    }));
    let used = match role {
        Role::Value => nothing.project(vec![expr]),
        Role::Condition => nothing.filter(expr),
    };
    let plan = used
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
        LogicalPlan::Filter(filter) => Ok(filter.predicate),
        other => Err(Error::internal(format!("an expression became {other}"))),
    }
}

/// Whether the expression always gives the same value for the same row.
pub(crate) fn is_immutable(expr: &Expr) -> Result<bool> {
    let changing = expr.exists(|e| {
        Ok(match e {
            Expr::ScalarFunction(call) => call.func.signature().volatility != Volatility::Immutable,
            _ => false,
        })
    });
    changing.map(|changing| !changing).map_err(convert)
}

/// The type of an analyzed expression.
pub(crate) fn type_of(expr: &Expr, schema: &DFSchema) -> Result<SqlType> {
    let found = expr.get_type(schema).map_err(convert)?;
    match found.is_null() {
        // A condition that is NULL holds for no row.
        true => Ok(SqlType::Boolean),
        false => crate::values::value::sql_type_of(&found),
    }
}

/// An analyzed expression over `schema` with its constants folded.
pub(crate) fn simplify(
    expr: Expr,
    schema: &DFSchemaRef,
    state: &SessionState,
) -> Result<Expr, DataFusionError> {
    let context = SimplifyContext::builder()
        .with_schema(schema.clone())
        .with_config_options(state.config_options().clone())
        .with_query_execution_start_time(state.execution_props().query_execution_start_time)
        .build();
    ExprSimplifier::new(context).simplify(expr)
}

/// The evaluator of an analyzed expression over `schema`.
pub(crate) fn compile(
    expr: Expr,
    schema: &DFSchemaRef,
    state: &SessionState,
) -> Result<Arc<dyn PhysicalExpr>, DataFusionError> {
    let expr = simplify(expr, schema, state)?;
    let expr = semantics::rules::unsign_lists(expr, schema)?.data;
    let expr = semantics::rules::guard(expr, semantics::rules::Place::Value)?.data;
    create_physical_expr(
        &expr,
        schema,
        state.execution_props(),
        &PhysicalPlanningContext::default(),
    )
}
