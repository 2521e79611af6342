//! Planning of binary operators: arithmetic with our own functions, `||` with operands of any type,
//! comparisons of operands with a common type, and the operators that DataFusion lacks.

use super::align::{for_comparison, is_unknown, shortest_numeric};
use super::arithmetic::{self, Operation};
use super::cast::{Mode, as_cast, cast_expression, literal_shape};
use super::error::{invalid, raise};
use super::functions::{self, SpatialOperator, trim_blanks, unsigned_zero};
use super::rules::replacement;
use super::types::{
    arrow_type, has_floats, is_geometric, sql_name, sql_type_of, sql_type_of_arrow,
};
use datafusion::arrow::datatypes::{DataType, Field, IntervalUnit};
use datafusion::common::{DFSchema, Result};
use datafusion::error::DataFusionError;
use datafusion::functions_nested::expr_fn::array_has_all;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, Operator};
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::BinaryOperator;
use std::sync::Arc;
use strandline_base::{Error, SqlState, SqlType};

/// The operator with which [`crate::sql`] writes IS DISTINCT FROM.
pub const IS_DISTINCT_FROM: &str = "IS DISTINCT FROM";
/// The operator for IS NOT DISTINCT FROM.
pub const IS_NOT_DISTINCT_FROM: &str = "IS NOT DISTINCT FROM";

/// The hook into DataFusion's SQL planner.
#[derive(Debug)]
pub struct OperatorPlanner;

impl ExprPlanner for OperatorPlanner {
    fn plan_binary_op(
        &self,
        mut expr: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        expr.left = folded(expr.left)?;
        expr.right = folded(expr.right)?;
        if let Some(operation) = arithmetic_operation(&expr.op) {
            let planned = arithmetic_expression(operation, expr.left, expr.right, schema)?;
            return Ok(PlannerResult::Planned(planned));
        }
        if let Some(operator) = spatial_operator(&expr.op)
            && (is_spatial(&expr.left, schema)? || is_spatial(&expr.right, schema)?)
        {
            let planned = spatial_expression(operator, expr.left, expr.right, schema)?;
            return Ok(PlannerResult::Planned(planned));
        }
        let is_open = is_open_parameter(&expr.left, &expr.right)
            && !is_spatial(&expr.left, schema)?
            && !is_spatial(&expr.right, schema)?;
        if comparison_operator(&expr.op) && !is_open {
            let symbol = expr.op.to_string();
            let aligned = for_comparison(vec![expr.left, expr.right], &symbol, schema)?;
            if let Ok([left, right]) = <[Expr; 2]>::try_from(aligned) {
                return Ok(PlannerResult::Original(RawBinaryExpr {
                    op: expr.op,
                    left,
                    right,
                }));
            }
            return datafusion::common::internal_err!("two operands stay two");
        }
        match &expr.op {
            BinaryOperator::Custom(name) if name == IS_DISTINCT_FROM => {
                distinction(expr, Operator::IsDistinctFrom, schema)
            }
            BinaryOperator::Custom(name) if name == IS_NOT_DISTINCT_FROM => {
                distinction(expr, Operator::IsNotDistinctFrom, schema)
            }
            BinaryOperator::StringConcat => concatenation(expr, schema),
            BinaryOperator::PGRegexMatch
            | BinaryOperator::PGRegexIMatch
            | BinaryOperator::PGRegexNotMatch
            | BinaryOperator::PGRegexNotIMatch => {
                expr.right = pattern(expr.right);
                Ok(PlannerResult::Original(expr))
            }
            BinaryOperator::PGBitwiseShiftLeft => shift(expr, Operator::BitwiseShiftLeft, schema),
            BinaryOperator::PGBitwiseShiftRight => shift(expr, Operator::BitwiseShiftRight, schema),
            BinaryOperator::AtArrow | BinaryOperator::ArrowAt => contained(expr, schema),
            BinaryOperator::Arrow => Ok(json(expr, functions::json_get)),
            BinaryOperator::LongArrow => Ok(json(expr, functions::json_get_text)),
            BinaryOperator::HashArrow => Ok(json(expr, |value, path| {
                functions::json_path(value, path, false)
            })),
            BinaryOperator::HashLongArrow => Ok(json(expr, |value, path| {
                functions::json_path(value, path, true)
            })),
            _ => Ok(PlannerResult::Original(expr)),
        }
    }

    fn plan_array_literal(
        &self,
        items: Vec<Expr>,
        _schema: &DFSchema,
    ) -> Result<PlannerResult<Vec<Expr>>> {
        Ok(PlannerResult::Planned(functions::array(items)))
    }

