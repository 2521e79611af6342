//! The result of a statement.

use crate::backends::activity::Running;
use crate::planning::context::StatementContext;
use crate::values::result::QueryResult;
use crate::values::summary::Summary;
use crate::values::value_row::ValueRow;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::execution::SendableRecordBatchStream;
use std::sync::Arc;
use std::time::Duration;
use strandline_engine::Transaction;

/// What a statement gave: rows to come, or the summary of what is done.
pub enum Output {
    /// A query whose rows are still to be computed.
    Rows(Box<RunningQuery>),
    /// A query of one row by its key, which is done.
    Row(ValueRow),
    /// A query of the rows with one key of an index, which is done.
    Batch(QueryResult),
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
    /// how long it may still run, without the time between two calls; None: without limit
    pub(crate) time_left: Option<Duration>,
    /// lets others see that it runs
    pub(crate) running: Option<Running>,
}
