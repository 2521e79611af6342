//! `x op ANY (array)`, `x op ALL (array)` and arrays written as text. For a written array `= ANY`
//! becomes IN over its elements, and `<> ALL` becomes NOT IN: scans can find rows by a list of
//! keys. For any other array it becomes a call of `compare_any` or `compare_all`, because
//! DataFusion's translation of ANY ignores NULL elements. Subscripts become calls too, because
//! DataFusion counts negative ones from an array's end.

use super::cast_syntax::cast as cast_to;
use super::{calls, moments, numbers};
use crate::functions::{ARRAY_ITEM, ARRAY_PART};
use crate::text::array::{self, Item};
use datafusion::sql::sqlparser::ast::{
    AccessExpr, Array, ArrayElemTypeDef, BinaryOperator, DataType, Expr, Subscript, Value,
};
use strandline_base::{Error, Result};

/// An array's text as a written array; `None` if the text is not an array.
pub fn written(text: &Expr, item: Option<&DataType>) -> Result<Option<Expr>> {
    let Expr::Value(value) = text else {
        return Ok(None);
    };
    let Value::SingleQuotedString(text) = &value.value else {
        return Ok(None);
    };
    of_items(array::items(text)?, item).map(Some)
}

fn of_items(items: Vec<Item>, item: Option<&DataType>) -> Result<Expr> {
    let elem = items.into_iter().map(|read| {
        let value = match read {
            Item::Array(inner) => return of_items(inner, item),
            Item::Null => Value::Null,
            Item::Text(text) => Value::SingleQuotedString(text),
        };
        let value = Expr::Value(value.into());
        match item {
            Some(item) => moments::restricted_cast(value, item),
            None => Ok(value),
        }
    });
    Ok(Expr::Array(Array {
        elem: elem.collect::<Result<_>>()?,
        named: true,
    }))
}

/// `'{1,2}'::t[]` as a written array; `None` for other casts, and without items, which determine
/// the array's type.
///
/// # Errors
/// 0A000 for items of a bounded length unless the array is written.
pub fn cast(expr: &Expr) -> Result<Option<Expr>> {
    let Expr::Cast {
        expr: text,
        data_type: DataType::Array(ArrayElemTypeDef::SquareBracket(item, _)),
        ..
    } = expr
    else {
        return Ok(None);
    };
    if is_bounded(item) && !matches!(text.as_ref(), Expr::Value(_)) {
        return Err(
            Error::unsupported(format!("a cast of an array to {item}[] is not supported"))
                .with_hint("Cast to text[], or the items one by one."),
        );
    }
    let array = written(text, Some(item))?;
    Ok(array.filter(|array| !matches!(array, Expr::Array(items) if items.elem.is_empty())))
}

/// A written array of nothing but empty arrays, which is an empty array.
pub fn is_hollow(expr: &Expr) -> bool {
    match expr {
        Expr::Array(array) => array.elem.iter().all(is_hollow),
        Expr::Nested(inner) => is_hollow(inner),
        _ => false,
    }
}

/// Whether a cast to the type cuts or fills texts.
fn is_bounded(data_type: &DataType) -> bool {
    match data_type {
        DataType::Varchar(length)
        | DataType::CharacterVarying(length)
        | DataType::CharVarying(length) => length.is_some(),
        DataType::Char(_) | DataType::Character(_) => true,
        _ => false,
    }
}

/// `left op a join left op b …`, as a balanced tree.
fn each(left: &Expr, op: &BinaryOperator, items: &[Expr], join: &BinaryOperator) -> Expr {
    let binary = |left: Expr, op: &BinaryOperator, right: Expr| Expr::BinaryOp {
        left: Box::new(left),
        op: op.clone(),
        right: Box::new(right),
    };
    match items {
        [item] => binary(left.clone(), op, item.clone()),
        items => {
            let (first, second) = items.split_at(items.len() / 2);
            let first = each(left, op, first, join);
            binary(first, join, each(left, op, second, join))
        }
    }
}

/// The rewritten comparison; `None` for a subquery and for operators that are not comparisons.
pub fn quantified(left: &Expr, op: &BinaryOperator, right: &Expr, all: bool) -> Option<Expr> {
    use BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    if matches!(right, Expr::Subquery(_)) || !matches!(op, Eq | Gt | GtEq | Lt | LtEq | NotEq) {
        return None;
    }
    if let Expr::Array(array) = right {
        let is_list = matches!((op, all), (Eq, false) | (NotEq, true));
        if array.elem.is_empty() {
            return Some(Expr::Value(Value::Boolean(all).into()));
        }
        // IN makes decimals beside a real reals, ANY compares them as they are.
        let no_list = |e: &Expr| matches!(e, Expr::Array(_)) || numbers::is_decimal(e);
        if is_list && !array.elem.iter().any(no_list) {
            return Some(Expr::InList {
                expr: Box::new(left.clone()),
                list: array.elem.clone(),
                negated: all,
            });
        }
        // Literals take their types from the other operand.
        let open = |e: &Expr| match e {
            Expr::Value(v) => matches!(v.value, Value::SingleQuotedString(_) | Value::Null),
            other => is_list && !matches!(other, Expr::Array(_)),
        };
        if array.elem.iter().all(open) {
            let join = if all {
                BinaryOperator::And
            } else {
                BinaryOperator::Or
            };
            return Some(each(left, op, &array.elem, &join));
        }
    }
    let name = if all { "compare_all" } else { "compare_any" };
    let symbol = Expr::Value(Value::SingleQuotedString(op.to_string()).into());
    Some(calls::call(name, vec![symbol, left.clone(), right.clone()]))
}

/// A subscript as an integer; a literal stays a literal.
fn whole(index: &Expr) -> Expr {
    let mut plain = index.clone();
    numbers::restore(&mut plain);
    match plain {
        Expr::Value(_) => plain,
        other => cast_to(other, DataType::BigInt(None)),
    }
}

/// `array[i][j]` as a call, `array[i:j]` as another; `None` for access to fields. If one of several
/// subscripts is a range, `[n]` means `[1:n]`.
pub fn subscripted(root: &Expr, chain: &[AccessExpr]) -> Option<Expr> {
    let subscripts: Option<Vec<&Subscript>> = chain
        .iter()
        .map(|access| match access {
            AccessExpr::Subscript(subscript) => Some(subscript),
            AccessExpr::Dot(_) => None,
        })
        .collect();
    let subscripts = subscripts?;
    let parts = subscripts
        .iter()
        .any(|s| matches!(s, Subscript::Slice { .. }));
    let mut args = vec![root.clone()];
    for subscript in subscripts {
        match subscript {
            Subscript::Index { index } if parts => args.extend([numbers::plain("1"), whole(index)]),
            Subscript::Index { index } => args.push(whole(index)),
            Subscript::Slice {
                lower_bound,
                upper_bound,
                ..
            } => {
                let bound = |bound: &Option<Expr>, open: i32| match bound {
                    Some(bound) => whole(bound),
                    None => numbers::plain(&open.to_string()),
                };
                args.push(bound(lower_bound, -i32::MAX));
                args.push(bound(upper_bound, i32::MAX));
            }
        }
    }
    let name = if parts { ARRAY_PART } else { ARRAY_ITEM };
    Some(calls::call(name, args))
}
