//! The catalog: plain serializable definitions. A transaction edits its own copy of the current
//! [`Catalog`]; commit logs and publishes it under the commit timestamp. Old versions are kept as
//! long as some table's history can be read, so that AS OF uses the schema of its moment.
//!
//! Catalogs are stored as JSON. A field that older databases lack has a default. A change that
//! older programs must not ignore raises [`CATALOG_VERSION`].

pub mod access;
pub(crate) mod edit;
pub mod foreign_keys;
pub(crate) mod identity;
pub mod index;
pub(crate) mod index_file;
pub(crate) mod ordered_keys;
pub(crate) mod retention;
pub(crate) mod storage_uses;
pub(crate) mod versions;

pub use ordered_keys::KeyIndex;

use access::Access;
use index::{ConstraintTiming, ForeignKeyDef, IndexDef, IndexId, IndexMethod, IndexStorage};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use strandline_base::{
    ColumnId, Error, ErrorKind, ErrorSubject, Result, SqlState, SqlType, StorageId, TableId, Value,
};

/// The number of columns that a table may define in its life. An insertion takes time for each of
/// them, including dropped ones.
const COLUMNS_MAX: u32 = 1 << 16;

/// One version of all definitions. Cloning is cheap enough for DDL: objects are shared.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Catalog {
    /// Schema name → comment.
    pub schemas: BTreeMap<String, Option<String>>,
    /// All tables by id.
    pub tables: BTreeMap<TableId, Arc<TableDef>>,
    /// (schema, name) → view, as a list so that JSON keys stay plain.
    pub views: Vec<Arc<ViewDef>>,
    /// The next free table id.
    pub next_table: u32,
    /// The next free storage id.
    pub next_storage: u32,
    /// The [`CATALOG_VERSION`] with which the catalog was written.
    #[serde(default, deserialize_with = "known_version")]
    pub version: u32,
    /// Roles, owners and grants.
    #[serde(default)]
    pub access: Arc<Access>,
}

/// The version of catalogs written by this program. 0: without roles; 1: without indexes and
/// foreign keys; 2: without ordered keys; 3: without indexes on pages; 4: without indexes in
/// levels; 5: without points and boxes; 6: without R-trees; 7: without LIDBlocks.
pub const CATALOG_VERSION: u32 = 8;

/// Refuses a catalog of a newer version than this program knows.
pub(crate) fn known_version<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    let version = u32::deserialize(from)?;
    if version > CATALOG_VERSION {
        return Err(serde::de::Error::custom(format!(
            "the catalog has version {version}, this program knows {CATALOG_VERSION}"
        )));
    }
    // Catalogs written from now on may use new features.
    Ok(CATALOG_VERSION)
}

/// A table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TableDef {
    /// stable for life
    pub id: TableId,
    /// the storage of its rows; TRUNCATE replaces it
    pub storage: StorageId,
    /// schema name
    pub schema: String,
    /// table name
    pub name: String,
    /// columns in SQL order; ids are unique within the table; dropped columns are not listed
    pub columns: Vec<ColumnDef>,
    /// the next free column id
    pub next_column: u32,
    /// PRIMARY KEY (at most one) and UNIQUE constraints
    pub keys: Vec<KeyDef>,
    /// WITH (key_index): the access method of keys that are added; None: each key's own
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_index: Option<IndexMethod>,
    /// the storage of their indexes, if these are ordered
    #[serde(default, skip_serializing_if = "IndexStorage::is_memory")]
    pub key_storage: IndexStorage,
    /// CHECK constraints
    pub checks: Vec<CheckDef>,
    /// secondary indexes
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub indexes: Vec<Arc<IndexDef>>,
    /// the next free index id
    #[serde(default)]
    pub next_index: u32,
    /// FOREIGN KEY constraints: the keys of other tables that this one references
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub foreign_keys: Vec<Arc<ForeignKeyDef>>,
    /// the tables whose foreign keys reference this one, itself included; derived from the foreign
    /// keys (see [`foreign_keys`])
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub referenced_by: Vec<TableId>,
    /// how long old versions are kept
    pub history: HistoryPolicy,
    /// COMMENT ON TABLE
    pub comment: Option<String>,
}

/// A column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ColumnDef {
    /// stable for life
    pub id: ColumnId,
    /// column name
    pub name: String,
    /// SQL type
    pub sql_type: SqlType,
    /// NOT NULL
    pub not_null: bool,
    /// DEFAULT expression as SQL text
    pub default: Option<String>,
    /// the value of rows that are older than the ADD COLUMN
    pub missing: Value,
    /// GENERATED … AS IDENTITY or serial
    pub identity: Option<IdentityDef>,
    /// COMMENT ON COLUMN
    pub comment: Option<String>,
}

