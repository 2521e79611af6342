//! Shared methods of plan nodes: logical nodes over one input, physical nodes over one input (read
//! in one partition and in order), and physical nodes without input.

use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::execution_plan::EvaluationType;
use datafusion::physical_plan::{
    ExecutionPlan, ExecutionPlanProperties, Partitioning, PlanProperties,
};
use std::sync::Arc;

/// The comparisons of a logical node with a field `input`. Two nodes are equal only if their inputs
/// are equal and their fields `$identity` are the same object. They have no order.
macro_rules! compared_by {
    ($node:ident, $identity:ident) => {
        impl PartialEq for $node {
            fn eq(&self, other: &Self) -> bool {
                Arc::ptr_eq(&self.$identity, &other.$identity) && self.input == other.input
            }
        }

        impl Eq for $node {}

        impl PartialOrd for $node {
            fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
                (self == other).then_some(std::cmp::Ordering::Equal)
            }
        }
    };
}

pub(crate) use compared_by;

/// The methods of `UserDefinedLogicalNodeCore` for a node without expressions that has a field
/// `input`. `unchanged_schema`: its rows have the input's columns.
macro_rules! logical_input {
    () => {
        fn inputs(&self) -> Vec<&LogicalPlan> {
            vec![&self.input]
        }

        fn expressions(&self) -> Vec<Expr> {
            Vec::new()
        }
    };
    (unchanged_schema) => {
        fn schema(&self) -> &DFSchemaRef {
            self.input.schema()
        }

        fn with_exprs_and_inputs(
            &self,
            exprs: Vec<Expr>,
            inputs: Vec<LogicalPlan>,
        ) -> Result<Self> {
            let ([], Ok([input])) = (exprs.as_slice(), <[LogicalPlan; 1]>::try_from(inputs)) else {
                return internal_err!("{self:?} has one input and no expressions");
            };
            Ok(Self {
                input,
                ..self.clone()
            })
        }

        crate::planning::one_input::logical_input!();
    };
}

pub(crate) use logical_input;

/// The methods of `ExecutionPlan` for a node without expressions that has a field `input` and a
/// method `with_input`.
macro_rules! input_as_child {
    () => {
        fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
            vec![&self.input]
        }

        fn apply_expressions(
            &self,
            _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
        ) -> Result<TreeNodeRecursion> {
            Ok(TreeNodeRecursion::Continue)
        }

        fn replace_children(
            self: Arc<Self>,
            children: Vec<Arc<dyn ExecutionPlan>>,
            _options: ReplaceChildrenOptions,
        ) -> Result<Arc<dyn ExecutionPlan>> {
            match <[Arc<dyn ExecutionPlan>; 1]>::try_from(children) {
                Ok([input]) => Ok(Arc::new(self.with_input(input))),
                Err(_) => internal_err!("{} has one input", self.name()),
            }
        }

        fn with_new_children(
            self: Arc<Self>,
            children: Vec<Arc<dyn ExecutionPlan>>,
        ) -> Result<Arc<dyn ExecutionPlan>> {
            let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
            self.replace_children(children, options)
        }
    };
}

pub(crate) use input_as_child;

/// The methods of `ExecutionPlan` for a node that returns the rows of its field `input` unchanged
/// and only changes their known properties. It has a method `with_input`.
macro_rules! hands_on_its_input {
    () => {
        fn benefits_from_input_partitioning(&self) -> Vec<bool> {
            vec![false]
        }

        crate::planning::one_input::input_as_child!();

        fn execute(
            &self,
            partition: usize,
            context: Arc<TaskContext>,
        ) -> Result<SendableRecordBatchStream> {
            self.input.execute(partition, context)
        }
    };
}

pub(crate) use hands_on_its_input;

/// The methods of `ExecutionPlan` for a node with the fields `input`, `ordering` and `properties`
/// and a method `with_input`; `$effect` is the node's `CardinalityEffect`.
macro_rules! one_input {
    ($effect:expr) => {
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
            $effect
        }

        crate::planning::one_input::input_as_child!();
    };
}

pub(crate) use one_input;

/// The methods of `ExecutionPlan` for a node without inputs that has a field `properties`;
/// `no_expressions`: it has no expressions either.
macro_rules! no_input {
    () => {
        fn properties(&self) -> &Arc<PlanProperties> {
            &self.properties
        }

        fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
            Vec::new()
        }

        fn replace_children(
            self: Arc<Self>,
            _children: Vec<Arc<dyn ExecutionPlan>>,
            _options: ReplaceChildrenOptions,
        ) -> datafusion::common::Result<Arc<dyn ExecutionPlan>> {
            Ok(self)
        }

        fn with_new_children(
            self: Arc<Self>,
            children: Vec<Arc<dyn ExecutionPlan>>,
        ) -> datafusion::common::Result<Arc<dyn ExecutionPlan>> {
            let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep);
            self.replace_children(children, options)
        }
    };
    (no_expressions) => {
        fn apply_expressions(
            &self,
            _f: &mut dyn FnMut(
                &Arc<dyn PhysicalExpr>,
            ) -> datafusion::common::Result<TreeNodeRecursion>,
        ) -> datafusion::common::Result<TreeNodeRecursion> {
            Ok(TreeNodeRecursion::Continue)
        }

        crate::planning::one_input::no_input!();
    };
}

pub(crate) use no_input;

/// The properties of a node that returns its input's rows in their order, in one partition.
pub(crate) fn as_its_input(input: &Arc<dyn ExecutionPlan>) -> Arc<PlanProperties> {
    let mut equivalences = EquivalenceProperties::new(input.schema());
    if let Some(known) = input.output_ordering() {
        equivalences.add_ordering(known.iter().cloned());
    }
    let properties = PlanProperties::new(
        equivalences,
        Partitioning::UnknownPartitioning(1),
        input.pipeline_behavior(),
        input.boundedness(),
    );
    Arc::new(properties.with_evaluation_type(EvaluationType::Lazy))
}
