//! `x op ANY (array)`. DataFusion says false where no element compares as true, although with NULL
//! among the elements the answer is NULL; its ALL is right, and `x = ANY (a)` is
//! `NOT x <> ALL (a)`. For the elements of a written array IN says the same, and scans know how to
//! prune by it.

use super::calls;
use crate::semantics::text::array;
use datafusion::sql::sqlparser::ast::{
    Array, ArrayElemTypeDef, BinaryOperator, DataType, Expr, UnaryOperator, Value,
};
use strandline_base::Result;

/// A written array of the items of an array's text; `None` if it is no text of one.
pub fn written(text: &Expr, item: Option<&DataType>) -> Result<Option<Expr>> {
    let Expr::Value(value) = text else {
        return Ok(None);
    };
    let Value::SingleQuotedString(text) = &value.value else {
        return Ok(None);
    };
    let elem = array::items(text)?.into_iter().map(|text| {
        let text = text.map_or(Value::Null, Value::SingleQuotedString);
        let text = Expr::Value(text.into());
        match item {
            Some(item) => calls::cast(text, item.clone()),
            None => text,
        }
    });
    Ok(Some(Expr::Array(Array {
        elem: elem.collect(),
        named: true,
    })))
}

/// `'{1,2}'::t[]` as a written array; `None` for other casts, and where there are no items to tell
/// the array's type.
pub fn cast(expr: &Expr) -> Result<Option<Expr>> {
    let Expr::Cast {
        expr: text,
        data_type: DataType::Array(ArrayElemTypeDef::SquareBracket(item, _)),
        ..
    } = expr
    else {
        return Ok(None);
    };
    let array = written(text, Some(item))?;
    Ok(array.filter(|array| !matches!(array, Expr::Array(items) if items.elem.is_empty())))
}

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
