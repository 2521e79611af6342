//! `information_schema.table_constraints`, `key_column_usage`, `constraint_column_usage`,
//! `check_constraints`, `referential_constraints`.

use super::{Rows, text, yes_no};
use crate::catalogs::pg_catalog::text::action_words;
use crate::parse::names;
use strandline_base::ColumnId;
use strandline_engine::catalog::foreign_keys::UniqueOver;
use strandline_engine::catalog::index::{ConstraintTiming, ForeignKeyDef};
use strandline_engine::catalog::{Catalog, KeyDef, TableDef};

fn kind(key: &KeyDef) -> &'static str {
    if key.primary { "PRIMARY KEY" } else { "UNIQUE" }
}

/// Whether two NULLs are different keys; None: a key has no NULLs.
fn nulls_distinct(key: &KeyDef) -> Option<String> {
    let distinct = yes_no(!key.nulls_not_distinct);
    distinct.filter(|_| !key.primary)
}

pub(super) fn table_constraints(catalog: &Catalog) -> Rows {
    let mut rows = Rows::new(&[
        "constraint_catalog",
        "constraint_schema",
        "constraint_name",
        "table_catalog",
        "table_schema",
        "table_name",
        "constraint_type",
        "is_deferrable",
        "initially_deferred",
        "enforced",
        "nulls_distinct",
    ]);
    for table in catalog.tables.values() {
        let keys = table.keys.iter().map(|key| {
            (
                key.name.as_str(),
                kind(key),
                key.timing,
                nulls_distinct(key),
            )
        });
        let references = table
            .foreign_keys
            .iter()
            .map(|key| (key.name.as_str(), "FOREIGN KEY", key.timing, None));
        let checks = table.checks.iter().map(|check| {
            (
                check.name.as_str(),
                "CHECK",
                ConstraintTiming::Immediate,
                None,
            )
        });
        for (name, kind, timing, nulls_distinct) in keys.chain(references).chain(checks) {
            rows.push(vec![
                text(names::DATABASE),
                text(&table.schema),
                text(name),
                text(names::DATABASE),
                text(&table.schema),
                text(&table.name),
                text(kind),
                yes_no(timing != ConstraintTiming::Immediate),
                yes_no(timing == ConstraintTiming::Deferred),
                yes_no(true),
                nulls_distinct,
            ]);
        }
    }
    rows
}

pub(super) fn key_column_usage(catalog: &Catalog) -> Rows {
    let mut rows = Rows::new(&[
        "constraint_catalog",
        "constraint_schema",
        "constraint_name",
        "table_catalog",
        "table_schema",
        "table_name",
        "column_name",
        "ordinal_position",
        "position_in_unique_constraint",
    ]);
    for table in catalog.tables.values() {
        let mut add = |name: &str, columns: &[ColumnId], places: Option<Vec<usize>>| {
            for (i, id) in columns.iter().enumerate() {
                let place = places.as_ref().and_then(|places| places.get(i));
                rows.push(vec![
                    text(names::DATABASE),
                    text(&table.schema),
                    text(name),
                    text(names::DATABASE),
                    text(&table.schema),
                    text(&table.name),
                    table.column_by_id(*id).map(|column| column.name.clone()),
                    text((i + 1).to_string()),
                    place.map(usize::to_string),
                ]);
            }
        };
        for key in &table.keys {
            add(&key.name, &key.columns, None);
        }
        for key in &table.foreign_keys {
            let columns = referenced(catalog, key).map_or(&[][..], |(_, k)| &k.columns);
            let place = |id| columns.iter().position(|c| c == id).map_or(0, |at| at + 1);
            let places = key.parent_columns.iter().map(place).collect();
            add(&key.name, &key.columns, Some(places));
        }
    }
    rows
}

/// The table and the key that a foreign key references; None: it is no key but a unique index.
fn referenced<'a>(catalog: &'a Catalog, key: &ForeignKeyDef) -> Option<(&'a TableDef, &'a KeyDef)> {
    let parent = catalog.tables.get(&key.parent)?;
    match parent.unique_over(&key.parent_columns)? {
        UniqueOver::Key(at) => Some((parent, parent.keys.get(at)?)),
        UniqueOver::Index(_) => None,
    }
}

/// The columns that constraints use: of a foreign key those that it references.
pub(super) fn constraint_column_usage(catalog: &Catalog) -> Rows {
    let mut rows = Rows::new(&[
        "table_catalog",
        "table_schema",
        "table_name",
        "column_name",
        "constraint_catalog",
        "constraint_schema",
        "constraint_name",
    ]);
    let mut add = |of: &TableDef, columns: &[ColumnId], schema: &str, name: &str| {
        for column in columns.iter().filter_map(|id| of.column_by_id(*id)) {
            rows.push(vec![
                text(names::DATABASE),
                text(&of.schema),
                text(&of.name),
                text(&column.name),
                text(names::DATABASE),
                text(schema),
                text(name),
            ]);
        }
    };
    for table in catalog.tables.values() {
        for key in &table.keys {
            add(table, &key.columns, &table.schema, &key.name);
        }
        for key in &table.foreign_keys {
            if let Some(parent) = catalog.tables.get(&key.parent) {
                add(parent, &key.parent_columns, &table.schema, &key.name);
            }
        }
        for check in &table.checks {
            let Ok(condition) = crate::parse::expression(&check.expression) else {
                continue;
            };
            let columns = table.columns.iter();
            let named = columns.filter(|c| names::mentions(&condition, &c.name));
            let named: Vec<ColumnId> = named.map(|column| column.id).collect();
            add(table, &named, &table.schema, &check.name);
        }
    }
    rows
}

pub(super) fn check_constraints(catalog: &Catalog) -> Rows {
    let mut rows = Rows::new(&[
        "constraint_catalog",
        "constraint_schema",
        "constraint_name",
        "check_clause",
    ]);
    for table in catalog.tables.values() {
        for check in &table.checks {
            rows.push(vec![
                text(names::DATABASE),
                text(&table.schema),
                text(&check.name),
                text(&check.expression),
            ]);
        }
    }
    rows
}

/// Foreign keys.
pub(super) fn referential_constraints(catalog: &Catalog) -> Rows {
    let mut rows = Rows::new(&[
        "constraint_catalog",
        "constraint_schema",
        "constraint_name",
        "unique_constraint_catalog",
        "unique_constraint_schema",
        "unique_constraint_name",
        "match_option",
        "update_rule",
        "delete_rule",
    ]);
    for table in catalog.tables.values() {
        for key in &table.foreign_keys {
            let found = referenced(catalog, key);
            rows.push(vec![
                text(names::DATABASE),
                text(&table.schema),
                text(&key.name),
                found.and_then(|_| text(names::DATABASE)),
                found.and_then(|(parent, _)| text(&parent.schema)),
                found.and_then(|(_, unique)| text(&unique.name)),
                // PostgreSQL's word for SIMPLE.
                text(if key.match_full { "FULL" } else { "NONE" }),
                text(action_words(key.on_update)),
                text(action_words(key.on_delete)),
            ]);
        }
    }
    rows
}
