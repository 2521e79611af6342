//! DataFusion's `push_down_filter`, corrected for conditions that can fail or are volatile.
//!
//! * DataFusion infers from `a.c = b.k AND b.k * 10 > 11` that `a.c * 10 > 11`, and evaluates that
//!   for rows of `a` without a match in `b`. An overflow there would be an error that the statement
//!   does not have. Here only conditions that cannot fail are inferred; other conditions are pushed
//!   down unchanged.
//! * DataFusion pushes a condition without columns below joins and groups. A volatile condition
//!   would then be evaluated for the wrong rows. Below an aggregate without GROUP BY any condition
//!   would keep the one row that HAVING must drop. Both are not pushed.

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::utils::{conjunction, split_conjunction, split_conjunction_owned};
use datafusion::logical_expr::{Aggregate, BinaryExpr, Expr, Filter, Join, LogicalPlan, Operator};
use datafusion::optimizer::push_down_filter::PushDownFilter;
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use std::sync::Arc;

/// The rule, in the place of DataFusion's rule.
#[derive(Debug, Default)]
pub struct PushDownConditions {
    inner: PushDownFilter,
}

impl OptimizerRule for PushDownConditions {
    fn name(&self) -> &str {
        self.inner.name()
    }
    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }
    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        match plan {
            LogicalPlan::Join(join) => self.pushed_into_join(Vec::new(), join, config),
            LogicalPlan::Filter(filter) => self.filter(filter, config),
            other => Ok(Transformed::no(other)),
        }
    }
}

impl PushDownConditions {
    fn filter(
        &self,
        filter: Filter,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        if let LogicalPlan::Filter(below) = filter.input.as_ref() {
            let mut parts = split_conjunction_owned(below.predicate.clone());
            for part in split_conjunction_owned(filter.predicate) {
                if !parts.contains(&part) {
                    parts.push(part);
                }
            }
            let merged = over(parts, below.input.as_ref().clone())?;
            let LogicalPlan::Filter(merged) = merged else {
                return internal_err!("a filter has a condition");
            };
            return Ok(Transformed::yes(self.filter(merged, config)?.data));
        }
        let stays = |part: &Expr| part.is_volatile() || is_held(part, &filter.input);
        let is_join = matches!(filter.input.as_ref(), LogicalPlan::Join(_));
        if !is_join && !split_conjunction(&filter.predicate).into_iter().any(stays) {
            return self.inner.rewrite(LogicalPlan::Filter(filter), config);
        }
        let parts = split_conjunction_owned(filter.predicate.clone());
        let (held, movable): (Vec<Expr>, Vec<Expr>) = parts.into_iter().partition(stays);
        if movable.is_empty() {
            return Ok(Transformed::no(LogicalPlan::Filter(filter)));
        }
        let input = filter.input.as_ref().clone();
        let pushed = match input {
            LogicalPlan::Join(join) => self.pushed_into_join(movable, join, config)?,
            other => self.inner.rewrite(over(movable, other)?, config)?,
        };
        match pushed.transformed {
            true => pushed.map_data(|plan| over(held, plan)),
            false if held.is_empty() => Ok(pushed),
            false => Ok(Transformed::no(LogicalPlan::Filter(filter))),
        }
    }

    /// Pushes down the conditions above a join and the join's own conditions.
    fn pushed_into_join(
        &self,
        above: Vec<Expr>,
        mut join: Join,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let own = join.filter.take();
        let own = own.map_or_else(Vec::new, split_conjunction_owned);
        let (safe, fallible): (Vec<Expr>, Vec<Expr>) = above.into_iter().partition(cannot_fail);
        let (own_safe, own_fallible): (Vec<Expr>, Vec<Expr>) =
            own.into_iter().partition(cannot_fail);
        join.filter = conjunction(own_safe);
        let first = self
            .inner
            .rewrite(over(safe, LogicalPlan::Join(join))?, config)?;
        if fallible.is_empty() && own_fallible.is_empty() {
            return Ok(first);
        }
        // Without the equalities nothing can be inferred.
        let (kept, mut join) = parts(first.data)?;
        let (on, filter) = (std::mem::take(&mut join.on), join.filter.take());
        join.filter = conjunction(own_fallible);
        let second = over(fallible, LogicalPlan::Join(join))?;
        let second = self.inner.rewrite(second, config)?;
        let (also_kept, mut join) = parts(second.data)?;
        join.on = on;
        join.filter = conjunction(filter.into_iter().chain(join.filter.take()));
        let kept = kept.into_iter().chain(also_kept).collect();
        let plan = over(kept, LogicalPlan::Join(join))?;
        let transformed = first.transformed || second.transformed;
        Ok(Transformed::new_transformed(plan, transformed))
    }
}

/// Whether a condition must stay above `input` because it uses none of its columns.
fn is_held(condition: &Expr, input: &LogicalPlan) -> bool {
    let LogicalPlan::Aggregate(Aggregate { group_expr, .. }) = input else {
        return false;
    };
    let one_group = matches!(group_expr.as_slice(), [] | [Expr::GroupingSet(_)]);
    one_group && condition.column_refs().is_empty()
}

/// The conditions over a plan.
fn over(conditions: Vec<Expr>, plan: LogicalPlan) -> Result<LogicalPlan> {
    Ok(match conjunction(conditions) {
        Some(predicate) => LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(plan))?),
        None => plan,
    })
}

/// A join and the conditions over it.
fn parts(plan: LogicalPlan) -> Result<(Vec<Expr>, Join)> {
    match plan {
        LogicalPlan::Join(join) => Ok((Vec::new(), join)),
        LogicalPlan::Filter(filter) => {
            let conditions = split_conjunction_owned(filter.predicate);
            match Arc::unwrap_or_clone(filter.input) {
                LogicalPlan::Join(join) => Ok((conditions, join)),
                _ => internal_err!("a join stays below its conditions"),
            }
        }
        _ => internal_err!("a join stays a join"),
    }
}

/// Whether a condition has only columns, constants, comparisons and logic, which have a value for
/// every row.
fn cannot_fail(condition: &Expr) -> bool {
    let mut found = false;
    let visited = condition.apply(|expr| {
        found |= !is_total(expr);
        Ok(match found {
            true => TreeNodeRecursion::Stop,
            false => TreeNodeRecursion::Continue,
        })
    });
    !found && visited.is_ok()
}

fn is_total(expr: &Expr) -> bool {
    match expr {
        Expr::BinaryExpr(BinaryExpr { op, .. }) => {
            op.supports_propagation() || matches!(op, Operator::And | Operator::Or)
        }
        Expr::Column(_)
        | Expr::Literal(..)
        | Expr::Placeholder(_)
        | Expr::Alias(_)
        | Expr::Like(_)
        | Expr::Not(_)
        | Expr::IsNotNull(_)
        | Expr::IsNull(_)
        | Expr::IsTrue(_)
        | Expr::IsFalse(_)
        | Expr::IsUnknown(_)
        | Expr::IsNotTrue(_)
        | Expr::IsNotFalse(_)
        | Expr::IsNotUnknown(_)
        | Expr::Between(_)
        | Expr::InList(_) => true,
        _ => false,
    }
}
