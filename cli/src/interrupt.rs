//! Ctrl-C: cancels the running statement, or ends a script if none runs. (The shell's prompt reads
//! Ctrl-C as a key, so the signal never arrives here.)
//!
//! Crate `ctrlc` calls the handler on a thread of its own, which only looks at one slot.

use crate::args::exit_code;
use crate::session::CancelHandle;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The statement that Ctrl-C would cancel, and the behaviour if there is none.
struct RunningStatement {
    running: Option<CancelHandle>,
    ignore_when_idle: bool,
}

static STATE: Mutex<RunningStatement> = Mutex::new(RunningStatement {
    running: None,
    ignore_when_idle: false,
});

fn state() -> MutexGuard<'static, RunningStatement> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Installs the handler. If that fails, Ctrl-C ends the process.
pub fn install() {
    // An error means that another handler is in place; the default behaviour stays.
    let _ = ctrlc::set_handler(|| {
        let state = state();
        match &state.running {
            Some(handle) => handle.cancel(),
            None if state.ignore_when_idle => {}
            None => std::process::exit(i32::from(exit_code::INTERRUPTED)),
        }
    });
}

/// A flag for work that is not a statement: true once Ctrl-C has been pressed.
pub fn stop_flag() -> &'static AtomicBool {
    static STOP: AtomicBool = AtomicBool::new(false);
    // An error means that another handler is in place; the default behaviour stays.
    let _ = ctrlc::set_handler(|| STOP.store(true, Ordering::Relaxed));
    &STOP
}

/// Makes the process go on when Ctrl-C arrives between two statements, as the shell needs.
pub fn ignore_when_idle() {
    state().ignore_when_idle = true;
}

/// As long as this value lives, Ctrl-C cancels the statement.
pub struct Cancellable(());

impl Cancellable {
    pub fn new(handle: CancelHandle) -> Self {
        state().running = Some(handle);
        Self(())
    }
}

impl Drop for Cancellable {
    fn drop(&mut self) {
        state().running = None;
    }
}
