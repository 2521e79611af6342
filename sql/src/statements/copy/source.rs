//! A file of lines as a stream of record batches.
//!
//! Blocks are cut one after the other ([`super::lines`]) and parsed in parallel on blocking
//! threads, as many at a time as the session has partitions. Batches come out in the file's order.
//! Only the blocks in flight are in memory.

use super::input::Origin;
use super::lines::{Block, Blocks, Records};
use crate::planning::context::{Progress, ProgressHook};
use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::exec_datafusion_err;
use datafusion::error::{DataFusionError, Result as PlanResult};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use futures::{StreamExt, TryStreamExt};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use strandline_base::{Error, Result, SqlType};
use strandline_column::types::arrow_type;
use strandline_semantics::error::raise;

/// A column of a file.
#[derive(Clone, Debug)]
pub(super) struct FileColumn {
    /// the table column's name
    pub name: String,
    /// the table column's type
    pub sql_type: SqlType,
}

/// Adds the position before an error's message.
pub(super) fn at(error: Error, place: String) -> Error {
    error.context(place)
}

/// The schema of columns that are parsed into their table's types.
pub(super) fn schema_of(columns: &[FileColumn]) -> SchemaRef {
    let fields: Vec<Field> = columns
        .iter()
        .map(|c| Field::new(&c.name, arrow_type(c.sql_type), true))
        .collect();
    Arc::new(Schema::new(fields))
}

/// Parses blocks of one format into columns.
pub(super) trait BlockParser: Send + Sync {
    /// The number of rows, and the columns.
    fn parse(&self, block: &Block) -> Result<(usize, Vec<ArrayRef>)>;
}

/// A file of lines to load.
pub(super) struct LineSource {
    path: PathBuf,
    origin: Origin,
    records: Records,
    parser: Arc<dyn BlockParser>,
    schema: SchemaRef,
    reporter: Option<ProgressHook>,
}

impl LineSource {
    /// The rows of `origin`, whose records `parser` parses as `columns`.
    pub fn new(
        path: &Path,
        origin: Origin,
        columns: &[FileColumn],
        records: Records,
        parser: Arc<dyn BlockParser>,
        reporter: Option<ProgressHook>,
    ) -> Self {
        Self {
            path: path.to_path_buf(),
            origin,
            records,
            parser,
            schema: schema_of(columns),
            reporter,
        }
    }

    fn batches(&self, parallel: usize) -> Result<SendableRecordBatchStream> {
        let (input, total) = self.origin.open()?;
        let blocks = Blocks::new(input, self.path.clone(), self.records);
        let cut = futures::stream::try_unfold(blocks, |mut blocks| async move {
            let (blocks, block) = blocking(move || {
                let block = blocks.next()?;
                Ok((blocks, block))
            })
            .await?;
            Ok::<_, DataFusionError>(block.map(|block| (block, blocks)))
        });
        let (parser, schema) = (self.parser.clone(), self.schema.clone());
        let (reporter, rows_so_far) = (self.reporter.clone(), Arc::new(AtomicU64::new(0)));
        let batches = cut
            .map(move |block| {
                let (parser, schema) = (parser.clone(), schema.clone());
                let (reporter, rows_so_far) = (reporter.clone(), rows_so_far.clone());
                async move {
                    let block = block?;
                    blocking(move || {
                        let (rows, columns) = parser.parse(&block)?;
                        let all = rows_so_far.fetch_add(rows as u64, Ordering::Relaxed);
                        if let Some(report) = &reporter {
                            report(Progress {
                                rows: all + rows as u64,
                                bytes: block.end,
                                total_bytes: total,
                            });
                        }
                        let options = RecordBatchOptions::new().with_row_count(Some(rows));
                        RecordBatch::try_new_with_options(schema, columns, &options)
                            .map_err(|e| strandline_semantics::error::from_arrow(&e))
                    })
                    .await
                }
            })
            .buffered(parallel.max(1))
            .try_filter(|batch| futures::future::ready(batch.num_rows() > 0));
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            self.schema.clone(),
            batches,
        )))
    }
}

impl fmt::Debug for LineSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LineSource({})", self.path.display())
    }
}

impl PartitionStream for LineSource {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let parallel = context.session_config().target_partitions();
        stream_or_error(&self.schema, self.batches(parallel))
    }
}

/// Runs `work`, which reads or writes files, on a blocking thread.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> PlanResult<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|e| exec_datafusion_err!("a task of COPY ended abnormally: {e}"))?
        .map_err(raise)
}

/// The stream, or a stream that has only the error.
pub(super) fn stream_or_error(
    schema: &SchemaRef,
    stream: Result<SendableRecordBatchStream>,
) -> SendableRecordBatchStream {
    stream.unwrap_or_else(|error| {
        let failed: PlanResult<RecordBatch> = Err(raise(error));
        Box::pin(RecordBatchStreamAdapter::new(
            schema.clone(),
            futures::stream::once(futures::future::ready(failed)),
        ))
    })
}
