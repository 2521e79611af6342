//! Refuses to sort, group or deduplicate by points and boxes (42883). They have neither an order
//! nor an equality; DataFusion would use those of their coordinates' list.

use crate::error::raise;
use crate::types::{is_geometric, sql_name};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::{AggregateFunctionParams, WindowFunctionParams};
use datafusion::logical_expr::utils::{grouping_set_to_exprlist, merge_schema};
use datafusion::logical_expr::{Distinct, Expr, ExprSchemable, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;
use strandline_base::{Error, SqlState};

/// The rule.
#[derive(Debug)]
pub struct RequireOrders;

impl AnalyzerRule for RequireOrders {
    fn name(&self) -> &str {
        "require_orders"
    }
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        plan.apply_with_subqueries(|node| {
            check_node(node)?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(plan)
    }
}

fn check_node(node: &LogicalPlan) -> Result<()> {
    let schema = merge_schema(&node.inputs());
    let equality = |exprs: &[&Expr]| exprs.iter().try_for_each(|e| check(e, &schema, "equality"));
    match node {
        LogicalPlan::Sort(sort) => {
            let mut keys = sort.expr.iter();
            keys.try_for_each(|key| check(&key.expr, &schema, "ordering"))?;
        }
        LogicalPlan::Aggregate(aggregate) => {
            equality(&grouping_set_to_exprlist(&aggregate.group_expr)?)?;
        }
        LogicalPlan::Distinct(Distinct::All(input)) => {
            let mut fields = input.schema().fields().iter();
            fields.try_for_each(|field| check_type(field.data_type(), "equality"))?;
        }
        LogicalPlan::Distinct(Distinct::On(on)) => {
            equality(&on.on_expr.iter().collect::<Vec<_>>())?;
        }
        LogicalPlan::Join(join) => {
            let sides = join.on.iter().flat_map(|(left, right)| [left, right]);
            equality(&sides.collect::<Vec<_>>())?;
        }
        _ => {}
    }
    node.apply_expressions(|expr| {
        expr.apply(|part| {
            check_call(part, &schema)?;
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    Ok(())
}

/// Checks the orders and the distinctness of one call, and `x IN (SELECT …)`.
fn check_call(expr: &Expr, schema: &DFSchema) -> Result<()> {
    match expr {
        Expr::AggregateFunction(call) => {
            let AggregateFunctionParams {
                args,
                distinct,
                order_by,
                ..
            } = &call.params;
            if *distinct {
                let mut args = args.iter();
                args.try_for_each(|arg| check(arg, schema, "equality"))?;
            }
            let mut keys = order_by.iter();
            keys.try_for_each(|key| check(&key.expr, schema, "ordering"))?;
            if matches!(call.func.name(), "min" | "max") {
                check_extreme(call.func.name(), args, schema)?;
            }
        }
        Expr::WindowFunction(call) => {
            let WindowFunctionParams {
                args,
                partition_by,
                order_by,
                ..
            } = &call.params;
            let mut parts = partition_by.iter();
            parts.try_for_each(|part| check(part, schema, "equality"))?;
            let mut keys = order_by.iter();
            keys.try_for_each(|key| check(&key.expr, schema, "ordering"))?;
            if matches!(call.fun.name(), "min" | "max") {
                check_extreme(call.fun.name(), args, schema)?;
            }
        }
        Expr::InSubquery(query) => check(&query.expr, schema, "equality")?,
        _ => {}
    }
    Ok(())
}

fn check_extreme(name: &str, args: &[Expr], schema: &DFSchema) -> Result<()> {
    for arg in args {
        let data_type = arg.get_type(schema)?;
        if is_geometric(&data_type) {
            let message = format!("function {name}({}) does not exist", sql_name(&data_type));
            let error = Error::invalid(SqlState::UNDEFINED_FUNCTION, message);
            return Err(raise(error));
        }
    }
    Ok(())
}

fn check(expr: &Expr, schema: &DFSchema, operator: &str) -> Result<()> {
    // A column of an outer query is not in the schema; it is one value here.
    match expr.get_type(schema) {
        Ok(data_type) => check_type(&data_type, operator),
        Err(_) => Ok(()),
    }
}

fn check_type(data_type: &DataType, operator: &str) -> Result<()> {
    if !is_geometric(data_type) {
        return Ok(());
    }
    let name = sql_name(data_type);
    let message = format!("could not identify an {operator} operator for type {name}");
    let error = Error::invalid(SqlState::UNDEFINED_FUNCTION, message);
    Err(raise(match operator {
        "ordering" => error.with_hint("Use an explicit ordering operator or modify the query."),
        _ => error,
    }))
}
