//! Point operations without a statement: the shortest path to a row of a table by its key.
//!
//! Under read committed every operation sees the newest committed version, so it needs no
//! registered snapshot and no catalog of its own, only the stable timestamp: one load. The cases
//! below fall back to [`Statement`](crate::Statement), which gives the same answer:
//! * a key that several rows have or had, or that rows may have changed;
//! * a row that is not visible at that moment, or whose version has to come from history;
//! * a definition that has changed since the table was prepared.
//!
//! # Why no registration
//!
//! Registering a snapshot keeps versions from being dropped. Of a row that is found, the version
//! visible at stable is in the range version that the read holds: base and tails are complete from
//! base's `merged_through` on, and if base is newer than the moment (a merge came between) the read
//! reports it and is repeated by a statement.
//!
//! # Which row has a key
//!
//! The hash of an integer is a bijection, so a row under the hash has or had exactly this key. A
//! row that is found by the hash has it still while no row has ever changed its key
//! ([`StoredIndex::rows_may_have_moved`]). The flag is loaded after the stable timestamp and after
//! the entry: a change of a key sets it before it enters the new key and commits, so a reader that
//! could see the new key or the commit sees the flag. An index that another one replaces is
//! flagged, because later changes are not entered into it.
//!
//! A row to which a hint leads ([`KeyHints`](crate::store::key_hints)), or a sequence when rows may
//! have moved, has the key if the version that the operation sees says so. That needs no flag,
//! since a hint proves nothing.

use crate::catalog::{Catalog, KeyDef, TableDef};
use crate::db::Db;
use crate::redo;
use crate::settings::ConflictPolicy;
use crate::store::{NewestRow, Store, StoredIndex, TableStore, key_index};
use crate::transaction::Transaction;
use smallvec::SmallVec;
use std::ops::ControlFlow::{self, Break, Continue};
use std::sync::Arc;
use strandline_base::{ColumnId, CommitTs, Result, RowId, SqlType, Value};
use strandline_index::{KeySequence, Lookup, integer_key, is_same_key};
use strandline_tail::change::{Change, WriteOutcome, Writer};
use strandline_txn::{Isolation, Looks, StartWord, Visibility};

/// Columns of a row; more of them take an allocation.
type Columns = SmallVec<[ColumnId; 16]>;
/// A key's values.
type KeyValues = SmallVec<[Value; 4]>;

/// A table and one of its keys, prepared for point operations in one version of the catalog.
pub struct PointTable {
    catalog: Arc<Catalog>,
    table: Arc<TableDef>,
    key: usize,
    store: Arc<Store>,
    index: Arc<StoredIndex>,
    /// the longest of the index's sequences, at hand
    sequence: Option<KeySequence>,
    /// equal hashes are equal keys
    is_exact: bool,
    /// by column id: whether the table has it
    has_column: Vec<bool>,
    /// by column id: whether some index or foreign key reads it
    in_key: Vec<bool>,
}

/// Decision about a row that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// it gets the new values
    Update,
    /// it goes
    Delete,
    /// nothing
    Leave,
}

/// Decides about a row from its values, and supplies the new ones.
pub type Modify<'a> = &'a mut dyn FnMut(&[Value], &mut Vec<(ColumnId, Value)>) -> Result<Effect>;

impl std::fmt::Debug for PointTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PointTable({})", self.table.name)
    }
}

impl PointTable {
    /// Prepares `table`, which is in `catalog`; `key` indexes `TableDef::keys`.
    pub fn new(db: &Db, catalog: &Arc<Catalog>, table: &Arc<TableDef>, key: usize) -> Result<Self> {
        let store = db.store(table.storage)?;
        let columns = &table.keys[key].columns;
        let index = key_index(&store, columns)?;
        let is_integer = |id: &ColumnId| {
            let column = table.column_by_id(*id);
            column.is_some_and(|c| {
                matches!(
                    c.sql_type,
                    SqlType::SmallInt | SqlType::Integer | SqlType::BigInt
                )
            })
        };
        let mut has_column = vec![false; table.next_column as usize];
        for column in &table.columns {
            has_column[column.id.0 as usize] = true;
        }
        let mut in_key = vec![false; has_column.len()];
        let keys = table.keys.iter().flat_map(|key| &key.columns);
        let references = table.foreign_keys.iter().flat_map(|key| &key.columns);
        for column in keys.chain(references) {
            in_key[column.0 as usize] = true;
        }
        for column in table.indexes.iter().flat_map(|index| index.key_columns()) {
            in_key[column.0 as usize] = true;
        }
        let is_exact = columns.len() == 1 && columns.iter().all(is_integer);
        Ok(Self {
            catalog: catalog.clone(),
            table: table.clone(),
            key,
            store,
            sequence: index.index.sequence(),
            index,
            is_exact,
            has_column,
            in_key,
        })
    }

