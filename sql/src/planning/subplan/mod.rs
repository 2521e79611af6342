//! Subqueries that run once per outer row, like PostgreSQL's SubPlans.
//!
//! DataFusion turns a subquery that refers to the outer query into a join. It refuses subqueries
//! without a known join: comparisons other than `=` with the outer columns, outer columns below
//! outer joins, in GROUP BY or in a table function's arguments, and subqueries as values of a
//! SELECT list (IN, ANY) or in conditions of joins. [`extract`] finds these in the SQL planner's
//! plan and puts a function call in their place ([`function`]). The call gets the values of the
//! outer columns, runs the subquery with them, and caches the result by the values.
//!
//! `ARRAY(SELECT …)`, which DataFusion lacks, always becomes such a call. DataFusion joins all
//! other subqueries: a join over many rows is much faster than one subquery per row.

mod function;
mod join;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchemaRef, Result, internal_err};
use datafusion::execution::session_state::SessionState;
use datafusion::functions_aggregate::bool_and_or::bool_or;
use datafusion::logical_expr::expr::{Exists, InSubquery, ScalarFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    BinaryExpr, Expr, LogicalPlan, LogicalPlanBuilder, Operator, ScalarUDF, Subquery, ident, lit,
    when,
};
use datafusion::scalar::ScalarValue;
use function::{Gives, MayBeNull, Subplan};
use std::sync::{Arc, OnceLock};
use strandline_semantics::align::for_comparison;
use strandline_semantics::error::convert;

/// The function around the subquery of `ARRAY(SELECT …)`.
pub use function::ArrayOf;

/// Whether a function runs a subquery row by row, in a state of its statement.
pub fn is_subplan(function: &ScalarUDF) -> bool {
    function.inner().is::<Subplan>()
}

/// Whether a function returns the value of a scalar subquery unchanged.
pub fn is_value(function: &ScalarUDF) -> bool {
    function.inner().is::<MayBeNull>()
}

/// Replaces the subqueries of `plan` that DataFusion cannot join by calls. `state` is the
/// statement's planning state.
pub fn extract(plan: LogicalPlan, state: &SessionState) -> strandline_base::Result<LogicalPlan> {
    let extraction = Extraction {
        planned_in: state,
        state: OnceLock::new(),
    };
    extraction.plan(plan, false).map_err(convert)
}

fn subquery_of(expr: &Expr) -> Option<&Subquery> {
    match expr {
        Expr::ScalarSubquery(subquery)
        | Expr::Exists(Exists { subquery, .. })
        | Expr::InSubquery(InSubquery { subquery, .. }) => Some(subquery),
        _ => None,
    }
}

/// The columns for IN: whether a row equals the operand, and whether a comparison with it is NULL.
const ANY_EQUAL: &str = "any_equal";
const ANY_UNKNOWN: &str = "any_unknown";

struct Extraction<'a> {
    planned_in: &'a SessionState,
    /// the state of subqueries, with one partition, because they are small and many
    state: OnceLock<Arc<SessionState>>,
}

