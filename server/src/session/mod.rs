//! One client's session: reads its messages and writes the answers, on its own thread.
//!
//! * The simple protocol is in [`simple`], the extended one in [`extended`], rows are written in
//!   [`rows`], COPY moves data in [`copy`].
//! * A session blocks in its client's socket, in the engine's locks and in commits, without
//!   blocking other sessions.
//! * After an error in the extended protocol everything up to the next Sync is skipped. Statements
//!   up to a Sync are one transaction. A statement directly before a Sync commits by itself, with
//!   the same effect.
//!
//! Lock order: the session holds its [`Wire`] except while a statement runs. The statement may be a
//! COPY that uses the wire from another thread.

mod copy;
mod extended;
mod parameters;
mod rows;
mod simple;
mod statement;

use crate::backends::{Phase, Registration};
use crate::message::Fields;
use crate::reply;
use crate::report::{self, Severity, protocol_violation};
use crate::shared::Shared;
use crate::wire::{Wire, WireError};
use extended::Portal;
pub(crate) use parameters::Reported;
use parking_lot::{Mutex, MutexGuard};
use statement::Statement;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use strandline::{CancelScope, Connection, Error, Result, SqlState, TransactionStatus};

/// The reason why a message failed.
#[derive(Debug)]
enum Fault {
    /// the statement failed, the session continues
    Statement(Error),
    /// the session ends after reporting this
    Fatal(Error),
    /// the connection is closed or broken
    Wire(WireError),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Statement(error)
    }
}

impl From<WireError> for Fault {
    fn from(error: WireError) -> Self {
        Self::Wire(error)
    }
}

type Answer<T = ()> = std::result::Result<T, Fault>;

/// The session's hold on its wire.
type Held<'a> = MutexGuard<'a, Wire>;

/// An authenticated client.
pub(crate) struct Session {
    server: Arc<Shared>,
    backend: Registration,
    connection: Connection,
    /// from a request's first message to its end or to a wait for the client, so that a
    /// cancellation between two messages is kept
    scope: Option<CancelScope>,
    statements: HashMap<String, Arc<Statement>>,
    portals: HashMap<String, Portal>,
    /// whether an error has been reported since the last Sync
    is_skipping: bool,
    reported: Reported,
    /// how many statements have ended, of those that could be a COPY
    ended: Arc<AtomicU64>,
}

/// Whether the session continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    Continue,
    End,
}

impl Session {
    /// A session of `connection`, whose client has received everything except ReadyForQuery.
    pub fn new(server: Arc<Shared>, backend: Registration, connection: Connection) -> Self {
        let reported = Reported::of(&connection);
        Self {
            server,
            backend,
            scope: None,
            connection,
            statements: HashMap::new(),
            portals: HashMap::new(),
            is_skipping: false,
            reported,
            ended: Arc::default(),
        }
    }

    /// Serves the client until it disconnects or the session must end.
    pub fn run(mut self, wire: Wire) {
        let _counted = self.server.metrics.as_ref().map(|m| m.connection());
        let wire = Arc::new(Mutex::new(wire));
        self.connection
            .set_copy_clients(Some(copy::clients(wire.clone(), self.ended.clone())));
        let mut held = wire.lock();
        reply::ready(&mut held.output, TransactionStatus::Idle);
        loop {
            match self.serve_one(&mut held) {
                Ok(Flow::Continue) => {}
                Ok(Flow::End) => break,
                Err(fault) => {
                    self.report_end(&mut held, fault);
                    break;
                }
            }
        }
        // An error means that the client has gone.
        let _gone = held.flush();
    }

    /// Reports the end of the session to the client.
    fn report_end(&self, wire: &mut Held<'_>, fault: Fault) {
        let error = match fault {
            Fault::Wire(WireError::Closed | WireError::Io(_)) if self.must_end() => terminated(),
            Fault::Wire(WireError::Closed) => return,
            Fault::Wire(WireError::Io(error)) => {
                tracing::info!(pid = self.backend.pid, %error, "connection lost");
                return;
            }
            Fault::Wire(WireError::Malformed(what)) => protocol_violation(what),
            Fault::Wire(WireError::TimedOut) => self.idle_too_long(),
            Fault::Statement(error) | Fault::Fatal(error) => error,
        };
        tracing::info!(pid = self.backend.pid, %error, "session ended by the server");
        report::error(&mut wire.output, Severity::Fatal, &error);
    }

    fn idle_too_long(&self) -> Error {
        match self.connection.transaction_status() {
            TransactionStatus::Idle => Error::invalid(
                SqlState("57P05"),
                "terminating connection due to idle-session timeout",
            ),
            _ => Error::invalid(
                SqlState("25P03"),
                "terminating connection due to idle-in-transaction timeout",
            ),
        }
    }

    /// Whether the end of the session is requested, or the server shuts down.
    fn must_end(&self) -> bool {
        self.backend.is_ended() || self.server.backends.phase() != Phase::Serving
    }

