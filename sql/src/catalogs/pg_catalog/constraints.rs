//! The objects that belong to relations: `pg_constraint`, `pg_attrdef`, `pg_description`,
//! `pg_depend`.

use super::catalog_value::CatalogValue;
use super::oid::Object;
use super::relation::{RELATIONS, Rows};
use super::system::System;
use super::{sequences, table_index, text, views};
use strandline_base::ColumnId;
use strandline_engine::catalog::TableDef;
use strandline_engine::catalog::foreign_keys::UniqueOver;
use strandline_engine::catalog::index::{ConstraintTiming, ForeignKeyDef};

/// The fields in which rows of `pg_constraint` differ.
struct Constraint<'a> {
    name: &'a str,
    kind: &'a str,
    index: i32,
    columns: Vec<i64>,
    timing: ConstraintTiming,
    condition: CatalogValue,
    reference: Option<Reference>,
}

/// The fields that only a foreign key has.
struct Reference {
    table: i32,
    columns: Vec<i64>,
    on_update: &'static str,
    on_delete: &'static str,
    match_kind: &'static str,
    delete_sets: Vec<i64>,
    is_valid: bool,
}

pub fn pg_constraint(system: &System, rows: &mut Rows) {
    for table in system.catalog.tables.values() {
        for key in &table.keys {
            let index = Object::KeyIndex(table.id, key.name.clone());
            let constraint = Constraint {
                name: &key.name,
                kind: if key.primary { "p" } else { "u" },
                index: system.oids().get(&index),
                columns: table_index::positions(table, &key.columns),
                timing: key.timing,
                condition: CatalogValue::Null,
                reference: None,
            };
            add_constraint(system, table, rows, constraint);
        }
        for key in &table.foreign_keys {
            if let Some(constraint) = foreign_key(system, table, key) {
                add_constraint(system, table, rows, constraint);
            }
        }
        for check in &table.checks {
            let constraint = Constraint {
                name: &check.name,
                kind: "c",
                index: 0,
                columns: columns_in(table, &check.expression),
                timing: ConstraintTiming::Immediate,
                condition: check.expression.as_str().into(),
                reference: None,
            };
            add_constraint(system, table, rows, constraint);
        }
    }
}

fn foreign_key<'a>(
    system: &System,
    table: &TableDef,
    key: &'a ForeignKeyDef,
) -> Option<Constraint<'a>> {
    let parent = system.catalog.tables.get(&key.parent)?;
    let positions = |of: &TableDef, columns: &[ColumnId]| {
        let places = columns.iter().filter_map(|id| of.position(*id));
        places.map(|at| at as i64 + 1).collect::<Vec<_>>()
    };
    let index = match parent.unique_over(&key.parent_columns) {
        Some(UniqueOver::Key(at)) => {
            Some(Object::KeyIndex(parent.id, parent.keys[at].name.clone()))
        }
        Some(UniqueOver::Index(id)) => Some(Object::Index(parent.id, id)),
        None => None,
    };
    Some(Constraint {
        name: &key.name,
        kind: "f",
        index: index.map_or(0, |index| system.oids().get(&index)),
        columns: positions(table, &key.columns),
        condition: CatalogValue::Null,
        timing: key.timing,
        reference: Some(Reference {
            table: system.oids().table(parent),
            columns: positions(parent, &key.parent_columns),
            on_update: text::action_letter(key.on_update),
            on_delete: text::action_letter(key.on_delete),
            match_kind: if key.match_full { "f" } else { "s" },
            delete_sets: positions(table, &key.delete_sets),
            is_valid: !key.not_valid,
        }),
    })
}

fn add_constraint(system: &System, table: &TableDef, rows: &mut Rows, add: Constraint<'_>) {
    let oids = system.oids();
    let object = Object::Constraint(table.id, add.name.to_string());
    let reference = add.reference.as_ref();
    rows.add([
        ("oid", oids.get(&object).into()),
        ("conname", add.name.into()),
        ("connamespace", oids.schema(&table.schema).into()),
        ("contype", add.kind.into()),
        (
            "condeferrable",
            (add.timing != ConstraintTiming::Immediate).into(),
        ),
        (
            "condeferred",
            (add.timing == ConstraintTiming::Deferred).into(),
        ),
        ("convalidated", reference.is_none_or(|r| r.is_valid).into()),
        ("conrelid", oids.table(table).into()),
        ("contypid", 0.into()),
        ("conindid", add.index.into()),
        ("conparentid", 0.into()),
        ("confrelid", reference.map_or(0, |r| r.table).into()),
        ("confupdtype", reference.map_or(" ", |r| r.on_update).into()),
        ("confdeltype", reference.map_or(" ", |r| r.on_delete).into()),
        (
            "confmatchtype",
            reference.map_or(" ", |r| r.match_kind).into(),
        ),
        ("conislocal", true.into()),
        ("coninhcount", 0.into()),
        ("connoinherit", (add.kind != "c").into()),
        ("conkey", CatalogValue::Ints(add.columns)),
        (
            "confkey",
            reference.map_or(CatalogValue::Null, |r| {
                CatalogValue::Ints(r.columns.clone())
            }),
        ),
        (
            "confdelsetcols",
            reference
                .filter(|r| !r.delete_sets.is_empty())
                .map_or(CatalogValue::Null, |r| {
                    CatalogValue::Ints(r.delete_sets.clone())
                }),
        ),
        ("conbin", add.condition),
    ]);
}

