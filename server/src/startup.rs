//! From an accepted connection to a session: TLS, the startup packet or a cancel request,
//! authentication, the client's settings.
//!
//! All of this has one deadline and happens before the client is known. Packets are short, and only
//! their buffers are allocated.

use crate::auth::wrong_password;
use crate::backends::{Phase, Serving};
use crate::message::Fields;
use crate::polling::Pace;
use crate::reply;
use crate::report::{self, Severity, protocol_violation};
use crate::session::{Reported, Session};
use crate::shared::Shared;
use crate::transport::{Accepted, Hangup};
use crate::wire::{Wire, WireError};
use std::collections::BTreeMap;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Instant;
use strandline::{Connection, Error, Result, SqlState};

const CANCEL_REQUEST: i32 = 80_877_102;
const SSL_REQUEST: i32 = 80_877_103;
const GSS_REQUEST: i32 = 80_877_104;
const PROTOCOL_MAJOR: i32 = 3;
const TLS_HANDSHAKE: u8 = 0x16;

/// The reason why a connection does not become a session.
enum End {
    /// the connection ends without a message
    Quiet,
    /// the client receives the error
    Refused(Error),
}

impl From<WireError> for End {
    fn from(error: WireError) -> Self {
        match error {
            WireError::Malformed(what) => Self::Refused(protocol_violation(what)),
            WireError::TimedOut => Self::Refused(Error::invalid(
                SqlState("08006"),
                "canceling authentication due to timeout",
            )),
            WireError::Closed | WireError::Io(_) => Self::Quiet,
        }
    }
}

impl From<std::io::Error> for End {
    fn from(error: std::io::Error) -> Self {
        Self::from(WireError::from(error))
    }
}

impl From<Error> for End {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

type Answer<T = ()> = std::result::Result<T, End>;

/// The contents of the startup packet.
struct Startup {
    user: String,
    /// settings, in the order of their names
    settings: BTreeMap<String, String>,
}

/// Serves one connection from start to end.
pub(crate) fn serve(server: &Arc<Shared>, accepted: Accepted, serving: Serving) {
    let deadline = Instant::now() + server.options.authentication_timeout;
    let peer = accepted.peer();
    if accepted.configure(server.options.write_timeout).is_err() {
        return;
    }
    let Ok(hangup) = accepted.hangup() else {
        return;
    };
    let is_tcp = matches!(accepted, Accepted::Tcp(_));
    let Ok((mut wire, is_tls)) = open(server, accepted, deadline) else {
        return;
    };
    let mut opening = Opening {
        server,
        wire: &mut wire,
        is_tcp,
        is_tls,
        deadline,
    };
    match opening.session(hangup, &peer) {
        Ok(session) => {
            wire.end_startup(server.options.max_message_bytes);
            session.run(wire);
        }
        Err(End::Quiet) => {}
        Err(End::Refused(error)) => {
            tracing::info!(%peer, %error, "connection refused");
            if let Some(metrics) = &server.metrics {
                metrics.connection_refused();
            }
            report::error(&mut wire.output, Severity::Fatal, &error);
            // An error means that the client has gone.
            let _gone = wire.flush();
        }
    }
    drop(serving);
}

/// The wire, over TLS if the client begins with it, and whether it is TLS.
fn open(server: &Shared, accepted: Accepted, deadline: Instant) -> Answer<(Wire, bool)> {
    let pace = Pace::new(server.poll_budget.clone());
    let stream = match accepted {
        Accepted::Unix(stream) => return Ok((Wire::new(Box::new(stream), deadline, pace), false)),
        Accepted::Tcp(stream) => stream,
    };
    match &server.tls {
        Some(tls) if begins_with_tls(&stream, deadline)? => {
            let stream = tls.accept(stream, deadline, true)?;
            Ok((Wire::new(Box::new(stream), deadline, pace), true))
        }
        _ => Ok((Wire::new(Box::new(stream), deadline, pace), false)),
    }
}

/// Whether the client's first byte begins a TLS handshake.
fn begins_with_tls(stream: &TcpStream, deadline: Instant) -> Answer<bool> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(End::Quiet);
    }
    stream.set_read_timeout(Some(left))?;
    let mut first = [0];
    let seen = stream.peek(&mut first)?;
    stream.set_read_timeout(None)?;
    Ok(seen == 1 && first[0] == TLS_HANDSHAKE)
}

/// A connection during startup.
struct Opening<'a> {
    server: &'a Arc<Shared>,
    wire: &'a mut Wire,
    is_tcp: bool,
    is_tls: bool,
    deadline: Instant,
}

