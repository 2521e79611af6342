//! A short plan, and its runs.

use super::node::Node;
use super::run::{ROWS_MAX, Run, Stop, batch_of};
use super::slots::Slots;
use crate::execution::dml::{DmlForm, DmlOutcome};
use crate::execution::row_executor::Compiled;
use crate::values::result::QueryResult;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool};
use datafusion::logical_expr::ScalarUDF;
use datafusion::scalar::ScalarValue;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use strandline_base::Result;
use strandline_engine::{Statement, Transaction};
use strandline_semantics::functions::moment_of;

/// A plan that has stopped so often, and more often than it has finished, is given up.
const STOPS_MAX: u32 = 4;

/// A statement as a tree of operators, and those of its parts.
#[derive(Debug)]
pub(crate) struct ShortPlan {
    /// the changes in WITH, which run first
    pub(super) parts: Vec<Part>,
    pub(super) root: Node,
    /// None: a query
    pub(super) form: Option<DmlForm>,
    /// subqueries of one value, inner ones first
    pub(super) scalars: Vec<Scalar>,
    pub(super) slots: Arc<Slots>,
    /// the types of the slots that parameters fill, and then `moments`
    pub(super) parameters: Vec<DataType>,
    /// functions of the current moment
    pub(super) moments: Vec<Arc<ScalarUDF>>,
    /// the first values of the slots behind these
    pub(super) constants: Vec<ScalarValue>,
    pub(super) nodes: usize,
    /// the catalog and the settings it is valid for
    pub(super) compiled: Compiled,
    /// the columns with the names that users see
    pub(super) output: SchemaRef,
    pub(super) history: History,
}

/// The runs of a plan.
#[derive(Debug, Default)]
pub(super) struct History {
    /// held by the run that uses the slots
    running: Mutex<()>,
    finished: AtomicU32,
    stopped: AtomicU32,
}

/// A part of a statement.
#[derive(Debug)]
pub(super) struct Part {
    pub name: String,
    /// how many of the plan's scalars it needs beyond those of the parts before it
    pub scalars: usize,
    pub node: Node,
}

/// What a run gives.
pub(crate) enum Answer {
    Rows(QueryResult),
    Changed(DmlOutcome),
}

/// A subquery whose only value goes into a slot.
#[derive(Debug)]
pub(super) struct Scalar {
    pub slot: usize,
    pub node: Node,
}

/// What a run needs.
pub(crate) struct Inputs<'a> {
    pub transaction: &'a Arc<Transaction>,
    pub values: &'a [ScalarValue],
    pub memory: &'a Arc<dyn MemoryPool>,
    /// `now()`, if the plan asks for it
    pub now_us: u64,
}

impl ShortPlan {
    /// Whether it changes no rows.
    pub fn only_reads(&self) -> bool {
        self.form.is_none() && self.parts.is_empty()
    }

    /// Runs the plan. None: what it has changed is to be undone, and the full path runs the
    /// statement.
    ///
    /// # Errors
    /// Those of the engine, violations of constraints, and cancellation.
    pub fn run(&self, inputs: &Inputs<'_>) -> Result<Option<Answer>> {
        let statement = inputs.transaction.begin_statement()?;
        if !Arc::ptr_eq(&inputs.transaction.catalog(), &self.compiled.catalog) {
            return Ok(None);
        }
        self.run_for(&statement, inputs)
    }

    /// As [`ShortPlan::run`], for a statement that uses the plan's catalog.
    pub fn run_for(
        &self,
        statement: &Arc<Statement>,
        inputs: &Inputs<'_>,
    ) -> Result<Option<Answer>> {
        let ran = self.run_in(statement, inputs, None);
        let counter = match &ran {
            Ok(Some(_)) => &self.history.finished,
            Ok(None) => &self.history.stopped,
            Err(_) => return ran.map(|_| None),
        };
        counter.fetch_add(1, Ordering::Relaxed);
        let answer = ran?.map(|(answer, _)| answer);
        if answer.is_some() && !self.only_reads() {
            statement.finish()?;
        }
        Ok(answer)
    }

    /// As [`ShortPlan::run`], for EXPLAIN ANALYZE of a query: the lines that it shows.
    pub fn analyze(&self, statement: &Arc<Statement>, inputs: &Inputs<'_>) -> Result<Vec<String>> {
        let rows = vec![0; self.nodes];
        let ran = self.run_in(statement, inputs, Some(rows))?;
        Ok(match ran {
            Some((_, rows)) => self.lines(rows.as_deref()),
            None => {
                let mut lines = self.lines(None);
                if let Some(first) = lines.first_mut() {
                    first.push_str(" stopped");
                }
                lines
            }
        })
    }

