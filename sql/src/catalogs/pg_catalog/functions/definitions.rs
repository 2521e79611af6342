//! Definitions as text, and comments.

use super::{Definition, argument, number, relation_at, stable};
use crate::catalogs::pg_catalog::catalog_value::CatalogValue;
use crate::catalogs::pg_catalog::constraints::class_oid;
use crate::catalogs::pg_catalog::oid::{self, Object};
use crate::catalogs::pg_catalog::system::System;
use crate::catalogs::pg_catalog::table_index::{BTREE, GIST, Index, Part};
use crate::catalogs::pg_catalog::{server, text};
use crate::parse::names;
use strandline_base::Result;
use strandline_engine::catalog::TableDef;

pub(super) const FUNCTIONS: &[Definition] = &[
    // Expressions are stored as text.
    stable("pg_get_expr", "text", |_, args| {
        let text = argument(args, 0);
        Ok(match (argument(args, 2).is_true(), text.as_text()) {
            (true, Some(text)) => text::without_parentheses(text).into(),
            _ => text.clone(),
        })
    }),
    stable("pg_get_constraintdef", "text", constraint),
    stable("pg_get_indexdef", "text", index),
    stable("pg_get_viewdef", "text", |system, args| {
        let oid = relation_at(system, args, 0)?;
        Ok(CatalogValue::option(
            system
                .view(oid)
                .map(|view| text::view(view, &system.default_schema)),
        ))
    }),
    stable("pg_tablespace_location", "text", |_, _| Ok("".into())),
    stable("getdatabaseencoding", "name", |_, _| Ok("UTF8".into())),
    stable("pg_get_ruledef", "text", nothing),
    stable("pg_get_triggerdef", "text", nothing),
    stable("pg_get_functiondef", "text", nothing),
    stable("pg_get_function_arguments", "text", nothing),
    stable("pg_get_function_identity_arguments", "text", nothing),
    stable("pg_get_function_result", "text", nothing),
    stable("pg_get_function_sqlbody", "text", nothing),
    stable("pg_get_partkeydef", "text", nothing),
    stable("pg_get_partition_constraintdef", "text", nothing),
    stable("pg_get_statisticsobjdef", "text", nothing),
    stable("pg_get_statisticsobjdef_columns", "text", nothing),
    stable("pg_get_serial_sequence", "text", serial_sequence),
    stable("obj_description", "text", |system, args| {
        let class = argument(args, 1).as_text().map(class_oid);
        Ok(comment(system, number(args, 0), 0, class))
    }),
    stable("col_description", "text", |system, args| {
        let class = Some(class_oid("pg_class"));
        Ok(comment(system, number(args, 0), number(args, 1), class))
    }),
    stable("shobj_description", "text", |system, args| {
        if argument(args, 1).as_text() != Some("pg_authid") {
            return Ok(CatalogValue::Null);
        }
        let roles = &system.catalog.access.roles;
        let mut found = roles
            .values()
            .filter(|r| i64::from(oid::of_role(r.id)) == number(args, 0));
        Ok(CatalogValue::option(
            found.find_map(|role| role.comment.clone()),
        ))
    }),
    stable(
        "pg_relation_is_publishable",
        "bool",
        |_, _| Ok(false.into()),
    ),
    stable("pg_relation_is_updatable", "int4", |system, args| {
        let all_events = 28;
        let table = system.table(number(args, 0)).is_some();
        Ok(if table { all_events } else { 0 }.into())
    }),
    stable("pg_column_is_updatable", "bool", |system, args| {
        Ok(system.table(number(args, 0)).is_some().into())
    }),
    stable("pg_index_column_has_property", "bool", column_property),
    stable("pg_stat_get_numscans", "int8", |_, _| Ok(0.into())),
    stable("pg_stat_get_live_tuples", "int8", |system, args| {
        let table = system.table(number(args, 0));
        let db = system.statement.transaction().db();
        Ok(table
            .map_or(0, |table| db.statistics(table).rows as i64)
            .into())
    }),
    stable("pg_relation_filenode", "oid", |system, args| {
        Ok(relation_at(system, args, 0)?.into())
    }),
    stable("pg_char_to_encoding", "int4", |_, args| {
        let name = argument(args, 0).as_text().unwrap_or_default();
        let is_utf8 = matches!(
            name.to_ascii_uppercase().as_str(),
            "UTF8" | "UTF-8" | "UNICODE"
        );
        Ok(if is_utf8 { server::ENCODING } else { -1 }.into())
    }),
];

fn nothing(_: &System, _: &[CatalogValue]) -> Result<CatalogValue> {
    Ok(CatalogValue::Null)
}

