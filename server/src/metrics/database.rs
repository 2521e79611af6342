//! The database's counters, read at each request for the metrics.
//!
//! A counter without an entry in the table is exported under its own name, so that new counters of
//! the engine are never missing.

use super::Phase;
use parking_lot::RwLock;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;
use std::sync::Arc;

/// The export of one of the database's counters.
struct Exported {
    /// the name in `Database::counters`
    counter: &'static str,
    /// the metric's name, without the prefix, the unit and `_total`
    metric: &'static str,
    /// label and value, if the metric has one
    label: Option<(&'static str, &'static str)>,
    form: Form,
    help: &'static str,
}

/// The form of a metric.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// only grows
    Count,
    /// only grows, in bytes
    CountBytes,
    /// only grows, in microseconds, exported in seconds
    CountMicros,
    /// grows and shrinks
    Level,
    /// grows and shrinks, in bytes
    LevelBytes,
    /// a time in microseconds, exported in seconds
    LevelMicros,
}

const fn exported(
    counter: &'static str,
    metric: &'static str,
    form: Form,
    help: &'static str,
) -> Exported {
    Exported {
        counter,
        metric,
        label: None,
        form,
        help,
    }
}

const fn labelled(
    counter: &'static str,
    metric: &'static str,
    label: (&'static str, &'static str),
    form: Form,
    help: &'static str,
) -> Exported {
    Exported {
        counter,
        metric,
        label: Some(label),
        form,
        help,
    }
}

const TRANSACTIONS: &str = "Transactions that have ended, by outcome";
const MEMORY: &str = "Memory in use, by consumer";
const FILE_READS: &str = "Reads of chunk and run files, by how they were asked for";
const RUNS: &str =
    "Statements run by key without a plan, by a plan that was kept, and planned anew";

