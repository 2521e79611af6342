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
//! row to which a hint leads ([`KeyHints`](crate::store::key_hints)) has it if its newest version
//! says so. While no row has ever changed its key ([`StoredIndex::rows_may_have_moved`]) it has it
//! still. The flag is loaded after the stable timestamp and after the entry: a change of a key sets
//! it before it enters the new key and commits, so a reader that could see the new key or the
//! commit sees the flag. An index that another one replaces is flagged, because later changes are
//! not entered into it.

use crate::catalog::{Catalog, KeyDef, TableDef};
use crate::db::Db;
use crate::redo;
use crate::settings::ConflictPolicy;
use crate::store::{KeyHints, NewestRow, Store, StoredIndex, TableStore, key_index};
use crate::transaction::Transaction;
use std::ops::ControlFlow::{self, Break, Continue};
use std::sync::Arc;
use strandline_base::{ColumnId, CommitTs, Result, RowId, SqlType, Value};
use strandline_index::{KeySequence, Lookup, integer_key, is_same_key};
use strandline_tail::change::{Change, WriteOutcome, Writer};
use strandline_txn::{Isolation, Looks, StartWord, Visibility};

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
        let number = integer_key(key).filter(|_| self.is_exact);
        let in_sequence = self
            .sequence
            .zip(number)
            .and_then(|(sequence, number)| sequence.row(number));
        let found = match (in_sequence, self.index.hints(self.def())) {
            (Some(row), _) => Some(row),
            (None, Some(hints)) => match self.hinted_row(hints, key, visibility)? {
                Some(row) => Some(row),
                None => {
                    let found = self.exact_row(number, key)?;
                    if let Some(row) = found {
                        hints.put(key, row, db.settings().hint_bytes());
                    }
                    found
                }
            },
            (None, None) => self.exact_row(number, key)?,
        };
        // Asked last: an entry that a change of a key has made comes after the flag.
        Ok(found.filter(|_| !self.index.rows_may_have_moved()))
    }

    fn def(&self) -> &KeyDef {
        &self.table.keys[self.key]
    }

    /// The only row that has or had this key, if the key is an exact number.
    fn exact_row(&self, number: Option<i64>, key: &[Value]) -> Result<Option<RowId>> {
        if number.is_none() {
            return Ok(None);
        }
        Ok(match self.index.index.find(key)? {
            Lookup::One(row) => Some(row),
            Lookup::None | Lookup::Several => None,
        })
    }

    /// The row to which a hint leads, if its newest version has the key.
    fn hinted_row(
        &self,
        hints: &KeyHints,
        key: &[Value],
        visibility: &Visibility,
    ) -> Result<Option<RowId>> {
        let Some(row) = hints.get(key) else {
            return Ok(None);
        };
        let columns = &self.def().columns;
        let (mut one, mut several) = ([Value::Null], Vec::new());
        let values = match columns.len() {
            1 => one.as_mut_slice(),
            count => {
                several.resize(count, Value::Null);
                several.as_mut_slice()
            }
        };
        let stored = self.store.rows();
        let found = stored.read_newest(row, visibility, columns, values)?;
        let is_found = matches!(found, NewestRow::Found) && is_same_key(values, key);
        Ok(is_found.then_some(row))
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
        if self.sees_newest()
            && let Some(visibility) = self.newest_for(point)
            && let Some(row) = point.certain_row(self.db(), key, &visibility)?
        {
            let from = out.len();
            out.resize_with(from + columns.len(), || Value::Null);
            let stored = point.store.rows();
            match stored.read_newest(row, &visibility, columns, &mut out[from..])? {
                NewestRow::Found => return Ok(true),
                NewestRow::Unknown => out.truncate(from),
            }
        }
        Ok(false)
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
        let (mut row_values, mut set) = (vec![Value::Null; columns.len()], Vec::new());
        let mut looks = Looks::default();
        let mut busy_since = None;
        loop {
            let snapshot = self.db().stable();
            let visibility = newest_at(snapshot, word);
            let Some(row) = point.certain_row(self.db(), key, &visibility)? else {
                return Ok(None);
            };
            if !columns.is_empty() {
                let stored = point.store.rows();
                match stored.read_newest(row, &visibility, columns, &mut row_values)? {
                    NewestRow::Found => {}
                    NewestRow::Unknown => return Ok(None),
                }
            }
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
