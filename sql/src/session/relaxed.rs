//! `strandline.max_staleness`: a query may read at an older moment to avoid updates that are not
//! merged yet.
//!
//! A query is planned once to find its tables. If a suitable moment exists, the query is planned
//! again and runs in a statement that reads at that moment. The moment is never before the
//! session's own last commit. A transaction that has written, or that keeps its snapshot, reads as
//! usual.

use super::Session;
use crate::planning::context::StatementContext;
use datafusion::arrow::temporal_conversions::timestamp_us_to_datetime;
use std::sync::Arc;
use std::time::Duration;
use strandline_base::{CommitTs, Result};
use strandline_engine::{Isolation, Relaxed, Statement};

/// The moment at which a query reads.
pub(super) struct Choice {
    /// the statement that reads at an older moment; None: the query's own statement reads
    pub older: Option<Arc<Statement>>,
    /// the moment and why, for EXPLAIN ANALYZE
    pub text: String,
}

impl Session {
    /// The moment for the query that has been planned in `context`; None: the setting is off.
    pub(super) fn choose_moment(&self, context: &StatementContext) -> Result<Option<Choice>> {
        let Some(staleness) = self.settings.max_staleness else {
            return Ok(None);
        };
        let statement = &context.statement;
        let newest = |why: &str| {
            let moment = shown(statement.snapshot_ts());
            let text = format!("snapshot={moment} (newest: {why})");
            Ok(Some(Choice { older: None, text }))
        };
        let transaction = statement.transaction();
        if transaction.has_written() {
            return newest("the transaction has written");
        }
        let keeps_snapshot = match transaction.options().isolation {
            Isolation::ReadCommitted => false,
            Isolation::Snapshot => self.open.is_some(),
            Isolation::Serializable => true,
        };
        if keeps_snapshot {
            return newest("the transaction keeps one snapshot");
        }
        let now_us = transaction.db().now_us();
        let oldest = transaction.db().moment_ago(staleness);
        let floor = oldest.max(self.committed);
        match statement.relaxed(&context.present_tables(), floor)? {
            Relaxed::Older(older) => {
                let age = Duration::from_micros(now_us.saturating_sub(older.snapshot_ts().0));
                let (moment, age) = (shown(older.snapshot_ts()), age.as_secs_f64());
                let text = format!("snapshot={moment} (relaxed, {age:.1} s old)");
                let older = Some(older);
                Ok(Some(Choice { older, text }))
            }
            Relaxed::Newest => newest("everything is merged"),
            Relaxed::Unmerged if floor > oldest => {
                newest("no moment since this session's last commit is merged")
            }
            Relaxed::Unmerged => newest("no moment that is new enough is merged"),
            Relaxed::Redefined => newest("a definition has changed since"),
        }
    }
}

fn shown(ts: CommitTs) -> String {
    match timestamp_us_to_datetime(ts.0 as i64) {
        Some(time) => time.format("%Y-%m-%d %H:%M:%S%.6f+00").to_string(),
        None => ts.0.to_string(),
    }
}
