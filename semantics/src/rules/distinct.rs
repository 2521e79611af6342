//! DataFusion's `single_distinct_aggregation_to_group_by`, restricted to aggregates that keep their
//! types.
//!
//! DataFusion computes `sum(b), count(DISTINCT a)` as the sum of the sums of `b` per value of `a`.
//! The sum of integers is a bigint and the sum of bigints a numeric, so the rewritten plan would
//! have another type than the statement, which is an internal error. Such aggregates are not
//! rewritten.

use datafusion::common::Result;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::{Aggregate, Expr, ExprSchemable, LogicalPlan};
use datafusion::optimizer::single_distinct_to_groupby::SingleDistinctToGroupBy;
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

/// The rule, in the place of DataFusion's rule.
#[derive(Debug, Default)]
pub struct DistinctAggregates {
    inner: SingleDistinctToGroupBy,
}

impl OptimizerRule for DistinctAggregates {
    fn name(&self) -> &str {
        self.inner.name()
    }
    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }
    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        match &plan {
            LogicalPlan::Aggregate(aggregate)
                if aggregate.aggr_expr.iter().any(is_distinct) && keeps_types(aggregate)? =>
            {
                self.inner.rewrite(plan, config)
            }
            _ => Ok(Transformed::no(plan)),
        }
    }
}

fn is_distinct(expr: &Expr) -> bool {
    matches!(expr, Expr::AggregateFunction(call) if call.params.distinct)
}

/// Whether each function of the aggregate has the same type over its own results.
fn keeps_types(aggregate: &Aggregate) -> Result<bool> {
    for expr in &aggregate.aggr_expr {
        let Expr::AggregateFunction(call) = expr else {
            return Ok(false);
        };
        if call.params.distinct {
            continue;
        }
        let data_type = expr.get_type(aggregate.input.schema())?;
        let again = call.func.return_type(std::slice::from_ref(&data_type));
        if !again.is_ok_and(|again| again == data_type) {
            return Ok(false);
        }
    }
    Ok(true)
}
