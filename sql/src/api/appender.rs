//! Bulk loads: rows or Arrow batches are written directly as compressed chunks.

use crate::api::rows::TableHandle;
use crate::execution::row_checks::CheckSet;
use crate::execution::row_values::{check_value, identity, not_null};
use crate::planning::provider::table_schema::arrow_schema;
use crate::session::Session;
use datafusion::arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::SchemaRef;
use std::sync::Arc;
use strandline_base::{Error, Result, SqlState, Value};
use strandline_column::row_bytes::values_bytes;
use strandline_column::types;
use strandline_engine::catalog::{ColumnDef, TableDef};
use strandline_engine::{BulkInsert, Statement, Transaction};
use strandline_semantics::cast::{Mode, cast_array};
use strandline_semantics::error::{convert, from_arrow};

/// The most buffered rows before they go to the engine as one batch.
const BUFFERED_ROWS: usize = 16_384;
/// The most buffered bytes of rows.
const BUFFERED_BYTES: usize = 1 << 20;

/// A bulk load into one table; made by [`Connection::appender`](crate::Connection::appender).
/// [`Appender::finish`] makes the rows permanent. Dropping the appender before that discards them;
/// inside a transaction block it leaves the block failed.
///
/// Values have the types of the table's columns, in order. A NULL in an identity column takes the
/// next value; other defaults are not filled in. Constraints are checked.
///
/// ```
/// use strandline::Value;
///
/// let database = strandline::Database::in_memory()?;
/// let mut connection = database.connect();
/// connection.execute("CREATE TABLE reading (sensor int, value double precision)", ())?;
/// let mut appender = connection.appender("reading")?;
/// for i in 0..100_000 {
///     appender.append_row(&[Value::Integer(i % 10), Value::Double(f64::from(i))])?;
/// }
/// assert_eq!(appender.finish()?, 100_000);
/// # Ok::<(), strandline::Error>(())
/// ```
pub struct Appender<'c> {
    session: &'c mut Session,
    transaction: Arc<Transaction>,
    statement: Arc<Statement>,
    table: Arc<TableDef>,
    schema: SchemaRef,
    checks: Option<Arc<CheckSet>>,
    load: Option<BulkInsert>,
    rows: Vec<Vec<Value>>,
    /// bytes of the buffered `rows`
    bytes: usize,
    joined: bool,
}

impl<'c> Appender<'c> {
    pub(crate) fn begin(session: &'c mut Session, name: &str) -> Result<Self> {
        session.refuse_if_failed()?;
        session.cancel.start();
        let table = TableHandle::find(session, name)?.definition().clone();
        let (transaction, joined) = match &mut session.open {
            Some(open) => {
                open.used = true;
                (open.transaction.clone(), true)
            }
            None => (session.begin_engine(session.default_modes())?, false),
        };
        let statement = transaction.begin_statement()?;
        let load = statement.bulk_insert(&table)?;
        let checks = match table.checks.is_empty() {
            true => None,
            false => Some(session.checks_of(&table)?),
        };
        Ok(Self {
            schema: arrow_schema(&table),
            session,
            transaction,
            statement,
            table,
            checks,
            load: Some(load),
            rows: Vec::new(),
            bytes: 0,
            joined,
        })
    }

    /// The Arrow schema that [`Appender::append_batch`] casts to.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Bytes of the buffered rows, which the engine does not have yet.
    #[doc(hidden)]
    pub fn buffered_bytes(&self) -> usize {
        self.bytes
    }

    /// Adds one row.
    pub fn append_row(&mut self, row: &[Value]) -> Result<()> {
        if row.len() != self.table.columns.len() {
            return Err(self.wrong_width(row.len()));
        }
        for (column, value) in self.table.columns.iter().zip(row) {
            check_value(column, value)?;
        }
        self.rows.push(row.to_vec());
        self.bytes += values_bytes(row);
        if self.rows.len() >= BUFFERED_ROWS || self.bytes >= BUFFERED_BYTES {
            self.flush_rows()?;
        }
        Ok(())
    }

