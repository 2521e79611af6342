//! The tests and conditions of a search with the values of one execution.

use super::condition_values::Values;
use super::execution::Execution;
use super::expressions::{Rows, Slots};
use super::search::Search;
use std::cell::Cell;
use std::ops::Bound;
use strandline_base::Value;
use strandline_engine::{ColumnPredicate, CompareOp};

/// A search that meets more rows is planned: rows by the thousand are better fetched by block.
pub(super) const ROWS_MAX: usize = 256;

/// The sets of values of a search's tests, for one execution.
pub(super) struct Sets<'a> {
    pub search: &'a Search,
    pub values: Vec<Values>,
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
        self.values.iter().any(Values::is_empty)
    }

    fn points(&self, test: usize) -> &[Value] {
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
        let values = values.collect::<Option<_>>()?;
        Some(Sets {
            search,
            values,
            slots: self.slots(),
            is_undecided: Cell::new(false),
        })
    }
}
