//! The rows of a query, pulled through its connection.

use crate::session::Session;
use crate::session::portal::Portal;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use strandline_base::Result;

/// The rows of a query, pulled batch by batch. Dropping it ends the query.
pub struct QueryStream<'c> {
    pub(super) session: &'c mut Session,
    pub(super) portal: Portal,
}

impl QueryStream<'_> {
    /// Names and Arrow types of the columns.
    pub fn schema(&self) -> &SchemaRef {
        self.portal.schema()
    }

    /// The running query without its connection, to be pulled with
    /// [`Connection::next_batch`](super::Connection::next_batch).
    ///
    /// ```
    /// let database = strandline::Database::in_memory()?;
    /// let mut connection = database.connect();
    /// let stream = connection.query_stream("SELECT * FROM generate_series(1, 100000)", ())?;
    /// let mut portal = stream.into_portal();
    /// connection.execute("CREATE TABLE t (a bigint)", ())?;
    /// let mut rows = 0;
    /// while let Some(batch) = connection.next_batch(&mut portal)? {
    ///     rows += batch.num_rows();
    /// }
    /// assert_eq!(rows, 100_000);
    /// # Ok::<(), strandline::Error>(())
    /// ```
    pub fn into_portal(self) -> Portal {
        self.portal
    }
}

impl Iterator for QueryStream<'_> {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Result<RecordBatch>> {
        self.portal.next(self.session).transpose()
    }
}
