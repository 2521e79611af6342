//! Operators and their places in a plan.

use super::run::{Rows, Run};
use std::fmt;

/// A part of a short plan.
pub(super) trait Operator: fmt::Debug + Send + Sync {
    fn run(&self, run: &mut Run<'_>) -> Rows;

    /// As EXPLAIN shows it.
    fn text(&self) -> String;

    fn inputs(&self) -> Vec<&Node>;
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
