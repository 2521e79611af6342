//! `information_schema.table_constraints`, `key_column_usage`, `check_constraints`.

use super::{Rows, text, yes_no};
use crate::parse::names;
use strandline_engine::catalog::{Catalog, KeyDef};

fn kind(key: &KeyDef) -> &'static str {
    if key.primary { "PRIMARY KEY" } else { "UNIQUE" }
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
    ]);
    for table in catalog.tables.values() {
        let keys = table.keys.iter().map(|key| (key.name.as_str(), kind(key)));
        let checks = table
            .checks
            .iter()
            .map(|check| (check.name.as_str(), "CHECK"));
        for (name, kind) in keys.chain(checks) {
            rows.push(vec![
                text(names::DATABASE),
                text(&table.schema),
                text(name),
                text(names::DATABASE),
                text(&table.schema),
                text(&table.name),
                text(kind),
                yes_no(false),
                yes_no(false),
                yes_no(true),
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
    ]);
    for table in catalog.tables.values() {
        for key in &table.keys {
            for (i, id) in key.columns.iter().enumerate() {
                rows.push(vec![
                    text(names::DATABASE),
                    text(&table.schema),
                    text(&key.name),
                    text(names::DATABASE),
                    text(&table.schema),
                    text(&table.name),
                    table.column_by_id(*id).map(|column| column.name.clone()),
                    text((i + 1).to_string()),
                ]);
            }
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

/// Always empty: there are no foreign keys.
pub(super) fn referential_constraints() -> Rows {
    Rows::new(&[
        "constraint_catalog",
        "constraint_schema",
        "constraint_name",
        "unique_constraint_schema",
        "unique_constraint_name",
        "match_option",
        "update_rule",
        "delete_rule",
    ])
}
