//! The data of COPY: CopyData messages from and to the client, on the thread that copies.

use crate::message::Fields;
use crate::reply;
use crate::report::protocol_violation;
use crate::wire::{Wire, WireError};
use parking_lot::{Mutex, MutexGuard};
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use strandline::wire_format::Format;
use strandline::{CopyClient, CopyClients, Error, Result, SqlState};

/// The interval at which a reader checks whether its statement has ended.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The client at the other end of `wire`, for each COPY anew. `statements` counts the statements
/// that have ended.
pub(super) fn clients(wire: Arc<Mutex<Wire>>, statements: Arc<AtomicU64>) -> CopyClients {
    Arc::new(move || {
        Arc::new(Mutex::new(Client {
            wire: wire.clone(),
            statements: statements.clone(),
            statement: statements.load(Ordering::SeqCst),
        }))
    })
}

/// The client of one COPY. The statement's end is counted before the session locks the wire again,
/// and every call looks at the count with the wire locked: nothing of a COPY that has ended gets
/// into what other statements send and receive.
struct Client {
    wire: Arc<Mutex<Wire>>,
    statements: Arc<AtomicU64>,
    /// the count while the COPY runs
    statement: u64,
}

impl Client {
    /// The wire; 57014 if the COPY has ended.
    fn lock(&self) -> Result<MutexGuard<'_, Wire>> {
        let wire = self.wire.lock();
        match self.has_ended() {
            true => Err(Error::invalid(
                SqlState::QUERY_CANCELED,
                "the statement of this COPY has ended",
            )),
            false => Ok(wire),
        }
    }

    fn has_ended(&self) -> bool {
        self.statements.load(Ordering::SeqCst) != self.statement
    }
}

impl CopyClient for Client {
    fn begin_in(&mut self, format: Format, columns: usize) -> Result<()> {
        let mut wire = self.lock()?;
        reply::copy(&mut wire.output, b'G', format, columns);
        wire.set_read_timeout(Some(LOOK_EVERY)).map_err(lost)?;
        wire.flush().map_err(lost)
    }

    fn read(&mut self, into: &mut Vec<u8>) -> Result<bool> {
        let mut wire = self.lock()?;
        loop {
            let kind = match wire.next() {
                Err(WireError::TimedOut) if !self.has_ended() => continue,
                other => other.map_err(lost)?,
            };
            match kind {
                b'd' => {
                    into.extend_from_slice(wire.body());
                    return Ok(true);
                }
                b'c' => return Ok(false),
                b'f' => {
                    let reason = Fields::new(wire.body()).text()?.to_string();
                    return Err(Error::invalid(
                        SqlState::QUERY_CANCELED,
                        format!("COPY from stdin failed: {reason}"),
                    ));
                }
                // Clients of the extended protocol may have sent these before CopyInResponse.
                b'H' | b'S' => {}
                other => {
                    return Err(protocol_violation(format!(
                        "unexpected message type 0x{other:02X} during COPY from stdin"
                    )));
                }
            }
        }
    }

    fn begin_out(&mut self, format: Format, columns: usize) -> Result<()> {
        reply::copy(&mut self.lock()?.output, b'H', format, columns);
        Ok(())
    }

    fn write(&mut self, data: &[u8]) -> Result<()> {
        let mut wire = self.lock()?;
        reply::require_length(data.len())?;
        reply::message(&mut wire.output, b'd', |out| out.extend_from_slice(data));
        wire.flush_if_much().map_err(lost)
    }

    fn end_out(&mut self) -> Result<()> {
        reply::empty(&mut self.lock()?.output, b'c');
        Ok(())
    }
}

/// Reports a lost client. The session notices the loss when it reads the next message.
fn lost(error: WireError) -> Error {
    let what = "the connection was lost during COPY";
    match error {
        WireError::Malformed(what) => protocol_violation(what),
        WireError::Closed => Error::io(what, &ErrorKind::UnexpectedEof.into()),
        WireError::TimedOut => Error::io(what, &ErrorKind::TimedOut.into()),
        WireError::Io(error) => Error::io(what, &error),
    }
}
