//! Array parameters.
//!
//! The value of an array parameter is its text, `{1,2}`. Like a quoted literal it becomes an array
//! by a cast, or by the type that ANY or ALL compares it with. A parameter declared as an array is
//! cast in its place ([`declare`]), and its statement's plan is not kept for other values. A
//! statement is described with a sample in the array's place ([`sample`]).

use crate::parse::params;
use datafusion::sql::sqlparser::ast::{
    ArrayElemTypeDef, DataType, Expr, Value as Literal, ValueWithSpan, VisitMut, VisitorMut,
};
use std::ops::ControlFlow;
use strandline_base::SqlType;
use strandline_semantics::sql::cast;
use strandline_semantics::sql::walk::walk_mut;
use strandline_semantics::types;

/// The type of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ParameterType {
    /// one value
    Value(SqlType),
    /// an array of values of this type
    Array(SqlType),
}

/// The item type of an array parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Items {
    /// from a cast to an array of this type
    Known(SqlType),
    /// the type of the operand that ANY or ALL compares with the items
    Compared,
}

/// The number of a parameter, from 0.
fn parameter(expr: &Expr) -> Option<usize> {
    match expr {
        Expr::Value(ValueWithSpan {
            value: Literal::Placeholder(name),
            ..
        }) => params::number(name).ok().map(|number| number - 1),
        Expr::Nested(inner) => parameter(inner),
        _ => None,
    }
}

/// `t[]`
pub(super) fn array_of(item: SqlType) -> Option<DataType> {
    let text = format!("CAST(NULL AS {}[])", params::type_name(item));
    match crate::parse::expression(&text) {
        Ok(Expr::Cast { data_type, .. }) => Some(data_type),
        _ => None,
    }
}

/// Casts every parameter that has an array type in `types` to that type.
pub(super) fn declare<T: VisitMut>(tree: &mut T, types: &[Option<DataType>]) {
    struct Declare<'a>(&'a [Option<DataType>]);
    impl VisitorMut for Declare<'_> {
        type Break = ();
        fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            if let Some(number) = parameter(expr)
                && !matches!(expr, Expr::Nested(_))
                && let Some(Some(data_type)) = self.0.get(number)
            {
                *expr = cast(expr.clone(), data_type.clone());
            }
            ControlFlow::Continue(())
        }
    }
    if types.iter().any(Option::is_some) {
        let _ = walk_mut(tree, &mut Declare(types));
    }
}

/// Puts a sample in the place of each array parameter, and returns the item type per parameter
/// (`None`: not an array). A cast gets an empty array. ANY or ALL becomes a plain comparison, so
/// that the parameter gets the type of the items.
pub(super) fn sample<T: VisitMut>(tree: &mut T, count: usize) -> Vec<Option<Items>> {
    struct Sample(Vec<Option<Items>>);
    impl VisitorMut for Sample {
        type Break = ();
        fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            match expr {
                Expr::Cast {
                    expr: operand,
                    data_type: DataType::Array(ArrayElemTypeDef::SquareBracket(item, _)),
                    ..
                } => {
                    if let Some(number) = parameter(operand)
                        && let Some(slot) = self.0.get_mut(number)
                    {
                        let item = types::from_ast(item).ok().flatten();
                        *slot = Some(Items::Known(item.unwrap_or(super::description::NUMERIC)));
                        let empty = Literal::SingleQuotedString("{}".to_string());
                        **operand = Expr::Value(empty.into());
                    }
                }
                Expr::AnyOp {
                    left,
                    compare_op,
                    right,
                    ..
                }
                | Expr::AllOp {
                    left,
                    compare_op,
                    right,
                } => {
                    if let Some(number) = parameter(right)
                        && let Some(slot) = self.0.get_mut(number)
                    {
                        *slot = Some(Items::Compared);
                        *expr = Expr::BinaryOp {
                            left: left.clone(),
                            op: compare_op.clone(),
                            right: right.clone(),
                        };
                    }
                }
                _ => {}
            }
            ControlFlow::Continue(())
        }
    }
    let mut samples = Sample(vec![None; count]);
    let _ = walk_mut(tree, &mut samples);
    samples.0
}
