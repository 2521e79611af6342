//! The clock of crashes: it counts the mutating operations of one disk, or of several that fail
//! together, and says at which of them the machine crashes.

use strandline_base::{Error, ErrorKind, Result, SqlState};

/// Counts operations and ends them at a crash.
#[derive(Debug, Default)]
pub(crate) struct CrashClock {
    /// operations so far, failed ones included
    pub operations: u64,
    pub crash_at: Option<u64>,
    pub has_crashed: bool,
    pub fail_at: Option<u64>,
}

/// Whether the operation that was just counted is carried out before it fails.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    /// The crash hit during this operation: it is in flight.
    InFlight,
}

impl CrashClock {
    /// Fails once the machine has crashed.
    pub fn check_running(&self) -> Result<()> {
        match self.has_crashed {
            true => Err(crashed_error()),
            false => Ok(()),
        }
    }

    /// Counts an operation.
    pub fn count(&mut self) -> Result<Outcome> {
        self.check_running()?;
        self.operations += 1;
        if self.crash_at == Some(self.operations) {
            self.has_crashed = true;
            return Ok(Outcome::InFlight);
        }
        match self.fail_at == Some(self.operations) {
            true => Err(injected_error(
                "the disk",
                &format!("operation {}", self.operations),
            )),
            false => Ok(Outcome::Done),
        }
    }
}

pub(crate) fn crashed_error() -> Error {
    Error::new(
        ErrorKind::Unavailable,
        SqlState::IO_ERROR,
        "sim: the disk has crashed",
    )
}

pub(crate) fn injected_error(name: &str, what: &str) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        SqlState::IO_ERROR,
        format!("sim: injected {what} failure of \"{name}\""),
    )
}
