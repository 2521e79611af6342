//! GROUP BY, DISTINCT and aggregates.

use super::demand::Demand;
use super::{Compiler, texts};
use crate::execution::short_plans::node::Node;
use crate::execution::short_plans::operators::{Aggregate, Call};
use datafusion::common::DFSchema;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{self as logical, Expr};
use datafusion::physical_expr::aggregate::{LoweredAggregate, LoweredAggregateBuilder};
use strandline_semantics::functions::as_signed;

impl Compiler<'_> {
    pub(super) fn aggregate(
        &mut self,
        aggregate: &logical::Aggregate,
        demand: &Demand,
    ) -> Option<Node> {
        // The rows with one value of a grouping column are those of its groups.
        let groups = &aggregate.group_expr;
        let demand = demand.through(|column| {
            let at = aggregate.schema.maybe_index_of_column(column)?;
            match as_signed(groups.get(at)?) {
                Expr::Column(column) => Some(column.clone()),
                _ => None,
            }
        });
        let input = self.plan(&aggregate.input, &demand.without_first(), Vec::new())?;
        let schema = aggregate.input.schema();
        let calls = aggregate
            .aggr_expr
            .iter()
            .map(|call| self.call(call, schema));
        let calls = calls.collect::<Option<Vec<_>>>()?;
        let estimate = match groups.is_empty() {
            true => 1,
            false => input.estimate,
        };
        let all: Vec<Expr> = groups.iter().chain(&aggregate.aggr_expr).cloned().collect();
        let operator = Aggregate {
            input,
            groups: self.expressions(groups, schema)?,
            calls,
            schema: aggregate.schema.inner().clone(),
            text: texts(&all, ", "),
        };
        Some(self.node(operator, estimate))
    }

    fn call(&mut self, call: &Expr, schema: &DFSchema) -> Option<Call> {
        let call = self.with_slots(call)?;
        let context = PhysicalPlanningContext::default();
        let lowered = LoweredAggregateBuilder::new(
            &call,
            schema,
            schema.as_arrow(),
            self.state.execution_props(),
            &context,
        );
        let LoweredAggregate {
            aggregate,
            filter,
            order_bys,
        } = lowered.build().ok()?;
        // Some functions have no accumulator of one group for every call.
        let is_known = order_bys.is_empty() && aggregate.create_accumulator().is_ok();
        is_known.then(|| Call {
            args: aggregate.expressions(),
            function: aggregate,
            filter,
        })
    }
}
