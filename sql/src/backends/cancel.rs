//! Cancellation of the running statement, by another thread or by `statement_timeout`.
//!
//! The engine polls the flag (in scans and while waiting for locks). The session also races the
//! statement's future against the wake-up, so that work without polling ends at its next await. A
//! cancellation while no statement runs is dropped when the next statement starts. Within a
//! [`CancelScope`] around several statements it is kept; it is dropped only when a scope begins. A
//! request to end the whole session (`pg_terminate_backend`) is never dropped.

use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;
use strandline_base::{Error, ErrorKind, Result, SqlState};
use tokio::sync::Notify;

/// The cancel state that a connection shares with its handles and transactions.
#[derive(Debug, Default)]
pub struct CancelState {
    flag: Arc<AtomicBool>,
    cause: Mutex<Cause>,
    terminated: AtomicBool,
    /// the number of [`CancelScope`]s
    scopes: AtomicU32,
    woken: Notify,
    on_termination: OnTermination,
}

/// The cause of the set flag. The flag changes only under the cause's lock, and is set while there
/// is a cause.
#[derive(Debug, Default)]
struct Cause {
    /// advances when a timer is dropped or a cancellation forgotten; a timer with another number is
    /// late
    statement: u64,
    timed_out: bool,
    asked: bool,
}

/// The action to run when the session is ended.
#[derive(Default)]
struct OnTermination(Mutex<Option<Box<dyn Fn() + Send + Sync>>>);

impl std::fmt::Debug for OnTermination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OnTermination")
    }
}

/// Cancels the running statement of a connection; may be used from any thread.
///
/// ```
/// # let database = strandline::Database::in_memory()?;
/// # let connection = database.connect();
/// let handle = connection.cancel_handle();
/// std::thread::spawn(move || handle.cancel()).join().unwrap();
/// # Ok::<(), strandline::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct CancelHandle(pub(crate) Arc<CancelState>);

impl CancelHandle {
    /// Makes the running statement fail with 57014. Does nothing if none is running.
    pub fn cancel(&self) {
        self.0.cancel();
    }
}

/// The request of another session to end this connection (`pg_terminate_backend`). Statements of an
/// ended connection then fail with 57P01; its server should close it.
#[derive(Clone, Debug)]
pub struct Termination(pub(crate) Arc<CancelState>);

/// A scope during which a cancellation holds for all statements of the connection, and between
/// them; see [`Connection::cancel_scope`].
///
/// [`Connection::cancel_scope`]: crate::Connection::cancel_scope
#[derive(Debug)]
pub struct CancelScope(Arc<CancelState>);

impl CancelScope {
    pub(crate) fn begin(cancel: &Arc<CancelState>) -> Self {
        cancel.start();
        cancel.scopes.fetch_add(1, Ordering::SeqCst);
        Self(cancel.clone())
    }
}

