//! The context of the system tables and functions of one statement: the definitions it sees, its
//! snapshot, its session. It is made only for statements that use it.

use super::oid::{self, Object, Oids};
use super::relation::RELATIONS;
use super::table_index::{self, Index};
use super::types;
use crate::backends::activity::Setting;
use crate::backends::identity::{Identity, User};
use crate::parse::names;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use strandline_base::{Error, Result, SqlState, SqlType};
use strandline_engine::Statement;
use strandline_engine::access::{self, RoleId};
use strandline_engine::catalog::{Catalog, TableDef, ViewDef};

/// The columns of a view, with their types where tables could have them.
pub type ViewColumns = HashMap<(String, String), Vec<(String, Option<SqlType>)>>;

/// A statement's surroundings.
pub struct System {
    /// the definitions it sees
    pub catalog: Arc<Catalog>,
    /// the engine's statement
    pub statement: Arc<Statement>,
    /// the session, if it runs in one
    pub identity: Option<Arc<Identity>>,
    /// where unqualified names are looked up
    pub default_schema: String,
    oids: OnceLock<Oids>,
}

impl System {
    /// The surroundings of `statement`.
    pub fn new(
        catalog: Arc<Catalog>,
        statement: Arc<Statement>,
        identity: Option<Arc<Identity>>,
        default_schema: &str,
    ) -> Arc<Self> {
        Arc::new(Self {
            catalog,
            statement,
            identity,
            default_schema: default_schema.to_string(),
            oids: OnceLock::new(),
        })
    }

    /// The numbers of the objects.
    pub fn oids(&self) -> &Oids {
        self.oids.get_or_init(|| Oids::of(&self.catalog))
    }
    /// The role that the statement runs as.
    pub fn current_user(&self) -> User {
        match &self.identity {
            Some(identity) => identity.current_user.clone(),
            None => User::embedded(&self.catalog),
        }
    }
    /// The user who has connected.
    pub fn session_user(&self) -> User {
        match &self.identity {
            Some(identity) => identity.session_user.clone(),
            None => User::embedded(&self.catalog),
        }
    }
    /// The session's settings.
    pub fn settings(&self) -> Arc<[Setting]> {
        let settings = self.identity.as_ref().map(|i| i.backend.settings());
        settings.unwrap_or_default()
    }
    /// A setting's value. Those of the caches may have been changed by another session.
    pub fn value_of(&self, setting: &Setting) -> String {
        let caches = self.statement.transaction().db().cache_settings().named();
        let found = caches.into_iter().find(|(name, _)| *name == setting.name);
        found.map_or_else(|| setting.value.clone(), |(_, value)| value)
    }
    /// The role of an object's owner.
    pub fn owner(&self, object: &access::Object) -> i32 {
        oid::of_role(self.catalog.access.owner(object))
    }
    /// A role's oid from its name or its oid as text.
    pub fn role(&self, name: &str) -> Option<RoleId> {
        if let Some(role) = self.catalog.access.role(name) {
            return Some(role.id);
        }
        let unnamed = !self.catalog.access.roles.contains_key(&access::BOOTSTRAP);
        (unnamed && name == access::BOOTSTRAP_NAME).then_some(access::BOOTSTRAP)
    }
    /// The relation that `name` means, qualified or not: its oid; 42P01 if there is none.
    pub fn require_relation(&self, name: &str) -> Result<i32> {
        match self.relation(name)? {
            Some(oid) => Ok(oid),
            None => Err(Error::invalid(
                SqlState::UNDEFINED_TABLE,
                format!("relation \"{name}\" does not exist"),
            )),
        }
    }
    /// The oid of the relation that `name` means.
    pub fn relation(&self, name: &str) -> Result<Option<i32>> {
        let parsed = crate::parse::object_name(name)?;
        let parts = names::parts(&parsed)?;
        Ok(match parts.as_slice() {
            [name] => {
                let system = RELATIONS.get(name.as_str()).map(|relation| relation.oid);
                system.or_else(|| self.relation_in(&self.default_schema, name))
            }
            [schema, name] => self.relation_in(schema, name),
            [_, schema, name] => self.relation_in(schema, name),
            _ => None,
        })
    }

    fn relation_in(&self, schema: &str, name: &str) -> Option<i32> {
        if schema == super::PG_CATALOG {
            return RELATIONS.get(name).map(|relation| relation.oid);
        }
        let oids = self.oids();
        if let Some(table) = self.catalog.table(schema, name) {
            return Some(oids.table(table));
        }
        if self.catalog.view(schema, name).is_some() {
            return Some(oids.get(&Object::View(schema.to_string(), name.to_string())));
        }
        let mut tables = self.catalog.tables.values().filter(|t| t.schema == schema);
        tables.find_map(|table| {
            if let Some(index) = table_index::of(table).find(|index| index.name() == name) {
                return Some(oids.get(&index.object(table)));
            }
            let mut columns = table.columns.iter().filter(|c| c.identity.is_some());
            let column = columns.find(|c| oid::sequence_name(table, c) == name)?;
            Some(oids.get(&Object::Sequence(table.id, column.id)))
        })
    }

