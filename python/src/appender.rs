//! Bulk loads: data frames and rows straight into a table.
//!
//! A load is one transaction, or part of the open one. It goes to the engine in pieces of about a
//! million rows; each piece is one statement of the transaction.

use crate::columns::{Finished, Rows};
use crate::errors;
use crate::link::{Link, Session};
use crate::statement::end_block;
use arrow::array::RecordBatch;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use pyo3_arrow::error::PyArrowError;
use std::sync::Arc;
use strandline::TransactionStatus;

/// Rows that are loaded in one piece.
const ROWS_AT_ONCE: usize = 1 << 20;

/// Loads the rows of `frame` into `table`; returns their number.
pub fn append_frame(
    py: Python<'_>,
    link: &Link,
    autocommit: bool,
    table: &str,
    frame: &Bound<'_, PyAny>,
) -> PyResult<u64> {
    let mut reader = crate::frames::reader(frame)?;
    let mut begun = false;
    let mut loaded = 0;
    let mut each = || loop {
        let (batches, is_last) = py
            .detach(|| some(&mut reader))
            .map_err(PyArrowError::from)?;
        loaded += load(py, link, table, &batches, &mut begun)?;
        if is_last {
            return Ok(());
        }
    };
    let result = each();
    end_block(py, link, autocommit && begun, result)?;
    Ok(loaded)
}

/// The next batches, about a million rows, and whether the stream has ended.
fn some(
    reader: &mut impl Iterator<Item = Result<RecordBatch, arrow::error::ArrowError>>,
) -> Result<(Vec<RecordBatch>, bool), arrow::error::ArrowError> {
    let (mut batches, mut rows) = (Vec::new(), 0);
    while rows < ROWS_AT_ONCE {
        match reader.next() {
            Some(batch) => {
                let batch = batch?;
                rows += batch.num_rows();
                batches.push(batch);
            }
            None => return Ok((batches, true)),
        }
    }
    Ok((batches, false))
}

/// Loads batches in the open block, or in a block that it begins.
fn load(
    py: Python<'_>,
    link: &Link,
    table: &str,
    batches: &[RecordBatch],
    begun: &mut bool,
) -> PyResult<u64> {
    let (loaded, began) = link.run(py, |session| {
        session.settle();
        let began = session.connection.transaction_status() == TransactionStatus::Idle;
        session.begin()?;
        let loaded = load_in_block(session, table, batches);
        if began && loaded.is_err() {
            session.rollback()?;
        }
        Ok((loaded?, began))
    })?;
    *begun |= began;
    Ok(loaded)
}

fn load_in_block(
    session: &mut Session,
    table: &str,
    batches: &[RecordBatch],
) -> strandline::Result<u64> {
    let mut appender = session.connection.appender(table)?;
    for batch in batches {
        appender.append_batch(batch)?;
    }
    appender.finish()
}

/// Loads rows one by one in bulk; made by `Connection.appender()`.
///
/// Values go into the table's columns in order; a None in an identity column takes the next value,
/// other defaults are not filled in. What has been appended is there when the appender is closed;
/// if its `with` block ends with an exception, nothing is.
///
///     >>> import strandline
///     >>> con = strandline.connect(autocommit=True)
///     >>> _ = con.execute("CREATE TABLE reading (sensor int, value double precision)")
///     >>> with con.appender("reading") as appender:
///     ...     for i in range(1000):
///     ...         appender.append(i % 10, i / 2)
///     >>> con.execute("SELECT count(*), max(value) FROM reading").fetchone()
///     (1000, 499.5)
#[pyclass(frozen, module = "strandline", weakref)]
pub struct Appender {
    link: Arc<Link>,
    table: String,
    load: Mutex<Option<Load>>,
}

struct Load {
    rows: Rows,
    /// whether the appender began the transaction block
    begun: bool,
    loaded: u64,
}

impl Appender {
    pub fn new(link: Arc<Link>, table: &str, width: usize) -> Self {
        let load = Load {
            rows: Rows::new(width),
            begun: false,
            loaded: 0,
        };
        Self {
            link,
            table: table.to_string(),
            load: Mutex::new(Some(load)),
        }
    }

    fn flush(&self, py: Python<'_>, load_state: &mut Load) -> PyResult<()> {
        let finished = load_state.rows.finish();
        let batch = match finished.map_err(|error| errors::exception(py, &error))? {
            Finished::Batch(batch) => batch,
            Finished::Scalars(_) => {
                let message = "the values of a column are of types that do not go together";
                return Err(errors::raise(py, "42804", message));
            }
        };
        if batch.num_rows() > 0 {
            let begun = &mut load_state.begun;
            load_state.loaded += load(py, &self.link, &self.table, &[batch], begun)?;
        }
        Ok(())
    }

    fn take(&self, py: Python<'_>) -> PyResult<Load> {
        let load = self.load.try_lock().and_then(|mut load| load.take());
        load.ok_or_else(|| errors::closed(py, "appender"))
    }

    fn end(&self, py: Python<'_>, load: &Load, result: PyResult<()>) -> PyResult<()> {
        let ours = load.begun && self.link.is_autocommit();
        end_block(py, &self.link, ours, result)
    }
}

#[pymethods]
impl Appender {
    /// Adds one row: the values of the table's columns in order.
    #[pyo3(signature = (*values))]
    fn append(&self, py: Python<'_>, values: &Bound<'_, PyTuple>) -> PyResult<()> {
        let mut guard = self
            .load
            .try_lock()
            .ok_or_else(|| errors::closed(py, "appender"))?;
        let load = guard
            .as_mut()
            .ok_or_else(|| errors::closed(py, "appender"))?;
        let width = load.rows.width();
        if values.len() != width {
            let message = format!(
                "table \"{}\" has {width} columns, {} values were given",
                self.table,
                values.len()
            );
            return Err(errors::raise(py, "42601", message));
        }
        let mut result = Ok(());
        for (at, value) in values.iter_borrowed().enumerate() {
            result = result.and_then(|()| load.rows.push(at, &value));
        }
        load.rows.end_row();
        if result.is_ok() && load.rows.len() == ROWS_AT_ONCE {
            result = self.flush(py, load);
        }
        if result.is_err() {
            // A part of a row cannot be taken back, so the load is given up.
            let load = guard.take();
            drop(guard);
            return load.map_or(Ok(()), |load| self.end(py, &load, result));
        }
        Ok(())
    }

    /// Loads what has been appended; returns the number of rows.
    fn close(&self, py: Python<'_>) -> PyResult<u64> {
        let mut load = self.take(py)?;
        let result = self.flush(py, &mut load);
        self.end(py, &load, result)?;
        Ok(load.loaded)
    }

    /// Gives up what has been appended. What a transaction that was open, or that is not to end by
    /// itself, has already taken goes with its rollback.
    fn discard(&self, py: Python<'_>) -> PyResult<()> {
        let load = self.take(py)?;
        if load.begun && self.link.is_autocommit() {
            self.link.run(py, Session::rollback)?;
        }
        Ok(())
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (exception_type=None, _value=None, _traceback=None))]
    fn __exit__(
        &self,
        py: Python<'_>,
        exception_type: Option<&Bound<'_, PyAny>>,
        _value: Option<&Bound<'_, PyAny>>,
        _traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        if self.load.try_lock().is_some_and(|load| load.is_none()) {
            return Ok(());
        }
        match exception_type {
            None => self.close(py).map(drop),
            Some(_) => self.discard(py),
        }
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(pyo3::exceptions::PyTypeError::new_err(
            "an appender cannot be pickled",
        ))
    }
}
