//! Aggregates of the few rows that a search finds, without groups: `count`, `sum` and `avg` of
//! columns with exact values, `min` and `max`.
//!
//! Sums and averages end with the query engine's own code ([`Finish`]). Floating-point sums are
//! left to it altogether, because they depend on the order of the additions.

use super::conditions::Conditions;
use super::execution::{Execution, Run};
use super::program::{Aggregate, AggregateFunction, Aggregates};
use super::scope::{Compiler, Scope};
use super::search::{Slice, place};
use crate::parse::names;
use crate::planning::provider::table_schema::arrow_field;
use crate::values::value_row::{ValueColumns, ValueRow};
use datafusion::arrow::datatypes::Schema;
use datafusion::sql::sqlparser::ast::{self, Expr, FunctionArgExpr, SelectItem};
use std::cmp::Ordering;
use std::sync::Arc;
use strandline_base::{ColumnId, Result, SqlType, Value};
use strandline_column::types::arrow_type;
use strandline_engine::catalog::TableDef;
use strandline_semantics::aggregates::exact::Finish;
use strandline_semantics::aggregates::{Kind, finish};
use strandline_semantics::types::sql_type_of_arrow;

/// A call of an aggregate function with one plain argument, and the name of its result.
pub(super) struct Call<'a> {
    /// in lower case, unless quoted
    pub function: String,
    pub argument: &'a FunctionArgExpr,
    pub name: String,
}

/// The call that an item of a select list is.
pub(super) fn call_of(item: &SelectItem) -> Option<Call<'_>> {
    let (function, alias) = match item {
        SelectItem::UnnamedExpr(Expr::Function(function)) => (function, None),
        SelectItem::ExprWithAlias {
            expr: Expr::Function(function),
            alias,
        } => (function, Some(names::fold(alias))),
        _ => return None,
    };
    let [ast::ObjectNamePart::Identifier(name)] = function.name.0.as_slice() else {
        return None;
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
    let [ast::FunctionArg::Unnamed(argument)] = list.args.as_slice() else {
        return None;
    };
    let is_plain = is_plain && list.clauses.is_empty() && list.duplicate_treatment.is_none();
    let function = names::fold(name);
    let name = alias.unwrap_or_else(|| function.clone());
    is_plain.then_some(Call {
        function,
        argument,
        name,
    })
}

impl Call<'_> {
    /// Whether the function aggregates.
    pub fn is_of_aggregate(&self) -> bool {
        matches!(
            self.function.as_str(),
            "count" | "sum" | "avg" | "min" | "max"
        )
    }

    /// The argument, if it is a column.
    pub fn column(&self, scope: &Scope<'_>) -> Option<usize> {
        match self.argument {
            FunctionArgExpr::Expr(argument) => scope.column(argument),
            _ => None,
        }
    }

    /// The function, the position of its column, and the type of its result.
    fn compiled(&self, scope: &Scope<'_>) -> Option<(AggregateFunction, Option<usize>, SqlType)> {
        if self.function == "count" && counts_rows(self.argument) {
            return Some((AggregateFunction::Rows, None, SqlType::BigInt));
        }
        let position = self.column(scope)?;
        let sql_type = scope.table.columns[position].sql_type;
        let (function, result) = match self.function.as_str() {
            "count" => (AggregateFunction::Values, SqlType::BigInt),
            "sum" => total(Kind::Sum, sql_type)?,
            "avg" => total(Kind::Average, sql_type)?,
            "min" if has_ends(sql_type) => (AggregateFunction::End(Ordering::Less), sql_type),
            "max" if has_ends(sql_type) => (AggregateFunction::End(Ordering::Greater), sql_type),
            _ => return None,
        };
        Some((function, Some(position), result))
    }
}

/// Whether `count` of the argument counts rows: `*`, or a number.
fn counts_rows(argument: &FunctionArgExpr) -> bool {
    match argument {
        FunctionArgExpr::Wildcard => true,
        FunctionArgExpr::Expr(Expr::Value(value)) => {
            matches!(value.value, ast::Value::Number(..))
        }
        _ => false,
    }
}

