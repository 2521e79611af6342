//! Gives keys and lists of floats one zero: sorts, groups, windows and joins compare the bits of
//! their keys, `x IN (…)` those of its members.
//!
//! A key becomes `unsigned_zero(key)` ([`crate::functions::unsigned_zero`]). The last key of a sort
//! stays, because rows that are equal in it may come in any order: so a scan sees the column of
//! `ORDER BY x`. A list of constants that has a zero gets the other one. The rule runs late, when
//! conditions are in their final places and DISTINCT and set operations are groups and joins.

use super::any_expression;
use crate::functions::{is_unsigned, unsigned_zero};
use crate::types::has_floats;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::{AggregateFunction, Alias, InList, WindowFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    Aggregate, Expr, ExprSchemable, Join, LogicalPlan, Projection, Sort, SortExpr,
};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use datafusion::scalar::ScalarValue;
use std::sync::Arc;

/// The rule.
#[derive(Debug)]
pub struct UnsignZeros;

impl OptimizerRule for UnsignZeros {
    fn name(&self) -> &str {
        "unsign_zeros"
    }
    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }
    fn rewrite(
        &self,
        plan: LogicalPlan,
        _config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let has_list = any_expression(&plan, |expr| expr.exists(|part| Ok(is_list(part))))?;
        let listed = match has_list {
            true => lists_of(plan)?,
            false => Transformed::no(plan),
        };
        listed.transform_data(|plan| match plan {
            LogicalPlan::Sort(sort) => sort_keys(sort),
            LogicalPlan::Aggregate(aggregate) => groups(aggregate),
            LogicalPlan::Window(_) => calls(plan),
            LogicalPlan::Join(join) => join_keys(join),
            other => Ok(Transformed::no(other)),
        })
    }
}

fn is_list(expr: &Expr) -> bool {
    matches!(expr, Expr::InList(_))
}

fn lists_of(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let schema = match &plan {
        LogicalPlan::TableScan(scan) => {
            let name = scan.table_name.clone();
            DFSchema::try_from_qualified_schema(name, &scan.source.schema())?
        }
        plan => merge_schema(&plan.inputs()),
    };
    let names = NamePreserver::new(&plan);
    plan.map_expressions(|expr| {
        let name = names.save(&expr);
        Ok(unsign_lists(expr, &schema)?.update_data(|expr| name.restore(expr)))
    })
}

/// The lists of an expression over `schema` with both zeros, or none.
pub fn unsign_lists(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    expr.transform_up(|expr| match expr {
        Expr::InList(list) => Ok(unsign_list(list, schema)),
        other => Ok(Transformed::no(other)),
    })
}

fn unsign_list(mut list: InList, schema: &DFSchema) -> Transformed<Expr> {
    if list
        .list
        .iter()
        .all(|item| matches!(item, Expr::Literal(..)))
    {
        let mut missing: Vec<Expr> = list.list.iter().filter_map(other_zero).collect();
        missing.retain(|zero| !list.list.contains(zero));
        missing.dedup();
        let changed = !missing.is_empty();
        list.list.extend(missing);
        return Transformed::new_transformed(Expr::InList(list), changed);
    }
    let mut changed = unsign(&mut list.expr, schema);
    for item in &mut list.list {
        changed |= unsign(item, schema);
    }
    Transformed::new_transformed(Expr::InList(list), changed)
}

/// -0 of 0, and 0 of -0.
fn other_zero(item: &Expr) -> Option<Expr> {
    let zero = match item {
        Expr::Literal(ScalarValue::Float64(Some(v)), _) if *v == 0.0 => ScalarValue::from(-v),
        Expr::Literal(ScalarValue::Float32(Some(v)), _) if *v == 0.0 => ScalarValue::from(-v),
        _ => return None,
    };
    Some(Expr::Literal(zero, None))
}

/// Unsigns the zeros of an expression of a type with floats; whether it has changed.
fn unsign(expr: &mut Expr, schema: &DFSchema) -> bool {
    if let Expr::Alias(alias) = expr {
        return unsign(&mut alias.expr, schema);
    }
    if is_unsigned(expr) || !expr.get_type(schema).is_ok_and(|t| has_floats(&t)) {
        return false;
    }
    *expr = unsigned_zero(std::mem::take(expr));
    true
}

fn unsign_order(order: &mut [SortExpr], schema: &DFSchema) -> bool {
    let keys = order.iter_mut();
    keys.fold(false, |changed, key| {
        unsign(&mut key.expr, schema) | changed
    })
}

