//! SET, SHOW, RESET: a connection's settings.

use super::Session;
use super::outcome::Summary;
use super::transaction::{isolation_name, isolation_of, modes_of};
use crate::names;
use crate::result::QueryResult;
use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::sql::sqlparser::ast::{self, Expr, Ident, ObjectName, Reset, UnaryOperator};
use std::sync::Arc;
use std::time::Duration;
use strandline_base::{Error, Result, SqlState};
use strandline_engine::{ConflictPolicy, Isolation};

/// A connection's settings and their defaults.
#[derive(Clone, Debug)]
pub struct Settings {
    /// whether COMMIT waits until the transaction is durable
    pub synchronous_commit: bool,
    /// the level of transactions that name none
    pub default_isolation: Isolation,
    /// whether transactions that do not say are read-only
    pub default_read_only: bool,
    /// whether writers wait for each other
    pub conflict_policy: ConflictPolicy,
    /// whether transaction blocks read what is committed and not durable yet
    pub speculative_reads: bool,
    /// how long a statement waits for another transaction's row; None: for ever
    pub lock_timeout: Option<Duration>,
    /// how long a statement may run; None: for ever
    pub statement_timeout: Option<Duration>,
    /// how old a moment queries may read to be spared what is not merged yet; None: not at all
    pub max_staleness: Option<Duration>,
    /// where unqualified names are created and looked up
    pub search_path: String,
    /// the client's name, kept for it
    pub application_name: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            synchronous_commit: true,
            default_isolation: Isolation::ReadCommitted,
            default_read_only: false,
            conflict_policy: ConflictPolicy::Wait,
            speculative_reads: false,
            lock_timeout: None,
            statement_timeout: None,
            max_staleness: None,
            search_path: names::PUBLIC.to_string(),
            application_name: String::new(),
        }
    }
}

/// Settings that can be changed, with what they are.
const CHANGEABLE: &[(&str, &str)] = &[
    ("application_name", "the client's name"),
    ("client_encoding", "the encoding of text; UTF8 only"),
    (
        "default_transaction_isolation",
        "the isolation level of transactions that name none",
    ),
    (
        "default_transaction_read_only",
        "whether transactions that do not say are read-only",
    ),
    (
        "lock_timeout",
        "how long a statement waits for another transaction's row; 0: for ever",
    ),
    (
        "search_path",
        "the schema where unqualified names are created and looked up",
    ),
    (
        "statement_timeout",
        "how long a statement may run; 0: for ever",
    ),
    (
        "strandline.conflict_policy",
        "what a writer does about another transaction's uncommitted change: wait or abort",
    ),
    (
        "strandline.max_staleness",
        "how old a moment queries may read; 0: the newest only",
    ),
    (
        "strandline.speculative_reads",
        "whether transaction blocks read what is committed and not durable yet",
    ),
    (
        "synchronous_commit",
        "whether COMMIT waits until the transaction is durable",
    ),
    ("timezone", "the zone of timestamps; UTC only"),
];

/// Settings that can only be shown.
const FIXED: &[(&str, &str)] = &[
    (
        "checkpoint_wal_bytes",
        "bytes of log after which a checkpoint starts",
    ),
    ("datestyle", "how dates are shown"),
    ("intervalstyle", "how intervals are shown"),
    (
        "max_query_threads",
        "how many threads one query uses at most",
    ),
    (
        "memory_bytes",
        "the bound on the memory of tails, cached blocks and queries",
    ),
    (
        "query_memory_bytes",
        "the part of memory_bytes that queries may use",
    ),
    ("server_version", "the version of Strandline"),
    (
        "standard_conforming_strings",
        "whether backslashes in '…' are plain characters",
    ),
    (
        "transaction_isolation",
        "the isolation level of this transaction",
    ),
    (
        "transaction_read_only",
        "whether this transaction is read-only",
    ),
    ("wal_segment_bytes", "bytes of one log segment"),
];

