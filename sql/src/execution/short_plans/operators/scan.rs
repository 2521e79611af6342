//! A scan of a table for the few rows that pass conditions.

use super::table::Stored;
use crate::execution::short_plans::node::{Node, Operator};
use crate::execution::short_plans::run::{Expression, Rows, Run, Stop, constant};
use crate::values::value::from_scalar;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::concat_batches;
use strandline_base::{ColumnId, SqlType};
use strandline_engine::{ColumnPredicate, CompareOp, ScanRequest};

/// All rows of a table that no index leads to, of which few pass the conditions. Blocks whose
/// smallest and largest values exclude it are left out.
#[derive(Debug)]
pub(in crate::execution::short_plans) struct Scan {
    pub stored: Stored,
    /// what a block must have, beside the conditions
    pub bounds: Vec<Bound>,
    /// values that the bounds need, and their slots
    pub computed: Vec<(usize, Expression)>,
}

/// A comparison of a column with the value of a slot, which is exact in this type.
#[derive(Debug)]
pub(in crate::execution::short_plans) struct Bound {
    pub column: ColumnId,
    pub op: CompareOp,
    pub slot: usize,
    pub sql_type: SqlType,
}

impl Scan {
    /// A table with more rows is better scanned by several threads.
    pub const ROWS_MAX: u64 = 128 << 10;
    /// A table with more units has grown since the plan was made.
    const UNITS_MAX: usize = 4;

    fn predicates(&self, run: &Run<'_>) -> Vec<ColumnPredicate> {
        let slots = run.slots.read();
        let predicate = |bound: &Bound| {
            // A value that the column cannot have is left to the conditions.
            let value = from_scalar(slots.get(bound.slot)?, bound.sql_type).ok()?;
            Some(ColumnPredicate {
                column: bound.column,
                op: bound.op,
                value,
            })
        };
        self.bounds.iter().filter_map(predicate).collect()
    }
}

impl Operator for Scan {
    fn run(&self, run: &mut Run<'_>) -> Rows {
        let stored = &self.stored;
        if run.statement.transaction().notes_reads() {
            // A scan that notes its conditions conflicts with fewer changes.
            return Err(Stop::Undecided);
        }
        for (slot, expression) in &self.computed {
            run.slots.set(*slot, constant(expression)?);
        }
        let request = ScanRequest {
            prune: self.predicates(run),
            ..stored.request()
        };
        let scan = run.statement.scan(&stored.table, request)?;
        if scan.units() > Self::UNITS_MAX {
            return Err(Stop::Undecided);
        }
        let mut parts: Vec<RecordBatch> = Vec::new();
        for unit in 0..scan.units() {
            let mut reader = scan.open_unit(unit)?;
            while let Some(part) = reader.next_batch()? {
                run.statement.transaction().check_cancelled()?;
                let part = stored.finished(stored.scanned(&part)?)?;
                if part.num_rows() > 0 {
                    run.read(part.num_rows())?;
                    run.charge(&part)?;
                    parts.push(part);
                }
            }
        }
        match parts.as_slice() {
            [] => stored.finished(RecordBatch::new_empty(stored.read_schema.clone())),
            [one] => Ok(one.clone()),
            [first, ..] => Ok(concat_batches(first.schema_ref(), &parts)?),
        }
    }

    fn text(&self) -> String {
        let stored = &self.stored;
        format!("Scan: {}{}", stored.table.name, stored.text())
    }

    fn inputs(&self) -> Vec<&Node> {
        Vec::new()
    }
}