/// An identity column's sequence. Its counter lives in the engine (`Db::next_identity`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IdentityDef {
    /// GENERATED ALWAYS: explicit values are refused unless OVERRIDING SYSTEM VALUE
    pub always: bool,
    /// first value
    pub start: i64,
    /// step, not 0
    pub increment: i64,
}

/// A PRIMARY KEY or UNIQUE constraint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeyDef {
    /// constraint name, unique within the table
    pub name: String,
    /// PRIMARY KEY rather than UNIQUE
    pub primary: bool,
    /// the key's columns in order
    pub columns: Vec<ColumnId>,
    /// NULLS NOT DISTINCT: two NULLs are the same key
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub nulls_not_distinct: bool,
    /// when it is checked
    #[serde(default)]
    pub timing: ConstraintTiming,
    /// its index as readers see it, if that is ordered; None: a hash index (see [`ordered_keys`])
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ordered: Option<Arc<IndexDef>>,
    /// as [`IndexDef::stays_in_memory`], of its index
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stays_in_memory: bool,
}

/// A CHECK constraint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckDef {
    /// constraint name, unique within the table
    pub name: String,
    /// the condition as SQL text over the table's column names
    pub expression: String,
}

/// A view.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ViewDef {
    /// schema name
    pub schema: String,
    /// view name
    pub name: String,
    /// the SELECT as SQL text
    pub query: String,
    /// explicit column names, or empty
    pub columns: Vec<String>,
    /// COMMENT ON VIEW
    pub comment: Option<String>,
}

/// The retention of versions that are no longer current.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HistoryPolicy {
    /// never removed
    Forever,
    /// kept for this many microseconds after they were superseded
    For(u64),
    /// kept only while an open snapshot sees them
    None,
}

impl Default for HistoryPolicy {
    fn default() -> Self {
        Self::For(24 * 3600 * 1_000_000)
    }
}

impl Catalog {
    /// An empty catalog with schema `public`.
    pub fn initial() -> Self {
        Self {
            schemas: BTreeMap::from([("public".to_string(), None)]),
            next_table: 1,
            next_storage: 1,
            version: CATALOG_VERSION,
            ..Self::default()
        }
    }
    /// The table `schema.name`.
    pub fn table(&self, schema: &str, name: &str) -> Option<&Arc<TableDef>> {
        self.tables
            .values()
            .find(|t| t.schema == schema && t.name == name)
    }
    /// The view `schema.name`.
    pub fn view(&self, schema: &str, name: &str) -> Option<&Arc<ViewDef>> {
        self.views
            .iter()
            .find(|v| v.schema == schema && v.name == name)
    }
    /// Allocates a table id.
    pub fn new_table_id(&mut self) -> TableId {
        let id = TableId(self.next_table);
        // A change that uses the last number is refused; see `check_numbers`.
        self.next_table = self.next_table.saturating_add(1);
        id
    }
    /// Allocates a storage id (for a new table or a TRUNCATE).
    pub fn new_storage_id(&mut self) -> StorageId {
        let id = StorageId(self.next_storage);
        self.next_storage = self.next_storage.saturating_add(1);
        id
    }
    /// 54000 if the last number of a table, storage, role or index has been used; 54011 if a table
    /// has defined more columns than [`COLUMNS_MAX`].
    pub(crate) fn check_numbers(&self) -> Result<()> {
        let exceeded = |state, message| Error::new(ErrorKind::Unavailable, state, message);
        let numbers = [
            ("CREATE TABLE", self.next_table),
            ("CREATE TABLE and TRUNCATE", self.next_storage),
            ("CREATE ROLE", self.access.next_role),
        ];
        for (statements, next) in numbers {
            if next == u32::MAX {
                let message = format!("the database has had {next} times {statements}, its limit");
                return Err(exceeded(SqlState::PROGRAM_LIMIT_EXCEEDED, message)
                    .with_hint("Copy what is needed into a new database."));
            }
        }
        if let Some(table) = self.tables.values().find(|t| t.next_index == u32::MAX) {
            let (name, had) = (&table.name, u32::MAX);
            let message = format!("table \"{name}\" has had {had} indexes, its limit");
            return Err(exceeded(SqlState::PROGRAM_LIMIT_EXCEEDED, message)
                .with_hint("CREATE TABLE AS makes a table that has had none."));
        }
        match self.tables.values().find(|t| t.next_column > COLUMNS_MAX) {
            None => Ok(()),
            Some(table) => {
                let message = format!(
                    "table \"{}\" can define at most {COLUMNS_MAX} columns, dropped ones included",
                    table.name
                );
                Err(exceeded(SqlState::TOO_MANY_COLUMNS, message)
                    .with_hint("CREATE TABLE AS makes a table without the dropped columns."))
            }
        }
    }
    /// Adds or replaces a table.
    pub fn put_table(&mut self, table: TableDef) {
        self.tables.insert(table.id, Arc::new(table));
    }
}

