//! Comparisons of a date column with a constant moment become comparisons of dates, which scans can
//! use. PostgreSQL's types make such comparisons: `shipped < date '1998-12-01' - interval '90
//! days'`.

use super::any_expression;
use crate::calendar::split_micros;
use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{BinaryExpr, Cast, Expr, ExprSchemable, LogicalPlan, Operator};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use datafusion::scalar::ScalarValue;

/// The rule.
#[derive(Debug)]
pub struct CompareDates;

impl OptimizerRule for CompareDates {
    fn name(&self) -> &str {
        "compare_dates"
    }
    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }
    fn rewrite(
        &self,
        plan: LogicalPlan,
        _config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        if !matches!(plan, LogicalPlan::Filter(_) | LogicalPlan::Join(_)) {
            return Ok(Transformed::no(plan));
        }
        let has_moment = |expr: &Expr| expr.exists(|part| Ok(cast_to_moment(part).is_some()));
        if !any_expression(&plan, has_moment)? {
            return Ok(Transformed::no(plan));
        }
        let schema = merge_schema(&plan.inputs());
        plan.map_expressions(|expr| expr.transform_up(|expr| compare(expr, &schema)))
    }
}

fn compare(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let Expr::BinaryExpr(binary) = &expr else {
        return Ok(Transformed::no(expr));
    };
    let rewritten = match (date(&binary.left, schema), moment(&binary.right)) {
        (Some(date), Some(micros)) => with_day(date, binary.op, micros),
        _ => match (
            moment(&binary.left),
            date(&binary.right, schema),
            binary.op.swap(),
        ) {
            (Some(micros), Some(date), Some(op)) => with_day(date, op, micros),
            _ => None,
        },
    };
    Ok(rewritten.map_or_else(|| Transformed::no(expr), Transformed::yes))
}

/// The date under a cast to a timestamp.
fn date(expr: &Expr, schema: &DFSchema) -> Option<Expr> {
    let cast = cast_to_moment(expr)?;
    let from_date = cast.expr.get_type(schema).ok()? == DataType::Date32;
    from_date.then(|| (*cast.expr).clone())
}

fn cast_to_moment(expr: &Expr) -> Option<&Cast> {
    match expr {
        Expr::Cast(cast) => matches!(
            cast.field.data_type(),
            DataType::Timestamp(TimeUnit::Microsecond, _)
        )
        .then_some(cast),
        _ => None,
    }
}

fn moment(expr: &Expr) -> Option<i64> {
    match expr {
        Expr::Literal(ScalarValue::TimestampMicrosecond(micros, _), _) => *micros,
        _ => None,
    }
}

/// `date op micros` as a comparison with a day; a moment after midnight is between two days.
fn with_day(date: Expr, op: Operator, micros: i64) -> Option<Expr> {
    let (day, time) = split_micros(micros);
    let midnight = time == 0;
    let (op, day) = match op {
        Operator::Eq | Operator::NotEq if !midnight => return None,
        Operator::Eq | Operator::NotEq => (op, day),
        Operator::Lt | Operator::GtEq if !midnight => (op, day + 1),
        Operator::Lt | Operator::GtEq | Operator::LtEq | Operator::Gt => (op, day),
        _ => return None,
    };
    let day = ScalarValue::Date32(Some(i32::try_from(day).ok()?));
    let right = Expr::Literal(day, None);
    Some(Expr::BinaryExpr(BinaryExpr::new(
        Box::new(date),
        op,
        Box::new(right),
    )))
}
