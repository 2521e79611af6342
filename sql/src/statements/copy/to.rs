//! COPY … TO. Rows for a client are sent as they come. Those for a file go into a temporary file
//! beside the target, which is renamed over it once everything is on the device: a reader never
//! sees half a file, and an error leaves the old file as it was. A symbolic link stays one: what it
//! points to is replaced. Devices and pipes (`/dev/stdout`) cannot be replaced and are written to
//! directly.

use super::End;
use super::format::{self, AnyFormat, RowFormat};
use super::options::{Format, Options};
use super::source::blocking;
use super::write::{JsonWriter, ParquetFileWriter, RowWriter, RowsWriter};
use crate::parse::names;
use crate::planning::context::{Progress, StatementContext};
use crate::runtime::copy_client::SharedCopyClient;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::sql::sqlparser::ast;
use futures::TryStreamExt;
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use strandline_base::{Error, Result, SqlState};
use strandline_semantics::error::convert;
use strandline_semantics::wire_format::Format as WireFormat;

/// Bytes gathered before they are written.
const BUFFER_BYTES: usize = 1 << 18;
/// Makes the names of temporary files differ within a process.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Writes the rows of a table or query to a file or to a client; the number of rows.
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

/// A format of rows that a client may ask for.
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

/// Gives all rows to `writer`.
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

/// Where rows go.
trait TakeRows: Send {
    fn take(&mut self, batch: &RecordBatch) -> Result<()>;
}

impl TakeRows for dyn RowWriter {
    fn take(&mut self, batch: &RecordBatch) -> Result<()> {
        self.write(batch)
    }
}

/// Sends rows to a client, a message each.
struct ClientWriter {
    client: SharedCopyClient,
    format: AnyFormat,
    /// a header that is sent with the first row
    header: Vec<u8>,
}

impl ClientWriter {
    fn start(client: SharedCopyClient, mut format: AnyFormat, kind: WireFormat) -> Result<Self> {
        let mut header = Vec::new();
        format.begin(&mut header);
        // A line of names is a row to clients; the binary header is no row.
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

/// A file that becomes another when it is whole, and vanishes otherwise.
pub(super) struct TemporaryFile {
    file: File,
    /// its own name; `None` if it is a device, written to directly, or already the target
    path: Option<PathBuf>,
    target: PathBuf,
}

impl TemporaryFile {
    /// A new file in the directory of `target`, or `target` itself if that is no regular file.
    pub fn beside(target: &Path) -> Result<Self> {
        if target.is_dir() {
            return Err(Error::invalid(
                SqlState::WRONG_OBJECT_TYPE,
                format!("\"{}\" is a directory", target.display()),
            ));
        }
        if is_special(target) {
            return Ok(Self {
                file: special(target).map_err(|e| not_opened(target, &e))?,
                path: None,
                target: target.to_path_buf(),
            });
        }
        let target = std::fs::canonicalize(target).unwrap_or_else(|_| target.to_path_buf());
        let name = target.file_name().ok_or_else(|| {
            Error::invalid(
                SqlState::INVALID_PARAMETER_VALUE,
                format!("\"{}\" is not the name of a file", target.display()),
            )
        })?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let own = format!(
            ".{}.{}-{number}.tmp",
            name.to_string_lossy(),
            std::process::id()
        );
        let path = target.with_file_name(own);
        let file = OpenOptions::new().write(true).create_new(true).open(&path);
        Ok(Self {
            file: file.map_err(|e| not_opened(&target, &e))?,
            path: Some(path),
            target,
        })
    }

    /// Makes the content durable and gives it its name.
    pub fn publish(mut self) -> Result<()> {
        let Some(path) = &self.path else {
            return Ok(());
        };
        let renamed = self
            .file
            .sync_all()
            .and_then(|()| std::fs::rename(path, &self.target));
        renamed.map_err(|e| {
            let what = format!("could not write file \"{}\"", self.target.display());
            Error::io(what, &e)
        })?;
        self.path = None;
        Ok(())
    }

    /// The name of the file that this will be.
    pub fn target(&self) -> &Path {
        &self.target
    }
}

impl Write for TemporaryFile {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // Nothing more can be done about a file that cannot be removed.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Whether the file is there and is a device, a pipe or another process's stream.
fn is_special(target: &Path) -> bool {
    let stream = target.starts_with("/dev") || target.starts_with("/proc");
    std::fs::metadata(target).is_ok_and(|found| stream || !found.is_file())
}

/// Standard output and error share their place in the file with those of the process.
fn special(target: &Path) -> std::io::Result<File> {
    let stream = match target.to_str() {
        Some("/dev/stdout" | "/dev/fd/1") => std::io::stdout().as_fd().try_clone_to_owned(),
        Some("/dev/stderr" | "/dev/fd/2") => std::io::stderr().as_fd().try_clone_to_owned(),
        _ => return OpenOptions::new().append(true).open(target),
    };
    stream.map(File::from)
}

fn not_opened(target: &Path, error: &std::io::Error) -> Error {
    let what = format!("could not open file \"{}\" for writing", target.display());
    Error::io(what, error)
}

/// The positions of the columns in `wanted` (42703).
pub(super) fn columns_named(
    schema: &datafusion::arrow::datatypes::Schema,
    wanted: &[String],
) -> Result<Vec<usize>> {
    wanted
        .iter()
        .map(|name| {
            schema
                .fields()
                .iter()
                .position(|f| f.name() == name)
                .ok_or_else(|| {
                    Error::invalid(
                        SqlState::UNDEFINED_COLUMN,
                        format!("column {} is not copied", names::quote(name)),
                    )
                })
        })
        .collect()
}
