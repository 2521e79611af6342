//! INSERT, UPDATE, DELETE and MERGE in a statement's WITH.
//!
//! They are *parts* of the statement and run before what follows WITH, each once and to its end, in
//! the order in which they are written, whether or not anything names them. The rows that a part
//! returns become a table, which takes its place in WITH.
//!
//! Invariants:
//! 1. All parts belong to one statement of the engine. They see the same snapshot, and none sees
//!    the changes of another except by RETURNING.
//! 2. A row is changed at most once by all parts ([`ChangedRows`]): the first change counts, and ON
//!    CONFLICT DO UPDATE or MERGE of such a row fails with 21000.
//! 3. A query in WITH that is named more than once is a part too. Its rows may depend on the moment
//!    of its execution (locks, volatile functions), and all who name it get the same rows.
//! 4. Changes in a WITH that is not the statement's own are refused where queries are planned
//!    (0A000): nothing says how often they would run.

use crate::execution::dml::{self, ChangedRows, DmlPlan};
use crate::parse::names;
use crate::planning::context::StatementContext;
use crate::planning::provider::returned_rows::ReturnedRows;
use crate::statements::roles;
use crate::values::result::Gathered;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::sql::sqlparser::ast::{self, SetExpr, Visit, Visitor};
use futures::TryStreamExt;
use std::ops::ControlFlow;
use std::sync::Arc;
use strandline_base::{Error, Result, SqlState};
use strandline_semantics as semantics;
use strandline_semantics::error::convert;
use strandline_semantics::sql::walk::walk;

/// A part of a statement.
pub(crate) struct Part {
    /// its name in WITH
    pub name: String,
    /// with all types settled
    pub plan: LogicalPlan,
    /// what has run; None: the statement is only planned
    pub ran: Option<Arc<dyn ExecutionPlan>>,
}

/// A statement without its parts.
pub(crate) struct Rest {
    /// what follows WITH, with the other queries of WITH and tables in place of the parts
    pub query: ast::Query,
    pub parts: Vec<Part>,
    /// the rows that the parts have changed
    pub changed: Arc<ChangedRows>,
}

impl Rest {
    /// What follows WITH, as a statement.
    pub fn statement(&self) -> ast::Statement {
        ast::Statement::Query(Box::new(self.query.clone()))
    }
}

/// The query with WITH that a statement with parts is.
pub(crate) fn parted(statement: &ast::Statement) -> Option<&ast::Query> {
    match statement {
        ast::Statement::Query(query) if has_parts(query) => Some(query),
        _ => None,
    }
}

/// Whether there are changes in the query's WITH.
pub(crate) fn has_parts(query: &ast::Query) -> bool {
    let with = query.with.as_ref();
    with.is_some_and(|with| with.cte_tables.iter().any(|cte| is_change(&cte.query)))
}

fn is_change(query: &ast::Query) -> bool {
    matches!(
        *query.body,
        SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_)
    )
}

/// Runs the parts of a statement.
pub(crate) async fn run(context: &mut StatementContext, query: &ast::Query) -> Result<Rest> {
    settle(Access::Run(context), query).await
}

/// Plans the parts of a statement. Their tables have no rows.
pub(crate) async fn plan(context: &StatementContext, query: &ast::Query) -> Result<Rest> {
    settle(Access::Plan(context), query).await
}

/// What is done with parts.
enum Access<'a> {
    Plan(&'a StatementContext),
    Run(&'a mut StatementContext),
}

impl Access<'_> {
    fn context(&self) -> &StatementContext {
        match self {
            Self::Plan(context) => context,
            Self::Run(context) => context,
        }
    }
}

async fn settle(access: Access<'_>, query: &ast::Query) -> Result<Rest> {
    let mut query = query.clone();
    let is_recursive = query.with.as_ref().is_some_and(|with| with.recursive);
    let tables = query.with.as_mut().map(|with| &mut with.cte_tables);
    let mut tables = tables.map(std::mem::take).unwrap_or_default();
    let mut settling = Settling {
        access,
        before: query.with.clone(),
        parts: Vec::new(),
        changed: Arc::default(),
    };
    while !tables.is_empty() {
        let mut cte = tables.remove(0);
        let name = names::fold(&cte.alias.name);
        let uses = naming(&tables, &name) + naming(&query, &name);
        match is_change(&cte.query) {
            true => {
                if is_recursive && naming(&cte.query, &name) > 0 {
                    return Err(Error::invalid(
                        SqlState("42P19"),
                        format!(
                            "recursive query \"{name}\" must not contain data-modifying statements"
                        ),
                    ));
                }
                let returned = settling.change(&name, &cte.query).await?;
                if returned.is_none() && uses > 0 {
                    return Err(Error::unsupported(format!(
                        "WITH query \"{name}\" does not have a RETURNING clause"
                    )));
                }
                let Some(returned) = returned else { continue };
                *cte.query = returned;
            }
            false if uses > 1 => *cte.query = settling.query(&name, &cte).await?,
            false => {}
        }
        settling.add(cte);
    }
    query.with = settling.before.filter(|with| !with.cte_tables.is_empty());
    settling.access.context().writes_without_reading(None);
    Ok(Rest {
        query,
        parts: settling.parts,
        changed: settling.changed,
    })
}

