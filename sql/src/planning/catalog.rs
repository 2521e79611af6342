//! Resolves names to tables for one statement, at its snapshot or at one moment of the past.
//!
//! A [`StatementCatalog`] is DataFusion's catalog list, catalog and schemas at once ([`schemas`]).
//! A view is planned when a query names it ([`views`]). References that DataFusion's planner cannot
//! express (see [`references`]) are kept here under numbers, in a schema whose name no user can
//! write.

mod relations;
mod schemas;
mod views;

use crate::backends::acting::{Acting, Shown, files_denied};
use crate::backends::identity::Identity;
use crate::catalogs::information_schema;
use crate::catalogs::pg_catalog::{self, Sequence, System, ViewColumns};
use crate::parse::names;
use crate::parse::params;
use crate::planning::locking;
use crate::planning::provider::history::HistoryFunction;
use crate::planning::provider::table::Table;
use crate::planning::provider::versions::Versions;
use crate::planning::query_facts::QueryFacts;
use crate::planning::references;
use crate::planning::references::{RelationColumn, TableNames};
use crate::planning::subplan;
use crate::planning::template::{Fit, StatementState, Template};
use async_trait::async_trait;
use datafusion::arrow::temporal_conversions::timestamp_us_to_datetime;
use datafusion::catalog::TableProvider;
use datafusion::catalog::view::ViewTable;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::scalar::ScalarValue;
use datafusion::sql::parser::Statement as ParsedStatement;
use datafusion::sql::sqlparser::ast;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
use strandline_base::{CommitTs, Error, Result, SqlState, TableId};
use strandline_engine::Statement;
use strandline_engine::access::{Object, Privileges};
use strandline_engine::catalog::{Catalog, TableDef};
use strandline_semantics as semantics;
use strandline_semantics::error::convert;
use strandline_semantics::rules::PlanTraits;

/// The schema of prepared references; no user can write the control character.
pub const REFERENCES: &str = "\u{1}references";

type Present = Arc<Mutex<Vec<Arc<TableDef>>>>;

/// The surroundings of name resolution. Views and moments of the past resolve names in a copy with
/// some parts changed.
#[derive(Clone)]
struct Scope {
    template: Arc<Template>,
    statement: Arc<Statement>,
    catalog: Arc<Catalog>,
    as_of: Option<CommitTs>,
    now_us: u64,
    /// The views being planned, outermost first.
    expanding: Vec<(String, String)>,
    /// the tables read as of the statement's snapshot, also by views
    present: Present,
    /// the user whose privileges are checked; None: a superuser
    acting: Option<Arc<Acting>>,
    /// the system asks, which may read everything, through views too
    is_system: bool,
    /// the query whose names these are is a view's whose rows are locked
    locks_rows: bool,
}

/// The names of a statement, at its snapshot or at one moment of the past.
pub struct StatementCatalog {
    scope: Scope,
    references: Mutex<Vec<Arc<dyn TableProvider>>>,
    moments: Mutex<HashMap<CommitTs, Arc<StatementCatalog>>>,
    /// the table that is written without being read
    exempt: Mutex<Option<TableId>>,
    /// the relations, with their schemas, whose rows the query being planned locks
    locked: Mutex<HashSet<(String, String)>>,
    /// what system tables and functions look at, once one is named
    system: OnceLock<Arc<System>>,
    this: Weak<StatementCatalog>,
}

impl StatementCatalog {
    /// The names as `statement` sees them. `is_system`: nobody's rights are checked.
    pub fn current(
        template: Arc<Template>,
        statement: Arc<Statement>,
        catalog: Arc<Catalog>,
        now_us: u64,
        is_system: bool,
    ) -> Arc<Self> {
        let acting = match is_system {
            true => None,
            false => Acting::of(&template, &statement.transaction().catalog()),
        };
        Self::within(Scope {
            template,
            statement,
            catalog,
            as_of: None,
            now_us,
            expanding: Vec::new(),
            present: Present::default(),
            acting,
            is_system,
            locks_rows: false,
        })
    }

    /// The same names for a query of the system's own, such as a CHECK condition.
    pub fn for_system(&self) -> Arc<Self> {
        Self::within(Scope {
            acting: None,
            is_system: true,
            ..self.scope.clone()
        })
    }