/// Metrics with several labels are listed one after the other.
const EXPORTED: &[Exported] = &[
    labelled(
        "commits",
        "transactions",
        ("outcome", "committed"),
        Form::Count,
        TRANSACTIONS,
    ),
    labelled(
        "rollbacks",
        "transactions",
        ("outcome", "rolled_back"),
        Form::Count,
        TRANSACTIONS,
    ),
    exported(
        "log_bytes",
        "log",
        Form::CountBytes,
        "Bytes ever written to the log",
    ),
    exported(
        "log_syncs",
        "log_syncs",
        Form::Count,
        "Syncs of the log, each for a group of commits",
    ),
    exported("checkpoints", "checkpoints", Form::Count, "Checkpoints"),
    exported(
        "checkpoint_micros",
        "checkpoint",
        Form::CountMicros,
        "Time spent in checkpoints, merges included",
    ),
    exported(
        "merged_ranges",
        "merged_ranges",
        Form::Count,
        "Ranges merged into new chunks",
    ),
    exported(
        "run_records",
        "run_records",
        Form::Count,
        "Records written into update runs",
    ),
    exported(
        "compacted_files",
        "compacted_files",
        Form::Count,
        "Mostly superseded chunk files whose columns were written anew",
    ),
    exported(
        "bytes_written",
        "written",
        Form::CountBytes,
        "Bytes of new chunk and run files",
    ),
    exported(
        "cache_misses",
        "cache_misses",
        Form::Count,
        "Frames that had to be loaded and decoded",
    ),
    labelled(
        "random_reads",
        "file_reads",
        ("access", "random"),
        Form::Count,
        FILE_READS,
    ),
    labelled(
        "sequential_reads",
        "file_reads",
        ("access", "sequential"),
        Form::Count,
        FILE_READS,
    ),
    labelled(
        "cache_bytes",
        "memory",
        ("consumer", "cache"),
        Form::LevelBytes,
        MEMORY,
    ),
    labelled(
        "footer_bytes",
        "memory",
        ("consumer", "footers"),
        Form::LevelBytes,
        MEMORY,
    ),
    labelled(
        "index_page_bytes",
        "memory",
        ("consumer", "index_pages"),
        Form::LevelBytes,
        MEMORY,
    ),
    labelled(
        "tail_bytes",
        "memory",
        ("consumer", "tails"),
        Form::LevelBytes,
        MEMORY,
    ),
    labelled(
        "spare_tail_bytes",
        "memory",
        ("consumer", "spare_tails"),
        Form::LevelBytes,
        MEMORY,
    ),
    labelled(
        "log_buffer_bytes",
        "memory",
        ("consumer", "log"),
        Form::LevelBytes,
        MEMORY,
    ),
    labelled(
        "transaction_bytes",
        "memory",
        ("consumer", "transactions"),
        Form::LevelBytes,
        MEMORY,
    ),
    labelled(
        "load_bytes",
        "memory",
        ("consumer", "loads"),
        Form::LevelBytes,
        MEMORY,
    ),
    labelled(
        "other_bytes",
        "memory",
        ("consumer", "other"),
        Form::LevelBytes,
        MEMORY,
    ),
    labelled(
        "key_bytes",
        "memory",
        ("consumer", "key_indexes"),
        Form::LevelBytes,
        MEMORY,
    ),
    labelled(
        "index_bytes",
        "memory",
        ("consumer", "secondary_indexes"),
        Form::LevelBytes,
        MEMORY,
    ),
    labelled(
        "query_bytes",
        "memory",
        ("consumer", "queries"),
        Form::LevelBytes,
        MEMORY,
    ),
    exported(
        "load_bytes_max",
        "load_memory_max",
        Form::LevelBytes,
        "The most memory that bulk loads have held at a time",
    ),
    exported(
        "merge_bytes",
        "merge_memory",
        Form::LevelBytes,
        "Memory set aside for merges",
    ),
    exported(
        "merge_bytes_max",
        "merge_memory_max",
        Form::LevelBytes,
        "The most memory that was set aside for merges at a time",
    ),
    exported(
        "transaction_bytes_max",
        "transaction_memory_max",
        Form::LevelBytes,
        "The most memory that open transactions have held at a time",
    ),
    exported(
        "key_entries",
        "key_index_entries",
        Form::Level,
        "Entries of all key indexes",
    ),
    exported(
        "index_entries",
        "secondary_index_entries",
        Form::Level,
        "Entries of all secondary indexes",
    ),
    exported(
        "indexes_moved",
        "indexes_moved",
        Form::Count,
        "Indexes that have moved from memory into levels, since memory was short",
    ),
    exported(
        "pending_records",
        "pending_records",
        Form::Level,
        "Records of tails that no merge has folded into base yet",
    ),
    exported(
        "run_bytes",
        "update_runs",
        Form::LevelBytes,
        "Size of the update runs: history, and pending records on disk",
    ),
    exported(
        "superseded_bytes",
        "superseded_chunks",
        Form::LevelBytes,
        "Bytes of chunk files that newer files have superseded",
    ),
    exported(
        "ranges_set_aside",
        "ranges_set_aside",
        Form::Level,
        "Ranges that cannot be merged; strandline_stats() names file and offset",
    ),
    exported(
        "compactions_set_aside",
        "compactions_set_aside",
        Form::Level,
        "Ranges whose chunk files cannot be compacted; strandline_stats() has the causes",
    ),
    exported(
        "unions_set_aside",
        "unions_set_aside",
        Form::Level,
        "Tables whose update runs cannot be united",
    ),
    exported(
        "tables_behind",
        "tables_behind",
        Form::Level,
        "Tables whose records cannot be written; the log is kept for them",
    ),
    exported(
        "tables_unrestored",
        "tables_unrestored",
        Form::Level,
        "Tables that could not be restored when the database was opened",
    ),
    exported(
        "indexes_unusable",
        "indexes_unusable",
        Form::Level,
        "Tables with an index that could not be built when the database was opened",
    ),
    exported(
        "checkpoints_failing",
        "checkpoints_failing",
        Form::Level,
        "1 while checkpoints fail",
    ),
    exported(
        "checkpoints_in_vain",
        "checkpoints_in_vain",
        Form::Level,
        "1 while memory is short and checkpoints free none",
    ),
    exported(
        "checkpoint_pause_micros",
        "checkpoint_pause",
        Form::LevelMicros,
        "How long background checkpoints pause, as they fail or achieve nothing",
    ),
    exported(
        "block_cache_failing",
        "block_cache_failing",
        Form::Level,
        "Whether the block cache cannot write or has been given up",
    ),
    exported(
        "ssd_cache_failing",
        "ssd_cache_failing",
        Form::Level,
        "1 while the SSD cache cannot write or has been given up",
    ),
    exported(
        "writer_pauses",
        "writer_pauses",
        Form::Count,
        "Pauses of writers while the memory for updates is nearly full",
    ),
    exported(
        "writer_pause_micros",
        "writer_pause",
        Form::CountMicros,
        "Time that writers have paused",
    ),
    exported(
        "recovery_micros",
        "recovery",
        Form::LevelMicros,
        "How long opening the database took",
    ),
    exported(
        "clock_jumps",
        "clock_jumps",
        Form::Count,
        "Jumps of the wall clock by more than 10 seconds since the database was opened",
    ),
    exported(
        "clock_behind_us",
        "clock_behind",
        Form::LevelMicros,
        "How far the wall clock is behind the newest commit",
    ),
    exported(
        "statements_parsed",
        "statements_parsed",
        Form::Count,
        "Statement texts that were parsed; the others were known",
    ),
    labelled(
        "statements_point",
        "statement_runs",
        ("path", "point"),
        Form::Count,
        RUNS,
    ),
    labelled(
        "plans_reused",
        "statement_runs",
        ("path", "reused"),
        Form::Count,
        RUNS,
    ),
    labelled(
        "statements_planned",
        "statement_runs",
        ("path", "planned"),
        Form::Count,
        RUNS,
    ),
    exported(
        "short_plans_run",
        "short_plans_run",
        Form::Count,
        "Queries that the row executor ran by the short plan of a kept plan",
    ),
    exported(
        "short_plans_stopped",
        "short_plans_stopped",
        Form::Count,
        "Runs of short plans that met many rows and left the query to the query engine",
    ),
];

