//! The row API: reads and writes of single rows by key, without SQL and without the query
//! engine. A [`TableHandle`] resolves names once; an operation then costs the engine's point
//! operation plus checks of types.
//!
//! The transaction rules are SQL's. Each operation is a statement of its own: under read committed
//! it sees all earlier commits. A failed write fails the transaction: its changes are undone at
//! once, and its locks end.

use crate::backends::acting::Acting;
use crate::catalogs::lookup;
use crate::execution::row_checks::CheckSet;
use crate::execution::row_values::{check_value, identity, not_null};
use crate::parse::names;
use crate::session::Session;
use crate::session::transaction::aborted;
use std::sync::Arc;
use strandline_base::{ColumnId, Error, Result, SqlState, Value};
use strandline_engine::access::Privileges;
use strandline_engine::catalog::{Catalog, ColumnDef, KeyDef, TableDef};
use strandline_engine::{Isolation, PointTable, Statement, Transaction as EngineTransaction};

/// A table with resolved names; made by [`Connection::table`](crate::Connection::table). Columns
/// are known by id, so a handle stays valid when columns are added or renamed.
#[derive(Clone, Debug)]
pub struct TableHandle {
    catalog: Arc<Catalog>,
    table: Arc<TableDef>,
    /// the primary key, if there is one
    primary: Option<PrimaryKey>,
}

/// A handle's prepared access by primary key.
#[derive(Clone, Debug)]
struct PrimaryKey {
    /// its position among the table's keys
    index: usize,
    /// the positions of its columns in the table
    columns: Vec<usize>,
    point: Arc<PointTable>,
}

impl TableHandle {
    pub(crate) fn find(session: &Session, name: &str) -> Result<Self> {
        let parsed = crate::parse::object_name(name)?;
        let default_schema = &session.template.config_options().catalog.default_schema;
        let (schema, table) = lookup::existing(&parsed, default_schema)?;
        let catalog = match &session.open {
            Some(open) => open.transaction.catalog(),
            None => session.shared.db.catalog(),
        };
        let found = catalog.table(&schema, &table).cloned();
        let Some(table) = found else {
            lookup::refuse_system(&schema, &table)?;
            return Err(names::undefined_table(&schema, &table));
        };
        if let Some(acting) = Acting::of(&session.template, &catalog) {
            acting.require_on(&table, Privileges::ALL_ON_ROWS)?;
        }
        let primary = match table.keys.iter().position(is_row_key) {
            Some(index) => Some(PrimaryKey {
                index,
                columns: key_positions(&table, index)?,
                point: Arc::new(PointTable::new(
                    &session.shared.db,
                    &catalog,
                    &table,
                    index,
                )?),
            }),
            None => None,
        };
        Ok(Self {
            catalog,
            table,
            primary,
        })
    }

    /// The column called `name`.
    pub fn column(&self, name: &str) -> Result<ColumnId> {
        self.table.require_column(name).map(|column| column.id)
    }

    /// All columns in order.
    pub fn columns(&self) -> Vec<ColumnId> {
        self.table.columns.iter().map(|column| column.id).collect()
    }

    /// The definition at the time the handle was made.
    pub fn definition(&self) -> &Arc<TableDef> {
        &self.table
    }
}

/// A transaction of point operations, made by
/// [`Connection::transaction`](crate::Connection::transaction). Dropping it without
/// [`Transaction::commit`] rolls it back.
pub struct Transaction<'c> {
    session: &'c mut Session,
    transaction: Arc<EngineTransaction>,
    catalog: Arc<Catalog>,
    /// The statement of all reads until the next write, under snapshot isolation.
    reader: Option<Arc<Statement>>,
    /// Whether it joined a transaction block that SQL began.
    joined: bool,
    failed: bool,
    ended: bool,
}

impl<'c> Transaction<'c> {
    pub(crate) fn begin(session: &'c mut Session) -> Result<Self> {
        session.refuse_if_failed()?;
        session.cancel.start();
        let (transaction, joined) = match &mut session.open {
            Some(open) => {
                open.used = true;
                (open.transaction.clone(), true)
            }
            None => (session.begin_engine(session.default_modes())?, false),
        };
        let catalog = transaction.catalog();
        Ok(Self {
            session,
            transaction,
            catalog,
            reader: None,
            joined,
            failed: false,
            ended: false,
        })
    }

    /// The values of `columns` in the row with primary key `key`; None if there is no such row.
    pub fn get(
        &mut self,
        table: &TableHandle,
        key: &[Value],
        columns: &[ColumnId],
    ) -> Result<Option<Vec<Value>>> {
        let mut values = Vec::with_capacity(columns.len());
        Ok(self
            .get_into(table, key, columns, &mut values)?
            .then_some(values))
    }

