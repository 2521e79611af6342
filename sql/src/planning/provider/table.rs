//! A table of ours as DataFusion's `TableProvider`: schema, pushdown decisions, scans. `DELETE` and
//! `UPDATE` through the provider are errors, because DataFusion loses conditions on the way to them
//! (apache/datafusion#24654).

use crate::parse::names::ROW_ID;
use crate::planning::owner::Owner;
use crate::planning::provider::access::Access;
use crate::planning::provider::filter::ScanFilters;
use crate::planning::provider::scan::ScanExec;
use crate::planning::provider::table_schema::fields;
use crate::planning::provider::{filter, selectivity, statistics};
use async_trait::async_trait;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{Constraint, Constraints, Statistics};
use datafusion::error::DataFusionError;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use strandline_base::{ColumnId, CommitTs, Error};
use strandline_engine::catalog::TableDef;
use strandline_engine::{RowFilter, Statement};
use strandline_semantics::error::raise;

/// A table at its owner's snapshot, or AS OF one moment.
pub struct Table {
    def: Arc<TableDef>,
    owner: Owner,
    as_of: Option<CommitTs>,
    schema: SchemaRef,
    row_id: bool,
    constraints: Constraints,
}

impl Table {
    /// `row_id`: with the hidden column `_rowid` last.
    pub fn new(def: Arc<TableDef>, owner: Owner, as_of: Option<CommitTs>, row_id: bool) -> Self {
        let mut fields = fields(&def);
        if row_id {
            fields.push(Field::new(ROW_ID, DataType::UInt64, false));
        }
        let constraints = primary_key(&def);
        let schema = Arc::new(Schema::new(fields));
        Self {
            def,
            owner,
            as_of,
            schema,
            row_id,
            constraints,
        }
    }
}

impl Table {
    /// Its definition.
    pub fn definition(&self) -> &Arc<TableDef> {
        &self.def
    }

    /// The same table, read by `owner`.
    pub fn of(&self, owner: Owner) -> Self {
        Self {
            def: self.def.clone(),
            owner,
            as_of: self.as_of,
            schema: self.schema.clone(),
            row_id: self.row_id,
            constraints: self.constraints.clone(),
        }
    }

    /// Whether it is read as of its owner's snapshot.
    pub fn is_present(&self) -> bool {
        self.as_of.is_none()
    }

    /// The approximate number of its rows and bytes of one row; None without an owner.
    pub fn stored_size(&self) -> Option<(usize, usize)> {
        let db = self.owner.known()?.transaction().db();
        let found = db.statistics(&self.def);
        let row_bytes = (found.bytes + found.inserted_bytes) / found.rows.max(1);
        let in_usize = |n| usize::try_from(n).unwrap_or(usize::MAX);
        Some((in_usize(found.rows), in_usize(row_bytes)))
    }

    /// The indexes that a scan for the columns `read` with `filters` may use; `statistics` are the
    /// table's.
    fn access(
        &self,
        state: &dyn Session,
        statement: &Arc<Statement>,
        filters: &[Expr],
        read: Vec<ColumnId>,
        statistics: &Statistics,
    ) -> Result<Option<Arc<Access>>, DataFusionError> {
        let has_any = !self.def.indexes.is_empty() || !self.def.keys.is_empty();
        if !has_any && self.as_of.is_none() {
            return Ok(None);
        }
        let Some(state) = state.as_any().downcast_ref::<SessionState>() else {
            return Ok(None);
        };
        let rows = statistics.num_rows.get_value().copied().unwrap_or_default();
        let access = Access::new(
            &self.def,
            statement,
            self.as_of,
            (filters, read),
            rows,
            state,
        );
        access.map_err(raise)
    }

    /// Whether the table may have an index over expressions or with a predicate. Such an index may
    /// serve conditions that the scan does not evaluate.
    fn may_have_expressions(&self) -> bool {
        // A scan of the past uses the present indexes.
        !self.is_present() || self.def.indexes.iter().any(|index| !index.is_plain())
    }

    /// The `filters` that the scan evaluates.
    fn exact(&self, filters: &[Expr]) -> Vec<Expr> {
        let filters = filters.iter();
        let exact = filters.filter(|expr| filter::is_pushable(expr, &self.def, &self.schema));
        exact.cloned().collect()
    }

