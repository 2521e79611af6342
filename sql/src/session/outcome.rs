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

/// The output of a statement: a query's rows, or the summary of a finished statement.
pub enum Output {
    /// A query whose rows are still to be computed.
    Rows(Box<RunningQuery>),
    /// A finished query of one row by its key.
    Row(ValueRow),
    /// A finished query of the rows with one key of an index.
    Batch(QueryResult),
    /// A finished statement, with the rows of RETURNING, if any.
    Done(Summary),
}

/// A running query. It holds its snapshot until it is dropped.
pub struct RunningQuery {
    pub(crate) schema: SchemaRef,
    pub(crate) stream: SendableRecordBatchStream,
    /// The transaction of a query outside any block; it ends with the query.
    pub(crate) implicit: Option<Arc<Transaction>>,
    pub(crate) context: StatementContext,
    /// how long it may still run, without the time between two calls; None: without limit
    pub(crate) time_left: Option<Duration>,
    /// lets others see that it runs
    pub(crate) running: Option<Running>,
}
