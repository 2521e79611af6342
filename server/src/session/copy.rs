//! The data of COPY: CopyData messages from and to the client, on the thread that copies.

use crate::message::Fields;
use crate::reply;
use crate::report::protocol_violation;
use crate::wire::{Wire, WireError};
use parking_lot::Mutex;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use strandline::wire_format::Format;
use strandline::{CopyClient, Error, Result, SharedCopyClient, SqlState};

/// The interval at which a reader checks whether its statement has ended.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The client of `wire`. `has_ended` tells that the statement that reads the data has ended.
pub(super) fn client(wire: Arc<Mutex<Wire>>, has_ended: Arc<AtomicBool>) -> SharedCopyClient {
    Arc::new(Mutex::new(Client { wire, has_ended }))
}

struct Client {
    wire: Arc<Mutex<Wire>>,
    has_ended: Arc<AtomicBool>,
}

impl CopyClient for Client {
    fn begin_in(&mut self, format: Format, columns: usize) -> Result<()> {
        let mut wire = self.wire.lock();
        reply::copy(&mut wire.output, b'G', format, columns);
        self.has_ended.store(false, Ordering::SeqCst);
        wire.set_read_timeout(Some(LOOK_EVERY)).map_err(lost)?;
        wire.flush().map_err(lost)
    }

    fn read(&mut self, into: &mut Vec<u8>) -> Result<bool> {
        let mut wire = self.wire.lock();
        loop {
            let kind = match wire.next() {
                Err(WireError::TimedOut) if !self.has_ended.load(Ordering::SeqCst) => continue,
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
        reply::copy(&mut self.wire.lock().output, b'H', format, columns);
        Ok(())
    }

    fn write(&mut self, data: &[u8]) -> Result<()> {
        let mut wire = self.wire.lock();
        reply::message(&mut wire.output, b'd', |out| out.extend_from_slice(data));
        wire.flush_if_much().map_err(lost)
    }

    fn end_out(&mut self) -> Result<()> {
        reply::empty(&mut self.wire.lock().output, b'c');
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
