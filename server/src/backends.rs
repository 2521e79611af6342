//! The sessions of a server as other threads see them: how many there are, how to cancel what one
//! runs, how to end it.
//!
//! A session's thread says through [`Backend`] when it waits for its client outside a transaction;
//! a shutdown ends such sessions at once. The flag and the request to end are stored and read in
//! opposite orders on both sides (sequentially consistent), so that one of them sees the other.
//!
//! Lock order: `Backends::sessions`, then nothing.

use crate::transport::Hangup;
use parking_lot::{Condvar, Mutex};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use strandline::Termination;

/// How far a shutdown is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// none was asked for
    Serving,
    /// nobody new comes in, sessions end when their transaction does
    Draining,
    /// the time for that is over
    Ending,
}

/// All sessions.
pub(crate) struct Backends {
    sessions: Mutex<HashMap<i32, Arc<Backend>>>,
    gone: Condvar,
    /// threads that serve a connection, authenticated or not
    threads: AtomicUsize,
    phase: AtomicU8,
}

/// One session.
pub(crate) struct Backend {
    /// its connection's number
    pub pid: i32,
    termination: Termination,
    hangup: Arc<Hangup>,
    /// waits for its client outside a transaction
    is_idle: AtomicBool,
}

impl Backend {
    /// Makes the session end with 57P01 as soon as it can.
    pub fn end(&self) {
        self.termination.request();
    }

    /// Whether the server or another session has asked that it ends.
    pub fn is_ended(&self) -> bool {
        self.termination.is_requested()
    }

    /// The session waits for its client, or no longer.
    pub fn set_idle(&self, is_idle: bool) {
        self.is_idle.store(is_idle, Ordering::SeqCst);
    }

    /// Wakes a session that waits for its client, to see that the server shuts down. What has just
    /// begun is left to end.
    fn wake_if_idle(&self) {
        if self.is_idle.load(Ordering::SeqCst) {
            self.hangup.stop_reading();
        }
    }
}

impl Backends {
    /// No sessions yet.
    pub fn new() -> Self {
        Self {
            sessions: Mutex::default(),
            gone: Condvar::new(),
            threads: AtomicUsize::new(0),
            phase: AtomicU8::new(0),
        }
    }

    /// How far a shutdown is.
    pub fn phase(&self) -> Phase {
        match self.phase.load(Ordering::SeqCst) {
            0 => Phase::Serving,
            1 => Phase::Draining,
            _ => Phase::Ending,
        }
    }

    /// A thread for one more connection, unless there are `most`.
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

    /// How many sessions there are.
    pub fn count(&self) -> usize {
        self.sessions.lock().len()
    }

    /// Ends all sessions: at once those that wait for their client outside a transaction, the
    /// others within `grace`. Returns when all threads have ended, or `grace` and as long again as
    /// they may need to give up has passed.
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

/// How long sessions may take to end when they must.
const GIVE_UP: Duration = Duration::from_secs(10);

/// A connection's thread, counted while it lives.
pub(crate) struct Serving(Arc<Backends>);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.threads.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A session's place among the others, given up when dropped.
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