    /// The session's state, from which statements' states are cloned.
    pub fn template(&self) -> &Arc<Template> {
        &self.scope.template
    }

    /// The tables that the queries planned so far read as of the statement's snapshot.
    pub fn present_tables(&self) -> Vec<Arc<TableDef>> {
        self.scope.present.lock().clone()
    }

    /// The value of `now()`, in microseconds since the epoch.
    pub fn now_us(&self) -> u64 {
        self.scope.now_us
    }

    fn within(scope: Scope) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            scope,
            references: Mutex::new(Vec::new()),
            moments: Mutex::new(HashMap::new()),
            exempt: Mutex::new(None),
            locked: Mutex::default(),
            system: OnceLock::new(),
            this: this.clone(),
        })
    }

    fn check_not_in_future(&self, ts: CommitTs, what: &str) -> Result<()> {
        let stable = self.scope.statement.transaction().db().stable();
        if ts.0 <= self.scope.now_us.max(stable.0) {
            return Ok(());
        }
        Err(Error::invalid(SqlState::INVALID_PARAMETER_VALUE, what)
            .with_hint("Use a timestamp that is not later than now()."))
    }

    /// A state whose names resolve here; unqualified names resolve in `default_schema`.
    pub fn bind(&self, default_schema: &str) -> StatementState {
        let mut state = self.scope.template.copy();
        if state.config_options().catalog.default_schema != default_schema {
            state.config_mut().options_mut().catalog.default_schema = default_schema.to_string();
        }
        let config = self.scope.template.config();
        state.fit(Fit {
            partitions: config.target_partitions(),
            batch_rows: config.batch_size(),
        });
        state.mark_start_execution();
        if let Some(now) = timestamp_us_to_datetime(self.scope.now_us as i64) {
            state.execution_props_mut().query_execution_start_time = Some(now.and_utc());
        }
        let this = self.this.upgrade().expect("bind is called through the Arc");
        state.register_udtf(
            HistoryFunction::NAME,
            Arc::new(HistoryFunction::new(
                self.scope.statement.clone(),
                self.scope.catalog.clone(),
                self.scope.acting.clone(),
            )),
        );
        state.register_catalog_list(this);
        state
    }

    /// Plans `query` in a `state` bound to this catalog, with the values of its parameters. None:
    /// they stay placeholders.
    pub async fn plan(
        &self,
        state: &SessionState,
        query: &ast::Query,
        parameters: Option<&[ScalarValue]>,
    ) -> Result<LogicalPlan> {
        let facts = QueryFacts::of(query);
        let mut query = query.clone();
        let default_schema = &state.config_options().catalog.default_schema;
        if facts.names_system_table {
            // The query of a view in another schema than the session's.
            let config = self.scope.template.config_options();
            let is_elsewhere = *default_schema != config.catalog.default_schema;
            references::system_names::qualify(&mut query, |name| {
                is_elsewhere || self.is_relation(default_schema, name)
            });
        }
        references::qualifiers::resolve(&mut query, default_schema, &|schema, name, column| {
            self.may_have_column((schema, name), column)
        })?;
        let locks = match facts.locking_clause {
            Some(_) => locking::take(&mut query)?,
            None => Vec::new(),
        };
        if let Some(locks) = locks.first().filter(|_| !self.scope.expanding.is_empty()) {
            let message = format!("{} in a view is not supported", locks.clause);
            return Err(Error::unsupported(message));
        }
        let mut relations: Vec<_> = locks.iter().flat_map(|l| l.relations.clone()).collect();
        if self.scope.locks_rows {
            locking::relations_of(&query, &mut relations);
        }
        let relations = relations.iter();
        let relations = relations.map(|name| names::qualified(name, default_schema));
        *self.locked.lock() = relations.collect::<Result<_>>()?;
        if let Some(values) = parameters.filter(|_| facts.has_parameters) {
            params::substitute(&mut query, values)?;
        }
        if facts.merges_columns {
            references::merged::expand(&mut query, self, state).await?;
        }
        let plan = self
            .plan_rewritten(state, query, facts.names_table_oid)
            .await?;
        let traits = PlanTraits::of(&plan).map_err(convert)?;
        let plan = match traits.has_subqueries {
            true => subplan::extract(plan, state)?,
            false => plan,
        };
        let plan = match traits.may_have_alternatives() {
            true => semantics::rules::settle_types(plan, state).map_err(convert)?,
            false => plan,
        };
        locking::plan::apply(plan, &locks, &self.scope.statement)
    }

    /// DataFusion's plan of a query whose merged columns are expressions already.
    async fn plan_rewritten(
        &self,
        state: &SessionState,
        mut query: ast::Query,
        may_name_table_oid: bool,
    ) -> Result<LogicalPlan> {
        if may_name_table_oid {
            references::table_oid::expand(&mut query)?;
        }
        semantics::sql::normalize(&mut query)?;
        let used = references::prepare(&mut query, self, state).await?;
        let with_system;
        let state = match used.is_empty() {
            true => state,
            false => {
                with_system = used.register(state, self.system()).map_err(convert)?;
                &with_system
            }
        };
        let statement = ast::Statement::Query(Box::new(query));
        state
            .statement_to_plan(ParsedStatement::Statement(Box::new(statement)))
            .await
            .map_err(convert)
    }

    /// The table or view `schema.name`; with `row_id` a table shows its hidden column.
    async fn find(
        &self,
        schema: &str,
        name: &str,
        row_id: bool,
    ) -> Result<Option<Arc<dyn TableProvider>>> {
        if let Some(table) = self.registered(schema, name) {
            return Ok(Some(table));
        }
        if let Some(table) = self.scope.catalog.table(schema, name) {
            self.require_read(table)?;
            if self.scope.as_of.is_none() {
                self.scope.present.lock().push(table.clone());
            }
            let owner = self.scope.statement.clone().into();
            let table = Table::new(table.clone(), owner, self.scope.as_of, row_id);
            return Ok(Some(Arc::new(table)));
        }
        if let Some(view) = self.scope.catalog.view(schema, name) {
            if let Some(acting) = &self.scope.acting {
                let object = Object::View(view.schema.clone(), view.name.clone());
                let shown = Shown {
                    kind: "view",
                    name,
                    schema,
                };
                acting.require(&object, &shown, self.needed(schema, name))?;
            }
            let locks_rows = self.is_locked(schema, name);
            let plan = self.plan_view(view, locks_rows).await?;
            return Ok(Some(Arc::new(ViewTable::new(
                plan,
                Some(view.query.clone()),
            ))));
        }
        if information_schema::is_system_schema(schema) {
            let views = match information_schema::shows_views(name) {
                true => self.view_columns().await,
                false => ViewColumns::new(),
            };
            return information_schema::table(schema, name, &self.scope.catalog, &views);
        }
        // As in PostgreSQL, unqualified names are also looked up among the system tables.
        let default = &self.scope.template.config_options().catalog.default_schema;
        if pg_catalog::has(name) && (schema == pg_catalog::PG_CATALOG || schema == default) {
            let views = match pg_catalog::shows_views(name) {
                true => self.view_columns().await,
                false => ViewColumns::new(),
            };
            return pg_catalog::table(name, self.system(), &views);
        }
        let sequence = Sequence::named(&self.scope.catalog, schema, name);
        match sequence.filter(|_| self.scope.as_of.is_none()) {
            Some(sequence) => {
                self.require_read(sequence.table)?;
                pg_catalog::sequence(self.system(), &sequence).map(Some)
            }
            None => Ok(None),
        }
    }

    /// 42501 unless the statement's user may read the table and, for a locking query, lock its
    /// rows.
    fn require_read(&self, table: &TableDef) -> Result<()> {
        let Some(acting) = &self.scope.acting else {
            return Ok(());
        };
        if *self.exempt.lock() == Some(table.id) {
            return Ok(());
        }
        acting.require_on(table, self.needed(&table.schema, &table.name))
    }

    /// What a query needs that reads the relation, and locks its rows if it does.
    fn needed(&self, schema: &str, name: &str) -> Privileges {
        match self.is_locked(schema, name) {
            true => Privileges::SELECT.with(Privileges::UPDATE),
            false => Privileges::SELECT,
        }
    }

    fn is_locked(&self, schema: &str, name: &str) -> bool {
        let locked = self.locked.lock();
        locked.iter().any(|(s, n)| s == schema && n == name)
    }

    /// The table may be named without the right to read it.
    pub fn exempt(&self, table: Option<TableId>) {
        *self.exempt.lock() = table;
    }

    /// The data of system tables and functions.
    pub fn system(&self) -> &Arc<System> {
        self.system.get_or_init(|| {
            System::new(
                self.scope.catalog.clone(),
                self.scope.statement.clone(),
                Identity::of(&self.scope.template),
                &self.scope.template.config_options().catalog.default_schema,
            )
        })
    }

    /// The error for a name that [`StatementCatalog::find`] does not find.
    fn unknown(&self, schema: &str, name: &str) -> Error {
        let known = self.scope.catalog.schemas.contains_key(schema);
        let system = information_schema::is_system_schema(schema);
        if !known && !system && schema != pg_catalog::PG_CATALOG {
            return names::undefined_schema(schema);
        }
        let error = names::undefined_table(schema, name);
        match self.scope.as_of {
            Some(_) => error.with_detail("It did not exist at the moment asked for."),
            None => error,
        }
    }
}

