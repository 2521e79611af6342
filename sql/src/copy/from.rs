//! COPY … FROM a file: an INSERT whose rows are the file's.
//!
//! Everything after parsing is INSERT's: DEFAULTs of columns that are not listed, CHECK, NOT NULL,
//! bulk load above a threshold, all or nothing. As in PostgreSQL, values of identity columns are
//! taken from the file.

use super::csv::CsvParser;
use super::json::JsonParser;
use super::options::{Format, Options};
use super::parquet::ParquetSource;
use super::source::{FileColumn, LineSource, open};
use crate::context::StatementContext;
use crate::dml;
use crate::error::convert;
use crate::names;
use datafusion::catalog::streaming::StreamingTable;
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder};
use datafusion::physical_plan::streaming::PartitionStream;
use datafusion::sql::sqlparser::ast;
use std::path::Path;
use std::sync::Arc;
use strandline_base::{Error, Result, SqlState};
use strandline_engine::access::Privileges;
use strandline_engine::catalog::TableDef;

/// Loads the file at `path` into a table; the number of rows.
pub(super) async fn load(
    context: &StatementContext,
    name: &ast::ObjectName,
    listed: &[ast::Ident],
    path: &Path,
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
    let reporter = context.progress.clone();
    // Opened here too, so that a missing file is reported before anything else happens.
    open(path)?;
    let source: Arc<dyn PartitionStream> = match options.format {
        Format::Csv => {
            let parser = CsvParser::new(path, options.csv, columns.clone())?;
            let quoting = Some(parser.quoting());
            Arc::new(LineSource::new(
                path,
                &columns,
                quoting,
                Arc::new(parser),
                reporter,
            ))
        }
        Format::Json => {
            let parser = JsonParser::new(path, columns.clone());
            Arc::new(LineSource::new(
                path,
                &columns,
                None,
                Arc::new(parser),
                reporter,
            ))
        }
        Format::Parquet => Arc::new(ParquetSource::open(path, &columns, reporter)?),
    };
    dml::load(context, name, positions, scan(source)?).await
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
