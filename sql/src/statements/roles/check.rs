//! Checks the privileges of DML and data definition on their targets. Privileges to read are
//! checked where names are resolved.

use crate::backends::acting::{Acting, Shown, denied};
use crate::catalogs::lookup;
use crate::execution::dml;
use crate::parse::names;
use crate::planning::context::StatementContext;
use datafusion::sql::sqlparser::ast::{
    self, AlterTableOperation, Expr, FromTable, ObjectName, ObjectType, OnConflictAction, OnInsert,
    SchemaName, Statement as Parsed, TableFactor, TableObject, Visitor,
};
use std::ops::ControlFlow;
use std::sync::Arc;
use strandline_base::{Result, TableId};
use strandline_engine::access::{Object, Privileges};
use strandline_semantics::sql::walk::walk;

/// 42501 unless the user may run the DML statement. Returns the target if the statement uses no
/// values of its rows, because changing it then requires no right to read it.
pub fn dml(context: &StatementContext, statement: &Parsed) -> Result<Option<TableId>> {
    let Some(acting) = &context.acting else {
        return Ok(None);
    };
    // A statement after WITH is parsed as part of a query.
    let statement = dml::parts(statement).map_or(statement, |(changes, _)| changes);
    let (target, wanted, reads) = match statement {
        Parsed::Insert(insert) => {
            let TableObject::TableName(name) = &insert.table else {
                return Ok(None);
            };
            let updates = matches!(&insert.on, Some(OnInsert::OnConflict(conflict))
                if matches!(conflict.action, OnConflictAction::DoUpdate(_)));
            let wanted = match updates {
                true => Privileges::INSERT.with(Privileges::UPDATE),
                false => Privileges::INSERT,
            };
            // Without a target any conflict counts, which reveals nothing about the rows.
            let names_target = match &insert.on {
                Some(OnInsert::OnConflict(conflict)) => conflict.conflict_target.is_some(),
                other => other.is_some(),
            };
            let reads = names_target || insert.returning.is_some();
            (Some(name), wanted, reads)
        }
        Parsed::Update(update) => {
            let constant = update.assignments.iter().all(|a| !reads_rows(&a.value));
            let reads = update.selection.is_some()
                || update.from.is_some()
                || update.returning.is_some()
                || !constant;
            (
                factor_name(&update.table.relation),
                Privileges::UPDATE,
                reads,
            )
        }
        Parsed::Delete(delete) => {
            let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &delete.from;
            let reads =
                delete.selection.is_some() || delete.using.is_some() || delete.returning.is_some();
            let name = from.first().and_then(|t| factor_name(&t.relation));
            (name, Privileges::DELETE, reads)
        }
        Parsed::Merge(merge) => {
            let name = factor_name(&merge.table);
            (name, merge_privileges(merge), true)
        }
        _ => (None, Privileges::NONE, true),
    };
    let Some(target) = target else {
        return Ok(None);
    };
    let table = context.resolve_table(target)?;
    acting.require_on(&table, wanted)?;
    if reads {
        acting.require_on(&table, Privileges::SELECT)?;
    }
    // The query of an INSERT may read the table into which it inserts.
    let exempt = !reads && !matches!(statement, Parsed::Insert(_));
    Ok(exempt.then_some(table.id))
}

fn merge_privileges(merge: &ast::Merge) -> Privileges {
    let clauses = merge.clauses.iter();
    clauses.fold(Privileges::NONE, |all, clause| match clause.action {
        ast::MergeAction::Insert(_) => all.with(Privileges::INSERT),
        ast::MergeAction::Update { .. } => all.with(Privileges::UPDATE),
        ast::MergeAction::Delete { .. } => all.with(Privileges::DELETE),
    })
}

fn factor_name(factor: &TableFactor) -> Option<&ObjectName> {
    match factor {
        TableFactor::Table { name, .. } => Some(name),
        _ => None,
    }
}

/// Whether an expression reads rows: it names a column, or there is a query in it.
fn reads_rows(expr: &Expr) -> bool {
    struct Reads;

    impl Visitor for Reads {
        type Break = ();

        fn pre_visit_query(&mut self, _query: &ast::Query) -> ControlFlow<()> {
            ControlFlow::Break(())
        }

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            match expr {
                Expr::Identifier(ident) if ident.value.eq_ignore_ascii_case("default") => {
                    ControlFlow::Continue(())
                }
                Expr::Identifier(_) | Expr::CompoundIdentifier(_) => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        }
    }

    walk(expr, &mut Reads).is_break()
}

