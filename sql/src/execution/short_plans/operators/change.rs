//! Operators of statements that change rows.

use crate::execution::dml;
use crate::execution::short_plans::node::{Node, Operator};
use crate::execution::short_plans::run::{Rows, Run, Stop, taken};
use datafusion::arrow::compute::{SortColumn, SortOptions, lexsort_to_indices};
use std::sync::Arc;

/// Changes rows of a table; gives those that were changed.
#[derive(Debug)]
pub(in crate::execution::short_plans) struct Change {
    pub change: dml::Change,
    pub input: Node,
}

impl Operator for Change {
    fn run(&self, run: &mut Run<'_>) -> Rows {
        let rows = self.input.rows(run)?;
        let done = self.change.apply(run.statement, &run.changed, &rows)?;
        run.changes += done.num_rows() as u64;
        Ok(done)
    }

    fn text(&self) -> String {
        format!("Change: {}", self.change.text())
    }

    fn inputs(&self) -> Vec<&Node> {
        vec![&self.input]
    }
}

/// Appends columns that a change needs.
#[derive(Debug)]
pub(in crate::execution::short_plans) struct Widen {
    pub widen: dml::Widen,
    pub input: Node,
    /// the columns by which the input is sorted
    pub order: Vec<(usize, SortOptions)>,
}

impl Operator for Widen {
    fn run(&self, run: &mut Run<'_>) -> Rows {
        let mut rows = self.input.rows(run)?;
        if !self.order.is_empty() && rows.num_rows() > 1 {
            let by = self.order.iter().map(|(at, options)| SortColumn {
                values: Arc::clone(rows.column(*at)),
                options: Some(*options),
            });
            let places = lexsort_to_indices(&by.collect::<Vec<_>>(), None)?;
            rows = taken(&rows, &places)?;
        }
        self.widen.extend(run.statement, &rows).map_err(Stop::from)
    }

    fn text(&self) -> String {
        self.widen.text()
    }

    fn inputs(&self) -> Vec<&Node> {
        vec![&self.input]
    }
}

/// The rows that an earlier part of the statement has returned.
#[derive(Debug)]
pub(in crate::execution::short_plans) struct Returned {
    pub part: usize,
    /// the columns that are given
    pub columns: Vec<usize>,
}

impl Operator for Returned {
    fn run(&self, run: &mut Run<'_>) -> Rows {
        let rows = run.returned.get(self.part).ok_or(Stop::Undecided)?;
        Ok(rows.project(&self.columns)?)
    }

    fn text(&self) -> String {
        format!("Returned: part={}", self.part)
    }

    fn inputs(&self) -> Vec<&Node> {
        Vec::new()
    }
}
