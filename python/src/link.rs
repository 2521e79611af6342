//! A connection that several Python threads share.
//!
//! * The connection runs one statement at a time, so it stands behind a lock. Only threads that
//!   have released the interpreter lock wait for it or hold it. No thread therefore holds the
//!   interpreter lock while it waits for the engine.
//! * Lock order: the connection's, then a result's ([`crate::stream`]).
//! * After a fork the child has none of the engine's threads and must not touch the files. Every
//!   use of the connection is an error there, and dropping it leaks it.

use crate::errors;
use crate::open::Opened;
use crate::placeholders::{Text, Texts};
use crate::process::{count_fork, forks};
use crate::results::Rows;
use crate::signals;
use parking_lot::{Mutex, MutexGuard};
use pyo3::prelude::*;
use pyo3::types::PyString;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Weak};
use std::time::{Duration, Instant};
use strandline::{CancelHandle, Connection, Error, Progress, SqlState, TransactionStatus};

/// All connections of the process.
static LINKS: Mutex<Vec<Weak<Link>>> = Mutex::new(Vec::new());
static STARTED: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Told by Python in the child after a fork.
#[pyfunction]
pub fn forked(py: Python<'_>) -> PyResult<()> {
    count_fork();
    signals::disarm(py)
}

/// The engine's connection and the database that it keeps open.
pub struct Session {
    pub connection: Connection,
    opened: Arc<Opened>,
    /// results of the open transaction block that have not been read to the end
    unread: Vec<Weak<Mutex<Rows>>>,
    /// notices of the last statement
    pub notices: Vec<Error>,
}

impl Session {
    /// Reads the rest of the results that the next statement could invalidate.
    pub fn settle(&mut self) {
        for rows in std::mem::take(&mut self.unread) {
            if let Some(rows) = rows.upgrade() {
                rows.lock().read_rest(&mut self.connection);
            }
        }
    }

    /// Gives up the rest of the results that end with the block.
    fn discard(&mut self) {
        for rows in std::mem::take(&mut self.unread) {
            if let Some(rows) = rows.upgrade() {
                rows.lock().discard();
            }
        }
    }

    /// Prepares for a statement. Reads the results that it could invalidate, and begins a block
    /// unless one is open or the statement needs none.
    pub fn prepare_for(&mut self, text: &Text, autocommit: bool) -> strandline::Result<()> {
        self.notices.clear();
        if self.connection.transaction_status() != TransactionStatus::Idle {
            self.settle();
        } else if !autocommit && !text.is_control {
            self.connection.execute("BEGIN", ())?;
        }
        Ok(())
    }

    /// Keeps the notices of the statement that has just run.
    pub fn keep_notices(&mut self) {
        self.notices = self.connection.take_notices();
    }

    /// Remembers a result that must be read before the block goes on.
    pub fn remember(&mut self, rows: &Arc<Mutex<Rows>>) {
        self.unread.push(Arc::downgrade(rows));
    }

    /// Begins a transaction block unless one is open.
    pub fn begin(&mut self) -> strandline::Result<()> {
        if self.connection.transaction_status() == TransactionStatus::Idle {
            self.connection.execute("BEGIN", ())?;
        }
        Ok(())
    }

    /// Commits the open block, if any. A failed block is rolled back, which is reported as an
    /// error.
    pub fn commit(&mut self) -> strandline::Result<()> {
        self.discard();
        match self.connection.transaction_status() {
            TransactionStatus::Idle => Ok(()),
            TransactionStatus::Open => self.connection.execute("COMMIT", ()).map(drop),
            TransactionStatus::Failed => {
                self.connection.execute("ROLLBACK", ())?;
                Err(Error::invalid(
                    SqlState::IN_FAILED_SQL_TRANSACTION,
                    "the transaction was rolled back because a statement of it had failed",
                ))
            }
        }
    }

    /// Rolls the open block back and closes the connection. The last connection to a database
    /// closes the database.
    fn close(self: Box<Self>) -> strandline::Result<()> {
        let Self {
            connection, opened, ..
        } = *self;
        drop(connection);
        Opened::release(opened)
    }

    /// Rolls the open block back, if any.
    pub fn rollback(&mut self) -> strandline::Result<()> {
        self.discard();
        match self.connection.transaction_status() {
            TransactionStatus::Idle => Ok(()),
            _ => self.connection.execute("ROLLBACK", ()).map(drop),
        }
    }
}