    /// [`Transaction::get`] that appends to `values`; false if there is no such row.
    pub fn get_into(
        &mut self,
        table: &TableHandle,
        key: &[Value],
        columns: &[ColumnId],
        values: &mut Vec<Value>,
    ) -> Result<bool> {
        self.refuse_if_failed()?;
        let def = self.resolve(table)?;
        let (index, point) = self.checked_key(table, def, key)?;
        let is_known = |id: &ColumnId| point.is_some_and(|point| point.has_column(*id));
        for id in columns.iter().filter(|id| !is_known(id)) {
            require(def, *id)?;
        }
        match point {
            Some(point) => self.transaction.point_get(point, key, columns, values),
            None => {
                let def = def.clone();
                self.reader()?.point_get(&def, index, key, columns, values)
            }
        }
    }

    /// Inserts one row: the values of all columns in order. A NULL in an identity column takes the
    /// next value; other defaults are not filled in.
    pub fn insert(&mut self, table: &TableHandle, row: &[Value]) -> Result<()> {
        self.refuse_if_failed()?;
        let result = self.insert_into(self.resolve(table)?, row);
        self.written(result)
    }

    fn insert_into(&self, def: &Arc<TableDef>, row: &[Value]) -> Result<()> {
        if row.len() != def.columns.len() {
            return Err(Error::invalid(
                SqlState::SYNTAX_ERROR,
                format!(
                    "table \"{}\" has {} columns, {} values were given",
                    def.name,
                    def.columns.len(),
                    row.len()
                ),
            ));
        }
        let mut filled = None;
        for (i, (column, value)) in def.columns.iter().zip(row).enumerate() {
            check_value(column, value)?;
            if value.is_null() && column.identity.is_some() {
                let next = self.transaction.db().next_identity(def, column.id)?;
                filled.get_or_insert_with(|| row.to_vec())[i] = identity(column, next)?;
            }
        }
        let row = filled.as_deref().unwrap_or(row);
        if !def.checks.is_empty() {
            self.checks(def)?.check_row(def, row)?;
        }
        self.transaction.begin_statement()?.point_insert(def, row)?;
        Ok(())
    }

    /// Sets columns of the row with primary key `key`; false if there is no such row. Under read
    /// committed it updates the newest committed version.
    pub fn update(
        &mut self,
        table: &TableHandle,
        key: &[Value],
        set: &[(ColumnId, Value)],
    ) -> Result<bool> {
        self.refuse_if_failed()?;
        let result = self.update_in(table, self.resolve(table)?, key, set);
        self.written(result)
    }

    fn update_in(
        &self,
        table: &TableHandle,
        def: &Arc<TableDef>,
        key: &[Value],
        set: &[(ColumnId, Value)],
    ) -> Result<bool> {
        let (index, point) = self.checked_key(table, def, key)?;
        for (id, value) in set {
            let column = require(def, *id)?;
            check_value(column, value)?;
            if value.is_null() && column.not_null {
                return Err(not_null(def, column));
            }
        }
        let updated = match point {
            Some(point) => self.transaction.point_update(point, key, set)?,
            None => {
                let statement = self.transaction.begin_statement()?;
                statement.point_update(def, index, key, set)?
            }
        };
        if updated && !def.checks.is_empty() {
            self.check_updated(def, index, key, set)?;
        }
        Ok(updated)
    }

    /// Evaluates CHECK constraints on the updated row, which includes other transactions' earlier
    /// commits. A violation fails the transaction and undoes its changes.
    fn check_updated(
        &self,
        def: &Arc<TableDef>,
        index: usize,
        key: &[Value],
        set: &[(ColumnId, Value)],
    ) -> Result<()> {
        let mut key = key.to_vec();
        for (part, id) in key.iter_mut().zip(&def.keys[index].columns) {
            if let Some((_, value)) = set.iter().rev().find(|(column, _)| column == id) {
                part.clone_from(value);
            }
        }
        let columns: Vec<ColumnId> = def.columns.iter().map(|c| c.id).collect();
        let mut row = Vec::with_capacity(columns.len());
        let statement = self.transaction.begin_statement()?;
        if statement.point_get(def, index, &key, &columns, &mut row)? {
            self.checks(def)?.check_row(def, &row)?;
        }
        Ok(())
    }

    /// Deletes the row with primary key `key`; false if there is no such row.
    pub fn delete(&mut self, table: &TableHandle, key: &[Value]) -> Result<bool> {
        self.refuse_if_failed()?;
        let result = self.delete_in(table, self.resolve(table)?, key);
        self.written(result)
    }

    fn delete_in(&self, table: &TableHandle, def: &Arc<TableDef>, key: &[Value]) -> Result<bool> {
        let (index, point) = self.checked_key(table, def, key)?;
        match point {
            Some(point) => self.transaction.point_delete(point, key),
            None => {
                let statement = self.transaction.begin_statement()?;
                statement.point_delete(def, index, key)
            }
        }
    }

    /// Commits. With `synchronous_commit` it returns when the transaction is durable. 25P02 if a
    /// write has failed; the transaction is then rolled back.
    pub fn commit(mut self) -> Result<()> {
        self.ended = true;
        self.reader = None;
        self.refuse_if_failed()?;
        if !self.joined {
            self.session.commit_engine(&self.transaction)?;
        }
        Ok(())
    }

