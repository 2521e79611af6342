//! Running one statement, or one statement for many rows of parameters.

use crate::columns::{Finished, Rows as ParameterRows};
use crate::errors;
use crate::link::{Link, Session};
use crate::placeholders::Text;
use crate::results::Rows;
use crate::values::scalar;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyMapping, PyString, PyTuple};
use std::sync::Arc;
use strandline::ScalarValue;
use strandline::{Outcome, Started, Summary, TransactionStatus, ValueRow};

/// Rows of parameters that are loaded in one piece.
const ROWS_AT_ONCE: usize = 1 << 20;
/// Rows of the program between two checks for Ctrl-C.
const ROWS_PER_LOOK: usize = 1 << 16;

/// The rows of a statement's result.
#[derive(Default)]
pub enum Given {
    /// no rows
    #[default]
    Nothing,
    /// a row that was found by its key, or none
    Row(ValueRow),
    /// batches of rows
    Rows(Arc<Mutex<Rows>>),
}

/// The result of a statement.
pub struct Executed {
    pub given: Given,
    /// rows affected or given; -1: not known
    pub rowcount: i64,
}

impl Executed {
    fn done(summary: Summary) -> Self {
        let rowcount = match summary.command_tag().split(' ').next() {
            Some("INSERT" | "UPDATE" | "DELETE" | "MERGE" | "COPY" | "SELECT") => {
                summary.rows_affected() as i64
            }
            _ => -1,
        };
        let given = match summary.into_result() {
            Some(result) => Given::Rows(Arc::new(Mutex::new(Rows::done(result)))),
            None => Given::Nothing,
        };
        Self { given, rowcount }
    }

    fn found(row: ValueRow) -> Self {
        Self {
            rowcount: row.row_count() as i64,
            given: Given::Row(row),
        }
    }

    fn begun(rows: Rows, session: &mut Session) -> Self {
        let rowcount = match rows.is_complete() {
            true => rows.at_hand() as i64,
            false => -1,
        };
        let in_block = rows.in_block();
        let rows = Arc::new(Mutex::new(rows));
        if in_block {
            session.remember(&rows);
        }
        Self {
            given: Given::Rows(rows),
            rowcount,
        }
    }
}

/// The program's text with the engine's parameters; `parameters` says whether they have names.
pub fn text_of(
    link: &Link,
    sql: &Bound<'_, PyString>,
    parameters: Option<&Bound<'_, PyAny>>,
) -> PyResult<Arc<Text>> {
    link.text_of(sql, parameters.is_some_and(is_mapping))
}

/// Runs `text` with `parameters`, in a new transaction block if none is open and not `autocommit`.
pub fn execute(
    py: Python<'_>,
    link: &Link,
    autocommit: bool,
    text: &Text,
    parameters: Option<&Bound<'_, PyAny>>,
) -> PyResult<Executed> {
    let values = match parameters {
        Some(parameters) => values(text, parameters)?,
        None => Vec::new(),
    };
    link.run(py, |session| {
        session.prepare_for(text, autocommit)?;
        let result = run(session, text, &values);
        session.keep_notices();
        result
    })
}

fn run(session: &mut Session, text: &Text, values: &[ScalarValue]) -> strandline::Result<Executed> {
    let connection = &mut session.connection;
    let started = match text.prepared(connection) {
        Some(prepared) => connection.start(prepared, values)?,
        None => match connection.run(&text.sql, values)? {
            Outcome::Rows(stream) => Started::Rows(stream.into_portal()),
            Outcome::Done(summary) => Started::Done(summary),
        },
    };
    let mut portal = match started {
        Started::Rows(portal) => portal,
        Started::Done(summary) => return Ok(Executed::done(summary)),
    };
    if let Some(row) = portal.take_row() {
        return Ok(Executed::found(row));
    }
    let rows = Rows::begun(portal, &mut session.connection)?;
    Ok(Executed::begun(rows, session))
}

fn is_mapping(parameters: &Bound<'_, PyAny>) -> bool {
    if parameters.is_exact_instance_of::<PyTuple>() || parameters.is_exact_instance_of::<PyList>() {
        return false;
    }
    parameters.is_instance_of::<PyDict>() || parameters.cast::<PyMapping>().is_ok()
}

fn values(text: &Text, parameters: &Bound<'_, PyAny>) -> PyResult<Vec<ScalarValue>> {
    let mut values = match parameters.cast_exact::<PyTuple>() {
        Ok(tuple) => Vec::with_capacity(tuple.len()),
        Err(_) => Vec::new(),
    };
    each_value(text, parameters, |_, value| {
        values.push(scalar(value)?);
        Ok(())
    })?;
    Ok(values)
}

