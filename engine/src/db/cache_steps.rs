//! How the background work of a cache goes: see `maintenance::cache_steps` for the SSD cache,
//! `maintenance::block_cache_steps` for the block cache.
//!
//! Lock order: `state` and `thread` are taken with nothing else held, and held only to look and to
//! change.

use super::pauses::Pauses;
use crate::events;
use std::thread::JoinHandle;
use std::time::Duration;
use strandline_base::sync::Mutex;
use strandline_base::{Error, ErrorKind};

/// The first pause after a step that failed.
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The outcome of the last step.
#[derive(Debug)]
pub(crate) struct CacheSteps {
    /// a plural noun, for the log
    name: &'static str,
    state: Mutex<State>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct State {
    failure: Option<Error>,
    pauses: Pauses,
}

impl CacheSteps {
    /// No step was made; `name` is a plural noun for the log.
    pub fn new(name: &'static str) -> Self {
        let state = State {
            failure: None,
            pauses: Pauses::new(FIRST_PAUSE, LONGEST_PAUSE),
        };
        Self {
            name,
            state: Mutex::new(state),
            thread: Mutex::new(None),
        }
    }

    /// The thread that makes the steps has been started.
    pub fn set_thread(&self, thread: JoinHandle<()>) {
        *self.thread.lock() = Some(thread);
    }

    /// The thread that makes the steps, for the caller to wait for its end; None: there is none.
    pub fn take_thread(&self) -> Option<JoinHandle<()>> {
        self.thread.lock().take()
    }

    /// The failure of the last step.
    pub fn failure(&self) -> Option<Error> {
        self.state.lock().failure.clone()
    }

    /// Whether no step is to be made now: after a failure, for ever after a failed sync.
    pub fn is_pausing(&self, now_us: u64) -> bool {
        let state = self.state.lock();
        let is_over = |failure: &Error| failure.kind() == ErrorKind::Closed;
        state.failure.as_ref().is_some_and(is_over) || state.pauses.is_pausing(now_us)
    }

    /// Notes how a step ended, and tells when that has changed.
    pub fn note(&self, outcome: Result<(), &Error>, now_us: u64) {
        let mut state = self.state.lock();
        let (before, now) = (state.failure.as_ref(), outcome.err());
        events::background_work(self.name, before, now);
        state.failure = now.cloned();
        match outcome {
            Ok(()) => state.pauses.reset(),
            Err(_) => state.pauses.grow(now_us),
        }
    }
}
