//! Unions of dates and timestamps are timestamps in microseconds; DataFusion would go to
//! nanoseconds, which end in the year 2262.

use crate::semantics::types::arrow_type;
use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, Result};
use datafusion::logical_expr::{Cast, Expr, LogicalPlan, Projection, Union};
use std::sync::Arc;
use strandline_base::SqlType;

/// Casts the inputs of every union in `plan` that need it.
pub fn align_unions(plan: LogicalPlan) -> Result<LogicalPlan> {
    let aligned = plan.transform_up_with_subqueries(|plan| match plan {
        LogicalPlan::Union(union) => align(union),
        other => Ok(Transformed::no(other)),
    })?;
    Ok(aligned.data)
}

fn align(union: Union) -> Result<Transformed<LogicalPlan>> {
    let columns = union.schema.fields().len();
    let targets: Vec<Option<DataType>> = (0..columns).map(|i| target(&union, i)).collect();
    if targets.iter().all(Option::is_none) {
        return Ok(Transformed::no(LogicalPlan::Union(union)));
    }
    let inputs = union
        .inputs
        .into_iter()
        .map(|input| Ok(Arc::new(cast_columns(input, &targets)?)))
        .collect::<Result<Vec<_>>>()?;
    Ok(Transformed::yes(LogicalPlan::Union(
        Union::try_new_with_loose_types(inputs)?,
    )))
}

/// The type of column `i` if its inputs mix dates and timestamps of several kinds.
fn target(union: &Union, i: usize) -> Option<DataType> {
    let mut types = Vec::new();
    for input in &union.inputs {
        match input.schema().field(i).data_type() {
            DataType::Null => {}
            t @ (DataType::Date32 | DataType::Timestamp(TimeUnit::Microsecond, _)) => types.push(t),
            _ => return None,
        }
    }
    let mixed = types.windows(2).any(|pair| pair[0] != pair[1]);
    let zoned = types
        .iter()
        .any(|t| matches!(t, DataType::Timestamp(_, Some(_))));
    let target = if zoned {
        SqlType::TimestampTz
    } else {
        SqlType::Timestamp
    };
    mixed.then(|| arrow_type(target))
}

fn cast_columns(input: Arc<LogicalPlan>, targets: &[Option<DataType>]) -> Result<LogicalPlan> {
    let exprs = input
        .schema()
        .iter()
        .zip(targets)
        .map(|((qualifier, field), target)| {
            let column = Expr::Column(Column::from((qualifier, field)));
            match target {
                Some(target) if target != field.data_type() => {
                    let cast = Expr::Cast(Cast::new(Box::new(column), target.clone()));
                    cast.alias_qualified(qualifier.cloned(), field.name())
                }
                _ => column,
            }
        })
        .collect();
    Ok(LogicalPlan::Projection(Projection::try_new(exprs, input)?))
}
