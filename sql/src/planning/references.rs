//! Prepares the table references that DataFusion's SQL planner cannot express, before it sees the
//! query: `t FOR SYSTEM_TIME …`, tables whose hidden column `_rowid` is named, and files. Each
//! becomes a table in the statement's catalog, found under a number; an alias keeps the user's
//! name. Clauses that DataFusion would silently ignore (`FOR UPDATE`, `TABLESAMPLE`, hints) are
//! refused.
//!
//! Before that, [`qualifiers`] gives tables the names by which their columns are found,
//! [`table_oid`] replaces the hidden column `tableoid`, and [`merged`] the columns that joins
//! merge.

mod hidden;
pub(crate) mod merged;
pub(crate) mod qualifiers;
mod refuse;
mod row_id;
pub(crate) mod system_names;
pub(crate) mod table_oid;

use crate::catalogs::pg_catalog::functions::Used;
use crate::parse::names;
use crate::parse::system_time::SystemTimeInterval;
use crate::planning::provider::files;
use crate::values::value;
use async_trait::async_trait;
use datafusion::arrow::datatypes::Schema;
use datafusion::catalog::TableProvider;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::collect;
use datafusion::scalar::ScalarValue;
use datafusion::sql::parser::Statement as ParsedStatement;
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, ObjectName, ObjectNamePart, Query, Select, TableAlias, TableFactor, TableVersion,
    VisitorMut,
};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use strandline_base::{CommitTs, Error, Result, SqlState, SqlType};
use strandline_semantics as semantics;
use strandline_semantics::error::convert;
use strandline_semantics::sql::walk::walk_mut;
use strandline_semantics::types;

#[cfg(test)]
mod tests;

/// The names of a statement, which resolve references and keep prepared ones.
#[async_trait]
pub trait TableNames: Send + Sync {
    /// The table or view `schema.name`; with `row_id` a table shows its hidden column.
    async fn resolve(
        &self,
        schema: &str,
        name: &str,
        row_id: bool,
    ) -> Result<Option<Arc<dyn TableProvider>>>;

    /// The error for a name that [`TableNames::resolve`] does not find.
    fn undefined(&self, schema: &str, name: &str) -> Error;

    /// The same statement's names at the moment `ts`.
    fn at(&self, ts: CommitTs) -> Result<Arc<dyn TableNames>>;

    /// The versions of the rows of table `schema.name` in an interval with inclusive bounds. An
    /// interval that ends before it begins has none.
    fn versions(
        &self,
        table: (&str, &str),
        interval: (CommitTs, CommitTs),
    ) -> Result<Arc<dyn TableProvider>>;

    /// 42501 unless the statement's user may read the server's files.
    fn require_files(&self) -> Result<()>;

    /// Keeps a prepared reference; returns its new name.
    fn keep(&self, table: Arc<dyn TableProvider>) -> ObjectName;

    /// The columns of `query`, which has no parameters.
    async fn columns_of(&self, state: &SessionState, query: Query) -> Result<Vec<RelationColumn>>;
}

/// A column of an item of FROM.
#[derive(Clone, Debug)]
pub struct RelationColumn {
    pub name: String,
    /// None: a type that tables do not store, or numeric without precision
    pub sql_type: Option<SqlType>,
}

impl RelationColumn {
    /// The columns of a schema.
    pub fn all_of(schema: &Schema) -> Vec<Self> {
        let columns = schema.fields().iter().map(|field| Self {
            name: field.name().clone(),
            sql_type: types::sql_type_of(field).filter(|_| !types::is_unconstrained_numeric(field)),
        });
        columns.collect()
    }
}

/// Prepares every reference of `query`, whose parameters are bound. Returns the system's functions
/// that it calls.
pub async fn prepare(
    query: &mut Query,
    names: &dyn TableNames,
    state: &SessionState,
) -> Result<Used> {
    let survey = Survey::of(query)?;
    if survey.names_row_id {
        row_id::mark(query)?;
    } else if !survey.has_special {
        return Ok(survey.used);
    }
    let found = Collector::default().run(query);
    if found.is_empty() {
        return Ok(survey.used);
    }
    let mut prepared = Vec::with_capacity(found.len());
    for reference in &found {
        prepared.push(resolve(reference, names, state).await?);
    }
    let _ = walk_mut(
        query,
        &mut Replacer {
            prepared: prepared.into_iter(),
        },
    );
    Ok(survey.used)
}

