//! The relations: `pg_namespace`, `pg_class`, `pg_attribute`, and the views over them.

use super::catalog_value::CatalogValue;
use super::oid::{self, BOOTSTRAP_OID, Object, PG_CATALOG_OID};
use super::relation::{self, Rows};
use super::system::{System, ViewColumns};
use super::{table_index, text, types};
use crate::catalogs::INFORMATION_SCHEMA;
use strandline_base::SqlType;
use strandline_engine::TableStatistics;
use strandline_engine::access;
use strandline_engine::catalog::TableDef;

/// The access method of tables.
pub const HEAP: i32 = 2;

pub fn pg_namespace(system: &System, rows: &mut Rows) {
    for name in [super::PG_CATALOG, INFORMATION_SCHEMA] {
        rows.add([
            ("oid", system.oids().schema(name).into()),
            ("nspname", name.into()),
            ("nspowner", BOOTSTRAP_OID.into()),
        ]);
    }
    for name in system.catalog.schemas.keys() {
        let object = access::Object::Schema(name.clone());
        rows.add([
            ("oid", system.oids().schema(name).into()),
            ("nspname", name.as_str().into()),
            ("nspowner", system.owner(&object).into()),
            ("nspacl", acl(system, &object)),
        ]);
    }
}

fn acl(system: &System, object: &access::Object) -> CatalogValue {
    text::acl(system, object).map_or(CatalogValue::Null, CatalogValue::Texts)
}

/// The fields in which rows of `pg_class` differ.
struct Class<'a> {
    oid: i32,
    schema: i32,
    name: &'a str,
    kind: &'a str,
    owner: i32,
    method: i32,
    columns: usize,
    acl: CatalogValue,
}

fn class(rows: &mut Rows, class: Class<'_>) {
    let stored = !matches!(class.kind, "v");
    rows.add([
        ("oid", class.oid.into()),
        ("relname", class.name.into()),
        ("relnamespace", class.schema.into()),
        ("reltype", 0.into()),
        ("reloftype", 0.into()),
        ("relowner", class.owner.into()),
        ("relam", class.method.into()),
        ("relfilenode", if stored { class.oid } else { 0 }.into()),
        ("reltablespace", 0.into()),
        ("relpages", 0.into()),
        (
            "reltuples",
            CatalogValue::Float(if stored { 0.0 } else { -1.0 }),
        ),
        ("relallvisible", 0.into()),
        ("reltoastrelid", 0.into()),
        ("relhasindex", false.into()),
        ("relisshared", false.into()),
        ("relpersistence", "p".into()),
        ("relkind", class.kind.into()),
        ("relnatts", (class.columns as i64).into()),
        ("relchecks", 0.into()),
        ("relhasrules", (class.kind == "v").into()),
    ]);
    rows.set([
        ("relhastriggers", false.into()),
        ("relhassubclass", false.into()),
        ("relrowsecurity", false.into()),
        ("relforcerowsecurity", false.into()),
        ("relispopulated", true.into()),
        (
            "relreplident",
            if class.kind == "r" { "d" } else { "n" }.into(),
        ),
        ("relispartition", false.into()),
        ("relrewrite", 0.into()),
        ("relfrozenxid", 0.into()),
        ("relminmxid", 0.into()),
        ("relacl", class.acl),
    ]);
}

pub fn pg_class(system: &System, views: &ViewColumns, rows: &mut Rows) {
    for table in system.catalog.tables.values() {
        table_classes(system, table, rows);
    }
    for view in &system.catalog.views {
        let object = access::Object::View(view.schema.clone(), view.name.clone());
        let key = (view.schema.clone(), view.name.clone());
        let view_oid = Object::View(view.schema.clone(), view.name.clone());
        class(
            rows,
            Class {
                oid: system.oids().get(&view_oid),
                schema: system.oids().schema(&view.schema),
                name: &view.name,
                kind: "v",
                owner: system.owner(&object),
                method: 0,
                columns: views.get(&key).map_or(0, Vec::len),
                acl: acl(system, &object),
            },
        );
    }
    for relation in relation::listed() {
        class(
            rows,
            Class {
                oid: relation.oid,
                schema: PG_CATALOG_OID,
                name: relation.name,
                kind: relation.kind,
                owner: BOOTSTRAP_OID,
                method: if relation.kind == "r" { HEAP } else { 0 },
                columns: relation.columns.len(),
                acl: CatalogValue::Null,
            },
        );
    }
}

