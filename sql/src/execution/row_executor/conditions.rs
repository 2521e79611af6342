//! WHERE of a short plan: an AND of comparisons of columns with constants, one [`Test`] per column.
//!
//! Compiled from the syntax tree ([`Compiler::tests`]), a test becomes a set of values when the
//! statement runs ([`Execution::values_of`]). `None` in both: the statement takes the full path.

use super::compile::{Compiler, Scope};
use super::run::Execution;
use super::value::{Comparand, comparand, is_key_type};
use super::{Datum, Source};
use crate::parse::params;
use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::{
    ArrayElemTypeDef, BinaryOperator, DataType, Expr, Value as Literal,
};
use std::cmp::Ordering;
use std::ops::Bound;
use strandline_base::{ColumnId, SqlType, Value};
use strandline_semantics::text::array::{Item, items};
use strandline_semantics::types;

/// What WHERE says of one column.
#[derive(Clone, Debug)]
pub(super) struct Test {
    pub column: ColumnId,
    pub sql_type: SqlType,
    pub condition: Condition,
}

#[derive(Clone, Debug)]
pub(super) enum Condition {
    /// `= constant`
    Equal(Source),
    /// `IN (constants)`
    In(Vec<Source>),
    /// `= ANY (parameter)`, whose value is an array
    Any(usize),
    /// `<`, `<=`, `>`, `>=`, BETWEEN
    Within {
        lower: Option<Limit>,
        upper: Option<Limit>,
    },
}

/// A constant that a column is compared with by `<` or `>`.
#[derive(Clone, Debug)]
pub(super) struct Limit {
    source: Source,
    inclusive: bool,
}

/// The values for which a test holds. NULL is none of them.
#[derive(Debug)]
pub(super) enum Values {
    /// ascending, each once
    Points(Vec<Value>),
    Within(Bound<Value>, Bound<Value>),
}

impl Test {
    /// Whether its values are points.
    pub fn is_points(&self) -> bool {
        !matches!(self.condition, Condition::Within { .. })
    }

    /// Whether it is `= constant`.
    pub fn is_equal(&self) -> bool {
        matches!(self.condition, Condition::Equal(_))
    }

    /// As EXPLAIN shows it, `name` being the column's.
    pub fn text(&self, name: &str) -> String {
        match &self.condition {
            Condition::Equal(_) => format!("{name} ="),
            Condition::In(list) => format!("{name} IN ({} values)", list.len()),
            Condition::Any(_) => format!("{name} = ANY"),
            Condition::Within { lower, upper } => {
                let sides = [(lower, '>'), (upper, '<')];
                let sides = sides.iter().filter_map(|(limit, sign)| {
                    let equal = if limit.as_ref()?.inclusive { "=" } else { "" };
                    Some(format!("{name} {sign}{equal}"))
                });
                sides.collect::<Vec<_>>().join(" AND ")
            }
        }
    }
}

impl Values {
    /// Whether the test holds for a value.
    pub fn holds(&self, value: &Value) -> bool {
        match self {
            Self::Points(points) => points
                .iter()
                .any(|point| point.compare(value) == Some(Ordering::Equal)),
            Self::Within(lower, upper) => {
                let above = match lower {
                    Bound::Unbounded => !value.is_null(),
                    Bound::Included(l) => value.compare(l).is_some_and(Ordering::is_ge),
                    Bound::Excluded(l) => value.compare(l).is_some_and(Ordering::is_gt),
                };
                above
                    && match upper {
                        Bound::Unbounded => !value.is_null(),
                        Bound::Included(u) => value.compare(u).is_some_and(Ordering::is_le),
                        Bound::Excluded(u) => value.compare(u).is_some_and(Ordering::is_lt),
                    }
            }
        }
    }

    /// Whether it holds for no value.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Points(points) if points.is_empty())
    }
}