    /// The table.
    pub fn table(&self) -> &Arc<TableDef> {
        &self.table
    }

    /// Whether a change sets a column that any index or foreign key reads.
    fn sets_key(&self, set: &[(ColumnId, Value)]) -> bool {
        set.iter()
            .any(|(id, _)| self.in_key.get(id.0 as usize) == Some(&true))
    }

    /// Whether other rows may reference the table's.
    fn is_referenced(&self) -> bool {
        !self.table.referenced_by.is_empty()
    }

    /// Whether the table has a column with this id.
    pub fn has_column(&self, id: ColumnId) -> bool {
        self.has_column.get(id.0 as usize) == Some(&true)
    }

    /// A row that has this key unless it is gone, if that is certain: see the module documentation.
    /// Others may have it when it is gone.
    fn certain_row(
        &self,
        db: &Db,
        key: &[Value],
        visibility: &Visibility,
    ) -> Result<Option<RowId>> {
        if let Some(row) = self.hinted(key)
            && self.has_key(row, key, visibility)?
        {
            return Ok(Some(row));
        }
        self.exact_row(db, key)
    }

    /// Puts the values of `columns` of the row with this key into `out`, if its newest version is
    /// certain; see the module documentation. Returns the row.
    fn read_certain(
        &self,
        db: &Db,
        key: &[Value],
        visibility: &Visibility,
        columns: &[ColumnId],
        out: &mut Vec<Value>,
    ) -> Result<Option<RowId>> {
        let (from, stored) = (out.len(), self.store.rows());
        if let Some(row) = self.hinted(key) {
            // One walk reads what was asked for, and the key, to compare.
            let mut wanted = Columns::from_slice(columns);
            wanted.extend_from_slice(&self.def().columns);
            let own = from + columns.len();
            out.resize_with(from + wanted.len(), || Value::Null);
            let found = stored.read_newest(row, visibility, &wanted, &mut out[from..])?;
            let is_found = matches!(found, NewestRow::Found) && is_same_key(&out[own..], key);
            out.truncate(if is_found { own } else { from });
            if is_found {
                return Ok(Some(row));
            }
        }
        let Some(row) = self.exact_row(db, key)? else {
            return Ok(None);
        };
        out.resize_with(from + columns.len(), || Value::Null);
        match stored.read_newest(row, visibility, columns, &mut out[from..])? {
            NewestRow::Found => Ok(Some(row)),
            NewestRow::Unknown => {
                out.truncate(from);
                Ok(None)
            }
        }
    }

    /// The number of a key that is exact.
    fn exact_number(&self, key: &[Value]) -> Option<i64> {
        integer_key(key).filter(|_| self.is_exact)
    }

    fn in_sequence(&self, key: &[Value]) -> Option<RowId> {
        self.sequence?.row(self.exact_number(key)?)
    }

    /// The row to which a hint leads, unless the sequence tells the row for certain. When rows may
    /// have moved the sequence is a hint, too.
    fn hinted(&self, key: &[Value]) -> Option<RowId> {
        let hints = self.index.hints(self.def())?;
        let by_sequence = self.in_sequence(key);
        if by_sequence.is_some() && !self.index.rows_may_have_moved() {
            return None;
        }
        hints.get(key).or(by_sequence)
    }

    fn def(&self) -> &KeyDef {
        &self.table.keys[self.key]
    }

    /// The only row that has or had this key, if the key is an exact number and no row has changed
    /// its key. It gets a hint.
    fn exact_row(&self, db: &Db, key: &[Value]) -> Result<Option<RowId>> {
        if self.exact_number(key).is_none() || self.index.rows_may_have_moved() {
            return Ok(None);
        }
        let found = match self.in_sequence(key) {
            Some(row) => row,
            None => {
                let Lookup::One(row) = self.index.index.find(key)? else {
                    return Ok(None);
                };
                if let Some(hints) = self.index.hints(self.def()) {
                    hints.put(key, row, db.settings().hint_bytes());
                }
                row
            }
        };
        // Asked again: an entry that a change of a key has made comes after the flag.
        Ok((!self.index.rows_may_have_moved()).then_some(found))
    }

