//! Views: a view is planned when a query names it, in a state bound to the same statement and
//! moment, so that `FOR SYSTEM_TIME AS OF` on a view reaches the tables below it.

use super::{Present, Scope, StatementCatalog};
use crate::backends::acting::Acting;
use crate::catalogs::pg_catalog::ViewColumns;
use crate::parse;
use crate::runtime::stack_growth::DeepFuture;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use strandline_base::{Error, Result, SqlState};
use strandline_engine::access::Object;
use strandline_engine::catalog::ViewDef;
use strandline_semantics as semantics;
use strandline_semantics::error::convert;
use strandline_semantics::types::sql_type_of;

/// The most levels of views on views.
const MAX_VIEW_DEPTH: usize = 64;
/// invalid_object_definition
const INFINITE_RECURSION: SqlState = SqlState("42P17");
/// An entry among the views being planned while the columns of all views are listed.
const LISTING: &str = "\u{1}listing";

impl StatementCatalog {
    /// The columns of all views; none for a view that cannot be planned. While the columns are
    /// listed, views have none, because a view over the list would need itself.
    pub(super) async fn view_columns(&self) -> ViewColumns {
        let mut columns = ViewColumns::new();
        let listing = (String::new(), LISTING.to_string());
        if self.scope.expanding.contains(&listing) {
            return columns;
        }
        let inner = Self::within(Scope {
            expanding: vec![listing],
            present: Present::default(),
            acting: None,
            is_system: true,
            ..self.scope.clone()
        });
        for view in &self.scope.catalog.views {
            let Ok(plan) = inner.plan_view(view, false).await else {
                continue;
            };
            let schema = semantics::sql::output_schema(plan.schema().inner());
            let fields = schema.fields().iter().map(|field| {
                let sql_type = sql_type_of(field);
                (field.name().clone(), sql_type)
            });
            columns.insert((view.schema.clone(), view.name.clone()), fields.collect());
        }
        columns
    }

    /// Plans the query of a view, under the names that the view gives its columns; `locks_rows`:
    /// the rows of its tables are locked. Its tables are read with its owner's rights, whoever
    /// reads the view.
    pub(crate) fn plan_view<'a>(
        &'a self,
        view: &'a ViewDef,
        locks_rows: bool,
    ) -> DeepFuture<'a, Result<LogicalPlan>> {
        DeepFuture::new(async move {
            let name = (view.schema.clone(), view.name.clone());
            if self.scope.expanding.contains(&name) || self.scope.expanding.len() >= MAX_VIEW_DEPTH
            {
                return Err(Error::invalid(
                    INFINITE_RECURSION,
                    format!(
                        "view \"{}\" refers to itself or is nested too deeply",
                        view.name
                    ),
                ));
            }
            let owner = match self.scope.is_system {
                true => None,
                false => {
                    let object = Object::View(view.schema.clone(), view.name.clone());
                    let catalog = self.scope.statement.transaction().catalog();
                    Acting::new(catalog.access.owner(&object), &catalog)
                }
            };
            let mut scope = self.scope.clone();
            scope.expanding.push(name);
            scope.acting = owner;
            scope.locks_rows = locks_rows;
            let inner = Self::within(scope);
            let state = inner.bind(&view.schema);
            let query = parse::query(&view.query)?;
            match inner.plan(&state, &query, Some(&[])).await {
                Ok(plan) => rename_columns(plan, &view.columns),
                Err(error) if error.sqlstate() == INFINITE_RECURSION => Err(error),
                Err(error) => Err(error.context(format!("view \"{}\"", view.name))),
            }
        })
    }
}

/// Renames the columns of `plan` to `columns`; empty: keeps their names.
fn rename_columns(plan: LogicalPlan, columns: &[String]) -> Result<LogicalPlan> {
    if columns.is_empty() {
        return Ok(plan);
    }
    let renamed: Vec<Expr> = plan
        .schema()
        .columns()
        .into_iter()
        .enumerate()
        .map(|(i, column)| {
            let name = columns
                .get(i)
                .cloned()
                .unwrap_or_else(|| column.name.clone());
            Expr::Column(column).alias(name)
        })
        .collect();
    LogicalPlanBuilder::from(plan)
        .project(renamed)
        .and_then(|b| b.build())
        .map_err(convert)
}
