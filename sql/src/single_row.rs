//! Scalar subqueries that refer to the outer query and are not aggregates, such as
//! `UPDATE t SET a = (SELECT x FROM u WHERE u.id = t.id)`.
//!
//! DataFusion plans a correlated scalar subquery only if it is an aggregate, because its join could
//! otherwise double rows. This rule makes it one: `single_value` returns the only value of its
//! group, NULL without rows, and fails with 21000 on a second row, as PostgreSQL does. A subquery
//! that ends in `[ORDER BY …] LIMIT 1` becomes `first_value(c ORDER BY …)`.

use crate::error::wrap;
use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, Result, ScalarValue};
use datafusion::functions_aggregate::first_last::first_value;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, Aggregate, AggregateUDF, AggregateUDFImpl, Expr, FetchType, Filter, LogicalPlan,
    Projection, Signature, SkipType, Subquery, Volatility,
};
use datafusion::optimizer::AnalyzerRule;
use std::sync::{Arc, LazyLock};
use strandline_base::{Error, SqlState};

/// Turns correlated scalar subqueries into aggregates.
#[derive(Debug, Default)]
pub struct SingleRowSubqueries;

impl AnalyzerRule for SingleRowSubqueries {
    fn name(&self) -> &str {
        "single_row_subqueries"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|plan| plan.map_expressions(rewrite))
            .map(|t| t.data)
    }
}

fn rewrite(expr: Expr) -> Result<Transformed<Expr>> {
    expr.transform_up(|expr| match expr {
        Expr::ScalarSubquery(subquery)
            if !subquery.outer_ref_columns.is_empty()
                && !is_aggregate(&subquery.subquery)
                && subquery.subquery.schema().fields().len() == 1 =>
        {
            let plan = Arc::new(aggregated(subquery.subquery.as_ref().clone())?);
            Ok(Transformed::yes(Expr::ScalarSubquery(Subquery {
                subquery: plan,
                ..subquery
            })))
        }
        other => Ok(Transformed::no(other)),
    })
}

/// Whether a plan is an aggregate of one row, which DataFusion's planner takes.
fn is_aggregate(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(Projection { input, .. })
        | LogicalPlan::Filter(Filter { input, .. }) => is_aggregate(input),
        LogicalPlan::SubqueryAlias(alias) => is_aggregate(&alias.input),
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        _ => false,
    }
}

/// `SELECT aggregate(c) AS c` over a plan of one column.
fn aggregated(plan: LogicalPlan) -> Result<LogicalPlan> {
    static FUNCTION: LazyLock<Arc<AggregateUDF>> =
        LazyLock::new(|| Arc::new(AggregateUDF::from(SingleValue::default())));
    let (qualifier, field) = plan.schema().qualified_field(0);
    let (qualifier, name) = (qualifier.cloned(), field.name().clone());
    let column = Expr::Column(Column::new(qualifier.clone(), name.clone()));
    let (input, value) = match first_of(&plan, &column)? {
        Some(first) => first,
        None => (Arc::new(plan), FUNCTION.call(vec![column])),
    };
    let result = Expr::Column(Column::from_name(value.schema_name().to_string()));
    let aggregate = Aggregate::try_new(input, Vec::new(), vec![value])?;
    let named = result.alias_qualified(qualifier, name);
    let input = Arc::new(LogicalPlan::Aggregate(aggregate));
    Projection::try_new(vec![named], input).map(LogicalPlan::Projection)
}

/// For a plan that ends in LIMIT 1: what is below it, and the aggregate that finds the row.
fn first_of(plan: &LogicalPlan, column: &Expr) -> Result<Option<(Arc<LogicalPlan>, Expr)>> {
    let LogicalPlan::Limit(limit) = plan else {
        return Ok(None);
    };
    let one = matches!(limit.get_fetch_type()?, FetchType::Literal(Some(1)))
        && matches!(limit.get_skip_type()?, SkipType::Literal(0));
    if !one {
        return Ok(None);
    }
    let mut value = column.clone();
    let mut input = &limit.input;
    if let LogicalPlan::Projection(projection) = input.as_ref()
        && matches!(projection.input.as_ref(), LogicalPlan::Sort(_))
    {
        value = projection.expr[0].clone().unalias();
        input = &projection.input;
    }
    let order = match input.as_ref() {
        LogicalPlan::Sort(sort) => {
            input = &sort.input;
            sort.expr.clone()
        }
        _ => Vec::new(),
    };
    Ok(Some((input.clone(), first_value(value, order))))
}

