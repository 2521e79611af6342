//! `unnest` of an array of several dimensions. PostgreSQL gives its items, DataFusion the arrays of
//! the first dimension: it is refused.

use crate::error::invalid;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::logical_expr::LogicalPlan;
use strandline_base::SqlState;

/// 0A000 if the node unnests an array of several dimensions.
pub(super) fn refuse_unnested(node: &LogicalPlan) -> Result<()> {
    let LogicalPlan::Unnest(unnest) = node else {
        return Ok(());
    };
    let schema = unnest.input.schema();
    for (column, _) in &unnest.list_type_columns {
        let is_list = |t: &DataType| matches!(t, DataType::List(_));
        if let DataType::List(item) = schema.field(*column).data_type()
            && is_list(item.data_type())
        {
            return Err(invalid(
                SqlState::FEATURE_NOT_SUPPORTED,
                "unnest of an array of several dimensions is not supported".to_string(),
            ));
        }
    }
    Ok(())
}
