//! Parameters: values for `$1`, `$2`, … of a statement.
//!
//! A value replaces its parameter in the parsed statement as a literal, before planning. A
//! parameter can therefore be in every place of a constant (LIMIT, INTERVAL, `FOR SYSTEM_TIME AS
//! OF`). As in PostgreSQL, a text takes the type of its operand like an untyped literal, and the
//! optimizer sees the value. A parameter of known type becomes a literal of that type ([`bind`]).

use crate::parse;
use crate::parse::conflict_targets;
use crate::values::text;
use crate::values::value;
use datafusion::arrow::array::ArrayRef;
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::{
    Array, Expr, FunctionArg, FunctionArgExpr, LimitClause, Query, Select, SelectItem, Statement,
    TableFactor, UnaryOperator, Value as Literal, ValueWithSpan, VisitMut, VisitorMut,
};
use std::ops::ControlFlow;
use strandline_base::{Error, Result, SqlState, SqlType, Value};
use strandline_column::types::arrow_type;
use strandline_semantics::sql::walk::walk_mut;

#[cfg(test)]
mod tests;

/// A value of a parameter.
pub trait Parameter {
    /// The value in DataFusion's form.
    fn to_scalar(&self) -> ScalarValue;
}

macro_rules! parameter {
    ($($t:ty => $variant:ident),* $(,)?) => {
        $( impl Parameter for $t {
            fn to_scalar(&self) -> ScalarValue { ScalarValue::$variant(Some(self.clone().into())) }
        } )*
    };
}
parameter! {
    bool => Boolean, i16 => Int16, i32 => Int32, i64 => Int64, u32 => UInt32, u64 => UInt64,
    f32 => Float32, f64 => Float64, &str => Utf8, String => Utf8, &String => Utf8,
    Vec<u8> => Binary, &[u8] => Binary,
}

impl Parameter for Value {
    fn to_scalar(&self) -> ScalarValue {
        value::to_scalar(self)
    }
}
impl Parameter for ScalarValue {
    fn to_scalar(&self) -> ScalarValue {
        self.clone()
    }
}
impl<T: Parameter> Parameter for Option<T> {
    fn to_scalar(&self) -> ScalarValue {
        self.as_ref()
            .map_or(ScalarValue::Null, Parameter::to_scalar)
    }
}

/// The parameters of one call: `()` for none, a tuple, an array, a slice or a `Vec`.
///
/// ```
/// use strandline::Params;
/// assert_eq!(().scalars().len(), 0);
/// assert_eq!((1i64, "one", Some(true)).scalars().len(), 3);
/// assert_eq!([1i64, 2].scalars().len(), 2);
/// ```
pub trait Params {
    /// The values in order.
    fn scalars(&self) -> Vec<ScalarValue>;
}

impl Params for () {
    fn scalars(&self) -> Vec<ScalarValue> {
        Vec::new()
    }
}
impl<T: Parameter, const N: usize> Params for [T; N] {
    fn scalars(&self) -> Vec<ScalarValue> {
        self.iter().map(Parameter::to_scalar).collect()
    }
}
impl<T: Parameter> Params for &[T] {
    fn scalars(&self) -> Vec<ScalarValue> {
        self.iter().map(Parameter::to_scalar).collect()
    }
}
impl<T: Parameter> Params for Vec<T> {
    fn scalars(&self) -> Vec<ScalarValue> {
        self.iter().map(Parameter::to_scalar).collect()
    }
}
impl Params for &[&dyn Parameter] {
    fn scalars(&self) -> Vec<ScalarValue> {
        self.iter().map(|p| p.to_scalar()).collect()
    }
}

macro_rules! tuple {
    ($($t:ident $i:tt),+) => {
        impl<$($t: Parameter),+> Params for ($($t,)+) {
            fn scalars(&self) -> Vec<ScalarValue> { vec![$(self.$i.to_scalar()),+] }
        }
    };
}
tuple!(A 0);
tuple!(A 0, B 1);
tuple!(A 0, B 1, C 2);
tuple!(A 0, B 1, C 2, D 3);
tuple!(A 0, B 1, C 2, D 3, E 4);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11);

