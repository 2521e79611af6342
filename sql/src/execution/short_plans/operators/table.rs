//! Rows of tables: those that a key or an index leads to, and all of a small table.

use crate::execution::row_executor::Lookup;
use crate::execution::short_plans::node::{Node, Operator, OuterRows};
use crate::execution::short_plans::run::{
    Expression, PAIRS_MAX, Pairs, Rows, Run, Stop, batch_of, constant, filtered, taken,
};
use crate::values::value::arrays_of_rows;
use datafusion::arrow::array::{AsArray, RecordBatch, UInt32Array};
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::{Int64Type, SchemaRef, UInt64Type};
use datafusion::scalar::ScalarValue;
use std::ops::Range;
use std::sync::Arc;
use strandline_base::{ColumnId, SqlType, Value};
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
        self.as_given(filtered(&self.conditions, batch)?)
    }

    fn finished_pairs(&self, pairs: Pairs) -> Result<Pairs, Stop> {
        let pairs = pairs.filtered(&self.conditions)?;
        Ok(Pairs {
            outer: pairs.outer,
            inner: self.as_given(pairs.inner)?,
        })
    }

    /// The columns that are given of those that are read.
    fn as_given(&self, batch: RecordBatch) -> Rows {
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

impl ByLookup {
    fn compute(&self, run: &Run<'_>) -> Result<(), Stop> {
        for (slot, expression) in &self.computed {
            run.slots.set(*slot, constant(expression)?);
        }
        Ok(())
    }

    /// The values of the rows found, row after row.
    fn cells(&self, run: &mut Run<'_>) -> Result<Vec<Value>, Stop> {
        let found = {
            let slots = run.slots.read();
            self.lookup.find(run.compiled, run.statement, &slots)?
        };
        let cells = found.ok_or(Stop::Undecided)?;
        run.read(cells.len() / self.lookup.width().max(1))?;
        Ok(cells)
    }

    fn batch(&self, run: &mut Run<'_>, mut cells: Vec<Value>) -> Rows {
        let (width, stored) = (self.lookup.width(), &self.stored);
        let rows = cells.len() / width.max(1);
        let mut columns = arrays_of_rows(&mut cells, width, &stored.types)?;
        if stored.has_row_id
            && let Some(ids) = columns.first_mut()
        {
            let numbers = ids.as_primitive_opt::<Int64Type>().ok_or(Stop::Undecided)?;
            *ids = Arc::new(numbers.unary::<_, UInt64Type>(i64::cast_unsigned));
        }
        let batch = batch_of(&stored.read_schema, columns, rows)?;
        run.charge(&batch)?;
        Ok(batch)
    }

    /// The rows of all outer rows as one batch. Outer rows that follow each other with the same key
    /// share a lookup.
    fn pairs(&self, run: &mut Run<'_>, outer: &OuterRows<'_>) -> Result<Pairs, Stop> {
        self.compute(run)?;
        let width = self.lookup.width().max(1);
        let (mut cells, mut places, mut rows) = (Vec::new(), Vec::new(), Vec::new());
        let mut last: Option<(Vec<ScalarValue>, Range<u32>)> = None;
        for at in 0..outer.count {
            let Some(key) = outer.key(at)? else { continue };
            let known = last.take().filter(|(known, _)| *known == key);
            let found = match known {
                Some((_, found)) => found,
                None => {
                    run.statement.transaction().check_cancelled()?;
                    outer.set(run, &key);
                    let first = place_of(cells.len() / width)?;
                    cells.extend(self.cells(run)?);
                    first..place_of(cells.len() / width)?
                }
            };
            places.extend(std::iter::repeat_n(place_of(at)?, found.len()));
            rows.extend(found.clone());
            if places.len() > PAIRS_MAX {
                return Err(Stop::Undecided);
            }
            last = Some((key, found));
        }
        let mut inner = self.batch(run, cells)?;
        if inner.num_rows() < rows.len() {
            inner = taken(&inner, &UInt32Array::from(rows))?;
        }
        self.stored.finished_pairs(Pairs {
            outer: places,
            inner,
        })
    }
}

fn place_of(row: usize) -> Result<u32, Stop> {
    u32::try_from(row).map_err(|_| Stop::Undecided)
}

impl Operator for ByLookup {
    fn run(&self, run: &mut Run<'_>) -> Rows {
        self.compute(run)?;
        let cells = self.cells(run)?;
        let batch = self.batch(run, cells)?;
        self.stored.finished(batch)
    }

    fn run_for(&self, run: &mut Run<'_>, outer: &OuterRows<'_>) -> Option<Result<Pairs, Stop>> {
        Some(self.pairs(run, outer))
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
