//! Building secondary indexes.
//!
//! Within a transaction that holds the table exclusively, CREATE INDEX fills the index in one step.
//! The definition is valid from its commit on.
//!
//! Outside a transaction block, writers wait only for the changes of the definition
//! ([`Db::create_index`]):
//! 1. A transaction adds the definition as [`IndexState::Building`]. It holds the table
//!    exclusively, so every writer after its commit knows the index and adds its entries.
//! 2. The index is filled from the ranges while writers continue.
//! 3. Uniqueness is checked over the whole index. Writers add their entry and then look, and every
//!    older row has its entry by now. So for two rows with one key, either this check or the later
//!    writer's own check sees both.
//! 4. A second transaction makes the definition valid: readers may use it.
//!
//! An error removes the definition: at once, or by a later turn of maintenance if another
//! transaction holds the table by then. A crash leaves a definition that is being built; opening
//! the database removes it.
//!
//! Invariants:
//! 1. An index with [`IndexState::Valid`] has an entry for every version that is visible at
//!    `IndexDef::complete_since` or later and whose key has one.
//! 2. `complete_since` is at or after the begin of the table's history at the start of the filling:
//!    versions that were superseded before may have been gone.

use super::Transaction;
use super::index_method::check_method;
use crate::catalog::index::{IndexDef, IndexId, IndexState, IndexValue};
use crate::catalog::{Catalog, TableDef, column_of};
use crate::db::Db;
use crate::db::index_builds::BuildPhase;
use crate::display::value_text;
use crate::settings::TxnOptions;
use crate::store::TableStore;
use crate::store::index_build::{fill, slots};
use crate::store::{Store, StoredIndex, newest, secondary_index};
use std::sync::Arc;
use std::time::Duration;
use strandline_base::{
    CommitTs, Error, ErrorKind, Result, RowId, SqlState, SqlType, TableId, Value,
};
use strandline_index::{Direction, KeyBytes, KeyRange};
use strandline_txn::{Isolation, Looks, StartWord};

/// How long the removal of an unfinished index waits for other transactions.
const REMOVAL_WAIT: Duration = Duration::from_millis(100);

/// An index that is filled, which readers may not use yet.
pub(crate) struct FilledIndex {
    pub place: (TableId, IndexId),
    /// the storage whose rows it has
    pub store: Arc<Store>,
    pub index: Arc<StoredIndex>,
    complete_since: CommitTs,
}

/// The options of the transactions of a build.
fn of_build(options: &TxnOptions) -> TxnOptions {
    TxnOptions {
        isolation: Isolation::ReadCommitted,
        ..options.clone()
    }
}

/// Whether another transaction prevents a definition change now.
pub(crate) fn is_in_the_way(error: &Error) -> bool {
    let state = error.sqlstate();
    state == SqlState::LOCK_NOT_AVAILABLE || state == SqlState::DEADLOCK_DETECTED
}

impl Db {
    /// Creates an index while writers continue. `define` adds its definition to the catalog; this
    /// function sets its state and `complete_since`. Returns once readers may use the index.
    ///
    /// # Errors
    /// The errors of `define`; 23505 if the index is unique and rows have one key; 57014 if
    /// `options.cancel` is set; 53200 if memory does not suffice. No part of the index is then
    /// left.
    pub fn create_index(
        self: &Arc<Self>,
        options: &TxnOptions,
        define: &mut dyn FnMut(&mut Catalog) -> Result<(TableId, IndexId)>,
    ) -> Result<()> {
        self.remove_left_indexes();
        let place = self.begin_index(options, define)?;
        let filled = self.fill_defined_index(options, place);
        let built = filled.and_then(|filled| self.finish_index(options, &filled, &mut |_| Ok(())));
        if built.is_err() {
            self.remove_unfinished(place);
        }
        built
    }

    /// Step 1 of a build. What fails from here on calls [`Db::remove_unfinished`].
    ///
    /// # Errors
    /// Those of `define` and of a change of definitions.
    pub(crate) fn begin_index(
        self: &Arc<Self>,
        options: &TxnOptions,
        define: &mut dyn FnMut(&mut Catalog) -> Result<(TableId, IndexId)>,
    ) -> Result<(TableId, IndexId)> {
        let mut place = None;
        let begun = self.begin(of_build(options))?;
        begun.change_catalog(&mut |catalog| {
            let (table, index) = define(catalog)?;
            edit_index(catalog, table, index, &mut |def| {
                def.state = IndexState::Building
            })?;
            place = Some((table, index));
            Ok(())
        })?;
        begun.commit()?;
        place.ok_or_else(|| Error::internal("no index was defined"))
    }

