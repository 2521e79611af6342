//! COPY … FROM: an INSERT with the rows of a file or a client.
//!
//! After parsing it works as an INSERT: DEFAULTs of columns that are not listed, CHECK, NOT NULL,
//! bulk load above a threshold, all or nothing. As in PostgreSQL, identity columns take the file's
//! values.

use super::End;
use super::binary::BinarySource;
use super::csv::CsvParser;
use super::input::{Origin, open};
use super::json::JsonParser;
use super::lines::Records;
use super::options::{Format, Options};
use super::parquet::ParquetSource;
use super::source::{BlockParser, FileColumn, LineSource};
use super::text::TextParser;
use crate::execution::dml;
use crate::parse::names;
use crate::planning::context::{ProgressHook, StatementContext};
use datafusion::catalog::streaming::StreamingTable;
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder};
use datafusion::physical_plan::streaming::PartitionStream;
use datafusion::sql::sqlparser::ast;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use strandline_base::{Error, Result, SqlState};
use strandline_engine::access::Privileges;
use strandline_engine::catalog::TableDef;
use strandline_semantics::error::convert;
use strandline_semantics::wire_format::Format as WireFormat;

/// Loads a file or a client's data into a table; returns the number of rows.
pub(super) async fn load(
    context: &StatementContext,
    name: &ast::ObjectName,
    listed: &[ast::Ident],
    end: &End<'_>,
    options: Options,
) -> Result<u64> {
    let table = context.resolve_table(name)?;
    if let Some(acting) = &context.acting {
        acting.require_on(&table, Privileges::INSERT)?;
    }
    let positions = positions(&table, listed)?;
    let columns: Vec<FileColumn> = positions
        .iter()
        .map(|p| {
            let column = &table.columns[*p];
            FileColumn {
                name: column.name.clone(),
                sql_type: column.sql_type,
            }
        })
        .collect();
    let options_format = options.format;
    // `path` is the name of the data in error messages.
    let (path, origin) = match end {
        End::File(path) => {
            // Opened here too, so that a missing file is reported before any other work.
            open(path)?;
            (path.to_path_buf(), Origin::File(path.to_path_buf()))
        }
        End::Client(client) => {
            let path = PathBuf::from(format!("COPY {}", table.name));
            (path, Origin::Client(client.clone()))
        }
    };
    let source = source(&path, origin, options, columns, context.progress.clone())?;
    if let End::Client(client) = end {
        let format = match options_format {
            Format::Binary => WireFormat::Binary,
            _ => WireFormat::Text,
        };
        client.lock().begin_in(format, positions.len())?;
    }
    dml::load(context, name, positions, scan(source)?).await
}

/// The rows of `origin` as a source of a plan.
fn source(
    path: &Path,
    origin: Origin,
    options: Options,
    columns: Vec<FileColumn>,
    reporter: Option<ProgressHook>,
) -> Result<Arc<dyn PartitionStream>> {
    let lines = |records, parser: Arc<dyn BlockParser>, origin, reporter| {
        LineSource::new(path, origin, &columns, records, parser, reporter)
    };
    Ok(match options.format {
        Format::Csv => {
            let parser = CsvParser::new(path, options.csv, columns.clone())?;
            let records = Records::Quoted(parser.quoting());
            Arc::new(lines(records, Arc::new(parser), origin, reporter))
        }
        Format::Text => {
            let parser = TextParser::new(path, options.csv, columns.clone());
            Arc::new(lines(Records::Escaped, Arc::new(parser), origin, reporter))
        }
        Format::Json => {
            let parser = JsonParser::new(path, columns.clone());
            Arc::new(lines(Records::Lines, Arc::new(parser), origin, reporter))
        }
        Format::Binary => Arc::new(BinarySource::new(origin, &columns, reporter)),
        Format::Parquet => match origin {
            Origin::File(path) => Arc::new(ParquetSource::open(&path, &columns, reporter)?),
            Origin::Client(_) => {
                return Err(Error::unsupported(
                    "COPY FROM STDIN in FORMAT parquet is not supported",
                ));
            }
        },
    })
}

fn positions(table: &TableDef, listed: &[ast::Ident]) -> Result<Vec<usize>> {
    if listed.is_empty() {
        return Ok((0..table.columns.len()).collect());
    }
    let mut positions = Vec::with_capacity(listed.len());
    for ident in listed {
        let name = names::fold(ident);
        let column = table.require_column(&name)?;
        let position = table
            .position(column.id)
            .ok_or_else(|| Error::internal("a column is there and is not"))?;
        if positions.contains(&position) {
            return Err(Error::invalid(
                SqlState::DUPLICATE_COLUMN,
                format!("column \"{name}\" specified more than once"),
            ));
        }
        positions.push(position);
    }
    Ok(positions)
}

fn scan(source: Arc<dyn PartitionStream>) -> Result<LogicalPlan> {
    let table = StreamingTable::try_new(source.schema().clone(), vec![source]).map_err(convert)?;
    LogicalPlanBuilder::scan("file", provider_as_source(Arc::new(table)), None)
        .and_then(LogicalPlanBuilder::build)
        .map_err(convert)
}
