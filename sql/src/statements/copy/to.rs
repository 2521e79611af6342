//! COPY … TO. Rows for a client are sent as they are computed; rows for a file go into a
//! [`TemporaryFile`].

use super::End;
use super::format::{self, AnyFormat, RowFormat};
use super::options::{Format, Options};
use super::source::blocking;
use super::temporary_file::TemporaryFile;
use super::write::{JsonWriter, ParquetFileWriter, RowWriter, RowsWriter};
use crate::planning::context::{Progress, StatementContext};
use crate::runtime::copy_client::SharedCopyClient;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::sql::sqlparser::ast;
use futures::TryStreamExt;
use std::io::BufWriter;
use strandline_base::{Error, Result};
use strandline_semantics::error::convert;
use strandline_semantics::wire_format::Format as WireFormat;

/// Bytes that are buffered before a write.
const BUFFER_BYTES: usize = 1 << 18;
/// Writes the rows of a table or query to a file or a client; returns the number of rows.
pub(super) async fn unload(
    context: &StatementContext,
    source: &ast::CopySource,
    end: &End<'_>,
    options: Options,
) -> Result<u64> {
    let query = match source {
        ast::CopySource::Query(query) => query.as_ref().clone(),
        ast::CopySource::Table {
            table_name,
            columns,
        } => {
            context.resolve_table(table_name)?;
            of_table(table_name, columns)
        }
    };
    let plan = Box::pin(context.plan_query(&query)).await?;
    let (schema, rows) = context.run(plan).await?;
    match end {
        End::File(path) => {
            let file = TemporaryFile::beside(path)?;
            let buffered = BufWriter::with_capacity(BUFFER_BYTES, file);
            let writer: Box<dyn RowWriter> = match options.format {
                Format::Json => Box::new(JsonWriter::new(buffered, &schema)),
                Format::Parquet => Box::new(ParquetFileWriter::start(buffered, &schema)?),
                _ => Box::new(RowsWriter::start(buffered, row_format(&schema, options)?)?),
            };
            let (count, writer) = write_rows(context, rows, writer).await?;
            blocking(move || writer.finish()?.publish())
                .await
                .map_err(convert)?;
            Ok(count)
        }
        End::Client(client) => {
            let format = match options.format {
                Format::Binary => WireFormat::Binary,
                _ => WireFormat::Text,
            };
            let rows_format = row_format(&schema, options)?;
            client.lock().begin_out(format, schema.fields().len())?;
            let writer = Box::new(ClientWriter::start(client.clone(), rows_format, format)?);
            let (count, writer) = write_rows(context, rows, writer).await?;
            blocking(move || writer.finish()).await.map_err(convert)?;
            Ok(count)
        }
    }
}

/// A row format that clients may use too.
fn row_format(schema: &SchemaRef, options: Options) -> Result<AnyFormat> {
    Ok(match options.format {
        Format::Text => Box::new(format::text(schema, options.csv)),
        Format::Csv => Box::new(format::csv(schema, options.csv)?),
        Format::Binary => Box::new(format::Binary::default()),
        Format::Json | Format::Parquet => {
            return Err(Error::unsupported(
                "COPY TO STDOUT in FORMAT json or parquet is not supported",
            ));
        }
    })
}

/// Passes all rows to `writer`.
async fn write_rows<W: TakeRows + ?Sized + 'static>(
    context: &StatementContext,
    mut rows: SendableRecordBatchStream,
    mut writer: Box<W>,
) -> Result<(u64, Box<W>)> {
    let mut count = 0;
    while let Some(batch) = rows.try_next().await.map_err(convert)? {
        count += batch.num_rows() as u64;
        writer = blocking(move || {
            writer.take(&batch)?;
            Ok(writer)
        })
        .await
        .map_err(convert)?;
        if let Some(report) = &context.progress {
            report(Progress {
                rows: count,
                bytes: 0,
                total_bytes: None,
            });
        }
    }
    Ok((count, writer))
}

/// A consumer of rows.
trait TakeRows: Send {
    fn take(&mut self, batch: &RecordBatch) -> Result<()>;
}

impl TakeRows for dyn RowWriter {
    fn take(&mut self, batch: &RecordBatch) -> Result<()> {
        self.write(batch)
    }
}

/// Sends rows to a client, one message each.
struct ClientWriter {
    client: SharedCopyClient,
    format: AnyFormat,
    /// the header to send with the first row
    header: Vec<u8>,
}

impl ClientWriter {
    fn start(client: SharedCopyClient, mut format: AnyFormat, kind: WireFormat) -> Result<Self> {
        let mut header = Vec::new();
        format.begin(&mut header);
        // The line of names is a row to clients; the binary header is not.
        if kind == WireFormat::Text && !header.is_empty() {
            client.lock().write(&header)?;
            header.clear();
        }
        Ok(Self {
            client,
            format,
            header,
        })
    }

    fn finish(mut self) -> Result<()> {
        let mut trailer = std::mem::take(&mut self.header);
        self.format.end(&mut trailer);
        let mut client = self.client.lock();
        if !trailer.is_empty() {
            client.write(&trailer)?;
        }
        client.end_out()
    }
}

impl TakeRows for ClientWriter {
    fn take(&mut self, batch: &RecordBatch) -> Result<()> {
        let mut client = self.client.lock();
        let header = &mut self.header;
        self.format.rows(batch, &mut |row| {
            if header.is_empty() {
                return client.write(row);
            }
            header.extend_from_slice(row);
            let sent = client.write(header);
            header.clear();
            sent
        })
    }
}

/// `SELECT columns FROM table`.
fn of_table(name: &ast::ObjectName, columns: &[ast::Ident]) -> ast::Query {
    let items = if columns.is_empty() {
        vec![ast::SelectItem::Wildcard(
            ast::WildcardAdditionalOptions::default(),
        )]
    } else {
        columns
            .iter()
            .map(|c| ast::SelectItem::UnnamedExpr(ast::Expr::Identifier(c.clone())))
            .collect()
    };
    crate::execution::dml::select_from(name, items)
}
