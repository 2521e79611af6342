//! DataFusion's `eliminate_join` and `replace_distinct_aggregate`, kept from keys that are none.
//!
//! A table's key determines the other columns of its row, also where joins have repeated the row.
//! DataFusion takes it for a key of every GROUP BY and DISTINCT that has it among its columns. But
//! groups of one row differ if it was joined with different rows and their columns are grouped by,
//! too: the key comes up several times then. A join with such groups must not become a semi join,
//! and a DISTINCT over them must stay.

use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{Dependency, Result};
use datafusion::logical_expr::{Aggregate, Distinct, Expr, LogicalPlan};
use datafusion::optimizer::eliminate_join::EliminateJoin;
use datafusion::optimizer::replace_distinct_aggregate::ReplaceDistinctWithAggregate;
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

/// `eliminate_join`; it stands where DataFusion's stood.
#[derive(Debug, Default)]
pub struct NeedlessJoins {
    inner: EliminateJoin,
}

impl OptimizerRule for NeedlessJoins {
    fn name(&self) -> &str {
        self.inner.name()
    }
    fn apply_order(&self) -> Option<ApplyOrder> {
        self.inner.apply_order()
    }
    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        match has_false_key(&plan)? {
            true => Ok(Transformed::no(plan)),
            false => self.inner.rewrite(plan, config),
        }
    }
}

/// `replace_distinct_aggregate`; it stands where DataFusion's stood.
#[derive(Debug, Default)]
pub struct DistinctRows {
    inner: ReplaceDistinctWithAggregate,
}

impl OptimizerRule for DistinctRows {
    fn name(&self) -> &str {
        self.inner.name()
    }
    fn apply_order(&self) -> Option<ApplyOrder> {
        self.inner.apply_order()
    }
    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        if let LogicalPlan::Distinct(Distinct::All(input)) = &plan
            && !input.schema().fields().is_empty()
            && has_false_key(input)?
        {
            let columns = input.schema().columns();
            let columns = columns.into_iter().map(Expr::Column).collect();
            let groups = Aggregate::try_new(input.clone(), columns, Vec::new())?;
            return Ok(Transformed::yes(LogicalPlan::Aggregate(groups)));
        }
        self.inner.rewrite(plan, config)
    }
}

/// Whether a plan, its subqueries included, groups by a key of joined rows and by more.
fn has_false_key(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::Aggregate(aggregate) = node {
            found |= takes_false_key(aggregate);
        }
        Ok(match found {
            true => TreeNodeRecursion::Stop,
            false => TreeNodeRecursion::Continue,
        })
    })?;
    Ok(found)
}

/// Whether the groups have the key of a row that may be in several of them.
fn takes_false_key(aggregate: &Aggregate) -> bool {
    let schema = aggregate.input.schema();
    let fields = schema.field_names();
    let groups: Vec<Option<usize>> = aggregate
        .group_expr
        .iter()
        .map(|group| {
            let name = group.schema_name().to_string();
            fields.iter().position(|field| *field == name)
        })
        .collect();
    schema.functional_dependencies().iter().any(|key| {
        let determines = |group: &Option<usize>| {
            group.is_some_and(|at| {
                key.source_indices.contains(&at) || key.target_indices.contains(&at)
            })
        };
        let is_there = |at: &usize| groups.contains(&Some(*at));
        key.mode == Dependency::Multi
            && key.source_indices.iter().all(is_there)
            && !groups.iter().all(determines)
    })
}
