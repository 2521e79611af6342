//! MIN and MAX of indexed columns: each is the first row of a search in the order of its column.

use super::aggregates::{call_of, has_ends};
use super::conditions::Conditions;
use super::program::Ends;
use super::scope::{Compiler, Scope};
use super::search::{OrderColumn, Slice};
use super::source::Source;
use crate::planning::provider::table_schema::arrow_field;
use crate::values::value_row::ValueColumns;
use datafusion::arrow::datatypes::Schema;
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::SelectItem;
use std::sync::Arc;
use strandline_engine::PartOrder;

impl Compiler<'_> {
    /// A query of nothing but MIN and MAX.
    pub(super) fn ends(
        &self,
        scope: &Scope<'_>,
        conditions: &Conditions,
        items: &[SelectItem],
    ) -> Option<Ends> {
        let mut searches = Vec::with_capacity(items.len());
        let (mut types, mut fields) = (Vec::new(), Vec::new());
        for item in items {
            let call = call_of(item)?;
            let greatest = match call.function.as_str() {
                "min" => false,
                "max" => true,
                _ => return None,
            };
            let position = call.column(scope)?;
            let column = &scope.table.columns[position];
            if !has_ends(column.sql_type) {
                return None;
            }
            let order = OrderColumn {
                column: column.id,
                order: PartOrder {
                    descending: greatest,
                    nulls_first: false,
                },
                skips_null: true,
            };
            let slice = Slice {
                limit: Some(Source::Literal(ScalarValue::Int32(Some(1)))),
                offset: None,
            };
            let conditions = conditions.clone();
            let search = self.search(scope, conditions, vec![order], slice, &[column.id])?;
            searches.push(search);
            fields.push(arrow_field(&call.name, column.sql_type, true));
            types.push(column.sql_type);
        }
        let schema = Arc::new(Schema::new(fields));
        Some(Ends {
            searches,
            result: Arc::new(ValueColumns { types, schema }),
        })
    }
}
