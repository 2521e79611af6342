//! AND and OR evaluate an operand that can fail only for rows that the other operands do not
//! decide: `WHERE x = 0 OR 10 / x > 1` does not divide by zero.
//!
//! DataFusion evaluates both operands of AND and OR for whole batches. Here the operands that
//! cannot fail come first, then the others in their written order, each only for the rows that are
//! still undecided, in a CASE:
//!
//! ```text
//! condition (NULL counts as false)
//!   s AND f      s AND CASE WHEN s THEN f::int8 ELSE 0 END = 1
//!   s OR f       CASE WHEN s THEN 1 ELSE f::int8 END = 1
//! value
//!   s AND f      CASE WHEN NOT s THEN 0 ELSE (s AND f)::int8 END = 1
//!   s OR f       CASE WHEN s THEN 1 ELSE (s OR f)::int8 END = 1
//! ```
//!
//! (DataFusion would simplify a CASE of booleans into a conjunction again.) The first form keeps
//! `s` outside of CASE, for scans to take over. The forms of values name an operand twice, so an
//! expression with volatile operands or subqueries, and one that grows past [`MAX_NODES`], stays as
//! it is. The rule runs last, when filters are in their final places.

use super::any_expression;
use crate::cast::CastTo;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::expr::{Alias, Case};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{conjunction, disjunction, split_binary_owned};
use datafusion::logical_expr::{BinaryExpr, Cast, Expr, Filter, Join, LogicalPlan, Operator, lit};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

/// The most nodes of a guarded value.
const MAX_NODES: usize = 4096;

/// Functions that fail for no argument.
const INFALLIBLE: [&str; 10] = [
    "character_length",
    "coalesce",
    "concat",
    "length",
    "lower",
    "make_array",
    "nullif",
    "starts_with",
    "unsigned_zero",
    "upper",
];

/// The rule.
#[derive(Debug)]
pub struct GuardFallible;

/// What NULL means where an expression stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// It counts as false.
    Condition,
    /// It differs from false.
    Value,
}

impl OptimizerRule for GuardFallible {
    fn name(&self) -> &str {
        "guard_fallible_conditions"
    }
    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }
    fn rewrite(
        &self,
        plan: LogicalPlan,
        _config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        if !any_expression(&plan, |expr| Ok(connects(expr) && can_fail(expr)))? {
            return Ok(Transformed::no(plan));
        }
        match plan {
            LogicalPlan::Filter(filter) => {
                let guarded = guard(filter.predicate.clone(), Place::Condition)?;
                if !guarded.transformed {
                    return Ok(Transformed::no(LogicalPlan::Filter(filter)));
                }
                let filter = Filter::try_new(guarded.data, filter.input)?;
                Ok(Transformed::yes(LogicalPlan::Filter(filter)))
            }
            LogicalPlan::Join(join) => guard_join(join),
            LogicalPlan::Projection(_)
            | LogicalPlan::Aggregate(_)
            | LogicalPlan::Window(_)
            | LogicalPlan::Sort(_)
            | LogicalPlan::Values(_)
            | LogicalPlan::Extension(_) => {
                let names = NamePreserver::new(&plan);
                plan.map_expressions(|expr| {
                    let name = names.save(&expr);
                    let guarded = guard(expr, Place::Value)?;
                    Ok(match guarded.transformed {
                        true => guarded.update_data(|expr| name.restore(expr)),
                        false => guarded,
                    })
                })
            }
            other => Ok(Transformed::no(other)),
        }
    }
}

/// Guards a join's condition, and the keys that are compared for equality.
fn guard_join(mut join: Join) -> Result<Transformed<LogicalPlan>> {
    let mut changed = false;
    if let Some(filter) = join.filter.take() {
        let guarded = guard(filter, Place::Condition)?;
        changed |= guarded.transformed;
        join.filter = Some(guarded.data);
    }
    for (left, right) in &mut join.on {
        for key in [left, right] {
            let guarded = guard(std::mem::take(key), Place::Value)?;
            changed |= guarded.transformed;
            *key = guarded.data;
        }
    }
    Ok(Transformed::new_transformed(
        LogicalPlan::Join(join),
        changed,
    ))
}

/// The expression with its fallible operands of AND and OR guarded; see the module's header.
pub fn guard(expr: Expr, place: Place) -> Result<Transformed<Expr>> {
    if !can_fail(&expr) || is_guarded(&expr) {
        return Ok(Transformed::no(expr));
    }
    match expr {
        Expr::BinaryExpr(BinaryExpr {
            ref left,
            op,
            ref right,
        }) if matches!(op, Operator::And | Operator::Or) => {
            let both = Expr::BinaryExpr(BinaryExpr::new(left.clone(), op, right.clone()));
            chain(both, op, place)
        }
        Expr::Alias(alias) => guard(*alias.expr.clone(), place)?.map_data(|inner| {
            Ok(Expr::Alias(Alias {
                expr: Box::new(inner),
                ..alias
            }))
        }),
        Expr::Case(case) if case.expr.is_none() => guard_case(case),
        Expr::GroupingSet(_) => Ok(Transformed::no(expr)),
        other => other.map_children(|child| guard(child, Place::Value)),
    }
}

/// The conditions of a CASE are evaluated in order already.
fn guard_case(mut case: Case) -> Result<Transformed<Expr>> {
    let mut changed = false;
    let mut guarded = |expr: &mut Box<Expr>, place: Place| -> Result<()> {
        let inner = guard(std::mem::take(expr.as_mut()), place)?;
        changed |= inner.transformed;
        **expr = inner.data;
        Ok(())
    };
    for (when, then) in &mut case.when_then_expr {
        guarded(when, Place::Condition)?;
        guarded(then, Place::Value)?;
    }
    if let Some(otherwise) = &mut case.else_expr {
        guarded(otherwise, Place::Value)?;
    }
    Ok(Transformed::new_transformed(Expr::Case(case), changed))
}

