//! The native module of the Python package `strandline`: DB-API 2.0 over the Rust API, and Arrow
//! in and out without copying.
//!
//! Python sees [`Connection`](connection::Connection), [`Cursor`](cursor::Cursor) and
//! [`Appender`](appender::Appender). Parts that need not be fast are Python (`strandline/*.py`).
//! Every call into the engine first releases the interpreter lock; [`link`] has the rules.

mod appender;
mod arrays;
mod cells;
mod columns;
mod connection;
mod cursor;
mod description;
mod errors;
mod frames;
mod link;
mod open;
mod placeholders;
mod process;
mod results;
mod signals;
mod statement;
mod stream;
mod temporal;
mod values;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What `import strandline._native` gives.
#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use crate::appender::Appender;
    #[pymodule_export]
    use crate::connection::Connection;
    #[pymodule_export]
    use crate::cursor::Cursor;
    #[pymodule_export]
    use crate::link::{close_all, forked, running};

    /// The package's version.
    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "Python's name")]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