    /// Waits for a message and answers it.
    fn serve_one(&mut self, wire: &mut Held<'_>) -> Answer<Flow> {
        if wire.peek().is_none() {
            self.prepare_to_wait(wire)?;
        }
        let kind = wire.next()?;
        if self.scope.is_none() {
            self.scope = Some(self.connection.cancel_scope());
        }
        self.backend.set_idle(false);
        match kind {
            b'X' => return Ok(Flow::End),
            b'Q' => self.on_query(wire)?,
            b'S' => self.on_sync(wire)?,
            b'P' | b'B' | b'D' | b'E' | b'C' | b'H' if self.is_skipping => {}
            b'P' => self.guarded(wire, Self::on_parse)?,
            b'B' => self.guarded(wire, Self::on_bind)?,
            b'D' => self.guarded(wire, Self::on_describe)?,
            b'E' => self.guarded(wire, Self::on_execute)?,
            b'C' => self.guarded(wire, Self::on_close)?,
            b'H' => wire.flush()?,
            b'F' => {
                let error = Error::unsupported("the function call protocol is not supported");
                self.fail(wire, &error)?;
                self.ready(wire);
            }
            // Data that a client still sends after its COPY has failed.
            b'd' | b'c' | b'f' => {}
            other => {
                return Err(Fault::Fatal(protocol_violation(format!(
                    "invalid frontend message type {other}"
                ))));
            }
        }
        wire.flush_if_much()?;
        Ok(Flow::Continue)
    }

    /// Before a wait for the client: ends the session if it must end, and sets the read timeout.
    fn prepare_to_wait(&mut self, wire: &mut Held<'_>) -> Answer {
        self.scope = None;
        let status = self.connection.transaction_status();
        let is_idle = status == TransactionStatus::Idle && !self.connection.is_in_request();
        self.backend.set_idle(is_idle);
        let phase = self.server.backends.phase();
        if self.backend.is_ended() || (is_idle && phase != Phase::Serving) {
            return Err(Fault::Fatal(terminated()));
        }
        let timeout = match status {
            TransactionStatus::Idle => self.connection.idle_session_timeout(),
            _ => self.connection.idle_in_transaction_timeout(),
        };
        wire.set_read_timeout(timeout)?;
        Ok(())
    }

    /// Starts a statement without holding the wire, which a COPY uses.
    fn start<T>(
        &mut self,
        wire: &mut Held<'_>,
        start: impl FnOnce(&mut Connection) -> Result<T>,
    ) -> Result<T> {
        MutexGuard::unlocked(wire, || {
            let started = start(&mut self.connection);
            self.ended.fetch_add(1, Ordering::SeqCst);
            started
        })
    }

    /// Answers a message of the extended protocol; an error skips everything up to Sync.
    fn guarded(
        &mut self,
        wire: &mut Held<'_>,
        answer: impl FnOnce(&mut Self, &mut Held<'_>) -> Answer,
    ) -> Answer {
        match answer(self, wire) {
            Err(Fault::Statement(error)) => {
                self.is_skipping = true;
                self.fail(wire, &error)
            }
            other => other,
        }
    }

    /// Reports an error and undoes the failed request.
    fn fail(&mut self, wire: &mut Held<'_>, error: &Error) -> Answer {
        tracing::debug!(pid = self.backend.pid, %error, "statement failed");
        self.send_notices(wire);
        report::error(&mut wire.output, Severity::Error, error);
        self.connection.fail_request()?;
        if self.connection.has_lost_its_work() {
            // Portals hold snapshots.
            self.portals.clear();
        }
        Ok(())
    }

    fn send_notices(&mut self, wire: &mut Held<'_>) {
        let notices = self.connection.take_notices();
        if notices.is_empty() {
            return;
        }
        let least = self.connection.setting("client_min_messages");
        for notice in notices {
            report::notice(
                &mut wire.output,
                &notice,
                least.as_deref().unwrap_or_default(),
            );
        }
    }

    /// The start of a statement, if metrics are enabled.
    fn begin_measuring(&self) -> Option<Instant> {
        self.server.metrics.as_ref().map(|_| Instant::now())
    }

    /// Counts an ended statement; `tag` is its tag, or its text if it failed.
    fn measure(&self, began: Option<Instant>, tag: &str, failure: Option<SqlState>) {
        if let Some((metrics, began)) = self.server.metrics.as_ref().zip(began) {
            metrics.statement(tag, failure, began.elapsed());
        }
    }

    /// Sends the messages that precede the tag of a finished statement.
    fn after_statement(&mut self, wire: &mut Held<'_>, tag: &str) {
        self.send_notices(wire);
        match tag.split(' ').next() {
            Some("SELECT" | "INSERT" | "UPDATE" | "DELETE" | "COPY" | "MERGE" | "BEGIN") => return,
            Some("DISCARD" | "DEALLOCATE") if tag.ends_with(" ALL") => self.statements.clear(),
            _ => {}
        }
        self.reported.update(&self.connection, &mut wire.output);
    }

    /// Sync: the end of a request of the extended protocol.
    fn on_sync(&mut self, wire: &mut Held<'_>) -> Answer {
        self.is_skipping = false;
        if let Err(error) = self.connection.commit_request() {
            self.fail(wire, &error)?;
        }
        self.ready(wire);
        Ok(())
    }

    /// Sends ReadyForQuery; portals end with their transaction.
    fn ready(&mut self, wire: &mut Held<'_>) {
        let status = self.connection.transaction_status();
        if status == TransactionStatus::Idle && !self.portals.is_empty() {
            self.portals.clear();
        }
        reply::ready(&mut wire.output, status);
        self.scope = None;
    }
}

/// The only text of a message's body.
fn only_text<'a>(wire: &'a Held<'_>) -> Result<&'a str> {
    let mut fields = Fields::new(wire.body());
    let text = fields.text()?;
    fields.end()?;
    Ok(text)
}

/// 57P01.
pub(crate) fn terminated() -> Error {
    Error::invalid(
        SqlState::ADMIN_SHUTDOWN,
        "terminating connection due to administrator command",
    )
}