    /// Steps 2 and 3 of a build.
    ///
    /// # Errors
    /// Those of [`Db::create_index`].
    pub(crate) fn fill_defined_index(
        self: &Arc<Self>,
        options: &TxnOptions,
        place: (TableId, IndexId),
    ) -> Result<FilledIndex> {
        let ((table, id), txn) = (place, self.begin(of_build(options))?);
        let catalog = self.catalog();
        let table = catalog.tables.get(&table).ok_or_else(|| gone(id))?;
        let def = table.index(id).ok_or_else(|| gone(id))?;
        let store = self.store(table.storage)?;
        let index = secondary_index(&store, id)?;
        let complete_since = self.complete_since(table, &store);
        txn.fill_index(table, def, &store, &index, StartWord(0))?;
        index.end_filling();
        txn.commit()?;
        Ok(FilledIndex {
            place,
            store,
            index,
            complete_since,
        })
    }

    /// Step 4 of a build, together with `change`, which gets the catalog that has the index.
    ///
    /// # Errors
    /// Those of `change` and of a change of definitions; 42704 if the index has been dropped.
    pub(crate) fn finish_index(
        self: &Arc<Self>,
        options: &TxnOptions,
        filled: &FilledIndex,
        change: &mut dyn FnMut(&mut Catalog) -> Result<()>,
    ) -> Result<()> {
        let (table, id) = filled.place;
        let txn = self.begin(of_build(options))?;
        txn.change_catalog(&mut |catalog| {
            let now = catalog.tables.get(&table);
            // A TRUNCATE makes a new storage, whose index is complete.
            let is_same = now.is_some_and(|now| now.storage == filled.store.id());
            edit_index(catalog, table, id, &mut |def| {
                def.state = IndexState::Valid;
                def.complete_since = match is_same {
                    true => filled.complete_since,
                    false => self.stable(),
                };
            })?;
            change(catalog)
        })?;
        txn.commit().map(|_| ())
    }

    /// Removes the definition of an index that could not be built. If another transaction is in the
    /// way, later turns of maintenance try again: the statement that has failed ends now.
    pub(crate) fn remove_unfinished(self: &Arc<Self>, place: (TableId, IndexId)) {
        match self.try_remove_unfinished(place) {
            Ok(()) => {}
            Err(error) if is_in_the_way(&error) => self.index_builds.leave(place),
            Err(error) => {
                tracing::warn!(%error, "the definition of an index that was not built stays");
            }
        }
    }

    fn try_remove_unfinished(self: &Arc<Self>, (table, index): (TableId, IndexId)) -> Result<()> {
        // Cancellation of the build does not end this.
        let txn = self.begin(TxnOptions {
            lock_timeout: Some(REMOVAL_WAIT),
            ..TxnOptions::default()
        })?;
        txn.change_catalog(&mut |catalog| {
            remove_index(catalog, table, index);
            Ok(())
        })?;
        txn.commit()?;
        // No reader has ever used it.
        let catalog = self.catalog();
        if let Some(table) = catalog.tables.get(&table)
            && let Ok(store) = self.store(table.storage)
            && let Some(index) = store.secondary_index(index)
        {
            // A sweep of it ends first: a key may have its entries (`transaction::index_move`).
            let _no_sweep = index.sweep.done.lock();
            store.remove_index(&index);
        }
        Ok(())
    }

    /// Removes the definitions that unfinished builds have left.
    pub(crate) fn remove_left_indexes(self: &Arc<Self>) {
        for place in self.index_builds.take_left() {
            self.remove_unfinished(place);
        }
    }

    /// Removes the indexes whose build was under way when the database was closed or has crashed.
    pub(crate) fn remove_unfinished_indexes(self: &Arc<Self>) {
        let catalog = self.catalog();
        for table in catalog.tables.values() {
            let unfinished = |def: &&Arc<IndexDef>| def.state == IndexState::Building;
            for def in table.indexes.iter().filter(unfinished) {
                self.remove_unfinished((table.id, def.id));
            }
        }
    }

    /// The moment since which an index that is filled now has every version.
    pub(super) fn complete_since(&self, table: &TableDef, store: &Store) -> CommitTs {
        let stable = self.stable();
        let policy = self.history_begins()(table.history);
        policy.max(store.kept_from()).min(stable)
    }
}

