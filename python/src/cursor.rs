//! `strandline.Cursor`: a statement's result.
//!
//! Rows become tuples a chunk at a time. A row that was found by its key becomes a tuple directly
//! from the engine's values; a batch is made of it only on request.
//!
//! No thread waits for the lock of the cursor's state, since it would wait while it holds the
//! interpreter lock. The use of a cursor that another thread is using is an error.

use crate::link::Link;
use crate::results::Rows;
use crate::statement::{self, Executed, Given};
use crate::stream::{self, Stream};
use crate::{cells, description, errors};
use arrow::array::{ArrayRef, RecordBatch, RecordBatchReader, StructArray};
use arrow::datatypes::{DataType, Field, SchemaRef};
use parking_lot::{Mutex, MutexGuard};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyList, PyString, PyTuple};
use pyo3_arrow::ffi::{ArrayIterator, to_stream_pycapsule};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

/// Rows that become tuples together when they are fetched one by one.
const CHUNK_ROWS: usize = 256;

/// Runs statements and gives their rows; made by `Connection.cursor()` and `Connection.execute()`.
///
///     >>> import strandline
///     >>> con = strandline.connect()
///     >>> cur = con.cursor()
///     >>> _ = cur.execute("SELECT n, n * n AS square FROM generate_series(1, 3) s(n)")
///     >>> cur.fetchone()
///     (1, 1)
///     >>> list(cur)
///     [(2, 4), (3, 9)]
///     >>> con.close()
#[pyclass(frozen, module = "strandline", weakref)]
pub struct Cursor {
    connection: Py<PyAny>,
    link: Arc<Link>,
    state: Mutex<CursorState>,
    arraysize: AtomicI64,
    closed: AtomicBool,
}

#[derive(Default)]
struct CursorState {
    given: Given,
    rowcount: i64,
    /// the rows that `tuples` came from
    chunk: Option<RecordBatch>,
    tuples: std::vec::IntoIter<Py<PyTuple>>,
    description: Option<Py<PyList>>,
}

impl CursorState {
    fn of(executed: Executed) -> Self {
        Self {
            given: executed.given,
            rowcount: executed.rowcount,
            ..Self::default()
        }
    }

    /// The result's columns; None: there is no result.
    fn schema(&self) -> Option<SchemaRef> {
        match &self.given {
            Given::Nothing => None,
            Given::Row(row) => Some(row.schema().clone()),
            Given::Rows(rows) => Some(rows.lock().schema.clone()),
        }
    }

    /// The rows that have not been fetched yet.
    fn unseen(&mut self, py: Python<'_>) -> PyResult<&Arc<Mutex<Rows>>> {
        if let Given::Row(row) = &self.given {
            let result = row.clone().into_result();
            let result = result.map_err(|error| errors::exception(py, &error))?;
            self.given = Given::Rows(Arc::new(Mutex::new(Rows::done(result))));
        }
        let Given::Rows(rows) = &self.given else {
            let message = "the last statement gave no rows";
            return Err(errors::raise(py, "24000", message));
        };
        let left = self.tuples.len();
        if let Some(chunk) = self.chunk.take()
            && left > 0
        {
            rows.lock()
                .put_back(chunk.slice(chunk.num_rows() - left, left));
        }
        self.tuples = Vec::new().into_iter();
        Ok(rows)
    }

    /// Makes the next row a tuple; returns false at the end.
    fn fill(&mut self, py: Python<'_>, link: &Link, wanted: usize) -> PyResult<bool> {
        if self.tuples.len() > 0 {
            return Ok(true);
        }
        let rows = self.unseen(py)?.clone();
        let at_hand = rows.try_lock().and_then(|mut rows| rows.take(wanted));
        let batch = match at_hand {
            Some(batch) => batch,
            None => match link.detached(py, || stream::next(link, &rows, wanted))? {
                Some(batch) => batch,
                None => return Ok(false),
            },
        };
        let tuples = cells::tuples(py, &batch)?;
        self.tuples = tuples
            .into_iter()
            .map(Bound::unbind)
            .collect::<Vec<_>>()
            .into_iter();
        self.chunk = Some(batch);
        Ok(true)
    }

