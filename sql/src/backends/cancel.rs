//! Cancelling the running statement: from another thread, or by `statement_timeout`.
//!
//! The engine polls the flag (in scans and while waiting for locks); the session races the
//! statement's future against the wake-up, so that work which never looks at the flag ends at its
//! next pause. A cancellation while no statement runs is dropped when the next statement starts.
//! Where several statements form one piece of work, it is dropped when the [`CancelScope`] around
//! them begins. A request to end the whole session (`pg_terminate_backend`) is never dropped.

use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;
use strandline_base::{Error, ErrorKind, Result, SqlState};
use tokio::sync::Notify;

/// Shared by a connection, its handles and its transactions.
#[derive(Debug, Default)]
pub struct CancelState {
    flag: Arc<AtomicBool>,
    cause: Mutex<Cause>,
    terminated: AtomicBool,
    /// how many [`CancelScope`]s there are
    scopes: AtomicU32,
    woken: Notify,
    on_termination: OnTermination,
}

/// Why the flag is set; it is set and cleared under the cause's lock, and is set whenever there is
/// a cause.
#[derive(Debug, Default)]
struct Cause {
    /// moves on when a timer is dropped or a cancellation forgotten; a timer that finds another
    /// number than it began with is late
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

/// The end of a connection on request of another session (`pg_terminate_backend`). Statements of an
/// ended connection fail with 57P01; its server should close it.
#[derive(Clone, Debug)]
pub struct Termination(pub(crate) Arc<CancelState>);

/// While it lives, a cancellation concerns all that the connection runs until the scope's end, and
/// the moments between two statements too; see [`Connection::cancel_scope`].
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

    /// Forgets earlier cancellations that do not concern the statement that starts.
    pub fn start(&self) {
        // What is to be forgotten has set the flag. One that is being set at the moment may well
        // concern what starts.
        if !self.flag.load(Ordering::SeqCst) && !self.is_terminated() {
            return;
        }
        let mut cause = self.cause.lock();
        cause.statement += 1;
        // A timeout was an earlier statement's.
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

    /// Whether the session has been ended by another one.
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

    /// The time of statement number `statement` is up.
    fn time_out(&self, statement: u64) {
        let mut cause = self.cause.lock();
        if cause.statement == statement {
            // The first cause is the one that is told.
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

    /// Runs `future` unless it is cancelled first.
    pub async fn guard<T>(&self, future: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::select! {
            biased;
            result = future => result.map_err(|error| self.explain(error)),
            error = self.cancelled() => Err(error),
        }
    }

    /// A cancellation that the engine reported, with its cause.
    pub fn explain(&self, error: Error) -> Error {
        // A client that gives up its COPY has the same code and its own words.
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

/// Cancels the statement when its time is up; dropped when the statement has ended.
pub struct Timer {
    task: tokio::task::JoinHandle<()>,
    cancel: Arc<CancelState>,
    statement: u64,
}

impl Timer {
    /// Starts on the runtime's threads, for the statement that has started last.
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
        // The task may be past its pause: from now on it is nobody's.
        let mut cause = self.cancel.cause.lock();
        if cause.statement == self.statement {
            cause.statement += 1;
        }
    }
}
