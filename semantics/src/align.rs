//! Converts operands that are compared or unified to a common type.
//!
//! A quoted string is of type *unknown* until its context gives it a type \[PostgreSQL, "Type
//! Conversion: Operators"\]. Beside typed operands it takes their type immediately, so that an
//! invalid string is refused with that type's error. In DataFusion an unknown is a `Utf8` literal;
//! text expressions, also folded ones, are `Utf8View`.
//!
//! Beside a float every number becomes double precision, or real among the alternatives of one
//! result, as in PostgreSQL (DataFusion would make the float a decimal). A numeric literal beside
//! a numeric column takes the column's type if that is exact, so that the scan sees the column
//! without a cast. Literals beside char(n) are padded to n. A bigint beside a numeric becomes a
//! numeric. Numerics may need more than 38 digits to keep all digits on both sides of the point.
//! They become numerics of 38 digits with the longest fraction, and a value that is too large is
//! an error.

use super::cast::{Mode, cast_expression, list_from_text, literal_shape};
use super::decimal::{MAX_DIGITS, Shape, digits, power_of_ten, widest_numeric};
use super::error::{invalid, raise};
use super::functions::{interval_order, trim_blanks, unsigned_zero};
use super::text::number::fits;
use super::types::{has_floats, is_geometric, sql_name, sql_type_of, sql_type_of_arrow};
use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::{Expr, ExprSchemable};
use datafusion::scalar::ScalarValue;
use strandline_base::{Error, SqlState, SqlType};

/// An operand and its types.
struct Operand {
    expr: Expr,
    data_type: DataType,
    sql_type: Option<SqlType>,
}

impl Operand {
    fn new(expr: Expr, schema: &DFSchema) -> Result<Self> {
        let (_, field) = expr.to_field(schema)?;
        Ok(Self {
            data_type: field.data_type().clone(),
            sql_type: sql_type_of(&field),
            expr,
        })
    }
    fn is_unknown(&self) -> bool {
        is_unknown(&self.expr)
    }
    fn is_typed(&self) -> bool {
        !self.is_unknown() && !self.data_type.is_null()
    }
    fn is_literal(&self) -> bool {
        matches!(self.expr, Expr::Literal(..))
    }
    fn cast(&mut self, to: SqlType) -> Result<()> {
        let expr = std::mem::take(&mut self.expr);
        self.expr = cast_expression(expr, &self.data_type, to, Mode::Explicit)?;
        self.data_type = super::types::arrow_type(to);
        self.sql_type = Some(to);
        Ok(())
    }
}

/// Whether the expression is a quoted string without a type.
pub fn is_unknown(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(ScalarValue::Utf8(Some(_)), _))
}

/// Operands of one comparison with the operator `symbol`.
///
/// # Errors
/// 42883 if values of their types cannot be compared; errors of invalid literals.
pub fn for_comparison(exprs: Vec<Expr>, symbol: &str, schema: &DFSchema) -> Result<Vec<Expr>> {
    let mut operands = open(exprs, schema)?;
    require_order(&operands, symbol)?;
    for i in 1..operands.len() {
        require_comparable(&operands[0], &operands[i], symbol)?;
    }
    unify(&mut operands)?;
    pad_characters(&mut operands)?;
    let interval = |o: &Operand| matches!(o.data_type, DataType::Interval(_));
    let all_intervals = operands
        .iter()
        .all(|o| interval(o) || o.data_type.is_null());
    if all_intervals && operands.iter().any(interval) {
        return Ok(operands
            .into_iter()
            .map(|o| interval_order(o.expr))
            .collect());
    }
    // The comparison of arrays and records compares the bits of their floats.
    let one_zero = |o: Operand| match o.data_type.is_nested() && has_floats(&o.data_type) {
        true => unsigned_zero(o.expr),
        false => o.expr,
    };
    Ok(operands.into_iter().map(one_zero).collect())
}

/// Alternatives of one result: the branches of CASE, the arguments of COALESCE.
pub fn for_union(exprs: Vec<Expr>, schema: &DFSchema) -> Result<Vec<Expr>> {
    let mut operands = open(exprs, schema)?;
    let json = |o: &Operand| o.sql_type == Some(SqlType::Json);
    let all_json = operands
        .iter()
        .all(|o| json(o) || o.is_unknown() || is_null(&o.expr));
    if all_json && operands.iter().any(json) {
        for operand in operands.iter_mut().filter(|o| o.is_unknown()) {
            operand.cast(SqlType::Json)?;
        }
    }
    unify_reals(&mut operands)?;
    unify(&mut operands)?;
    Ok(operands.into_iter().map(|o| o.expr).collect())
}