/// The only value of a group.
#[derive(Debug, PartialEq, Eq, Hash)]
struct SingleValue {
    signature: Signature,
}

impl Default for SingleValue {
    fn default() -> Self {
        Self {
            signature: Signature::any(1, Volatility::Immutable),
        }
    }
}

impl AggregateUDFImpl for SingleValue {
    fn name(&self) -> &str {
        "single_value"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        Ok(arg_types[0].clone())
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let value = ScalarValue::try_from(args.return_field.data_type())?;
        Ok(Box::new(Single { value, rows: 0 }))
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let value = args
            .return_field
            .as_ref()
            .clone()
            .with_name(format!("{}[value]", args.name));
        let rows = Field::new(format!("{}[rows]", args.name), DataType::Int64, true);
        Ok(vec![Arc::new(value.with_nullable(true)), Arc::new(rows)])
    }
}

/// The value so far and the number of rows, 0 or 1.
#[derive(Debug)]
struct Single {
    value: ScalarValue,
    rows: i64,
}

impl Single {
    fn take(&mut self, values: &ArrayRef, row: usize) -> Result<()> {
        if self.rows > 0 {
            return Err(wrap(Error::invalid(
                SqlState::CARDINALITY_VIOLATION,
                "more than one row returned by a subquery used as an expression",
            )));
        }
        self.value = ScalarValue::try_from_array(values, row)?;
        self.rows = 1;
        Ok(())
    }
}

impl Accumulator for Single {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        (0..values[0].len()).try_for_each(|row| self.take(&values[0], row))
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let rows = states[1].as_primitive::<Int64Type>();
        for row in 0..rows.len() {
            if rows.is_valid(row) && rows.value(row) > 0 {
                self.take(&states[0], row)?;
            }
        }
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![
            self.value.clone(),
            ScalarValue::Int64(Some(self.rows)),
        ])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(self.value.clone())
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.value.size() - size_of::<ScalarValue>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::convert;
    use datafusion::arrow::util::pretty::pretty_format_batches;
    use datafusion::execution::SessionStateBuilder;
    use datafusion::prelude::{SessionConfig, SessionContext};

    async fn run(sql: &str) -> Result<String, Error> {
        let state = SessionStateBuilder::new()
            .with_default_features()
            .with_config(SessionConfig::new().with_target_partitions(2))
            .with_analyzer_rule(Arc::new(SingleRowSubqueries))
            .build();
        let context = SessionContext::new_with_state(state);
        for table in [
            "CREATE TABLE t AS VALUES (1), (2), (3)",
            "CREATE TABLE u AS VALUES (1, 'a'), (2, NULL), (9, 'x'), (9, 'y')",
        ] {
            context.sql(table).await.unwrap().collect().await.unwrap();
        }
        let batches = context
            .sql(sql)
            .await
            .map_err(convert)?
            .collect()
            .await
            .map_err(convert)?;
        Ok(pretty_format_batches(&batches).unwrap().to_string())
    }

    #[tokio::test]
    async fn one_row_is_its_value_and_none_is_null() {
        let shown = run(
            "SELECT column1, coalesce((SELECT u.column2 FROM u WHERE u.column1 = \
                         t.column1), '-') AS c FROM t ORDER BY 1",
        )
        .await
        .unwrap();
        let cells: Vec<_> = shown
            .split_whitespace()
            .filter(|w| w.len() == 1 && *w != "|")
            .collect();
        assert_eq!(cells, ["c", "1", "a", "2", "-", "3", "-"], "{shown}");
    }

    #[tokio::test]
    async fn limit_one_takes_the_first_row() {
        for (order, expected) in [("u.column2 DESC", "y"), ("u.column2", "x")] {
            let sql = format!(
                "SELECT (SELECT u.column2 FROM u WHERE u.column1 = t.column1 * 3 \
                 ORDER BY {order} LIMIT 1) AS c FROM t WHERE column1 = 3"
            );
            let shown = run(&sql).await.unwrap();
            assert!(shown.contains(&format!("| {expected} |")), "{shown}");
        }
    }

    #[tokio::test]
    async fn two_rows_are_an_error() {
        let sql = "SELECT (SELECT u.column2 FROM u WHERE u.column1 = t.column1 * 3 + 6) FROM t";
        let error = run(sql).await.unwrap_err();
        assert_eq!(error.sqlstate(), SqlState::CARDINALITY_VIOLATION, "{error}");
    }
}
