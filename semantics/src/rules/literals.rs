//! Gives open literals types from their context, and gives comparisons and negation PostgreSQL's
//! behaviour. It runs before DataFusion's type coercion, which would choose other operand types.

use super::alternatives::{are_intervals, extreme_interval, takes_alternatives};
use super::comparands::{name_comparand, widen_keys};
use super::multisets::count_duplicates;
use super::recursion::check_recursion;
use super::rewrite_expressions;
use super::unions::align_unions;
use crate::align::{for_comparison, for_union, is_json, is_unknown};
use crate::arithmetic::{self, Operation};
use crate::cast::CAST_AS;
use crate::error::invalid;
use crate::functions::{as_json, trim_blanks, unsigned_zero};
use crate::types::{sql_name, sql_type_of};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result, internal_err};
use datafusion::logical_expr::expr::{Case, InList, ScalarFunction};
use datafusion::logical_expr::{Between, BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator};
use datafusion::optimizer::AnalyzerRule;
use datafusion::scalar::ScalarValue;
use strandline_base::{SqlState, SqlType};

/// The rule.
#[derive(Debug)]
pub struct ResolveLiterals;

impl AnalyzerRule for ResolveLiterals {
    fn name(&self) -> &str {
        "postgres_literals"
    }
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let combines = check_recursion(&plan)?;
        let plan = rewrite_expressions(plan, is_concerned, |expr, schema| {
            expr.transform_up(|e| rewrite(e, schema))
        })?;
        if !combines {
            return Ok(plan);
        }
        count_duplicates(align_unions(widen_keys(plan)?)?)
    }
}

/// Whether [`rewrite`] may change the expression.
fn is_concerned(expr: &Expr) -> bool {
    match expr {
        Expr::BinaryExpr(binary) => is_comparison(binary.op),
        Expr::Between(_)
        | Expr::InList(_)
        | Expr::Case(_)
        | Expr::Negative(_)
        | Expr::ScalarFunction(_)
        | Expr::SetComparison(_)
        | Expr::InSubquery(_) => true,
        _ => false,
    }
}

fn rewrite(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    Ok(Transformed::yes(match expr {
        Expr::BinaryExpr(binary) if is_comparison(binary.op) => comparison(binary, schema)?,
        Expr::Between(between) => Expr::Between(align_between(between, schema)?),
        Expr::InList(list) => align_list(list, schema)?,
        Expr::Case(case) => {
            let case = align_case(case, schema)?;
            let thens = case.when_then_expr.iter().map(|(_, then)| then.as_ref());
            let results = thens.chain(case.else_expr.as_deref()).cloned();
            let json = is_json(&results.collect::<Vec<_>>(), schema)?;
            with_type(Expr::Case(case), json)
        }
        Expr::Negative(operand) => negation(*operand, schema)?,
        Expr::ScalarFunction(call) if call.name() == "nullif" && compares(&call, schema)? => {
            null_if(call.args, schema)?
        }
        Expr::ScalarFunction(call) if takes_alternatives(call.name()) => {
            let args = for_union(call.args, schema)?;
            if matches!(call.func.name(), "greatest" | "least") && are_intervals(&args, schema)? {
                return Ok(Transformed::yes(extreme_interval(call.func.name(), args)?));
            }
            let json = call.func.name() != "make_array" && is_json(&args, schema)?;
            let call = ScalarFunction {
                func: call.func,
                args,
            };
            with_type(Expr::ScalarFunction(call), json)
        }
        Expr::ScalarFunction(call) if !keeps_blanks(call.name()) => {
            return without_blanks(call, schema);
        }
        Expr::SetComparison(_) | Expr::InSubquery(_) => name_comparand(expr, schema)?,
        other => return Ok(Transformed::no(other)),
    }))
}

/// An expression with alternatives, marked as json if `json`.
fn with_type(expr: Expr, json: bool) -> Expr {
    match json {
        true => as_json(expr),
        false => expr,
    }
}

/// Functions that keep the padding of char(n) arguments.
fn keeps_blanks(name: &str) -> bool {
    matches!(
        name,
        "octet_length" | "bit_length" | "concat" | "concat_ws" | "format" | "pg_typeof" | CAST_AS
    )
}