fn total(kind: Kind, sql_type: SqlType) -> Option<(AggregateFunction, SqlType)> {
    let is_exact = matches!(
        sql_type,
        SqlType::SmallInt | SqlType::Integer | SqlType::BigInt | SqlType::Numeric { .. }
    );
    let finish = finish(kind, &arrow_type(sql_type)).filter(|_| is_exact)?;
    let result = sql_type_of_arrow(&finish.data_type())?;
    Some((AggregateFunction::Total(finish), result))
}

/// Whether MIN and MAX of a column of this type are of the type, and in the order of its index.
pub(super) fn has_ends(sql_type: SqlType) -> bool {
    matches!(
        sql_type,
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

impl Compiler<'_> {
    /// A query of nothing but aggregates.
    pub(super) fn aggregates(
        &self,
        scope: &Scope<'_>,
        conditions: Conditions,
        items: &[SelectItem],
    ) -> Option<Aggregates> {
        if !self.has_path(scope.table, &conditions) {
            return None;
        }
        let mut wanted: Vec<ColumnId> = Vec::new();
        let mut calls = Vec::with_capacity(items.len());
        let (mut types, mut fields) = (Vec::new(), Vec::new());
        for item in items {
            let call = call_of(item)?;
            let (function, position, sql_type) = call.compiled(scope)?;
            let columns = &scope.table.columns;
            let place = position.map_or(0, |position| place(&mut wanted, columns[position].id));
            let counts = matches!(
                function,
                AggregateFunction::Rows | AggregateFunction::Values
            );
            fields.push(arrow_field(&call.name, sql_type, !counts));
            types.push(sql_type);
            calls.push(Aggregate { function, place });
        }
        let search = self.search(scope, conditions, Vec::new(), Slice::default(), &wanted)?;
        let schema = Arc::new(Schema::new(fields));
        Some(Aggregates {
            search,
            calls,
            result: Arc::new(ValueColumns { types, schema }),
        })
    }
}

impl Execution<'_> {
    pub(super) fn aggregate(&self, table: &Arc<TableDef>, query: &Aggregates) -> Result<Run> {
        let Some(statement) = self.statement()? else {
            return Ok(Run::Undecided);
        };
        let Some(found) = self.find(&statement, table, &query.search, None)? else {
            return Ok(Run::Undecided);
        };
        // A search with a test reads at least the column of the test.
        let rows = found.chunks_exact(query.search.reads.len());
        let values = query.calls.iter().map(|call| {
            let cells = rows.clone().map(|row| &row[call.place]);
            call.function.value(cells)
        });
        Ok(match values.collect::<Option<Vec<_>>>() {
            Some(values) => Run::Row(ValueRow::new(query.result.clone(), Some(values))),
            None => Run::Undecided,
        })
    }
}

impl AggregateFunction {
    /// The result for a column's values; None: an overflow, which the full path reports.
    fn value<'a>(&self, cells: impl Iterator<Item = &'a Value>) -> Option<Value> {
        let number = |count: usize| i64::try_from(count).ok().map(Value::BigInt);
        match self {
            Self::Rows => number(cells.count()),
            Self::Values => number(cells.filter(|cell| !cell.is_null()).count()),
            Self::Total(finish) => sum_of(finish, cells),
            Self::End(end) => {
                let values = cells.filter(|cell| !cell.is_null());
                let best = values.reduce(|best, cell| match cell.compare(best) == Some(*end) {
                    true => cell,
                    false => best,
                });
                Some(best.cloned().unwrap_or(Value::Null))
            }
        }
    }
}

fn sum_of<'a>(finish: &Finish, cells: impl Iterator<Item = &'a Value>) -> Option<Value> {
    let (mut sum, mut count) = (0i128, 0i64);
    for cell in cells {
        let value = match cell {
            Value::Null => continue,
            Value::SmallInt(value) => i128::from(*value),
            Value::Integer(value) => i128::from(*value),
            Value::BigInt(value) => i128::from(*value),
            Value::Numeric(value) => *value,
            _ => return None,
        };
        sum = sum.checked_add(value)?;
        count += 1;
    }
    if count == 0 {
        return Some(Value::Null);
    }
    let value = finish.value(sum, count).ok()?;
    match finish {
        Finish::Bigint => i64::try_from(value).ok().map(Value::BigInt),
        Finish::Numeric { .. } | Finish::Average { .. } => Some(Value::Numeric(value)),
    }
}
