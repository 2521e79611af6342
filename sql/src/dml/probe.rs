//! INSERT … ON CONFLICT: finds the existing row that each proposed row conflicts with.
//!
//! The input has the proposed rows as columns `excluded.c`, all columns of the table in order. The
//! output appends `_rowid`, NULL where nothing conflicts, and if the statement updates, the
//! existing row's columns under the target's name. A conflict with a row that this very statement
//! inserts is not found here but by [`super::keys`].

use super::exec::in_place;
use crate::error::{convert, from_arrow, wrap};
use crate::names::ROW_ID;
use datafusion::arrow::array::{
    ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array, UInt64Array, new_null_array,
};
use datafusion::arrow::compute::{concat_batches, take};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DFSchema, DFSchemaRef, TableReference, internal_err};
use datafusion::error::Result as PlanResult;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, LogicalPlan, UserDefinedLogicalNodeCore};
use datafusion::physical_expr::{Distribution, EquivalenceProperties, OrderingRequirements};
use datafusion::physical_plan::execution_plan::{
    CardinalityEffect, ChildrenPropertiesMode, ReplaceChildrenOptions,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties,
    InputDistributionRequirements, Partitioning, PhysicalExpr, PlanProperties,
};
use futures::StreamExt;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use strandline_base::{Error, Result, RowId};
use strandline_engine::Statement;
use strandline_engine::catalog::TableDef;
use strandline_table::types::arrow_type;

/// What is looked for and where.
pub(super) struct Probe {
    /// the table
    pub table: Arc<TableDef>,
    /// indexes into `TableDef::keys`
    pub arbiters: Vec<usize>,
    /// whether the existing rows' columns are wanted
    pub fetch: bool,
    /// who asks
    pub statement: Arc<Statement>,
}

/// The logical node.
#[derive(Clone)]
pub(super) struct ProbeNode {
    probe: Arc<Probe>,
    input: LogicalPlan,
    target: TableReference,
    schema: DFSchemaRef,
}

impl ProbeNode {
    /// The node over `input`; existing columns are called `target.c`.
    pub fn new(probe: Arc<Probe>, input: LogicalPlan, target: TableReference) -> Result<Self> {
        let schema = Self::output_schema(&probe, &input, &target).map_err(convert)?;
        Ok(Self {
            probe,
            input,
            target,
            schema,
        })
    }

    fn output_schema(
        probe: &Probe,
        input: &LogicalPlan,
        target: &TableReference,
    ) -> PlanResult<DFSchemaRef> {
        let mut fields: Vec<_> = input
            .schema()
            .iter()
            .map(|(q, f)| (q.cloned(), f.clone()))
            .collect();
        fields.push((None, Arc::new(Field::new(ROW_ID, DataType::UInt64, true))));
        if probe.fetch {
            fields.extend(probe.table.columns.iter().map(|c| {
                (
                    Some(target.clone()),
                    Arc::new(existing_field(&c.name, c.sql_type)),
                )
            }));
        }
        Ok(Arc::new(DFSchema::new_with_metadata(
            fields,
            Default::default(),
        )?))
    }
}

fn existing_field(name: &str, sql_type: strandline_base::SqlType) -> Field {
    crate::semantics::types::field(name, sql_type, true)
}

impl Probe {
    fn explain(&self) -> String {
        let keys: Vec<_> = self
            .arbiters
            .iter()
            .map(|k| self.table.keys[*k].name.as_str())
            .collect();
        format!("{} keys=[{}]", self.table.name, keys.join(", "))
    }

    /// Appends to a batch of proposed rows what is known about each.
    fn extend(&self, proposed: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
        let mut found: Vec<Option<RowId>> = vec![None; proposed.num_rows()];
        for key in &self.arbiters {
            let ids = self
                .statement
                .find_by_key(&self.table, *key, &self.keys(*key, proposed)?)?;
            for (known, id) in found.iter_mut().zip(ids) {
                *known = known.or(id);
            }
        }
        let existing = self.existing(&mut found)?;
        let mut columns = proposed.columns().to_vec();
        columns.push(Arc::new(UInt64Array::from_iter(
            found.iter().map(|id| id.map(|r| r.0)),
        )));
        columns.extend(existing);
        let options = RecordBatchOptions::new().with_row_count(Some(proposed.num_rows()));
        RecordBatch::try_new_with_options(schema.clone(), columns, &options)
            .map_err(|e| Error::internal(format!("rows of ON CONFLICT do not fit: {e}")))
    }

    /// The columns of a key of the proposed rows.
    fn keys(&self, key: usize, proposed: &RecordBatch) -> Result<RecordBatch> {
        let positions: Vec<usize> = self.table.keys[key]
            .columns
            .iter()
            .map(|id| {
                self.table
                    .position(*id)
                    .ok_or_else(|| Error::internal("key column is gone"))
            })
            .collect::<Result<_>>()?;
        let fields: Vec<Field> = positions
            .iter()
            .map(|p| {
                let column = &self.table.columns[*p];
                Field::new(&column.name, arrow_type(column.sql_type), true)
            })
            .collect();
        let columns = positions
            .iter()
            .map(|p| proposed.column(*p).clone())
            .collect();
        RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map_err(|e| from_arrow(&e))
    }

