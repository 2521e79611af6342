//! Grouping sets over expressions: `GROUP BY ROLLUP (a + 1, b)`.
//!
//! DataFusion's rules rewrite a plan's expressions and keep the names of the nodes' columns.
//! Grouping sets are an exception: the rules rewrite the expressions inside them without keeping
//! names, so that nodes above no longer find them. Here the expressions are computed below the
//! groups, before any other rule, and the sets have columns only.

use super::any_node;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::utils::grouping_set_to_exprlist;
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan, LogicalPlanBuilder};
use datafusion::optimizer::AnalyzerRule;
use std::sync::Arc;

/// The function whose arguments are expressions of the sets.
const GROUPING: &str = "grouping";

/// The rule.
#[derive(Debug)]
pub struct ColumnsOfGroupingSets;

impl AnalyzerRule for ColumnsOfGroupingSets {
    fn name(&self) -> &str {
        "columns_of_grouping_sets"
    }
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        if !any_node(&plan, |node| Ok(has_sets(node)))? {
            return Ok(plan);
        }
        let computed = plan.transform_up_with_subqueries(|node| match node {
            LogicalPlan::Aggregate(aggregate) if is_of_sets(&aggregate) => compute_below(aggregate),
            other => Ok(Transformed::no(other)),
        })?;
        Ok(computed.data)
    }
}

fn has_sets(node: &LogicalPlan) -> bool {
    matches!(node, LogicalPlan::Aggregate(aggregate) if is_of_sets(aggregate))
}

fn is_of_sets(aggregate: &Aggregate) -> bool {
    matches!(aggregate.group_expr.as_slice(), [Expr::GroupingSet(_)])
}

fn compute_below(aggregate: Aggregate) -> Result<Transformed<LogicalPlan>> {
    let given = aggregate.input.schema().field_names();
    let mut computed: Vec<Expr> = Vec::new();
    for expr in grouping_set_to_exprlist(&aggregate.group_expr)? {
        let is_new = !matches!(expr, Expr::Column(_)) && !computed.contains(expr);
        if is_new && !given.contains(&expr.schema_name().to_string()) {
            computed.push(expr.clone());
        }
    }
    if computed.is_empty() {
        return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
    }
    let as_column = |expr: Expr| {
        Ok(match computed.contains(&expr) {
            true => {
                let name = expr.schema_name().to_string();
                let column = Expr::Column(Column::from_name(name));
                Transformed::new(column, true, TreeNodeRecursion::Jump)
            }
            false => Transformed::no(expr),
        })
    };
    let groups = aggregate.group_expr.into_iter();
    let groups = groups.map(|set| Ok(set.transform_down(as_column)?.data));
    let groups = groups.collect::<Result<Vec<_>>>()?;
    let results = aggregate.aggr_expr.into_iter().map(|result| match &result {
        Expr::AggregateFunction(call) if call.func.name() == GROUPING => {
            Ok(result.transform_down(as_column)?.data)
        }
        _ => Ok(result),
    });
    let results = results.collect::<Result<Vec<_>>>()?;
    let columns = aggregate.input.schema().columns().into_iter();
    let columns = columns.map(Expr::Column);
    let named = computed
        .iter()
        .map(|expr| expr.clone().alias(expr.schema_name().to_string()));
    let input = LogicalPlanBuilder::from(aggregate.input)
        .project(columns.chain(named))?
        .build()?;
    let aggregate = Aggregate::try_new(Arc::new(input), groups, results)?;
    Ok(Transformed::yes(LogicalPlan::Aggregate(aggregate)))
}
