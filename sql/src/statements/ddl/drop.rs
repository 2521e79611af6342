//! DROP TABLE, VIEW, SCHEMA; DROP INDEX is in [`index`].

use super::{dependents, foreign_key, index, relation_names};
use crate::catalogs::lookup;
use crate::parse::names;
use crate::planning::context::StatementContext;
use crate::values::summary::Summary;
use datafusion::sql::sqlparser::ast::{ObjectName, ObjectType, Statement as Parsed};
use strandline_base::{Error, ErrorKind, Result, SqlState};
use strandline_engine::catalog::Catalog;

/// Executes DROP.
pub async fn execute(context: &StatementContext, statement: &Parsed) -> Result<Summary> {
    let Parsed::Drop {
        object_type,
        if_exists,
        names,
        cascade,
        purge,
        ..
    } = statement
    else {
        return Err(Error::internal("DROP got another statement"));
    };
    let edit: fn(&StatementContext, &mut Catalog, &ObjectName, Drop) -> Result<()> =
        match object_type {
            ObjectType::Table => drop_table,
            ObjectType::View => drop_view,
            ObjectType::Schema => drop_schema,
            ObjectType::Index => {
                let how = index::How {
                    concurrently: *purge,
                    cascade: *cascade,
                };
                return index::drop(context, names, *if_exists, how);
            }
            other => return Err(Error::unsupported(format!("DROP {other} is not supported"))),
        };
    let how = Drop {
        if_exists: *if_exists,
        cascade: *cascade,
    };
    let kind = object_type.to_string().to_lowercase();
    let shown: Vec<String> = names.iter().map(|name| format!("{kind} {name}")).collect();
    let what = match shown.as_slice() {
        [one] => one.as_str(),
        _ => "desired object(s)",
    };
    context
        .statement
        .transaction()
        .change_catalog(&mut |catalog| {
            names
                .iter()
                .try_for_each(|name| edit(context, catalog, name, how))?;
            foreign_key::settle(context, catalog, (what, None), *cascade)
        })?;
    dependents::settle(context, &shown.join(", "), *cascade).await?;
    Ok(Summary::tag(format!("DROP {object_type}")))
}

#[derive(Clone, Copy)]
struct Drop {
    if_exists: bool,
    cascade: bool,
}

fn drop_table(
    context: &StatementContext,
    catalog: &mut Catalog,
    name: &ObjectName,
    how: Drop,
) -> Result<()> {
    let (schema, table) = lookup::existing(name, &context.default_schema)?;
    if let Some(found) = catalog.table(&schema, &table) {
        let id = found.id;
        catalog.tables.remove(&id);
        return Ok(());
    }
    if catalog.view(&schema, &table).is_some() {
        return Err(wrong_kind(&table, "table", "DROP VIEW"));
    }
    if is_index(catalog, &schema, &table) {
        return Err(wrong_kind(&table, "table", "DROP INDEX"));
    }
    lookup::refuse_system(&schema, &table)?;
    skip_missing(context, catalog, ("table", &schema, &table), how)
}

fn drop_view(
    context: &StatementContext,
    catalog: &mut Catalog,
    name: &ObjectName,
    how: Drop,
) -> Result<()> {
    let (schema, view) = lookup::existing(name, &context.default_schema)?;
    let before = catalog.views.len();
    catalog
        .views
        .retain(|v| v.schema != schema || v.name != view);
    if catalog.views.len() < before {
        return Ok(());
    }
    if catalog.table(&schema, &view).is_some() {
        return Err(wrong_kind(&view, "view", "DROP TABLE"));
    }
    if is_index(catalog, &schema, &view) {
        return Err(wrong_kind(&view, "view", "DROP INDEX"));
    }
    lookup::refuse_system(&schema, &view)?;
    skip_missing(context, catalog, ("view", &schema, &view), how)
}

fn drop_schema(
    context: &StatementContext,
    catalog: &mut Catalog,
    name: &ObjectName,
    how: Drop,
) -> Result<()> {
    let schema = names::single(name)?;
    if !catalog.schemas.contains_key(&schema) {
        return context.skip(how.if_exists, names::undefined_schema(&schema));
    }
    let tables: Vec<_> = catalog
        .tables
        .values()
        .filter(|t| t.schema == schema)
        .map(|t| t.id)
        .collect();
    let views = catalog.views.iter().any(|v| v.schema == schema);
    if (views || !tables.is_empty()) && !how.cascade {
        return Err(Error::new(
            ErrorKind::Invalid,
            SqlState::DEPENDENT_OBJECTS_STILL_EXIST,
            format!("cannot drop schema {schema} because other objects depend on it"),
        )
        .with_hint("Use DROP … CASCADE to drop the dependent objects too."));
    }
    for id in tables {
        catalog.tables.remove(&id);
    }
    catalog.views.retain(|v| v.schema != schema);
    catalog.schemas.remove(&schema);
    Ok(())
}

fn is_index(catalog: &Catalog, schema: &str, name: &str) -> bool {
    let mut tables = catalog.tables.values().filter(|t| t.schema == schema);
    tables.any(|table| relation_names::has_index(table, name))
}

fn wrong_kind(name: &str, kind: &str, use_instead: &str) -> Error {
    Error::invalid(
        SqlState::WRONG_OBJECT_TYPE,
        format!("\"{name}\" is not a {kind}"),
    )
    .with_hint(format!("Use {use_instead}."))
}

/// The end of a DROP of a missing relation, given its kind, schema and name.
fn skip_missing(
    context: &StatementContext,
    catalog: &Catalog,
    (kind, schema, name): (&str, &str, &str),
    how: Drop,
) -> Result<()> {
    let message = format!("{kind} \"{name}\" does not exist");
    let missing = match catalog.schemas.contains_key(schema) {
        true => Error::invalid(SqlState::UNDEFINED_TABLE, message),
        false => names::undefined_schema(schema),
    };
    context.skip(how.if_exists, missing)
}
