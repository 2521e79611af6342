//! Views as rules: `pg_rewrite`, and the relations that they depend on.

use super::oid::Object;
use super::relation::Rows;
use super::system::System;
use crate::parse::{self, relations};
use strandline_engine::catalog::ViewDef;

/// The oid of the rule that a view is.
pub fn rule(system: &System, view: &ViewDef) -> i32 {
    let rule = Object::Rule(view.schema.clone(), view.name.clone());
    system.oids().get(&rule)
}

/// The oid of a view.
pub fn oid(system: &System, view: &ViewDef) -> i32 {
    let object = Object::View(view.schema.clone(), view.name.clone());
    system.oids().get(&object)
}

/// The oids of the tables and views that a view names.
pub fn reads(system: &System, view: &ViewDef) -> Vec<i32> {
    let Ok(mut query) = parse::query(&view.query) else {
        return Vec::new();
    };
    let named = relations::qualify(&mut query, &view.schema, super::has);
    let named = named.into_iter().filter_map(|(schema, name)| {
        if let Some(table) = system.catalog.table(&schema, &name) {
            return Some(system.oids().table(table));
        }
        let view = system.catalog.view(&schema, &name)?;
        Some(oid(system, view))
    });
    named.collect()
}

pub fn pg_rewrite(system: &System, rows: &mut Rows) {
    for view in &system.catalog.views {
        rows.add([
            ("oid", rule(system, view).into()),
            ("rulename", "_RETURN".into()),
            ("ev_class", oid(system, view).into()),
            ("ev_type", "1".into()),
            ("ev_enabled", "O".into()),
            ("is_instead", true.into()),
            ("ev_qual", "<>".into()),
        ]);
    }
}