/// A connection that threads share; see the module's header.
pub struct Link {
    session: Mutex<Option<Box<Session>>>,
    opened: Weak<Opened>,
    cancel: CancelHandle,
    forks: u32,
    /// whether statements outside a block commit by themselves
    autocommit: AtomicBool,
    /// the thread that runs a statement, as numbered by [`signals::this_thread`]; 0: none
    running: AtomicUsize,
    /// when the statement began, in microseconds since [`STARTED`]
    since_us: AtomicU64,
    reached: Arc<Mutex<Option<Progress>>>,
    texts: Mutex<Texts>,
}

impl Link {
    /// A new connection to an open database.
    pub fn new(opened: Arc<Opened>, autocommit: bool) -> Arc<Self> {
        let mut connection = opened.database.connect();
        let reached = Arc::new(Mutex::new(None));
        let shown = reached.clone();
        connection.on_progress(Some(Arc::new(move |progress| {
            *shown.lock() = Some(progress);
        })));
        let link = Arc::new(Self {
            cancel: connection.cancel_handle(),
            opened: Arc::downgrade(&opened),
            session: Mutex::new(Some(Box::new(Session {
                connection,
                opened,
                unread: Vec::new(),
                notices: Vec::new(),
            }))),
            forks: forks(),
            autocommit: AtomicBool::new(autocommit),
            running: AtomicUsize::new(0),
            since_us: AtomicU64::new(0),
            reached,
            texts: Mutex::default(),
        });
        let mut links = LINKS.lock();
        links.retain(|link| link.strong_count() > 0);
        links.push(Arc::downgrade(&link));
        link
    }

    /// Whether statements outside a block commit by themselves.
    pub fn is_autocommit(&self) -> bool {
        self.autocommit.load(Ordering::Relaxed)
    }

    /// Turns autocommit on or off.
    pub fn set_autocommit(&self, on: bool) {
        self.autocommit.store(on, Ordering::Relaxed);
    }

    /// A statement's text with the engine's parameters.
    pub fn text(&self, sql: &str, named: bool) -> Arc<Text> {
        self.texts.lock().get(sql, named)
    }

    /// Like [`Link::text`], for a text that is a Python object.
    pub fn text_of(&self, sql: &Bound<'_, PyString>, named: bool) -> PyResult<Arc<Text>> {
        self.texts.lock().get_object(sql, named)
    }

    /// The open connections of this process.
    pub fn all() -> Vec<Arc<Self>> {
        let links = LINKS.lock();
        let ours = |link: &Arc<Link>| link.forks == forks();
        links
            .iter()
            .filter_map(Weak::upgrade)
            .filter(ours)
            .collect()
    }