    fn plan_extract(&self, mut args: Vec<Expr>) -> Result<PlannerResult<Vec<Expr>>> {
        match (args.pop(), args.pop()) {
            (Some(value), Some(unit)) => Ok(PlannerResult::Planned(functions::extract(
                unit,
                folded(value)?,
            ))),
            (value, _) => Ok(PlannerResult::Original(value.into_iter().collect())),
        }
    }
}

/// A shift of a smallint stays a smallint, whatever the type of the distance.
fn shift(
    expr: RawBinaryExpr,
    op: Operator,
    schema: &DFSchema,
) -> Result<PlannerResult<RawBinaryExpr>> {
    if operand_type(&expr.left, schema)? != DataType::Int16 {
        return Ok(PlannerResult::Original(expr));
    }
    let wide = cast_expression(
        expr.left,
        &DataType::Int16,
        SqlType::Integer,
        Mode::Explicit,
    )?;
    let shifted = Expr::BinaryExpr(BinaryExpr::new(Box::new(wide), op, Box::new(expr.right)));
    let shifted = cast_expression(shifted, &DataType::Int32, SqlType::SmallInt, Mode::Explicit)?;
    Ok(PlannerResult::Planned(shifted))
}

/// IS [NOT] DISTINCT FROM, which requires an `=` for its operands.
fn distinction(
    expr: RawBinaryExpr,
    op: Operator,
    schema: &DFSchema,
) -> Result<PlannerResult<RawBinaryExpr>> {
    let (mut left, mut right) = (expr.left, expr.right);
    if !is_open_parameter(&left, &right) {
        let aligned = for_comparison(vec![left, right], "=", schema)?;
        let Ok(operands) = <[Expr; 2]>::try_from(aligned) else {
            return datafusion::common::internal_err!("two operands stay two");
        };
        [left, right] = operands;
    }
    let compared = BinaryExpr::new(Box::new(left), op, Box::new(right));
    Ok(PlannerResult::Planned(Expr::BinaryExpr(compared)))
}

fn comparison_operator(op: &BinaryOperator) -> bool {
    use BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq)
}

/// Whether an operand is a parameter that takes its type from the other one.
fn is_open_parameter(left: &Expr, right: &Expr) -> bool {
    let open = |e: &Expr| matches!(e, Expr::Placeholder(p) if p.field.is_none());
    open(left) || open(right)
}

fn spatial_operator(op: &BinaryOperator) -> Option<SpatialOperator> {
    match op {
        BinaryOperator::PGOverlap => Some(SpatialOperator::Overlaps),
        BinaryOperator::AtArrow => Some(SpatialOperator::Contains),
        BinaryOperator::ArrowAt => Some(SpatialOperator::ContainedIn),
        BinaryOperator::TildeEq => Some(SpatialOperator::Same),
        BinaryOperator::LtDashGt => Some(SpatialOperator::Distance),
        _ => None,
    }
}

/// Whether the operand is a point or a box.
fn is_spatial(expr: &Expr, schema: &DFSchema) -> Result<bool> {
    Ok(is_geometric(&operand_type(expr, schema)?))
}

/// An operator of which one operand at least is a point or a box. A quoted string, NULL or a
/// parameter without a type takes the other operand's type if the operator exists for it, else the
/// type that it may have beside that one.
fn spatial_expression(
    operator: SpatialOperator,
    left: Expr,
    right: Expr,
    schema: &DFSchema,
) -> Result<Expr> {
    let types = [operand_type(&left, schema)?, operand_type(&right, schema)?];
    let is_open = [is_untyped(&left, &types[0]), is_untyped(&right, &types[1])];
    let known = types.each_ref().map(sql_type_of_arrow);
    let fits = |wanted: &&[SqlType; 2]| {
        (0..2).all(|side| is_open[side] || known[side] == Some(wanted[side]))
    };
    let mut candidates = operator.operands().iter().filter(fits);
    let alike = candidates.clone().find(|[left, right]| left == right);
    let Some([left_type, right_type]) = alike.or_else(|| candidates.next()) else {
        let [left, right] = types.each_ref().map(sql_name);
        let message = format!(
            "operator does not exist: {left} {} {right}",
            operator.symbol()
        );
        let error = Error::invalid(SqlState::UNDEFINED_FUNCTION, message);
        return Err(raise(error.with_hint(
            "No operator matches the given name and argument types. You might need to add \
             explicit type casts.",
        )));
    };
    let left = spatial_operand(left, &types[0], *left_type)?;
    let right = spatial_operand(right, &types[1], *right_type)?;
    Ok(functions::spatial(operator, left, right))
}

