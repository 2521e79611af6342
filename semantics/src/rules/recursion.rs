//! The columns of a recursive query have the types of its first term, as in PostgreSQL. If the
//! recursive term needs a wider type, DataFusion would cast its values and cut them.

use crate::error::invalid;
use crate::types::sql_name;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, RecursiveQuery};
use strandline_base::SqlState;

/// Refuses recursive terms of wider types (42804). Returns whether the plan has joins or set
/// operations, whose inputs' types must agree.
pub(super) fn check_recursion(plan: &LogicalPlan) -> Result<bool> {
    let mut combines = false;
    plan.apply_with_subqueries(|plan| {
        match plan {
            LogicalPlan::RecursiveQuery(query) => check(query)?,
            LogicalPlan::Join(_) | LogicalPlan::Union(_) => combines = true,
            _ => {}
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(combines)
}

/// DataFusion's casts are on top of the term; casts by the user are still functions here.
fn check(query: &RecursiveQuery) -> Result<()> {
    let LogicalPlan::Projection(term) = query.recursive_term.as_ref() else {
        return Ok(());
    };
    for (column, expr) in term.expr.iter().enumerate() {
        let Expr::Cast(cast) = expr.clone().unalias() else {
            continue;
        };
        let found = cast.expr.get_type(term.input.schema())?;
        let wanted = cast.field.data_type();
        if width(&found) > width(wanted) {
            return Err(invalid(
                SqlState::DATATYPE_MISMATCH,
                format!(
                    "recursive query \"{}\" column {} has type {} in non-recursive term but \
                     type {} overall",
                    query.name,
                    column + 1,
                    sql_name(wanted),
                    sql_name(&found)
                ),
            ));
        }
    }
    Ok(())
}

/// The rank of a number type by its range; 0 for other types.
fn width(data_type: &DataType) -> u8 {
    match data_type {
        DataType::Int16 => 1,
        DataType::Int32 => 2,
        DataType::Int64 => 3,
        DataType::Decimal64(..) | DataType::Decimal128(..) => 4,
        DataType::Float32 => 5,
        DataType::Float64 => 6,
        _ => 0,
    }
}
