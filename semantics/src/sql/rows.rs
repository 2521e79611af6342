//! Comparisons of rows, `(a, b) < (c, d)`, column by column, and IS [NOT] DISTINCT FROM.

use super::calls::last_name;
use crate::operators::{IS_DISTINCT_FROM, IS_NOT_DISTINCT_FROM};
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, UnaryOperator,
};
use strandline_base::{Error, Result, SqlState};

fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::Nested(Box::new(Expr::BinaryOp {
        left: Box::new(left),
        op,
        right: Box::new(right),
    }))
}

fn columns(expr: &Expr) -> Option<&[Expr]> {
    match expr {
        Expr::Tuple(columns) if columns.len() > 1 => Some(columns),
        _ => None,
    }
}

fn all(mut conditions: impl Iterator<Item = Expr>, op: BinaryOperator) -> Option<Expr> {
    let first = conditions.next()?;
    Some(conditions.fold(first, |all, next| binary(all, op.clone(), next)))
}

/// `left op right` of two rows; `None` if they are not rows, or if `op` is not a comparison.
pub fn comparison(left: &Expr, op: &BinaryOperator, right: &Expr) -> Result<Option<Expr>> {
    let (Some(left), Some(right)) = (columns(left), columns(right)) else {
        return Ok(None);
    };
    check_lengths(left, right)?;
    let pairs = || left.iter().cloned().zip(right.iter().cloned());
    use BinaryOperator::{And, Eq, Gt, GtEq, Lt, LtEq, NotEq, Or};
    Ok(match op {
        Eq => all(pairs().map(|(l, r)| binary(l, Eq, r)), And),
        NotEq => all(pairs().map(|(l, r)| binary(l, NotEq, r)), Or),
        Lt | LtEq | Gt | GtEq => lexicographic(left, op, right).and_then(|whole| {
            let (l, r) = pairs().next()?;
            // Access paths know comparisons of one column. This one is implied, and unknown only
            // where the whole is.
            let weak = if matches!(op, Lt | LtEq) { LtEq } else { GtEq };
            Some(binary(binary(l, weak, r), And, whole))
        }),
        _ => None,
    })
}

/// `left IS [NOT] DISTINCT FROM right` as a binary operator of ours, because DataFusion's form
/// gives quoted strings no type.
pub fn distinction(left: &Expr, right: &Expr, is_distinct: bool) -> Result<Expr> {
    let (name, connective) = match is_distinct {
        true => (IS_DISTINCT_FROM, BinaryOperator::Or),
        false => (IS_NOT_DISTINCT_FROM, BinaryOperator::And),
    };
    let compared = |(left, right): (&Expr, &Expr)| {
        let op = BinaryOperator::Custom(name.to_string());
        binary(left.clone(), op, right.clone())
    };
    let (Some(lefts), Some(rights)) = (columns(left), columns(right)) else {
        return Ok(compared((left, right)));
    };
    check_lengths(lefts, rights)?;
    let all = all(lefts.iter().zip(rights).map(compared), connective);
    Ok(all.unwrap_or_else(|| compared((left, right))))
}

fn check_lengths(left: &[Expr], right: &[Expr]) -> Result<()> {
    if left.len() == right.len() {
        return Ok(());
    }
    Err(Error::invalid(
        SqlState::SYNTAX_ERROR,
        "unequal number of entries in row expressions",
    ))
}

/// The comparison by the first columns, and if they are equal by the next ones.
fn lexicographic(left: &[Expr], op: &BinaryOperator, right: &[Expr]) -> Option<Expr> {
    use BinaryOperator::{And, Eq, Gt, GtEq, Lt, LtEq, Or};
    let (l, r) = (left.first()?.clone(), right.first()?.clone());
    if left.len() == 1 {
        return Some(binary(l, op.clone(), r));
    }
    let strict = match op {
        LtEq => Lt,
        GtEq => Gt,
        other => other.clone(),
    };
    let rest = lexicographic(&left[1..], op, &right[1..])?;
    let tie = binary(binary(l.clone(), Eq, r.clone()), And, rest);
    Some(binary(binary(l, strict, r), Or, tie))
}

/// `row [NOT] IN (row, …)`; `None` if the operand is not a row.
pub fn membership(operand: &Expr, list: &[Expr], negated: bool) -> Result<Option<Expr>> {
    if columns(operand).is_none() {
        return Ok(None);
    }
    let mut conditions = Vec::with_capacity(list.len());
    for row in list {
        match comparison(operand, &BinaryOperator::Eq, row)? {
            Some(condition) => conditions.push(condition),
            None => return Ok(None),
        }
    }
    let any = all(conditions.into_iter(), BinaryOperator::Or);
    Ok(any.map(|any| match negated {
        true => Expr::UnaryOp {
            op: UnaryOperator::Not,
            expr: Box::new(any),
        },
        false => any,
    }))
}

/// The error for `row [NOT] IN (subquery)`.
pub fn in_subquery() -> Error {
    Error::unsupported("a row of several columns IN a subquery is not supported")
        .with_hint("Write EXISTS (SELECT 1 FROM … WHERE a = … AND b = …).")
}

/// `row IS NULL`: all columns are NULL; `row IS NOT NULL`: no column is. `None` if the operand is
/// not a row.
pub fn is_null(expr: &Expr) -> Option<Expr> {
    let (operand, not) = match expr {
        Expr::IsNull(operand) => (operand, false),
        Expr::IsNotNull(operand) => (operand, true),
        _ => return None,
    };
    let columns = written_row(operand)?;
    let each = columns.into_iter().map(|column| match not {
        true => Expr::IsNotNull(Box::new(column)),
        false => Expr::IsNull(Box::new(column)),
    });
    all(each, BinaryOperator::And)
}

/// The columns of `(a, b)` and of `ROW(a, b)`.
fn written_row(expr: &Expr) -> Option<Vec<Expr>> {
    match expr {
        Expr::Tuple(columns) => Some(columns.clone()),
        Expr::Nested(inner) => written_row(inner),
        Expr::Function(function) if last_name(&function.name)? == "row" => {
            let FunctionArguments::List(list) = &function.args else {
                return None;
            };
            let columns = list.args.iter().map(|arg| match arg {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(column)) => Some(column.clone()),
                _ => None,
            });
            columns.collect()
        }
        _ => None,
    }
}