/// Hands over the values in the order of the parameters; returns their number.
fn each_value(
    text: &Text,
    parameters: &Bound<'_, PyAny>,
    mut take: impl FnMut(usize, &Bound<'_, PyAny>) -> PyResult<()>,
) -> PyResult<usize> {
    if let Ok(tuple) = parameters.cast_exact::<PyTuple>() {
        for (at, value) in tuple.iter_borrowed().enumerate() {
            take(at, &value)?;
        }
        return Ok(tuple.len());
    }
    if is_mapping(parameters) {
        for (at, name) in text.names.iter().enumerate() {
            if !parameters.contains(name)? {
                let message = format!("the parameter :{name} has no value");
                return Err(errors::raise(parameters.py(), "42P02", message));
            }
            take(at, &parameters.get_item(name)?)?;
        }
        return Ok(text.names.len());
    }
    if parameters.is_instance_of::<PyString>() || parameters.is_instance_of::<PyBytes>() {
        return Err(errors::interface(
            parameters.py(),
            "parameters are a sequence of values or a mapping, not a string",
        ));
    }
    let mut count = 0;
    for value in parameters.try_iter()? {
        take(count, &value?)?;
        count += 1;
    }
    Ok(count)
}

/// Runs `sql` for each of `rows`, all or nothing; returns the number of rows affected.
pub fn execute_many(
    py: Python<'_>,
    link: &Link,
    autocommit: bool,
    sql: &str,
    rows: &Bound<'_, PyAny>,
) -> PyResult<i64> {
    let mut batch: Option<(Arc<Text>, ParameterRows)> = None;
    let mut begun = false;
    let mut affected = 0;
    let mut each = || -> PyResult<()> {
        for row in rows.try_iter()? {
            let row = row?;
            let (text, batch) = match &mut batch {
                Some(batch) => batch,
                None => {
                    let text = link.text(sql, is_mapping(&row));
                    let width = row_width(&text, &row)?;
                    batch.insert((text, ParameterRows::new(width)))
                }
            };
            push(batch, text, &row)?;
            if batch.len() % ROWS_PER_LOOK == 0 {
                py.check_signals()?;
            }
            if batch.len() == ROWS_AT_ONCE {
                affected += flush(py, link, text, batch, &mut begun)?;
            }
        }
        if let Some((text, batch)) = &mut batch
            && batch.len() > 0
        {
            affected += flush(py, link, text, batch, &mut begun)?;
        }
        Ok(())
    };
    let result = each();
    end_block(py, link, autocommit && begun, result)?;
    Ok(affected as i64)
}

/// Ends the block if the caller began it: commits on success, and rolls back otherwise.
pub fn end_block(py: Python<'_>, link: &Link, ours: bool, result: PyResult<()>) -> PyResult<()> {
    if !ours {
        return result;
    }
    match result {
        Ok(()) => link.run(py, Session::commit),
        Err(error) => {
            link.run(py, Session::rollback)?;
            Err(error)
        }
    }
}

fn row_width(text: &Text, row: &Bound<'_, PyAny>) -> PyResult<usize> {
    match is_mapping(row) {
        true => Ok(text.names.len()),
        false => row.len(),
    }
}

fn push(batch: &mut ParameterRows, text: &Text, row: &Bound<'_, PyAny>) -> PyResult<()> {
    let width = batch.width();
    let wrong = |given| {
        let message = format!("a row has {given} values, the first one had {width}");
        errors::raise(row.py(), "08P01", message)
    };
    let count = each_value(text, row, |at, value| match at < width {
        true => batch.push(at, value),
        false => Err(wrong(at + 1)),
    })?;
    if count != width {
        return Err(wrong(count));
    }
    batch.end_row();
    Ok(())
}

fn flush(
    py: Python<'_>,
    link: &Link,
    text: &Text,
    batch: &mut ParameterRows,
    begun: &mut bool,
) -> PyResult<u64> {
    let (affected, began) = link.run(py, |session| {
        session.settle();
        let began = session.connection.transaction_status() == TransactionStatus::Idle;
        session.begin()?;
        let affected = run_rows(session, text, batch.finish()?);
        session.keep_notices();
        if began && affected.is_err() {
            session.rollback()?;
        }
        Ok((affected?, began))
    })?;
    *begun |= began;
    Ok(affected)
}

fn run_rows(session: &mut Session, text: &Text, rows: Finished) -> strandline::Result<u64> {
    match rows {
        Finished::Batch(batch) => session.connection.execute_many(&text.sql, &batch),
        Finished::Scalars(rows) => {
            let mut affected = 0;
            for row in rows {
                affected += session.connection.execute(&text.sql, row)?;
            }
            Ok(affected)
        }
    }
}
