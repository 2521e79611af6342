//! Rows of tables: those that a key or an index leads to, and all of a small table.

use crate::execution::row_executor::Lookup;
use crate::execution::short_plans::node::{Node, Operator};
use crate::execution::short_plans::run::{
    Expression, Rows, Run, Stop, batch_of, constant, filtered,
};
use crate::values::value::arrays_of_rows;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::SchemaRef;
use std::sync::Arc;
use strandline_base::{ColumnId, SqlType};
use strandline_engine::ScanRequest;
use strandline_engine::catalog::TableDef;

/// What both ways to read a table have in common.
#[derive(Debug)]
pub(in crate::execution::short_plans) struct Stored {
    pub table: Arc<TableDef>,
    /// the columns read: those wanted, then others of conditions
    pub read: Vec<ColumnId>,
    pub types: Vec<SqlType>,
    pub read_schema: SchemaRef,
    /// conditions that the access path does not decide
    pub conditions: Vec<Expression>,
    pub text: String,
    /// the columns wanted, the first of those read
    pub wanted: usize,
}

impl Stored {
    fn finished(&self, batch: RecordBatch) -> Rows {
        let batch = filtered(&self.conditions, batch)?;
        if self.wanted == batch.num_columns() {
            return Ok(batch);
        }
        let wanted: Vec<usize> = (0..self.wanted).collect();
        Ok(batch.project(&wanted)?)
    }

    fn text(&self) -> String {
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
        let columns = arrays_of_rows(&mut cells, width, &stored.types)?;
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
}

impl Operator for SmallTable {
    fn run(&self, run: &mut Run<'_>) -> Rows {
        let stored = &self.stored;
        let notes = run.statement.transaction().notes_reads();
        if notes && !stored.conditions.is_empty() {
            // A scan that notes its conditions conflicts with fewer changes.
            return Err(Stop::Undecided);
        }
        let request = ScanRequest {
            columns: stored.read.clone(),
            ..ScanRequest::default()
        };
        let scan = run.statement.scan(&stored.table, request)?;
        if scan.units() > 1 {
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
                let columns = part.columns().to_vec();
                parts.push(batch_of(&stored.read_schema, columns, part.num_rows())?);
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