impl Transaction {
    /// Builds the secondary indexes that `catalog` has and `before` has not. The transaction holds
    /// their tables exclusively. `built` lists the finished ones, also after an error.
    pub(super) fn build_indexes(
        &self,
        before: &Catalog,
        catalog: &mut Catalog,
        word: StartWord,
        built: &mut Vec<(Arc<Store>, Arc<StoredIndex>)>,
    ) -> Result<()> {
        let mut completed = Vec::new();
        for table in catalog.tables.values() {
            let old = before.tables.get(&table.id);
            if table.indexes.is_empty() || old.is_some_and(|old| Arc::ptr_eq(old, table)) {
                continue;
            }
            let old = old.filter(|old| old.storage == table.storage);
            for def in &table.indexes {
                if old.is_some_and(|old| old.index(def.id).is_some()) {
                    continue;
                }
                let store = self.db.store(table.storage)?;
                let parts = index_parts(table, def)?.into_iter();
                let types: Vec<SqlType> = parts.map(|(_, sql_type)| sql_type).collect();
                check_method(def, &types)?;
                let expressions = self.db.settings.expressions.as_deref();
                let index = StoredIndex::secondary(table, def, &store, expressions)?;
                if def.state == IndexState::Valid {
                    let since = self.db.complete_since(table, &store);
                    self.fill_index(table, def, &store, &index, word)?;
                    completed.push((table.id, def.id, since));
                } else if old.is_some() {
                    index.begin_filling();
                }
                store.put_index(index.clone());
                built.push((store.clone(), index));
            }
        }
        for (table, id, since) in completed {
            edit_index(catalog, table, id, &mut |def| def.complete_since = since)?;
        }
        Ok(())
    }

    /// Fills an index and checks its uniqueness, including uncommitted rows of `own`.
    fn fill_index(
        &self,
        table: &Arc<TableDef>,
        def: &IndexDef,
        store: &Arc<Store>,
        index: &StoredIndex,
        own: StartWord,
    ) -> Result<()> {
        let (place, cancel) = ((table.id, def.id), &self.options.cancel);
        let takes_memory = index.is_in_memory();
        let listed = self
            .db
            .list_build(place, (slots(store), takes_memory), cancel);
        let threads = self.db.settings.recovery_threads;
        fill(store, index, own, threads, &listed)?;
        if def.unique {
            listed.build.set_phase(BuildPhase::Checking);
            self.check_unique_index(table, def, store, index)?;
        }
        Ok(())
    }

    /// 23505 if two rows have one key of a unique index. Waits for unfinished writers of such rows.
    fn check_unique_index(
        &self,
        table: &TableDef,
        def: &IndexDef,
        store: &Store,
        index: &StoredIndex,
    ) -> Result<()> {
        let mut cursor = index
            .index
            .cursor(&KeyRange::default(), Direction::Forward)?;
        let mut rows: Vec<RowId> = Vec::new();
        let mut last: Option<KeyBytes> = None;
        loop {
            let entry = cursor.next()?;
            let key = entry.as_ref().map(|(key, _)| key);
            if key.is_none() || key != last.as_ref() {
                if rows.len() > 1 {
                    self.check_same_bytes(table, def, store, index, &rows)?;
                }
                rows.clear();
            }
            let Some((key, row)) = entry else {
                return Ok(());
            };
            last = Some(key);
            rows.push(row);
        }
    }

    /// The same check for rows whose keys have the same bytes.
    fn check_same_bytes(
        &self,
        table: &TableDef,
        def: &IndexDef,
        store: &Store,
        index: &StoredIndex,
        rows: &[RowId],
    ) -> Result<()> {
        self.check_cancelled()?;
        let own = self.word()?;
        let mut looks = Looks::default();
        let mut found: Vec<Vec<Value>> = Vec::new();
        for row in rows {
            while let Some(holder) = store.rows().unfinished_writer(*row, own, false)? {
                self.wait_for(holder, &mut looks)?;
            }
            let Some(key) = index.key_at(store.rows(), *row, &newest(own))? else {
                continue;
            };
            if !index.is_unique_key(&key) {
                continue;
            }
            let nulls_are_equal = def.nulls_not_distinct;
            let is_same =
                |known: &Vec<Value>| StoredIndex::are_duplicates(known, &key, nulls_are_equal);
            if found.iter().any(is_same) {
                return Err(duplicated(table, def, &key)?);
            }
            found.push(key);
        }
        Ok(())
    }
}

/// Changes an index's definition in `catalog`.
fn edit_index(
    catalog: &mut Catalog,
    table: TableId,
    index: IndexId,
    edit: &mut dyn FnMut(&mut IndexDef),
) -> Result<()> {
    let table = catalog.tables.get_mut(&table).ok_or_else(|| gone(index))?;
    let mut indexes = Arc::make_mut(table).indexes.iter_mut();
    let def = indexes
        .find(|def| def.id == index)
        .ok_or_else(|| gone(index))?;
    edit(Arc::make_mut(def));
    Ok(())
}

fn remove_index(catalog: &mut Catalog, table: TableId, index: IndexId) {
    if let Some(table) = catalog.tables.get_mut(&table)
        && table.index(index).is_some()
    {
        Arc::make_mut(table).indexes.retain(|def| def.id != index);
    }
}