    /// Whether the row's newest version has the key.
    fn has_key(&self, row: RowId, key: &[Value], visibility: &Visibility) -> Result<bool> {
        let columns = &self.def().columns;
        let mut values = KeyValues::from_elem(Value::Null, columns.len());
        let stored = self.store.rows();
        let found = stored.read_newest(row, visibility, columns, &mut values)?;
        Ok(matches!(found, NewestRow::Found) && is_same_key(&values, key))
    }
}

impl Transaction {
    /// Appends the values of `columns` of the row with this key to `out`: the newest committed
    /// version, or the transaction's own. False if there is no such row. As `Statement::point_get`
    /// of a new statement.
    pub fn point_get(
        self: &Arc<Self>,
        point: &PointTable,
        key: &[Value],
        columns: &[ColumnId],
        out: &mut Vec<Value>,
    ) -> Result<bool> {
        if self.try_point_get(point, key, columns, out)? {
            return Ok(true);
        }
        let statement = self.begin_statement()?;
        statement.point_get(&point.table, point.key, key, columns, out)
    }

    /// As [`Transaction::point_get`]; false if only a statement can tell.
    pub fn try_point_get(
        self: &Arc<Self>,
        point: &PointTable,
        key: &[Value],
        columns: &[ColumnId],
        out: &mut Vec<Value>,
    ) -> Result<bool> {
        match self.newest_for(point).filter(|_| self.sees_newest()) {
            Some(visibility) => {
                let found = point.read_certain(self.db(), key, &visibility, columns, out)?;
                Ok(found.is_some())
            }
            None => Ok(false),
        }
    }

    /// Sets columns of the row with this key; false if there is no such row. As
    /// `Statement::point_update` of a new statement.
    pub fn point_update(
        self: &Arc<Self>,
        point: &PointTable,
        key: &[Value],
        set: &[(ColumnId, Value)],
    ) -> Result<bool> {
        let change = Change::Update(set);
        if !point.sets_key(set) && self.try_point_change(point, key, change)? == Some(true) {
            return Ok(true);
        }
        let statement = self.begin_statement()?;
        statement.point_update(&point.table, point.key, key, set)
    }

    /// Deletes the row with this key; false if there is no such row. As
    /// `Statement::point_delete` of a new statement.
    pub fn point_delete(self: &Arc<Self>, point: &PointTable, key: &[Value]) -> Result<bool> {
        if !point.is_referenced()
            && self.try_point_change(point, key, Change::Delete)? == Some(true)
        {
            return Ok(true);
        }
        let statement = self.begin_statement()?;
        statement.point_delete(&point.table, point.key, key)
    }

    /// Whether each operation sees the newest committed versions.
    fn sees_newest(&self) -> bool {
        let options = self.options();
        options.isolation == Isolation::ReadCommitted && !options.speculative
    }

    /// The visibility of an operation that begins now; None if it cannot use `point`.
    #[inline]
    fn newest_for(&self, point: &PointTable) -> Option<Visibility> {
        // Before the catalog is looked at: what is the last one then is the one at this moment.
        let ts = self.db().stable();
        self.is_current(point)
            .then(|| newest_at(ts, self.hints.own()))
    }

    /// Whether `point` was prepared for the definition that operations use now. No writer flags
    /// changes of a key that the newest catalog does not have.
    #[inline]
    fn is_current(&self, point: &PointTable) -> bool {
        self.hints.is_plain() && self.db().catalogs.is_last(&point.catalog)
    }

    /// Changes the row with this key; whether there is one. None as in
    /// [`Transaction::try_point_modify`].
    fn try_point_change(
        &self,
        point: &PointTable,
        key: &[Value],
        change: Change<'_>,
    ) -> Result<Option<bool>> {
        let Some(word) = self.begin_point_write(point)? else {
            return Ok(None);
        };
        let mut looks = Looks::default();
        let mut busy_since = None;
        loop {
            let snapshot = self.db().stable();
            let visibility = newest_at(snapshot, word);
            let Some(row) = point.certain_row(self.db(), key, &visibility)? else {
                return Ok(None);
            };
            let outcome = self.write_certain(point, row, change, (word, snapshot))?;
            let waits = (&mut looks, &mut busy_since);
            if let Break(written) = self.after_point_write(outcome, waits)? {
                return Ok(written);
            }
        }
    }

