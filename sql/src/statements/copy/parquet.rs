//! Reads Parquet files for COPY FROM.
//!
//! The file's columns are matched by name if it has all listed columns of the table, else by
//! position, like the fields of other files. A text column of the file is parsed by the rules of
//! the table's column, like a CSV field; other types must be assignable.

use super::input::open;
use super::source::{FileColumn, at, blocking, stream_or_error};
use crate::execution::dml::assignment::is_assignable;
use crate::planning::context::{Progress, ProgressHook};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::error::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::parquet::arrow::ProjectionMask;
use datafusion::parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
    ParquetRecordBatchReaderBuilder,
};
use datafusion::parquet::errors::ParquetError;
use datafusion::parquet::file::metadata::ParquetMetaData;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use strandline_base::{Error, Result, SqlState, SqlType};
use strandline_column::types::arrow_type;
use strandline_semantics::column_builder::ColumnBuilder;
use strandline_semantics::types;

/// Rows per batch.
const BATCH_ROWS: usize = 8192;
/// Bytes per batch, estimated from the file's metadata.
const BATCH_BYTES: u64 = 4 << 20;

/// A Parquet file to load.
pub(super) struct ParquetSource {
    path: PathBuf,
    /// per loaded column its position in the file and its conversion
    columns: Vec<(usize, Reading)>,
    schema: SchemaRef,
    reporter: Option<ProgressHook>,
}

/// The conversion of a file column to a table column.
#[derive(Clone, Debug)]
enum Reading {
    /// passed on unchanged; the plan converts it
    AsIs,
    /// parsed from text
    Parsed(FileColumn),
}

impl ParquetSource {
    /// Opens the file and matches its columns (22P04, 42804).
    pub fn open(
        path: &Path,
        wanted: &[FileColumn],
        reporter: Option<ProgressHook>,
    ) -> Result<Self> {
        let (file, _) = open(path)?;
        let metadata = ArrowReaderMetadata::load(&file, ArrowReaderOptions::new())
            .map_err(|e| damaged(path, &e))?;
        let in_file = metadata.schema().fields();
        let by_name: Option<Vec<usize>> = wanted
            .iter()
            .map(|w| {
                in_file
                    .iter()
                    .position(|f| f.name().eq_ignore_ascii_case(&w.name))
            })
            .collect();
        let places = match by_name {
            Some(places) => places,
            None if in_file.len() == wanted.len() => (0..wanted.len()).collect(),
            None => return Err(wrong_columns(path, wanted, in_file)),
        };
        let mut columns = Vec::with_capacity(wanted.len());
        let mut fields = Vec::with_capacity(wanted.len());
        for (column, place) in wanted.iter().zip(places) {
            let from = in_file[place].data_type();
            let (reading, data_type) = reading(path, column, from)?;
            fields.push(Field::new(&column.name, data_type, true));
            columns.push((place, reading));
        }
        let schema = Arc::new(Schema::new(fields));
        Ok(Self {
            path: path.to_path_buf(),
            columns,
            schema,
            reporter,
        })
    }

    fn batches(&self) -> Result<SendableRecordBatchStream> {
        let (file, total) = open(&self.path)?;
        let damage = |e| damaged(&self.path, &e);
        let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(damage)?;
        let places = self.columns.iter().map(|(place, _)| *place);
        let mask = ProjectionMask::roots(builder.parquet_schema(), places);
        let rows_total = builder.metadata().file_metadata().num_rows().max(1) as u64;
        let rows = batch_rows(builder.metadata());
        let reader = builder
            .with_batch_size(rows)
            .with_projection(mask)
            .build()
            .map_err(damage)?;
        let state = Loading {
            path: self.path.clone(),
            reader,
            columns: self.columns.clone(),
            schema: self.schema.clone(),
            reporter: self.reporter.clone(),
            rows: 0,
            rows_total,
            bytes_total: total,
        };
        let stream = futures::stream::try_unfold(state, |mut state| async move {
            let (state, batch) = blocking(move || {
                let batch = state.next()?;
                Ok((state, batch))
            })
            .await?;
            Ok::<_, DataFusionError>(batch.map(|batch| (batch, state)))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            self.schema.clone(),
            stream,
        )))
    }
}

/// The rows of [`BATCH_BYTES`] in the widest row group; at least one.
fn batch_rows(metadata: &ParquetMetaData) -> usize {
    let groups = metadata.row_groups().iter();
    let widest = groups.map(|group| group.total_byte_size() / group.num_rows().max(1));
    let widest = u64::try_from(widest.max().unwrap_or(0)).unwrap_or(0);
    let rows = BATCH_BYTES / widest.max(1);
    usize::try_from(rows)
        .unwrap_or(BATCH_ROWS)
        .clamp(1, BATCH_ROWS)
}

