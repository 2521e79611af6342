//! What a statement gave.

use super::activity::Running;
use crate::context::StatementContext;
use crate::result::QueryResult;
use crate::value_row::ValueRow;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::execution::SendableRecordBatchStream;
use std::borrow::Cow;
use std::sync::Arc;
use strandline_engine::Transaction;

/// What a statement gave: rows to come, or the summary of what is done.
pub enum Output {
    /// A query whose rows are still to be computed.
    Rows(Box<RunningQuery>),
    /// A query of one row by its key, which is done.
    Row(ValueRow),
    /// Done, with any rows at hand.
    Done(Summary),
}

/// A query under way. It keeps its snapshot until it is dropped.
pub struct RunningQuery {
    pub(crate) schema: SchemaRef,
    pub(crate) stream: SendableRecordBatchStream,
    /// The transaction of a statement outside any block; it ends with the rows.
    pub(crate) implicit: Option<Arc<Transaction>>,
    pub(crate) context: StatementContext,
    /// lets others see that it runs
    pub(crate) running: Option<Running>,
}

/// What a statement did.
#[derive(Clone, Debug)]
pub struct Summary {
    tag: Cow<'static, str>,
    rows_affected: u64,
    result: Option<QueryResult>,
}

impl Summary {
    pub(crate) fn tag(tag: impl Into<Cow<'static, str>>) -> Self {
        Self {
            tag: tag.into(),
            rows_affected: 0,
            result: None,
        }
    }
    pub(crate) fn rows(tag: impl Into<Cow<'static, str>>, rows_affected: u64) -> Self {
        Self {
            tag: tag.into(),
            rows_affected,
            result: None,
        }
    }
    pub(crate) fn with_result(mut self, result: Option<QueryResult>) -> Self {
        self.result = result;
        self
    }
    /// PostgreSQL's command tag, such as `INSERT 0 3`, `SELECT 5` or `CREATE TABLE`.
    pub fn command_tag(&self) -> &str {
        &self.tag
    }
    /// Rows inserted, updated, deleted, copied or selected.
    pub fn rows_affected(&self) -> u64 {
        self.rows_affected
    }
    /// The rows of a query, of RETURNING, SHOW or EXPLAIN.
    pub fn result(&self) -> Option<&QueryResult> {
        self.result.as_ref()
    }
    /// The rows, taken out.
    pub fn into_result(self) -> Option<QueryResult> {
        self.result
    }
}

/// Whether a connection is in a transaction block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionStatus {
    /// no
    Idle,
    /// yes
    Open,
    /// yes, and a statement of it failed: only ROLLBACK works
    Failed,
}