fn is_untyped(expr: &Expr, data_type: &DataType) -> bool {
    is_unknown(expr) || data_type.is_null()
}

fn spatial_operand(expr: Expr, from: &DataType, to: SqlType) -> Result<Expr> {
    match expr {
        Expr::Placeholder(mut parameter) if parameter.field.is_none() => {
            parameter.field = Some(Arc::new(Field::new("", arrow_type(to), true)));
            Ok(Expr::Placeholder(parameter))
        }
        operand => cast_expression(operand, from, to, Mode::Explicit),
    }
}

fn arithmetic_operation(op: &BinaryOperator) -> Option<Operation> {
    match op {
        BinaryOperator::Plus => Some(Operation::Add),
        BinaryOperator::Minus => Some(Operation::Subtract),
        BinaryOperator::Multiply => Some(Operation::Multiply),
        BinaryOperator::Divide => Some(Operation::Divide),
        BinaryOperator::Modulo => Some(Operation::Modulo),
        _ => None,
    }
}

/// A typed literal (`1` after [`super::sql`] gave it its type, `date '2024-01-01'`) as a value, so
/// that the operator sees a constant.
fn folded(expr: Expr) -> Result<Expr> {
    let deferred = as_cast(&expr);
    let cast = match (&deferred, &expr) {
        (Some(cast), _) | (None, Expr::Cast(cast)) => cast,
        _ => return Ok(expr),
    };
    let Expr::Literal(value, _) = cast.expr.as_ref() else {
        return Ok(expr);
    };
    let from = Field::new("", value.data_type(), true);
    if let Some(value) = replacement(&cast.expr, &from, &cast.field)? {
        return Ok(value);
    }
    if from.data_type().is_integer() && cast.field.data_type().is_integer() {
        return Ok(Expr::Literal(value.cast_to(cast.field.data_type())?, None));
    }
    Ok(expr)
}

/// `left operation right` with open literals typed by the other side.
pub fn arithmetic_expression(
    operation: Operation,
    left: Expr,
    right: Expr,
    schema: &DFSchema,
) -> Result<Expr> {
    let left_type = operand_type(&left, schema)?;
    let right_type = operand_type(&right, schema)?;
    let left = typed_by(left, &right_type, operation)?;
    let right = typed_by(right, &left_type, operation)?;
    let left = shortest_numeric(left, &right_type);
    let right = shortest_numeric(right, &left_type);
    Ok(arithmetic::expression(operation, left, right))
}

/// The operand's type; a parameter without a type counts as NULL.
fn operand_type(expr: &Expr, schema: &DFSchema) -> Result<DataType> {
    match expr {
        Expr::Placeholder(parameter) if parameter.field.is_none() => Ok(DataType::Null),
        _ => expr.get_type(schema),
    }
}

/// A quoted string, or a parameter without a type, beside an operand of type `other`.
fn typed_by(expr: Expr, other: &DataType, operation: Operation) -> Result<Expr> {
    let interval = DataType::Interval(IntervalUnit::MonthDayNano);
    let target = match other {
        DataType::Timestamp(..) if operation == Operation::Add => &interval,
        other => other,
    };
    if let Expr::Placeholder(mut parameter) = expr {
        if parameter.field.is_none() && !target.is_null() {
            parameter.field = Some(Arc::new(Field::new("", target.clone(), true)));
        }
        return Ok(Expr::Placeholder(parameter));
    }
    if !is_unknown(&expr) {
        return Ok(expr);
    }
    match (&expr, sql_type_of_arrow(target)) {
        (_, None | Some(SqlType::Text)) => Ok(expr),
        (Expr::Literal(ScalarValue::Utf8(Some(text)), _), Some(SqlType::Numeric { .. })) => {
            let shape = literal_shape(text)?;
            let numeric = SqlType::Numeric {
                precision: shape.precision,
                scale: shape.scale,
            };
            cast_expression(expr, &DataType::Utf8, numeric, Mode::Explicit)
        }
        (_, Some(sql_type)) => cast_expression(expr, &DataType::Utf8, sql_type, Mode::Explicit),
    }
}

