//! How statements were run since the database was opened, and the table function
//! `strandline_stats()`, which shows this and the engine's counters.

use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, StringViewArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::datasource::MemTable;
use datafusion::error::{DataFusionError, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use strandline_engine::Db;

/// Counts of statements. They are for people: relaxed, and not of one moment.
#[derive(Debug, Default)]
pub(crate) struct StatementStatistics {
    parsed: AtomicU64,
    planned: AtomicU64,
    reused: AtomicU64,
    point: AtomicU64,
    short: AtomicU64,
    short_stopped: AtomicU64,
}

impl StatementStatistics {
    /// A text has been parsed.
    pub fn parsed(&self) {
        self.parsed.fetch_add(1, Ordering::Relaxed);
    }
    /// A statement has been planned by the query engine.
    pub fn planned(&self) {
        self.planned.fetch_add(1, Ordering::Relaxed);
    }
    /// A query has run by a plan that was kept.
    pub fn reused(&self) {
        self.reused.fetch_add(1, Ordering::Relaxed);
    }
    /// A statement has run in the row executor.
    pub fn point(&self) {
        self.point.fetch_add(1, Ordering::Relaxed);
    }
    /// A query has run by the short plan of a plan that was kept.
    pub fn short(&self) {
        self.reused();
        self.short.fetch_add(1, Ordering::Relaxed);
    }
    /// A short plan has stopped, and the query has taken the full path.
    pub fn short_stopped(&self) {
        self.short_stopped.fetch_add(1, Ordering::Relaxed);
    }
    /// The counts under their names.
    pub fn counters(&self) -> [(&'static str, u64); 6] {
        let get = |a: &AtomicU64| a.load(Ordering::Relaxed);
        [
            ("statements_parsed", get(&self.parsed)),
            ("statements_planned", get(&self.planned)),
            ("plans_reused", get(&self.reused)),
            ("statements_point", get(&self.point)),
            ("short_plans_run", get(&self.short)),
            ("short_plans_stopped", get(&self.short_stopped)),
        ]
    }
}

/// `strandline_stats()`.
pub(crate) struct StatsFunction {
    pub db: Arc<Db>,
    pub statements: Arc<StatementStatistics>,
}

impl StatsFunction {
    /// Its name in SQL.
    pub const NAME: &'static str = "strandline_stats";
}

impl std::fmt::Debug for StatsFunction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(Self::NAME)
    }
}

impl TableFunctionImpl for StatsFunction {
    fn call_with_args(&self, args: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        if !args.exprs().is_empty() {
            return Err(DataFusionError::Plan(format!(
                "{} takes no arguments",
                Self::NAME
            )));
        }
        let mut counters = self.db.detailed_counters();
        let statements = self.statements.counters();
        counters.extend(statements.map(|(name, value)| (name, value, String::new())));
        let names = StringViewArray::from_iter_values(counters.iter().map(|c| c.0));
        let values = Int64Array::from_iter_values(counters.iter().map(|c| c.1 as i64));
        let details = counters
            .iter()
            .map(|c| Some(&c.2).filter(|d| !d.is_empty()));
        let details: StringViewArray = details.collect();
        let schema = Arc::new(Schema::new(vec![
            Field::new("name", DataType::Utf8View, false),
            Field::new("value", DataType::Int64, false),
            Field::new("detail", DataType::Utf8View, true),
        ]));
        let columns: Vec<ArrayRef> = vec![Arc::new(names), Arc::new(values), Arc::new(details)];
        let batch = RecordBatch::try_new(schema.clone(), columns)?;
        Ok(Arc::new(MemTable::try_new(schema, vec![vec![batch]])?))
    }
}