/// Converts char(n) arguments to text, which removes their trailing blanks.
fn without_blanks(call: ScalarFunction, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let mut changed = false;
    let mut args = Vec::with_capacity(call.args.len());
    for arg in call.args {
        let is_char = matches!(&arg, Expr::Column(_) | Expr::ScalarFunction(_))
            && matches!(
                sql_type_of(&arg.to_field(schema)?.1),
                Some(SqlType::Char(_))
            );
        changed |= is_char;
        args.push(if is_char { trim_blanks(arg) } else { arg });
    }
    let call = Expr::ScalarFunction(ScalarFunction {
        func: call.func,
        args,
    });
    Ok(if changed {
        Transformed::yes(call)
    } else {
        Transformed::no(call)
    })
}

fn is_comparison(op: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(
        op,
        Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom
    )
}

/// Aligns two operands.
fn pair(left: Expr, right: Expr, symbol: &str, schema: &DFSchema) -> Result<(Expr, Expr)> {
    let mut aligned = for_comparison(vec![left, right], symbol, schema)?.into_iter();
    Ok((
        aligned.next().unwrap_or_default(),
        aligned.next().unwrap_or_default(),
    ))
}

fn comparison(binary: BinaryExpr, schema: &DFSchema) -> Result<Expr> {
    let symbol = match binary.op {
        Operator::NotEq => "<>".to_string(),
        Operator::IsDistinctFrom | Operator::IsNotDistinctFrom => "=".to_string(),
        op => op.to_string(),
    };
    let (left, right) = pair(*binary.left, *binary.right, &symbol, schema)?;
    Ok(Expr::BinaryExpr(BinaryExpr::new(
        Box::new(left),
        binary.op,
        Box::new(right),
    )))
}

fn align_between(between: Between, schema: &DFSchema) -> Result<Between> {
    let operands = vec![*between.expr, *between.low, *between.high];
    let mut aligned = for_comparison(operands, ">=", schema)?.into_iter();
    let mut next = || Box::new(aligned.next().unwrap_or_default());
    Ok(Between::new(next(), between.negated, next(), next()))
}

/// PostgreSQL compares several constants beside a real as reals, and each other item by itself, in
/// double precision.
fn align_list(list: InList, schema: &DFSchema) -> Result<Expr> {
    let is_constant = |item: &&Expr| item.column_refs().is_empty();
    let constants: Vec<Expr> = list.list.iter().filter(is_constant).cloned().collect();
    let is_real = list.expr.get_type(schema)? == DataType::Float32;
    if !is_real || constants.len() < 2 || !are_numbers(&constants, schema)? {
        return align_operands(list, schema).map(Expr::InList);
    }
    let operands = std::iter::once(list.expr.as_ref().clone()).chain(constants);
    let mut aligned = for_union(operands.collect(), schema)?.into_iter();
    let operand = Box::new(aligned.next().unwrap_or_default());
    let mut found = Expr::InList(InList::new(operand, aligned.collect(), false));
    for item in list.list.iter().filter(|item| !is_constant(item)) {
        let equality = BinaryExpr::new(list.expr.clone(), Operator::Eq, Box::new(item.clone()));
        found = found.or(comparison(equality, schema)?);
    }
    Ok(match (list.negated, found) {
        (true, Expr::InList(list)) => Expr::InList(InList {
            negated: true,
            ..list
        }),
        (true, found) => Expr::Not(Box::new(found)),
        (false, found) => found,
    })
}

/// Whether all are numbers, quoted strings without a type, or NULL.
fn are_numbers(exprs: &[Expr], schema: &DFSchema) -> Result<bool> {
    for expr in exprs {
        let data_type = expr.get_type(schema)?;
        if !is_unknown(expr) && !data_type.is_null() && !data_type.is_numeric() {
            return Ok(false);
        }
    }
    Ok(true)
}

fn align_operands(list: InList, schema: &DFSchema) -> Result<InList> {
    let operands = std::iter::once(*list.expr).chain(list.list).collect();
    let mut aligned = for_comparison(operands, "=", schema)?.into_iter();
    let operand = Box::new(aligned.next().unwrap_or_default());
    Ok(InList::new(operand, aligned.collect(), list.negated))
}

