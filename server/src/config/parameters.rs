//! The parameters of the server around the database: names, defaults, parsing.

use crate::logging::LogFormat;
use crate::options::ServerOptions;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use strandline::{Error, Result, SqlState};

/// A parameter of the server.
#[derive(Debug)]
pub struct ServerParameter {
    /// the name in `SHOW ALL`
    pub name: &'static str,
    /// the default in `SHOW ALL`
    pub default: &'static str,
    /// its purpose, in one line
    pub description: &'static str,
    /// assigns a value to the options
    pub assign: fn(&mut ServerOptions, &str, &str) -> Result<()>,
}

const fn parameter(
    name: &'static str,
    default: &'static str,
    description: &'static str,
    assign: fn(&mut ServerOptions, &str, &str) -> Result<()>,
) -> ServerParameter {
    ServerParameter {
        name,
        default,
        description,
        assign,
    }
}

/// All server parameters. Other functions read the ones whose `assign` does nothing.
pub static SERVER_PARAMETERS: &[ServerParameter] = &[
    parameter(
        "authentication_timeout",
        "60s",
        "how long a client may take from connecting to being authenticated",
        |o, n, v| {
            let _: () = o.authentication_timeout = seconds(n, v)?;
            Ok(())
        },
    ),
    parameter(
        "client_poll_time",
        "200us",
        "how long a session looks for its client's next message before it sleeps; 0: not at all",
        |o, n, v| {
            let _: () = o.client_poll_time = seconds(n, v)?;
            Ok(())
        },
    ),
    parameter(
        "listen",
        "127.0.0.1:5432",
        "TCP addresses to listen on, separated by commas",
        |o, n, v| {
            let _: () = o.listen = addresses(n, v)?;
            Ok(())
        },
    ),
    parameter(
        "log_filter",
        "info",
        "what is logged: a level, or levels by target such as info,strandline::slow=off",
        |_, _, _| Ok(()),
    ),
    parameter(
        "log_format",
        "text",
        "how the log is written: text or json",
        |_, n, v| log_format(n, v).map(|_| ()),
    ),
    parameter(
        "max_connections",
        "200",
        "sessions at one time",
        |o, n, v| {
            let _: () = o.max_connections = count(n, v)?;
            Ok(())
        },
    ),
    parameter(
        "max_message_bytes",
        "268435456",
        "the longest message of a client",
        |o, n, v| {
            let _: () = o.max_message_bytes = count(n, v)?;
            Ok(())
        },
    ),
    parameter(
        "metrics_listen",
        "",
        "the address of /metrics and /health; empty: none",
        |_, _, _| Ok(()),
    ),
    parameter(
        "require_tls",
        "off",
        "whether clients that come over TCP without TLS are refused",
        |o, n, v| {
            let _: () = o.require_tls = switch(n, v)?;
            Ok(())
        },
    ),
    parameter(
        "shutdown_grace",
        "30s",
        "how long statements and transactions may go on after a shutdown was asked for",
        |o, n, v| {
            let _: () = o.shutdown_grace = seconds(n, v)?;
            Ok(())
        },
    ),
    parameter(
        "superuser_reserved_connections",
        "3",
        "so many of max_connections are only for superusers",
        |o, n, v| {
            let number = v.trim().parse();
            let _: () = o.superuser_reserved_connections =
                number.map_err(|_| invalid(n, v, "A whole number, at least 0."))?;
            Ok(())
        },
    ),
    parameter(
        "tls_certificate",
        "",
        "PEM file of the certificate chain; empty: no TLS",
        |_, _, _| Ok(()),
    ),
    parameter(
        "tls_key",
        "",
        "PEM file of the certificate's private key",
        |_, _, _| Ok(()),
    ),
    parameter(
        "unix_socket_directory",
        "",
        "directory of the Unix socket .s.PGSQL.<port>; empty: none",
        |o, _, v| {
            o.unix_socket_directory = (!v.is_empty()).then(|| PathBuf::from(v));
            Ok(())
        },
    ),
    parameter(
        "write_timeout",
        "60s",
        "how long a client may leave what is sent to it unread",
        |o, n, v| {
            let _: () = o.write_timeout = seconds(n, v)?;
            Ok(())
        },
    ),
];

fn invalid(name: &str, value: &str, hint: &str) -> Error {
    Error::invalid(
        SqlState::INVALID_PARAMETER_VALUE,
        format!("invalid value for parameter \"{name}\": \"{value}\""),
    )
    .with_hint(hint)
}

/// An address and its port.
pub fn address(name: &str, value: &str) -> Result<SocketAddr> {
    let hint = "An address and a port, such as 127.0.0.1:5432 or [::1]:5432.";
    value.trim().parse().map_err(|_| invalid(name, value, hint))
}

fn addresses(name: &str, value: &str) -> Result<Vec<SocketAddr>> {
    let parts = value.split(',').filter(|part| !part.trim().is_empty());
    parts.map(|part| address(name, part)).collect()
}

/// The format of the log.
pub fn log_format(name: &str, value: &str) -> Result<LogFormat> {
    match value {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err(invalid(name, value, "Available values: text, json.")),
    }
}

fn count(name: &str, value: &str) -> Result<usize> {
    let number = value.trim().parse().ok().filter(|n| *n > 0);
    number.ok_or_else(|| invalid(name, value, "A whole number, at least 1."))
}

fn switch(name: &str, value: &str) -> Result<bool> {
    match value {
        "on" | "true" | "yes" | "1" => Ok(true),
        "off" | "false" | "no" | "0" => Ok(false),
        _ => Err(invalid(name, value, "on or off.")),
    }
}

/// A time, in seconds without a unit.
fn seconds(name: &str, value: &str) -> Result<Duration> {
    let hint = "A time such as 2min, 30s, 500ms or 200us.";
    let value = value.trim();
    let digits = value.find(|c: char| !c.is_ascii_digit());
    let (number, unit) = value.split_at(digits.unwrap_or(value.len()));
    let number: u64 = number.parse().map_err(|_| invalid(name, value, hint))?;
    match unit.trim() {
        "us" => Ok(Duration::from_micros(number)),
        "ms" => Ok(Duration::from_millis(number)),
        "" | "s" => Ok(Duration::from_secs(number)),
        "min" => Ok(Duration::from_secs(number.saturating_mul(60))),
        _ => Err(invalid(name, value, hint)),
    }
}