/// A regular expression in the library's syntax; a point also matches a line end.
fn pattern(written: Expr) -> Expr {
    match written {
        Expr::Literal(ScalarValue::Utf8(Some(text)), metadata) => {
            let lines = if text.contains('.') { "(?s)" } else { "" };
            let text = format!("{lines}{}", functions::translated_pattern(&text));
            Expr::Literal(ScalarValue::Utf8(Some(text)), metadata)
        }
        Expr::Literal(..) | Expr::Placeholder(_) => written,
        other => functions::regular_pattern(other),
    }
}

/// `a @> b` and `b <@ a` of arrays; NULL is not contained.
fn contained(expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
    let (whole, part) = match expr.op {
        BinaryOperator::AtArrow => (&expr.left, &expr.right),
        _ => (&expr.right, &expr.left),
    };
    let is_list =
        |e: &Expr| Ok::<_, DataFusionError>(matches!(operand_type(e, schema)?, DataType::List(_)));
    if !is_list(whole)? || !is_list(part)? {
        return Ok(PlannerResult::Original(expr));
    }
    // DataFusion compares the bits of floats.
    let one_zero = |e: &Expr| {
        Ok::<_, DataFusionError>(match has_floats(&operand_type(e, schema)?) {
            true => unsigned_zero(e.clone()),
            false => e.clone(),
        })
    };
    let all = array_has_all(one_zero(whole)?, one_zero(part)?);
    let complete = functions::position_of_null(part.clone()).is_null();
    Ok(PlannerResult::Planned(all.and(complete)))
}

/// `a || b`: text if one side is text and the other of any storable type. A quoted string beside a
/// bytea is a bytea.
fn concatenation(
    mut expr: RawBinaryExpr,
    schema: &DFSchema,
) -> Result<PlannerResult<RawBinaryExpr>> {
    let mut left_type = operand_type(&expr.left, schema)?;
    let mut right_type = operand_type(&expr.right, schema)?;
    // An array and NULL: the result is the array.
    match (&left_type, &right_type) {
        (DataType::List(_), right) if right.is_null() => {
            return Ok(PlannerResult::Planned(expr.left));
        }
        (left, DataType::List(_)) if left.is_null() => {
            return Ok(PlannerResult::Planned(expr.right));
        }
        _ => {}
    }
    let is_text = |t: &DataType| t.is_string() || t.is_null();
    if is_bytea(&left_type) || is_bytea(&right_type) {
        let operand = |operand: Expr, from: &DataType| match is_unknown(&operand) {
            true => cast_expression(operand, from, SqlType::Bytea, Mode::Explicit),
            false => Ok(operand),
        };
        expr.left = operand(expr.left, &left_type)?;
        expr.right = operand(expr.right, &right_type)?;
        left_type = operand_type(&expr.left, schema)?;
        right_type = operand_type(&expr.right, schema)?;
    }
    let storable = |t: &DataType| sql_type_of_arrow(t).is_some();
    let bytes = |t: &DataType| is_bytea(t) || t.is_null();
    if !(storable(&left_type) && storable(&right_type)) || (bytes(&left_type) && bytes(&right_type))
    {
        return Ok(PlannerResult::Original(expr));
    }
    if !(is_text(&left_type) || is_text(&right_type)) {
        return Err(invalid(
            SqlState::UNDEFINED_FUNCTION,
            format!(
                "operator does not exist: {} || {}",
                sql_name(&left_type),
                sql_name(&right_type)
            ),
        ));
    }
    let text = |operand: Expr, from: &DataType| {
        if is_text(from) {
            return Ok(if is_char(&operand, schema) {
                trim_blanks(operand)
            } else {
                operand
            });
        }
        cast_expression(operand, from, SqlType::Text, Mode::Explicit)
    };
    let left = text(expr.left, &left_type)?;
    let right = text(expr.right, &right_type)?;
    let binary = BinaryExpr::new(Box::new(left), Operator::StringConcat, Box::new(right));
    Ok(PlannerResult::Planned(Expr::BinaryExpr(binary)))
}

fn is_bytea(data_type: &DataType) -> bool {
    sql_type_of_arrow(data_type) == Some(SqlType::Bytea)
}

fn is_char(expr: &Expr, schema: &DFSchema) -> bool {
    let field = expr.to_field(schema);
    field.is_ok_and(|(_, field)| matches!(sql_type_of(&field), Some(SqlType::Char(_))))
}

fn json(expr: RawBinaryExpr, get: fn(Expr, Expr) -> Expr) -> PlannerResult<RawBinaryExpr> {
    PlannerResult::Planned(get(expr.left, expr.right))
}
