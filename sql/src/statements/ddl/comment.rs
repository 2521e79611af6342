//! COMMENT ON.

use crate::catalogs::lookup;
use crate::parse::names;
use crate::planning::context::StatementContext;
use crate::statements::ddl::index;
use crate::values::summary::Summary;
use datafusion::sql::sqlparser::ast::{CommentObject, ObjectName, Statement as Parsed};
use std::sync::Arc;
use strandline_base::{Error, Result, SqlState};
use strandline_engine::catalog::{Catalog, TableDef, ViewDef};

/// Executes COMMENT ON.
pub fn execute(context: &StatementContext, statement: &Parsed) -> Result<Summary> {
    let Parsed::Comment {
        object_type,
        object_name,
        comment,
        ..
    } = statement
    else {
        return Err(Error::internal("COMMENT got another statement"));
    };
    let default_schema = context.default_schema.as_str();
    context
        .statement
        .transaction()
        .change_catalog(&mut |catalog| match object_type {
            CommentObject::Table => on_table(catalog, object_name, default_schema, comment.clone()),
            CommentObject::Column => {
                on_column(catalog, object_name, default_schema, comment.clone())
            }
            CommentObject::Index => {
                index::comment(catalog, object_name, default_schema, comment.as_ref())
            }
            CommentObject::View => on_view(catalog, object_name, default_schema, comment.clone()),
            CommentObject::Schema => {
                let name = names::single(object_name)?;
                match catalog.schemas.get_mut(&name) {
                    Some(known) => known.clone_from(comment),
                    None => return Err(names::undefined_schema(&name)),
                }
                Ok(())
            }
            other => Err(Error::unsupported(format!(
                "COMMENT ON {other} is not supported"
            ))),
        })?;
    Ok(Summary::tag("COMMENT"))
}

fn table_of(catalog: &Catalog, schema: &str, name: &str) -> Result<TableDef> {
    if let Some(found) = catalog.table(schema, name) {
        return Ok(TableDef::clone(found));
    }
    lookup::refuse_system(schema, name)?;
    Err(names::undefined_table(schema, name))
}

fn on_table(
    catalog: &mut Catalog,
    name: &ObjectName,
    default_schema: &str,
    comment: Option<String>,
) -> Result<()> {
    let (schema, name) = lookup::existing(name, default_schema)?;
    let mut table = table_of(catalog, &schema, &name)?;
    table.comment = comment;
    catalog.put_table(table);
    Ok(())
}

fn on_column(
    catalog: &mut Catalog,
    name: &ObjectName,
    default_schema: &str,
    comment: Option<String>,
) -> Result<()> {
    let mut table = name.clone();
    let column = match table.0.pop() {
        Some(part) if !table.0.is_empty() => names::single(&ObjectName(vec![part]))?,
        _ => {
            return Err(Error::invalid(
                SqlState::SYNTAX_ERROR,
                "column name must be qualified",
            ));
        }
    };
    let (schema, table) = lookup::existing(&table, default_schema)?;
    let mut table = table_of(catalog, &schema, &table)?;
    let id = table.require_column(&column)?.id;
    for known in &mut table.columns {
        if known.id == id {
            known.comment.clone_from(&comment);
        }
    }
    catalog.put_table(table);
    Ok(())
}

fn on_view(
    catalog: &mut Catalog,
    name: &ObjectName,
    default_schema: &str,
    comment: Option<String>,
) -> Result<()> {
    let (schema, name) = lookup::existing(name, default_schema)?;
    let known = catalog
        .views
        .iter_mut()
        .find(|v| v.schema == schema && v.name == name);
    let Some(known) = known else {
        lookup::refuse_system(&schema, &name)?;
        return Err(names::undefined_table(&schema, &name));
    };
    *known = Arc::new(ViewDef {
        comment,
        ..ViewDef::clone(known)
    });
    Ok(())
}