#[async_trait]
impl TableNames for StatementCatalog {
    async fn resolve(
        &self,
        schema: &str,
        name: &str,
        row_id: bool,
    ) -> Result<Option<Arc<dyn TableProvider>>> {
        self.find(schema, name, row_id).await
    }

    fn undefined(&self, schema: &str, name: &str) -> Error {
        self.unknown(schema, name)
    }

    fn at(&self, ts: CommitTs) -> Result<Arc<dyn TableNames>> {
        if let Some(known) = self.moments.lock().get(&ts) {
            return Ok(known.clone());
        }
        self.check_not_in_future(ts, "FOR SYSTEM_TIME AS OF names a moment in the future")?;
        let catalog = self.scope.statement.transaction().db().catalog_at(ts)?;
        let moment = Self::within(Scope {
            catalog,
            as_of: Some(ts),
            present: Present::default(),
            ..self.scope.clone()
        });
        self.moments.lock().insert(ts, moment.clone());
        Ok(moment)
    }

    fn versions(
        &self,
        (schema, name): (&str, &str),
        interval: (CommitTs, CommitTs),
    ) -> Result<Arc<dyn TableProvider>> {
        let Some(table) = self.scope.catalog.table(schema, name) else {
            if self.scope.catalog.view(schema, name).is_none() {
                return Err(self.unknown(schema, name));
            }
            return Err(Error::invalid(
                SqlState::WRONG_OBJECT_TYPE,
                format!("view \"{name}\" has no versions of its own"),
            )
            .with_hint("Name the interval at the tables in a query; AS OF applies to views."));
        };
        self.require_read(table)?;
        self.check_not_in_future(interval.0, "FOR SYSTEM_TIME begins in the future")?;
        let statement = self.scope.statement.clone();
        let versions = Versions::new(table.clone(), statement, self.scope.as_of, interval)?;
        Ok(Arc::new(versions))
    }

    fn require_files(&self) -> Result<()> {
        match self.scope.acting {
            None => Ok(()),
            Some(_) => Err(files_denied("read")),
        }
    }

    fn keep(&self, table: Arc<dyn TableProvider>) -> ast::ObjectName {
        let mut references = self.references.lock();
        references.push(table);
        let number = (references.len() - 1).to_string();
        ast::ObjectName::from(vec![names::ident(REFERENCES), names::ident(&number)])
    }

    async fn columns_of(
        &self,
        state: &SessionState,
        query: ast::Query,
    ) -> Result<Vec<RelationColumn>> {
        let plan = self.plan_rewritten(state, query, true).await?;
        let schema = semantics::sql::output_schema(plan.schema().inner());
        Ok(RelationColumn::all_of(&schema))
    }
}

impl fmt::Debug for StatementCatalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StatementCatalog")
            .field("as_of", &self.scope.as_of)
            .finish_non_exhaustive()
    }
}
