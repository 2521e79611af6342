//! MIN and MAX of indexed columns: each is the first row of a search in the order of its column.

use super::conditions::Test;
use super::program::Ends;
use super::scope::{Compiler, Scope};
use super::search::{OrderColumn, Slice};
use super::source::Source;
use crate::parse::names;
use crate::planning::provider::table_schema::arrow_field;
use crate::values::value_row::ValueColumns;
use datafusion::arrow::datatypes::Schema;
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::{self, Expr, SelectItem};
use std::sync::Arc;
use strandline_base::SqlType;
use strandline_engine::PartOrder;

impl Compiler<'_> {
    /// A query of nothing but MIN and MAX.
    pub(super) fn ends(
        &self,
        scope: &Scope<'_>,
        tests: &[Test],
        items: &[SelectItem],
    ) -> Option<Ends> {
        let mut searches = Vec::with_capacity(items.len());
        let (mut types, mut fields) = (Vec::new(), Vec::new());
        for item in items {
            let (function, name) = function_of(item)?;
            let (position, greatest) = end_of(scope, function)?;
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
            let search = self.search(scope, tests.to_vec(), vec![order], slice, &[column.id])?;
            searches.push(search);
            let name = name.unwrap_or_else(|| if greatest { "max" } else { "min" }.to_string());
            fields.push(arrow_field(&name, column.sql_type, true));
            types.push(column.sql_type);
        }
        let schema = Arc::new(Schema::new(fields));
        Some(Ends {
            searches,
            result: Arc::new(ValueColumns { types, schema }),
        })
    }
}

/// Whether a select list begins with an aggregate that an index may have the value of.
pub(super) fn is_ends(items: &[SelectItem]) -> bool {
    items
        .first()
        .is_some_and(|item| function_of(item).is_some())
}

/// The call that an item is, and its alias.
fn function_of(item: &SelectItem) -> Option<(&ast::Function, Option<String>)> {
    match item {
        SelectItem::UnnamedExpr(Expr::Function(function)) => Some((function, None)),
        SelectItem::ExprWithAlias {
            expr: Expr::Function(function),
            alias,
        } => Some((function, Some(names::fold(alias)))),
        _ => None,
    }
}

/// The column of `min(c)` or `max(c)`, and whether it is `max`.
fn end_of(scope: &Scope<'_>, function: &ast::Function) -> Option<(usize, bool)> {
    let [ast::ObjectNamePart::Identifier(name)] = function.name.0.as_slice() else {
        return None;
    };
    let greatest = match names::fold(name).as_str() {
        "min" => false,
        "max" => true,
        _ => return None,
    };
    let is_plain = function.over.is_none()
        && function.filter.is_none()
        && function.null_treatment.is_none()
        && function.within_group.is_empty()
        && function.parameters == ast::FunctionArguments::None
        && !function.uses_odbc_syntax;
    let ast::FunctionArguments::List(list) = &function.args else {
        return None;
    };
    let [ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(argument))] = list.args.as_slice()
    else {
        return None;
    };
    let is_plain = is_plain && list.clauses.is_empty() && list.duplicate_treatment.is_none();
    is_plain.then_some((scope.column(argument)?, greatest))
}

/// Whether MIN and MAX of a column of this type are of the type, and by the order of its index.
fn has_ends(t: SqlType) -> bool {
    matches!(
        t,
        SqlType::SmallInt
            | SqlType::Integer
            | SqlType::BigInt
            | SqlType::Numeric { .. }
            | SqlType::Text
            | SqlType::Date
            | SqlType::Timestamp
            | SqlType::TimestampTz
    )
}