/// A statement whose parts are being settled.
struct Settling<'a> {
    access: Access<'a>,
    /// the queries in WITH before the next part
    before: Option<ast::With>,
    parts: Vec<Part>,
    changed: Arc<ChangedRows>,
}

impl Settling<'_> {
    fn add(&mut self, cte: ast::Cte) {
        if let Some(with) = &mut self.before {
            with.cte_tables.push(cte);
        }
    }

    /// Settles a change; returns a query of the rows that it returns, if it has RETURNING.
    async fn change(&mut self, name: &str, change: &ast::Query) -> Result<Option<ast::Query>> {
        if has_parts(change) {
            return Err(Error::unsupported(
                "WITH clause containing a data-modifying statement must be at the top level",
            ));
        }
        let mut change = change.clone();
        let own = change.with.take();
        change.with.clone_from(&self.before);
        if let (Some(with), Some(own)) = (&mut change.with, own) {
            with.recursive |= own.recursive;
            with.cte_tables.extend(own.cte_tables);
        }
        let change = ast::Statement::Query(Box::new(change));
        let context = self.access.context();
        context.writes_without_reading(roles::check::dml(context, &change)?);
        let DmlPlan { plan, form, tally } = dml::plan(context, &change, &self.changed).await?;
        let schema = semantics::sql::output_schema(plan.schema().inner());
        let plan = context.analyze(plan)?;
        let (ran, rows) = match &mut self.access {
            Access::Plan(_) => (None, None),
            Access::Run(context) => {
                context.fit(&plan)?;
                let physical = context.physical(plan.clone(), false).await?;
                let done = dml::run_physical(context, physical.clone(), &schema, form, &tally);
                (Some(physical), done.await?.returning)
            }
        };
        self.parts.push(Part {
            name: name.to_string(),
            plan,
            ran,
        });
        if !form.returning {
            return Ok(None);
        }
        let rows = rows.map(|(_, rows)| rows).unwrap_or_default();
        self.table(schema, rows).map(Some)
    }

    /// Settles a query that is named more than once; returns a query of its rows.
    async fn query(&mut self, name: &str, cte: &ast::Cte) -> Result<ast::Query> {
        let relation = ast::ObjectName::from(vec![cte.alias.name.clone()]);
        let mut query = dml::select_from(&relation, vec![all_columns()]);
        let mut with = self.before.clone();
        if let Some(with) = &mut with {
            with.cte_tables.push(cte.clone());
        }
        query.with = with;
        let context = self.access.context();
        context.writes_without_reading(None);
        let plan = context.plan_query(&query).await?;
        let schema = semantics::sql::output_schema(plan.schema().inner());
        let plan = context.analyze(plan)?;
        let (mut ran, mut rows) = (None, Vec::new());
        if let Access::Run(context) = &mut self.access {
            context.fit(&plan)?;
            let physical = context.physical(plan.clone(), false).await?;
            rows = gathered(context, physical.clone(), &schema).await?;
            ran = Some(physical);
        }
        self.parts.push(Part {
            name: name.to_string(),
            plan,
            ran,
        });
        self.table(schema, rows)
    }

    /// A query of the rows of the last part.
    fn table(&self, schema: SchemaRef, rows: Vec<RecordBatch>) -> Result<ast::Query> {
        let part = self.parts.len() - 1;
        let table = ReturnedRows::new(part, schema, rows).map_err(convert)?;
        let relation = self.access.context().keep(Arc::new(table));
        Ok(dml::select_from(&relation, vec![all_columns()]))
    }
}

fn all_columns() -> ast::SelectItem {
    ast::SelectItem::Wildcard(ast::WildcardAdditionalOptions::default())
}

/// All rows of a query.
async fn gathered(
    context: &StatementContext,
    plan: Arc<dyn ExecutionPlan>,
    schema: &SchemaRef,
) -> Result<Vec<RecordBatch>> {
    let (_, mut stream) = context.start(plan, schema)?;
    let mut rows = Gathered::new(context.memory());
    while let Some(batch) = stream.try_next().await.map_err(convert)? {
        rows.push(batch).map_err(convert)?;
    }
    Ok(rows.into_batches())
}

/// How often `node` names the relation `name` without a schema.
fn naming(node: &impl Visit, name: &str) -> usize {
    struct Naming<'a>(&'a str, usize);

    impl Visitor for Naming<'_> {
        type Break = ();

        fn pre_visit_relation(&mut self, relation: &ast::ObjectName) -> ControlFlow<()> {
            let is_it = names::single(relation).is_ok_and(|name| name == self.0);
            self.1 += usize::from(is_it);
            ControlFlow::Continue(())
        }
    }

    let mut naming = Naming(name, 0);
    let _ = walk(node, &mut naming);
    naming.1
}
