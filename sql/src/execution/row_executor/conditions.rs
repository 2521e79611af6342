//! WHERE of a short plan: an AND of comparisons of columns with constants, one [`Test`] per column,
//! and of other conditions, which the planner compiles.
//!
//! Compiled from the syntax tree ([`Compiler::conditions`]), a test becomes a set of values when
//! the statement runs ([`condition_values`](super::condition_values)). `None`: the statement takes
//! the full path.

use super::scope::{Compiler, Scope};
use super::source::Source;
use super::value::{is_comparable, is_integer, is_key_type};
use datafusion::sql::sqlparser::ast::{ArrayElemTypeDef, BinaryOperator, DataType, Expr};
use strandline_base::{ColumnId, SqlType};
use strandline_semantics::types;

/// What WHERE is an AND of.
#[derive(Clone, Debug, Default)]
pub(super) struct Conditions {
    /// at most one per column
    pub tests: Vec<Test>,
    /// comparisons of rows
    pub rows: Vec<RowTest>,
    /// ORs of tests
    pub choices: Vec<Choice>,
    /// conditions that are evaluated for the rows that pass the tests
    pub others: Vec<Expr>,
}

impl Conditions {
    /// The tests, if there is nothing else.
    pub fn only_tests(&self) -> Option<&[Test]> {
        let others = self.rows.is_empty() && self.choices.is_empty() && self.others.is_empty();
        others.then_some(self.tests.as_slice())
    }
}

/// `(a, b) > (constant, constant)`, or with `>=`, `<`, `<=`. A test of the first column that it
/// implies is among the tests.
#[derive(Clone, Debug)]
pub(super) struct RowTest {
    pub columns: Vec<(ColumnId, SqlType)>,
    pub sources: Vec<Source>,
    /// `>` or `>=`
    pub is_lower: bool,
    pub inclusive: bool,
}

impl RowTest {
    /// As EXPLAIN shows it, `name` being a column's.
    pub fn text(&self, name: impl Fn(ColumnId) -> String) -> String {
        let names: Vec<String> = self.columns.iter().map(|(id, _)| name(*id)).collect();
        let sign = if self.is_lower { '>' } else { '<' };
        let equal = if self.inclusive { "=" } else { "" };
        format!("({}) {sign}{equal}", names.join(", "))
    }
}