    /// Runs `work` on the connection without the interpreter lock. An error becomes the Python
    /// exception. If Ctrl-C cancelled the statement, the error is the exception of Python's signal
    /// handler.
    pub fn run<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Session) -> strandline::Result<T> + Send,
    ) -> PyResult<T> {
        let now = Instant::now();
        self.detached_at(py, now, || {
            let session = self.session.try_lock();
            let (session, now) = match session {
                Some(session) => (session, now),
                None => (self.session.lock(), Instant::now()),
            };
            self.run_locked(session, now, work)
        })
    }

    /// Runs `work`, which may wait for the connection, without the interpreter lock. Errors are the
    /// same as for [`Link::run`].
    pub fn detached<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce() -> strandline::Result<T> + Send,
    ) -> PyResult<T> {
        self.detached_at(py, Instant::now(), work)
    }

    fn detached_at<T: Send>(
        &self,
        py: Python<'_>,
        now: Instant,
        work: impl FnOnce() -> strandline::Result<T> + Send,
    ) -> PyResult<T> {
        self.check_process(py)?;
        signals::arm(py, now, cancel_on)?;
        let error = match py.detach(work) {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        match error.sqlstate() {
            SqlState::QUERY_CANCELED => py.check_signals()?,
            CLOSED => return Err(errors::closed(py, "connection")),
            _ => {}
        }
        Err(errors::exception(py, &error))
    }

    /// Like [`Link::run`], on a thread that does not hold the interpreter lock.
    pub fn run_detached<T>(
        &self,
        work: impl FnOnce(&mut Session) -> strandline::Result<T>,
    ) -> strandline::Result<T> {
        let session = self.session.lock();
        self.run_locked(session, Instant::now(), work)
    }

    /// Runs `work` on the locked session; `now` is its start.
    fn run_locked<T>(
        &self,
        mut session: MutexGuard<'_, Option<Box<Session>>>,
        now: Instant,
        work: impl FnOnce(&mut Session) -> strandline::Result<T>,
    ) -> strandline::Result<T> {
        let session = session.as_mut().ok_or_else(closed)?;
        // A thread that sees the running statement may interrupt it at once, so the scope comes
        // first.
        let _scope = session.connection.cancel_scope();
        let started = now.saturating_duration_since(*STARTED).as_micros() as u64;
        self.since_us.store(started, Ordering::Relaxed);
        self.running
            .store(signals::this_thread(), Ordering::Release);
        let _ended = Ended(&self.running);
        work(session)
    }

    /// The database, as long as the connection is open. Waits for no statement.
    pub fn opened(&self, py: Python<'_>) -> PyResult<Arc<Opened>> {
        self.check_process(py)?;
        let open = self.opened.upgrade().filter(|_| !self.is_closed());
        open.ok_or_else(|| errors::closed(py, "connection"))
    }

    fn check_process(&self, py: Python<'_>) -> PyResult<()> {
        if self.forks == forks() {
            return Ok(());
        }
        Err(errors::interface(
            py,
            "the connection was opened before a fork and works in the parent process only; \
             open one in each process",
        ))
    }

    /// Whether the connection has been closed. One that runs a statement is open.
    pub fn is_closed(&self) -> bool {
        self.session
            .try_lock()
            .is_some_and(|session| session.is_none())
    }

    /// Cancels the running statement.
    pub fn cancel(&self) {
        if self.forks == forks() {
            self.cancel.cancel();
        }
    }

    /// Whether a statement runs on `thread`.
    pub fn runs_on(&self, thread: usize) -> bool {
        thread != 0 && self.running.load(Ordering::Acquire) == thread
    }

    /// The time that the running statement has taken and its progress; None if none runs.
    fn progress(&self) -> Option<(Duration, Option<Progress>)> {
        if self.running.load(Ordering::Acquire) == 0 {
            *self.reached.lock() = None;
            return None;
        }
        let since = Duration::from_micros(self.since_us.load(Ordering::Relaxed));
        Some((
            STARTED.elapsed().saturating_sub(since),
            *self.reached.lock(),
        ))
    }

    /// Closes the connection and rolls its block back. The last connection to a database closes the
    /// database. A second call does nothing.
    pub fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.forks != forks() {
            return Ok(());
        }
        let closed = py.detach(|| match self.session.lock().take() {
            Some(session) => session.close(),
            None => Ok(()),
        });
        closed.map_err(|error| errors::exception(py, &error))
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let Some(session) = self.session.get_mut().take() else {
            return;
        };
        if self.forks != forks() {
            Box::leak(session);
            return;
        }
        // A drop cannot report that closing failed; the log has every commit. The last connection
        // writes a checkpoint, for which no thread waits with the interpreter lock.
        let mut open = Some(session);
        let closed = Python::try_attach(|py| {
            py.detach(|| open.take().map(|session| session.close()));
        });
        if closed.is_none() {
            let _ = open.map(|session| session.close());
        }
    }
}

/// This package's own SQLSTATE for a closed connection, which becomes an `InterfaceError`.
const CLOSED: SqlState = SqlState("08003");

fn closed() -> Error {
    Error::invalid(CLOSED, "the connection is closed")
}

/// Cancels the statements that run on `thread`.
fn cancel_on(thread: usize) {
    for link in Link::all().iter().filter(|link| link.runs_on(thread)) {
        link.cancel();
    }
}

struct Ended<'a>(&'a AtomicUsize);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

/// Seconds, rows, bytes and total bytes (None: unknown) of every statement that runs.
#[pyfunction]
pub fn running() -> Vec<(f64, u64, u64, Option<u64>)> {
    let links = Link::all();
    let running = links.iter().filter_map(|link| link.progress());
    running
        .map(|(time, reached)| match reached {
            Some(p) => (time.as_secs_f64(), p.rows, p.bytes, p.total_bytes),
            None => (time.as_secs_f64(), 0, 0, None),
        })
        .collect()
}

/// Ends what runs and closes every connection; told by Python when the process ends. The first
/// error is raised when all are closed.
#[pyfunction]
pub fn close_all(py: Python<'_>) -> PyResult<()> {
    let links = Link::all();
    for link in &links {
        link.cancel();
    }
    let closed: Vec<PyResult<()>> = links.iter().map(|link| link.close(py)).collect();
    closed.into_iter().collect()
}