impl Compiler<'_> {
    /// The tests that a WHERE is an AND of, one per column.
    pub(super) fn tests(&self, scope: &Scope<'_>, condition: &Expr) -> Option<Vec<Test>> {
        let mut tests: Vec<Test> = Vec::new();
        let mut open = vec![condition];
        while let Some(expr) = open.pop() {
            match expr {
                Expr::Nested(inner) => open.push(inner),
                Expr::BinaryOp {
                    left,
                    op: BinaryOperator::And,
                    right,
                } => open.extend([right.as_ref(), left.as_ref()]),
                comparison => add(&mut tests, self.test(scope, comparison)?)?,
            }
        }
        Some(tests)
    }

    fn test(&self, scope: &Scope<'_>, expr: &Expr) -> Option<Test> {
        let (column, condition) = match expr {
            Expr::BinaryOp { left, op, right } => match scope.column(left) {
                Some(column) => (column, comparison(op, self.constant(right)?)?),
                None => {
                    let op = mirrored(op)?;
                    (scope.column(right)?, comparison(&op, self.constant(left)?)?)
                }
            },
            Expr::Between {
                expr,
                negated: false,
                low,
                high,
            } => {
                let limit = |expr| {
                    let source = self.constant(expr)?;
                    Some(Some(Limit {
                        source,
                        inclusive: true,
                    }))
                };
                let (lower, upper) = (limit(low)?, limit(high)?);
                (scope.column(expr)?, Condition::Within { lower, upper })
            }
            Expr::InList {
                expr,
                list,
                negated: false,
            } => {
                let column = scope.column(expr)?;
                let list = list.iter().map(|item| self.constant(item));
                (column, Condition::In(list.collect::<Option<_>>()?))
            }
            Expr::AnyOp {
                left,
                compare_op: BinaryOperator::Eq,
                right,
                ..
            } => {
                let column = scope.column(left)?;
                let sql_type = scope.table.columns[column].sql_type;
                (column, Condition::Any(array_parameter(right, sql_type)?))
            }
            _ => return None,
        };
        let column = &scope.table.columns[column];
        is_key_type(column.sql_type).then(|| Test {
            column: column.id,
            sql_type: column.sql_type,
            condition,
        })
    }
}

/// Adds a test; None: the column has one that does not go with it.
fn add(tests: &mut Vec<Test>, test: Test) -> Option<()> {
    let Some(known) = tests.iter_mut().find(|known| known.column == test.column) else {
        tests.push(test);
        return Some(());
    };
    match (&mut known.condition, test.condition) {
        (
            Condition::Within { lower, upper },
            Condition::Within {
                lower: other_lower,
                upper: other_upper,
            },
        ) => {
            for (side, other) in [(lower, other_lower), (upper, other_upper)] {
                match (&side, other) {
                    (Some(_), Some(_)) => return None,
                    (None, other) => *side = other,
                    (Some(_), None) => {}
                }
            }
            Some(())
        }
        _ => None,
    }
}

fn comparison(op: &BinaryOperator, source: Source) -> Option<Condition> {
    let limit = |inclusive| {
        Some(Limit {
            source: source.clone(),
            inclusive,
        })
    };
    let (lower, upper) = match op {
        BinaryOperator::Eq => return Some(Condition::Equal(source)),
        BinaryOperator::Gt => (limit(false), None),
        BinaryOperator::GtEq => (limit(true), None),
        BinaryOperator::Lt => (None, limit(false)),
        BinaryOperator::LtEq => (None, limit(true)),
        _ => return None,
    };
    Some(Condition::Within { lower, upper })
}

/// The comparison with its sides exchanged.
fn mirrored(op: &BinaryOperator) -> Option<BinaryOperator> {
    Some(match op {
        BinaryOperator::Eq => BinaryOperator::Eq,
        BinaryOperator::Gt => BinaryOperator::Lt,
        BinaryOperator::GtEq => BinaryOperator::LtEq,
        BinaryOperator::Lt => BinaryOperator::Gt,
        BinaryOperator::LtEq => BinaryOperator::GtEq,
        _ => return None,
    })
}

/// The index of a parameter that is an array, of items that a column of type `t` is compared with.
fn array_parameter(expr: &Expr, t: SqlType) -> Option<usize> {
    match expr {
        Expr::Nested(inner) => array_parameter(inner, t),
        Expr::Value(value) => match &value.value {
            Literal::Placeholder(name) => Some(params::number(name).ok()? - 1),
            _ => None,
        },
        Expr::Cast {
            expr,
            data_type: DataType::Array(ArrayElemTypeDef::SquareBracket(item, None)),
            ..
        } => {
            let item = types::from_ast(item).ok().flatten()?;
            let is_text = |t| matches!(t, SqlType::Text | SqlType::Varchar(_));
            let same = item == t || (item == SqlType::Text && is_text(t));
            same.then(|| array_parameter(expr, t)).flatten()
        }
        _ => None,
    }
}