    /// Whether an execution needs to know `now()`.
    pub fn asks_now(&self) -> bool {
        !self.moments.is_empty()
    }

    /// Whether it has stopped too often to be worth a try.
    pub fn is_given_up(&self) -> bool {
        let stopped = self.history.stopped.load(Ordering::Relaxed);
        stopped >= STOPS_MAX && stopped > self.history.finished.load(Ordering::Relaxed)
    }

    /// The lines that EXPLAIN shows.
    pub fn explain(&self) -> Vec<String> {
        self.lines(None)
    }

    fn lines(&self, rows: Option<&[usize]>) -> Vec<String> {
        let mut lines = vec!["RowExecutor: plan".to_string()];
        for part in &self.parts {
            lines.push(format!("  Part: {}", part.name));
            part.node.lines(2, rows, &mut lines);
        }
        for scalar in &self.scalars {
            lines.push(format!("  Value: slot={}", scalar.slot));
            scalar.node.lines(2, rows, &mut lines);
        }
        self.root.lines(1, rows, &mut lines);
        lines
    }

    fn run_in(
        &self,
        statement: &Arc<Statement>,
        inputs: &Inputs<'_>,
        rows: Option<Vec<usize>>,
    ) -> Result<Option<(Answer, Option<Vec<usize>>)>> {
        let Some(_running) = self.history.running.try_lock() else {
            return Ok(None);
        };
        let Some(values) = self.slot_values(inputs) else {
            return Ok(None);
        };
        self.slots.fill(values);
        let mut run = Run {
            statement,
            compiled: &self.compiled,
            slots: &self.slots,
            memory: MemoryConsumer::new("short plan").register(inputs.memory),
            rows_left: ROWS_MAX,
            rows,
            changed: Arc::default(),
            changes: 0,
            returned: Vec::new(),
        };
        let result = self.result(&mut run);
        let rows = run.rows.take();
        self.slots.clear();
        match result {
            Ok(result) => Ok(Some((result, rows))),
            Err(Stop::Undecided) => Ok(None),
            Err(Stop::Failed(error)) => Err(error),
        }
    }

    fn result(&self, run: &mut Run<'_>) -> std::result::Result<Answer, Stop> {
        let mut scalars = self.scalars.iter();
        for part in &self.parts {
            for scalar in scalars.by_ref().take(part.scalars) {
                scalar.compute(run)?;
            }
            let rows = part.node.rows(run)?;
            run.returned.push(rows);
        }
        for scalar in scalars {
            scalar.compute(run)?;
        }
        run.changes = 0;
        let batch = self.root.rows(run)?;
        let rows = batch.num_rows();
        let returns = self.form.is_none_or(|form| form.returning);
        let batches = match returns {
            true => vec![batch_of(&self.output, batch.columns().to_vec(), rows)?],
            false => Vec::new(),
        };
        Ok(match self.form {
            None => Answer::Rows(QueryResult::new(self.output.clone(), batches)),
            Some(form) => Answer::Changed(DmlOutcome {
                tag: form.tag,
                rows: run.changes,
                returning: returns.then(|| (self.output.clone(), batches)),
            }),
        })
    }

    /// The values of all slots at the beginning; None: a parameter is of another type.
    fn slot_values(&self, inputs: &Inputs<'_>) -> Option<Vec<ScalarValue>> {
        let values = inputs.values;
        if values.len() + self.moments.len() != self.parameters.len() {
            return None;
        }
        let mut all = Vec::with_capacity(self.parameters.len() + self.constants.len());
        for (value, data_type) in values.iter().zip(&self.parameters) {
            all.push(if value.data_type() == *data_type {
                value.clone()
            } else if value.is_null() {
                ScalarValue::try_from(data_type).ok()?
            } else {
                value.cast_to(data_type).ok()?
            });
        }
        let now_us = i64::try_from(inputs.now_us).ok()?;
        for moment in &self.moments {
            all.push(moment_of(moment, now_us)?);
        }
        all.extend(self.constants.iter().cloned());
        Some(all)
    }
}

impl Scalar {
    fn compute(&self, run: &mut Run<'_>) -> std::result::Result<(), Stop> {
        let batch = self.node.rows(run)?;
        let value = match batch.num_rows() {
            0 => ScalarValue::try_from(batch.column(0).data_type())?,
            1 => ScalarValue::try_from_array(batch.column(0), 0)?,
            _ => return Err(Stop::Undecided),
        };
        run.slots.set(self.slot, value);
        Ok(())
    }
}
