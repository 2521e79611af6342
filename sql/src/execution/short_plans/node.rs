//! Operators and their places in a plan.

use super::run::{Pairs, Rows, Run, Stop};
use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::scalar::ScalarValue;
use std::fmt;

/// A part of a short plan.
pub(super) trait Operator: fmt::Debug + Send + Sync {
    fn run(&self, run: &mut Run<'_>) -> Rows;

    /// Runs for each of the outer rows; None: it must be run for one after the other.
    fn run_for(&self, run: &mut Run<'_>, outer: &OuterRows<'_>) -> Option<Result<Pairs, Stop>> {
        let _ = (run, outer);
        None
    }

    /// As EXPLAIN shows it.
    fn text(&self) -> String;

    fn inputs(&self) -> Vec<&Node>;
}

/// The keys of outer rows, and the slots where an inner side looks for them.
pub(super) struct OuterRows<'a> {
    pub slots: Vec<usize>,
    pub keys: &'a [ArrayRef],
    pub count: usize,
}

impl OuterRows<'_> {
    /// The keys of a row; None: one is NULL, which matches nothing.
    pub fn key(&self, at: usize) -> Result<Option<Vec<ScalarValue>>, Stop> {
        if self.keys.iter().any(|key| key.is_null(at)) {
            return Ok(None);
        }
        let key = self.keys.iter();
        let key = key.map(|key| ScalarValue::try_from_array(key, at));
        Ok(Some(key.collect::<Result<_, _>>()?))
    }

    /// Puts keys into the slots.
    pub fn set(&self, run: &Run<'_>, key: &[ScalarValue]) {
        for (slot, value) in self.slots.iter().zip(key) {
            run.slots.set(*slot, value.clone());
        }
    }
}

/// An operator with its place in the plan.
#[derive(Debug)]
pub(super) struct Node {
    pub number: usize,
    pub operator: Box<dyn Operator>,
    /// about how many rows it gives, by definitions only
    pub estimate: usize,
}

impl Node {
    /// All its rows.
    pub fn rows(&self, run: &mut Run<'_>) -> Rows {
        run.statement.transaction().check_cancelled()?;
        let batch = self.operator.run(run)?;
        run.note(self.number, batch.num_rows());
        Ok(batch)
    }

    /// The rows for each of the outer rows; None: it must be run for one after the other.
    pub fn rows_for(
        &self,
        run: &mut Run<'_>,
        outer: &OuterRows<'_>,
    ) -> Option<Result<Pairs, Stop>> {
        let found = self.operator.run_for(run, outer)?;
        if let Ok(pairs) = &found {
            run.note(self.number, pairs.outer.len());
        }
        Some(found)
    }

    /// Appends the lines that EXPLAIN shows of it and of what is below; `rows` has what each node
    /// has given, if it has run.
    pub fn lines(&self, depth: usize, rows: Option<&[usize]>, lines: &mut Vec<String>) {
        let indent = "  ".repeat(depth);
        let rows_of = |rows: &[usize]| rows.get(self.number).copied().unwrap_or_default();
        let shown = rows.map(|rows| format!(", rows={}", rows_of(rows)));
        let shown = shown.unwrap_or_default();
        lines.push(format!("{indent}{}{shown}", self.operator.text()));
        for input in self.operator.inputs() {
            input.lines(depth + 1, rows, lines);
        }
    }
}