/// Size, options and objects of a table, in the row that was added last.
fn table_details(table: &TableDef, statistics: &TableStatistics, rows: &mut Rows) {
    rows.set([
        ("relpages", (statistics.bytes.div_ceil(8192) as i64).into()),
        ("reltuples", CatalogValue::Float(statistics.rows as f64)),
        (
            "relhasindex",
            table_index::of(table).next().is_some().into(),
        ),
        ("relchecks", (table.checks.len() as i64).into()),
        (
            "relhastriggers",
            // Clients look for foreign keys where there are the triggers that check them.
            (!table.foreign_keys.is_empty() || !table.referenced_by.is_empty()).into(),
        ),
    ]);
    if let Some(index) = table.key_index() {
        let options = vec![format!("key_index={}", index.word())];
        rows.set([("reloptions", CatalogValue::Texts(options))]);
    }
}

/// A table, the indexes of its keys and the sequences of its identity columns.
fn table_classes(system: &System, table: &TableDef, rows: &mut Rows) {
    let oids = system.oids();
    let object = access::Object::Table(table.id);
    let schema = oids.schema(&table.schema);
    let owner = system.owner(&object);
    class(
        rows,
        Class {
            oid: oids.table(table),
            schema,
            name: &table.name,
            kind: "r",
            owner,
            method: HEAP,
            columns: table.columns.len(),
            acl: acl(system, &object),
        },
    );
    let statistics = system.statement.transaction().db().statistics(table);
    table_details(table, &statistics, rows);
    for index in table_index::of(table) {
        class(
            rows,
            Class {
                oid: oids.get(&index.object(table)),
                schema,
                name: index.name(),
                kind: "i",
                owner,
                method: index.method(),
                columns: index.attributes(table).len(),
                acl: CatalogValue::Null,
            },
        );
        rows.set([("reltuples", CatalogValue::Float(statistics.rows as f64))]);
        let options = index.options();
        if !options.is_empty() {
            rows.set([("reloptions", CatalogValue::Texts(options))]);
        }
    }
    for column in table.columns.iter().filter(|c| c.identity.is_some()) {
        class(
            rows,
            Class {
                oid: oids.get(&Object::Sequence(table.id, column.id)),
                schema,
                name: &oid::sequence_name(table, column),
                kind: "S",
                owner,
                method: 0,
                columns: 3,
                acl: CatalogValue::Null,
            },
        );
    }
}

/// The fields in which rows of `pg_attribute` differ.
struct Attribute<'a> {
    relation: i32,
    number: usize,
    name: &'a str,
    type_oid: i32,
    typmod: i64,
    not_null: bool,
    has_default: bool,
    identity: &'a str,
}

fn attribute(rows: &mut Rows, attribute: Attribute<'_>) {
    let t = types::by_oid(attribute.type_oid.into());
    rows.add([
        ("attrelid", attribute.relation.into()),
        ("attname", attribute.name.into()),
        ("atttypid", attribute.type_oid.into()),
        ("attstattarget", (-1).into()),
        ("attlen", t.map_or(-1, |t| t.length).into()),
        ("attnum", (attribute.number as i64).into()),
        (
            "attndims",
            i32::from(t.is_some_and(|t| t.name.starts_with('_'))).into(),
        ),
        ("attcacheoff", (-1).into()),
        ("atttypmod", attribute.typmod.into()),
        ("attbyval", t.is_some_and(|t| t.by_value).into()),
        ("attalign", t.map_or("i", |t| t.align).into()),
        ("attstorage", t.map_or("p", |t| t.storage).into()),
        ("attcompression", "".into()),
        ("attnotnull", attribute.not_null.into()),
        ("atthasdef", attribute.has_default.into()),
        ("atthasmissing", false.into()),
        ("attidentity", attribute.identity.into()),
        ("attgenerated", "".into()),
        ("attisdropped", false.into()),
        ("attislocal", true.into()),
        ("attinhcount", 0.into()),
        ("attcollation", t.map_or(0, |t| t.collation).into()),
    ]);
}

