//! INSERT, UPDATE, DELETE and MERGE.
//!
//! A statement is rewritten into a SELECT whose rows describe the changes: the hidden row ids of
//! the rows to change and the new values of their columns. DataFusion plans and runs that SELECT
//! like any other. Our node on top of it ([`node`]) applies the rows through the engine.
//! DataFusion's own DML is never used: it loses the conditions of some statements and changes whole
//! tables.
//!
//! ```text
//! RETURNING projection
//!   Dml                      applies; passes on the rows it changed
//!     CHECK projection       conditions on the new rows
//!       computed rows        row ids, actions, new values  (update, delete, insert, upsert, merge)
//!         SELECT             what the user wrote
//! ```
//!
//! Invariants:
//! * A statement never sees its own changes (the engine's statement numbers), so rows are applied
//!   while the SELECT still runs.
//! * Expressions are computed from old values.
//! * A row is changed at most once ([`row_set`]), also by all parts of a statement with changes in
//!   WITH.
//! * The caller gives the statement a savepoint and retries it on a conflict under read committed.
//!   It then calls `Statement::finish`, which checks deferred uniqueness.

mod apply;
mod arbiter;
pub(crate) mod assignment;
mod by_row;
mod checks;
mod defaults;
mod delete;
mod direct;
mod exec;
mod failing_row;
mod inference;
mod insert;
mod keys;
mod merge;
mod node;
mod operation;
mod pipeline;
mod probe;
mod query;
mod row_set;
mod sequence;
mod set_list;
pub(crate) mod sink;
mod source;
mod steps;
mod target;
mod update;
mod upsert;
mod values;
mod widen;

use crate::planning::context::StatementContext;
use crate::values::result::Gathered;
pub(crate) use by_row::{plan_values, values_query};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::sql::sqlparser::ast;
pub(crate) use defaults::draws_identity;
pub(crate) use direct::may_be_direct;
use futures::TryStreamExt;
pub(crate) use insert::plain_row;
pub use node::extension_planner;
pub(crate) use node::{is_own, numbers_rows, owned};
pub(crate) use operation::Tally;
pub(crate) use pipeline::{DmlForm, DmlPlan};
pub(crate) use row_set::ChangedRows;
use std::sync::Arc;
use std::sync::atomic::Ordering;
pub(crate) use steps::{Change, Widen};
use strandline_base::{Error, Result};
use strandline_semantics::error::convert;
pub(crate) use target::from_as;

/// The result of a DML statement.
pub struct DmlOutcome {
    /// `INSERT`, `UPDATE`, `DELETE`, `MERGE`
    pub tag: &'static str,
    /// rows affected
    pub rows: u64,
    /// RETURNING's result
    pub returning: Option<(SchemaRef, Vec<RecordBatch>)>,
}

/// The DML statement itself and its WITH clause.
pub(crate) fn parts(statement: &ast::Statement) -> Option<(&ast::Statement, Option<&ast::With>)> {
    match statement {
        ast::Statement::Insert(_)
        | ast::Statement::Update(_)
        | ast::Statement::Delete(_)
        | ast::Statement::Merge(_) => Some((statement, None)),
        ast::Statement::Query(query) => match query.body.as_ref() {
            ast::SetExpr::Insert(inner)
            | ast::SetExpr::Update(inner)
            | ast::SetExpr::Delete(inner)
            | ast::SetExpr::Merge(inner) => Some((inner, query.with.as_ref())),
            _ => None,
        },
        _ => None,
    }
}

/// Plans INSERT, UPDATE, DELETE or MERGE. It does not change the rows in `changed` again, and adds
/// those that it changes.
pub(crate) async fn plan(
    context: &StatementContext,
    statement: &ast::Statement,
    changed: &Arc<ChangedRows>,
) -> Result<DmlPlan> {
    let planned = match parts(statement) {
        Some((ast::Statement::Insert(insert), with)) => insert::plan(context, insert, with).await,
        Some((ast::Statement::Update(update), with)) => update::plan(context, update, with).await,
        Some((ast::Statement::Delete(delete), with)) => delete::plan(context, delete, with).await,
        Some((ast::Statement::Merge(merge), with)) => merge::plan(context, merge, with).await,
        _ => Err(Error::internal("not a statement that changes rows")),
    }?;
    planned.tally.share(changed);
    Ok(planned)
}

