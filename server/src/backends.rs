//! The sessions of a server for its other threads: their number, their cancellation, their end.
//!
//! A session's thread marks in its [`Backend`] when it waits for its client outside a transaction;
//! a shutdown ends such sessions at once. Both sides store and read the mark and the shutdown phase
//! in opposite orders (sequentially consistent), so that at least one of them sees the other's
//! store.
//!
//! Lock order: `Backends::sessions`, then nothing.

use crate::transport::Hangup;
use parking_lot::{Condvar, Mutex};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use strandline::Termination;

/// The phase of a shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// no shutdown
    Serving,
    /// no new sessions; sessions end with their transactions
    Draining,
    /// the grace period is over
    Ending,
}

/// All sessions.
pub(crate) struct Backends {
    sessions: Mutex<HashMap<i32, Arc<Backend>>>,
    gone: Condvar,
    /// the number of threads that serve a connection, authenticated or not
    threads: AtomicUsize,
    phase: AtomicU8,
}

/// One session.
pub(crate) struct Backend {
    /// its connection's number
    pub pid: i32,
    termination: Termination,
    hangup: Arc<Hangup>,
    /// whether it waits for its client outside a transaction
    is_idle: AtomicBool,
}

impl Backend {
    /// Makes the session end with 57P01 as soon as it can.
    pub fn end(&self) {
        self.termination.request();
    }

    /// Whether the server or another session has requested the end of this session.
    pub fn is_ended(&self) -> bool {
        self.termination.is_requested()
    }

    /// Marks whether the session waits for its client.
    pub fn set_idle(&self, is_idle: bool) {
        self.is_idle.store(is_idle, Ordering::SeqCst);
    }

    /// Wakes a session that waits for its client, so that it sees the shutdown. Running work
    /// continues.
    fn wake_if_idle(&self) {
        if self.is_idle.load(Ordering::SeqCst) {
            self.hangup.stop_reading();
        }
    }
}

impl Backends {
    /// No sessions.
    pub fn new() -> Self {
        Self {
            sessions: Mutex::default(),
            gone: Condvar::new(),
            threads: AtomicUsize::new(0),
            phase: AtomicU8::new(0),
        }
    }

    /// The phase of the shutdown.
    pub fn phase(&self) -> Phase {
        match self.phase.load(Ordering::SeqCst) {
            0 => Phase::Serving,
            1 => Phase::Draining,
            _ => Phase::Ending,
        }
    }

    /// Registers a thread for one more connection, unless there are `most`.
    pub fn enter(self: &Arc<Self>, most: usize) -> Option<Serving> {
        let entered = self
            .threads
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| {
                (n < most).then_some(n + 1)
            });
        entered.ok().map(|_| Serving(self.clone()))
    }

    /// Adds an authenticated session, unless there are `most`.
    pub fn add(
        self: &Arc<Self>,
        most: usize,
        pid: i32,
        termination: Termination,
        hangup: Arc<Hangup>,
    ) -> Option<Registration> {
        let mut sessions = self.sessions.lock();
        if sessions.len() >= most {
            return None;
        }
        let backend = Arc::new(Backend {
            pid,
            termination,
            hangup,
            is_idle: AtomicBool::new(false),
        });
        sessions.insert(backend.pid, backend.clone());
        Some(Registration {
            backend,
            backends: self.clone(),
        })
    }

    /// The number of sessions.
    pub fn count(&self) -> usize {
        self.sessions.lock().len()
    }

    /// Ends all sessions. A session that waits for its client outside a transaction ends at once,
    /// another one within `grace`. Returns when all sessions have ended, or [`GIVE_UP`] after the
    /// grace period.
    pub fn shut_down(&self, grace: Duration) {
        self.phase.store(1, Ordering::SeqCst);
        for backend in self.all() {
            backend.wake_if_idle();
        }
        if self.wait_until_empty(Instant::now() + grace) {
            return;
        }
        self.phase.store(2, Ordering::SeqCst);
        for backend in self.all() {
            backend.end();
        }
        self.wait_until_empty(Instant::now() + GIVE_UP);
    }

    fn all(&self) -> Vec<Arc<Backend>> {
        self.sessions.lock().values().cloned().collect()
    }

    fn wait_until_empty(&self, deadline: Instant) -> bool {
        let mut sessions = self.sessions.lock();
        while !sessions.is_empty() {
            if self.gone.wait_until(&mut sessions, deadline).timed_out() {
                return sessions.is_empty();
            }
        }
        true
    }
}

/// The time for sessions to end after the grace period.
const GIVE_UP: Duration = Duration::from_secs(10);

/// A connection's thread, counted until this is dropped.
pub(crate) struct Serving(Arc<Backends>);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.threads.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A session's registration, which ends when it is dropped.
pub(crate) struct Registration {
    backend: Arc<Backend>,
    backends: Arc<Backends>,
}

impl std::ops::Deref for Registration {
    type Target = Backend;
    fn deref(&self) -> &Backend {
        &self.backend
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.backends.sessions.lock().remove(&self.backend.pid);
        self.backends.gone.notify_all();
    }
}
