//! Writes rows to files: in the formats of [`super::format`], as JSON lines and as Parquet.

use super::format::{RowFormat, value_writers, write_text};
use super::temporary_file::TemporaryFile;
use datafusion::arrow::array::{Array, ArrayRef, RecordBatch, StringViewBuilder};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::basic::Compression;
use datafusion::parquet::file::properties::WriterProperties;
use std::io::{BufWriter, Write};
use std::sync::Arc;
use strandline_base::{Error, Result, SqlType};
use strandline_semantics::error::{convert, from_arrow};
use strandline_semantics::text::ValueWriter;
use strandline_semantics::types;

/// Bytes of text that are buffered before a write.
const TEXT_BYTES: usize = 1 << 16;

/// Encoded bytes of a Parquet row group, which is in memory until it is written.
const ROW_GROUP_BYTES: usize = 16 << 20;

/// The file behind a writer.
pub(super) type Output = BufWriter<TemporaryFile>;

/// Writes rows to a file.
pub(super) trait RowWriter: Send {
    /// Writes rows.
    fn write(&mut self, batch: &RecordBatch) -> Result<()>;
    /// Ends the rows and returns the finished file, which is not published yet.
    fn finish(self: Box<Self>) -> Result<TemporaryFile>;
}

fn failed(output: &Output, error: &std::io::Error) -> Error {
    Error::io(
        format!(
            "could not write file \"{}\"",
            output.get_ref().target().display()
        ),
        error,
    )
}

fn into_file(output: Output) -> Result<TemporaryFile> {
    output.into_inner().map_err(|e| {
        let error = Error::io("could not write the file", e.error());
        drop(e);
        error
    })
}

/// Writes rows in a [`RowFormat`].
pub(super) struct RowsWriter<F> {
    output: Output,
    format: F,
}

impl<F: RowFormat> RowsWriter<F> {
    /// Writes the header, if the format has one.
    pub fn start(mut output: Output, mut format: F) -> Result<Self> {
        let mut text = Vec::new();
        format.begin(&mut text);
        output.write_all(&text).map_err(|e| failed(&output, &e))?;
        Ok(Self { output, format })
    }
}

impl<F: RowFormat> RowWriter for RowsWriter<F> {
    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let output = &mut self.output;
        self.format
            .rows(batch, &mut |row| match output.write_all(row) {
                Ok(()) => Ok(()),
                Err(e) => Err(failed(output, &e)),
            })
    }

    fn finish(mut self: Box<Self>) -> Result<TemporaryFile> {
        let mut text = Vec::new();
        self.format.end(&mut text);
        self.output
            .write_all(&text)
            .map_err(|e| failed(&self.output, &e))?;
        into_file(self.output)
    }
}

/// Writes one JSON object per row.
pub(super) struct JsonWriter {
    output: Output,
    /// `"name":`
    keys: Vec<String>,
    /// `None`: a type that tables do not store
    columns: Vec<Option<SqlType>>,
    text: String,
    value: String,
}

impl JsonWriter {
    /// A writer of rows of `schema`.
    pub fn new(output: Output, schema: &SchemaRef) -> Self {
        let keys = schema
            .fields()
            .iter()
            .map(|f| format!("{}:", quoted(f.name())))
            .collect();
        let columns = schema
            .fields()
            .iter()
            .map(|f| types::sql_type_of(f))
            .collect();
        Self {
            output,
            keys,
            columns,
            text: String::new(),
            value: String::new(),
        }
    }