/// Executes INSERT, UPDATE, DELETE or MERGE; `changed` as for [`plan`]. The caller provides
/// savepoint, retry and `finish`.
///
/// # Errors
/// PostgreSQL's SQLSTATEs; `ErrorKind::Conflict` asks for a retry with a new snapshot. After an
/// error the caller must roll back the statement's changes.
pub async fn execute(
    context: &mut StatementContext,
    statement: &ast::Statement,
    changed: &Arc<ChangedRows>,
) -> Result<DmlOutcome> {
    if let Some(done) = execute_directly(context, statement)? {
        return Ok(done);
    }
    let planned = plan(context, statement, changed).await?;
    context.fit(&planned.plan)?;
    run(context, planned).await
}

/// Executes an INSERT of literals only; None: the statement needs a plan.
pub(crate) fn execute_directly(
    context: &StatementContext,
    statement: &ast::Statement,
) -> Result<Option<DmlOutcome>> {
    let ast::Statement::Insert(insert) = statement else {
        return Ok(None);
    };
    let rows = direct::execute(context, insert)?;
    Ok(rows.map(|rows| DmlOutcome {
        tag: "INSERT",
        rows,
        returning: None,
    }))
}

/// Runs a planned statement to its end.
async fn run(context: &StatementContext, planned: DmlPlan) -> Result<DmlOutcome> {
    let DmlPlan { plan, form, tally } = planned;
    drain(context, context.run(plan).await?, form, &tally).await
}

/// Runs a statement's physical plan, whose rows have the columns of `schema`, to its end.
pub(crate) async fn run_physical(
    context: &StatementContext,
    plan: Arc<dyn ExecutionPlan>,
    schema: &SchemaRef,
    form: DmlForm,
    tally: &Tally,
) -> Result<DmlOutcome> {
    drain(context, context.start(plan, schema)?, form, tally).await
}

async fn drain(
    context: &StatementContext,
    (schema, mut stream): (SchemaRef, SendableRecordBatchStream),
    DmlForm { tag, returning }: DmlForm,
    tally: &Tally,
) -> Result<DmlOutcome> {
    let mut rows = Gathered::new(context.memory());
    while let Some(batch) = stream.try_next().await.map_err(convert)? {
        if returning {
            rows.push(batch).map_err(convert)?;
        }
    }
    if !tally.complete.load(Ordering::Acquire) {
        return Err(Error::internal(format!("{tag} was not applied completely")));
    }
    Ok(DmlOutcome {
        tag,
        rows: tally.rows.load(Ordering::Relaxed),
        returning: returning.then(|| (schema, rows.into_batches())),
    })
}

/// Inserts `rows`, whose fields belong to the table's columns at `positions`, for COPY. Given
/// values of identity columns are kept. Returns the number of rows.
pub(crate) async fn load(
    context: &StatementContext,
    name: &ast::ObjectName,
    positions: Vec<usize>,
    rows: LogicalPlan,
) -> Result<u64> {
    let planned = insert::plan_load(context, name, positions, rows).await?;
    Ok(run(context, planned).await?.rows)
}

/// `SELECT projection FROM from WHERE selection` without other clauses.
pub(crate) fn plain_select(
    projection: Vec<ast::SelectItem>,
    from: Vec<ast::TableWithJoins>,
    selection: Option<ast::Expr>,
) -> ast::Query {
    query::select(None, projection, from, selection)
}

/// `SELECT items FROM name`.
pub(crate) fn select_from(name: &ast::ObjectName, items: Vec<ast::SelectItem>) -> ast::Query {
    query::select(None, items, vec![target::plain_from(name)], None)
}
