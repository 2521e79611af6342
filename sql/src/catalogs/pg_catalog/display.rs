//! Types that are stored as numbers and written as names: `regclass` and its kin, and vectors.
//! Inside a query they have the type that PostgreSQL compares them as; the rows that a user gets
//! show them as PostgreSQL does.

use super::functions::call;
use super::system::System;
use datafusion::arrow::datatypes::Field;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use std::sync::Arc;
use strandline_base::Result;
use strandline_semantics::error::convert;
use strandline_semantics::types::PG_TYPE_KEY;

/// The function that writes values of the field's type; None: they are written as they are.
fn output(field: &Field) -> Option<&'static str> {
    Some(match field.metadata().get(PG_TYPE_KEY)?.as_str() {
        "regclass" => "regclassout",
        "regtype" => "regtypeout",
        "regnamespace" => "regnamespaceout",
        "regrole" => "regroleout",
        "int2vector" | "oidvector" => "int2vectorout",
        _ => return None,
    })
}

/// Whether `plan` has a column that is shown otherwise than it is stored.
pub fn is_needed(plan: &LogicalPlan) -> bool {
    let mut fields = plan.schema().fields().iter();
    fields.any(|field| output(field).is_some())
}

/// `plan` with its columns as they are shown.
pub fn shown(plan: LogicalPlan, system: &Arc<System>) -> Result<LogicalPlan> {
    let columns: Vec<Expr> = plan
        .schema()
        .iter()
        .map(|(qualifier, field)| {
            let column = Expr::Column((qualifier, field).into());
            let name = field.name();
            match output(field).and_then(|function| call(function, column.clone(), system)) {
                Some(text) => text.alias_qualified(qualifier.cloned(), name),
                None => column,
            }
        })
        .collect();
    LogicalPlanBuilder::from(plan)
        .project(columns)
        .and_then(LogicalPlanBuilder::build)
        .map_err(convert)
}
