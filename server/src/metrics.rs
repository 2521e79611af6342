//! Metrics for Prometheus and a health check, over HTTP on an address of their own.
//!
//! `/metrics` is the OpenMetrics text of [`Metrics`]: the server's own counters (connections,
//! statements) and the database's counters, read at each request. `/health` is 200 when the server
//! accepts connections and commits can be made durable, else 503 with the reason; it answers while
//! the database recovers. docs/operations.md lists the metrics.

mod database;
mod http;
mod tiers;

pub use http::MetricsServer;

use database::DatabaseCollector;
use parking_lot::RwLock;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use strandline::{Database, SqlState};
use tiers::TiersCollector;

/// The kind of a statement and its result.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StatementLabels {
    kind: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct KindLabel {
    kind: &'static str,
}

/// The server's phase for `/health`.
#[derive(Clone, Default)]
enum Phase {
    /// the database is being opened
    #[default]
    Recovering,
    /// connections are accepted
    Serving(Database),
    /// no more connections are accepted
    Stopping,
}

/// The counted kinds of statements: the first words of command tags.
const KINDS: [&str; 18] = [
    "SELECT", "INSERT", "UPDATE", "DELETE", "MERGE", "COPY", "BEGIN", "COMMIT", "ROLLBACK", "SET",
    "SHOW", "CREATE", "ALTER", "DROP", "TRUNCATE", "EXPLAIN", "PREPARE", "CALL",
];

/// The counters of one kind of statement. Each is looked up once in its family and then kept.
#[derive(Debug, Default)]
struct KindCounts {
    ok: OnceLock<Counter>,
    error: OnceLock<Counter>,
    duration: OnceLock<Histogram>,
}

/// The server's metrics. Counting costs a few atomic operations.
pub struct Metrics {
    registry: Registry,
    phase: Arc<RwLock<Phase>>,
    connections: Gauge,
    connections_accepted: Counter,
    connections_refused: Counter,
    statements: Family<StatementLabels, Counter>,
    durations: Family<KindLabel, Histogram, fn() -> Histogram>,
    /// by position in [`KINDS`], then the counters of all other kinds
    kinds: [KindCounts; KINDS.len() + 1],
    serialization_failures: Counter,
    deadlocks: Counter,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Metrics at zero, for a server whose database is being opened.
    pub fn new() -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("strandline"),
            phase: Arc::default(),
            connections: Gauge::default(),
            connections_accepted: Counter::default(),
            connections_refused: Counter::default(),
            statements: Family::default(),
            durations: Family::new_with_constructor(latency_histogram),
            kinds: std::array::from_fn(|_| KindCounts::default()),
            serialization_failures: Counter::default(),
            deadlocks: Counter::default(),
        };
        metrics.register();
        metrics
    }

    fn register(&mut self) {
        let registry = &mut self.registry;
        let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "The version that runs", version);
        registry.register(
            "connections",
            "Connections at the moment",
            self.connections.clone(),
        );
        registry.register(
            "connections_accepted",
            "Connections since the start",
            self.connections_accepted.clone(),
        );
        registry.register(
            "connections_refused",
            "Connections that found no place or failed to authenticate",
            self.connections_refused.clone(),
        );
        registry.register(
            "statements",
            "Statements by their kind and by how they ended",
            self.statements.clone(),
        );
        registry.register_with_unit(
            "statement_duration",
            "Time from a statement's arrival to its last row",
            Unit::Seconds,
            self.durations.clone(),
        );
        registry.register(
            "serialization_failures",
            "Statements that failed with 40001",
            self.serialization_failures.clone(),
        );
        registry.register(
            "deadlocks",
            "Statements that failed with 40P01",
            self.deadlocks.clone(),
        );
        registry.register_collector(Box::new(DatabaseCollector::new(self.phase.clone())));
        registry.register_collector(Box::new(TiersCollector::new(self.phase.clone())));
    }

    /// Reports that the database is open and connections are accepted.
    pub fn serving(&self, database: &Database) {
        *self.phase.write() = Phase::Serving(database.clone());
    }

    /// Reports that a shutdown has begun, and releases the database.
    pub fn stopping(&self) {
        *self.phase.write() = Phase::Stopping;
    }

    /// Counts an accepted connection, which ends when the guard is dropped.
    pub fn connection(&self) -> ConnectionGuard {
        self.connections_accepted.inc();
        self.connections.inc();
        ConnectionGuard(self.connections.clone())
    }

    /// Counts a refused connection.
    pub fn connection_refused(&self) {
        self.connections_refused.inc();
    }

    /// Counts an ended statement by its command tag (of a failed one: its first word).
    pub fn statement(&self, tag: &str, failure: Option<SqlState>, duration: Duration) {
        let word = tag.split_ascii_whitespace().next().unwrap_or_default();
        let known = KINDS
            .iter()
            .position(|kind| kind.eq_ignore_ascii_case(word));
        let kind = known.map_or("OTHER", |at| KINDS[at]);
        let counts = &self.kinds[known.unwrap_or(KINDS.len())];
        let (counter, result) = match failure {
            Some(_) => (&counts.error, "error"),
            None => (&counts.ok, "ok"),
        };
        let labels = StatementLabels { kind, result };
        let counter = counter.get_or_init(|| self.statements.get_or_create(&labels).clone());
        counter.inc();
        let of_kind = || self.durations.get_or_create(&KindLabel { kind }).clone();
        let histogram = counts.duration.get_or_init(of_kind);
        histogram.observe(duration.as_secs_f64());
        match failure {
            Some(SqlState::SERIALIZATION_FAILURE) => drop(self.serialization_failures.inc()),
            Some(SqlState::DEADLOCK_DETECTED) => drop(self.deadlocks.inc()),
            _ => {}
        }
    }

    /// All metrics as OpenMetrics text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        match prometheus_client::encoding::text::encode(&mut text, &self.registry) {
            Ok(()) => text,
            Err(error) => format!("# {error}\n"),
        }
    }

    /// Whether the server can be used: then the work on single tables that fails, one line each; if
    /// not, why.
    pub fn health(&self) -> Result<Vec<String>, String> {
        match &*self.phase.read() {
            Phase::Recovering => Err("recovering".to_string()),
            Phase::Stopping => Err("shutting down".to_string()),
            Phase::Serving(database) => {
                let health = database.engine().check_health();
                let failing = health.map(|()| database.engine().failing_work());
                failing.map_err(|error| error.message().to_string())
            }
        }
    }
}

/// From 25 µs to 26 s, each bucket twice as wide as the one before.
fn latency_histogram() -> Histogram {
    Histogram::new(exponential_buckets(25e-6, 2.0, 21))
}

/// An open connection.
#[derive(Debug)]
pub struct ConnectionGuard(Gauge);

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests;