impl Extraction<'_> {
    fn state(&self) -> &Arc<SessionState> {
        self.state.get_or_init(|| {
            let mut state = self.planned_in.clone();
            let options = state.config_mut().options_mut();
            options.execution.target_partitions = 1;
            Arc::new(state)
        })
    }

    /// `all`: the plan belongs to an extracted subquery. Then every subquery in it is extracted
    /// too, so that none is left in which the outer columns could be confused.
    fn plan(&self, plan: LogicalPlan, all: bool) -> Result<LogicalPlan> {
        let extracted = plan.transform_up(|node| {
            let names = NamePreserver::new(&node);
            let schema = Arc::new(merge_schema(&node.inputs()));
            let place = ExprPosition::of(&node);
            let node = node.map_expressions(|expr| {
                let name = names.save(&expr);
                let expr = self.expression(expr, place, &schema, all)?;
                Ok(expr.update_data(|expr| name.restore(expr)))
            })?;
            match node.transformed {
                true => node.map_data(|node| node.recompute_schema()),
                false => Ok(node),
            }
        })?;
        Ok(extracted.data)
    }

    fn expression(
        &self,
        expr: Expr,
        place: ExprPosition,
        schema: &DFSchemaRef,
        all: bool,
    ) -> Result<Transformed<Expr>> {
        if place.is_condition() && !all {
            return self.condition(expr, place, schema);
        }
        expr.transform_down(|expr| {
            if let Some(subquery) = function::array_of(&expr) {
                let plan = self.plan(subquery.subquery.as_ref().clone(), true)?;
                let call = self.call(plan, Gives::Array, schema)?;
                return Ok(Transformed::new(call, true, TreeNodeRecursion::Jump));
            }
            if subquery_of(&expr).is_none() {
                return Ok(Transformed::no(expr));
            }
            let taken = all || !join::is_possible(&expr, place, schema)?;
            let replaced = self.subquery(expr, schema, taken)?;
            Ok(Transformed::new(replaced, true, TreeNodeRecursion::Jump))
        })
    }

    /// A condition, or a part of one. IN can be joined where NULL and false have the same effect.
    fn condition(
        &self,
        expr: Expr,
        place: ExprPosition,
        schema: &DFSchemaRef,
    ) -> Result<Transformed<Expr>> {
        match expr {
            Expr::BinaryExpr(BinaryExpr { left, op, right })
                if matches!(op, Operator::And | Operator::Or) =>
            {
                let place = match op {
                    Operator::Or => ExprPosition::Alternative,
                    _ => place,
                };
                let left = self.condition(*left, place, schema)?;
                let right = self.condition(*right, place, schema)?;
                let transformed = left.transformed || right.transformed;
                let (left, right) = (Box::new(left.data), Box::new(right.data));
                let both = Expr::BinaryExpr(BinaryExpr::new(left, op, right));
                Ok(Transformed::new_transformed(both, transformed))
            }
            Expr::Not(negated) => match *negated {
                Expr::InSubquery(InSubquery {
                    expr,
                    subquery,
                    negated,
                }) => {
                    let flipped = InSubquery::new(expr, subquery, !negated);
                    self.condition(Expr::InSubquery(flipped), place, schema)
                }
                other => self.expression(
                    Expr::Not(Box::new(other)),
                    ExprPosition::Within,
                    schema,
                    false,
                ),
            },
            expr @ Expr::InSubquery(_) => {
                let taken = !join::is_possible(&expr, place, schema)?;
                self.subquery(expr, schema, taken).map(Transformed::yes)
            }
            other => self.expression(other, ExprPosition::Within, schema, false),
        }
    }

    /// Replaces a `taken` subquery by a call, and any other one by its form with extracted inner
    /// subqueries.
    fn subquery(&self, expr: Expr, schema: &DFSchemaRef, taken: bool) -> Result<Expr> {
        let inner = |s: &Subquery| self.plan(s.subquery.as_ref().clone(), taken);
        let left = |plan: LogicalPlan, s: Subquery| Subquery {
            outer_ref_columns: plan.all_out_ref_exprs(),
            subquery: Arc::new(plan),
            spans: s.spans,
        };
        match expr {
            Expr::ScalarSubquery(subquery) => {
                let is_correlated = !subquery.subquery.all_out_ref_exprs().is_empty();
                let plan = inner(&subquery)?;
                if taken {
                    return self.call(plan, Gives::Value, schema);
                }
                let plan = match is_correlated || join::has_one_row(&plan) {
                    true => plan,
                    false => function::nullable(plan)?,
                };
                Ok(Expr::ScalarSubquery(left(plan, subquery)))
            }
            Expr::Exists(Exists { subquery, negated }) => {
                let plan = inner(&subquery)?;
                if !taken {
                    let subquery = left(plan, subquery);
                    return Ok(Expr::Exists(Exists { subquery, negated }));
                }
                let found = self.call(plan, Gives::Existence, schema)?;
                Ok(if negated { !found } else { found })
            }
            Expr::InSubquery(InSubquery {
                expr,
                subquery,
                negated,
            }) => {
                let plan = inner(&subquery)?;
                let expr = self
                    .expression(*expr, ExprPosition::Other, schema, taken)?
                    .data;
                if !taken {
                    let subquery = left(plan, subquery);
                    let expr = Box::new(expr);
                    return Ok(Expr::InSubquery(InSubquery::new(expr, subquery, negated)));
                }
                let found = self.membership(expr, plan, schema)?;
                Ok(if negated { !found } else { found })
            }
            other => Ok(other),
        }
    }

    /// `value IN (plan)`: true if a row is equal, else NULL if a comparison is NULL, else false.
    fn membership(&self, value: Expr, plan: LogicalPlan, schema: &DFSchemaRef) -> Result<Expr> {
        let outer = function::operand(&value, schema)?;
        let (qualifier, field) = plan.schema().qualified_field(0);
        let compared = vec![
            Expr::OuterReferenceColumn(outer.0, outer.1),
            Expr::Column((qualifier, field).into()),
        ];
        let aligned = for_comparison(compared, "=", plan.schema())?;
        let Ok([value_then, column]) = <[Expr; 2]>::try_from(aligned) else {
            return internal_err!("two operands stay two");
        };
        let equal = value_then.eq(column);
        let any = bool_or(equal.clone()).alias(ANY_EQUAL);
        let unknown = bool_or(equal.is_null()).alias(ANY_UNKNOWN);
        let result = when(ident(ANY_EQUAL), lit(true))
            .when(ident(ANY_UNKNOWN), lit(ScalarValue::Boolean(None)))
            .otherwise(lit(false))?;
        let plan = LogicalPlanBuilder::from(plan)
            .aggregate(Vec::<Expr>::new(), vec![any, unknown])?
            .project(vec![result.alias("found")])?
            .build()?;
        let call = self.call(plan, Gives::Value, schema)?;
        function::with_operand(call, value)
    }

    fn call(&self, plan: LogicalPlan, gives: Gives, schema: &DFSchemaRef) -> Result<Expr> {
        let state = self.state();
        let options = state.config_options();
        let plan = state
            .analyzer()
            .execute_and_check(plan, options, |_, _| {})?;
        let (subplan, args) = Subplan::new(plan, gives, state, schema);
        let func = Arc::new(ScalarUDF::from(subplan));
        Ok(Expr::ScalarFunction(ScalarFunction { func, args }))
    }
}

/// The place of an expression in a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExprPosition {
    /// a condition of a Filter, or a conjunct of it
    Condition,
    /// a disjunct of a condition
    Alternative,
    /// elsewhere in a Filter
    Within,
    Value,
    Other,
}

impl ExprPosition {
    fn of(node: &LogicalPlan) -> Self {
        match node {
            LogicalPlan::Filter(_) => Self::Condition,
            LogicalPlan::Projection(_) => Self::Value,
            _ => Self::Other,
        }
    }

    fn is_condition(self) -> bool {
        matches!(self, Self::Condition | Self::Alternative)
    }

    fn is_in_filter(self) -> bool {
        self.is_condition() || self == Self::Within
    }
}
