//! Expressions that no row decides: parameters, literals, `now()`.

use super::scope::Compiler;
use super::source::Source;
use crate::parse::lifted_literals::number_value;
use crate::parse::names;
use crate::parse::params;
use crate::values::parameter_value::integer;
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::{self, CastKind, Expr, UnaryOperator, Value as Literal};
use strandline_base::SqlType;
use strandline_semantics::types;

impl Compiler<'_> {
    /// An expression that no row decides.
    pub(super) fn constant(&self, expr: &Expr) -> Option<Source> {
        match expr {
            Expr::Nested(inner) => self.constant(inner),
            Expr::Value(value) => match &value.value {
                Literal::Placeholder(name) => {
                    let index = params::number(name).ok()? - 1;
                    let known = self.types.get(index).copied().flatten();
                    Some(Source::Parameter(index, known, false))
                }
                other => literal(other).map(Source::Literal),
            },
            Expr::UnaryOp {
                op: UnaryOperator::Minus,
                expr,
            } => match self.constant(expr)? {
                Source::Parameter(index, known, negated) => {
                    (!negated).then_some(Source::Parameter(index, known, true))
                }
                Source::Literal(value) => negated(&value).map(Source::Literal),
                Source::Read(..)
                | Source::Now
                | Source::Identity
                | Source::Computed(_)
                | Source::Query(..) => None,
            },
            Expr::Cast {
                kind: CastKind::Cast | CastKind::DoubleColon,
                expr,
                data_type,
                array: false,
                format: None,
            } => {
                let to = types::from_ast(data_type).ok()??;
                let has_modifier = matches!(
                    to,
                    SqlType::Varchar(_) | SqlType::Char(_) | SqlType::Numeric { .. }
                );
                match self.constant(expr)? {
                    _ if has_modifier || to == SqlType::Json => None,
                    // A parameter that is of the type already.
                    same @ Source::Parameter(_, Some(known), false) if known == to => Some(same),
                    Source::Parameter(index, None, false) => Some(Source::Read(index, to)),
                    _ => None,
                }
            }
            Expr::Subquery(query) => self.subquery(query),
            Expr::Function(function) if is_now(function) => {
                self.asks_now.set(true);
                Some(Source::Now)
            }
            _ => None,
        }
    }
}

/// The value of an argument of EXECUTE, which may be one of the `outer` parameters, as the type
/// that PREPARE declares; None: it is to be computed.
pub(crate) fn argument(
    expr: &Expr,
    outer: &[ScalarValue],
    declared: Option<&ast::DataType>,
) -> Option<ScalarValue> {
    let value = match expr {
        Expr::Value(value) => match &value.value {
            Literal::Placeholder(name) => outer.get(params::number(name).ok()? - 1)?.clone(),
            other => literal(other)?,
        },
        Expr::UnaryOp {
            op: UnaryOperator::Minus,
            expr,
        } => match expr.as_ref() {
            Expr::Value(value) => negated(&literal(&value.value)?)?,
            _ => return None,
        },
        _ => return None,
    };
    let Some(declared) = declared else {
        return Some(value);
    };
    // Without a type it is numeric of any shape.
    let Some(to) = types::from_ast(declared).ok()? else {
        return Some(value);
    };
    as_declared(value, to)
}

/// A literal as the declared type, if that is sure to be what a cast gives.
fn as_declared(value: ScalarValue, to: SqlType) -> Option<ScalarValue> {
    use ScalarValue as S;
    let number = integer(&value);
    Some(match (to, number) {
        (SqlType::SmallInt, Some(v)) => S::Int16(Some(i16::try_from(v).ok()?)),
        (SqlType::Integer, Some(v)) => S::Int32(Some(i32::try_from(v).ok()?)),
        (SqlType::BigInt, Some(v)) => S::Int64(Some(v)),
        (SqlType::Varchar(_) | SqlType::Char(_) | SqlType::Numeric { .. }, _) => return None,
        _ => value,
    })
}

fn literal(value: &Literal) -> Option<ScalarValue> {
    match value {
        Literal::Null => Some(ScalarValue::Null),
        Literal::Boolean(v) => Some(ScalarValue::Boolean(Some(*v))),
        Literal::SingleQuotedString(text) => Some(ScalarValue::Utf8(Some(text.clone()))),
        Literal::Number(digits, false) => number_value(digits),
        _ => None,
    }
}

fn negated(value: &ScalarValue) -> Option<ScalarValue> {
    match value {
        ScalarValue::Int32(Some(v)) => Some(ScalarValue::Int32(Some(-v))),
        ScalarValue::Int64(Some(v)) => Some(ScalarValue::Int64(Some(-v))),
        ScalarValue::Decimal128(Some(v), p, s) => Some(ScalarValue::Decimal128(Some(-v), *p, *s)),
        _ => None,
    }
}

/// Whether a call is of `now()` or one of its other names.
fn is_now(function: &ast::Function) -> bool {
    let no_arguments = match &function.args {
        ast::FunctionArguments::None => true,
        ast::FunctionArguments::List(list) => {
            list.args.is_empty() && list.clauses.is_empty() && list.duplicate_treatment.is_none()
        }
        ast::FunctionArguments::Subquery(_) => false,
    };
    let [ast::ObjectNamePart::Identifier(name)] = function.name.0.as_slice() else {
        return false;
    };
    let plain = function.over.is_none()
        && function.filter.is_none()
        && function.null_treatment.is_none()
        && function.within_group.is_empty();
    let name = names::fold(name);
    no_arguments && plain && matches!(name.as_str(), "now" | "current_timestamp")
}
