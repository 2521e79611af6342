//! Applying batches of computed rows through the engine.
//!
//! An [`Applier`] is the state of one change while its input streams by: the rows that its
//! statement has changed, the keys that it has inserted, the rows that wait to be inserted. For
//! each batch it chooses the action of each row, checks the constraints of the new rows, writes
//! them, and returns the changed rows. Applying is safe while the input is still being scanned,
//! because the engine hides a statement's own writes from it.

use super::failing_row;
use super::keys::InsertedKeys;
use super::operation::{Action, CheckColumn, Constraint, Operation, Repeated};
use super::row_set::ChangedRows;
use super::sink::InsertSink;
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions, UInt32Array,
};
use datafusion::arrow::compute::{filter_record_batch, take};
use datafusion::arrow::datatypes::{Field, Int32Type, Schema, SchemaRef, UInt64Type};
use std::sync::Arc;
use strandline_base::{Error, Result, RowId, SqlState};
use strandline_column::types::arrow_type;
use strandline_engine::{OnInvisibleDuplicate, Statement};

/// A DML statement being applied.
pub(super) struct Applier {
    operation: Arc<Operation>,
    statement: Arc<Statement>,
    changed: Arc<ChangedRows>,
    inserted: InsertedKeys,
    sink: InsertSink,
}

impl Applier {
    /// An applier at the start of its input. `changed`: the rows that are not changed again.
    pub fn new(
        operation: Arc<Operation>,
        statement: Arc<Statement>,
        changed: Arc<ChangedRows>,
    ) -> Self {
        let conflicts = if operation.is_upsert() {
            OnInvisibleDuplicate::Conflict
        } else {
            OnInvisibleDuplicate::Violation
        };
        Self {
            changed,
            inserted: InsertedKeys::new(&operation),
            sink: InsertSink::new(operation.table.clone(), conflicts),
            operation,
            statement,
        }
    }

    /// Applies a batch; returns the changed rows, in order.
    pub fn apply(&mut self, batch: &RecordBatch) -> Result<RecordBatch> {
        self.verify(batch, None, |check| check.proposed)?;
        let choices = self.choose(batch)?;
        for number in 0..self.operation.actions.len() {
            let rows: Vec<u32> = (0..)
                .zip(&choices)
                .filter(|(_, c)| **c == Some(number))
                .map(|(i, _)| i)
                .collect();
            if !rows.is_empty() {
                self.perform(batch, number, rows)?;
            }
        }
        if choices.iter().all(|choice| self.is_change(*choice)) {
            return Ok(batch.clone());
        }
        let kept: BooleanArray = choices
            .iter()
            .map(|choice| Some(self.is_change(*choice)))
            .collect();
        filter_record_batch(batch, &kept).map_err(|e| strandline_semantics::error::from_arrow(&e))
    }

    /// Ends the input: writes the rows that still wait.
    pub fn finish(&mut self) -> Result<()> {
        self.sink.finish(&self.statement)
    }

    fn is_change(&self, choice: Option<usize>) -> bool {
        choice.is_some_and(|number| self.operation.actions[number] != Action::Nothing)
    }

    /// The action of each row; `None` for rows without one.
    fn choose(&mut self, batch: &RecordBatch) -> Result<Vec<Option<usize>>> {
        let layout = &self.operation.layout;
        let mut choices: Vec<Option<usize>> = match layout.action {
            None => vec![Some(0); batch.num_rows()],
            Some(index) => {
                let actions = batch.column(index).as_primitive::<Int32Type>();
                actions.iter().map(|a| a.map(|a| a as usize)).collect()
            }
        };
        let inserts: Vec<bool> = choices
            .iter()
            .map(|c| c.is_some_and(|n| self.operation.actions[n] == Action::Insert))
            .collect();
        if let Some(index) = layout.row_id {
            let ids = batch.column(index).as_primitive::<UInt64Type>();
            let mut changed = self.changed.of(self.operation.table.id);
            for (row, choice) in choices.iter_mut().enumerate() {
                let Some(number) = *choice else { continue };
                if matches!(
                    self.operation.actions[number],
                    Action::Insert | Action::Nothing
                ) {
                    continue;
                }
                if ids.is_null(row) {
                    return Err(Error::internal("a row to change has no row id"));
                }
                if !changed.insert(RowId(ids.value(row))) {
                    self.repeated()?;
                    *choice = None;
                }
            }
        }
        if self.operation.is_upsert() {
            for row in self.inserted.repeated(&self.operation, batch, &inserts)? {
                if self
                    .operation
                    .actions
                    .iter()
                    .any(|a| matches!(a, Action::Update(_)))
                {
                    self.repeated()?;
                }
                choices[row] = None;
            }
        }
        Ok(choices)
    }

    /// Handles a second change of one row: an error, or nothing if it is skipped.
    fn repeated(&self) -> Result<()> {
        let error = match self.operation.repeated {
            Repeated::Skipped => return Ok(()),
            Repeated::UpsertError => Error::invalid(
                SqlState::CARDINALITY_VIOLATION,
                "ON CONFLICT DO UPDATE command cannot affect row a second time",
            )
            .with_hint(
                "Ensure that no rows proposed for insertion within the same command have \
                 duplicate constrained values.",
            ),
            Repeated::MergeError => Error::invalid(
                SqlState::CARDINALITY_VIOLATION,
                "MERGE command cannot affect row a second time",
            )
            .with_hint("Ensure that not more than one source row matches any one target row."),
        };
        Err(error)
    }