    fn next<'py>(&mut self, py: Python<'py>, link: &Link) -> PyResult<Option<Bound<'py, PyTuple>>> {
        if let Given::Row(row) = &mut self.given {
            return cells::row_tuple(py, row);
        }
        let next = match self.tuples.next() {
            Some(tuple) => Some(tuple),
            None if self.fill(py, link, CHUNK_ROWS)? => self.tuples.next(),
            None => None,
        };
        Ok(next.map(|tuple| tuple.into_bound(py)))
    }

    /// Up to `wanted` rows.
    fn many<'py>(
        &mut self,
        py: Python<'py>,
        link: &Link,
        wanted: usize,
    ) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        if let Given::Row(row) = &mut self.given {
            if wanted > 0
                && let Some(tuple) = cells::row_tuple(py, row)?
            {
                list.append(tuple)?;
            }
            return Ok(list);
        }
        while list.len() < wanted && self.fill(py, link, wanted - list.len())? {
            for tuple in self.tuples.by_ref().take(wanted - list.len()) {
                list.append(tuple)?;
            }
        }
        Ok(list)
    }
}

impl Cursor {
    /// A cursor without a result.
    pub fn new(connection: Py<PyAny>, link: Arc<Link>) -> Self {
        Self {
            connection,
            link,
            state: Mutex::new(CursorState {
                rowcount: -1,
                ..CursorState::default()
            }),
            arraysize: AtomicI64::new(1),
            closed: AtomicBool::new(false),
        }
    }

    /// A cursor of a statement's result.
    pub fn of(connection: Py<PyAny>, link: Arc<Link>, executed: Executed) -> Self {
        let cursor = Self::new(connection, link);
        *cursor.state.lock() = CursorState::of(executed);
        cursor
    }

    fn state(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, CursorState>> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(errors::closed(py, "cursor"));
        }
        let busy = "the cursor is in use by another thread; give each thread one of its own";
        self.state
            .try_lock()
            .ok_or_else(|| errors::interface(py, busy))
    }

    fn stream(&self, py: Python<'_>) -> PyResult<Stream> {
        let mut state = self.state(py)?;
        let rows = state.unseen(py)?.clone();
        Ok(Stream::new(self.link.clone(), rows))
    }

    /// Computes all rows, so that an error is raised by this call.
    fn complete(&self, py: Python<'_>) -> PyResult<()> {
        let mut state = self.state(py)?;
        let rows = state.unseen(py)?.clone();
        self.link
            .detached(py, || stream::complete(&self.link, &rows))
    }
}

#[pymethods]
impl Cursor {
    /// Runs a statement. Parameters are written `?`, `$1`, or `:name` with a mapping of values.
    /// Returns the cursor itself.
    ///
    ///     >>> import strandline
    ///     >>> cur = strandline.connect().cursor()
    ///     >>> cur.execute("SELECT ? + 1", (41,)).fetchone()
    ///     (42,)
    ///     >>> cur.execute("SELECT :who || '!'", {"who": "you"}).fetchone()
    ///     ('you!',)
    #[pyo3(signature = (operation, parameters=None, /))]
    fn execute<'py>(
        slf: Bound<'py, Self>,
        operation: &Bound<'py, PyString>,
        parameters: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, Self>> {
        let (py, this) = (slf.py(), slf.get());
        let mut state = this.state(py)?;
        // Drops the rows of the statement before.
        *state = CursorState::default();
        state.rowcount = -1;
        let autocommit = this.link.is_autocommit();
        let text = statement::text_of(&this.link, operation, parameters)?;
        let executed = statement::execute(py, &this.link, autocommit, &text, parameters)?;
        *state = CursorState::of(executed);
        drop(state);
        Ok(slf)
    }

    /// Runs a statement once for each row of parameters, all or nothing. A plain
    /// `INSERT … VALUES (?, …)` is loaded in bulk.
    ///
    ///     >>> import strandline
    ///     >>> cur = strandline.connect().cursor()
    ///     >>> _ = cur.execute("CREATE TABLE point (x int, y int)")
    ///     >>> cur.executemany("INSERT INTO point VALUES (?, ?)", [(1, 2), (3, 4)]).rowcount
    ///     2
    #[pyo3(signature = (operation, seq_of_parameters, /))]
    fn executemany<'py>(
        slf: Bound<'py, Self>,
        operation: &str,
        seq_of_parameters: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, Self>> {
        let (py, this) = (slf.py(), slf.get());
        let mut state = this.state(py)?;
        *state = CursorState::default();
        state.rowcount = -1;
        let autocommit = this.link.is_autocommit();
        let affected =
            statement::execute_many(py, &this.link, autocommit, operation, seq_of_parameters)?;
        state.rowcount = affected;
        drop(state);
        Ok(slf)
    }