/// Replaces the parameters of a parsed statement or query by values; 42P02 for a number without a
/// value.
pub fn substitute<T: VisitMut>(tree: &mut T, parameters: &[ScalarValue]) -> Result<()> {
    let literals = parameters.iter().map(literal).collect::<Result<Vec<_>>>()?;
    substitute_expressions(tree, &literals)
}

/// Replaces the parameters by expressions.
pub fn substitute_expressions<T: VisitMut>(tree: &mut T, values: &[Expr]) -> Result<()> {
    let mut visitor = Substitution { values };
    match walk_mut(tree, &mut visitor) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

/// Replaces the parameters of a parsed statement by `values`, each of its parameter's type if it is
/// known.
pub fn bind<T: VisitMut>(
    tree: &mut T,
    values: &[ScalarValue],
    types: &[Option<SqlType>],
) -> Result<()> {
    let mut plain = Vec::with_capacity(values.len());
    let mut typed = Vec::with_capacity(values.len());
    for (i, value) in values.iter().enumerate() {
        let known = types.get(i).copied().flatten();
        plain.push(literal(value)?);
        typed.push(match known {
            Some(known) => literal_of(value, known)?,
            None => literal(value)?,
        });
    }
    let mut constants = Constants { values: &plain };
    if let ControlFlow::Break(error) = walk_mut(tree, &mut constants) {
        return Err(error);
    }
    substitute_expressions(tree, &typed)
}

/// A value in the form of its literal, and the literal's type; None: it takes the type of its
/// place.
pub fn own_type(value: &ScalarValue) -> (ScalarValue, Option<SqlType>) {
    let integer = match value {
        ScalarValue::Int16(Some(v)) => Some(i64::from(*v)),
        ScalarValue::Int32(Some(v)) => Some(i64::from(*v)),
        ScalarValue::Int64(Some(v)) => Some(*v),
        _ => None,
    };
    if let Some(v) = integer {
        return match i32::try_from(v) {
            Ok(v) => (ScalarValue::Int32(Some(v)), Some(SqlType::Integer)),
            Err(_) => (ScalarValue::Int64(Some(v)), Some(SqlType::BigInt)),
        };
    }
    let has_place = value.is_null() || value.data_type().is_string();
    let known = (!has_place).then(|| value::sql_type_of(&value.data_type()).ok());
    let is_of = |t: &SqlType| value.data_type() == arrow_type(*t);
    let own = known.flatten().filter(|t| is_plain(*t) && is_of(t));
    (value.clone(), own)
}

/// Whether a literal of type `t` carries no more than its type: a numeric also has digits.
pub fn is_plain(t: SqlType) -> bool {
    matches!(
        t,
        SqlType::Boolean
            | SqlType::SmallInt
            | SqlType::Integer
            | SqlType::BigInt
            | SqlType::Real
            | SqlType::Double
            | SqlType::Text
            | SqlType::Bytea
            | SqlType::Date
            | SqlType::Time
            | SqlType::Timestamp
            | SqlType::TimestampTz
            | SqlType::Interval
            | SqlType::Uuid
            | SqlType::Point
            | SqlType::Box
    )
}

/// Whether a parameter of a statement is in a place that takes only a constant.
pub fn need_constants<T: VisitMut + Clone>(tree: &T) -> bool {
    let mut none = Constants { values: &[] };
    walk_mut(&mut tree.clone(), &mut none).is_break()
}

/// Replaces parameters by plain literals where only a constant may be: LIMIT, OFFSET, FETCH and the
/// arguments of table functions. Also names the result columns that a cast would rename.
struct Constants<'a> {
    values: &'a [Expr],
}

impl Constants<'_> {
    fn put(&self, place: &mut Expr) -> ControlFlow<Error> {
        match is_parameter(place) {
            true => (Substitution {
                values: self.values,
            })
            .pre_visit_expr(place),
            false => ControlFlow::Continue(()),
        }
    }
}