impl Session {
    pub(super) fn set(&mut self, set: &ast::Set) -> Result<Summary> {
        match set {
            ast::Set::SingleAssignment {
                scope,
                variable,
                values,
                ..
            } => {
                let local = matches!(scope, Some(ast::ContextModifier::Local));
                self.assign(&name_of(variable)?, Some(&text_of(values)?), local)?;
            }
            ast::Set::SetTimeZone { local, value } => {
                let zone = text_of(std::slice::from_ref(value))?;
                self.assign("timezone", Some(&zone), *local)?;
            }
            ast::Set::SetNames { charset_name, .. } => {
                self.assign("client_encoding", Some(&charset_name.value), false)?;
            }
            other => return Err(Error::unsupported(format!("{other} is not supported"))),
        }
        Ok(Summary::tag("SET"))
    }

    pub(super) fn reset(&mut self, reset: &Reset) -> Result<Summary> {
        match reset {
            Reset::ALL => {
                for (name, _) in CHANGEABLE {
                    self.assign(name, None, false)?;
                }
            }
            Reset::ConfigurationParameter(name) => self.assign(&name_of(name)?, None, false)?,
        }
        Ok(Summary::tag("RESET"))
    }

    /// Sets `name`, None: to its default; `local`: until the transaction block ends.
    fn assign(&mut self, name: &str, value: Option<&str>, local: bool) -> Result<()> {
        let value = value.filter(|v| !v.eq_ignore_ascii_case("default"));
        let defaults = self.shared.defaults.clone();
        let mut settings = self.settings.clone();
        change(Arc::make_mut(&mut settings), &defaults, name, value)?;
        let Some(open) = &mut self.open else {
            if local {
                self.notice(
                    SqlState::NO_ACTIVE_SQL_TRANSACTION,
                    "SET LOCAL can only be used in transaction blocks",
                );
            } else {
                self.restore(settings);
            }
            return Ok(());
        };
        let fixed = settings.synchronous_commit != self.settings.synchronous_commit
            || settings.speculative_reads != self.settings.speculative_reads
            || settings.conflict_policy != self.settings.conflict_policy
            || settings.lock_timeout != self.settings.lock_timeout;
        if fixed && open.used {
            return Err(Error::invalid(
                SqlState::ACTIVE_SQL_TRANSACTION,
                format!("parameter \"{name}\" must be set before any query of the transaction"),
            ));
        }
        if !local {
            change(Arc::make_mut(&mut open.kept), &defaults, name, value)?;
        }
        self.restore(settings);
        if fixed {
            self.begin_again()?;
        }
        Ok(())
    }

    /// Makes `settings` the ones that hold, and tells DataFusion the one it must know.
    pub(super) fn restore(&mut self, settings: Arc<Settings>) {
        let moved = self.settings.search_path != settings.search_path;
        self.settings = settings;
        if moved {
            let mut state = (*self.template).clone();
            let options = state.config_mut().options_mut();
            options.catalog.default_schema = self.settings.search_path.clone();
            self.template = Arc::new(state);
        }
    }

    pub(super) fn show(&mut self, variable: &[Ident]) -> Result<Summary> {
        let Some(name) = shown_name(variable) else {
            return Ok(self.show_all());
        };
        let value = self.value_of(&name).ok_or_else(|| unknown(&name))?;
        Ok(text_result("SHOW", &[&name], vec![vec![value]]))
    }

    /// The columns that SHOW gives.
    pub(super) fn shown_columns(&self, variable: &[Ident]) -> Result<Option<SchemaRef>> {
        let shown = match shown_name(variable) {
            Some(name) => {
                let value = self.value_of(&name).ok_or_else(|| unknown(&name))?;
                text_result("SHOW", &[&name], vec![vec![value]])
            }
            None => self.show_all(),
        };
        Ok(shown.result().map(|result| result.schema().clone()))
    }

    fn show_all(&self) -> Summary {
        let mut rows: Vec<Vec<String>> = CHANGEABLE
            .iter()
            .chain(FIXED)
            .map(|(name, description)| {
                let value = self.value_of(name).unwrap_or_default();
                vec![(*name).to_string(), value, (*description).to_string()]
            })
            .collect();
        rows.sort();
        text_result("SHOW", &["name", "setting", "description"], rows)
    }

