//! COPY … FROM and TO files: CSV, Parquet, JSON lines.
//!
//! FROM is an INSERT whose source is a file read as a stream, block by block, in bounded memory
//! ([`source`], [`parquet`]); one bad line loads nothing, because the statement is one unit. TO is
//! a SELECT whose rows are written beside the target and renamed over it at the end ([`to`]).
//! Standard input and output are files too: `/dev/stdin`, `/dev/stdout`.

mod builder;
mod csv;
mod from;
mod json;
mod lines;
mod options;
mod parquet;
mod source;
mod to;
mod write;

use crate::context::StatementContext;
use crate::roles;
pub(crate) use builder::ColumnBuilder;
use datafusion::sql::sqlparser::ast;
use options::Options;
use std::path::Path;
use strandline_base::{Error, Result, SqlState};

/// Executes COPY … FROM/TO a file; returns the rows copied. The caller owns savepoint, retry and
/// `finish`, as for DML.
///
/// # Errors
/// 58P01, 58030 or 42809 for files that cannot be opened; 22P04 and the codes of bad values name
/// file, line and column; the errors of INSERT.
pub async fn execute(context: &StatementContext, statement: &ast::Statement) -> Result<u64> {
    let ast::Statement::Copy {
        source,
        to,
        target,
        options,
        legacy_options,
        ..
    } = statement
    else {
        return Err(Error::internal("not a COPY statement"));
    };
    let path = match target {
        ast::CopyTarget::File { filename } => Path::new(filename),
        ast::CopyTarget::Stdin | ast::CopyTarget::Stdout => {
            let named = match to {
                true => "TO '/dev/stdout' (FORMAT csv)",
                false => "FROM '/dev/stdin' (FORMAT csv)",
            };
            return Err(
                Error::unsupported(format!("COPY with {target} is not supported"))
                    .with_hint(format!("Name a file; {named} is the process's own stream.")),
            );
        }
        ast::CopyTarget::Program { .. } => {
            return Err(Error::unsupported("COPY with PROGRAM is not supported"));
        }
    };
    if context.acting.is_some() {
        return Err(roles::acting::files_denied("COPY to or from"));
    }
    let options = Options::read(path, options, legacy_options)?;
    match (to, source) {
        (true, _) => to::unload(context, source, path, options).await,
        (
            false,
            ast::CopySource::Table {
                table_name,
                columns,
            },
        ) => from::load(context, table_name, columns, path, options).await,
        (false, ast::CopySource::Query(_)) => Err(Error::invalid(
            SqlState::SYNTAX_ERROR,
            "COPY … FROM needs the name of a table, not a query",
        )),
    }
}