impl Drop for CancelScope {
    fn drop(&mut self) {
        self.0.scopes.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Termination {
    /// Ends the connection.
    pub fn request(&self) {
        self.0.terminate();
    }

    /// Whether the connection has been ended.
    pub fn is_requested(&self) -> bool {
        self.0.is_terminated()
    }
}

impl CancelState {
    /// The flag that the engine polls.
    pub fn flag(&self) -> &Arc<AtomicBool> {
        &self.flag
    }

    /// Forgets earlier cancellations that do not apply to the starting statement.
    pub fn start(&self) {
        // An earlier cancellation has set the flag already. One that is just being set may be meant
        // for the starting statement.
        if !self.flag.load(Ordering::SeqCst) && !self.is_terminated() {
            return;
        }
        let mut cause = self.cause.lock();
        cause.statement += 1;
        // A timeout belongs to an earlier statement.
        cause.timed_out = false;
        if self.scopes.load(Ordering::SeqCst) == 0 {
            cause.asked = false;
        }
        let is_set = cause.asked || self.is_terminated();
        self.flag.store(is_set, Ordering::SeqCst);
    }

    /// Ends the session: its running statement and all later ones fail with 57P01.
    pub fn terminate(&self) {
        self.terminated.store(true, Ordering::SeqCst);
        self.wake(self.cause.lock());
        if let Some(act) = self.on_termination.0.lock().as_ref() {
            act();
        }
    }

    /// Calls `act` when the session is ended, on the thread that ends it.
    pub fn on_termination(&self, act: impl Fn() + Send + Sync + 'static) {
        *self.on_termination.0.lock() = Some(Box::new(act));
    }

    /// Whether another session has ended this one.
    pub fn is_terminated(&self) -> bool {
        self.terminated.load(Ordering::SeqCst)
    }

    /// 57P01 if the session has been ended.
    pub fn refuse_if_terminated(&self) -> Result<()> {
        match self.is_terminated() {
            true => Err(self.error()),
            false => Ok(()),
        }
    }

    /// Makes the running statement fail with 57014.
    pub fn cancel(&self) {
        let mut cause = self.cause.lock();
        cause.asked = true;
        self.wake(cause);
    }

    /// Reports that the time of statement number `statement` is up.
    fn time_out(&self, statement: u64) {
        let mut cause = self.cause.lock();
        if cause.statement == statement {
            // The first cause determines the error.
            cause.timed_out = !cause.asked;
            self.wake(cause);
        }
    }

    /// The time of the running statement is up.
    pub(crate) fn time_out_now(&self) {
        let statement = self.cause.lock().statement;
        self.time_out(statement);
    }

    fn wake(&self, cause: MutexGuard<'_, Cause>) {
        self.flag.store(true, Ordering::SeqCst);
        drop(cause);
        self.woken.notify_waiters();
    }

    /// Waits until the running statement is cancelled.
    pub async fn cancelled(&self) -> Error {
        loop {
            let woken = self.woken.notified();
            if self.flag.load(Ordering::SeqCst) {
                return self.error();
            }
            woken.await;
        }
    }

    /// 57014 or 57P01 if the running statement has been cancelled.
    pub fn check(&self) -> Result<()> {
        match self.flag.load(Ordering::SeqCst) {
            true => Err(self.error()),
            false => Ok(()),
        }
    }

    /// Runs `future` until it ends or is cancelled.
    pub async fn guard<T>(&self, future: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::select! {
            biased;
            result = future => result.map_err(|error| self.explain(error)),
            error = self.cancelled() => Err(error),
        }
    }

    /// Adds the cause to a cancellation that the engine reported.
    pub fn explain(&self, error: Error) -> Error {
        // A client that aborts its COPY causes the same code with its own message.
        let is_asked = self.flag.load(Ordering::SeqCst);
        if is_asked && error.sqlstate() == SqlState::QUERY_CANCELED {
            self.error()
        } else {
            error
        }
    }

    fn error(&self) -> Error {
        if self.is_terminated() {
            let message = "terminating connection due to administrator command";
            return Error::new(ErrorKind::Cancelled, SqlState("57P01"), message);
        }
        let cause = match self.cause.lock().timed_out {
            true => "canceling statement due to statement timeout",
            false => "canceling statement due to user request",
        };
        Error::new(ErrorKind::Cancelled, SqlState::QUERY_CANCELED, cause)
    }
}

/// Cancels the statement when its time is up. It is dropped at the statement's end.
pub struct Timer {
    task: tokio::task::JoinHandle<()>,
    cancel: Arc<CancelState>,
    statement: u64,
}

impl Timer {
    /// Starts a timer on the runtime's threads for the statement that has started last.
    pub(crate) fn start(
        threads: &tokio::runtime::Handle,
        cancel: Arc<CancelState>,
        timeout: Duration,
    ) -> Self {
        let statement = cancel.cause.lock().statement;
        let timed = cancel.clone();
        let task = threads.spawn(async move {
            tokio::time::sleep(timeout).await;
            timed.time_out(statement);
        });
        Self {
            task,
            cancel,
            statement,
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.task.abort();
        // The task may have woken up already: the new number makes it late.
        let mut cause = self.cancel.cause.lock();
        if cause.statement == self.statement {
            cause.statement += 1;
        }
    }
}
