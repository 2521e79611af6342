//! Operators, and what comes of running one.

use super::run::Run;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use std::fmt;
use strandline_base::Error;

/// Why a run ends without a result.
#[derive(Debug)]
pub(super) enum Stop {
    /// The full path decides: rows are many, or an expression has failed.
    Undecided,
    /// the statement fails
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<DataFusionError> for Stop {
    fn from(_: DataFusionError) -> Self {
        Self::Undecided
    }
}

impl From<ArrowError> for Stop {
    fn from(_: ArrowError) -> Self {
        Self::Undecided
    }
}

/// All rows of an operator, whose columns are those of the plan that it was compiled from.
pub(super) type Rows = Result<RecordBatch, Stop>;

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