    fn value_of(&self, name: &str) -> Option<String> {
        let settings = &self.settings;
        let engine = self.shared.db.settings();
        let modes = match &self.open {
            Some(open) => modes_of(&open.transaction),
            None => self.default_modes(),
        };
        Some(match name {
            "application_name" => settings.application_name.clone(),
            "client_encoding" => "UTF8".to_string(),
            "default_transaction_isolation" => {
                isolation_name(settings.default_isolation).to_string()
            }
            "default_transaction_read_only" => on_off(settings.default_read_only),
            "lock_timeout" => shown_duration(settings.lock_timeout),
            "search_path" => settings.search_path.clone(),
            "statement_timeout" => shown_duration(settings.statement_timeout),
            "strandline.conflict_policy" => policy_name(settings.conflict_policy).to_string(),
            "strandline.speculative_reads" => on_off(settings.speculative_reads),
            "strandline.max_staleness" => shown_duration(settings.max_staleness),
            "synchronous_commit" => on_off(settings.synchronous_commit),
            "timezone" => "UTC".to_string(),
            "checkpoint_wal_bytes" => engine.checkpoint_wal_bytes.to_string(),
            "datestyle" => "ISO, MDY".to_string(),
            "intervalstyle" => "postgres".to_string(),
            "max_query_threads" => self.template.config().target_partitions().to_string(),
            "memory_bytes" => engine.memory_bytes.to_string(),
            "query_memory_bytes" => (engine.memory_bytes / 2).to_string(),
            "server_version" => env!("CARGO_PKG_VERSION").to_string(),
            "standard_conforming_strings" => "on".to_string(),
            "transaction_isolation" => isolation_name(modes.isolation).to_string(),
            "transaction_read_only" => on_off(modes.read_only),
            "wal_segment_bytes" => engine.wal_segment_bytes.to_string(),
            _ => return None,
        })
    }
}

/// The setting that a SHOW names; None: all.
fn shown_name(variable: &[Ident]) -> Option<String> {
    let words: Vec<String> = variable.iter().map(|i| i.value.to_lowercase()).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["all"] => None,
        ["time", "zone"] => Some("timezone".to_string()),
        ["transaction", "isolation", "level"] => Some("transaction_isolation".to_string()),
        other => Some(other.join(".")),
    }
}

/// Changes the setting `name` of `settings`; None: to what it is in `defaults`.
fn change(
    settings: &mut Settings,
    defaults: &Settings,
    name: &str,
    value: Option<&str>,
) -> Result<()> {
    match (name, value) {
        ("synchronous_commit", None) => settings.synchronous_commit = defaults.synchronous_commit,
        ("synchronous_commit", Some(v)) => settings.synchronous_commit = synchronous(v)?,
        ("strandline.conflict_policy", None) => settings.conflict_policy = defaults.conflict_policy,
        ("strandline.conflict_policy", Some(v)) => settings.conflict_policy = policy(name, v)?,
        ("strandline.speculative_reads", None) => {
            settings.speculative_reads = defaults.speculative_reads;
        }
        ("strandline.speculative_reads", Some(v)) => {
            settings.speculative_reads = boolean(name, v)?;
        }
        ("default_transaction_isolation", None) => {
            settings.default_isolation = defaults.default_isolation;
        }
        ("default_transaction_isolation", Some(v)) => {
            settings.default_isolation = isolation_of(v)?;
        }
        ("default_transaction_read_only", None) => {
            settings.default_read_only = defaults.default_read_only;
        }
        ("default_transaction_read_only", Some(v)) => {
            settings.default_read_only = boolean(name, v)?;
        }
        ("lock_timeout", None) => settings.lock_timeout = defaults.lock_timeout,
        ("lock_timeout", Some(v)) => settings.lock_timeout = duration(name, v)?,
        ("statement_timeout", None) => settings.statement_timeout = defaults.statement_timeout,
        ("statement_timeout", Some(v)) => settings.statement_timeout = duration(name, v)?,
        ("strandline.max_staleness", None) => settings.max_staleness = defaults.max_staleness,
        ("strandline.max_staleness", Some(v)) => settings.max_staleness = duration(name, v)?,
        ("timezone", None) => {}
        ("timezone", Some(v)) => require_utc(v)?,
        ("search_path", _) => {
            settings.search_path = schema_of(value.unwrap_or(&defaults.search_path))?;
        }
        ("application_name", _) => {
            settings.application_name = value.unwrap_or_default().to_string();
        }
        ("client_encoding", None | Some("UTF8" | "utf8" | "UTF-8" | "utf-8")) => {}
        ("client_encoding", Some(v)) => {
            return Err(
                Error::unsupported(format!("encoding \"{v}\" is not supported"))
                    .with_hint("Text is UTF8."),
            );
        }
        _ if FIXED.iter().any(|(fixed, _)| *fixed == name) => {
            return Err(Error::invalid(
                SqlState("55P02"),
                format!("parameter \"{name}\" cannot be changed"),
            ));
        }
        _ => return Err(unknown(name)),
    }
    Ok(())
}