impl fmt::Debug for ParquetSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ParquetSource({})", self.path.display())
    }
}

impl PartitionStream for ParquetSource {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _context: Arc<TaskContext>) -> SendableRecordBatchStream {
        stream_or_error(&self.schema, self.batches())
    }
}

fn damaged(path: &Path, error: &ParquetError) -> Error {
    Error::invalid(
        SqlState::BAD_COPY_FILE_FORMAT,
        format!(
            "\"{}\" is not a readable Parquet file: {error}",
            path.display()
        ),
    )
    .with_hint("The file may be truncated or of another format.")
}

fn wrong_columns(
    path: &Path,
    wanted: &[FileColumn],
    in_file: &datafusion::arrow::datatypes::Fields,
) -> Error {
    let names: Vec<_> = in_file.iter().map(|f| f.name().as_str()).collect();
    Error::invalid(
        SqlState::BAD_COPY_FILE_FORMAT,
        format!(
            "\"{}\" has {} columns but {} are to be loaded",
            path.display(),
            in_file.len(),
            wanted.len()
        ),
    )
    .with_detail(format!("Columns of the file: {}.", names.join(", ")))
    .with_hint("List the table's columns that the file has: COPY t (a, b) FROM ….")
}

/// The conversion of a column, and the type of its result.
fn reading(path: &Path, column: &FileColumn, from: &DataType) -> Result<(Reading, DataType)> {
    let from_text =
        from.is_string() || matches!(from, DataType::Dictionary(_, values) if values.is_string());
    if from_text && column.sql_type != SqlType::Text {
        return Ok((Reading::Parsed(column.clone()), arrow_type(column.sql_type)));
    }
    if from_text || is_assignable(from, column.sql_type) {
        return Ok((Reading::AsIs, from.clone()));
    }
    Err(Error::invalid(
        SqlState::DATATYPE_MISMATCH,
        format!(
            "\"{}\", column \"{}\": a column of type {} cannot take values of type {}",
            path.display(),
            column.name,
            column.sql_type,
            types::sql_name(from)
        ),
    ))
}

/// A running read of a file.
struct Loading {
    path: PathBuf,
    reader: ParquetRecordBatchReader,
    columns: Vec<(usize, Reading)>,
    schema: SchemaRef,
    reporter: Option<ProgressHook>,
    rows: u64,
    rows_total: u64,
    bytes_total: u64,
}

impl Loading {
    fn next(&mut self) -> Result<Option<RecordBatch>> {
        let Some(batch) = self.reader.next() else {
            return Ok(None);
        };
        let batch =
            batch.map_err(|e| damaged(&self.path, &ParquetError::General(e.to_string())))?;
        // A projection keeps the file's column order.
        let mut places: Vec<usize> = self.columns.iter().map(|(place, _)| *place).collect();
        places.sort_unstable();
        places.dedup();
        let mut arrays = Vec::with_capacity(self.columns.len());
        for (place, reading) in &self.columns {
            let index = places
                .binary_search(place)
                .map_err(|_| Error::internal("a column that was asked for was not read"))?;
            let array = batch.column(index);
            arrays.push(match reading {
                Reading::AsIs => array.clone(),
                Reading::Parsed(column) => self.parsed(array, column)?,
            });
        }
        self.rows += batch.num_rows() as u64;
        if let Some(report) = &self.reporter {
            let share = self.rows as f64 / self.rows_total as f64;
            report(Progress {
                rows: self.rows,
                bytes: (share * self.bytes_total as f64) as u64,
                total_bytes: Some(self.bytes_total),
            });
        }
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options)
            .map(Some)
            .map_err(|e| strandline_semantics::error::from_arrow(&e))
    }

    /// Parses a text column as the table's type.
    fn parsed(&self, array: &ArrayRef, column: &FileColumn) -> Result<ArrayRef> {
        let texts = datafusion::arrow::compute::cast(array, &DataType::Utf8View)
            .map_err(|e| strandline_semantics::error::from_arrow(&e))?;
        let texts = texts.as_string_view();
        let mut builder = ColumnBuilder::new(column.sql_type);
        for row in 0..texts.len() {
            if texts.is_null(row) {
                builder.push_null();
                continue;
            }
            builder.push(texts.value(row)).map_err(|e| {
                let number = self.rows + row as u64 + 1;
                at(
                    e,
                    format!(
                        "{}, row {number}, column {}",
                        self.path.display(),
                        column.name
                    ),
                )
            })?;
        }
        Ok(builder.finish())
    }
}