    /// Changes the row with this key as `modify` decides. `modify` gets the newest version's
    /// `columns`, and is called again if a newer one has committed. Returns whether the row was
    /// changed; None if a statement has to decide, and then nothing has been written. As
    /// `Statement::point_modify` of a new statement.
    pub fn try_point_modify(
        self: &Arc<Self>,
        point: &PointTable,
        key: &[Value],
        columns: &[ColumnId],
        modify: Modify<'_>,
    ) -> Result<Option<bool>> {
        let Some(word) = self.begin_point_write(point)? else {
            return Ok(None);
        };
        let (mut row_values, mut set) = (Vec::with_capacity(columns.len()), Vec::new());
        let mut looks = Looks::default();
        let mut busy_since = None;
        loop {
            let snapshot = self.db().stable();
            let visibility = newest_at(snapshot, word);
            row_values.clear();
            let found = match columns.is_empty() {
                true => point.certain_row(self.db(), key, &visibility)?,
                false => {
                    point.read_certain(self.db(), key, &visibility, columns, &mut row_values)?
                }
            };
            let Some(row) = found else {
                return Ok(None);
            };
            set.clear();
            let change = match modify(&row_values, &mut set)? {
                Effect::Leave => return Ok(Some(false)),
                Effect::Update if point.sets_key(&set) => return Ok(None),
                Effect::Delete if point.is_referenced() => return Ok(None),
                Effect::Update => Change::Update(&set),
                Effect::Delete => Change::Delete,
            };
            let outcome = self.write_certain(point, row, change, (word, snapshot))?;
            let waits = (&mut looks, &mut busy_since);
            if let Break(written) = self.after_point_write(outcome, waits)? {
                return Ok(written);
            }
        }
    }

    /// The transaction's word, registered with the table; None if only a statement can write.
    fn begin_point_write(&self, point: &PointTable) -> Result<Option<StartWord>> {
        if !self.sees_newest() {
            return Ok(None);
        }
        let word = self.lock_store(&point.store)?;
        if !self.is_current(point) {
            return Ok(None);
        }
        self.db().check_mergeable(&point.store)?;
        self.admit_write()?;
        Ok(Some(word))
    }

    /// The result of an operation after this outcome, or the decision to look again.
    #[inline]
    fn after_point_write(
        &self,
        outcome: Option<WriteOutcome>,
        waits: (&mut Looks, &mut Option<u64>),
    ) -> Result<ControlFlow<Option<bool>>> {
        match outcome {
            Some(WriteOutcome::Done(_)) => Ok(Break(Some(true))),
            outcome => self.after_refused_write(outcome, waits),
        }
    }

    #[cold]
    fn after_refused_write(
        &self,
        outcome: Option<WriteOutcome>,
        (looks, busy_since): (&mut Looks, &mut Option<u64>),
    ) -> Result<ControlFlow<Option<bool>>> {
        match outcome {
            Some(WriteOutcome::Done(_)) => return Ok(Break(Some(true))),
            Some(WriteOutcome::Conflict(_)) if self.conflicts() == ConflictPolicy::Wait => {
                self.check_cancelled()?;
            }
            // The statement says what is wrong, or finds another row.
            Some(WriteOutcome::Conflict(_) | WriteOutcome::Gone) | None => return Ok(Break(None)),
            Some(WriteOutcome::Wait(holder)) => self.wait_for(holder, looks)?,
            Some(WriteOutcome::Busy) => self.wait_for_latch(busy_since)?,
        }
        Ok(Continue(()))
    }

    /// Writes one change to `row`; None if the transaction has a catalog of its own.
    fn write_certain(
        &self,
        point: &PointTable,
        row: RowId,
        change: Change<'_>,
        (word, snapshot): (StartWord, CommitTs),
    ) -> Result<Option<WriteOutcome>> {
        let mut state = self.state.lock();
        state.check_open()?;
        if state.has_changed_catalog() {
            return Ok(None);
        }
        state.count_statement()?;
        let writer = Writer {
            word,
            statement: state.statement,
            snapshot,
            speculative: false,
        };
        let state = &mut *state;
        let stored = point.store.rows();
        stored.check_change_bytes(change)?;
        let outcome = stored.write(row, change, &writer, &mut state.written)?;
        if let WriteOutcome::Done(bytes) = outcome {
            self.note_write(state, (point.table.storage, row), bytes);
            redo::put_change(&mut state.redo, point.table.storage, row, change);
        }
        Ok(Some(outcome))
    }
}

/// What an operation sees that begins at this moment: all that has committed, and all of its own
/// transaction.
fn newest_at(ts: CommitTs, own: StartWord) -> Visibility {
    Visibility {
        ts,
        own,
        statement: u32::MAX,
    }
}
