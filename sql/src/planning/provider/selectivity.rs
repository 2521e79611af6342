//! Estimates of the rows that remain after pushed-down filters, for the join order. They use the
//! columns' bounds and distinct counts with the usual textbook formulas.

use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, ScalarValue, Statistics};
use datafusion::logical_expr::expr::{Between, InList, Like};
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use strandline_engine::catalog::TableDef;

#[cfg(test)]
mod tests;

/// The selectivity of a predicate of unknown kind, as in DataFusion.
const UNKNOWN: f64 = 0.2;
/// The selectivity of equality when the number of values is unknown.
const EQUAL: f64 = 0.05;
/// The selectivity of an open comparison without bounds.
const RANGE: f64 = 1.0 / 3.0;

/// The `statistics` of the table after `filters`.
pub fn filtered(statistics: Statistics, filters: &[Expr], def: &TableDef) -> Statistics {
    if filters.is_empty() {
        return statistics;
    }
    let share: f64 = filters
        .iter()
        .map(|filter| share(filter, &statistics, def))
        .product();
    // Estimates round up, so rounding errors in the last digits must not count as a row.
    let share = (share.clamp(0.0, 1.0) * 1e9).round() / 1e9;
    let scale = |p: &Precision<usize>| p.with_estimated_selectivity(share);
    let num_rows = scale(&statistics.num_rows);
    let rows = num_rows.get_value().copied().unwrap_or(usize::MAX);
    let column_statistics = statistics
        .column_statistics
        .iter()
        .map(|column| ColumnStatistics {
            null_count: scale(&column.null_count),
            distinct_count: match column.distinct_count.get_value() {
                Some(distinct) => Precision::Inexact((*distinct).min(rows)),
                None => Precision::Absent,
            },
            byte_size: scale(&column.byte_size),
            ..column.clone()
        })
        .collect();
    Statistics {
        num_rows,
        total_byte_size: scale(&statistics.total_byte_size),
        column_statistics,
    }
}

fn share(filter: &Expr, statistics: &Statistics, def: &TableDef) -> f64 {
    let of = |e: &Expr| share(e, statistics, def);
    match filter {
        Expr::Alias(alias) => of(&alias.expr),
        Expr::Not(e) => 1.0 - of(e),
        Expr::IsNull(e) => null_share(e, statistics, def),
        Expr::IsNotNull(e) => 1.0 - null_share(e, statistics, def),
        Expr::Literal(ScalarValue::Boolean(Some(true)), _) => 1.0,
        Expr::Literal(..) => 0.0,
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => match op {
            Operator::And => of(left) * of(right),
            Operator::Or => {
                let (a, b) = (of(left), of(right));
                a + b - a * b
            }
            _ => compared(left, *op, right, statistics, def),
        },
        Expr::Between(Between {
            expr,
            negated,
            low,
            high,
        }) => {
            let above = compared(expr, Operator::GtEq, low, statistics, def);
            let below = compared(expr, Operator::LtEq, high, statistics, def);
            let inside = if known_bounds(expr, statistics, def).is_some() {
                (above + below - 1.0).max(0.0)
            } else {
                above * below
            };
            if *negated { 1.0 - inside } else { inside }
        }
        Expr::InList(InList {
            expr,
            list,
            negated,
        }) => {
            let one = equal_share(expr, statistics, def);
            let any = (one * list.len() as f64).min(1.0);
            if *negated { 1.0 - any } else { any }
        }
        Expr::Like(Like { negated, .. }) => {
            if *negated {
                1.0 - UNKNOWN
            } else {
                UNKNOWN
            }
        }
        _ => UNKNOWN,
    }
}

fn compared(
    left: &Expr,
    op: Operator,
    right: &Expr,
    statistics: &Statistics,
    def: &TableDef,
) -> f64 {
    let (column, op, value) = match (left, right) {
        (column, Expr::Literal(value, _)) => (column, op, value),
        (Expr::Literal(value, _), column) => match op.swap() {
            Some(swapped) => (column, swapped, value),
            None => return UNKNOWN,
        },
        _ => return UNKNOWN,
    };
    let below = || -> Option<f64> {
        let (least, greatest) = known_bounds(column, statistics, def)?;
        let value = number(value)?;
        if greatest <= least {
            return Some(if value > least { 1.0 } else { 0.0 });
        }
        Some(((value - least) / (greatest - least)).clamp(0.0, 1.0))
    };
    match op {
        Operator::Eq | Operator::IsNotDistinctFrom => equal_share(column, statistics, def),
        Operator::NotEq | Operator::IsDistinctFrom => 1.0 - equal_share(column, statistics, def),
        Operator::Lt | Operator::LtEq => below().unwrap_or(RANGE),
        Operator::Gt | Operator::GtEq => below().map_or(RANGE, |share| 1.0 - share),
        _ => UNKNOWN,
    }
}

fn column_of<'a>(
    expr: &Expr,
    statistics: &'a Statistics,
    def: &TableDef,
) -> Option<&'a ColumnStatistics> {
    match expr {
        Expr::Column(column) => {
            let position = def.columns.iter().position(|c| c.name == column.name)?;
            statistics.column_statistics.get(position)
        }
        Expr::Cast(cast) => column_of(&cast.expr, statistics, def),
        _ => None,
    }
}

fn equal_share(expr: &Expr, statistics: &Statistics, def: &TableDef) -> f64 {
    let distinct = column_of(expr, statistics, def)
        .and_then(|column| column.distinct_count.get_value().copied());
    distinct.map_or(EQUAL, |n| 1.0 / n.max(1) as f64)
}

fn null_share(expr: &Expr, statistics: &Statistics, def: &TableDef) -> f64 {
    let nulls =
        column_of(expr, statistics, def).and_then(|column| column.null_count.get_value().copied());
    match (nulls, statistics.num_rows.get_value()) {
        (Some(nulls), Some(rows)) if *rows > 0 => nulls as f64 / *rows as f64,
        _ => EQUAL,
    }
}

fn known_bounds(expr: &Expr, statistics: &Statistics, def: &TableDef) -> Option<(f64, f64)> {
    let column = column_of(expr, statistics, def)?;
    Some((
        number(column.min_value.get_value()?)?,
        number(column.max_value.get_value()?)?,
    ))
}

/// A value as a float: numbers unchanged, dates and times in microseconds.
fn number(value: &ScalarValue) -> Option<f64> {
    use ScalarValue as S;
    let scaled = |v: f64, scale: i8| v / 10f64.powi(i32::from(scale));
    Some(match value {
        S::Int16(Some(v)) => f64::from(*v),
        S::Int32(Some(v)) => f64::from(*v),
        S::Int64(Some(v)) => *v as f64,
        S::Float32(Some(v)) => f64::from(*v),
        S::Float64(Some(v)) => *v,
        S::Decimal64(Some(v), _, scale) => scaled(*v as f64, *scale),
        S::Decimal128(Some(v), _, scale) => scaled(*v as f64, *scale),
        S::Date32(Some(v)) => f64::from(*v) * 86_400e6,
        S::TimestampMicrosecond(Some(v), _) => *v as f64,
        S::TimestampNanosecond(Some(v), _) => *v as f64 / 1e3,
        _ => return None,
    })
}
