//! CONTRACT (helper `sql-dml` owns this folder).
#![allow(unused_variables, clippy::todo)]
use crate::context::StatementContext;
use datafusion::sql::sqlparser::ast;
use strandline_base::Result;

/// Executes COPY … FROM/TO a file; returns the rows copied.
pub async fn execute(context: &StatementContext, statement: &ast::Statement) -> Result<u64> {
    todo!()
}