    /// Rolls back. A joined block becomes failed and is undone to its last savepoint.
    pub fn rollback(mut self) {
        self.end_without_commit();
    }

    fn end_without_commit(&mut self) {
        self.ended = true;
        self.reader = None;
        if self.joined {
            self.session.mark_failed();
        } else {
            self.transaction.rollback();
        }
    }

    fn refuse_if_failed(&self) -> Result<()> {
        if self.failed { Err(aborted()) } else { Ok(()) }
    }

    /// After a write the next read needs a new statement. A failed write fails the transaction.
    fn written<T>(&mut self, result: Result<T>) -> Result<T> {
        self.reader = None;
        if result.is_err() {
            self.failed = true;
            if self.joined {
                self.session.mark_failed();
            } else {
                self.transaction.rollback();
            }
        }
        result
    }

    /// The definition of a table that this transaction sees.
    fn resolve<'a>(&'a self, handle: &'a TableHandle) -> Result<&'a Arc<TableDef>> {
        if Arc::ptr_eq(&handle.catalog, &self.catalog) {
            return Ok(&handle.table);
        }
        let found = self.catalog.tables.get(&handle.table.id);
        found.ok_or_else(|| names::undefined_table(&handle.table.schema, &handle.table.name))
    }

    /// The prepared access of `handle`, if it is valid in this transaction and each operation must
    /// see earlier commits.
    fn prepared<'a>(&self, handle: &'a TableHandle) -> Option<&'a PrimaryKey> {
        let is_same = Arc::ptr_eq(&handle.catalog, &self.catalog)
            && self.transaction.options().isolation == Isolation::ReadCommitted;
        handle.primary.as_ref().filter(|_| is_same)
    }

    /// The position of the primary key among the table's keys, and its prepared access. An error if
    /// `key` does not fit it.
    fn checked_key<'a>(
        &self,
        handle: &'a TableHandle,
        def: &TableDef,
        key: &[Value],
    ) -> Result<(usize, Option<&'a PointTable>)> {
        let Some(primary) = self.prepared(handle) else {
            return Ok((check_key(def, key)?, None));
        };
        check_key_values(def, &primary.columns, key)?;
        Ok((primary.index, Some(&primary.point)))
    }

    /// A statement that reads the newest state that the transaction may see. Under read committed
    /// it is a new statement, whose snapshot ends with it, so that an idle transaction holds no old
    /// versions.
    fn reader(&mut self) -> Result<Arc<Statement>> {
        if let Some(reader) = &self.reader {
            return Ok(reader.clone());
        }
        let reader = self.transaction.begin_statement()?;
        if self.transaction.options().isolation != Isolation::ReadCommitted {
            self.reader = Some(reader.clone());
        }
        Ok(reader)
    }

    fn checks(&self, def: &Arc<TableDef>) -> Result<Arc<CheckSet>> {
        self.session.checks_of(def)
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.end_without_commit();
        }
    }
}

fn require(def: &TableDef, id: ColumnId) -> Result<&ColumnDef> {
    def.column_by_id(id)
        .ok_or_else(|| undefined_column(def, id))
}

fn undefined_column(def: &TableDef, id: ColumnId) -> Error {
    Error::invalid(
        SqlState::UNDEFINED_COLUMN,
        format!("table \"{}\" has no column number {id} any more", def.name),
    )
}

/// The position of the primary key among the table's keys; an error if `key` does not fit it.
fn check_key(def: &TableDef, key: &[Value]) -> Result<usize> {
    let index = def.keys.iter().position(|k| k.primary).ok_or_else(|| {
        Error::invalid(
            SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
            format!("table \"{}\" has no primary key", def.name),
        )
    })?;
    if !is_row_key(&def.keys[index]) {
        return Err(Error::invalid(
            SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
            format!(
                "the primary key of table \"{}\" is deferrable: several rows may have it",
                def.name
            ),
        )
        .with_hint("Use SQL."));
    }
    check_key_values(def, &key_positions(def, index)?, key)?;
    Ok(index)
}

/// Whether a key is unique within the transaction too: a primary key that is not deferrable.
fn is_row_key(key: &KeyDef) -> bool {
    key.primary && !key.is_deferrable()
}

/// The positions in the table of the columns of a key.
fn key_positions(def: &TableDef, index: usize) -> Result<Vec<usize>> {
    let position = |id: &ColumnId| {
        let position = def.position(*id);
        position.ok_or_else(|| undefined_column(def, *id))
    };
    def.keys[index].columns.iter().map(position).collect()
}

/// Checks that `key` fits the columns at these positions.
fn check_key_values(def: &TableDef, columns: &[usize], key: &[Value]) -> Result<()> {
    if columns.len() != key.len() {
        return Err(Error::invalid(
            SqlState::SYNTAX_ERROR,
            format!(
                "the primary key of table \"{}\" has {} columns, {} values were given",
                def.name,
                columns.len(),
                key.len()
            ),
        ));
    }
    let mut parts = columns.iter().zip(key);
    parts.try_for_each(|(at, value)| check_value(&def.columns[*at], value))
}
