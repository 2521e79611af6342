//! Rows of tables: those that a key or an index leads to, and all of a small table.

use crate::execution::row_executor::Lookup;
use crate::execution::short_plans::node::{Node, Operator};
use crate::execution::short_plans::run::{
    Expression, Rows, Run, Stop, batch_of, constant, filtered,
};
use crate::values::value::arrays_of_rows;
use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::{Int64Type, SchemaRef, UInt64Type};
use std::sync::Arc;
use strandline_base::{ColumnId, SqlType};
use strandline_engine::ScanRequest;
use strandline_engine::catalog::TableDef;

/// What both ways to read a table have in common.
#[derive(Debug)]
pub(in crate::execution::short_plans) struct Stored {
    pub table: Arc<TableDef>,
    /// the columns read: the row's id, those that are given, others of conditions
    pub read: Vec<ColumnId>,
    pub types: Vec<SqlType>,
    /// whether the row's id is the first of them
    pub has_row_id: bool,
    pub read_schema: SchemaRef,
    /// conditions that the access path does not decide
    pub conditions: Vec<Expression>,
    pub text: String,
    /// the places of the columns that are given among those read
    pub given: Vec<usize>,
}

impl Stored {
    /// A scan of all that is read.
    pub(super) fn request(&self) -> ScanRequest {
        ScanRequest {
            columns: self.read[usize::from(self.has_row_id)..].to_vec(),
            with_row_id: self.has_row_id,
            ..ScanRequest::default()
        }
    }

    /// What a scan has given, with the columns in their order.
    pub(super) fn scanned(&self, batch: &RecordBatch) -> Rows {
        let mut columns = batch.columns().to_vec();
        if self.has_row_id {
            // A scan gives it last.
            columns.rotate_right(1);
        }
        batch_of(&self.read_schema, columns, batch.num_rows())
    }

    pub(super) fn finished(&self, batch: RecordBatch) -> Rows {
        let batch = filtered(&self.conditions, batch)?;
        let is_all = self.given.len() == batch.num_columns();
        if is_all && self.given.is_sorted() {
            return Ok(batch);
        }
        Ok(batch.project(&self.given)?)
    }

    pub(super) fn text(&self) -> String {
        match self.text.is_empty() {
            true => String::new(),
            false => format!(", conditions=[{}]", self.text),
        }
    }
}

/// The rows that a key or an index leads to.
#[derive(Debug)]
pub(in crate::execution::short_plans) struct ByLookup {
    pub lookup: Lookup,
    /// values that the lookup needs, and their slots
    pub computed: Vec<(usize, Expression)>,
    pub stored: Stored,
}

impl Operator for ByLookup {
    fn run(&self, run: &mut Run<'_>) -> Rows {
        for (slot, expression) in &self.computed {
            run.slots.set(*slot, constant(expression)?);
        }
        let found = {
            let slots = run.slots.read();
            self.lookup.find(run.compiled, run.statement, &slots)?
        };
        let mut cells = found.ok_or(Stop::Undecided)?;
        let width = self.lookup.width();
        let rows = cells.len() / width.max(1);
        run.read(rows)?;
        let stored = &self.stored;
        let mut columns = arrays_of_rows(&mut cells, width, &stored.types)?;
        if stored.has_row_id
            && let Some(ids) = columns.first_mut()
        {
            let numbers = ids.as_primitive_opt::<Int64Type>().ok_or(Stop::Undecided)?;
            *ids = Arc::new(numbers.unary::<_, UInt64Type>(i64::cast_unsigned));
        }
        let batch = batch_of(&stored.read_schema, columns, rows)?;
        run.charge(&batch)?;
        stored.finished(batch)
    }

    fn text(&self) -> String {
        format!("Lookup: {}{}", self.lookup.text(), self.stored.text())
    }

    fn inputs(&self) -> Vec<&Node> {
        Vec::new()
    }
}

/// All rows of a table that is small.
#[derive(Debug)]
pub(in crate::execution::short_plans) struct SmallTable {
    pub stored: Stored,
}

impl SmallTable {
    /// A table with more rows is not small.
    pub const ROWS_MAX: usize = 256;
    /// Rows that were added after a merge are a unit of their own.
    const UNITS_MAX: usize = 4;
}

impl Operator for SmallTable {
    fn run(&self, run: &mut Run<'_>) -> Rows {
        let stored = &self.stored;
        let notes = run.statement.transaction().notes_reads();
        if notes && !stored.conditions.is_empty() {
            // A scan that notes its conditions conflicts with fewer changes.
            return Err(Stop::Undecided);
        }
        let scan = run.statement.scan(&stored.table, stored.request())?;
        if scan.units() > Self::UNITS_MAX {
            // Many rows were added since the plan was made.
            return Err(Stop::Undecided);
        }
        let (mut parts, mut rows) = (Vec::new(), 0);
        for unit in 0..scan.units() {
            let mut reader = scan.open_unit(unit)?;
            while let Some(part) = reader.next_batch()? {
                rows += part.num_rows();
                if rows > Self::ROWS_MAX {
                    return Err(Stop::Undecided);
                }
                parts.push(stored.scanned(&part)?);
            }
        }
        run.read(rows)?;
        let batch = concat_batches(&stored.read_schema, &parts)?;
        run.charge(&batch)?;
        stored.finished(batch)
    }

    fn text(&self) -> String {
        let stored = &self.stored;
        format!("SmallTable: {}{}", stored.table.name, stored.text())
    }

    fn inputs(&self) -> Vec<&Node> {
        Vec::new()
    }
}