    /// Schema and name of the relation with `oid`.
    pub fn relation_name(&self, oid: i64) -> Option<(String, String)> {
        match self.oids().find(oid) {
            Some(Object::Table(_)) => {
                let table = self.table(oid)?;
                Some((table.schema.clone(), table.name.clone()))
            }
            Some(Object::View(schema, name)) => Some((schema.clone(), name.clone())),
            Some(Object::KeyIndex(..) | Object::Index(..)) => {
                let (table, index) = self.index(oid)?;
                Some((table.schema.clone(), index.name().to_string()))
            }
            Some(Object::Sequence(table, column)) => {
                let table = self.catalog.tables.get(table)?;
                let name = oid::sequence_name(table, table.column_by_id(*column)?);
                Some((table.schema.clone(), name))
            }
            Some(_) => None,
            None => {
                let mut system = RELATIONS.values().filter(|relation| relation.kind != "f");
                let found = system.find(|relation| i64::from(relation.oid) == oid)?;
                Some((super::PG_CATALOG.to_string(), found.name.to_string()))
            }
        }
    }
    /// Whether a relation is found without naming its schema.
    pub fn is_visible(&self, oid: i64) -> Option<bool> {
        let (schema, _) = self.relation_name(oid).filter(|_| oid != 0)?;
        Some(schema == self.default_schema || schema == super::PG_CATALOG)
    }
    /// The relation's name as SQL text, with its schema where that is needed.
    pub fn relation_text(&self, oid: i64) -> String {
        match self.relation_name(oid) {
            None if oid == 0 => "-".to_string(),
            None => oid.to_string(),
            Some((_, name)) if self.is_visible(oid) == Some(true) => names::quote(&name),
            Some((schema, name)) => format!("{}.{}", names::quote(&schema), names::quote(&name)),
        }
    }
    /// The table with `oid`.
    pub fn table(&self, oid: i64) -> Option<&Arc<TableDef>> {
        match self.oids().find(oid)? {
            Object::Table(id) => self.catalog.tables.get(id),
            _ => None,
        }
    }
    /// The view with `oid`.
    pub fn view(&self, oid: i64) -> Option<&Arc<ViewDef>> {
        match self.oids().find(oid)? {
            Object::View(schema, name) => self.catalog.view(schema, name),
            _ => None,
        }
    }
    /// The index with `oid`, and its table.
    pub fn index(&self, oid: i64) -> Option<(&Arc<TableDef>, Index<'_>)> {
        let object = self.oids().find(oid)?;
        let (Object::KeyIndex(table, _) | Object::Index(table, _)) = object else {
            return None;
        };
        let table = self.catalog.tables.get(table)?;
        let index = table_index::of(table).find(|index| index.object(table) == *object)?;
        Some((table, index))
    }
    /// The access entry of a relation that has privileges: a table, a view, a schema.
    pub fn protected(&self, oid: i64) -> Option<access::Object> {
        Some(match self.oids().find(oid)? {
            Object::Table(id) => access::Object::Table(*id),
            Object::View(schema, name) => access::Object::View(schema.clone(), name.clone()),
            Object::Schema(name) => access::Object::Schema(name.clone()),
            Object::Sequence(table, _) => access::Object::Table(*table),
            _ => return None,
        })
    }
    /// The name of the schema with `oid`.
    pub fn schema_name(&self, oid: i64) -> Option<String> {
        match i32::try_from(oid).ok()? {
            oid::PG_CATALOG_OID => Some(super::PG_CATALOG.to_string()),
            oid::INFORMATION_SCHEMA_OID => Some(crate::catalogs::INFORMATION_SCHEMA.to_string()),
            _ => match self.oids().find(oid)? {
                Object::Schema(name) => Some(name.clone()),
                _ => None,
            },
        }
    }
    /// The oid of the type that `text` names; 42704 if there is none.
    pub fn require_type(&self, text: &str) -> Result<i32> {
        types::by_name(text).map(|t| t.oid).ok_or_else(|| {
            Error::invalid(
                SqlState::UNDEFINED_OBJECT,
                format!("type \"{text}\" does not exist"),
            )
        })
    }
}

impl std::fmt::Debug for System {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("System").finish_non_exhaustive()
    }
}