    /// The stored columns of a projection, and those of filters besides.
    fn columns_read(&self, projection: &[usize], filters: &ScanFilters) -> Vec<ColumnId> {
        let columns = projection.iter().filter_map(|at| self.def.columns.get(*at));
        let mut read: Vec<ColumnId> = columns.map(|column| column.id).collect();
        for id in filters.rows.iter().flat_map(|filter| filter.columns()) {
            if !read.contains(id) {
                read.push(*id);
            }
        }
        read
    }

    /// The same table with its hidden column, read by `owner`.
    pub fn with_row_ids(&self, owner: Owner) -> Self {
        Self::new(self.def.clone(), owner, self.as_of, true)
    }
}

/// Whether an expression has a subquery or a column of an outer query.
fn has_query(expr: &Expr) -> bool {
    let found = expr.exists(|part| {
        Ok(matches!(
            part,
            Expr::ScalarSubquery(_)
                | Expr::InSubquery(_)
                | Expr::Exists(_)
                | Expr::SetComparison(_)
                | Expr::OuterReferenceColumn(..)
        ))
    });
    found.unwrap_or(true)
}

fn primary_key(def: &TableDef) -> Constraints {
    // A deferrable key may be in two rows within a transaction.
    let key = def.primary_key().filter(|key| !key.is_deferrable());
    let key = key.and_then(|key| {
        key.columns
            .iter()
            .map(|id| def.position(*id))
            .collect::<Option<Vec<_>>>()
    });
    Constraints::new_unverified(key.map(Constraint::PrimaryKey).into_iter().collect())
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Table({}.{})", self.def.schema, self.def.name)
    }
}

#[async_trait]
impl TableProvider for Table {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn constraints(&self) -> Option<&Constraints> {
        Some(&self.constraints)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>, DataFusionError> {
        let is_indexed = self.may_have_expressions();
        let is_local = |expr: &Expr| !expr.is_volatile() && !has_query(expr);
        let decide = |expr: &&Expr| match filter::is_pushable(expr, &self.def, &self.schema) {
            true => TableProviderFilterPushDown::Exact,
            // Indexes may find the rows for which it can be true.
            false if is_indexed && is_local(expr) => TableProviderFilterPushDown::Inexact,
            false => TableProviderFilterPushDown::Unsupported,
        };
        Ok(filters.iter().map(decide).collect())
    }

    fn statistics(&self) -> Option<Statistics> {
        let db = self.owner.known()?.transaction().db();
        Some(statistics::of_table(
            &db.statistics(&self.def),
            &self.def,
            self.row_id,
        ))
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        let all: Vec<usize> = (0..self.schema.fields().len()).collect();
        let projection = projection.unwrap_or(&all);
        let statement = self.owner.statement().map_err(raise)?;
        let statistics = self.statistics().unwrap_or_default();
        let exact = match self.may_have_expressions() {
            true => Cow::Owned(self.exact(filters)),
            false => Cow::Borrowed(filters),
        };
        let scan_filters = filter::compile(&exact, &self.def, &self.schema, state)?;
        let read = self.columns_read(projection, &scan_filters);
        let access = self.access(state, statement, filters, read, &statistics)?;
        let mut statistics = selectivity::filtered(statistics, &exact, &self.def);
        if let Some(found) = access.as_ref().and_then(|access| access.planned()) {
            statistics.num_rows = statistics
                .num_rows
                .min(&Precision::Inexact(found.rows.len()));
        }
        let scan = ScanExec::try_new(
            self.def.clone(),
            statement.clone(),
            self.as_of,
            &self.schema,
            projection,
            scan_filters,
            access,
            statistics,
            limit,
            state.config().target_partitions(),
        )?;
        Ok(Arc::new(scan))
    }

    async fn delete_from(
        &self,
        _state: &dyn Session,
        _filters: Vec<Expr>,
    ) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        Err(raise(Error::internal("DELETE reached the table provider")))
    }

    async fn update(
        &self,
        _state: &dyn Session,
        _assignments: Vec<(String, Expr)>,
        _filters: Vec<Expr>,
    ) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        Err(raise(Error::internal("UPDATE reached the table provider")))
    }
}