/// The positions of the columns that a condition names.
fn columns_in(table: &TableDef, condition: &str) -> Vec<i64> {
    let Ok(parsed) = crate::parse::expression(condition) else {
        return Vec::new();
    };
    let columns = table.columns.iter().enumerate();
    columns
        .filter(|(_, column)| crate::parse::names::mentions(&parsed, &column.name))
        .map(|(i, _)| i as i64 + 1)
        .collect()
}

pub fn pg_attrdef(system: &System, rows: &mut Rows) {
    for table in system.catalog.tables.values() {
        for (i, column) in table.columns.iter().enumerate() {
            let Some(default) = &column.default else {
                continue;
            };
            rows.add([
                (
                    "oid",
                    system
                        .oids()
                        .get(&Object::Default(table.id, column.id))
                        .into(),
                ),
                ("adrelid", system.oids().table(table).into()),
                ("adnum", (i as i64 + 1).into()),
                ("adbin", default.as_str().into()),
            ]);
        }
    }
}

/// The oid of a system table, for the columns that say what kind an object is of.
pub fn class_oid(name: &str) -> i32 {
    RELATIONS.get(name).map_or(0, |relation| relation.oid)
}

pub fn pg_depend(system: &System, rows: &mut Rows) {
    let class = class_oid("pg_class");
    let mut add = |kind: i32, object: i32, table: i32, column: usize, how: &str| {
        rows.add([
            ("classid", kind.into()),
            ("objid", object.into()),
            ("objsubid", 0.into()),
            ("refclassid", class.into()),
            ("refobjid", table.into()),
            ("refobjsubid", (column as i64).into()),
            ("deptype", how.into()),
        ]);
    };
    for sequence in sequences::of(&system.catalog) {
        let table = system.oids().table(sequence.table);
        add(
            class,
            sequence.oid(system),
            table,
            sequence.position + 1,
            "i",
        );
    }
    let rewrite = class_oid("pg_rewrite");
    for view in &system.catalog.views {
        let rule = views::rule(system, view);
        add(rewrite, rule, views::oid(system, view), 0, "i");
        for relation in views::reads(system, view) {
            add(rewrite, rule, relation, 0, "n");
        }
    }
    let constraint = class_oid("pg_constraint");
    for table in system.catalog.tables.values() {
        let oid = system.oids().table(table);
        for key in &table.keys {
            let object = Object::Constraint(table.id, key.name.clone());
            for position in table_index::positions(table, &key.columns) {
                let object = system.oids().get(&object);
                add(constraint, object, oid, position as usize, "a");
            }
        }
        for index in &table.indexes {
            let object = system.oids().get(&Object::Index(table.id, index.id));
            for part in table_index::Index::Secondary(index).parts(table) {
                add(class, object, oid, part.position as usize, "a");
            }
        }
        for key in &table.foreign_keys {
            let name = Object::Constraint(table.id, key.name.clone());
            let object = system.oids().get(&name);
            for column in key.columns.iter().filter_map(|id| table.position(*id)) {
                add(constraint, object, oid, column + 1, "a");
            }
            if let Some(parent) = system.catalog.tables.get(&key.parent) {
                let referenced = system.oids().table(parent);
                let columns = key.parent_columns.iter();
                for column in columns.filter_map(|id| parent.position(*id)) {
                    add(constraint, object, referenced, column + 1, "n");
                }
            }
        }
    }
}

pub fn pg_description(system: &System, rows: &mut Rows) {
    let mut add = |class: &str, oid: i32, column: usize, comment: &Option<String>| {
        if let Some(comment) = comment {
            rows.add([
                ("objoid", oid.into()),
                ("classoid", class_oid(class).into()),
                ("objsubid", (column as i64).into()),
                ("description", comment.as_str().into()),
            ]);
        }
    };
    for table in system.catalog.tables.values() {
        let oid = system.oids().table(table);
        add("pg_class", oid, 0, &table.comment);
        for (i, column) in table.columns.iter().enumerate() {
            add("pg_class", oid, i + 1, &column.comment);
        }
        for index in &table.indexes {
            let oid = system.oids().get(&Object::Index(table.id, index.id));
            add("pg_class", oid, 0, &index.comment);
        }
    }
    for view in &system.catalog.views {
        let oid = Object::View(view.schema.clone(), view.name.clone());
        add("pg_class", system.oids().get(&oid), 0, &view.comment);
    }
    for (schema, comment) in &system.catalog.schemas {
        add("pg_namespace", system.oids().schema(schema), 0, comment);
    }
}