fn constraint(system: &System, args: &[CatalogValue]) -> Result<CatalogValue> {
    let Some(Object::Constraint(table, name)) = system.oids().find(number(args, 0)) else {
        return Ok(CatalogValue::Null);
    };
    let Some(table) = system.catalog.tables.get(table) else {
        return Ok(CatalogValue::Null);
    };
    if let Some(key) = table.keys.iter().find(|key| key.name == *name) {
        return Ok(text::key(table, key).into());
    }
    if let Some(key) = table.foreign_keys.iter().find(|key| key.name == *name) {
        let parent = system.catalog.tables.get(&key.parent);
        return Ok(CatalogValue::option(
            parent.map(|parent| text::foreign_key(table, key, parent)),
        ));
    }
    let check = table.checks.iter().find(|check| check.name == *name);
    let pretty = argument(args, 1).is_true();
    Ok(CatalogValue::option(
        check.map(|c| text::check(&c.expression, pretty)),
    ))
}

/// The whole definition, or the name of one column.
fn index(system: &System, args: &[CatalogValue]) -> Result<CatalogValue> {
    let Some((table, index)) = system.index(number(args, 0)) else {
        return Ok(CatalogValue::Null);
    };
    let pretty = argument(args, 2).is_true();
    Ok(match number(args, 1) {
        0 => text::index(table, index, pretty).into(),
        column => {
            let at = usize::try_from(column - 1).unwrap_or(usize::MAX);
            let parts = index.parts(table);
            match parts.get(at) {
                Some(part) => text::index_part(part, pretty).into(),
                None => CatalogValue::option(included(table, index, at - parts.len())),
            }
        }
    })
}

/// Whether the column of an index has the property; NULL: there is no such column or property.
fn column_property(system: &System, args: &[CatalogValue]) -> Result<CatalogValue> {
    let Some((table, index)) = system.index(number(args, 0)) else {
        return Ok(CatalogValue::Null);
    };
    let parts = index.parts(table);
    let at = usize::try_from(number(args, 1) - 1).unwrap_or(usize::MAX);
    let part = parts.get(at);
    if part.is_none() && included(table, index, at.saturating_sub(parts.len())).is_none() {
        return Ok(CatalogValue::Null);
    }
    let ordered = index.method() == BTREE && part.is_some();
    let is = |wanted: fn(&Part<'_>) -> bool| part.is_some_and(wanted);
    Ok(match argument(args, 2).as_text() {
        Some("asc") => (ordered && is(|p| !p.descending)).into(),
        Some("desc") => (ordered && is(|p| p.descending)).into(),
        Some("nulls_first") => (ordered && is(|p| p.nulls_first)).into(),
        Some("nulls_last") => (ordered && is(|p| !p.nulls_first)).into(),
        Some("orderable" | "search_array" | "search_nulls") => ordered.into(),
        Some("returnable") => (index.method() == BTREE).into(),
        Some("distance_orderable") => (index.method() == GIST && part.is_some()).into(),
        _ => CatalogValue::Null,
    })
}

/// The name of INCLUDE's column at `at`.
fn included(table: &TableDef, index: Index<'_>, at: usize) -> Option<String> {
    let position = *index.included(table).get(at)?;
    let column = table.columns.get(usize::try_from(position - 1).ok()?)?;
    Some(names::quote(&column.name))
}

fn serial_sequence(system: &System, args: &[CatalogValue]) -> Result<CatalogValue> {
    let relation = relation_at(system, args, 0)?;
    let Some(table) = system.table(relation) else {
        return Ok(CatalogValue::Null);
    };
    let name = argument(args, 1).as_text().unwrap_or_default();
    let column = table.require_column(name)?;
    Ok(match &column.identity {
        None => CatalogValue::Null,
        Some(_) => {
            let sequence = oid::sequence_name(table, column);
            format!(
                "{}.{}",
                names::quote(&table.schema),
                names::quote(&sequence)
            )
            .into()
        }
    })
}

/// The comment on an object, or on a column of it; `class` narrows what kind of object it is.
fn comment(system: &System, oid: i64, column: i64, class: Option<i32>) -> CatalogValue {
    let in_class = |name: &str| class.is_none_or(|class| class == class_oid(name));
    if in_class("pg_class") {
        if let Some(table) = system.table(oid) {
            let comment = match usize::try_from(column - 1) {
                Ok(at) => table.columns.get(at).and_then(|c| c.comment.clone()),
                Err(_) => table.comment.clone(),
            };
            return CatalogValue::option(comment);
        }
        if let Some((_, index)) = system.index(oid).filter(|_| column == 0) {
            return CatalogValue::option(index.comment().cloned());
        }
        if let Some(view) = system.view(oid).filter(|_| column == 0) {
            return CatalogValue::option(view.comment.clone());
        }
    }
    if in_class("pg_namespace")
        && let Some(Object::Schema(name)) = system.oids().find(oid)
    {
        return CatalogValue::option(system.catalog.schemas.get(name).cloned().flatten());
    }
    CatalogValue::Null
}