impl Opening<'_> {
    /// Performs the startup up to the point where the client may send statements.
    fn session(&mut self, hangup: Hangup, peer: &str) -> Answer<Session> {
        let startup = self.startup()?;
        let server = self.server;
        if server.backends.phase() != Phase::Serving {
            return Err(shutting_down().into());
        }
        if server.options.require_tls && self.is_tcp && !self.is_tls {
            return Err(Error::invalid(
                SqlState("28000"),
                "this server requires TLS: connect with sslmode=require",
            )
            .into());
        }
        let mut connection = match self.authenticate(&startup.user)? {
            true => server.database.connect_as(&startup.user)?,
            false => server.database.connect(),
        };
        connection.set_client(peer);
        let hangup = Arc::new(hangup);
        let ending = hangup.clone();
        connection.on_termination(move || ending.stop_reading());
        let most = server.options.max_connections;
        let reserved = match connection.is_superuser() {
            true => 0,
            false => server.options.superuser_reserved_connections,
        };
        let backend = server
            .backends
            .add(
                most.saturating_sub(reserved),
                connection.backend_id(),
                connection.termination(),
                hangup,
            )
            .ok_or_else(|| match server.backends.count() < most {
                true => only_for_superusers(),
                false => too_many(),
            })?;
        if server.backends.phase() != Phase::Serving {
            return Err(shutting_down().into());
        }
        let mut warnings = Vec::new();
        for (name, value) in &startup.settings {
            warnings.extend(apply(&mut connection, name, value)?);
        }
        tracing::info!(
            pid = backend.pid,
            user = startup.user,
            peer,
            tls = self.is_tls,
            "connected"
        );
        let out = &mut self.wire.output;
        reply::authentication(out, 0, &[]);
        Reported::of(&connection).write_all(out);
        reply::key_data(out, backend.pid, connection.secret());
        warnings.extend(connection.take_notices());
        for notice in warnings {
            report::notice(out, &notice, "");
        }
        Ok(Session::new(server.clone(), backend, connection))
    }

    /// Answers requests for encryption; returns the startup packet.
    fn startup(&mut self) -> Answer<Startup> {
        let (mut asked_tls, mut asked_gss) = (self.is_tls, false);
        loop {
            self.wire.next_startup()?;
            let mut fields = Fields::new(self.wire.body());
            match fields.int32()? {
                SSL_REQUEST if !asked_tls => {
                    asked_tls = true;
                    self.answer_tls()?;
                }
                GSS_REQUEST if !asked_gss => {
                    asked_gss = true;
                    self.wire.output.push(b'N');
                }
                CANCEL_REQUEST => {
                    let (pid, secret) = (fields.int32()?, fields.int32()?);
                    fields.end()?;
                    self.server.database.cancel(pid, secret);
                    return Err(End::Quiet);
                }
                version if version >> 16 == PROTOCOL_MAJOR => {
                    let (startup, unknown) = Startup::read(fields)?;
                    if version & 0xffff > 0 || !unknown.is_empty() {
                        let unknown: Vec<&str> = unknown.iter().map(String::as_str).collect();
                        let out = &mut self.wire.output;
                        reply::negotiate_version(out, PROTOCOL_MAJOR << 16, &unknown);
                    }
                    return Ok(startup);
                }
                version => {
                    return Err(Error::unsupported(format!(
                        "unsupported frontend protocol {}.{}: server supports 3.0",
                        version >> 16,
                        version & 0xffff
                    ))
                    .into());
                }
            }
        }
    }

    fn answer_tls(&mut self) -> Answer {
        let Some(tls) = self.server.tls.as_ref().filter(|_| self.is_tcp) else {
            self.wire.output.push(b'N');
            return Ok(());
        };
        // Data that came with the request would be taken for encrypted data.
        if !self.wire.is_drained() {
            return Err(protocol_violation("received unencrypted data after SSL request").into());
        }
        self.wire.output.push(b'S');
        self.wire.flush()?;
        let deadline = self.deadline;
        self.wire
            .encrypt(|stream| tls.accept(stream, deadline, false))?;
        self.is_tls = true;
        Ok(())
    }

    /// Runs SCRAM if there are users; returns whether a password was required and correct.
    fn authenticate(&mut self, user: &str) -> Answer<bool> {
        let server = self.server;
        if !server.database.has_users() {
            return Ok(false);
        }
        let mechanisms = server.authenticator.mechanisms(self.is_tls);
        reply::authentication(&mut self.wire.output, SASL, &mechanisms);
        self.next_password_message()?;
        let verifier = server.database.scram_verifier(user);
        let first = self.wire.body();
        let (answer, exchange) = server
            .authenticator
            .begin(user, verifier, first, self.is_tls)?;
        reply::authentication(&mut self.wire.output, SASL_CONTINUE, answer.as_bytes());
        self.next_password_message()?;
        match exchange.finish(self.wire.body()) {
            Some(proof) => {
                reply::authentication(&mut self.wire.output, SASL_FINAL, proof.as_bytes());
                Ok(true)
            }
            None => Err(wrong_password(user).into()),
        }
    }

    fn next_password_message(&mut self) -> Answer {
        match self.wire.next()? {
            b'p' => Ok(()),
            b'X' => Err(End::Quiet),
            other => Err(protocol_violation(format!(
                "expected SASL response, got message type {other}"
            ))
            .into()),
        }
    }
}