    /// The next row, or None.
    fn fetchone<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.state(py)?.next(py, &self.link)
    }

    /// A list of the next rows, `size` or `arraysize` of them at most.
    #[pyo3(signature = (size=None))]
    fn fetchmany<'py>(&self, py: Python<'py>, size: Option<usize>) -> PyResult<Bound<'py, PyList>> {
        let size = size.unwrap_or_else(|| self.arraysize().max(0) as usize);
        self.state(py)?.many(py, &self.link, size)
    }

    /// A list of all rows that are left.
    fn fetchall<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.state(py)?.many(py, &self.link, usize::MAX)
    }

    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.fetchone(py)
    }

    /// The rows that are left as a `pyarrow.Table`, without copying them.
    ///
    ///     >>> import strandline
    ///     >>> strandline.connect().execute("SELECT 1 AS a UNION ALL SELECT 2").arrow().num_rows
    ///     2
    fn arrow<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        slf.get().complete(py)?;
        py.import("pyarrow")?.call_method1("table", (slf,))
    }

    /// The rows that are left as a `pandas.DataFrame`.
    ///
    ///     >>> import strandline
    ///     >>> strandline.connect().execute("SELECT 1 AS a UNION ALL SELECT 2").df()["a"].sum()
    ///     np.int64(3)
    fn df<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Self::arrow(slf)?.call_method0("to_pandas")
    }

    /// The rows that are left as a `polars.DataFrame`.
    ///
    ///     >>> import strandline
    ///     >>> strandline.connect().execute("SELECT 1 AS a UNION ALL SELECT 2").pl().shape
    ///     (2, 1)
    fn pl<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        slf.get().complete(py)?;
        py.import("polars")?.call_method1("DataFrame", (slf,))
    }

    /// The rows that are left as a `pyarrow.RecordBatchReader`, computed while it is read. An
    /// error of the statement is then pyarrow's.
    ///
    ///     >>> import strandline
    ///     >>> con = strandline.connect()
    ///     >>> cur = con.execute("SELECT * FROM generate_series(1, 100000)")
    ///     >>> sum(batch.num_rows for batch in cur.fetch_record_batch())
    ///     100000
    fn fetch_record_batch<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let reader = slf.py().import("pyarrow")?.getattr("RecordBatchReader")?;
        reader.call_method1("from_stream", (slf,))
    }

    /// The rows that are left through Arrow's C stream interface.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let stream = self.stream(py)?;
        let schema = stream.schema();
        let row = Field::new_struct("", schema.fields().clone(), false);
        let row = row.with_metadata(schema.metadata().clone());
        let batches = stream.map(|batch| Ok(Arc::new(StructArray::from(batch?)) as ArrayRef));
        let reader = Box::new(ArrayIterator::new(batches, Arc::new(row)));
        Ok(to_stream_pycapsule(py, reader, requested_schema)?)
    }

    /// One tuple per column: name, type, None, size in bytes, precision, scale, whether it may be
    /// NULL. None if the statement gave no rows. Types compare equal to `strandline.NUMBER`,
    /// `STRING`, `BINARY`, `DATETIME`.
    ///
    ///     >>> import strandline
    ///     >>> cur = strandline.connect().execute("SELECT 1::numeric(6,2) AS price")
    ///     >>> cur.description[0][:2], cur.description[0][4:6]
    ///     (('price', 'numeric'), (6, 2))
    ///     >>> cur.description[0][1] == strandline.NUMBER
    ///     True
    #[getter]
    fn description(&self, py: Python<'_>) -> PyResult<Option<Py<PyList>>> {
        let mut state = self.state(py)?;
        if state.description.is_none()
            && let Some(schema) = state.schema()
        {
            state.description = Some(description::of(py, &schema)?.unbind());
        }
        Ok(state.description.as_ref().map(|d| d.clone_ref(py)))
    }

    /// Rows affected or given by the last statement; -1 if that is not known (yet).
    #[getter]
    fn rowcount(&self, py: Python<'_>) -> PyResult<i64> {
        Ok(self.state(py)?.rowcount)
    }

    /// Rows that `fetchmany` gives unless it is told.
    #[getter]
    fn arraysize(&self) -> i64 {
        self.arraysize.load(Ordering::Relaxed)
    }

    #[setter]
    fn set_arraysize(&self, size: i64) {
        self.arraysize.store(size, Ordering::Relaxed);
    }

    /// None: rows have no number of their own.
    #[getter]
    fn lastrowid(&self) -> Option<i64> {
        None
    }

    /// The connection that made the cursor.
    #[getter]
    fn connection(&self, py: Python<'_>) -> Py<PyAny> {
        self.connection.clone_ref(py)
    }

    /// Does nothing; parameters need no sizes.
    #[pyo3(signature = (sizes, /))]
    fn setinputsizes(&self, sizes: &Bound<'_, PyAny>) {
        let _ = sizes;
    }

    /// Does nothing; columns need no sizes.
    #[pyo3(signature = (size, column=None, /))]
    fn setoutputsize(&self, size: &Bound<'_, PyAny>, column: Option<&Bound<'_, PyAny>>) {
        let _ = (size, column);
    }

    /// Ends the cursor; its query, if one is under way, ends too.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if !self.closed.load(Ordering::Relaxed) {
            *self.state(py)? = CursorState::default();
            self.closed.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }

    /// Prints the first rows as a table; they stay to be fetched.
    ///
    ///     >>> import strandline
    ///     >>> strandline.connect().execute("SELECT 1 AS a, 'x' AS b").show()
    ///      a | b
    ///     ---+---
    ///      1 | x
    ///     (1 row)
    #[pyo3(signature = (rows=20))]
    fn show<'py>(slf: &Bound<'py, Self>, rows: usize) -> PyResult<()> {
        let display = slf.py().import("strandline._display")?;
        display.call_method1("show", (slf, rows)).map(drop)
    }

    fn _repr_html_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py()
            .import("strandline._display")?
            .call_method1("html", (slf,))
    }

    /// Names, types and the first `rows` rows as text, which stay to be fetched; None if there is
    /// no result. The last value: whether there are more.
    fn _peek(&self, py: Python<'_>, rows: usize) -> PyResult<Option<Peek>> {
        let mut state = self.state(py)?;
        if let Given::Nothing = state.given {
            return Ok(None);
        }
        let unseen = state.unseen(py)?.clone();
        Ok(Some(Peek::of(&unseen.lock(), rows)))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        if self.closed.load(Ordering::Relaxed) {
            return Ok("<strandline.Cursor: closed>".into());
        }
        let state = self.state(py)?;
        Ok(match (state.schema(), state.rowcount) {
            (None, -1) => "<strandline.Cursor: no result>".into(),
            (None, rows) => format!("<strandline.Cursor: {rows} rows affected>"),
            (Some(schema), count) => {
                let columns = schema.fields().len();
                match count {
                    -1 => format!("<strandline.Cursor: {columns} columns, rows to come>"),
                    count => format!("<strandline.Cursor: {columns} columns, {count} rows>"),
                }
            }
        })
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(pyo3::exceptions::PyTypeError::new_err(
            "a cursor cannot be pickled: fetch its rows, or open a connection in each process",
        ))
    }
}

/// The beginning of a result as text.
#[derive(IntoPyObject)]
struct Peek {
    names: Vec<String>,
    right: Vec<bool>,
    rows: Vec<Vec<Option<String>>>,
    more: bool,
}

impl Peek {
    fn of(result: &Rows, wanted: usize) -> Self {
        let fields = result.schema.fields();
        let mut rows = Vec::new();
        for batch in result.peek() {
            for row in 0..batch.num_rows().min(wanted - rows.len()) {
                let cell = |column| strandline::cell(column, row);
                rows.push(batch.columns().iter().map(cell).collect());
            }
        }
        let is_right = |t: &DataType| t.is_numeric();
        Self {
            names: fields.iter().map(|f| f.name().clone()).collect(),
            right: fields.iter().map(|f| is_right(f.data_type())).collect(),
            more: result.at_hand() > rows.len() || !result.is_complete(),
            rows,
        }
    }
}
