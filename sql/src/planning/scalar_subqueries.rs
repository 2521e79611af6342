//! Scalar subqueries that refer to the outer query and are not aggregates, such as `UPDATE t SET a
//! = (SELECT x FROM u WHERE u.id = t.id)`.
//!
//! DataFusion plans a correlated scalar subquery only if it is an aggregate, because its join could
//! otherwise duplicate rows. This rule makes it one: `single_value` returns a value of its group
//! and the number of its rows. `only_value` around the subquery returns the value, NULL without
//! rows, and fails with 21000 for several rows, as PostgreSQL does. It is outside the subquery,
//! because groups without an outer row may have several rows. A subquery that ends in `[ORDER BY …]
//! LIMIT 1` becomes `first_value(c ORDER BY …)`.

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int64Array, StructArray};
use datafusion::arrow::compute::nullif;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Fields, Int64Type};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result, ScalarValue, internal_err};
use datafusion::functions_aggregate::first_last::first_value;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, Aggregate, AggregateUDF, AggregateUDFImpl, ColumnarValue, Expr, FetchType, Filter,
    LogicalPlan, Projection, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, SkipType, Subquery, Volatility,
};
use datafusion::optimizer::AnalyzerRule;
use std::sync::{Arc, LazyLock};
use strandline_base::{Error, SqlState};
use strandline_semantics::error::raise;

/// Turns correlated scalar subqueries into aggregates.
#[derive(Debug, Default)]
pub struct SingleRowSubqueries;

impl AnalyzerRule for SingleRowSubqueries {
    fn name(&self) -> &str {
        "single_row_subqueries"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        if !has_scalar_subqueries(&plan)? {
            return Ok(plan);
        }
        plan.transform_up_with_subqueries(|plan| {
            let names = NamePreserver::new(&plan);
            plan.map_expressions(|expr| {
                let name = names.save(&expr);
                Ok(rewrite(expr)?.update_data(|expr| name.restore(expr)))
            })
        })
        .map(|t| t.data)
    }
}

fn has_scalar_subqueries(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            found |= expr.exists(|part| Ok(matches!(part, Expr::ScalarSubquery(_))))?;
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    Ok(found)
}

fn rewrite(expr: Expr) -> Result<Transformed<Expr>> {
    expr.transform_up(|expr| match &expr {
        Expr::ScalarSubquery(subquery) => match as_aggregate(subquery)? {
            Some((aggregate, counted)) => {
                let value = Expr::ScalarSubquery(aggregate);
                let value = if counted { only_value(value) } else { value };
                Ok(Transformed::yes(value))
            }
            None => Ok(Transformed::no(expr)),
        },
        _ => Ok(Transformed::no(expr)),
    })
}

/// A correlated scalar subquery as an aggregate, and whether it counts its rows. `None` if it needs
/// no change.
pub(crate) fn as_aggregate(subquery: &Subquery) -> Result<Option<(Subquery, bool)>> {
    let plan = subquery.subquery.as_ref();
    if subquery.outer_ref_columns.is_empty()
        || is_aggregate(plan)
        || plan.schema().fields().len() != 1
    {
        return Ok(None);
    }
    let (plan, counted) = match first_of(plan)? {
        Some(first) => (first, false),
        None => (counted(plan.clone())?, true),
    };
    let aggregate = Subquery {
        subquery: Arc::new(plan),
        ..subquery.clone()
    };
    Ok(Some((aggregate, counted)))
}

/// Whether a plan is an aggregate of one row, which DataFusion's planner accepts.
fn is_aggregate(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(Projection { input, .. })
        | LogicalPlan::Filter(Filter { input, .. }) => is_aggregate(input),
        LogicalPlan::SubqueryAlias(alias) => is_aggregate(&alias.input),
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        _ => false,
    }
}

/// `SELECT aggregate AS c` over a plan; `c` has the name of the only column of `original`.
fn aggregate(original: &LogicalPlan, input: Arc<LogicalPlan>, value: Expr) -> Result<LogicalPlan> {
    let (qualifier, field) = original.schema().qualified_field(0);
    let result = Expr::Column(Column::from_name(value.schema_name().to_string()));
    let aggregate = Aggregate::try_new(input, Vec::new(), vec![value])?;
    let named = result.alias_qualified(qualifier.cloned(), field.name());
    let input = Arc::new(LogicalPlan::Aggregate(aggregate));
    Projection::try_new(vec![named], input).map(LogicalPlan::Projection)
}

/// A value of a plan of one column, and the number of its rows.
fn counted(plan: LogicalPlan) -> Result<LogicalPlan> {
    static FUNCTION: LazyLock<Arc<AggregateUDF>> =
        LazyLock::new(|| Arc::new(AggregateUDF::from(SingleValue::default())));
    let (qualifier, field) = plan.schema().qualified_field(0);
    let column = Expr::Column(Column::new(qualifier.cloned(), field.name()));
    let input = Arc::new(plan);
    aggregate(&input, input.clone(), FUNCTION.call(vec![column]))
}

/// The value in the result of [`counted`] if it counted one row.
fn only_value(value: Expr) -> Expr {
    static FUNCTION: LazyLock<Arc<ScalarUDF>> =
        LazyLock::new(|| Arc::new(ScalarUDF::from(OnlyValue::default())));
    FUNCTION.call(vec![value])
}