/// Reads the counters of the served database.
pub struct DatabaseCollector {
    phase: Arc<RwLock<Phase>>,
}

impl DatabaseCollector {
    pub fn new(phase: Arc<RwLock<Phase>>) -> Self {
        Self { phase }
    }
}

impl std::fmt::Debug for DatabaseCollector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DatabaseCollector")
    }
}

impl Collector for DatabaseCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let Phase::Serving(database) = self.phase.read().clone() else {
            return Ok(());
        };
        let counters = database.counters();
        let value_of = |name: &str| counters.iter().find(|(n, _)| *n == name).map(|(_, v)| *v);
        let mut at = 0;
        while let Some(first) = EXPORTED.get(at) {
            let same = EXPORTED[at..]
                .iter()
                .take_while(|e| e.metric == first.metric)
                .count();
            let group: Vec<(&Exported, u64)> = EXPORTED[at..at + same]
                .iter()
                .filter_map(|e| Some((e, value_of(e.counter)?)))
                .collect();
            encode_group(&mut encoder, &group)?;
            at += same;
        }
        for (name, value) in counters {
            if EXPORTED.iter().all(|e| e.counter != name) {
                let counter = ConstCounter::new(value);
                let help = "A counter of the database";
                let metric = encoder.encode_descriptor(
                    name,
                    help,
                    None,
                    prometheus_client::metrics::MetricType::Counter,
                )?;
                counter.encode(metric)?;
            }
        }
        Ok(())
    }
}

/// Encodes one metric: with its labels, if it has any.
fn encode_group(
    encoder: &mut DescriptorEncoder<'_>,
    group: &[(&Exported, u64)],
) -> Result<(), std::fmt::Error> {
    use prometheus_client::metrics::MetricType;
    let Some((first, _)) = group.first() else {
        return Ok(());
    };
    let unit = match first.form {
        Form::CountBytes | Form::LevelBytes => Some(&Unit::Bytes),
        Form::CountMicros | Form::LevelMicros => Some(&Unit::Seconds),
        Form::Count | Form::Level => None,
    };
    let metric_type = match first.form {
        Form::Count | Form::CountBytes | Form::CountMicros => MetricType::Counter,
        Form::Level | Form::LevelBytes | Form::LevelMicros => MetricType::Gauge,
    };
    let mut metric = encoder.encode_descriptor(first.metric, first.help, unit, metric_type)?;
    for (exported, value) in group {
        let Some(label) = exported.label else {
            // It is the only metric with its name.
            return encode_value(exported.form, *value, metric);
        };
        let labels = [label];
        let labelled = metric.encode_family(&labels)?;
        encode_value(exported.form, *value, labelled)?;
    }
    Ok(())
}

fn encode_value(
    form: Form,
    value: u64,
    encoder: prometheus_client::encoding::MetricEncoder<'_>,
) -> Result<(), std::fmt::Error> {
    match form {
        Form::Count | Form::CountBytes => ConstCounter::new(value).encode(encoder),
        Form::CountMicros => ConstCounter::new(value as f64 / 1e6).encode(encoder),
        Form::Level | Form::LevelBytes => ConstGauge::new(value as i64).encode(encoder),
        Form::LevelMicros => ConstGauge::new(value as f64 / 1e6).encode(encoder),
    }
}