/// Whether an expression is just a parameter.
fn is_parameter(expr: &Expr) -> bool {
    matches!(
        expr,
        Expr::Value(ValueWithSpan {
            value: Literal::Placeholder(_),
            ..
        })
    )
}

/// The arguments of a table function.
pub fn function_arguments(factor: &mut TableFactor) -> &mut [FunctionArg] {
    match factor {
        TableFactor::Table {
            args: Some(args), ..
        } => &mut args.args,
        TableFactor::Function { args, .. } => args,
        _ => &mut [],
    }
}

/// Names a result column that is a parameter as PostgreSQL does; a cast would change the name.
pub fn name_parameters(select: &mut Select) {
    for item in &mut select.projection {
        if let SelectItem::UnnamedExpr(expr) = item
            && is_parameter(expr)
        {
            *item = SelectItem::ExprWithAlias {
                expr: expr.clone(),
                alias: crate::parse::names::ident("?column?"),
            };
        }
    }
}

impl VisitorMut for Constants<'_> {
    type Break = Error;

    fn pre_visit_statement(&mut self, statement: &mut Statement) -> ControlFlow<Error> {
        let values = self.values;
        conflict_targets::visit(statement, &mut Substitution { values })
    }

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        let mut places: Vec<&mut Expr> = Vec::new();
        match &mut query.limit_clause {
            Some(LimitClause::LimitOffset { limit, offset, .. }) => {
                places.extend(limit);
                places.extend(offset.as_mut().map(|offset| &mut offset.value));
            }
            Some(LimitClause::OffsetCommaLimit { offset, limit }) => places.extend([offset, limit]),
            None => {}
        }
        if let Some(fetch) = &mut query.fetch {
            places.extend(&mut fetch.quantity);
        }
        for place in places {
            self.put(place)?;
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Error> {
        name_parameters(select);
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Error> {
        for arg in function_arguments(factor) {
            if let FunctionArg::Unnamed(FunctionArgExpr::Expr(place)) = arg {
                self.put(place)?;
            }
        }
        ControlFlow::Continue(())
    }
}

/// Replaces the parameters of an expression by values.
pub fn substitute_in_expr(expr: &mut Expr, parameters: &[ScalarValue]) -> Result<()> {
    substitute(expr, parameters)
}

/// The highest parameter number in `tree`; 0 without parameters.
pub fn highest<T: VisitMut>(tree: &mut T) -> Result<usize> {
    let mut visitor = Count(0);
    match walk_mut(tree, &mut visitor) {
        ControlFlow::Continue(()) => Ok(visitor.0),
        ControlFlow::Break(error) => Err(error),
    }
}

struct Substitution<'a> {
    values: &'a [Expr],
}

impl VisitorMut for Substitution<'_> {
    type Break = Error;

    fn pre_visit_statement(&mut self, statement: &mut Statement) -> ControlFlow<Error> {
        conflict_targets::visit(statement, self)
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        let Expr::Value(ValueWithSpan {
            value: Literal::Placeholder(name),
            ..
        }) = expr
        else {
            return ControlFlow::Continue(());
        };
        let value = number(name)
            .and_then(|number| self.values.get(number - 1).ok_or_else(|| undefined(name)));
        match value {
            Ok(value) => {
                *expr = value.clone();
                ControlFlow::Continue(())
            }
            Err(error) => ControlFlow::Break(error),
        }
    }
}

struct Count(usize);

impl VisitorMut for Count {
    type Break = Error;

    fn pre_visit_statement(&mut self, statement: &mut Statement) -> ControlFlow<Error> {
        conflict_targets::visit(statement, self)
    }

    fn pre_visit_value(&mut self, value: &mut ValueWithSpan) -> ControlFlow<Error> {
        if let Literal::Placeholder(name) = &value.value {
            match number(name) {
                Ok(number) => self.0 = self.0.max(number),
                Err(error) => return ControlFlow::Break(error),
            }
        }
        ControlFlow::Continue(())
    }
}