/// 42501 unless the user may run the data definition statement.
pub fn ddl(context: &StatementContext, statement: &Parsed) -> Result<()> {
    let Some(acting) = &context.acting else {
        return Ok(());
    };
    match statement {
        Parsed::CreateTable(create) => create_in(context, acting, &create.name),
        Parsed::CreateView(create) => {
            create_in(context, acting, &create.name)?;
            owner_if_there(context, acting, &create.name)
        }
        Parsed::CreateSchema {
            schema_name: SchemaName::Simple(_),
            ..
        } => Err(denied("database", names::DATABASE)),
        // Giving away needs a superuser: who receives cannot refuse.
        Parsed::AlterSchema(alter) => Err(denied("schema", &alter.name.to_string())),
        Parsed::CreateIndex(create) => owner_if_there(context, acting, &create.table_name),
        Parsed::OptimizeTable {
            name, on_cluster, ..
        } => reindex(context, acting, name, on_cluster.as_ref()),
        Parsed::AlterTable(alter) => {
            owner_if_there(context, acting, &alter.name)?;
            owner_of_index(context, acting, &alter.name)?;
            let mut operations = alter.operations.iter();
            let given_away = operations.any(|o| matches!(o, AlterTableOperation::OwnerTo { .. }));
            match given_away {
                // A change of owner needs a superuser, because the new owner cannot refuse.
                true => Err(denied("table", &alter.name.to_string())),
                false => Ok(()),
            }
        }
        Parsed::Drop {
            object_type: ObjectType::Table | ObjectType::View,
            names,
            ..
        } => names
            .iter()
            .try_for_each(|name| owner_if_there(context, acting, name)),
        Parsed::Drop {
            object_type: ObjectType::Index,
            names,
            ..
        } => names
            .iter()
            .try_for_each(|name| owner_of_index(context, acting, name)),
        Parsed::Drop {
            object_type: ObjectType::Schema,
            names,
            ..
        } => names.iter().try_for_each(|name| {
            let name = names::single(name)?;
            let shown = Shown {
                kind: "schema",
                name: &name,
                schema: &name,
            };
            acting.require_owner(&Object::Schema(name.clone()), &shown)
        }),
        Parsed::Truncate(truncate) => truncate.table_names.iter().try_for_each(|target| {
            let table = context.resolve_table(&target.name)?;
            acting.require_on(&table, Privileges::TRUNCATE)
        }),
        Parsed::Comment {
            object_type,
            object_name,
            ..
        } => comment(context, acting, *object_type, object_name),
        _ => Ok(()),
    }
}

fn comment(
    context: &StatementContext,
    acting: &Arc<Acting>,
    kind: ast::CommentObject,
    name: &ObjectName,
) -> Result<()> {
    match kind {
        ast::CommentObject::Column => {
            let table = ObjectName(name.0[..name.0.len().saturating_sub(1)].to_vec());
            owner_if_there(context, acting, &table)
        }
        ast::CommentObject::Table | ast::CommentObject::View => {
            owner_if_there(context, acting, name)
        }
        ast::CommentObject::Index => owner_of_index(context, acting, name),
        other => Err(denied("comment on", &other.to_string())),
    }
}

fn create_in(context: &StatementContext, acting: &Acting, name: &ObjectName) -> Result<()> {
    let (schema, _) = names::qualified(name, &context.default_schema)?;
    match context.catalog.schemas.contains_key(&schema) {
        true => acting.require_create(&schema),
        false => Ok(()),
    }
}

fn owner_if_there(context: &StatementContext, acting: &Acting, name: &ObjectName) -> Result<()> {
    // The statement itself reports a missing object, or ignores it.
    let Ok((object, kind, schema, name)) = object_named(context, name) else {
        return Ok(());
    };
    let shown = Shown {
        kind,
        name: &name,
        schema: &schema,
    };
    acting.require_owner(&object, &shown)
}

/// Checks the owner of an index's table, since that role owns the index.
fn owner_of_index(context: &StatementContext, acting: &Acting, name: &ObjectName) -> Result<()> {
    let Some((table, name)) = context.find_index(name)? else {
        return Ok(());
    };
    let shown = Shown {
        kind: "index",
        name: &name,
        schema: &context.default_schema,
    };
    acting.require_owner(&Object::Table(table), &shown)
}

fn reindex(
    context: &StatementContext,
    acting: &Acting,
    name: &ObjectName,
    kind: Option<&ast::Ident>,
) -> Result<()> {
    match kind.map(|kind| kind.value.as_str()) {
        Some("index") => owner_of_index(context, acting, name),
        Some("table") => owner_if_there(context, acting, name),
        Some("schema") => {
            let name = names::single(name)?;
            let shown = Shown {
                kind: "schema",
                name: &name,
                schema: &name,
            };
            acting.require_owner(&Object::Schema(name.clone()), &shown)
        }
        _ => Err(denied("database", names::DATABASE)),
    }
}

/// Makes the user the owner of the objects that the statement has created.
pub fn own_what_is_new(context: &StatementContext) -> Result<()> {
    let Some(acting) = &context.acting else {
        return Ok(());
    };
    let before = &context.catalog;
    let after = context.statement.transaction().catalog();
    let tables = after
        .tables
        .keys()
        .filter(|id| !before.tables.contains_key(id));
    let views = after
        .views
        .iter()
        .filter(|v| before.view(&v.schema, &v.name).is_none());
    let new: Vec<Object> = tables
        .map(|id| Object::Table(*id))
        .chain(views.map(|v| Object::View(v.schema.clone(), v.name.clone())))
        .collect();
    if new.is_empty() {
        return Ok(());
    }
    let role = acting.role;
    context
        .statement
        .transaction()
        .change_catalog(&mut |catalog| {
            let access = catalog.access_mut();
            for object in &new {
                access.set_owner(object.clone(), role);
            }
            Ok(())
        })
}

/// The object of a name: its kind, its schema, its name.
pub fn object_named(
    context: &StatementContext,
    name: &ObjectName,
) -> Result<(Object, &'static str, String, String)> {
    let (schema, name) = lookup::existing(name, &context.default_schema)?;
    let catalog = context.statement.transaction().catalog();
    if let Some(table) = catalog.table(&schema, &name) {
        return Ok((Object::Table(table.id), "table", schema, name));
    }
    if catalog.view(&schema, &name).is_some() {
        let object = Object::View(schema.clone(), name.clone());
        return Ok((object, "view", schema, name));
    }
    lookup::refuse_system(&schema, &name)?;
    Err(match catalog.schemas.contains_key(&schema) {
        true => names::undefined_table(&schema, &name),
        false => names::undefined_schema(&schema),
    })
}