fn sort_keys(mut sort: Sort) -> Result<Transformed<LogicalPlan>> {
    let changed = match sort.expr.split_last_mut() {
        Some((_, first)) => unsign_order(first, sort.input.schema()),
        None => false,
    };
    let sort = LogicalPlan::Sort(sort);
    Ok(Transformed::new_transformed(sort, changed))
}

fn join_keys(mut join: Join) -> Result<Transformed<LogicalPlan>> {
    let mut changed = false;
    for (left, right) in &mut join.on {
        changed |= unsign(left, join.left.schema());
        changed |= unsign(right, join.right.schema());
    }
    let join = LogicalPlan::Join(join);
    Ok(Transformed::new_transformed(join, changed))
}

/// The groups of grouping sets have to be columns: these are computed below.
fn groups(mut aggregate: Aggregate) -> Result<Transformed<LogicalPlan>> {
    if let [Expr::GroupingSet(set)] = aggregate.group_expr.as_slice() {
        let columns: Vec<Expr> = set.distinct_expr().into_iter().cloned().collect();
        let input = unsigned_below(&aggregate.input, &columns)?;
        let changed = input.is_some();
        if let Some(input) = input {
            aggregate.input = input;
        }
        let called = calls(LogicalPlan::Aggregate(aggregate))?;
        let changed = changed || called.transformed;
        return Ok(Transformed::new_transformed(called.data, changed));
    }
    let schema = Arc::clone(aggregate.input.schema());
    let mut changed = false;
    for group in &mut aggregate.group_expr {
        let (relation, name) = group.qualified_name();
        if unsign(group, &schema) {
            changed = true;
            if !matches!(group, Expr::Alias(_)) {
                let key = std::mem::take(group);
                *group = Expr::Alias(Alias::new(key, relation, name));
            }
        }
    }
    let called = calls(LogicalPlan::Aggregate(aggregate))?;
    let changed = changed || called.transformed;
    Ok(Transformed::new_transformed(called.data, changed))
}

/// A projection that gives `input` with `columns` unsigned; None: no column changes.
fn unsigned_below(input: &Arc<LogicalPlan>, columns: &[Expr]) -> Result<Option<Arc<LogicalPlan>>> {
    let schema = input.schema();
    let is_done = |at: usize| match input.as_ref() {
        LogicalPlan::Projection(below) => below.expr.get(at).is_some_and(is_unsigned),
        _ => false,
    };
    let mut changed = false;
    let given = schema
        .columns()
        .into_iter()
        .enumerate()
        .map(|(at, column)| {
            let mut expr = Expr::Column(column.clone());
            if columns.contains(&expr) && !is_done(at) && unsign(&mut expr, schema) {
                changed = true;
                return expr.alias_qualified(column.relation, column.name);
            }
            expr
        });
    let given: Vec<Expr> = given.collect();
    if !changed {
        return Ok(None);
    }
    let projection = Projection::try_new(given, Arc::clone(input))?;
    Ok(Some(Arc::new(LogicalPlan::Projection(projection))))
}

/// Calls of window and aggregate functions: what they partition and order by, and what they take
/// the distinct values of.
fn calls(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let schema = merge_schema(&plan.inputs());
    let names = NamePreserver::new(&plan);
    plan.map_expressions(|expr| {
        let name = names.save(&expr);
        let changed = expr.transform_up(|part| {
            Ok(match part {
                Expr::WindowFunction(call) => window(call, &schema),
                Expr::AggregateFunction(call) => aggregate(call, &schema),
                other => Transformed::no(other),
            })
        })?;
        Ok(match changed.transformed {
            true => changed.update_data(|expr| name.restore(expr)),
            false => changed,
        })
    })
}

fn window(mut call: Box<WindowFunction>, schema: &DFSchema) -> Transformed<Expr> {
    let mut changed = unsign_order(&mut call.params.order_by, schema);
    for key in &mut call.params.partition_by {
        changed |= unsign(key, schema);
    }
    Transformed::new_transformed(Expr::WindowFunction(call), changed)
}

fn aggregate(mut call: AggregateFunction, schema: &DFSchema) -> Transformed<Expr> {
    let params = &mut call.params;
    let mut changed = false;
    if params.distinct {
        for value in &mut params.args {
            changed |= unsign(value, schema);
        }
        // An order of distinct values is an order of them.
        changed |= unsign_order(&mut params.order_by, schema);
    } else if let Some((_, first)) = params.order_by.split_last_mut() {
        changed |= unsign_order(first, schema);
    }
    Transformed::new_transformed(Expr::AggregateFunction(call), changed)
}