/// Whether NULLIF compares its arguments otherwise than it has them: floats, whose bits DataFusion
/// would compare, and char(n) beside other strings.
fn compares(call: &ScalarFunction, schema: &DFSchema) -> Result<bool> {
    let [value, _] = call.args.as_slice() else {
        return Ok(false);
    };
    for arg in &call.args {
        let (_, field) = arg.to_field(schema)?;
        let is_char = matches!(sql_type_of(&field), Some(SqlType::Char(_)));
        if is_char || field.data_type().is_floating() {
            return Ok(!value.is_volatile());
        }
    }
    Ok(false)
}

/// NULLIF as CASE.
fn null_if(args: Vec<Expr>, schema: &DFSchema) -> Result<Expr> {
    let Ok([value, other]) = <[Expr; 2]>::try_from(args) else {
        return internal_err!("nullif takes two arguments");
    };
    let null = ScalarValue::try_from(value.get_type(schema)?)?;
    let equality = BinaryExpr::new(Box::new(value.clone()), Operator::Eq, Box::new(other));
    let equal = comparison(equality, schema)?;
    let whens = vec![(Box::new(equal), Box::new(Expr::Literal(null, None)))];
    Ok(Expr::Case(Case::new(None, whens, Some(Box::new(value)))))
}

/// Aligns the operand with the compared values, and the results with each other.
fn align_case(case: Case, schema: &DFSchema) -> Result<Case> {
    let (whens, thens): (Vec<_>, Vec<_>) = case
        .when_then_expr
        .into_iter()
        .map(|(w, t)| (*w, *t))
        .unzip();
    let (operand, whens) = match case.expr {
        Some(operand) => {
            let compared = std::iter::once(*operand).chain(whens).collect();
            let aligned = for_comparison(compared, "=", schema)?.into_iter();
            // DataFusion compares the bits of the operand and the values.
            let mut aligned = aligned.map(|value| match value.get_type(schema) {
                Ok(t) if t.is_floating() => unsigned_zero(value),
                _ => value,
            });
            (aligned.next().map(Box::new), aligned.collect())
        }
        None => {
            for when in &whens {
                require_boolean(when, schema)?;
            }
            (None, whens)
        }
    };
    let results = thens
        .into_iter()
        .chain(case.else_expr.map(|e| *e))
        .collect();
    let mut results = for_union(results, schema)?.into_iter();
    let pairs = whens
        .into_iter()
        .map(|when| (Box::new(when), Box::new(results.next().unwrap_or_default())))
        .collect();
    Ok(Case::new(operand, pairs, results.next().map(Box::new)))
}

fn require_boolean(when: &Expr, schema: &DFSchema) -> Result<()> {
    let data_type = when.get_type(schema)?;
    if is_unknown(when) || matches!(data_type, DataType::Boolean | DataType::Null) {
        return Ok(());
    }
    Err(invalid(
        SqlState::DATATYPE_MISMATCH,
        format!(
            "argument of CASE/WHEN must be type boolean, not type {}",
            sql_name(&data_type)
        ),
    ))
}

/// `-x` as `0 - x` where it can overflow, and as `-1 * x` of floats, whose NaN must stay as it is.
fn negation(operand: Expr, schema: &DFSchema) -> Result<Expr> {
    let data_type = operand.get_type(schema)?;
    let zero = match data_type {
        DataType::Int8 | DataType::Int16 => ScalarValue::Int16(Some(0)),
        DataType::Int32 => ScalarValue::Int32(Some(0)),
        DataType::Int64 => ScalarValue::Int64(Some(0)),
        DataType::Float32 => return Ok(product(ScalarValue::Float32(Some(-1.0)), operand)),
        DataType::Float64 => return Ok(product(ScalarValue::Float64(Some(-1.0)), operand)),
        _ => return Ok(Expr::Negative(Box::new(operand))),
    };
    Ok(arithmetic::expression(
        Operation::Subtract,
        Expr::Literal(zero, None),
        operand,
    ))
}

fn product(factor: ScalarValue, operand: Expr) -> Expr {
    arithmetic::expression(Operation::Multiply, Expr::Literal(factor, None), operand)
}
