//! The comparands of conditions over subqueries, and of join keys.
//!
//! DataFusion turns `x op ANY (subquery)` and `x op ALL (subquery)` into EXISTS with a comparison
//! of `x` and the subquery's column as its condition. If both columns have the same qualified name,
//! as in `a < ALL (SELECT a FROM t)` over t, the condition would compare the column with itself. So
//! the subquery's column gets a unique name.

use crate::align::{widened, without_blanks};
use crate::cast::{Mode, cast_expression};
use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema, Result, TableReference};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Subquery};
use std::sync::Arc;
use strandline_base::SqlType;

/// No user can write the control character.
const COMPARED: &str = "\u{1f}compared";

/// Renames the subquery's column if `expr` compares with a subquery. Of a bigint and a numeric, the
/// bigint becomes a numeric; a float and another number become double precision.
pub(super) fn name_comparand(expr: Expr, schema: &DFSchema) -> Result<Expr> {
    Ok(match expr {
        Expr::SetComparison(mut comparison) => {
            let name = Some(COMPARED.to_string());
            project(&mut comparison.expr, &mut comparison.subquery, name, schema)?;
            Expr::SetComparison(comparison)
        }
        Expr::InSubquery(mut membership) => {
            project(&mut membership.expr, &mut membership.subquery, None, schema)?;
            Expr::InSubquery(membership)
        }
        other => other,
    })
}

/// Makes `operand` and the subquery's column comparable, and gives the column the name `name`.
fn project(
    operand: &mut Box<Expr>,
    subquery: &mut Subquery,
    name: Option<String>,
    schema: &DFSchema,
) -> Result<()> {
    let plan = subquery.subquery.as_ref();
    let Ok([column]) = <[Column; 1]>::try_from(plan.schema().columns()) else {
        return Ok(());
    };
    let (_, operand_field) = operand.to_field(schema)?;
    let column_field = Arc::clone(&plan.schema().fields()[0]);
    let wide = comparable(&Expr::Column(column.clone()), &column_field, &operand_field)?;
    if let Some(wide) = comparable(operand, &operand_field, &column_field)? {
        **operand = wide;
    }
    // DataFusion distinguishes the subquery's column from the join's column by the qualifier, or by
    // the name if outer columns bring more columns of the subquery into the join.
    let is_bare = column.relation.is_none() && name.is_none();
    let is_correlated = !subquery.outer_ref_columns.is_empty();
    let name = name.or_else(|| (is_bare && is_correlated).then(|| COMPARED.to_string()));
    let is_bare = is_bare && !is_correlated;
    let name = name.filter(|name| *name != column.name);
    if wide.is_none() && name.is_none() && !is_bare {
        return Ok(());
    }
    let mut plan = LogicalPlanBuilder::from(plan.clone());
    if wide.is_some() || name.is_some() {
        let name = name.unwrap_or_else(|| column.name.clone());
        plan = plan.project([wide.unwrap_or(Expr::Column(column)).alias(name)])?;
    }
    if is_bare {
        plan = plan.alias(TableReference::bare(COMPARED))?;
    }
    let plan = plan.build()?;
    subquery.subquery = Arc::new(plan);
    Ok(())
}

/// An expression of type `from` as it is compared with one of type `other`; None: as it is.
fn comparable(expr: &Expr, from: &Field, other: &Field) -> Result<Option<Expr>> {
    if let Some(trimmed) = without_blanks(expr, from, other) {
        return Ok(Some(trimmed));
    }
    let (from, other) = (from.data_type(), other.data_type());
    let differ = from != other && from.is_numeric() && other.is_numeric();
    if differ && (from.is_floating() || other.is_floating()) {
        let double = || cast_expression(expr.clone(), from, SqlType::Double, Mode::Explicit);
        return (*from != DataType::Float64).then(double).transpose();
    }
    widened(expr, from, other)
}

/// Widens the keys of joins, which USING and NATURAL make from columns, in the same way.
pub(super) fn widen_keys(plan: LogicalPlan) -> Result<LogicalPlan> {
    let widened = plan.transform_up_with_subqueries(|plan| match plan {
        LogicalPlan::Join(mut join) => {
            let mut changed = false;
            for (left, right) in &mut join.on {
                let (_, left_field) = left.to_field(join.left.schema())?;
                let (_, right_field) = right.to_field(join.right.schema())?;
                if let Some(wide) = comparable(left, &left_field, &right_field)? {
                    *left = wide;
                    changed = true;
                }
                if let Some(wide) = comparable(right, &right_field, &left_field)? {
                    *right = wide;
                    changed = true;
                }
            }
            let join = LogicalPlan::Join(join);
            Ok(if changed {
                Transformed::yes(join)
            } else {
                Transformed::no(join)
            })
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(widened.data)
}