fn policy(name: &str, value: &str) -> Result<ConflictPolicy> {
    match value.to_ascii_lowercase().as_str() {
        "wait" => Ok(ConflictPolicy::Wait),
        "abort" => Ok(ConflictPolicy::Abort),
        _ => Err(Error::invalid(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("invalid value for parameter \"{name}\": \"{value}\""),
        )
        .with_hint("Available values: wait, abort.")),
    }
}

fn policy_name(policy: ConflictPolicy) -> &'static str {
    match policy {
        ConflictPolicy::Wait => "wait",
        ConflictPolicy::Abort => "abort",
    }
}

fn name_of(name: &ObjectName) -> Result<String> {
    let name = names::parts(name)?.join(".").to_lowercase();
    Ok(if name == "time zone" {
        "timezone".to_string()
    } else {
        name
    })
}

/// The text of SET's value: words, strings, numbers, joined by commas.
fn text_of(values: &[Expr]) -> Result<String> {
    let parts = values
        .iter()
        .map(|value| match value {
            Expr::Identifier(ident) => Ok(names::fold(ident)),
            Expr::CompoundIdentifier(parts) => {
                Ok(parts.iter().map(names::fold).collect::<Vec<_>>().join("."))
            }
            Expr::Value(v) => match &v.value {
                ast::Value::SingleQuotedString(text) => Ok(text.clone()),
                ast::Value::Boolean(on) => Ok(on.to_string()),
                ast::Value::Number(number, _) => Ok(number.to_string()),
                ast::Value::Null => Ok("default".to_string()),
                other => Err(bad_value(&other.to_string())),
            },
            Expr::UnaryOp {
                op: UnaryOperator::Minus,
                expr,
            } => Ok(format!("-{}", text_of(std::slice::from_ref(expr))?)),
            other => Err(bad_value(&other.to_string())),
        })
        .collect::<Result<Vec<_>>>()?;
    Ok(parts.join(", "))
}

fn bad_value(value: &str) -> Error {
    Error::invalid(
        SqlState::INVALID_PARAMETER_VALUE,
        format!("SET takes a word, a text or a number, not {value}"),
    )
}

fn unknown(name: &str) -> Error {
    Error::invalid(
        SqlState::UNDEFINED_OBJECT,
        format!("unrecognized configuration parameter \"{name}\""),
    )
    .with_hint("SHOW ALL lists the parameters.")
}

fn invalid(name: &str, value: &str) -> Error {
    Error::invalid(
        SqlState::INVALID_PARAMETER_VALUE,
        format!("invalid value for parameter \"{name}\": \"{value}\""),
    )
}

fn boolean(name: &str, value: &str) -> Result<bool> {
    match value.to_ascii_lowercase().as_str() {
        "on" | "true" | "yes" | "1" | "t" | "y" => Ok(true),
        "off" | "false" | "no" | "0" | "f" | "n" => Ok(false),
        _ => Err(invalid(name, value)),
    }
}

/// PostgreSQL's levels between on and off are about replicas, which there are none of.
fn synchronous(value: &str) -> Result<bool> {
    match value.to_ascii_lowercase().as_str() {
        "local" | "remote_write" | "remote_apply" => Ok(true),
        other => boolean("synchronous_commit", other),
    }
}

/// A time such as `500`, `500ms`, `2s`, `5min`; a number alone is milliseconds; 0 is no limit.
fn duration(name: &str, value: &str) -> Result<Option<Duration>> {
    let value = value.trim();
    let digits = value
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(value.len());
    let (number, unit) = value.split_at(digits);
    let number: f64 = number.parse().map_err(|_| invalid(name, value))?;
    let milliseconds = match unit.trim() {
        "" | "ms" => number,
        "us" => number / 1e3,
        "s" => number * 1e3,
        "min" => number * 60e3,
        "h" => number * 3_600e3,
        "d" => number * 86_400e3,
        _ => return Err(invalid(name, value).with_hint("Units: us, ms, s, min, h, d.")),
    };
    let duration =
        Duration::try_from_secs_f64(milliseconds / 1e3).map_err(|_| invalid(name, value))?;
    Ok((!duration.is_zero()).then_some(duration))
}