#[cold]
fn gone(index: IndexId) -> Error {
    Error::new(
        ErrorKind::Conflict,
        SqlState::UNDEFINED_OBJECT,
        format!("index {} was dropped while it was being built", index.0),
    )
}

/// The names and types of an index's parts.
pub(crate) fn index_parts<'a>(
    table: &'a TableDef,
    def: &'a IndexDef,
) -> Result<Vec<(&'a str, SqlType)>> {
    let part = |value: &'a IndexValue| match value {
        IndexValue::Column(id) => {
            let column = column_of(table, *id)?;
            Ok((column.name.as_str(), column.sql_type))
        }
        IndexValue::Expression(expression) => Ok((expression.sql.as_str(), expression.sql_type)),
    };
    def.parts.iter().map(|p| part(&p.value)).collect()
}

/// A key in the form of error messages: `(a, b)=(1, x)`.
pub(crate) fn key_text(parts: &[(&str, SqlType)], key: &[Value]) -> String {
    let names: Vec<&str> = parts.iter().map(|(name, _)| *name).collect();
    let shown = parts
        .iter()
        .zip(key)
        .map(|((_, sql_type), v)| value_text(*sql_type, v));
    let shown: Vec<String> = shown.collect();
    format!("({})=({})", names.join(", "), shown.join(", "))
}

fn duplicated(table: &TableDef, def: &IndexDef, key: &[Value]) -> Result<Error> {
    let parts = index_parts(table, def)?;
    Ok(Error::new(
        ErrorKind::Constraint,
        SqlState::UNIQUE_VIOLATION,
        format!("could not create unique index \"{}\"", def.name),
    )
    .with_subject(table.constraint_subject(&def.name))
    .with_detail(format!("Key {} is duplicated.", key_text(&parts, key))))
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::super::tests::{begin, change, insert, table, with_table};
    use super::*;
    use crate::catalog::index::{IndexMethod, IndexPart, IndexStorage};
    use std::collections::BTreeMap;
    use strandline_base::ColumnId;
    use strandline_sim::SimDisk;

    /// An index over the column of table `t`.
    fn definition(id: IndexId) -> IndexDef {
        IndexDef {
            id,
            name: "t_a".into(),
            method: IndexMethod::Ordered,
            parts: vec![IndexPart {
                value: IndexValue::Column(ColumnId(0)),
                descending: false,
                nulls_first: false,
                operator_class: None,
            }],
            include: Vec::new(),
            unique: false,
            nulls_not_distinct: false,
            predicate: None,
            state: IndexState::Building,
            complete_since: CommitTs::ZERO,
            options: BTreeMap::new(),
            comment: None,
            storage: IndexStorage::Memory,
            stays_in_memory: false,
            was_moved: false,
            file_number: None,
        }
    }

    /// While an index is filled, a transaction leaves a key and takes it again, so that it adds the
    /// entry that the filling then finds there. Its rollback leaves the entry.
    #[test]
    fn a_rollback_beside_a_build_leaves_the_entries_of_committed_versions() {
        let db = with_table(&SimDisk::new(1));
        let rows = begin(&db);
        insert(&rows, 1..3);
        rows.commit().expect("commit");
        let ddl = begin(&db);
        let mut id = None;
        let defined = ddl.change_catalog(&mut |catalog| {
            let mut table = TableDef::clone(catalog.table("public", "t").expect("table t"));
            let def = definition(IndexId(table.next_index));
            id = Some(def.id);
            table.next_index += 1;
            table.indexes.push(Arc::new(def));
            catalog.put_table(table);
            Ok(())
        });
        defined.expect("defined");
        ddl.commit().expect("commit");
        let (table, id) = (table(&db), id.expect("a number"));
        let store = db.store(table.storage).expect("its rows");
        let index = secondary_index(&store, id).expect("there");
        let undone = begin(&db);
        assert!(change(&undone, 1, 7).expect("updated"));
        assert!(change(&undone, 7, 1).expect("updated"));
        let build = begin(&db);
        let def = table.index(id).expect("defined");
        let filled = build.fill_index(&table, def, &store, &index, StartWord(0));
        filled.expect("filled");
        undone.rollback();
        let rows_of = |key: i64| {
            let bytes = index.key_bytes(&[Value::BigInt(key)]).expect("a key");
            let mut rows = Vec::new();
            index.index.lookup(&bytes, &mut rows).expect("in memory");
            rows.len()
        };
        assert_eq!((rows_of(1), rows_of(2)), (1, 1));
        // The sweep takes out what no version has.
        build.rollback();
        db.checkpoint(true).expect("sweep");
        assert_eq!((rows_of(1), rows_of(2), rows_of(7)), (1, 1, 0));
    }
}
