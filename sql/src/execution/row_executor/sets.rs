//! The tests and conditions of a search with the values of one execution.

use super::condition_values::{RowBound, Values};
use super::execution::Execution;
use super::expressions::{Rows, Slots};
use super::search::{KeyPath, Path, Search};
use super::value::{integer, integer_value};
use crate::values::value::to_scalar;
use std::cell::Cell;
use std::ops::Bound;
use strandline_base::{SqlType, Value};
use strandline_engine::{ColumnPredicate, CompareOp};

/// A search that meets more rows is planned: rows by the thousand are better fetched by block.
pub(super) const ROWS_MAX: usize = 256;

/// The sets of values of a search's tests, for one execution.
pub(super) struct Sets<'a> {
    pub search: &'a Search,
    pub values: Vec<Values>,
    /// the constants of the row tests
    pub rows: Vec<RowBound>,
    /// of a search by any of several paths
    pub sides: Vec<Self>,
    slots: Slots<'a>,
    /// whether the residual condition of a row is not decided here
    is_undecided: Cell<bool>,
}

impl Sets<'_> {
    /// Whether a row, of which the search's columns were read, passes every test and condition.
    pub fn hold(&self, row: &[Value]) -> bool {
        let mut tests = self.values.iter().zip(&self.search.test_places);
        if !tests.all(|(values, place)| values.holds(&row[*place])) {
            return false;
        }
        let mut rows = self.rows.iter().zip(&self.search.row_places);
        if !rows.all(|(bound, places)| bound.holds(places.iter().map(|place| &row[*place]))) {
            return false;
        }
        if !self.sides.is_empty() && !self.sides.iter().any(|side| side.hold(row)) {
            return false;
        }
        let Some(residual) = &self.search.residual else {
            return true;
        };
        let row = Rows::one(row, &[]);
        let holds = residual.condition.hold(&self.slots, &row);
        if holds.is_none() {
            self.is_undecided.set(true);
        }
        holds.unwrap_or(false)
    }

    /// Whether a condition of a row could not be decided.
    pub fn are_undecided(&self) -> bool {
        self.is_undecided.get()
    }

    /// Whether no row passes the tests.
    pub fn is_empty(&self) -> bool {
        let has_sides = !self.sides.is_empty();
        self.values.iter().any(Values::is_empty)
            || (has_sides && self.sides.iter().all(Sets::is_empty))
    }

    /// The values of a test, unless they are bounds.
    pub fn points(&self, test: usize) -> &[Value] {
        match &self.values[test] {
            Values::Points(points) => points,
            Values::Within(..) => &[],
        }
    }

    /// Every combination of the values of these tests; None: too many.
    pub fn combinations(&self, tests: &[usize]) -> Option<Vec<Vec<Value>>> {
        let mut keys = vec![Vec::with_capacity(tests.len())];
        for test in tests {
            let points = self.points(*test);
            if let ([key], [point]) = (keys.as_mut_slice(), points) {
                key.push(point.clone());
                continue;
            }
            if keys.len().saturating_mul(points.len()) > ROWS_MAX {
                return None;
            }
            let longer = keys.iter().flat_map(|key| {
                points.iter().map(|point| {
                    let mut longer = key.clone();
                    longer.push(point.clone());
                    longer
                })
            });
            keys = longer.collect();
        }
        Some(keys)
    }

    /// The tests as a scan has them, as far as it can have them: perhaps for more rows.
    pub fn predicates(&self) -> Vec<ColumnPredicate> {
        let mut found = Vec::new();
        for (test, values) in self.search.tests.iter().zip(&self.values) {
            let mut add = |op, value: &Value| {
                found.push(ColumnPredicate {
                    column: test.column,
                    op,
                    value: value.clone(),
                });
            };
            match values {
                Values::Points(points) => {
                    if let [point] = points.as_slice() {
                        add(CompareOp::Eq, point);
                    }
                }
                Values::Within(lower, upper) => {
                    match lower {
                        Bound::Included(value) => add(CompareOp::Ge, value),
                        Bound::Excluded(value) => add(CompareOp::Gt, value),
                        Bound::Unbounded => {}
                    }
                    match upper {
                        Bound::Included(value) => add(CompareOp::Le, value),
                        Bound::Excluded(value) => add(CompareOp::Lt, value),
                        Bound::Unbounded => {}
                    }
                }
            }
        }
        found
    }
}

impl Execution<'_> {
    /// The sets of values of a search's tests.
    pub(super) fn sets<'a>(&'a self, search: &'a Search) -> Option<Sets<'a>> {
        let residual = search.residual.as_ref();
        if !residual.is_none_or(|residual| residual.condition.fit(&self.slots())) {
            return None;
        }
        let values = search.tests.iter().map(|test| self.values_of(test));
        let mut values = values.collect::<Option<Vec<_>>>()?;
        if let Path::Key(path) = &search.path {
            list_numbers(path, search, &mut values)?;
        }
        let rows = search.rows.iter().map(|test| self.row_bound(test));
        let sides: &[Search] = match &search.path {
            Path::Either(sides) => sides,
            Path::Key(_) | Path::Index(_) => &[],
        };
        let sides = sides.iter().map(|side| self.sets(side));
        Some(Sets {
            search,
            values,
            rows: rows.collect::<Option<_>>()?,
            sides: sides.collect::<Option<_>>()?,
            slots: self.slots(),
            is_undecided: Cell::new(false),
        })
    }
}

/// Puts the numbers of a range of integers, by which a key is looked up, in the place of its
/// bounds; None: they are many.
fn list_numbers(path: &KeyPath, search: &Search, values: &mut [Values]) -> Option<()> {
    let (None, Some(range)) = (path.walk, path.range) else {
        return Some(());
    };
    let test = *path.parts.get(range)?;
    let sql_type = search.tests.get(test)?.sql_type;
    let (lower, upper) = match values.get(test)? {
        Values::Within(lower, upper) => (lower.as_ref(), upper.as_ref()),
        Values::Points(_) => return Some(()),
    };
    let (first, last) = numbers(lower, upper, sql_type)?;
    let count = i128::from(last) - i128::from(first) + 1;
    if count > ROWS_MAX as i128 {
        return None;
    }
    let points = (first..=last).map(|number| integer_value(number, sql_type));
    values[test] = Values::Points(points.collect::<Option<_>>()?);
    Some(())
}

/// The first and the last integer within bounds of a column of type `t`; the first is greater if
/// there is none.
pub(super) fn numbers(
    lower: Bound<&Value>,
    upper: Bound<&Value>,
    t: SqlType,
) -> Option<(i64, i64)> {
    let (least, greatest) = match t {
        SqlType::SmallInt => (i64::from(i16::MIN), i64::from(i16::MAX)),
        SqlType::Integer => (i64::from(i32::MIN), i64::from(i32::MAX)),
        SqlType::BigInt => (i64::MIN, i64::MAX),
        _ => return None,
    };
    let number = |value: &Value| integer(&to_scalar(value));
    let first = match lower {
        Bound::Unbounded => least,
        Bound::Included(value) => number(value)?,
        Bound::Excluded(value) => number(value)?.checked_add(1)?,
    };
    let last = match upper {
        Bound::Unbounded => greatest,
        Bound::Included(value) => number(value)?,
        Bound::Excluded(value) => number(value)?.checked_sub(1)?,
    };
    Some((first, last))
}
