//! One execution of a compiled statement: its inputs, and what came of it.

use super::expressions::Slots;
use super::program::Compiled;
use super::source::{Datum, Source};
use super::value::{Comparand, comparand};
use crate::execution::row_checks::CheckSet;
use crate::values::result::QueryResult;
use crate::values::value_row::ValueRow;
use datafusion::scalar::ScalarValue;
use std::sync::Arc;
use strandline_base::{Result, SqlType, Value};
use strandline_engine::catalog::TableDef;
use strandline_engine::{Statement, Transaction};

/// What came of running a statement.
#[derive(Debug)]
pub(crate) enum Run {
    /// a query's row, if there is one
    Row(ValueRow),
    /// a query's rows
    Rows(QueryResult),
    /// the command tag, the number of rows, and what RETURNING gives
    Done(&'static str, u64, Option<QueryResult>),
    /// The full path decides. What has been written is to be undone.
    Undecided,
}

/// One execution of a compiled statement.
pub(crate) struct Execution<'a> {
    pub compiled: &'a Compiled,
    pub transaction: &'a Arc<Transaction>,
    pub values: &'a [ScalarValue],
    /// 0 if the statement does not ask for it
    pub now_us: u64,
    /// the table's CHECK constraints, if it has any
    pub checks: Option<Arc<CheckSet>>,
    /// the statement of the engine that all parts run in, if it has begun
    pub begun: Option<Arc<Statement>>,
    /// the values of subqueries
    pub queried: Vec<ScalarValue>,
}

/// `None` in it: not decided here.
pub(super) type Decided<T> = Result<Option<T>>;

impl Execution<'_> {
    /// The values of slots.
    pub(super) fn slots(&self) -> Slots<'_> {
        Slots {
            values: self.values,
            now_us: self.now_us,
        }
    }

    pub(super) fn datum(&self, source: &Source) -> Option<Datum> {
        match source {
            Source::Query(at, sql_type) => Some(Datum {
                value: self.queried.get(*at)?.clone(),
                known: Some(*sql_type),
            }),
            source => source.datum(self.values, self.now_us),
        }
    }

    /// The key's values; `Some(None)`: no row has it.
    pub(super) fn key_values(&self, parts: &[(SqlType, Source)]) -> Option<Option<Vec<Value>>> {
        let mut found = Vec::with_capacity(parts.len());
        let mut never = false;
        for (sql_type, source) in parts {
            match comparand(&self.datum(source)?, *sql_type)? {
                Comparand::Value(value) => found.push(value),
                Comparand::Never => never = true,
            }
        }
        Some((!never).then_some(found))
    }

    /// A statement for what needs one; None if it goes by another catalog.
    pub(super) fn statement(&self) -> Decided<Arc<Statement>> {
        if let Some(begun) = &self.begun {
            return Ok(Some(begun.clone()));
        }
        let statement = self.transaction.begin_statement()?;
        let same = Arc::ptr_eq(&self.transaction.catalog(), &self.compiled.catalog);
        Ok(same.then_some(statement))
    }

    pub(super) fn passes(&self, table: &TableDef, row: &[Value]) -> bool {
        let checks = self.checks.as_ref();
        checks.is_none_or(|checks| checks.check_row(table, row).is_ok())
    }
}