    /// The existing rows' columns, NULL where `found` has none. Rows that cannot be fetched are
    /// this statement's own inserts and leave `found`.
    fn existing(&self, found: &mut [Option<RowId>]) -> Result<Vec<ArrayRef>> {
        if !self.fetch {
            return Ok(Vec::new());
        }
        let ids: Vec<RowId> = found.iter().flatten().copied().collect();
        let columns: Vec<_> = self.table.columns.iter().map(|c| c.id).collect();
        let mut rows = if ids.is_empty() {
            None
        } else {
            Some(self.statement.fetch(&self.table, &ids, &columns)?)
        };
        if rows.as_ref().is_some_and(|r| r.num_rows() != ids.len()) {
            rows = self.fetch_one_by_one(found, &columns)?;
        }
        let mut next = 0;
        let indices: UInt32Array = found
            .iter()
            .map(|id| {
                id.map(|_| {
                    next += 1;
                    next - 1
                })
            })
            .collect();
        (0..self.table.columns.len())
            .map(|p| match &rows {
                Some(rows) => take(rows.column(p), &indices, None).map_err(|e| from_arrow(&e)),
                None => {
                    let data_type = arrow_type(self.table.columns[p].sql_type);
                    Ok(new_null_array(&data_type, found.len()))
                }
            })
            .collect()
    }

    fn fetch_one_by_one(
        &self,
        found: &mut [Option<RowId>],
        columns: &[strandline_base::ColumnId],
    ) -> Result<Option<RecordBatch>> {
        let mut fetched = Vec::new();
        for known in found.iter_mut() {
            let Some(id) = *known else { continue };
            let row = self.statement.fetch(&self.table, &[id], columns)?;
            match row.num_rows() {
                0 => *known = None,
                _ => fetched.push(row),
            }
        }
        let Some(first) = fetched.first() else {
            return Ok(None);
        };
        concat_batches(&first.schema(), &fetched)
            .map(Some)
            .map_err(|e| from_arrow(&e))
    }
}

impl fmt::Debug for ProbeNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProbeNode({})", self.probe.explain())
    }
}

impl PartialEq for ProbeNode {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.probe, &other.probe) && self.input == other.input
    }
}

impl Eq for ProbeNode {}

impl PartialOrd for ProbeNode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (self == other).then_some(Ordering::Equal)
    }
}

impl Hash for ProbeNode {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.probe).hash(state);
        self.input.hash(state);
    }
}

impl UserDefinedLogicalNodeCore for ProbeNode {
    fn name(&self) -> &str {
        "ConflictProbe"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConflictProbe: {}", self.probe.explain())
    }

    fn with_exprs_and_inputs(
        &self,
        exprs: Vec<Expr>,
        inputs: Vec<LogicalPlan>,
    ) -> PlanResult<Self> {
        let ([], Ok([input])) = (exprs.as_slice(), <[LogicalPlan; 1]>::try_from(inputs)) else {
            return internal_err!("a conflict probe has one input and no expressions");
        };
        let schema = Self::output_schema(&self.probe, &input, &self.target)?;
        Ok(Self {
            input,
            schema,
            ..self.clone()
        })
    }
}

/// The physical node.
pub(super) struct ProbeExec {
    probe: Arc<Probe>,
    input: Arc<dyn ExecutionPlan>,
    ordering: Option<OrderingRequirements>,
    properties: Arc<PlanProperties>,
}

impl ProbeExec {
    /// The node over `input`.
    pub fn new(node: &ProbeNode, input: Arc<dyn ExecutionPlan>) -> Self {
        let ordering = input
            .output_ordering()
            .cloned()
            .map(OrderingRequirements::from);
        Self::over(
            node.probe.clone(),
            input,
            ordering,
            node.schema.inner().clone(),
        )
    }

    fn over(
        probe: Arc<Probe>,
        input: Arc<dyn ExecutionPlan>,
        ordering: Option<OrderingRequirements>,
        schema: SchemaRef,
    ) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(1),
            input.pipeline_behavior(),
            input.boundedness(),
        );
        Self {
            probe,
            input,
            ordering,
            properties: Arc::new(properties),
        }
    }
}

impl fmt::Debug for ProbeExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConflictProbeExec({})", self.probe.explain())
    }
}

impl DisplayAs for ProbeExec {
    fn fmt_as(&self, _t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConflictProbeExec: {}", self.probe.explain())
    }
}

impl ExecutionPlan for ProbeExec {
    fn name(&self) -> &str {
        "ConflictProbeExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        InputDistributionRequirements::new(vec![Distribution::SinglePartition])
    }

    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        vec![self.ordering.clone()]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::Equal
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> PlanResult<TreeNodeRecursion>,
    ) -> PlanResult<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        let Ok([input]) = <[Arc<dyn ExecutionPlan>; 1]>::try_from(children) else {
            return internal_err!("a conflict probe has one input");
        };
        let (probe, ordering) = (self.probe.clone(), self.ordering.clone());
        Ok(Arc::new(Self::over(probe, input, ordering, self.schema())))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        self.replace_children(
            children,
            ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute),
        )
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> PlanResult<SendableRecordBatchStream> {
        let input = self.input.execute(partition, context)?;
        let (probe, schema) = (self.probe.clone(), self.schema());
        let stream = input.map(move |batch| {
            let batch = batch?;
            in_place(|| probe.extend(&batch, &schema)).map_err(wrap)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            self.schema(),
            stream,
        )))
    }
}
