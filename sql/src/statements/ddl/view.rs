//! CREATE VIEW. The stored text must keep its meaning: [`view_relations`] fixes the schemas and the
//! columns of its relations.

use super::{create_table, dependents, view_relations};
use crate::parse::names;
use crate::parse::system_time;
use crate::planning::context::StatementContext;
use crate::values::summary::Summary;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::sqlparser::ast::{CreateTableOptions, CreateView};
use std::sync::Arc;
use strandline_base::{Error, Result, SqlState};
use strandline_engine::catalog::{Catalog, ViewDef};
use strandline_semantics::sql::output_name;

/// Executes CREATE [OR REPLACE] VIEW.
pub async fn create(context: &StatementContext, create: &CreateView) -> Result<Summary> {
    refuse_clauses(create)?;
    let (schema, name) = names::qualified(&create.name, &context.default_schema)?;
    names::check(&name)?;
    let old = context.catalog.view(&schema, &name).cloned();
    let replace = create.or_replace && old.is_some();
    if !replace && create_table::exists(context, &schema, &name, create.if_not_exists)? {
        return Ok(Summary::tag("CREATE VIEW"));
    }
    let mut query = (*create.query).clone();
    if crate::parse::params::highest(&mut query)? > 0 {
        return Err(Error::invalid(
            SqlState::UNDEFINED_PARAMETER,
            "a view cannot take parameters",
        ));
    }
    let plan = context.plan_query(&query).await?;
    let columns = column_names(create, &plan)?;
    if let Some(old) = old.filter(|_| replace) {
        check_replacement(&old, &columns)?;
    }
    view_relations::pin(&mut query, context).await?;
    system_time::as_written(&mut query);
    let view = ViewDef {
        schema,
        name,
        query: query.to_string(),
        columns,
        comment: create.comment.clone(),
    };
    let view = Arc::new(view);
    context
        .statement
        .transaction()
        .change_catalog(&mut |catalog| put(catalog, view.clone(), replace))?;
    let now = context.again(context.statement.clone());
    now.plan_view(&view).await?;
    dependents::settle(context, &format!("view {}", view.name), false).await?;
    Ok(Summary::tag("CREATE VIEW"))
}

fn put(catalog: &mut Catalog, view: Arc<ViewDef>, replace: bool) -> Result<()> {
    let known = catalog
        .views
        .iter_mut()
        .find(|v| v.schema == view.schema && v.name == view.name);
    match known {
        Some(old) if replace => *old = view,
        _ => {
            create_table::require_free(catalog, &view.schema, &view.name)?;
            catalog.views.push(view);
        }
    }
    Ok(())
}

fn refuse_clauses(create: &CreateView) -> Result<()> {
    if create.materialized {
        return Err(Error::unsupported("materialized views are not supported")
            .with_hint("CREATE TABLE … AS keeps a query's rows."));
    }
    if create.temporary {
        return Err(Error::unsupported("temporary views are not supported"));
    }
    if create.to.is_some()
        || create.secure
        || create.or_alter
        || !create.cluster_by.is_empty()
        || create.with_no_schema_binding
        || !matches!(create.options, CreateTableOptions::None)
    {
        return Err(Error::unsupported(
            "this clause of CREATE VIEW is not supported",
        ));
    }
    Ok(())
}

fn column_names(create: &CreateView, plan: &LogicalPlan) -> Result<Vec<String>> {
    let fields = plan.schema().fields();
    if create.columns.len() > fields.len() {
        return Err(Error::invalid(
            SqlState::SYNTAX_ERROR,
            "CREATE VIEW specifies more column names than columns",
        ));
    }
    let mut columns: Vec<String> = Vec::with_capacity(fields.len());
    for (i, field) in fields.iter().enumerate() {
        let name = match create.columns.get(i) {
            Some(given) => names::fold(&given.name),
            None => output_name(field.name()).to_string(),
        };
        if columns.contains(&name) {
            return Err(Error::invalid(
                SqlState::DUPLICATE_COLUMN,
                format!("column \"{name}\" specified more than once"),
            )
            .with_hint("Give the view's columns names: CREATE VIEW v (a, b) AS …."));
        }
        columns.push(name);
    }
    Ok(columns)
}

/// Checks that a replacement keeps the old columns; it may add more.
fn check_replacement(old: &ViewDef, columns: &[String]) -> Result<()> {
    if columns.len() < old.columns.len() {
        return Err(Error::invalid(
            SqlState::INVALID_TABLE_DEFINITION,
            "cannot drop columns from view",
        ));
    }
    for (old, new) in old.columns.iter().zip(columns) {
        if old != new {
            return Err(Error::invalid(
                SqlState::INVALID_TABLE_DEFINITION,
                format!("cannot change name of view column \"{old}\" to \"{new}\""),
            ));
        }
    }
    Ok(())
}
