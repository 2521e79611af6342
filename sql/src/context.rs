//! CONTRACT (helper `sql-core` owns this file and replaces the bodies; `dml` and `copy` build on it).
#![allow(unused_variables, clippy::todo)]
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast;
use std::sync::Arc;
use strandline_base::Result;
use strandline_engine::Statement;
use strandline_engine::catalog::{Catalog, TableDef};

/// Everything one running SQL statement needs: what it sees, where it writes, how to plan.
pub struct StatementContext {
    /// DataFusion's state; its catalog resolves names at this statement's snapshot.
    pub state: SessionState,
    /// The engine's statement.
    pub statement: Arc<Statement>,
    /// The catalog the statement sees.
    pub catalog: Arc<Catalog>,
    /// Where unqualified names are created and looked up first.
    pub default_schema: String,
    /// Values of $1, $2, …
    pub parameters: Vec<ScalarValue>,
}

impl StatementContext {
    /// Resolves a table name; errors as PostgreSQL does (42P01; 42809 for a view).
    pub fn resolve_table(&self, name: &ast::ObjectName) -> Result<Arc<TableDef>> {
        todo!()
    }
    /// Plans a query (SELECT/VALUES/WITH…), parameters bound. Every table of ours also answers to
    /// a hidden column `_rowid` (UInt64) when it is named explicitly; `*` never includes it.
    pub async fn plan_query(&self, query: &ast::Query) -> Result<LogicalPlan> {
        todo!()
    }
    /// Runs a plan.
    pub async fn run(&self, plan: LogicalPlan) -> Result<(SchemaRef, SendableRecordBatchStream)> {
        todo!()
    }
    /// The statement's DEFAULT expression of each column (in table order) as a parsed expression;
    /// None: NULL. Identity columns are filled by `Db::next_identity`.
    pub fn defaults(&self, table: &TableDef) -> Result<Vec<Option<ast::Expr>>> {
        todo!()
    }
}