/// Alternatives that are reals and exact numbers are reals. Only a comparison of them is made in
/// double precision.
fn unify_reals(operands: &mut [Operand]) -> Result<()> {
    let typed = || operands.iter().filter(|o| o.is_typed());
    let has = |t: DataType| typed().any(|o| o.data_type == t);
    if !has(DataType::Float32)
        || has(DataType::Float64)
        || !typed().all(|o| o.data_type.is_numeric())
    {
        return Ok(());
    }
    operands
        .iter_mut()
        .filter(|o| o.is_typed() && o.data_type != DataType::Float32)
        .try_for_each(|o| o.cast(SqlType::Real))
}

/// Whether alternatives of one result are json, which the Arrow type does not show.
pub fn is_json(exprs: &[Expr], schema: &DFSchema) -> Result<bool> {
    let mut found = false;
    for expr in exprs.iter().filter(|expr| !is_null(expr)) {
        if sql_type_of(&expr.to_field(schema)?.1) != Some(SqlType::Json) {
            return Ok(false);
        }
        found = true;
    }
    Ok(found)
}

/// Whether the expression is NULL, possibly with a cast from the analyzer.
fn is_null(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(value, _) => value.is_null(),
        Expr::Cast(cast) => is_null(&cast.expr),
        _ => false,
    }
}

fn open(exprs: Vec<Expr>, schema: &DFSchema) -> Result<Vec<Operand>> {
    exprs.into_iter().map(|e| Operand::new(e, schema)).collect()
}

fn unify(operands: &mut [Operand]) -> Result<()> {
    let Some(lead) = lead(operands) else {
        return Ok(());
    };
    let floats = operands
        .iter()
        .any(|o| o.is_typed() && o.data_type.is_floating());
    for operand in operands.iter_mut() {
        if operand.is_unknown() {
            type_unknown(operand, &lead)?;
        }
        if floats && operand.data_type.is_numeric() && lead.0 == DataType::Float64 {
            operand.cast(SqlType::Double)?;
        } else if lead.0.is_decimal()
            && let Some(exact) = exact_literal(&operand.expr, &lead.0)
        {
            operand.data_type = exact.data_type();
            operand.expr = Expr::Literal(exact, None);
        }
    }
    widen_bigints(operands)?;
    let types = operands.iter().map(|o| &o.data_type);
    if let Some(widest) = widest_numeric(types.filter(|t| !t.is_null())) {
        let differs = |o: &&mut Operand| !o.data_type.is_null() && o.sql_type != Some(widest);
        for operand in operands.iter_mut().filter(differs) {
            operand.cast(widest)?;
        }
    }
    unify_moments(operands)
}

/// The numeric that holds every bigint.
const BIGINT_AS_NUMERIC: SqlType = SqlType::Numeric {
    precision: 19,
    scale: 0,
};

/// Converts a bigint beside a numeric of up to 18 digits to numeric. DataFusion would convert the
/// numeric to bigint and take 5 and 5.25 for equal.
fn widen_bigints(operands: &mut [Operand]) -> Result<()> {
    if !operands
        .iter()
        .any(|o| matches!(o.data_type, DataType::Decimal64(..)))
    {
        return Ok(());
    }
    operands
        .iter_mut()
        .filter(|o| o.data_type == DataType::Int64)
        .try_for_each(|o| o.cast(BIGINT_AS_NUMERIC))
}

/// An expression of type `from` as it must be beside one of type `other`: a numeric if that is a
/// bigint beside a numeric, a wider one if no numeric has all digits of both. `None` if it may stay
/// as it is.
pub fn widened(expr: &Expr, from: &DataType, other: &DataType) -> Result<Option<Expr>> {
    let target = match (from, other) {
        (DataType::Int64, DataType::Decimal64(..)) => Some(BIGINT_AS_NUMERIC),
        _ => widest_numeric([from, other].into_iter()),
    };
    match target {
        Some(target) if super::types::arrow_type(target) != *from => {
            cast_expression(expr.clone(), from, target, Mode::Explicit).map(Some)
        }
        _ => Ok(None),
    }
}

/// An expression of type `from` beside one of type `other` without the trailing blanks that do not
/// count in their comparison; `None` if all count.
pub fn without_blanks(expr: &Expr, from: &Field, other: &Field) -> Option<Expr> {
    let is_char = |field| matches!(sql_type_of(field), Some(SqlType::Char(_)));
    let ignores = match (sql_type_of(from), sql_type_of(other)) {
        (Some(SqlType::Char(n)), Some(SqlType::Char(m))) => n != m,
        (Some(SqlType::Char(_)), _) => other.data_type().is_string(),
        (Some(SqlType::Varchar(_)), _) => is_char(other),
        _ => is_unknown(expr) && is_char(other),
    };
    ignores.then(|| trim_blanks(expr.clone()))
}