/// The one walk over a query that needs no preparation: it refuses clauses, marks table functions,
/// and finds whether there is more to do.
#[derive(Default)]
struct Survey {
    used: Used,
    /// `_rowid` may be a column
    names_row_id: bool,
    /// there are references to prepare beside those that name `_rowid`
    has_special: bool,
}

impl Survey {
    fn of(query: &mut Query) -> Result<Self> {
        let mut survey = Self::default();
        match walk_mut(query, &mut survey) {
            ControlFlow::Continue(()) => Ok(survey),
            ControlFlow::Break(error) => Err(error),
        }
    }
}

impl VisitorMut for Survey {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        refuse::query(query)
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Error> {
        refuse::select(select)
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Error> {
        refuse::table_factor(factor)?;
        mark_function(factor);
        self.has_special |= special(factor).is_some();
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        self.used.note(expr);
        self.names_row_id |= names::is_column(expr, names::ROW_ID);
        ControlFlow::Continue(())
    }
}

/// Marks a call of a table function, which the parser reads as a table with arguments. DataFusion
/// would look for a table of that name first.
fn mark_function(factor: &mut TableFactor) {
    if let TableFactor::Table {
        name,
        alias,
        args: Some(arguments),
        ..
    } = factor
    {
        *factor = TableFactor::Function {
            lateral: false,
            name: name.clone(),
            args: std::mem::take(&mut arguments.args),
            with_ordinality: false,
            alias: alias.take(),
        };
    }
}

/// A reference to prepare.
#[derive(Debug)]
struct Reference {
    name: ObjectName,
    time: Option<SystemTime>,
    row_id: bool,
}

/// The FOR SYSTEM_TIME clause.
#[derive(Debug)]
enum SystemTime {
    AsOf(Box<Expr>),
    Interval(Box<SystemTimeInterval>),
}

impl SystemTime {
    fn of(version: &TableVersion) -> Option<Self> {
        if let Some(interval) = SystemTimeInterval::of(version) {
            return Some(Self::Interval(Box::new(interval)));
        }
        match version {
            TableVersion::ForSystemTimeAsOf(moment) => Some(Self::AsOf(Box::new(moment.clone()))),
            _ => None,
        }
    }
}

/// The reference to prepare in a table factor; None if DataFusion handles it.
fn special(factor: &TableFactor) -> Option<Reference> {
    let TableFactor::Table {
        name,
        args: None,
        version,
        partitions,
        ..
    } = factor
    else {
        return None;
    };
    let time = version.as_ref().and_then(SystemTime::of);
    let row_id = partitions.iter().any(|p| p.value == row_id::MARK);
    (time.is_some() || row_id || file_path(name).is_some()).then(|| Reference {
        name: name.clone(),
        time,
        row_id,
    })
}

/// The path in `FROM 'path'`.
fn file_path(name: &ObjectName) -> Option<&str> {
    match name.0.as_slice() {
        [
            ObjectNamePart::Identifier(Ident {
                value,
                quote_style: Some('\''),
                ..
            }),
        ] => Some(value),
        _ => None,
    }
}

#[derive(Default)]
struct Collector {
    found: Vec<Reference>,
}

impl Collector {
    fn run(mut self, query: &mut Query) -> Vec<Reference> {
        let _ = walk_mut(query, &mut self);
        self.found
    }
}

impl VisitorMut for Collector {
    type Break = ();

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        self.found.extend(special(factor));
        ControlFlow::Continue(())
    }
}

/// Puts the prepared names in place, in the order of the collected references.
struct Replacer {
    prepared: std::vec::IntoIter<ObjectName>,
}

impl VisitorMut for Replacer {
    type Break = ();

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if special(factor).is_none() {
            return ControlFlow::Continue(());
        }
        let TableFactor::Table {
            name,
            alias,
            version,
            partitions,
            ..
        } = factor
        else {
            return ControlFlow::Continue(());
        };
        if let Some(prepared) = self.prepared.next() {
            let shown = default_alias(name);
            *name = prepared;
            *version = None;
            partitions.clear();
            alias.get_or_insert_with(|| TableAlias {
                explicit: true,
                name: shown,
                columns: Vec::new(),
                at: None,
            });
        }
        ControlFlow::Continue(())
    }
}

