//! A LATERAL subquery that reads no table: `t, LATERAL (SELECT f(t.a), unnest(t.b)) s`.
//!
//! DataFusion joins the tables of a LATERAL subquery, and has nothing to join here. Each outer row
//! yields the subquery's rows by itself. So the outer rows replace the subquery's one empty row and
//! pass through its projections, conditions and unnestings:
//!
//! ```text
//! Join                              Projection: t.*, s.*
//!   t                                 Unnest
//!   SubqueryAlias: s          =>        Projection: t's columns, f(t.a), t.b
//!     Unnest                              t
//!       Projection: f(outer t.a), outer t.b
//!         EmptyRelation
//! ```
//!
//! Within the subquery the outer columns have names that no query can write, so that they cannot
//! clash.

use super::keys::without_keys;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, JoinType, Result};
use datafusion::logical_expr::{
    EmptyRelation, Expr, Join, LogicalPlan, LogicalPlanBuilder, Subquery,
};

/// The join as a plan over its left side alone; None: the right side reads tables.
pub(super) fn over_left_side(join: &Join) -> Result<Option<LogicalPlan>> {
    let is_inner = join.join_type == JoinType::Inner && join.on.is_empty();
    if !is_inner || !has_subquery(&join.right) {
        return Ok(None);
    }
    let outer = Outer {
        schema: join.left.schema(),
        rows: &join.left,
    };
    let Some(rows) = outer.through(&join.right)? else {
        return Ok(None);
    };
    let right = join.right.schema().columns().into_iter();
    let columns = outer.restored().chain(right.map(Expr::Column));
    let plan = LogicalPlanBuilder::from(rows).project(columns.collect::<Vec<_>>())?;
    let plan = match &join.filter {
        Some(filter) => plan.filter(filter.clone())?,
        None => plan,
    };
    plan.build().map(Some)
}

fn has_subquery(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Subquery(_) => true,
        LogicalPlan::SubqueryAlias(alias) => has_subquery(&alias.input),
        _ => false,
    }
}

/// The left side of the join.
struct Outer<'a> {
    schema: &'a DFSchema,
    rows: &'a LogicalPlan,
}

impl Outer<'_> {
    /// `plan` with the outer rows in place of its empty row; its columns follow the outer columns.
    fn through(&self, plan: &LogicalPlan) -> Result<Option<LogicalPlan>> {
        let input = match plan {
            LogicalPlan::EmptyRelation(EmptyRelation {
                produce_one_row: true,
                ..
            }) => {
                let columns = self.schema.columns().into_iter().enumerate();
                let hidden = columns.map(|(at, c)| Expr::Column(c).alias(hidden(at)));
                let rows = LogicalPlanBuilder::from(self.rows.clone());
                return rows.project(hidden.collect::<Vec<_>>())?.build().map(Some);
            }
            LogicalPlan::Subquery(Subquery { subquery, .. }) => return self.through(subquery),
            LogicalPlan::SubqueryAlias(alias) => &alias.input,
            LogicalPlan::Projection(projection) => &projection.input,
            LogicalPlan::Filter(filter) => &filter.input,
            LogicalPlan::Unnest(unnest) => &unnest.input,
            _ => return Ok(None),
        };
        let Some(rows) = self.through(input)? else {
            return Ok(None);
        };
        let rows = LogicalPlanBuilder::from(rows);
        let plan = match plan {
            LogicalPlan::SubqueryAlias(alias) => {
                let columns = alias.input.schema().columns().into_iter();
                let named = columns.map(|column| {
                    let name = column.name.clone();
                    Expr::Column(column).alias_qualified(Some(alias.alias.clone()), name)
                });
                rows.project(self.hidden().chain(named).collect::<Vec<_>>())?
            }
            LogicalPlan::Projection(projection) => {
                let mut columns: Vec<Expr> = self.hidden().collect();
                for expr in &projection.expr {
                    let Some(expr) = self.resolved(expr)? else {
                        return Ok(None);
                    };
                    columns.push(expr);
                }
                rows.project(columns)?
            }
            LogicalPlan::Filter(filter) => match self.resolved(&filter.predicate)? {
                Some(predicate) => rows.filter(predicate)?,
                None => return Ok(None),
            },
            LogicalPlan::Unnest(unnest) => {
                let columns = unnest.exec_columns.clone();
                let rows = rows.unnest_columns_with_options(columns, unnest.options.clone())?;
                return without_keys(rows.build()?).map(Some);
            }
            _ => return Ok(None),
        };
        plan.build().map(Some)
    }

    /// `expr` with the outer columns as columns of its input; None: it has a subquery, which may
    /// use them.
    fn resolved(&self, expr: &Expr) -> Result<Option<Expr>> {
        let is_subquery = |e: &Expr| {
            matches!(
                e,
                Expr::ScalarSubquery(_)
                    | Expr::Exists(_)
                    | Expr::InSubquery(_)
                    | Expr::SetComparison(_)
            )
        };
        if expr.exists(|e| Ok(is_subquery(e)))? {
            return Ok(None);
        }
        let resolved = expr.clone().transform(|e| {
            Ok(match &e {
                Expr::OuterReferenceColumn(_, column) => {
                    match self.schema.maybe_index_of_column(column) {
                        Some(at) => Transformed::yes(Expr::Column(hidden(at).into())),
                        None => Transformed::no(e),
                    }
                }
                _ => Transformed::no(e),
            })
        })?;
        if !resolved.transformed {
            return Ok(Some(resolved.data));
        }
        let (qualifier, name) = expr.qualified_name();
        Ok(Some(match resolved.data {
            named @ Expr::Alias(_) => named,
            other => other.alias_qualified(qualifier, name),
        }))
    }

    /// The outer columns with their hidden names.
    fn hidden(&self) -> impl Iterator<Item = Expr> + use<> {
        (0..self.schema.fields().len()).map(|at| Expr::Column(hidden(at).into()))
    }

    /// The outer columns with their own names.
    fn restored(&self) -> impl Iterator<Item = Expr> {
        let columns = self.schema.columns().into_iter();
        self.hidden()
            .zip(columns)
            .map(|(hidden, Column { relation, name, .. })| hidden.alias_qualified(relation, name))
    }
}

fn hidden(at: usize) -> String {
    format!("outer\u{1f}{at}")
}