/// The number of `$n`, from 1.
pub fn number(name: &str) -> Result<usize> {
    let number = name
        .strip_prefix('$')
        .and_then(|digits| digits.parse::<usize>().ok());
    number
        .filter(|n| (1..=65_535).contains(n))
        .ok_or_else(|| undefined(name))
}

fn undefined(name: &str) -> Error {
    Error::invalid(
        SqlState::UNDEFINED_PARAMETER,
        format!("there is no parameter {name}"),
    )
    .with_hint("Parameters are written $1, $2, … and each needs a value.")
}

/// The type name of a parameter: without length, precision and scale, which belong to columns.
pub fn type_name(sql_type: SqlType) -> String {
    match sql_type {
        SqlType::Varchar(_) | SqlType::Char(_) => SqlType::Text.to_string(),
        SqlType::Numeric { .. } => "numeric".to_string(),
        other => other.to_string(),
    }
}

/// The SQL literal of type `t` with the value `value`.
fn literal_of(value: &ScalarValue, t: SqlType) -> Result<Expr> {
    let exact = match (value, t) {
        (ScalarValue::Boolean(Some(_)), SqlType::Boolean) => true,
        (ScalarValue::Int32(Some(v)), SqlType::Integer) => *v != i32::MIN,
        _ => false,
    };
    if exact {
        return literal(value);
    }
    let text = if value.is_null() {
        "NULL".to_string()
    } else {
        let array = value
            .to_array()
            .map_err(strandline_semantics::error::convert)?;
        let text = text::cell(&array, 0).unwrap_or_default();
        format!("'{}'", text.replace('\'', "''"))
    };
    parse::expression(&format!("CAST({text} AS {})", type_name(t)))
}

/// The SQL literal with the value `value`.
pub fn literal(value: &ScalarValue) -> Result<Expr> {
    if value.is_null() {
        return Ok(plain(Literal::Null));
    }
    match value {
        ScalarValue::Boolean(Some(v)) => return Ok(plain(Literal::Boolean(*v))),
        ScalarValue::Utf8(Some(v))
        | ScalarValue::Utf8View(Some(v))
        | ScalarValue::LargeUtf8(Some(v)) => {
            return Ok(plain(Literal::SingleQuotedString(v.clone())));
        }
        ScalarValue::Binary(Some(v))
        | ScalarValue::BinaryView(Some(v))
        | ScalarValue::LargeBinary(Some(v)) => {
            let hex = v.iter().map(|byte| format!("{byte:02X}")).collect();
            return Ok(plain(Literal::HexStringLiteral(hex)));
        }
        ScalarValue::List(list) if list.value(0).is_empty() => {
            return Ok(plain(Literal::SingleQuotedString("{}".to_string())));
        }
        ScalarValue::List(list) => return array_literal(&list.value(0)),
        _ => {}
    }
    let array = value
        .to_array()
        .map_err(strandline_semantics::error::convert)?;
    let text = text::cell(&array, 0).unwrap_or_default();
    let t = value::sql_type_of(&value.data_type())?;
    use strandline_base::SqlType as T;
    match t {
        T::SmallInt | T::Integer | T::BigInt | T::Numeric { .. } => Ok(signed(&text)),
        other => parse::expression(&format!("CAST('{}' AS {other})", text.replace('\'', "''"))),
    }
}

/// `ARRAY[…]` of `items`.
fn array_literal(items: &ArrayRef) -> Result<Expr> {
    let items = (0..items.len()).map(|at| {
        let item =
            ScalarValue::try_from_array(items, at).map_err(strandline_semantics::error::convert)?;
        literal(&item)
    });
    Ok(Expr::Array(Array {
        elem: items.collect::<Result<_>>()?,
        named: true,
    }))
}

fn plain(literal: Literal) -> Expr {
    Expr::value(literal)
}

fn signed(text: &str) -> Expr {
    match text.strip_prefix('-') {
        Some(digits) => Expr::UnaryOp {
            op: UnaryOperator::Minus,
            expr: Box::new(plain(Literal::Number(digits.to_string(), false))),
        },
        None => plain(Literal::Number(text.to_string(), false)),
    }
}