const SASL: i32 = 10;
const SASL_CONTINUE: i32 = 11;
const SASL_FINAL: i32 = 12;

impl Startup {
    /// The packet's fields, and the names of unknown protocol options.
    fn read(mut fields: Fields<'_>) -> Result<(Self, Vec<String>)> {
        let mut startup = Self {
            user: String::new(),
            settings: BTreeMap::new(),
        };
        let mut unknown = Vec::new();
        loop {
            let name = fields.text()?;
            if name.is_empty() {
                break;
            }
            let value = fields.text()?;
            match name {
                "user" => startup.user = value.to_string(),
                "database" => {}
                "options" => startup.read_options(value)?,
                "replication" if matches!(value, "false" | "off" | "no" | "0") => {}
                "replication" => {
                    return Err(Error::unsupported(
                        "replication connections are not supported",
                    ));
                }
                option if option.starts_with("_pq_.") => unknown.push(option.to_string()),
                setting => {
                    startup
                        .settings
                        .insert(setting.to_lowercase(), value.to_string());
                }
            }
        }
        fields.end()?;
        if startup.user.is_empty() {
            return Err(Error::invalid(
                SqlState("28000"),
                "no PostgreSQL user name specified in startup packet",
            ));
        }
        Ok((startup, unknown))
    }

    /// Reads `-c name=value` and `--name=value`; a backslash includes the next blank in the value.
    fn read_options(&mut self, options: &str) -> Result<()> {
        let mut words = split_options(options).into_iter();
        while let Some(word) = words.next() {
            let assignment = match word.strip_prefix("-c") {
                Some("") => words.next(),
                Some(rest) => Some(rest.to_string()),
                None => word.strip_prefix("--").map(str::to_string),
            };
            let Some((name, value)) = assignment.as_deref().and_then(|a| a.split_once('=')) else {
                return Err(Error::invalid(
                    SqlState::SYNTAX_ERROR,
                    format!("invalid command-line argument for server process: {word}"),
                ));
            };
            let name = name.trim().replace('-', "_").to_lowercase();
            self.settings.insert(name, value.to_string());
        }
        Ok(())
    }
}

fn split_options(options: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut chars = options.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => word.extend(chars.next()),
            c if c.is_ascii_whitespace() => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
            }
            c => word.push(c),
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

/// Applies a setting of the startup packet. A time zone that is not UTC is not refused, because
/// drivers send their machine's without being asked: it stays UTC, and the client is told so by the
/// warning that is returned.
fn apply(connection: &mut Connection, name: &str, value: &str) -> Result<Option<Error>> {
    match connection.set(name, value) {
        Err(_) if name == "timezone" => Ok(Some(
            Error::invalid(
                SqlState("01000"),
                format!("time zone \"{value}\" is not supported: this session's is UTC"),
            )
            .with_hint("Use AT TIME ZONE where another one is wanted."),
        )),
        other => other.map(|()| None),
    }
}

fn too_many() -> Error {
    Error::invalid(SqlState("53300"), "sorry, too many clients already")
}

fn only_for_superusers() -> Error {
    Error::invalid(
        SqlState("53300"),
        "remaining connection slots are reserved for non-replication superuser connections",
    )
}

fn shutting_down() -> Error {
    Error::invalid(SqlState("57P03"), "the database system is shutting down")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_settings() {
        let mut startup = Startup {
            user: String::new(),
            settings: BTreeMap::new(),
        };
        startup
            .read_options(r"-c a=1 -cb=x\ y --search-path=s")
            .unwrap();
        let read: Vec<(&str, &str)> = startup
            .settings
            .iter()
            .map(|(n, v)| (n.as_str(), v.as_str()))
            .collect();
        assert_eq!(read, [("a", "1"), ("b", "x y"), ("search_path", "s")]);
        assert!(startup.read_options("-x").is_err());
        assert!(startup.read_options("-c").is_err());
    }
}
