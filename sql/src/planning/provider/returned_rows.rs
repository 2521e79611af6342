//! The rows that a part of a statement has returned, as a table of a plan.

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::Session;
use datafusion::datasource::{MemTable, TableProvider, TableType};
use datafusion::logical_expr::Expr;
use datafusion::physical_plan::ExecutionPlan;
use std::sync::Arc;

/// The rows of a part; none in a plan that is kept.
#[derive(Debug)]
pub(crate) struct ReturnedRows {
    table: MemTable,
    part: usize,
}

impl ReturnedRows {
    /// The rows of the part with this number, from 0.
    pub fn new(
        part: usize,
        schema: SchemaRef,
        rows: Vec<RecordBatch>,
    ) -> datafusion::error::Result<Self> {
        let table = MemTable::try_new(schema, vec![rows])?;
        Ok(Self { table, part })
    }

    /// The number of the part.
    pub fn part(&self) -> usize {
        self.part
    }
}

#[async_trait]
impl TableProvider for ReturnedRows {
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
