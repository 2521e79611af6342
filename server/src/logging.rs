//! The server's log: the `tracing` events of the engine, the sessions and the server, one line per
//! event on standard error, as text for people or as JSON for collectors.
//!
//! An embedded database installs no subscriber and prints nothing; a program with its own
//! subscriber receives the same events. Their targets are the crates' module paths, and
//! `strandline::slow` for slow statements.

use std::io::IsTerminal;
use strandline::{Error, Result, SqlState};
use tracing::Subscriber;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// The format of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// `2026-11-20T09:02:00Z  INFO strandline_engine::events: recovery finished log_bytes=…`
    #[default]
    Text,
    /// one JSON object per line: timestamp, level, target, message and the event's fields
    Json,
}

/// The options of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogOptions {
    /// text or JSON
    pub format: LogFormat,
    /// a level, or levels by target, as in `RUST_LOG`
    pub filter: String,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self {
            format: LogFormat::Text,
            filter: "info".to_string(),
        }
    }
}

/// Sends all events to standard error.
///
/// # Errors
/// 22023 for an invalid filter; 55000 if the process has a subscriber already.
pub fn install(options: &LogOptions) -> Result<()> {
    let colours = std::io::stderr().is_terminal();
    let subscriber = subscriber(options, colours, std::io::stderr)?;
    tracing::subscriber::set_global_default(subscriber)
        .map_err(|e| Error::invalid(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, e.to_string()))
}

/// A subscriber that writes to `writer`.
fn subscriber<W>(
    options: &LogOptions,
    colours: bool,
    writer: W,
) -> Result<Box<dyn Subscriber + Send + Sync>>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let filter = EnvFilter::try_new(&options.filter).map_err(|e| {
        Error::invalid(
            SqlState::INVALID_PARAMETER_VALUE,
            format!(
                "invalid value for parameter \"log_filter\": \"{}\"",
                options.filter
            ),
        )
        .with_detail(e.to_string())
        .with_hint("A level (error, warn, info, debug, trace), or levels by target.")
    })?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(writer);
    Ok(match options.format {
        LogFormat::Text => Box::new(builder.with_ansi(colours).finish()),
        LogFormat::Json => Box::new(builder.json().flatten_event(true).finish()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::sync::{Arc, Mutex};
    use strandline::Database;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("lock").extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// The log of a database that is created, dropped without a checkpoint, and opened again.
    fn logged(format: LogFormat, filter: &str) -> String {
        let kept = Kept::default();
        let writer = kept.clone();
        let options = LogOptions {
            format,
            filter: filter.to_string(),
        };
        let subscriber = subscriber(&options, false, move || writer.clone()).expect("filter");
        tracing::subscriber::with_default(subscriber, || {
            let home = tempfile::tempdir().expect("directory");
            let database = Database::open(home.path()).expect("created");
            let mut connection = database.connect();
            connection
                .execute("CREATE TABLE t (a int)", ())
                .expect("create");
            connection
                .execute("INSERT INTO t VALUES (1)", ())
                .expect("insert");
            drop((connection, database));
            let database = Database::open(home.path()).expect("recovered");
            database.checkpoint().expect("checkpoint");
            let mut connection = database.connect();
            connection
                .execute("SET log_min_duration_statement = 0", ())
                .expect("set");
            connection.execute("SELECT 41 + 1", ()).expect("select");
        });
        let bytes = kept.0.lock().expect("lock").clone();
        String::from_utf8(bytes).expect("UTF-8")
    }

    #[test]
    fn recovery_checkpoints_and_slow_statements_are_logged() {
        let text = logged(LogFormat::Text, "info");
        for expected in [
            "recovery begins",
            "recovery finished",
            "transactions=2",
            "checkpoint complete",
            "slow statement",
            "SELECT 41 + 1",
        ] {
            assert!(text.contains(expected), "{expected} is missing in\n{text}");
        }
    }

    #[test]
    fn json_lines_have_the_fields_at_the_top_and_targets_can_be_left_out() {
        let text = logged(LogFormat::Json, "info,strandline::slow=off");
        assert!(!text.contains("SELECT 41"), "{text}");
        let finished = text.lines().find(|line| line.contains("recovery finished"));
        let finished = finished.expect("the line");
        assert!(
            finished.starts_with('{') && finished.ends_with('}'),
            "{finished}"
        );
        assert!(finished.contains("\"transactions\":2"), "{finished}");
        assert!(finished.contains("\"level\":\"INFO\""), "{finished}");
    }

    #[test]
    fn a_filter_that_is_none_is_refused() {
        let options = LogOptions {
            filter: "strandline=loud".to_string(),
            ..LogOptions::default()
        };
        let refused = subscriber(&options, false, std::io::sink)
            .err()
            .expect("no level");
        assert_eq!(refused.sqlstate(), SqlState::INVALID_PARAMETER_VALUE);
    }
}
