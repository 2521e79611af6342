//! Gives casts PostgreSQL's behaviour: casts that Arrow does differently become
//! [`CastTo`](crate::cast::CastTo), impossible casts are refused, and casts of literals are
//! evaluated.

use super::rewrite_expressions;
use crate::cast::{CAST_AS, Kind, Mode, array_cast, as_cast, cast_expression, cast_target, kind};
use crate::error::invalid;
use crate::functions::{Function, trim_blanks};
use crate::types::{arrow_type, sql_name, sql_type_of, sql_type_of_arrow};
use datafusion::arrow::datatypes::Field;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{Cast, Expr, ExprSchemable, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;
use std::sync::Arc;
use strandline_base::{SqlState, SqlType};

/// The rule.
#[derive(Debug)]
pub struct Casts;

impl AnalyzerRule for Casts {
    fn name(&self) -> &str {
        "postgres_casts"
    }
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        rewrite_expressions(plan, is_concerned, |expr, schema| {
            refuse_implicit_text(&expr, schema)?;
            expr.transform_up(|expr| match as_cast(&expr) {
                Some(cast) => Ok(Transformed::yes(rewrite(cast, schema)?.data)),
                None => match expr {
                    Expr::Cast(cast) => rewrite(cast, schema),
                    Expr::ScalarFunction(_) => settle(expr, schema),
                    other => Ok(Transformed::no(other)),
                },
            })
        })
    }
}

/// Whether the rule looks at the expression.
fn is_concerned(expr: &Expr) -> bool {
    matches!(
        expr,
        Expr::Cast(_) | Expr::ScalarFunction(_) | Expr::AggregateFunction(_)
    )
}

/// Refuses implicit casts to text: DataFusion converts any argument of a text function, but
/// PostgreSQL has no such function.
fn refuse_implicit_text(expr: &Expr, schema: &DFSchema) -> Result<()> {
    expr.apply(|expr| {
        let (name, args) = match expr {
            Expr::ScalarFunction(call) => (call.name(), &call.args),
            Expr::AggregateFunction(call) => (call.func.name(), &call.params.args),
            _ => return Ok(TreeNodeRecursion::Continue),
        };
        for arg in args {
            let Expr::Cast(cast) = arg else { continue };
            let source = cast.expr.get_type(schema)?;
            let to_text = cast.field.data_type().is_string() && cast.field.metadata().is_empty();
            let other = !source.is_string() && !source.is_null();
            if to_text && other && name != CAST_AS && sql_type_of_arrow(&source).is_some() {
                return Err(invalid(
                    SqlState::UNDEFINED_FUNCTION,
                    format!("function {name}({}) does not exist", sql_name(&source)),
                ));
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })
    .map(|_| ())
}

/// Fixes the result type of a function that depends on literal arguments.
fn settle(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let Expr::ScalarFunction(call) = &expr else {
        return Ok(Transformed::no(expr));
    };
    let Some(function) = call.func.inner().downcast_ref::<Function>() else {
        return Ok(Transformed::no(expr));
    };
    let Some(settled) = function.settled(&expr.get_type(schema)?) else {
        return Ok(Transformed::no(expr));
    };
    let func = Arc::new(settled.into_udf());
    let args = call.args.clone();
    Ok(Transformed::yes(Expr::ScalarFunction(ScalarFunction {
        func,
        args,
    })))
}

/// Rewrites one cast; see the module's header.
fn rewrite(cast: Cast, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let (_, from) = cast.expr.to_field(schema)?;
    match replacement(&cast.expr, &from, &cast.field)? {
        Some(replaced) => Ok(Transformed::yes(replaced)),
        None => Ok(Transformed::no(Expr::Cast(cast))),
    }
}

/// The replacement of a native cast of `operand`, of type `from`, to `target`. `None` if the native
/// cast is right, or if a type is not an SQL type.
pub fn replacement(operand: &Expr, from: &Field, target: &Field) -> Result<Option<Expr>> {
    let source = from.data_type();
    if let Some(cast) = array_cast(operand, source, target.data_type())? {
        return match sql_type_of(target) {
            Some(to @ (SqlType::Varchar(_) | SqlType::Char(_))) => {
                cast_expression(cast, target.data_type(), to, Mode::Explicit).map(Some)
            }
            _ => Ok(Some(cast)),
        };
    }
    if sql_type_of_arrow(source).is_none() {
        return Ok(None);
    }
    let explicit = |to| {
        let operand = match to {
            SqlType::Bytea => operand.clone(),
            _ => without_blanks(operand, from),
        };
        cast_expression(operand, source, to, Mode::Explicit)
    };
    let literal = match operand {
        Expr::Literal(value, _) => Some(value),
        _ => None,
    };
    if let Some(to) = cast_target(literal, source, target)? {
        let native = kind(source, to, Mode::Explicit) == Some(Kind::Native);
        let keep = native && arrow_type(to) == *target.data_type();
        return if keep {
            Ok(None)
        } else {
            explicit(to).map(Some)
        };
    }
    // Strings in the layout of DataFusion's functions.
    let target = target.data_type();
    if target.is_string() && !source.is_string() && !source.is_null() {
        let text = Box::new(explicit(SqlType::Text)?);
        return Ok(Some(Expr::Cast(Cast::new(text, target.clone()))));
    }
    Ok(None)
}

/// char(n) loses its trailing blanks in a cast to any other type but bytea.
fn without_blanks(operand: &Expr, from: &Field) -> Expr {
    match sql_type_of(from) {
        Some(SqlType::Char(_)) if !matches!(operand, Expr::Literal(..)) => {
            trim_blanks(operand.clone())
        }
        _ => operand.clone(),
    }
}