impl KeyDef {
    /// A key of these columns, checked at the end of each statement.
    pub fn new(name: impl Into<String>, primary: bool, columns: Vec<ColumnId>) -> Self {
        Self {
            name: name.into(),
            primary,
            columns,
            nulls_not_distinct: false,
            timing: ConstraintTiming::Immediate,
            ordered: None,
            stays_in_memory: false,
        }
    }

    /// Whether two rows may have the same key until the end of a transaction.
    pub fn is_deferrable(&self) -> bool {
        self.timing != ConstraintTiming::Immediate
    }
}

impl ColumnDef {
    /// A column that may be NULL, without default.
    pub fn new(id: ColumnId, name: impl Into<String>, sql_type: SqlType) -> Self {
        Self {
            id,
            name: name.into(),
            sql_type,
            not_null: false,
            default: None,
            missing: Value::Null,
            identity: None,
            comment: None,
        }
    }
}

impl TableDef {
    /// A table of `columns`, whose ids are their positions, without keys and indexes. The caller
    /// gives it the ids of table and storage.
    pub fn new(
        schema: impl Into<String>,
        name: impl Into<String>,
        columns: Vec<ColumnDef>,
    ) -> Self {
        Self {
            id: TableId(0),
            storage: StorageId(0),
            schema: schema.into(),
            name: name.into(),
            next_column: columns.len() as u32,
            columns,
            keys: Vec::new(),
            key_index: None,
            key_storage: IndexStorage::default(),
            checks: Vec::new(),
            indexes: Vec::new(),
            next_index: 0,
            foreign_keys: Vec::new(),
            referenced_by: Vec::new(),
            history: HistoryPolicy::default(),
            comment: None,
        }
    }
    /// The column called `name`.
    pub fn column(&self, name: &str) -> Option<&ColumnDef> {
        self.columns.iter().find(|c| c.name == name)
    }
    /// The column called `name`, or an error if it does not exist.
    pub fn require_column(&self, name: &str) -> Result<&ColumnDef> {
        self.column(name).ok_or_else(|| {
            Error::invalid(
                SqlState::UNDEFINED_COLUMN,
                format!(
                    "column \"{name}\" of relation \"{}\" does not exist",
                    self.name
                ),
            )
        })
    }
    /// The column with `id`.
    #[inline]
    pub fn column_by_id(&self, id: ColumnId) -> Option<&ColumnDef> {
        self.position(id).map(|at| &self.columns[at])
    }
    /// The position of column `id` in SQL order.
    pub fn position(&self, id: ColumnId) -> Option<usize> {
        // The position equals the id until a column before it is dropped.
        let likely = id.0 as usize;
        if self.columns.get(likely).is_some_and(|c| c.id == id) {
            return Some(likely);
        }
        self.columns.iter().position(|c| c.id == id)
    }
    /// The index with `id`: a secondary one, or an ordered key's.
    pub fn index(&self, id: IndexId) -> Option<&Arc<IndexDef>> {
        self.readable_indexes().find(|index| index.id == id)
    }
    /// Whether a change of its rows may require a look at other rows, in this table or in another.
    #[inline]
    pub fn has_references(&self) -> bool {
        !self.foreign_keys.is_empty() || !self.referenced_by.is_empty()
    }
    /// The subject of an error about the table's constraint or unique index `name`.
    #[cold]
    pub fn constraint_subject(&self, name: &str) -> ErrorSubject {
        ErrorSubject {
            schema: self.schema.clone(),
            table: self.name.clone(),
            column: None,
            constraint: Some(name.to_string()),
        }
    }
    /// The subject of an error about the table's column `name`.
    #[cold]
    pub fn column_subject(&self, name: &str) -> ErrorSubject {
        ErrorSubject {
            schema: self.schema.clone(),
            table: self.name.clone(),
            column: Some(name.to_string()),
            constraint: None,
        }
    }
    /// The PRIMARY KEY.
    pub fn primary_key(&self) -> Option<&KeyDef> {
        self.keys.iter().find(|k| k.primary)
    }
}

/// The column of `table` with this id, which must exist.
///
/// # Errors XX000 if it does not.
pub(crate) fn column_of(table: &TableDef, id: ColumnId) -> Result<&ColumnDef> {
    table.column_by_id(id).ok_or_else(|| {
        Error::internal(format!(
            "table \"{}\" has no column with id {id}",
            table.name
        ))
    })
}