pub fn pg_attribute(system: &System, views: &ViewColumns, rows: &mut Rows) {
    for table in system.catalog.tables.values() {
        table_attributes(system, table, rows);
    }
    for ((schema, name), columns) in views {
        let relation = system
            .oids()
            .get(&Object::View(schema.clone(), name.clone()));
        for (i, (name, sql_type)) in columns.iter().enumerate() {
            let (type_oid, typmod) = types::oid_of(sql_type.unwrap_or(SqlType::Text));
            let column = Attribute {
                relation,
                number: i + 1,
                name,
                type_oid,
                typmod,
                not_null: false,
                has_default: false,
                identity: "",
            };
            attribute(rows, column);
        }
    }
    for relation in relation::listed() {
        for (i, (name, pg_type)) in relation.columns.iter().enumerate() {
            let column = Attribute {
                relation: relation.oid,
                number: i + 1,
                name,
                type_oid: types::by_name(pg_type).map_or(25, |t| t.oid),
                typmod: -1,
                not_null: i == 0 && relation.kind == "r",
                has_default: false,
                identity: "",
            };
            attribute(rows, column);
        }
    }
}

fn table_attributes(system: &System, table: &TableDef, rows: &mut Rows) {
    for (i, column) in table.columns.iter().enumerate() {
        let (type_oid, typmod) = types::oid_of(column.sql_type);
        let identity = match &column.identity {
            None => "",
            Some(identity) if identity.always => "a",
            Some(_) => "d",
        };
        let column = Attribute {
            relation: system.oids().table(table),
            number: i + 1,
            name: &column.name,
            type_oid,
            typmod,
            not_null: column.not_null,
            has_default: column.default.is_some(),
            identity,
        };
        attribute(rows, column);
    }
    for index in table_index::of(table) {
        for (i, (name, sql_type)) in index.attributes(table).iter().enumerate() {
            let (type_oid, typmod) = types::oid_of(*sql_type);
            let column = Attribute {
                relation: system.oids().get(&index.object(table)),
                number: i + 1,
                name,
                type_oid,
                typmod,
                not_null: false,
                has_default: false,
                identity: "",
            };
            attribute(rows, column);
        }
    }
}

/// `pg_tables`.
pub fn pg_tables(system: &System, rows: &mut Rows) {
    for table in system.catalog.tables.values() {
        let owner = system
            .catalog
            .access
            .owner(&access::Object::Table(table.id));
        rows.add([
            ("schemaname", table.schema.as_str().into()),
            ("tablename", table.name.as_str().into()),
            ("tableowner", system.catalog.access.role_name(owner).into()),
            ("hasindexes", table_index::of(table).next().is_some().into()),
            ("hasrules", false.into()),
            ("hastriggers", false.into()),
            ("rowsecurity", false.into()),
        ]);
    }
    for relation in relation::listed().into_iter().filter(|r| r.kind == "r") {
        let owner = system.catalog.access.role_name(access::BOOTSTRAP);
        rows.add([
            ("schemaname", super::PG_CATALOG.into()),
            ("tablename", relation.name.into()),
            ("tableowner", owner.into()),
            ("hasindexes", true.into()),
            ("hasrules", false.into()),
            ("hastriggers", false.into()),
            ("rowsecurity", false.into()),
        ]);
    }
}

/// `pg_views`.
pub fn pg_views(system: &System, rows: &mut Rows) {
    for view in &system.catalog.views {
        let object = access::Object::View(view.schema.clone(), view.name.clone());
        let owner = system.catalog.access.owner(&object);
        rows.add([
            ("schemaname", view.schema.as_str().into()),
            ("viewname", view.name.as_str().into()),
            ("viewowner", system.catalog.access.role_name(owner).into()),
            (
                "definition",
                text::view(view, &system.default_schema).into(),
            ),
        ]);
    }
}
