//! The engine's errors as exceptions of the DB-API's hierarchy.
//!
//! The classes are defined in Python (`strandline/_errors.py`). The SQLSTATE's class chooses among
//! them.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use strandline::{Error, SqlState};

/// A class of `strandline._errors`.
pub fn class<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyType>> {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let module =
        MODULE.get_or_try_init(py, || py.import("strandline._errors").map(Bound::unbind))?;
    Ok(module.bind(py).getattr(name)?.cast_into()?)
}

/// The exception for `error`.
pub fn exception(py: Python<'_>, error: &Error) -> PyErr {
    let name = class_of(error.sqlstate());
    let made = class(py, name).and_then(|class| {
        let state = error.sqlstate().0;
        let arguments = (error.to_string(), state, error.detail(), error.hint());
        class.call1(arguments)
    });
    match made {
        Ok(exception) => PyErr::from_value(exception),
        Err(failure) => failure,
    }
}

/// The exception for an error that the package itself detects.
pub fn raise(py: Python<'_>, state: &'static str, message: impl Into<String>) -> PyErr {
    exception(py, &Error::invalid(SqlState(state), message))
}

/// The exception for the use of a closed object; `what` names the object.
pub fn closed(py: Python<'_>, what: &str) -> PyErr {
    interface(py, &format!("the {what} is closed"))
}

/// The exception for a wrong use of the package.
pub fn interface(py: Python<'_>, message: &str) -> PyErr {
    match class(py, "InterfaceError").and_then(|class| class.call1((message,))) {
        Ok(exception) => PyErr::from_value(exception),
        Err(failure) => failure,
    }
}

fn class_of(state: SqlState) -> &'static str {
    if state.0 == "08P01" {
        // The number of parameters is wrong.
        return "ProgrammingError";
    }
    match state.0.get(..2).unwrap_or_default() {
        "0A" => "NotSupportedError",
        "22" => "DataError",
        "23" => "IntegrityError",
        "20" | "21" | "26" | "3D" | "3F" | "42" | "44" => "ProgrammingError",
        "08" | "28" | "34" | "40" | "53" | "54" | "55" | "57" | "58" | "72" => "OperationalError",
        "24" | "25" | "2B" | "2D" | "2F" | "38" | "39" | "3B" | "XX" => "InternalError",
        _ => "DatabaseError",
    }
}
