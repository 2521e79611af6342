//! WHERE of a short plan: an AND of comparisons of columns with constants, one [`Test`] per column,
//! and of other conditions, which the planner compiles.
//!
//! Compiled from the syntax tree ([`Compiler::conditions`]), a test becomes a set of values when
//! the statement runs ([`condition_values`](super::condition_values)). `None`: the statement takes
//! the full path.

use super::scope::{Compiler, Scope};
use super::source::Source;
use super::value::is_key_type;
use crate::parse::params;
use datafusion::sql::sqlparser::ast::{
    ArrayElemTypeDef, BinaryOperator, DataType, Expr, Value as Literal,
};
use strandline_base::{ColumnId, SqlType};
use strandline_semantics::types;

/// What WHERE is an AND of.
#[derive(Clone, Debug, Default)]
pub(super) struct Conditions {
    /// at most one per column
    pub tests: Vec<Test>,
    /// conditions that are evaluated for the rows that pass the tests
    pub others: Vec<Expr>,
}

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
    pub source: Source,
    pub inclusive: bool,
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

impl Compiler<'_> {
    /// What a WHERE is an AND of.
    pub(super) fn conditions(&self, scope: &Scope<'_>, condition: Option<&Expr>) -> Conditions {
        let mut found = Conditions::default();
        let mut open: Vec<&Expr> = condition.into_iter().collect();
        while let Some(expr) = open.pop() {
            match expr {
                Expr::Nested(inner) => open.push(inner),
                Expr::BinaryOp {
                    left,
                    op: BinaryOperator::And,
                    right,
                } => open.extend([right.as_ref(), left.as_ref()]),
                other => {
                    let test = self.test(scope, other);
                    let added = test.and_then(|test| add(&mut found.tests, test));
                    if added.is_none() {
                        found.others.push(other.clone());
                    }
                }
            }
        }
        found
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

/// Adds a test; None: the column has one that does not go with it. Then one side of the test may
/// have been added, and the whole is still to be tested.
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