/// Converts dates beside timestamps to timestamps in microseconds. DataFusion would use
/// nanoseconds, which end in the year 2262.
fn unify_moments(operands: &mut [Operand]) -> Result<()> {
    let moments = || {
        operands
            .iter()
            .filter(|o| matches!(o.data_type, DataType::Timestamp(..)))
    };
    let zoned = moments().any(|o| matches!(o.data_type, DataType::Timestamp(_, Some(_))));
    if moments().next().is_none() {
        return Ok(());
    }
    let target = if zoned {
        SqlType::TimestampTz
    } else {
        SqlType::Timestamp
    };
    for operand in operands.iter_mut() {
        let is_moment = matches!(
            operand.data_type,
            DataType::Date32 | DataType::Timestamp(..)
        );
        if is_moment && operand.data_type != super::types::arrow_type(target) {
            operand.cast(target)?;
        }
    }
    Ok(())
}

/// The type that literals take: double precision if there is a float among other numbers, else the
/// first column's type, else the first literal's type.
fn lead(operands: &[Operand]) -> Option<(DataType, Option<SqlType>)> {
    let typed = || operands.iter().filter(|o| o.is_typed());
    let any_float = typed().any(|o| o.data_type.is_floating());
    let all_real = typed().all(|o| o.data_type == DataType::Float32);
    if any_float && typed().all(|o| o.data_type.is_numeric()) && !all_real {
        return Some((DataType::Float64, Some(SqlType::Double)));
    }
    let first = typed()
        .find(|o| !o.is_literal())
        .or_else(|| typed().next())?;
    Some((first.data_type.clone(), first.sql_type))
}

/// Gives a quoted string the lead's type; a numeric keeps its own digits.
fn type_unknown(operand: &mut Operand, lead: &(DataType, Option<SqlType>)) -> Result<()> {
    if let (DataType::List(item), Expr::Literal(ScalarValue::Utf8(Some(text)), _)) =
        (&lead.0, &operand.expr)
    {
        let list = list_from_text(text, item)?;
        operand.data_type = list.data_type();
        operand.expr = Expr::Literal(list, None);
        return Ok(());
    }
    match lead.1 {
        None | Some(SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_) | SqlType::Json) => {
            Ok(())
        }
        Some(SqlType::Numeric { .. }) => {
            let Expr::Literal(ScalarValue::Utf8(Some(text)), _) = &operand.expr else {
                return Ok(());
            };
            let shape = literal_shape(text)?;
            operand.cast(SqlType::Numeric {
                precision: shape.precision,
                scale: shape.scale,
            })
        }
        Some(sql_type) => operand.cast(sql_type),
    }
}

/// A number literal as a value of the decimal type, if it is exact.
fn exact_literal(expr: &Expr, decimal: &DataType) -> Option<ScalarValue> {
    let Expr::Literal(value, _) = expr else {
        return None;
    };
    let (unscaled, scale) = literal_number(value)?;
    let shape = Shape::of(decimal)?;
    let unscaled = if scale <= shape.scale {
        unscaled.checked_mul(power_of_ten(shape.scale - scale))?
    } else {
        let excess = power_of_ten(scale - shape.scale);
        if unscaled % excess != 0 {
            return None;
        }
        unscaled / excess
    };
    if !fits(unscaled, shape) {
        return None;
    }
    match decimal {
        DataType::Decimal64(p, s) => Some(ScalarValue::Decimal64(Some(unscaled as i64), *p, *s)),
        DataType::Decimal128(p, s) => Some(ScalarValue::Decimal128(Some(unscaled), *p, *s)),
        _ => None,
    }
}

/// An exact number literal's unscaled integer and scale.
fn literal_number(value: &ScalarValue) -> Option<(i128, u8)> {
    Some(match value {
        ScalarValue::Int16(Some(v)) => (i128::from(*v), 0),
        ScalarValue::Int32(Some(v)) => (i128::from(*v), 0),
        ScalarValue::Int64(Some(v)) => (i128::from(*v), 0),
        ScalarValue::Decimal64(Some(v), _, s) => (i128::from(*v), u8::try_from(*s).ok()?),
        ScalarValue::Decimal128(Some(v), _, s) => (*v, u8::try_from(*s).ok()?),
        _ => return None,
    })
}