    /// Appends `self.value`, a value of column `column`.
    fn push_value(&mut self, column: usize) {
        let value = &self.value;
        match self.columns[column] {
            Some(SqlType::Boolean) => {
                self.text
                    .push_str(if value == "t" { "true" } else { "false" });
            }
            Some(
                SqlType::SmallInt | SqlType::Integer | SqlType::BigInt | SqlType::Numeric { .. },
            ) => {
                self.text.push_str(value);
            }
            Some(SqlType::Real | SqlType::Double) if !value.ends_with(['N', 'y']) => {
                self.text.push_str(value);
            }
            Some(SqlType::Json) => self.text.push_str(value),
            Some(SqlType::Timestamp) => self.text.push_str(&quoted(&value.replacen(' ', "T", 1))),
            Some(SqlType::TimestampTz) => self.text.push_str(&quoted(&iso_with_zone(value))),
            _ => self.text.push_str(&quoted(value)),
        }
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// `2024-01-31 12:00:00+02` in ISO 8601, where offsets have minutes.
fn iso_with_zone(text: &str) -> String {
    let iso = text.replacen(' ', "T", 1);
    let offset = iso.rfind(['+', '-']).map_or(0, |at| iso.len() - at);
    if offset == 3 { iso + ":00" } else { iso }
}

impl RowWriter for JsonWriter {
    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let writers = value_writers(batch)?;
        for row in 0..batch.num_rows() {
            self.text.push('{');
            for (i, array) in batch.columns().iter().enumerate() {
                if i > 0 {
                    self.text.push(',');
                }
                self.text.push_str(&self.keys[i]);
                if array.is_null(row) {
                    self.text.push_str("null");
                    continue;
                }
                self.value.clear();
                write_text(&mut self.value, &writers[i], row)?;
                self.push_value(i);
            }
            self.text.push_str("}\n");
            if self.text.len() >= TEXT_BYTES {
                self.output
                    .write_all(self.text.as_bytes())
                    .map_err(|e| failed(&self.output, &e))?;
                self.text.clear();
            }
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<TemporaryFile> {
        self.output
            .write_all(self.text.as_bytes())
            .map_err(|e| failed(&self.output, &e))?;
        into_file(self.output)
    }
}

/// Writes Parquet. Intervals are written as text, because the Arrow writer of Parquet does not
/// support them.
pub(super) struct ParquetFileWriter {
    writer: ArrowWriter<Output>,
    schema: SchemaRef,
    as_text: Vec<bool>,
}

impl ParquetFileWriter {
    /// A writer of rows of `schema`.
    pub fn start(output: Output, schema: &SchemaRef) -> Result<Self> {
        let as_text: Vec<bool> = schema
            .fields()
            .iter()
            .map(|f| matches!(f.data_type(), DataType::Interval(_)))
            .collect();
        let fields: Vec<Field> = schema
            .fields()
            .iter()
            .zip(&as_text)
            .map(|(f, as_text)| {
                let data_type = if *as_text {
                    DataType::Utf8View
                } else {
                    f.data_type().clone()
                };
                Field::new(f.name(), data_type, f.is_nullable())
            })
            .collect();
        let schema = Arc::new(Schema::new(fields));
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_max_row_group_bytes(Some(ROW_GROUP_BYTES))
            .set_created_by("strandline".to_string())
            .build();
        let writer = ArrowWriter::try_new(output, schema.clone(), Some(properties))
            .map_err(|e| parquet_failed(&e))?;
        Ok(Self {
            writer,
            schema,
            as_text,
        })
    }
}

/// The texts of an array's values.
fn texts_of(array: &ArrayRef) -> Result<ArrayRef> {
    let writer = ValueWriter::new(array).map_err(convert)?;
    let mut texts = StringViewBuilder::with_capacity(array.len());
    let mut text = String::new();
    for row in 0..array.len() {
        if array.is_null(row) {
            texts.append_null();
        } else {
            text.clear();
            write_text(&mut text, &writer, row)?;
            texts.append_value(&text);
        }
    }
    Ok(Arc::new(texts.finish()))
}

fn parquet_failed(error: &datafusion::parquet::errors::ParquetError) -> Error {
    strandline_semantics::error::convert(datafusion::error::DataFusionError::External(Box::new(
        std::io::Error::other(error.to_string()),
    )))
}

impl RowWriter for ParquetFileWriter {
    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let columns = batch
            .columns()
            .iter()
            .zip(&self.as_text)
            .map(|(array, as_text)| {
                if *as_text {
                    texts_of(array)
                } else {
                    Ok(array.clone())
                }
            })
            .collect::<Result<Vec<ArrayRef>>>()?;
        let batch =
            RecordBatch::try_new(self.schema.clone(), columns).map_err(|e| from_arrow(&e))?;
        self.writer.write(&batch).map_err(|e| parquet_failed(&e))
    }

    fn finish(self: Box<Self>) -> Result<TemporaryFile> {
        let output = self.writer.into_inner().map_err(|e| parquet_failed(&e))?;
        into_file(output)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::BinaryViewArray;
    use std::path::Path;
    use strandline_base::rng::Rng;

    #[test]
    fn row_groups_of_wide_rows_are_bounded_in_bytes() {
        const VALUE_BYTES: usize = 100_000;
        let directory = tempfile::tempdir().expect("directory");
        let target: &Path = &directory.path().join("wide.parquet");
        let field = Field::new("wide", DataType::BinaryView, true);
        let schema = Arc::new(Schema::new(vec![field]));
        let output = Output::new(TemporaryFile::beside(target).expect("file"));
        let mut writer = ParquetFileWriter::start(output, &schema).expect("writer");
        let mut rng = Rng::new(5);
        for _ in 0..10 {
            let mut random = || -> Vec<u8> {
                let words = (0..VALUE_BYTES / 8).map(|_| rng.next_u64().to_le_bytes());
                words.flatten().collect()
            };
            let values: Vec<Vec<u8>> = (0..40).map(|_| random()).collect();
            let values: ArrayRef = Arc::new(BinaryViewArray::from_iter_values(values));
            let batch = RecordBatch::try_new(schema.clone(), vec![values]).expect("batch");
            writer.write(&batch).expect("written");
            let held = writer.writer.memory_size();
            assert!(held <= ROW_GROUP_BYTES + (8 << 20), "{held} bytes are held");
        }
        assert!(writer.writer.flushed_row_groups().len() >= 2);
    }
}