/// An OR, each side of which is an AND of tests.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    pub sides: Vec<Vec<Test>>,
    /// the whole condition
    pub written: Expr,
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
    /// `IS NOT DISTINCT FROM constant`
    Same(Source),
    /// `IN (constants)`
    In(Vec<Source>),
    /// `= ANY (constant)`, whose value is an array of items of a type
    Any(Source, SqlType),
    /// LIKE
    Like {
        pattern: Source,
        /// what the pattern begins with is all that it says, else the execution is undecided;
        /// false: whether the rest matches is tested besides
        is_whole: bool,
    },
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
        !matches!(
            self.condition,
            Condition::Within { .. } | Condition::Like { .. }
        )
    }

    /// Whether no other condition says more of what it comes from.
    pub fn is_all_that_is_tested(&self) -> bool {
        !matches!(
            self.condition,
            Condition::Like {
                is_whole: false,
                ..
            }
        )
    }

    /// Whether one value passes at most.
    pub fn is_equal(&self) -> bool {
        matches!(self.condition, Condition::Equal(_) | Condition::Same(_))
    }

    /// As EXPLAIN shows it, `name` being the column's.
    pub fn text(&self, name: &str) -> String {
        match &self.condition {
            Condition::Equal(_) => format!("{name} ="),
            Condition::Same(_) => format!("{name} IS NOT DISTINCT FROM"),
            Condition::In(list) => format!("{name} IN ({} values)", list.len()),
            Condition::Any(..) => format!("{name} = ANY"),
            Condition::Like { .. } => format!("{name} LIKE"),
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
        let mut open: Vec<Expr> = condition.cloned().into_iter().collect();
        while let Some(expr) = open.pop() {
            match expr {
                Expr::Nested(inner) => open.push(*inner),
                Expr::BinaryOp {
                    left,
                    op: BinaryOperator::And,
                    right,
                } => open.extend([*right, *left]),
                other => match equalities(&other) {
                    Some(equalities) => open.extend(equalities.into_iter().rev()),
                    None => self.add_condition(scope, other, &mut found),
                },
            }
        }
        found
    }

    fn add_condition(&self, scope: &Scope<'_>, expr: Expr, found: &mut Conditions) {
        if let Some(row) = self.row_test(scope, &expr) {
            // What it implies for its first column; another test of the column may do instead.
            let implied = row.implied();
            implied.and_then(|test| add(&mut found.tests, test));
            found.rows.push(row);
            return;
        }
        if let Some(sides) = self.sides(scope, &expr) {
            found.choices.push(Choice {
                sides,
                written: expr,
            });
            return;
        }
        if let Some(like) = self.like(scope, &expr) {
            let is_tested_besides = !like.is_all_that_is_tested();
            // Another test of the column may do instead, if LIKE is tested besides.
            let is_added = add(&mut found.tests, like).is_some();
            if is_tested_besides || !is_added {
                found.others.push(expr);
            }
            return;
        }
        let test = self.test(scope, &expr);
        if test.and_then(|test| add(&mut found.tests, test)).is_none() {
            found.others.push(expr);
        }
    }

    /// The sides of an OR, all of which are ANDs of tests.
    fn sides(&self, scope: &Scope<'_>, expr: &Expr) -> Option<Vec<Vec<Test>>> {
        let Expr::BinaryOp {
            op: BinaryOperator::Or,
            ..
        } = expr
        else {
            return None;
        };
        let mut sides = Vec::new();
        let mut open = vec![expr];
        while let Some(expr) = open.pop() {
            match expr {
                Expr::Nested(inner) => open.push(inner),
                Expr::BinaryOp {
                    left,
                    op: BinaryOperator::Or,
                    right,
                } => open.extend([right.as_ref(), left.as_ref()]),
                side => {
                    let tests = self.conditions(scope, Some(side));
                    sides.push(tests.only_tests()?.to_vec());
                }
            }
        }
        Some(sides)
    }

    fn row_test(&self, scope: &Scope<'_>, expr: &Expr) -> Option<RowTest> {
        let Expr::BinaryOp { left, op, right } = expr else {
            return None;
        };
        let (left, right) = (parts_of(left)?, parts_of(right)?);
        let (is_lower, inclusive) = match op {
            BinaryOperator::Gt => (true, false),
            BinaryOperator::GtEq => (true, true),
            BinaryOperator::Lt => (false, false),
            BinaryOperator::LtEq => (false, true),
            _ => return None,
        };
        let are_columns = |exprs: &[Expr]| exprs.iter().all(|e| scope.column(e).is_some());
        let (columns, constants, is_lower) = match are_columns(left) {
            true => (left, right, is_lower),
            false => (right, left, !is_lower),
        };
        if columns.len() != constants.len() {
            return None;
        }
        let column = |expr: &Expr| {
            let column = &scope.table.columns[scope.column(expr)?];
            is_key_type(column.sql_type).then_some((column.id, column.sql_type))
        };
        let columns = columns.iter().map(column).collect::<Option<Vec<_>>>()?;
        let sources = constants.iter().zip(&columns).map(|(constant, (_, t))| {
            let source = self.constant(constant)?;
            is_comparable_source(&source, *t).then_some(source)
        });
        Some(RowTest {
            sources: sources.collect::<Option<_>>()?,
            columns,
            is_lower,
            inclusive,
        })
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
            Expr::IsNotDistinctFrom(left, right) => match scope.column(left) {
                Some(column) => (column, Condition::Same(self.constant(right)?)),
                None => (scope.column(right)?, Condition::Same(self.constant(left)?)),
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
                (column, self.any_of(right, sql_type)?)
            }
            _ => return None,
        };
        let column = &scope.table.columns[column];
        let sql_type = column.sql_type;
        let mut sources = condition.sources().into_iter();
        let are_comparable = sources.all(|source| is_comparable_source(source, sql_type));
        (is_key_type(sql_type) && are_comparable).then_some(Test {
            column: column.id,
            sql_type,
            condition,
        })
    }

    /// The test of `column LIKE constant`. The planner compiles no condition with a literal whose
    /// type it would have to settle: such a pattern is looked at when the statement runs.
    fn like(&self, scope: &Scope<'_>, expr: &Expr) -> Option<Test> {
        let Expr::Like {
            negated: false,
            any: false,
            expr,
            pattern,
            escape_char: None,
        } = expr
        else {
            return None;
        };
        let column = &scope.table.columns[scope.column(expr)?];
        let is_text = matches!(column.sql_type, SqlType::Text | SqlType::Varchar(_));
        let pattern = self.constant(pattern).filter(|_| is_text)?;
        is_comparable_source(&pattern, column.sql_type).then_some(Test {
            column: column.id,
            sql_type: column.sql_type,
            condition: Condition::Like {
                is_whole: !self.has_slot(&pattern),
                pattern,
            },
        })
    }

    /// `= ANY (expr)` of a column of type `t`.
    fn any_of(&self, expr: &Expr, t: SqlType) -> Option<Condition> {
        match expr {
            Expr::Nested(inner) => self.any_of(inner, t),
            Expr::Value(_) => Some(Condition::Any(self.array(expr)?, t)),
            Expr::Cast {
                expr,
                data_type: DataType::Array(ArrayElemTypeDef::SquareBracket(item, None)),
                ..
            } => {
                let item = types::from_ast(item).ok().flatten()?;
                let has_modifier = matches!(item, SqlType::Varchar(_) | SqlType::Numeric { .. });
                let is_known = !has_modifier && is_comparable(t, item);
                is_known.then_some(Condition::Any(self.array(expr)?, item))
            }
            // Its items have one type, which must be none that a value does not have by itself.
            Expr::Array(array) => {
                let list = array.elem.iter().map(|item| {
                    let source = self.constant(item)?;
                    is_integer_source(&source).then_some(source)
                });
                let list = list.collect::<Option<Vec<_>>>()?;
                (is_integer(t) && !list.is_empty()).then_some(Condition::In(list))
            }
            _ => None,
        }
    }

    /// The text of an array.
    fn array(&self, expr: &Expr) -> Option<Source> {
        let source = self.constant(expr)?;
        match &source {
            Source::Parameter(_, _, false) => Some(source),
            Source::Literal(text) if text.data_type().is_string() => Some(source),
            _ => None,
        }
    }
}

