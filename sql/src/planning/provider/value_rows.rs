//! The rows of an INSERT's VALUES as a table of a plan.

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::Session;
use datafusion::datasource::{MemTable, TableProvider, TableType};
use datafusion::logical_expr::Expr;
use datafusion::physical_plan::ExecutionPlan;
use std::sync::Arc;

/// The rows of VALUES in a plan, which belong to the text and to no statement.
#[derive(Debug)]
pub(crate) struct ValueRows {
    table: MemTable,
    rows: RecordBatch,
}

impl ValueRows {
    pub fn new(schema: SchemaRef, batch: RecordBatch) -> datafusion::error::Result<Self> {
        let table = MemTable::try_new(schema, vec![vec![batch.clone()]])?;
        Ok(Self { table, rows: batch })
    }

    /// The rows.
    pub fn rows(&self) -> &RecordBatch {
        &self.rows
    }

    /// The number of rows.
    pub fn count(&self) -> usize {
        self.rows.num_rows()
    }
}

#[async_trait]
impl TableProvider for ValueRows {
    fn schema(&self) -> SchemaRef {
        self.table.schema()
    }

    fn table_type(&self) -> TableType {
        self.table.table_type()
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> datafusion::error::Result<Arc<dyn ExecutionPlan>> {
        self.table.scan(state, projection, filters, limit).await
    }
}