/// Guards operands that AND or OR connects.
fn chain(expr: Expr, op: Operator, place: Place) -> Result<Transformed<Expr>> {
    let before = expr.clone();
    let (mut late, early): (Vec<Expr>, Vec<Expr>) = split_binary_owned(expr, op)
        .into_iter()
        .partition(|part| !is_guarded(part) && (can_fail(part) || !is_repeatable(part)));
    if late.is_empty() {
        return Ok(Transformed::no(before));
    }
    let mut changed = false;
    for part in &mut late {
        let inner = guard(std::mem::take(part), place)?;
        changed |= inner.transformed;
        *part = inner.data;
    }
    if early.is_empty() && late.len() == 1 {
        let only = late.remove(0);
        return Ok(Transformed::new_transformed(only, changed));
    }
    let guarded = match (place, op) {
        (Place::Condition, Operator::And) => and_condition(early, late),
        (Place::Condition, _) => or_condition(early, late),
        (Place::Value, _) if !late.iter().all(is_repeatable) => None,
        (Place::Value, _) => value(early, late, op),
    };
    Ok(match guarded {
        Some(guarded) => Transformed::yes(guarded),
        None => Transformed::no(before),
    })
}

fn and_condition(early: Vec<Expr>, mut late: Vec<Expr>) -> Option<Expr> {
    let guard = conjunction(early);
    let mut decided = flag(late.pop()?);
    while let Some(part) = late.pop() {
        decided = case(vec![(part, decided)], lit(0i8));
    }
    match guard {
        Some(guard) => {
            let decided = case(vec![(guard.clone(), decided)], lit(0i8));
            Some(guard.and(decided.eq(lit(1i8))))
        }
        None => Some(decided.eq(lit(1i8))),
    }
}

fn or_condition(early: Vec<Expr>, mut late: Vec<Expr>) -> Option<Expr> {
    let last = flag(late.pop()?);
    let guards = disjunction(early).into_iter().chain(late);
    let whens = guards.map(|part| (part, lit(1i8))).collect();
    Some(case(whens, last).eq(lit(1i8)))
}

fn value(early: Vec<Expr>, late: Vec<Expr>, op: Operator) -> Option<Expr> {
    let and = op == Operator::And;
    let connected = |parts: Vec<Expr>| match and {
        true => conjunction(parts),
        false => disjunction(parts),
    };
    let early = connected(early);
    let all: Vec<Expr> = early.iter().chain(&late).cloned().collect();
    let all = connected(all)?;
    let guards = early
        .into_iter()
        .chain(late.iter().take(late.len() - 1).cloned());
    let whens = guards.map(|part| match and {
        true => (Expr::Not(Box::new(part)), lit(0i8)),
        false => (part, lit(1i8)),
    });
    let guarded = case(whens.collect(), flag(all)).eq(lit(1i8));
    (nodes(&guarded) <= MAX_NODES).then_some(guarded)
}

fn flag(condition: Expr) -> Expr {
    Expr::Cast(Cast::new(Box::new(condition), DataType::Int8))
}

fn case(whens: Vec<(Expr, Expr)>, otherwise: Expr) -> Expr {
    let boxed = |(when, then)| (Box::new(when), Box::new(then));
    let whens = whens.into_iter().map(boxed).collect();
    Expr::Case(Case::new(None, whens, Some(Box::new(otherwise))))
}

/// Whether this rule has made the expression. SQL has no constants of this type.
fn is_guarded(part: &Expr) -> bool {
    let Expr::BinaryExpr(BinaryExpr {
        left,
        op: Operator::Eq,
        right,
    }) = part
    else {
        return false;
    };
    let is_flag = matches!(right.as_ref(), Expr::Literal(ScalarValue::Int8(Some(1)), _));
    is_flag && matches!(left.as_ref(), Expr::Case(_) | Expr::Cast(_))
}

/// Whether the expression has AND or OR, without which it stays as it is.
fn connects(expr: &Expr) -> bool {
    exists(expr, |expr| match expr {
        Expr::BinaryExpr(binary) => matches!(binary.op, Operator::And | Operator::Or),
        _ => false,
    })
}

/// Whether the expression can fail for some row.
fn can_fail(expr: &Expr) -> bool {
    exists(expr, |expr| match expr {
        Expr::ScalarFunction(call) => {
            let function = call.func.inner();
            match function.downcast_ref::<CastTo>() {
                Some(cast) => cast.can_fail(),
                None => !INFALLIBLE.contains(&function.name()),
            }
        }
        _ => false,
    })
}

/// Whether the expression may be evaluated twice for a row.
fn is_repeatable(expr: &Expr) -> bool {
    let is_subquery = |expr: &Expr| {
        matches!(
            expr,
            Expr::ScalarSubquery(_)
                | Expr::Exists(_)
                | Expr::InSubquery(_)
                | Expr::SetComparison(_)
        )
    };
    !expr.is_volatile() && !exists(expr, is_subquery)
}

fn exists(expr: &Expr, holds: impl Fn(&Expr) -> bool) -> bool {
    expr.exists(|expr| Ok(holds(expr))).unwrap_or(true)
}

fn nodes(expr: &Expr) -> usize {
    let mut count = 0;
    let counted = expr.apply(|_| {
        count += 1;
        Ok(TreeNodeRecursion::Continue)
    });
    counted.map_or(usize::MAX, |_| count)
}
