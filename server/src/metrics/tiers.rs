//! The tiers of the served database and the caches between them, read at each request for the
//! metrics: the numbers of `strandline_tiers()`.

use super::Phase;
use parking_lot::RwLock;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;
use std::fmt::Error;
use std::sync::Arc;
use strandline::TierCounts;

/// A number of a row, if it has it.
type NumberOf = fn(&TierCounts) -> Option<u64>;

/// Name, help and value of the gauges.
const BYTES: [(&str, &str, NumberOf); 3] = [
    (
        "tier",
        "Bytes of the files of a tier, or of the blocks in a cache",
        |row| Some(row.bytes),
    ),
    ("tier_max", "Bytes that a cache has room for", |row| {
        row.bytes_max
    }),
    (
        "tier_fresh",
        "Bytes of a cache's blocks that are fresher than the capacity tier",
        |row| row.fresh_bytes,
    ),
];

/// Name, help, unit and value of the counters.
const WRITES: [(&str, &str, Option<&Unit>, NumberOf); 2] = [
    ("tier_writes", "Writes of a cache", None, |row| row.writes),
    (
        "tier_written",
        "Bytes that a cache has written",
        Some(&Unit::Bytes),
        |row| row.written_bytes,
    ),
];

/// Reads the counts of the served database's tiers.
pub struct TiersCollector {
    phase: Arc<RwLock<Phase>>,
}

impl TiersCollector {
    pub fn new(phase: Arc<RwLock<Phase>>) -> Self {
        Self { phase }
    }
}

impl std::fmt::Debug for TiersCollector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TiersCollector")
    }
}

impl Collector for TiersCollector {
    /// A directory that cannot be listed has no metrics: `/health` and the log tell of it.
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let Phase::Serving(database) = self.phase.read().clone() else {
            return Ok(());
        };
        let rows = database.engine().tier_counts().unwrap_or_default();
        for (name, help, bytes_of) in BYTES {
            let gauge = MetricType::Gauge;
            let unit = Some(&Unit::Bytes);
            let mut family = encoder.encode_descriptor(name, help, unit, gauge)?;
            for row in &rows {
                if let Some(bytes) = bytes_of(row) {
                    let labels = [("tier", row.name)];
                    let metric = family.encode_family(&labels)?;
                    ConstGauge::new(bytes as i64).encode(metric)?;
                }
            }
        }
        let counter = MetricType::Counter;
        for (name, help, unit, count_of) in WRITES {
            let mut family = encoder.encode_descriptor(name, help, unit, counter)?;
            for row in &rows {
                if let Some(count) = count_of(row) {
                    let labels = [("tier", row.name)];
                    let metric = family.encode_family(&labels)?;
                    ConstCounter::new(count).encode(metric)?;
                }
            }
        }
        let help = "Blocks of a cache by what has happened to them";
        let mut family = encoder.encode_descriptor("tier_blocks", help, None, counter)?;
        for row in &rows {
            for (event, count) in TierCounts::EVENTS.iter().zip(row.events.iter().flatten()) {
                let labels = [("tier", row.name), ("event", event)];
                let metric = family.encode_family(&labels)?;
                ConstCounter::new(*count).encode(metric)?;
            }
        }
        Ok(())
    }
}