    fn perform(&mut self, batch: &RecordBatch, number: usize, rows: Vec<u32>) -> Result<()> {
        let operation = self.operation.clone();
        match &operation.actions[number] {
            Action::Nothing => Ok(()),
            Action::Delete => self
                .statement
                .delete(&operation.table, &row_ids(batch, &operation, &rows)),
            Action::Insert => {
                let all: Vec<usize> = (0..operation.table.columns.len()).collect();
                self.check_rows(batch, &rows, &all)?;
                let new = self.new_values(batch, &rows, &all)?;
                self.sink.push(&self.statement, new)
            }
            Action::Update(columns) => {
                self.check_rows(batch, &rows, columns)?;
                let ids = row_ids(batch, &operation, &rows);
                let ids_of_columns: Vec<_> = columns
                    .iter()
                    .map(|p| operation.table.columns[*p].id)
                    .collect();
                let new = self.new_values(batch, &rows, columns)?;
                self.statement
                    .update(&operation.table, &ids, &ids_of_columns, &new)
            }
        }
    }

    /// The new values of `columns` in `rows`.
    fn new_values(
        &self,
        batch: &RecordBatch,
        rows: &[u32],
        columns: &[usize],
    ) -> Result<RecordBatch> {
        let indices = UInt32Array::from(rows.to_vec());
        let whole = rows.len() == batch.num_rows();
        let arrays = columns
            .iter()
            .map(|position| {
                let array = batch.column(self.input_column(*position)?);
                if whole {
                    return Ok(array.clone());
                }
                take(array, &indices, None).map_err(|e| strandline_semantics::error::from_arrow(&e))
            })
            .collect::<Result<Vec<ArrayRef>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        RecordBatch::try_new_with_options(table_schema(&self.operation, columns), arrays, &options)
            .map_err(|e| Error::internal(format!("new values do not fit their columns: {e}")))
    }

    fn input_column(&self, position: usize) -> Result<usize> {
        self.operation.layout.columns[position]
            .ok_or_else(|| Error::internal("a column to write was not computed"))
    }

    /// Checks NOT NULL of the written columns and CHECK of the whole new rows.
    fn check_rows(&self, batch: &RecordBatch, rows: &[u32], columns: &[usize]) -> Result<()> {
        for position in columns {
            let column = &self.operation.table.columns[*position];
            if !column.not_null {
                continue;
            }
            let array = batch.column(self.input_column(*position)?);
            if array.logical_null_count() == 0 {
                continue;
            }
            let nulls = array.logical_nulls();
            if let Some(row) = rows
                .iter()
                .find(|r| nulls.as_ref().is_some_and(|n| n.is_null(**r as usize)))
            {
                let constraint = Constraint::NotNull(column.name.clone());
                return Err(self.violation(&constraint, batch, *row as usize));
            }
        }
        self.verify(batch, Some(rows), |check| !check.proposed)
    }

    /// Checks the conditions that `which` selects, for `rows` or for all rows.
    fn verify(
        &self,
        batch: &RecordBatch,
        rows: Option<&[u32]>,
        which: impl Fn(&CheckColumn) -> bool,
    ) -> Result<()> {
        for check in self.operation.layout.checks.iter().filter(|c| which(c)) {
            let results = batch.column(check.index).as_boolean();
            if results.false_count() == 0 {
                continue;
            }
            let fails = |row: usize| results.is_valid(row) && !results.value(row);
            let failing = match rows {
                Some(rows) => rows.iter().map(|r| *r as usize).find(|r| fails(*r)),
                None => (0..batch.num_rows()).find(|r| fails(*r)),
            };
            if let Some(row) = failing {
                return Err(self.violation(&check.constraint, batch, row));
            }
        }
        Ok(())
    }

    fn violation(&self, constraint: &Constraint, batch: &RecordBatch, row: usize) -> Error {
        let error = failing_row::violation(&self.operation.table, constraint);
        match failing_row::detail(&self.operation, &self.statement, batch, row) {
            Some(detail) => error.with_detail(detail),
            None => error,
        }
    }
}

/// The ids of `rows`.
fn row_ids(batch: &RecordBatch, operation: &Operation, rows: &[u32]) -> Vec<RowId> {
    let index = operation
        .layout
        .row_id
        .expect("an update or delete has row ids");
    let ids = batch.column(index).as_primitive::<UInt64Type>();
    rows.iter()
        .map(|row| RowId(ids.value(*row as usize)))
        .collect()
}

/// The schema of the table's columns at `positions`. All are nullable, because NOT NULL is checked
/// separately with a better message.
fn table_schema(operation: &Operation, positions: &[usize]) -> SchemaRef {
    let fields: Vec<Field> = positions
        .iter()
        .map(|p| {
            let column = &operation.table.columns[*p];
            Field::new(&column.name, arrow_type(column.sql_type), true)
        })
        .collect();
    Arc::new(Schema::new(fields))
}