    /// Adds a batch. Its columns are the table's columns, in order. They are cast to the table's
    /// types unless a value would be lost.
    pub fn append_batch(&mut self, batch: &RecordBatch) -> Result<()> {
        if batch.num_columns() != self.table.columns.len() {
            return Err(self.wrong_width(batch.num_columns()));
        }
        self.flush_rows()?;
        let mut columns = Vec::with_capacity(batch.num_columns());
        for (column, array) in self.table.columns.iter().zip(batch.columns()) {
            columns.push(self.fit(column, array)?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let rows = RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)
            .map_err(|error| from_arrow(&error))?;
        self.load(&rows)
    }

    /// Loads the buffered rows, checks the keys and commits. Inside a transaction block the block's
    /// COMMIT commits instead. Returns the number of rows.
    pub fn finish(mut self) -> Result<u64> {
        self.flush_rows()?;
        let load = self
            .load
            .take()
            .ok_or_else(|| Error::internal("a load ends twice"))?;
        match load
            .finish()
            .and_then(|rows| self.statement.finish().map(|()| rows))
        {
            Ok(rows) => {
                if !self.joined {
                    self.session.commit_engine(&self.transaction)?;
                }
                Ok(rows)
            }
            Err(error) => {
                self.give_up();
                Err(error)
            }
        }
    }

    fn flush_rows(&mut self) -> Result<()> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let rows = std::mem::take(&mut self.rows);
        self.bytes = 0;
        let mut columns = Vec::with_capacity(self.table.columns.len());
        for (i, column) in self.table.columns.iter().enumerate() {
            let values: Vec<Value> = rows.iter().map(|row| row[i].clone()).collect();
            let array = types::array_of(column.sql_type, &values)?;
            columns.push(self.complete(column, array)?);
        }
        let batch = RecordBatch::try_new(self.schema.clone(), columns)
            .map_err(|error| from_arrow(&error))?;
        self.load(&batch)
    }

    fn load(&mut self, batch: &RecordBatch) -> Result<()> {
        if let Some(checks) = &self.checks {
            checks.check_batch(&self.table, batch)?;
        }
        match &mut self.load {
            Some(load) => load.append(batch),
            None => Err(Error::internal("a load goes on after its end")),
        }
    }

    /// A column's values in its type, by the rules of assignment.
    fn fit(&self, column: &ColumnDef, array: &ArrayRef) -> Result<ArrayRef> {
        let array = cast_array(array, column.sql_type, Mode::Assignment)
            .map_err(|error| convert(error).context(format!("column \"{}\"", column.name)))?;
        self.complete(column, array)
    }

    /// Fills in identity values. A NULL in a NOT NULL column is an error.
    fn complete(&self, column: &ColumnDef, array: ArrayRef) -> Result<ArrayRef> {
        if array.null_count() == 0 {
            return Ok(array);
        }
        if column.identity.is_none() {
            return match column.not_null {
                true => Err(not_null(&self.table, column)),
                false => Ok(array),
            };
        }
        let mut values = Vec::with_capacity(array.len());
        for row in 0..array.len() {
            values.push(match types::value_at(column.sql_type, &array, row) {
                Value::Null => {
                    let next = self
                        .transaction
                        .db()
                        .next_identity(&self.table, column.id)?;
                    identity(column, next)?
                }
                value => value,
            });
        }
        types::array_of(column.sql_type, &values)
    }

    fn wrong_width(&self, given: usize) -> Error {
        Error::invalid(
            SqlState::SYNTAX_ERROR,
            format!(
                "table \"{}\" has {} columns, {given} were given",
                self.table.name,
                self.table.columns.len()
            ),
        )
    }

    fn give_up(&mut self) {
        self.load = None;
        if self.joined {
            self.session.mark_failed();
        } else {
            self.transaction.rollback();
        }
    }
}

impl Drop for Appender<'_> {
    fn drop(&mut self) {
        if self.load.is_some() {
            self.give_up();
        }
    }
}