fn default_alias(name: &ObjectName) -> Ident {
    if let Some(path) = file_path(name) {
        let stem = Path::new(path)
            .file_stem()
            .and_then(|s| s.to_str())
            .unwrap_or("file");
        return names::ident(stem);
    }
    match name.0.last() {
        Some(ObjectNamePart::Identifier(ident)) => names::ident(&names::fold(ident)),
        _ => names::ident("table"),
    }
}

async fn resolve(
    reference: &Reference,
    names: &dyn TableNames,
    state: &SessionState,
) -> Result<ObjectName> {
    if let Some(path) = file_path(&reference.name) {
        if reference.time.is_some() {
            return Err(Error::invalid(
                SqlState::WRONG_OBJECT_TYPE,
                format!("\"{path}\" is a file and has no history"),
            ));
        }
        names.require_files()?;
        return Ok(names.keep(files::open(path, state).await?));
    }
    let default_schema = &state.config_options().catalog.default_schema;
    let (schema, table) = names::qualified(&reference.name, default_schema)?;
    let moment: Arc<dyn TableNames>;
    let names_then = match &reference.time {
        Some(SystemTime::Interval(interval)) => {
            if reference.row_id {
                return Err(Error::unsupported(
                    "_rowid of a table FOR SYSTEM_TIME with an interval is not supported",
                ));
            }
            let interval = bounds(interval, state).await?;
            return Ok(names.keep(names.versions((&schema, &table), interval)?));
        }
        Some(SystemTime::AsOf(expression)) => {
            moment = names.at(evaluate(expression, state).await?)?;
            moment.as_ref()
        }
        None => names,
    };
    let found = names_then
        .resolve(&schema, &table, reference.row_id)
        .await?;
    let found = found.ok_or_else(|| names_then.undefined(&schema, &table))?;
    Ok(names.keep(found))
}

/// The first and the last moment of an interval; of an empty one the last is before the first.
async fn bounds(
    interval: &SystemTimeInterval,
    state: &SessionState,
) -> Result<(CommitTs, CommitTs)> {
    let low = evaluate(&interval.low, state).await?;
    let high = evaluate(&interval.high, state).await?;
    if interval.is_closed {
        return Ok((low, high));
    }
    Ok(match high.0.checked_sub(1) {
        Some(last) => (low, CommitTs(last)),
        None => (low.max(CommitTs(1)), CommitTs::ZERO),
    })
}

/// The moment of an expression in `FOR SYSTEM_TIME`.
async fn evaluate(expression: &Expr, state: &SessionState) -> Result<CommitTs> {
    let sql = format!("SELECT CAST({expression} AS TIMESTAMP WITH TIME ZONE)");
    let mut statement = crate::parse::statement(&sql)?;
    semantics::sql::normalize(&mut statement)?;
    let plan: LogicalPlan = state
        .statement_to_plan(ParsedStatement::Statement(Box::new(statement)))
        .await
        .map_err(|error| {
            let error = convert(error);
            if error.sqlstate() == SqlState::UNDEFINED_COLUMN {
                error.with_hint("FOR SYSTEM_TIME takes expressions without columns.")
            } else {
                error
            }
        })?;
    let physical = state.create_physical_plan(&plan).await.map_err(convert)?;
    let batches = collect(physical, state.task_ctx()).await.map_err(convert)?;
    let scalar = match batches.iter().find(|batch| batch.num_rows() > 0) {
        Some(batch) => ScalarValue::try_from_array(batch.column(0), 0).map_err(convert)?,
        None => ScalarValue::Null,
    };
    let us = if scalar.is_null() {
        None
    } else {
        value::timestamp_us(&scalar)
    };
    match us.map(u64::try_from) {
        Some(Ok(us)) => Ok(CommitTs(us)),
        Some(Err(_)) => Err(Error::invalid(
            SqlState::INVALID_PARAMETER_VALUE,
            "FOR SYSTEM_TIME names a moment before 1970",
        )),
        None => Err(Error::invalid(
            SqlState::INVALID_PARAMETER_VALUE,
            "the timestamp of FOR SYSTEM_TIME is NULL",
        )),
    }
}