fn shown_duration(duration: Option<Duration>) -> String {
    match duration {
        None => "0".to_string(),
        Some(d) if d.as_millis() % 60_000 == 0 => format!("{}min", d.as_millis() / 60_000),
        Some(d) if d.as_millis() % 1_000 == 0 => format!("{}s", d.as_secs()),
        Some(d) => format!("{}ms", d.as_millis()),
    }
}

fn on_off(on: bool) -> String {
    if on { "on" } else { "off" }.to_string()
}

/// UTC under any of its names: timestamps are read and shown in no other zone.
fn require_utc(value: &str) -> Result<()> {
    let name = value.to_ascii_lowercase();
    let digits = name.trim_start_matches(['+', '-']);
    let is_zero = digits.starts_with('0') && digits.chars().all(|c| c == '0' || c == ':');
    if is_zero
        || matches!(
            name.as_str(),
            "utc" | "gmt" | "z" | "etc/utc" | "zulu" | "local"
        )
    {
        return Ok(());
    }
    Err(
        Error::unsupported(format!("time zone \"{value}\" is not supported")).with_hint(
            "Timestamps are shown in UTC; AT TIME ZONE '+02:00' shifts them to another offset.",
        ),
    )
}

/// The first schema of a search path; `"$user"` is no schema here.
fn schema_of(value: &str) -> Result<String> {
    let mut schemas = value
        .split(',')
        .map(|s| s.trim().trim_matches('"'))
        .filter(|s| *s != "$user");
    match (schemas.next(), schemas.next()) {
        (Some(schema), None | Some(names::PUBLIC)) if !schema.is_empty() => Ok(schema.to_string()),
        (None, _) | (Some(""), None) => Ok(names::PUBLIC.to_string()),
        _ => Err(
            Error::unsupported("a search_path of several schemas is not supported")
                .with_hint("Set one schema and qualify the names of others."),
        ),
    }
}

/// A result of text columns.
pub(crate) fn text_result(tag: &'static str, columns: &[&str], rows: Vec<Vec<String>>) -> Summary {
    let fields: Vec<Field> = columns
        .iter()
        .map(|name| Field::new(*name, DataType::Utf8, false))
        .collect();
    let schema = Arc::new(Schema::new(fields));
    let arrays: Vec<ArrayRef> = (0..columns.len())
        .map(|i| Arc::new(StringArray::from_iter_values(rows.iter().map(|r| &r[i]))) as ArrayRef)
        .collect();
    let batch = RecordBatch::try_new(schema.clone(), arrays).expect("columns of equal length");
    Summary::rows(tag, rows.len() as u64).with_result(Some(QueryResult::new(schema, vec![batch])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        let cases = [
            ("0", None),
            ("250", Some(Duration::from_millis(250))),
            ("2s", Some(Duration::from_secs(2))),
            ("1.5 min", Some(Duration::from_secs(90))),
        ];
        for (text, expected) in cases {
            assert_eq!(duration("x", text).expect(text), expected);
        }
        for text in ["", "s", "-1", "5 fortnights", "1e400"] {
            assert!(duration("x", text).is_err(), "{text}");
        }
        assert_eq!(shown_duration(Some(Duration::from_millis(1_500))), "1500ms");
        assert_eq!(shown_duration(Some(Duration::from_secs(120))), "2min");
    }

    #[test]
    fn search_paths_name_one_schema() {
        assert_eq!(schema_of("\"$user\", public").expect("default"), "public");
        assert_eq!(schema_of("sales").expect("one"), "sales");
        assert_eq!(schema_of("sales, public").expect("with public"), "sales");
        assert!(schema_of("sales, hr").is_err());
    }

    #[test]
    fn the_time_zone_is_utc() {
        for zone in ["utc", "GMT", "+00:00", "0", "Etc/UTC"] {
            require_utc(zone).expect(zone);
        }
        for zone in ["+02:00", "Europe/Berlin", "Mars/Olympus", ""] {
            assert!(require_utc(zone).is_err(), "{zone}");
        }
    }
}
