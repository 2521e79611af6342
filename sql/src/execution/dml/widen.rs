//! A plan node that appends columns to its rows, batch by batch, in one partition and in order.
//!
//! A [`Widening`] computes the appended columns. The node requires the sort order that its input
//! has already. Its output has the same order, or is sorted by an appended column.

use crate::planning::one_input::{compared_by, logical_input, one_input};
use crate::planning::owner::Owner;
use crate::runtime::blocking::in_place;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::SortOptions;
use datafusion::arrow::datatypes::{Field, SchemaRef};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DFSchema, DFSchemaRef, Result, TableReference, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, Extension, LogicalPlan, UserDefinedLogicalNodeCore};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{
    Distribution, EquivalenceProperties, LexOrdering, OrderingRequirements, PhysicalSortExpr,
};
use datafusion::physical_plan::execution_plan::{
    CardinalityEffect, ChildrenPropertiesMode, ReplaceChildrenOptions,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties,
    InputDistributionRequirements, Partitioning, PhysicalExpr, PlanProperties,
};
use futures::StreamExt;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use strandline_semantics::error::{convert, raise};

/// The computation of appended columns.
pub(super) trait Widening: Send + Sync {
    /// the node's name
    fn name(&self) -> &'static str;
    /// the text in EXPLAIN after the name
    fn explain(&self) -> String;
    /// the fields appended, with their qualifiers
    fn fields(&self) -> Vec<(Option<TableReference>, Field)>;
    /// The sort order that the input must have. Empty: its present order. That is not enough for an
    /// ORDER BY: a plan knows no order of a column that is constant in each part of a union.
    fn input_order(&self) -> &[SortKey] {
        &[]
    }
    /// the appended field by which the rows are sorted, ascending, if any
    fn sorted_by(&self) -> Option<usize> {
        None
    }
    /// A copy at its start, for `owner`.
    fn of(&self, owner: Owner) -> Arc<dyn Widening>;
    /// Appends the fields to the batch; the result has `schema`. It may block.
    fn extend(
        &self,
        batch: &RecordBatch,
        schema: &SchemaRef,
    ) -> strandline_base::Result<RecordBatch>;
}

/// A sort key of the input.
#[derive(Clone)]
pub(crate) struct SortKey {
    /// its name
    pub field: String,
    /// direction and position of NULLs
    pub options: SortOptions,
}

/// The logical node. A node is equal only to itself.
#[derive(Clone)]
pub(super) struct WidenNode {
    widening: Arc<dyn Widening>,
    input: LogicalPlan,
    schema: DFSchemaRef,
}

impl WidenNode {
    /// A plan of the node over `input`.
    pub fn plan(
        widening: Arc<dyn Widening>,
        input: LogicalPlan,
    ) -> strandline_base::Result<LogicalPlan> {
        let schema = output_schema(widening.as_ref(), &input).map_err(convert)?;
        let node = Arc::new(Self {
            widening,
            input,
            schema,
        });
        Ok(LogicalPlan::Extension(Extension { node }))
    }

    /// What is appended, the input, and the schema of both.
    pub fn parts(&self) -> (&Arc<dyn Widening>, &LogicalPlan, &SchemaRef) {
        (&self.widening, &self.input, self.schema.inner())
    }

    /// The same node for `owner`.
    pub fn of(&self, owner: &Owner) -> Self {
        Self {
            widening: self.widening.of(owner.clone()),
            input: self.input.clone(),
            schema: self.schema.clone(),
        }
    }
}

fn output_schema(widening: &dyn Widening, input: &LogicalPlan) -> Result<DFSchemaRef> {
    let mut fields: Vec<_> = input
        .schema()
        .iter()
        .map(|(q, f)| (q.cloned(), f.clone()))
        .collect();
    fields.extend(
        widening
            .fields()
            .into_iter()
            .map(|(q, field)| (q, Arc::new(field))),
    );
    Ok(Arc::new(DFSchema::new_with_metadata(
        fields,
        Default::default(),
    )?))
}

impl fmt::Debug for WidenNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.widening.name(), self.widening.explain())
    }
}

compared_by!(WidenNode, widening);

impl Hash for WidenNode {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.widening).hash(state);
        self.input.hash(state);
    }
}

impl UserDefinedLogicalNodeCore for WidenNode {
    fn name(&self) -> &str {
        self.widening.name()
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.widening.name(), self.widening.explain())
    }

    logical_input!();

    fn with_exprs_and_inputs(&self, exprs: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        let ([], Ok([input])) = (exprs.as_slice(), <[LogicalPlan; 1]>::try_from(inputs)) else {
            return internal_err!("{self:?} has one input and no expressions");
        };
        let schema = output_schema(self.widening.as_ref(), &input)?;
        Ok(Self {
            input,
            schema,
            ..self.clone()
        })
    }
}

/// The physical node.
pub(super) struct WidenExec {
    widening: Arc<dyn Widening>,
    input: Arc<dyn ExecutionPlan>,
    ordering: Option<OrderingRequirements>,
    properties: Arc<PlanProperties>,
}

impl WidenExec {
    /// The node over `input`.
    pub fn new(node: &WidenNode, input: Arc<dyn ExecutionPlan>) -> Self {
        let schema = input.schema();
        let keys = node.widening.input_order().iter().filter_map(|key| {
            let column = Column::new_with_schema(&key.field, &schema).ok()?;
            Some(PhysicalSortExpr::new(Arc::new(column), key.options))
        });
        let asked_for = LexOrdering::new(keys);
        let ordering = asked_for
            .or_else(|| input.output_ordering().cloned())
            .map(OrderingRequirements::from);
        Self::over(
            node.widening.clone(),
            input,
            ordering,
            node.schema.inner().clone(),
        )
    }

    fn over(
        widening: Arc<dyn Widening>,
        input: Arc<dyn ExecutionPlan>,
        ordering: Option<OrderingRequirements>,
        schema: SchemaRef,
    ) -> Self {
        let mut equivalences = EquivalenceProperties::new(schema.clone());
        if let Some(appended) = widening.sorted_by() {
            let index = input.schema().fields().len() + appended;
            let column = Arc::new(Column::new(schema.field(index).name(), index));
            equivalences.add_ordering([PhysicalSortExpr::new_default(column)]);
        } else if let Some(known) = input.output_ordering() {
            // The input's columns keep their positions.
            equivalences.add_ordering(known.iter().cloned());
        }
        let properties = PlanProperties::new(
            equivalences,
            Partitioning::UnknownPartitioning(1),
            input.pipeline_behavior(),
            input.boundedness(),
        );
        Self {
            widening,
            input,
            ordering,
            properties: Arc::new(properties),
        }
    }

    fn with_input(&self, input: Arc<dyn ExecutionPlan>) -> Self {
        let (widening, ordering) = (self.widening.clone(), self.ordering.clone());
        Self::over(widening, input, ordering, self.schema())
    }
}

impl fmt::Debug for WidenExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}Exec({})",
            self.widening.name(),
            self.widening.explain()
        )
    }
}

impl DisplayAs for WidenExec {
    fn fmt_as(&self, _t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}Exec: {}",
            self.widening.name(),
            self.widening.explain()
        )
    }
}

impl ExecutionPlan for WidenExec {
    fn name(&self) -> &str {
        self.widening.name()
    }

    one_input!(CardinalityEffect::Equal);

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let input = self.input.execute(partition, context)?;
        let (widening, schema) = (self.widening.clone(), self.schema());
        let stream = input.map(move |batch| {
            let batch = batch?;
            in_place(|| widening.extend(&batch, &schema)).map_err(raise)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            self.schema(),
            stream,
        )))
    }
}
