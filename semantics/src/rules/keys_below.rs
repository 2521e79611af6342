//! Computes keys in a projection below the node that sorts or partitions by them: those of sorts,
//! windows and aggregates.
//!
//! DataFusion computes the bounds of a key's parts while it looks for the key in its input's
//! order. It has no bounds for functions and CASE, gives up at a comparison of them, and refuses
//! the plan: `ORDER BY x + 1 > 2` over several partitions, `rank() OVER (ORDER BY x + 1 > 2)`. A
//! column as the key has no parts. A key without comparison stays, because an index may have its
//! order.

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::expr::Alias;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, LogicalPlan, Projection};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use std::sync::Arc;

/// The rule.
#[derive(Debug)]
pub struct KeysBelow;

impl OptimizerRule for KeysBelow {
    fn name(&self) -> &str {
        "keys_below"
    }
    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }
    fn rewrite(
        &self,
        plan: LogicalPlan,
        _config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let (input, sorts) = match &plan {
            LogicalPlan::Sort(sort) => (sort.input.clone(), true),
            LogicalPlan::Window(window) => (window.input.clone(), false),
            LogicalPlan::Aggregate(aggregate) => (aggregate.input.clone(), false),
            _ => return Ok(Transformed::no(plan)),
        };
        let shown = plan.schema().columns().into_iter().map(Expr::Column);
        let shown: Vec<Expr> = shown.collect();
        let names = NamePreserver::new(&plan);
        let mut keys = Vec::new();
        let plan = plan.map_expressions(|mut expr| {
            if sorts {
                let changed = replace(&mut expr, &mut keys);
                return Ok(Transformed::new_transformed(expr, changed));
            }
            let name = names.save(&expr);
            let replaced = with_columns(expr, &mut keys);
            Ok(match replaced.transformed {
                true => replaced.update_data(|expr| name.restore(expr)),
                false => replaced,
            })
        })?;
        if keys.is_empty() {
            return Ok(Transformed::no(plan.data));
        }
        let columns = input.schema().columns().into_iter().map(Expr::Column);
        let keys = keys.into_iter().map(|key| {
            let name = name_of(&key);
            key.alias(name)
        });
        let below = Projection::try_new(columns.chain(keys).collect(), input)?;
        let expressions = plan.data.expressions();
        let below = LogicalPlan::Projection(below);
        let plan = plan.data.with_new_exprs(expressions, vec![below])?;
        let above = Projection::try_new(shown, Arc::new(plan))?;
        Ok(Transformed::yes(LogicalPlan::Projection(above)))
    }
}

/// A call of a window or aggregate function with columns as its keys, which it adds to `keys`.
fn with_columns(expr: Expr, keys: &mut Vec<Expr>) -> Transformed<Expr> {
    let mut changed = false;
    let expr = match expr {
        Expr::Alias(alias) => {
            return with_columns(*alias.expr.clone(), keys).update_data(|inner| {
                Expr::Alias(Alias {
                    expr: Box::new(inner),
                    ..alias
                })
            });
        }
        Expr::WindowFunction(mut call) => {
            let params = &mut call.params;
            let order_by = params.order_by.iter_mut().map(|key| &mut key.expr);
            for key in params.partition_by.iter_mut().chain(order_by) {
                changed |= replace(key, keys);
            }
            Expr::WindowFunction(call)
        }
        Expr::AggregateFunction(mut call) => {
            for key in &mut call.params.order_by {
                changed |= replace(&mut key.expr, keys);
            }
            Expr::AggregateFunction(call)
        }
        other => other,
    };
    Transformed::new_transformed(expr, changed)
}

/// Replaces a key by the column of its name if DataFusion could fail to find it.
fn replace(key: &mut Expr, keys: &mut Vec<Expr>) -> bool {
    if !is_computed(key) {
        return false;
    }
    let column = Expr::Column(Column::new_unqualified(name_of(key)));
    let key = std::mem::replace(key, column);
    if !keys.contains(&key) {
        keys.push(key);
    }
    true
}

/// Whether DataFusion could fail to find the key in an order.
fn is_computed(key: &Expr) -> bool {
    let has = |wanted: fn(&Expr) -> bool| key.exists(|part| Ok(wanted(part))).unwrap_or(true);
    has(|part| matches!(part, Expr::ScalarFunction(_) | Expr::Case(_)))
        && has(|part| matches!(part, Expr::BinaryExpr(_)))
}

/// The name of a key's column, which no user can write.
fn name_of(key: &Expr) -> String {
    format!("\u{1}key {}", key.schema_name())
}
