//! CONTRACT (helper `sql-dml` owns this folder).
#![allow(unused_variables, clippy::todo)]
use crate::context::StatementContext;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::sql::sqlparser::ast;
use strandline_base::Result;

/// What a DML statement did.
pub struct DmlOutcome {
    /// `INSERT`, `UPDATE`, `DELETE`, `MERGE`
    pub tag: &'static str,
    /// rows affected
    pub rows: u64,
    /// RETURNING's result
    pub returning: Option<(SchemaRef, Vec<RecordBatch>)>,
}

/// Executes INSERT, UPDATE, DELETE or MERGE. The caller owns savepoint, retry and `finish`.
pub async fn execute(context: &StatementContext, statement: &ast::Statement) -> Result<DmlOutcome> {
    todo!()
}
/// The plan that EXPLAIN shows for a DML statement.
pub async fn explain(
    context: &StatementContext,
    statement: &ast::Statement,
) -> Result<datafusion::logical_expr::LogicalPlan> {
    todo!()
}
