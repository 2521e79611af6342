//! `x op ANY (array)`. DataFusion says false where no element compares as true, although with NULL
//! among the elements the answer is NULL; its ALL is right, and `x = ANY (a)` is
//! `NOT x <> ALL (a)`. For the elements of a written array IN says the same, and scans know how to
//! prune by it.

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, UnaryOperator};

/// The comparison in other words; `None` for a subquery and operators without an opposite.
pub fn any(left: &Expr, op: &BinaryOperator, right: &Expr) -> Option<Expr> {
    use BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    if matches!(right, Expr::Subquery(_)) {
        return None;
    }
    if let (Eq, Expr::Array(array)) = (op, right)
        && !array.elem.is_empty()
    {
        return Some(Expr::InList {
            expr: Box::new(left.clone()),
            list: array.elem.clone(),
            negated: false,
        });
    }
    let opposite = match op {
        Eq => NotEq,
        NotEq => Eq,
        Lt => GtEq,
        LtEq => Gt,
        Gt => LtEq,
        GtEq => Lt,
        _ => return None,
    };
    Some(Expr::UnaryOp {
        op: UnaryOperator::Not,
        expr: Box::new(Expr::AllOp {
            left: Box::new(left.clone()),
            compare_op: opposite,
            right: Box::new(right.clone()),
        }),
    })
}
