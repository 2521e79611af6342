//! PostgreSQL's binary format: a header, rows of counted values in their types' send format, a
//! trailer.

use super::input::{Input, Origin};
use super::source::{FileColumn, at, blocking, schema_of, stream_or_error};
use crate::planning::context::{Progress, ProgressHook};
use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::error::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use std::fmt;
use std::sync::Arc;
use strandline_base::{Error, Result, SqlState};
use strandline_semantics::column_builder::ColumnBuilder;
use strandline_semantics::error::from_arrow;

/// The first bytes of every file.
pub(super) const SIGNATURE: &[u8] = b"PGCOPY\n\xff\r\n\0";
/// Rows of a batch.
const BATCH_ROWS: usize = 8_192;
/// The least bytes of data of a full batch, without its last row.
const BATCH_BYTES: usize = 4 << 20;
/// Bytes of the longest value. A longer value is an error, most likely damaged data.
const VALUE_BYTES_MAX: usize = 1 << 28;
/// Flags that a reader must not ignore.
const CRITICAL_FLAGS: i32 = 0xffff << 16;

/// A source of rows in binary format.
pub(super) struct BinarySource {
    origin: Origin,
    columns: Arc<[FileColumn]>,
    schema: SchemaRef,
    reporter: Option<ProgressHook>,
}

impl BinarySource {
    /// The rows of `origin`, which have `columns`.
    pub fn new(origin: Origin, columns: &[FileColumn], reporter: Option<ProgressHook>) -> Self {
        Self {
            origin,
            schema: schema_of(columns),
            columns: columns.into(),
            reporter,
        }
    }

    fn batches(&self) -> Result<SendableRecordBatchStream> {
        let (input, total) = self.origin.open()?;
        let reader = Reader {
            input,
            columns: self.columns.clone(),
            schema: self.schema.clone(),
            unread: Vec::new(),
            next: 0,
            row: 0,
            state: ReadState::Begin,
        };
        let reporter = self.reporter.clone();
        let batches = futures::stream::try_unfold(reader, move |mut reader| {
            let reporter = reporter.clone();
            async move {
                let (reader, batch) = blocking(move || {
                    let batch = reader.next_batch()?;
                    Ok((reader, batch))
                })
                .await?;
                if let Some(report) = &reporter {
                    report(Progress {
                        rows: reader.row,
                        bytes: 0,
                        total_bytes: total,
                    });
                }
                Ok::<_, DataFusionError>(batch.map(|batch| (batch, reader)))
            }
        });
        let adapter = RecordBatchStreamAdapter::new(self.schema.clone(), batches);
        Ok(Box::pin(adapter))
    }
}

impl fmt::Debug for BinarySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BinarySource({} columns)", self.columns.len())
    }
}

impl PartitionStream for BinarySource {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        stream_or_error(&self.schema, self.batches())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ReadState {
    Begin,
    Rows,
    End,
}

struct Reader {
    input: Input,
    columns: Arc<[FileColumn]>,
    schema: SchemaRef,
    /// the bytes read from the input; those from `next` on are not parsed yet
    unread: Vec<u8>,
    next: usize,
    row: u64,
    state: ReadState,
}

fn fault(message: impl Into<String>) -> Error {
    Error::invalid(SqlState::BAD_COPY_FILE_FORMAT, message)
}

impl Reader {
    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        if self.state == ReadState::Begin {
            self.read_header()?;
            self.state = ReadState::Rows;
        }
        let columns = self.columns.clone();
        let mut builders: Vec<_> = columns
            .iter()
            .map(|c| ColumnBuilder::new(c.sql_type))
            .collect();
        let (mut rows, mut bytes) = (0, 0);
        while rows < BATCH_ROWS && bytes < BATCH_BYTES && self.state == ReadState::Rows {
            if self.read_row(&columns, &mut builders, &mut bytes)? {
                rows += 1;
            } else {
                self.state = ReadState::End;
                self.read_to_end()?;
            }
        }
        if rows == 0 {
            return Ok(None);
        }
        let arrays = builders.iter_mut().map(ColumnBuilder::finish).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options)
            .map(Some)
            .map_err(|e| from_arrow(&e))
    }

    fn read_header(&mut self) -> Result<()> {
        if !self.has(SIGNATURE.len())? || self.take(SIGNATURE.len()) != SIGNATURE {
            return Err(fault("COPY file signature not recognized"));
        }
        let flags = self.int32("invalid COPY file header (missing flags)")?;
        if flags & CRITICAL_FLAGS != 0 {
            return Err(fault("unrecognized critical flags in COPY file header"));
        }
        let extension = self.int32("invalid COPY file header (missing length)")?;
        let extension = usize::try_from(extension)
            .ok()
            .filter(|n| *n <= VALUE_BYTES_MAX);
        match extension {
            Some(bytes) if self.has(bytes)? => {
                self.take(bytes);
                Ok(())
            }
            _ => Err(fault("invalid COPY file header (wrong length)")),
        }
    }

    /// Reads a row and adds its bytes to `bytes`; false at the end of the data.
    fn read_row(
        &mut self,
        columns: &[FileColumn],
        builders: &mut [ColumnBuilder],
        bytes: &mut usize,
    ) -> Result<bool> {
        if !self.has(2)? {
            // The trailer may be missing.
            return match self.unread.len() - self.next {
                0 => Ok(false),
                _ => Err(fault("unexpected EOF in COPY data")),
            };
        }
        let count = self.take(2);
        let count = i16::from_be_bytes([count[0], count[1]]);
        if count == -1 {
            return Ok(false);
        }
        self.row += 1;
        if usize::try_from(count) != Ok(columns.len()) {
            return Err(fault(format!(
                "row field count is {count}, expected {}",
                columns.len()
            )));
        }
        for (column, builder) in columns.iter().zip(builders) {
            let length = self.int32("unexpected EOF in COPY data")?;
            if length == -1 {
                builder.push_null();
                continue;
            }
            let length = usize::try_from(length)
                .ok()
                .filter(|n| *n <= VALUE_BYTES_MAX);
            let length = length.ok_or_else(|| fault("invalid field size"))?;
            if !self.has(length)? {
                return Err(fault("unexpected EOF in COPY data"));
            }
            *bytes += length;
            let row = self.row;
            let received = builder.receive(self.take(length));
            received.map_err(|e| at(e, format!("COPY, row {row}, column {}", column.name)))?;
        }
        Ok(true)
    }

    /// Checks that nothing follows the trailer.
    fn read_to_end(&mut self) -> Result<()> {
        match self.has(1)? {
            false => Ok(()),
            true => Err(fault("received copy data after EOF marker")),
        }
    }

    fn int32(&mut self, otherwise: &str) -> Result<i32> {
        if !self.has(4)? {
            return Err(fault(otherwise));
        }
        let bytes = self.take(4);
        Ok(i32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    /// Whether `count` more bytes exist; reads them if necessary.
    fn has(&mut self, count: usize) -> Result<bool> {
        while self.unread.len() - self.next < count {
            self.unread.drain(..self.next);
            self.next = 0;
            if !self.input.read(&mut self.unread)? {
                return Ok(self.unread.len() >= count);
            }
        }
        Ok(true)
    }

    /// The next `count` bytes, which have been read.
    fn take(&mut self, count: usize) -> &[u8] {
        self.next += count;
        &self.unread[self.next - count..self.next]
    }
}
