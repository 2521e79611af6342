//! `strandline.Connection`.

use crate::appender::{self, Appender};
use crate::cursor::Cursor;
use crate::link::{Link, Session};
use crate::open::{DatabaseSettings, Opened};
use crate::placeholders::Text;
use crate::statement::{self, Executed, Given};
use crate::{errors, frames};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyList, PyString};
use std::path::PathBuf;
use std::sync::Arc;
use strandline::TransactionStatus;

/// A connection to a database; made by `strandline.connect()`.
///
/// Unless `autocommit` is on, the first statement begins a transaction, which `commit()` or
/// `rollback()` ends. As a context manager a connection commits, or rolls back if the block raised
/// an exception, and is closed.
///
///     >>> import strandline
///     >>> with strandline.connect() as con:
///     ...     _ = con.execute("CREATE TABLE city (name text PRIMARY KEY, people bigint)")
///     ...     _ = con.execute("INSERT INTO city VALUES (?, ?)", ("Oslo", 717710))
///     ...     con.execute("SELECT people FROM city WHERE name = ?", ("Oslo",)).fetchone()
///     (717710,)
///
/// Threads may share a connection; it runs one statement at a time. Statements run without the
/// interpreter's lock, and Ctrl-C ends them.
#[pyclass(frozen, module = "strandline", weakref)]
pub struct Connection {
    link: Arc<Link>,
}

impl Connection {
    fn status(&self, py: Python<'_>) -> PyResult<TransactionStatus> {
        self.link
            .run(py, |session| Ok(session.connection.transaction_status()))
    }

    fn run<'py>(
        slf: &Bound<'py, Self>,
        text: &Text,
        parameters: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Executed> {
        let this = slf.get();
        statement::execute(
            slf.py(),
            &this.link,
            this.link.is_autocommit(),
            text,
            parameters,
        )
    }

    fn give<'py>(slf: &Bound<'py, Self>, executed: Executed) -> PyResult<Bound<'py, Cursor>> {
        let cursor = Cursor::of(
            slf.clone().into_any().unbind(),
            slf.get().link.clone(),
            executed,
        );
        Bound::new(slf.py(), cursor)
    }
}