/// An integer literal beside a decimal as a decimal of exactly its digits. In arithmetic a shorter
/// operand gives a shorter result.
pub fn shortest_numeric(expr: Expr, other: &DataType) -> Expr {
    if !other.is_decimal() {
        return expr;
    }
    let unscaled = match &expr {
        Expr::Literal(value, _) => match literal_number(value) {
            Some((unscaled, 0)) if value.data_type().is_integer() => unscaled,
            _ => return expr,
        },
        _ => return expr,
    };
    let shape = Shape::new(digits(unscaled).min(MAX_DIGITS), 0);
    let value = ScalarValue::Decimal64(Some(unscaled as i64), shape.precision, 0);
    if shape.is_narrow() {
        return Expr::Literal(value, None);
    }
    Expr::Literal(
        ScalarValue::Decimal128(Some(unscaled), shape.precision, 0),
        None,
    )
}

/// 42883 for points and boxes. PostgreSQL's `=`, `<` and so on of boxes compare areas; they do not
/// exist here.
fn require_order(operands: &[Operand], symbol: &str) -> Result<()> {
    let Some(at) = operands.iter().position(|o| is_geometric(&o.data_type)) else {
        return Ok(());
    };
    let geometric = &operands[at].data_type;
    // A literal without a type has the type of the other operand.
    let name = |i: usize| match operands.get(i) {
        Some(operand) if operand.is_typed() => sql_name(&operand.data_type),
        _ => sql_name(geometric),
    };
    let (left, right) = if at == 0 { (0, 1) } else { (0, at) };
    let message = format!(
        "operator does not exist: {} {symbol} {}",
        name(left),
        name(right)
    );
    let error = Error::invalid(SqlState::UNDEFINED_FUNCTION, message);
    Err(raise(error.with_hint(
        "Use ~= to compare points or boxes for equality.",
    )))
}

fn require_comparable(left: &Operand, right: &Operand, symbol: &str) -> Result<()> {
    if !left.is_typed() || !right.is_typed() || left.data_type == right.data_type {
        return Ok(());
    }
    let (Some(l), Some(r)) = (
        sql_type_of_arrow(&left.data_type),
        sql_type_of_arrow(&right.data_type),
    ) else {
        return Ok(());
    };
    let family = |t: SqlType| match t {
        SqlType::SmallInt
        | SqlType::Integer
        | SqlType::BigInt
        | SqlType::Numeric { .. }
        | SqlType::Real
        | SqlType::Double => 1,
        SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_) | SqlType::Json => 2,
        SqlType::Date | SqlType::Timestamp | SqlType::TimestampTz => 3,
        SqlType::Boolean => 4,
        SqlType::Bytea => 5,
        SqlType::Time => 6,
        SqlType::Interval => 7,
        SqlType::Uuid => 8,
        SqlType::Point => 9,
        SqlType::Box => 10,
    };
    if family(l) == family(r) {
        return Ok(());
    }
    Err(invalid(
        SqlState::UNDEFINED_FUNCTION,
        format!(
            "operator does not exist: {} {symbol} {}",
            sql_name(&left.data_type),
            sql_name(&right.data_type)
        ),
    ))
}

/// Makes comparisons of char(n) ignore its trailing blanks: literals are padded to n, and operands
/// of different lengths lose their trailing blanks. PostgreSQL compares a varchar beside it as
/// char, and a text beside it as text, whose own blanks count.
fn pad_characters(operands: &mut [Operand]) -> Result<()> {
    let length = |o: &Operand| match o.sql_type {
        Some(SqlType::Char(n)) if !o.is_literal() => Some(n),
        _ => None,
    };
    let Some(n) = operands.iter().find_map(length) else {
        return Ok(());
    };
    let others_are_literals = operands
        .iter()
        .all(|o| length(o) == Some(n) || o.is_literal() || o.data_type.is_null());
    let is_text = |o: &Operand| o.is_typed() && o.sql_type == Some(SqlType::Text);
    let as_text = operands.iter().any(is_text);
    for operand in operands.iter_mut() {
        if !others_are_literals {
            let is_compared_so = length(operand).is_some() || !as_text;
            if operand.data_type.is_string() && is_compared_so {
                let expr = std::mem::take(&mut operand.expr);
                operand.expr = trim_blanks(expr);
            }
            continue;
        }
        if let Expr::Literal(value, _) = &operand.expr
            && let Some(Some(text)) = value.try_as_str()
        {
            let text = text.trim_end_matches(' ');
            let missing = (n as usize).saturating_sub(text.chars().count());
            let padded = format!("{text}{}", " ".repeat(missing));
            operand.expr = Expr::Literal(ScalarValue::Utf8View(Some(padded)), None);
        }
    }
    Ok(())
}
