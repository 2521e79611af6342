//! Subqueries of one value that do not depend on the statement's rows, as `WHERE id = (SELECT …)`.
//!
//! A subquery is a statement of its own form, compiled like it. All subqueries of a statement run
//! before it, in one statement of the engine with it: they see one snapshot, and the locks that a
//! subquery takes are the statement's. A subquery that gives more than one row is left to the full
//! path, which words the error.

use super::execution::{Decided, Execution, Run};
use super::program::{Operation, RowStatement, Select, Subquery};
use super::scope::Compiler;
use super::source::Source;
use super::value::{is_key_type, scalar_of};
use datafusion::sql::sqlparser::ast::Query;
use std::sync::Arc;
use strandline_base::{Result, SqlType, Value};
use strandline_engine::Statement;

impl Compiler<'_> {
    /// The value of a subquery; the same text is the same subquery.
    pub(super) fn subquery(&self, query: &Query) -> Option<Source> {
        let is_it = |(known, _): &(Query, SqlType)| known == query;
        let known = self.subqueries.borrow().iter().position(is_it);
        if let Some(at) = known {
            let (_, sql_type) = self.subqueries.borrow()[at];
            return Some(Source::Query(at, sql_type));
        }
        let sql_type = self.select(query)?.operation.single_type()?;
        let mut all = self.subqueries.borrow_mut();
        all.push((query.clone(), sql_type));
        Some(Source::Query(all.len() - 1, sql_type))
    }

    /// The subqueries that the statement has met.
    pub(super) fn compiled_subqueries(&self) -> Option<Vec<Subquery>> {
        let all = self.subqueries.borrow().clone();
        let compiled = all.into_iter().map(|(query, sql_type)| {
            let statement = self.select(&query)?;
            Some(Subquery {
                statement,
                sql_type,
            })
        });
        compiled.collect()
    }
}

impl Operation {
    /// The type of its only column, if that is a column of a table, or an aggregate.
    fn single_type(&self) -> Option<SqlType> {
        let result = match self {
            Self::Select(Select { columns, .. }) | Self::Search(_, columns, _) => {
                let is_plain = columns.computed.is_none();
                is_plain.then_some(&columns.result)?
            }
            Self::Ends(ends) => &ends.result,
            Self::Aggregates(query) => &query.result,
            Self::Update(_) | Self::Delete(_) | Self::Insert(_) => return None,
        };
        match result.types.as_slice() {
            [one] if is_key_type(*one) => Some(*one),
            _ => None,
        }
    }
}

impl Execution<'_> {
    /// Runs the subqueries of a statement, and then the statement with their values.
    pub(super) fn run_with(&self, subqueries: &[Subquery]) -> Result<Run> {
        let Some(begun) = self.statement()? else {
            return Ok(Run::Undecided);
        };
        let mut inner = Execution {
            compiled: self.compiled,
            transaction: self.transaction,
            values: self.values,
            now_us: self.now_us,
            checks: self.checks.clone(),
            begun: Some(begun.clone()),
            queried: Vec::with_capacity(subqueries.len()),
        };
        // An inner subquery comes before the one that it is in.
        for subquery in subqueries {
            let Some(value) = inner.value_of(&begun, &subquery.statement)? else {
                return Ok(Run::Undecided);
            };
            inner.queried.push(scalar_of(&value, subquery.sql_type));
        }
        inner.run_alone()
    }

    /// The value of a query of one column; NULL if there is no row.
    fn value_of(&self, begun: &Arc<Statement>, query: &RowStatement) -> Decided<Value> {
        let table = &query.table;
        let mut row = match &query.operation {
            Operation::Search(search, _, lock) => {
                let Some(mut found) = self.find(begun, table, search, *lock)? else {
                    return Ok(None);
                };
                if found.len() > search.reads.len() {
                    return Ok(None);
                }
                return Ok(Some(found.drain(..).next().unwrap_or(Value::Null)));
            }
            Operation::Select(select) => match self.select(select)? {
                Run::Row(row) => row,
                _ => return Ok(None),
            },
            Operation::Ends(ends) => match self.ends(table, ends)? {
                Run::Row(row) => row,
                _ => return Ok(None),
            },
            Operation::Aggregates(aggregates) => match self.aggregate(table, aggregates)? {
                Run::Row(row) => row,
                _ => return Ok(None),
            },
            Operation::Update(_) | Operation::Delete(_) | Operation::Insert(_) => return Ok(None),
        };
        let value = row.take().and_then(|values| values.into_iter().next());
        Ok(Some(value.unwrap_or(Value::Null)))
    }
}