/// Splits settings into the database's and SET statements for the connection.
fn split_settings(
    settings: Option<&Bound<'_, PyDict>>,
) -> PyResult<(DatabaseSettings, Vec<String>)> {
    let (mut database, mut session) = (DatabaseSettings::default(), Vec::new());
    for (name, value) in settings.into_iter().flatten() {
        let name: String = name.extract()?;
        if DatabaseSettings::knows_number(&name) {
            database.add(name, value.extract()?);
            continue;
        }
        if name == "capacity_dir" {
            database.capacity_dir = Some(value.extract()?);
            continue;
        }
        if name == "capacity_url" {
            database.capacity_url = Some(value.extract()?);
            continue;
        }
        let is_word = |part: &str| {
            !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        if !name.split('.').all(is_word) {
            return Err(PyTypeError::new_err(format!(
                "{name:?} is not the name of a setting"
            )));
        }
        let value = match value.cast::<PyBool>() {
            Ok(on) => if on.is_true() { "on" } else { "off" }.to_string(),
            Err(_) => value.str()?.to_str()?.replace('\'', "''"),
        };
        session.push(format!("SET {name} = '{value}'"));
    }
    Ok((database, session))
}

#[pymethods]
impl Connection {
    #[new]
    #[pyo3(signature = (path, *, autocommit=false, create=true, settings=None))]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        autocommit: bool,
        create: bool,
        settings: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let (database, session) = split_settings(settings)?;
        let opened = py.detach(|| match path.as_os_str() == ":memory:" {
            true => Opened::in_memory(database),
            false => Opened::at(&path, database, create),
        });
        let opened = opened.map_err(|error| errors::exception(py, &error))?;
        let link = Link::new(opened, autocommit);
        link.run(py, |link| {
            for set in &session {
                link.connection.execute(set, ())?;
            }
            Ok(())
        })?;
        Ok(Self { link })
    }

    /// A new cursor.
    fn cursor<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, Cursor>> {
        let this = slf.get();
        this.link.opened(slf.py())?;
        let cursor = Cursor::new(slf.clone().into_any().unbind(), this.link.clone());
        Bound::new(slf.py(), cursor)
    }

    /// Runs a statement and returns a cursor with its result; see `Cursor.execute()`.
    #[pyo3(signature = (operation, parameters=None, /))]
    fn execute<'py>(
        slf: &Bound<'py, Self>,
        operation: &Bound<'py, PyString>,
        parameters: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, Cursor>> {
        let text = statement::text_of(&slf.get().link, operation, parameters)?;
        let executed = Self::run(slf, &text, parameters)?;
        Self::give(slf, executed)
    }

    /// Runs a statement once for each row of parameters; see `Cursor.executemany()`.
    #[pyo3(signature = (operation, seq_of_parameters, /))]
    fn executemany<'py>(
        slf: &Bound<'py, Self>,
        operation: &str,
        seq_of_parameters: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, Cursor>> {
        let (py, this) = (slf.py(), slf.get());
        let autocommit = this.link.is_autocommit();
        let rowcount =
            statement::execute_many(py, &this.link, autocommit, operation, seq_of_parameters)?;
        Self::give(
            slf,
            Executed {
                given: Given::Nothing,
                rowcount,
            },
        )
    }

    /// Runs the statements of a script, separated by semicolons, one after the other.
    ///
    ///     >>> import strandline
    ///     >>> con = strandline.connect()
    ///     >>> con.executescript("CREATE TABLE t (a int); INSERT INTO t VALUES (1), (2);")
    ///     >>> con.execute("SELECT count(*) FROM t").fetchone()
    ///     (2,)
    #[pyo3(signature = (script, /))]
    fn executescript(&self, py: Python<'_>, script: &str) -> PyResult<()> {
        let pieces = strandline::split_script(script);
        for piece in pieces.map_err(|error| errors::exception(py, &error))? {
            let text = self.link.text(piece.sql, false);
            statement::execute(py, &self.link, self.link.is_autocommit(), &text, None)?;
        }
        Ok(())
    }

    /// Commits the open transaction, if any. One in which a statement failed is rolled back, and
    /// an exception says so.
    fn commit(&self, py: Python<'_>) -> PyResult<()> {
        self.link.run(py, Session::commit)
    }

    /// Rolls the open transaction back, if any.
    fn rollback(&self, py: Python<'_>) -> PyResult<()> {
        self.link.run(py, Session::rollback)
    }

    /// Rolls an open transaction back and closes the connection. The last connection to a
    /// database closes that.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.link.close(py)
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
        if self.link.is_closed() {
            return Ok(());
        }
        let ended = match exception_type {
            None => self.commit(py),
            Some(_) => self.rollback(py),
        };
        ended.and(self.close(py))
    }

    /// Whether each statement is a transaction of its own unless `BEGIN` says otherwise; off at
    /// first, as the DB-API wants it. It cannot change inside a transaction.
    #[getter]
    fn autocommit(&self) -> bool {
        self.link.is_autocommit()
    }

    #[setter]
    fn set_autocommit(&self, py: Python<'_>, on: bool) -> PyResult<()> {
        if self.in_transaction(py)? && on != self.link.is_autocommit() {
            let message =
                "autocommit cannot change inside a transaction: commit or roll back first";
            return Err(errors::raise(py, "42601", message));
        }
        self.link.set_autocommit(on);
        Ok(())
    }

    /// Whether a transaction is open.
    #[getter]
    fn in_transaction(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.status(py)? != TransactionStatus::Idle)
    }

    /// Notices of the last statement as pairs of a class and an exception.
    #[getter]
    fn messages<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let notices = self.link.run(py, |session| Ok(session.notices.clone()))?;
        let warning = errors::class(py, "Warning")?;
        let list = PyList::empty(py);
        for notice in notices {
            let message = warning.call1((notice.message(),))?;
            list.append((&warning, message))?;
        }
        Ok(list)
    }

    /// Ends the statement that another thread runs on this connection, which then fails with
    /// SQLSTATE 57014. Does nothing if none runs.
    fn interrupt(&self) {
        self.link.cancel();
    }

    /// Another connection to the same database, with a transaction and settings of its own; the
    /// way to a second connection to a database in memory.
    ///
    ///     >>> import strandline
    ///     >>> con = strandline.connect(autocommit=True)
    ///     >>> _ = con.execute("CREATE TABLE t AS SELECT 1 AS a")
    ///     >>> con.duplicate().execute("SELECT a FROM t").fetchone()
    ///     (1,)
    fn duplicate(&self, py: Python<'_>) -> PyResult<Self> {
        Ok(Self {
            link: Link::new(self.link.opened(py)?, self.link.is_autocommit()),
        })
    }

    /// Makes a data frame a table of this connection: a `pyarrow`, `pandas` or `polars` table, or
    /// whatever else has `__arrow_c_stream__`. Nothing is copied where Arrow's type is a type of
    /// tables. Other connections do not see it, it cannot be changed, and it hides a stored table
    /// of that name.
    ///
    ///     >>> import polars, strandline
    ///     >>> con = strandline.connect()
    ///     >>> con.register("people", polars.DataFrame({"name": ["Ada", "Bob"], "age": [36, 41]}))
    ///     >>> con.execute("SELECT avg(age) FROM people").fetchone()
    ///     (Decimal('38.5000000000000000'),)
    #[pyo3(signature = (name, frame, /))]
    fn register(&self, py: Python<'_>, name: &str, frame: &Bound<'_, PyAny>) -> PyResult<()> {
        let (schema, batches) = frames::read(frame)?;
        self.link.run(py, |session| {
            session.connection.register(name, &schema, &batches)
        })
    }

    /// Takes away what was registered as `name`.
    #[pyo3(signature = (name, /))]
    fn unregister(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        self.link
            .run(py, |session| session.connection.unregister(name))
    }

    /// Loads a data frame into a table, all or nothing; its columns are the table's, in order.
    /// Returns the number of rows.
    ///
    ///     >>> import pandas, strandline
    ///     >>> con = strandline.connect()
    ///     >>> _ = con.execute("CREATE TABLE people (name text, age int)")
    ///     >>> con.append("people", pandas.DataFrame({"name": ["Ada", "Bob"], "age": [36, 41]}))
    ///     2
    #[pyo3(signature = (table, frame, /))]
    fn append(&self, py: Python<'_>, table: &str, frame: &Bound<'_, PyAny>) -> PyResult<u64> {
        appender::append_frame(py, &self.link, self.link.is_autocommit(), table, frame)
    }

    /// An appender, which loads rows one by one in bulk.
    #[pyo3(signature = (table, /))]
    fn appender(&self, py: Python<'_>, table: &str) -> PyResult<Appender> {
        let width = self.link.run(py, |session| {
            Ok(session.connection.table(table)?.columns().len())
        })?;
        Ok(Appender::new(self.link.clone(), table, width))
    }

    /// All rows of a table, view or registered frame; with `as_of` as they were at that moment: a
    /// `datetime` (without a zone: UTC), or a text that PostgreSQL would take for a timestamp.
    ///
    ///     >>> import strandline
    ///     >>> con = strandline.connect(autocommit=True)
    ///     >>> _ = con.execute("CREATE TABLE t AS SELECT 1 AS a")
    ///     >>> [(before,)] = con.execute("SELECT now()").fetchall()
    ///     >>> _ = con.execute("UPDATE t SET a = 2")
    ///     >>> con.table("t").fetchall(), con.table("t", as_of=before).fetchall()
    ///     ([(2,)], [(1,)])
    #[pyo3(signature = (name, /, *, as_of=None))]
    fn table<'py>(
        slf: &Bound<'py, Self>,
        name: &str,
        as_of: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, Cursor>> {
        let name = quoted(name);
        let text = |sql: String| slf.get().link.text(&sql, false);
        let executed = match as_of {
            None => Self::run(slf, &text(format!("SELECT * FROM {name}")), None)?,
            Some(moment) => {
                let sql = format!("SELECT * FROM {name} FOR SYSTEM_TIME AS OF $1");
                let parameters = PyList::new(slf.py(), [moment])?;
                Self::run(slf, &text(sql), Some(parameters.as_any()))?
            }
        };
        Self::give(slf, executed)
    }

    /// Writes a checkpoint: pending updates are merged where that is due, the log is cut.
    fn checkpoint(&self, py: Python<'_>) -> PyResult<()> {
        let opened = self.link.opened(py)?;
        self.link
            .detached(py, || opened.database.checkpoint().map(drop))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        if self.link.is_closed() {
            return Ok("<strandline.Connection: closed>".into());
        }
        let opened = self.link.opened(py)?;
        Ok(format!(
            "<strandline.Connection to {}>",
            opened.database.location()
        ))
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err(
            "a connection cannot be pickled: open one in each process",
        ))
    }
}

/// `name` as SQL: plain words, perhaps with a schema, as they are; anything else quoted.
fn quoted(name: &str) -> String {
    let is_plain = name.split('.').all(|part| {
        part.starts_with(|c: char| c.is_alphabetic() || c == '_')
            && part.chars().all(|c| c.is_alphanumeric() || c == '_')
    });
    match is_plain {
        true => name.to_string(),
        false => format!("\"{}\"", name.replace('"', "\"\"")),
    }
}
