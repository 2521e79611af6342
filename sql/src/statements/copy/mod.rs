//! COPY … FROM and TO: CSV, PostgreSQL's text and binary formats, Parquet, JSON lines; files and
//! clients (STDIN and STDOUT).
//!
//! FROM is an INSERT whose source is a file read as a stream, block by block, in bounded memory
//! ([`source`], [`parquet`]). One bad line loads nothing, because the statement is atomic. TO is a
//! SELECT whose rows are written to a temporary file, which is then renamed over the target
//! ([`to`]). The process's own standard input and output are files too: `/dev/stdin`,
//! `/dev/stdout`. STDIN and STDOUT are the server's client ([`CopyClient`]); its data is streamed,
//! never buffered as a whole.

mod binary;
mod csv;
mod format;
mod from;
mod input;
mod json;
mod lines;
mod options;
mod parquet;
mod source;
mod temporary_file;
mod text;
mod to;
mod write;

use crate::planning::context::StatementContext;
use crate::runtime::copy_client::SharedCopyClient;
use datafusion::sql::sqlparser::ast;
use options::Options;
use std::path::Path;
use strandline_base::{Error, Result, SqlState};

/// Executes COPY … FROM/TO; returns the number of rows. The caller provides savepoint, retry and
/// `finish`, as for DML.
///
/// # Errors
/// 58P01, 58030 or 42809 for files that cannot be opened; 22P04 and the codes of bad values, with
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
    let end = match target {
        ast::CopyTarget::File { filename } => End::File(Path::new(filename)),
        ast::CopyTarget::Stdin | ast::CopyTarget::Stdout => match &context.copy_clients {
            Some(clients) => End::Client(clients()),
            None => return Err(no_client(target, *to)),
        },
        ast::CopyTarget::Program { .. } => {
            return Err(Error::unsupported("COPY with PROGRAM is not supported"));
        }
    };
    if context.acting.is_some() && end.path().is_some() {
        return Err(crate::backends::acting::files_denied("COPY to or from"));
    }
    let options = Options::read(end.path(), options, legacy_options)?;
    match (to, source) {
        (true, _) => to::unload(context, source, &end, options).await,
        (
            false,
            ast::CopySource::Table {
                table_name,
                columns,
            },
        ) => from::load(context, table_name, columns, &end, options).await,
        (false, ast::CopySource::Query(_)) => Err(Error::invalid(
            SqlState::SYNTAX_ERROR,
            "COPY … FROM needs the name of a table, not a query",
        )),
    }
}

/// The other end of a COPY.
enum End<'a> {
    /// a file on the database's machine
    File(&'a Path),
    /// the connection's client
    Client(SharedCopyClient),
}

impl<'a> End<'a> {
    /// The file's path.
    fn path(&self) -> Option<&'a Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Client(_) => None,
        }
    }
}

fn no_client(target: &ast::CopyTarget, to: bool) -> Error {
    let named = match to {
        true => "TO '/dev/stdout' (FORMAT csv)",
        false => "FROM '/dev/stdin' (FORMAT csv)",
    };
    Error::unsupported(format!("COPY with {target} needs a client of a server"))
        .with_hint(format!("Name a file; {named} is the process's own stream."))
}

/// Whether `statement` takes data from a client, which sends it only once.
pub(crate) fn takes_from_client(statement: &ast::Statement) -> bool {
    matches!(
        statement,
        ast::Statement::Copy {
            target: ast::CopyTarget::Stdin | ast::CopyTarget::Stdout,
            ..
        }
    )
}
