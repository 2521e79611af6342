//! DataFusion's `simplify_expressions` without its wrong merges of several lists.
//!
//! DataFusion merges `x IN A AND x IN B`, `x IN A AND x NOT IN B` and `x NOT IN A OR x NOT IN B`
//! into one list by comparing the items as expressions. That is right only if different items have
//! different values and none is NULL. If the merged list is empty, the result is a constant, and
//! NULL for a NULL `x` must count as false. So `x IN (x, 'a') AND x NOT IN (x, 'b')` became `x IN
//! ('a')`.
//!
//! Here a list that must not be merged gets an alias of its own name while DataFusion simplifies,
//! because DataFusion merges only lists directly beside each other. `x = 1 OR x = 2`, which
//! DataFusion turns into a list, is treated the same way.

use super::any_expression;
use datafusion::common::Result;
use datafusion::common::metadata::FieldMetadata;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::expr::{Alias, InList};
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, Operator};
use datafusion::optimizer::simplify_expressions::SimplifyExpressions;
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use std::collections::BTreeMap;

/// The rule, in the place of DataFusion's rule.
#[derive(Debug, Default)]
pub struct Simplify {
    inner: SimplifyExpressions,
}

/// The metadata that marks an alias of this rule.
const KEPT: &str = "strandline.kept_apart";

/// The place of an expression.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ExprPosition {
    /// a conjunct of a condition, where NULL counts as false
    Conjunct,
    /// a disjunct of a condition, where NULL counts as false
    Disjunct,
    /// a value, where NULL and false differ
    Value,
}

impl OptimizerRule for Simplify {
    fn name(&self) -> &str {
        self.inner.name()
    }
    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }
    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        if !any_expression(&plan, has_several)? {
            return self.inner.rewrite(plan, config);
        }
        let place = match &plan {
            LogicalPlan::Filter(_) | LogicalPlan::Join(_) | LogicalPlan::TableScan(_) => {
                ExprPosition::Conjunct
            }
            _ => ExprPosition::Value,
        };
        let apart = plan.map_expressions(|expr| match has_several(&expr)? {
            true => Ok(Transformed::yes(keep_apart(expr, place)?)),
            false => Ok(Transformed::no(expr)),
        })?;
        let simplified = self.inner.rewrite(apart.data, config)?;
        let transformed = simplified.transformed;
        let plan = simplified
            .data
            .map_expressions(|expr| expr.transform_up(let_together))?;
        Ok(Transformed::new_transformed(plan.data, transformed))
    }
}

/// Whether an expression may have two lists.
fn has_several(expr: &Expr) -> Result<bool> {
    let mut lists = 0;
    expr.apply(|expr| {
        let is_list = match expr {
            Expr::InList(_) => true,
            Expr::BinaryExpr(BinaryExpr { op, .. }) => *op == Operator::Or,
            _ => false,
        };
        lists += usize::from(is_list);
        Ok(match lists {
            2 => TreeNodeRecursion::Stop,
            _ => TreeNodeRecursion::Continue,
        })
    })?;
    Ok(lists == 2)
}

fn keep_apart(expr: Expr, place: ExprPosition) -> Result<Expr> {
    Ok(match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right })
            if matches!(op, Operator::And | Operator::Or) =>
        {
            let below = match (op, place) {
                (Operator::Or, ExprPosition::Conjunct) => ExprPosition::Disjunct,
                _ => place,
            };
            let alone = place == ExprPosition::Value && op == Operator::Or;
            let left = keep_apart(*left, below)?;
            let right = keep_apart(*right, below)?;
            let both = Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right)));
            match alone {
                true => apart(both),
                false => both,
            }
        }
        Expr::Not(negated) => match *negated {
            Expr::InList(list) => {
                let list = InList::new(list.expr, list.list, !list.negated);
                keep_apart(Expr::InList(list), place)?
            }
            other => Expr::Not(Box::new(keep_apart(other, ExprPosition::Value)?)),
        },
        Expr::Alias(alias) if alias.metadata.is_none() => {
            let expr = Box::new(keep_apart(*alias.expr.clone(), place)?);
            Expr::Alias(Alias { expr, ..alias })
        }
        other => {
            let expr = other
                .map_children(|child| keep_apart(child, ExprPosition::Value).map(Transformed::yes))?
                .data;
            match &expr {
                Expr::InList(list) if !may_merge(list, place) => apart(expr),
                _ => expr,
            }
        }
    })
}

/// Whether the list may be merged with another: its items are different values, and a constant
/// instead of NULL makes no difference.
fn may_merge(list: &InList, place: ExprPosition) -> bool {
    let is_exact = |item: &Expr| match item {
        Expr::Literal(value, _) => !value.is_null() && !value.data_type().is_floating(),
        _ => false,
    };
    let counts = match place {
        ExprPosition::Conjunct => true,
        ExprPosition::Disjunct => !list.negated,
        ExprPosition::Value => false,
    };
    counts && list.list.iter().all(is_exact)
}

/// The expression with an alias that keeps its name.
fn apart(expr: Expr) -> Expr {
    let name = expr.schema_name().to_string();
    let mark = BTreeMap::from([(KEPT.to_string(), String::new())]);
    Expr::Alias(Alias::new(expr, None::<&str>, name).with_metadata(Some(FieldMetadata::new(mark))))
}

fn let_together(expr: Expr) -> Result<Transformed<Expr>> {
    let is_kept = |metadata: &FieldMetadata| metadata.inner().contains_key(KEPT);
    Ok(match expr {
        Expr::Alias(alias) if alias.metadata.as_ref().is_some_and(is_kept) => {
            Transformed::yes(*alias.expr)
        }
        // An expression that was folded to a constant has taken over the mark.
        Expr::Literal(value, Some(metadata)) if is_kept(&metadata) => {
            Transformed::yes(Expr::Literal(value, None))
        }
        other => Transformed::no(other),
    })
}