impl Condition {
    /// What the column is compared with, arrays excepted.
    fn sources(&self) -> Vec<&Source> {
        match self {
            Self::Equal(source) | Self::Same(source) => vec![source],
            Self::Like { pattern, .. } => vec![pattern],
            Self::In(list) => list.iter().collect(),
            Self::Any(..) => Vec::new(),
            Self::Within { lower, upper } => {
                let limits = lower.iter().chain(upper);
                limits.map(|limit| &limit.source).collect()
            }
        }
    }
}

impl RowTest {
    /// The test of its first column that holds wherever it holds.
    fn implied(&self) -> Option<Test> {
        let ((column, sql_type), source) = self.columns.first().zip(self.sources.first())?;
        let limit = Some(Limit {
            source: source.clone(),
            inclusive: true,
        });
        let (lower, upper) = match self.is_lower {
            true => (limit, None),
            false => (None, limit),
        };
        Some(Test {
            column: *column,
            sql_type: *sql_type,
            condition: Condition::Within { lower, upper },
        })
    }
}

/// The comparisons that an equality of rows is an AND of.
fn equalities(expr: &Expr) -> Option<Vec<Expr>> {
    let Expr::BinaryOp {
        left,
        op: BinaryOperator::Eq,
        right,
    } = expr
    else {
        return None;
    };
    let (left, right) = (parts_of(left)?, parts_of(right)?);
    let equal = |(left, right): (&Expr, &Expr)| Expr::BinaryOp {
        left: Box::new(left.clone()),
        op: BinaryOperator::Eq,
        right: Box::new(right.clone()),
    };
    (left.len() == right.len()).then(|| left.iter().zip(right).map(equal).collect())
}

/// The parts of a row.
fn parts_of(expr: &Expr) -> Option<&[Expr]> {
    match expr {
        Expr::Tuple(parts) if parts.len() > 1 => Some(parts),
        _ => None,
    }
}

/// Whether a value is an integer, whatever it is compared with.
fn is_integer_source(source: &Source) -> bool {
    match source {
        Source::Parameter(_, known, _) => known.is_some_and(is_integer),
        Source::Literal(value) => value.data_type().is_integer(),
        Source::Read(_, t) | Source::Query(_, t) => is_integer(*t),
        Source::Now | Source::Identity | Source::Computed(_) => false,
    }
}

/// Whether a column of type `t` can be compared with a value; of a subquery's only the type is
/// known.
fn is_comparable_source(source: &Source, t: SqlType) -> bool {
    match source {
        Source::Query(_, value) => is_comparable(t, *value),
        _ => true,
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
        // LIKE is tested besides.
        (
            known @ Condition::Like {
                is_whole: false, ..
            },
            condition,
        ) => {
            *known = condition;
            Some(())
        }
        (
            _,
            Condition::Like {
                is_whole: false, ..
            },
        ) => Some(()),
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