impl Execution<'_> {
    /// The values for which a test holds.
    pub(super) fn values_of(&self, test: &Test) -> Option<Values> {
        let t = test.sql_type;
        let value = |source: &Source| match comparand(&self.datum(source)?, t)? {
            Comparand::Value(value) => Some(Some(value)),
            Comparand::Never => Some(None),
        };
        let points = match &test.condition {
            Condition::Equal(source) => value(source)?.into_iter().collect(),
            Condition::In(list) => {
                let mut points = Vec::with_capacity(list.len());
                for source in list {
                    points.extend(value(source)?);
                }
                ascending(points)
            }
            Condition::Any(parameter) => {
                let mut points = Vec::new();
                for item in items_of(self.values.get(*parameter)?)? {
                    let datum = Datum {
                        value: item,
                        known: None,
                    };
                    if let Comparand::Value(value) = comparand(&datum, t)? {
                        points.push(value);
                    }
                }
                ascending(points)
            }
            Condition::Within { lower, upper } => {
                let mut never = false;
                let mut bound = |limit: &Option<Limit>| {
                    let Some(limit) = limit else {
                        return Some(Bound::Unbounded);
                    };
                    let datum = self.datum(&limit.source)?;
                    match comparand(&datum, t)? {
                        Comparand::Value(value) if limit.inclusive => Some(Bound::Included(value)),
                        Comparand::Value(value) => Some(Bound::Excluded(value)),
                        Comparand::Never if datum.value.is_null() => {
                            never = true;
                            Some(Bound::Unbounded)
                        }
                        // Of a value that no row has, the place among the others is not known here.
                        Comparand::Never => None,
                    }
                };
                let (lower, upper) = (bound(lower)?, bound(upper)?);
                if !never && !is_empty(&lower, &upper) {
                    return Some(Values::Within(lower, upper));
                }
                Vec::new()
            }
        };
        Some(Values::Points(points))
    }
}

/// Whether no value is within the bounds.
fn is_empty(lower: &Bound<Value>, upper: &Bound<Value>) -> bool {
    let (Bound::Included(l) | Bound::Excluded(l), Bound::Included(u) | Bound::Excluded(u)) =
        (lower, upper)
    else {
        return false;
    };
    let is_closed = matches!((lower, upper), (Bound::Included(_), Bound::Included(_)));
    match l.compare(u) {
        Some(Ordering::Less) => false,
        Some(Ordering::Equal) => !is_closed,
        _ => true,
    }
}

fn ascending(mut points: Vec<Value>) -> Vec<Value> {
    let order = |a: &Value, b: &Value| a.compare(b).unwrap_or(Ordering::Equal);
    points.sort_by(order);
    points.dedup_by(|a, b| order(a, b) == Ordering::Equal);
    points
}

/// The items of an array, which as a client's parameter is its text.
fn items_of(array: &ScalarValue) -> Option<Vec<ScalarValue>> {
    let of = |items: &ArrayRef| {
        let item = |at| ScalarValue::try_from_array(items, at).ok();
        (0..items.len()).map(item).collect::<Option<Vec<_>>>()
    };
    match array {
        ScalarValue::Utf8(Some(text)) | ScalarValue::Utf8View(Some(text)) => {
            let items = items(text).ok()?.into_iter().map(|item| match item {
                Item::Null => Some(ScalarValue::Null),
                Item::Text(text) => Some(ScalarValue::Utf8(Some(text))),
                Item::Array(_) => None,
            });
            items.collect()
        }
        ScalarValue::List(list) if list.len() == 1 && !list.is_null(0) => of(&list.value(0)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_is_within_no_bounds() {
        let values = Values::Within(Bound::Unbounded, Bound::Excluded(Value::Integer(3)));
        assert!(values.holds(&Value::Integer(2)));
        assert!(!values.holds(&Value::Integer(3)) && !values.holds(&Value::Null));
        let all = Values::Within(Bound::Unbounded, Bound::Unbounded);
        assert!(!all.holds(&Value::Null));
    }

    #[test]
    fn an_array_is_read_from_its_text() {
        let items = |text: &str| items_of(&ScalarValue::from(text));
        let one = |text: &str| ScalarValue::from(text);
        assert_eq!(
            items("{1,NULL,\"a b\"}"),
            Some(vec![one("1"), ScalarValue::Null, one("a b")])
        );
        assert_eq!(items("{}"), Some(Vec::new()));
        assert_eq!(items("{{1}}"), None);
        assert_eq!(items("1"), None);
    }
}