/// A plan of one column that ends in LIMIT 1 as an equivalent aggregate.
fn first_of(plan: &LogicalPlan) -> Result<Option<LogicalPlan>> {
    let LogicalPlan::Limit(limit) = plan else {
        return Ok(None);
    };
    let one = matches!(limit.get_fetch_type()?, FetchType::Literal(Some(1)))
        && matches!(limit.get_skip_type()?, SkipType::Literal(0));
    if !one {
        return Ok(None);
    }
    let (qualifier, field) = plan.schema().qualified_field(0);
    let mut value = Expr::Column(Column::new(qualifier.cloned(), field.name()));
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
    aggregate(plan, input.clone(), first_value(value, order)).map(Some)
}

/// `single_value(x)`: a value of the group and the number of its rows.
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

/// The fields of the result of [`SingleValue`].
fn counted_fields(value: &Field) -> Fields {
    let value = value.clone().with_name("value").with_nullable(true);
    Fields::from(vec![value, Field::new("rows", DataType::Int64, false)])
}

impl AggregateUDFImpl for SingleValue {
    fn name(&self) -> &str {
        "single_value"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Struct(counted_fields(&Field::new(
            "",
            arg_types[0].clone(),
            true,
        ))))
    }

    fn return_field(&self, arg_fields: &[FieldRef]) -> Result<FieldRef> {
        let fields = counted_fields(&arg_fields[0]);
        Ok(Arc::new(Field::new(
            self.name(),
            DataType::Struct(fields),
            true,
        )))
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let DataType::Struct(fields) = args.return_field.data_type() else {
            return internal_err!("single_value returns a struct");
        };
        let value = ScalarValue::try_from(fields[0].data_type())?;
        Ok(Box::new(Single {
            value,
            rows: 0,
            fields: fields.clone(),
        }))
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let DataType::Struct(fields) = args.return_field.data_type() else {
            return internal_err!("single_value returns a struct");
        };
        let named = |field: &Field| {
            let name = format!("{}[{}]", args.name, field.name());
            Arc::new(field.clone().with_name(name).with_nullable(true))
        };
        Ok(fields.iter().map(|field| named(field)).collect())
    }
}

/// The state of [`SingleValue`]: a value and the number of rows.
#[derive(Debug)]
struct Single {
    value: ScalarValue,
    rows: i64,
    fields: Fields,
}

impl Accumulator for Single {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        if self.rows == 0 && !values[0].is_empty() {
            self.value = ScalarValue::try_from_array(&values[0], 0)?;
        }
        self.rows += values[0].len() as i64;
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let rows = states[1].as_primitive::<Int64Type>();
        for row in 0..rows.len() {
            if rows.is_null(row) || rows.value(row) == 0 {
                continue;
            }
            if self.rows == 0 {
                self.value = ScalarValue::try_from_array(&states[0], row)?;
            }
            self.rows += rows.value(row);
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
        let rows: ArrayRef = Arc::new(Int64Array::from(vec![self.rows]));
        let columns = vec![self.value.to_array()?, rows];
        let counted = StructArray::try_new(self.fields.clone(), columns, None)?;
        Ok(ScalarValue::Struct(Arc::new(counted)))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.value.size() - size_of::<ScalarValue>()
    }
}

/// `only_value(s)`: the value that [`SingleValue`] found, if its group had one row.
#[derive(Debug, PartialEq, Eq, Hash)]
struct OnlyValue {
    signature: Signature,
}

impl Default for OnlyValue {
    fn default() -> Self {
        Self {
            signature: Signature::any(1, Volatility::Immutable),
        }
    }
}

impl ScalarUDFImpl for OnlyValue {
    fn name(&self) -> &str {
        "only_value"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        match &arg_types[0] {
            DataType::Struct(fields) => Ok(fields[0].data_type().clone()),
            other => internal_err!("only_value takes a struct, not {other}"),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        match args.arg_fields[0].data_type() {
            DataType::Struct(fields) => Ok(fields[0].clone()),
            other => internal_err!("only_value takes a struct, not {other}"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let counted = args.args[0].to_array(args.number_rows)?;
        let counted = counted.as_struct();
        let rows = counted.column(1).as_primitive::<Int64Type>();
        let several = (0..counted.len())
            .any(|i| counted.is_valid(i) && rows.is_valid(i) && rows.value(i) > 1);
        if several {
            return Err(raise(Error::invalid(
                SqlState::CARDINALITY_VIOLATION,
                "more than one row returned by a subquery used as an expression",
            )));
        }
        // The value is NULL where the struct is NULL.
        let missing = datafusion::arrow::compute::is_null(counted)?;
        Ok(ColumnarValue::Array(nullif(counted.column(0), &missing)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::util::pretty::pretty_format_batches;
    use datafusion::execution::SessionStateBuilder;
    use datafusion::prelude::{SessionConfig, SessionContext};
    use strandline_semantics::error::convert;

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
    async fn two_rows_that_nobody_asks_for_are_fine() {
        let sql = "SELECT (SELECT u.column2 FROM u WHERE u.column1 = t.column1 * 9) AS c FROM t \
                   WHERE column1 > 1";
        assert!(run(sql).await.is_ok());
    }

    #[tokio::test]
    async fn two_rows_are_an_error() {
        let sql = "SELECT (SELECT u.column2 FROM u WHERE u.column1 = t.column1 * 3 + 6) FROM t";
        let error = run(sql).await.unwrap_err();
        assert_eq!(error.sqlstate(), SqlState::CARDINALITY_VIOLATION, "{error}");
    }
}
