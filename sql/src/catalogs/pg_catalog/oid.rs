//! Oids: numbers for objects, as stable as the ids or names that they are computed from.
//!
//! A table's comes from its id, which it keeps for life. Objects that are known by name only get a
//! number in the upper half of the positive numbers, from a hash of their kind and name; where two
//! meet, the later one in the order of names takes the next free number. System objects have
//! PostgreSQL's.

use std::collections::{BTreeMap, HashMap};
use strandline_base::{ColumnId, TableId};
use strandline_engine::access::RoleId;
use strandline_engine::catalog::index::IndexId;
use strandline_engine::catalog::{Catalog, ColumnDef, TableDef};

/// Schema `pg_catalog`.
pub const PG_CATALOG_OID: i32 = 11;
/// Schema `public`.
pub const PUBLIC_OID: i32 = 2200;
/// Schema `information_schema`.
pub const INFORMATION_SCHEMA_OID: i32 = 13_207;
/// The bootstrap role.
pub const BOOTSTRAP_OID: i32 = 10;
/// The one database.
pub const DATABASE_OID: i32 = 16_384;
/// The first oid of tables.
const FIRST_TABLE: u32 = 16_385;
/// Oids of objects known by name begin here.
const FIRST_NAMED: u32 = 1 << 30;

/// The object that an oid stands for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Object {
    /// a schema
    Schema(String),
    /// a table
    Table(TableId),
    /// a view, by schema and name
    View(String, String),
    /// the rule that a view is, by schema and name
    Rule(String, String),
    /// the index of a key, by its table and its name
    KeyIndex(TableId, String),
    /// an index of CREATE INDEX
    Index(TableId, IndexId),
    /// the counter of an identity column
    Sequence(TableId, ColumnId),
    /// a PRIMARY KEY, UNIQUE, CHECK or FOREIGN KEY constraint, by its table and its name
    Constraint(TableId, String),
    /// a column's default
    Default(TableId, ColumnId),
}

/// The oids of one catalog's objects.
#[derive(Debug, Default)]
pub struct Oids {
    by_object: HashMap<Object, i32>,
    by_oid: BTreeMap<i32, Object>,
}

impl Oids {
    /// Numbers the objects of `catalog`.
    pub fn of(catalog: &Catalog) -> Self {
        let mut oids = Self::default();
        for schema in catalog.schemas.keys() {
            oids.place(Object::Schema(schema.clone()));
        }
        for view in &catalog.views {
            oids.place(Object::View(view.schema.clone(), view.name.clone()));
            oids.place(Object::Rule(view.schema.clone(), view.name.clone()));
        }
        for table in catalog.tables.values() {
            oids.place(Object::Table(table.id));
            for key in &table.keys {
                oids.place(Object::KeyIndex(table.id, key.name.clone()));
                oids.place(Object::Constraint(table.id, key.name.clone()));
            }
            for index in &table.indexes {
                oids.place(Object::Index(table.id, index.id));
            }
            for check in &table.checks {
                oids.place(Object::Constraint(table.id, check.name.clone()));
            }
            for key in &table.foreign_keys {
                oids.place(Object::Constraint(table.id, key.name.clone()));
            }
            for column in &table.columns {
                if column.default.is_some() {
                    oids.place(Object::Default(table.id, column.id));
                }
                if column.identity.is_some() {
                    oids.place(Object::Sequence(table.id, column.id));
                }
            }
        }
        oids
    }

    fn place(&mut self, object: Object) {
        let mut oid = match &object {
            Object::Table(id) => FIRST_TABLE.saturating_add(id.0),
            Object::Schema(name) if name == "public" => PUBLIC_OID as u32,
            named => FIRST_NAMED | (hash(&format!("{named:?}")) & (FIRST_NAMED - 1)),
        };
        while self.by_oid.contains_key(&(oid as i32)) {
            oid = FIRST_NAMED | ((oid + 1) & (FIRST_NAMED - 1));
        }
        self.by_oid.insert(oid as i32, object.clone());
        self.by_object.insert(object, oid as i32);
    }

    /// The oid of `object`; 0 if there is no such object.
    pub fn get(&self, object: &Object) -> i32 {
        self.by_object.get(object).copied().unwrap_or(0)
    }
    /// The oid of a schema; 0 if there is none.
    pub fn schema(&self, name: &str) -> i32 {
        match name {
            super::PG_CATALOG => PG_CATALOG_OID,
            crate::catalogs::INFORMATION_SCHEMA => INFORMATION_SCHEMA_OID,
            other => self.get(&Object::Schema(other.to_string())),
        }
    }
    /// The oid of a table.
    pub fn table(&self, table: &TableDef) -> i32 {
        self.get(&Object::Table(table.id))
    }
    /// The object with `oid`.
    pub fn find(&self, oid: i64) -> Option<&Object> {
        self.by_oid.get(&i32::try_from(oid).ok()?)
    }
}

/// The oid of a role.
pub fn of_role(role: RoleId) -> i32 {
    role.0 as i32
}

/// The name of the sequence behind an identity column, as PostgreSQL would call it.
pub fn sequence_name(table: &TableDef, column: &ColumnDef) -> String {
    format!("{}_{}_seq", table.name, column.name)
}

/// FNV-1a.
fn hash(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}
