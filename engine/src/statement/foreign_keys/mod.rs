//! Foreign keys: the checks and referential actions that follow from a statement's changes.
//!
//! While a statement writes, it notes the changes that foreign keys look at ([`RowEvent`]). At its
//! end they are taken from a queue, oldest first; per row the constraints come in the order in
//! which they were made, as PostgreSQL's triggers do. A referential action is a statement of its
//! own whose changes go to the end of the queue, so a chain of any length needs no stack.
//!
//! Protocol, without locks on rows:
//! 1. The child's row is written and entered into its indexes first; then the child looks for the
//!    parent's newest version (`look`).
//! 2. The parent is deleted, or gets another key, first; then it looks for referencing rows.
//! 3. A row whose unfinished writer decides the answer is waited for, and looked at again. A change
//!    of other columns decides nothing: children of one parent never wait for it, nor for each
//!    other.
//!
//! Of two concurrent transactions at least one therefore looks after the other has written, and
//! sees it: no orphan can arise. A sequentially consistent fence stands between the writes and the
//! looks.

mod action;
mod check;
mod events;
mod look;
mod violation;

pub(crate) use action::NoRules;
pub use action::RowRules;
use check::ParentGone;
pub(crate) use events::{RowEvent, RowEvents};

use crate::catalog::TableDef;
use crate::catalog::index::ForeignKeyDef;
use crate::statement::Statement;
use crate::store::{Store, TableStore, newest};
use std::collections::HashMap;
use std::sync::Arc;
use strandline_base::sync::{Ordering, fence};
use strandline_base::{ColumnId, RangeNo, Result, RowId, Value};
use strandline_txn::StartWord;

/// Values of some columns of a row.
pub(crate) type ColumnValues = Vec<(ColumnId, Value)>;

/// A row of a referenced table that went or has another key.
pub(crate) struct ParentChange {
    table: Arc<TableDef>,
    /// the columns of its keys before
    old: ColumnValues,
    /// the same after; None: it was deleted
    new: Option<ColumnValues>,
}

impl ParentChange {
    /// The old key that `key` references and the new one; None if the change does not concern it.
    fn keys(&self, key: &ForeignKeyDef) -> Option<(Vec<Value>, Option<Vec<Value>>)> {
        let old = part(&self.old, &key.parent_columns)?;
        if old.iter().any(Value::is_null) {
            return None; // nobody references it
        }
        match &self.new {
            None => Some((old, None)),
            Some(new) => {
                let new = part(new, &key.parent_columns)?;
                (new != old).then_some((old, Some(new)))
            }
        }
    }
}

fn part(values: &ColumnValues, columns: &[ColumnId]) -> Option<Vec<Value>> {
    let value = |id: &ColumnId| {
        let found = values.iter().find(|(column, _)| column == id);
        found.map(|(_, value)| value.clone())
    };
    columns.iter().map(value).collect()
}

/// The values before a change, of a row in a table that has foreign keys or is referenced.
pub(crate) struct Before(ColumnValues);

impl Statement {
    /// Reads the values that the checks need of a row before it is deleted (`set`: None) or
    /// updated; None: no check needs any.
    #[inline]
    pub(crate) fn before_change(
        &self,
        table: &TableDef,
        (store, own): (&Store, StartWord),
        row: RowId,
        set: Option<&[(ColumnId, Value)]>,
    ) -> Result<Option<Before>> {
        if !table.has_references() {
            return Ok(None);
        }
        read_before(table, (store, own), row, set)
    }

    /// Rows were inserted.
    #[inline]
    pub(crate) fn note_inserted(
        &self,
        table: &Arc<TableDef>,
        store: &Arc<Store>,
        row: RowId,
    ) -> Result<()> {
        match table.foreign_keys.is_empty() {
            true => Ok(()),
            false => self.note_child(table, store, row),
        }
    }

    /// A range was bulk-loaded.
    pub(crate) fn note_loaded(
        &self,
        table: &Arc<TableDef>,
        store: &Arc<Store>,
        range: RangeNo,
    ) -> Result<()> {
        if table.foreign_keys.is_empty() {
            return Ok(());
        }
        let (table, store) = (table.clone(), store.clone());
        let event = RowEvent::ChildRange {
            table,
            store,
            range,
        };
        self.row_events.lock().push(event, &self.txn)
    }

    /// The row was deleted.
    pub(crate) fn note_deleted(&self, table: &Arc<TableDef>, before: Before) -> Result<()> {
        let event = RowEvent::Parent(ParentChange {
            table: table.clone(),
            old: before.0,
            new: None,
        });
        self.row_events.lock().push(event, &self.txn)
    }

    /// The row was updated.
    pub(crate) fn note_updated(
        &self,
        table: &Arc<TableDef>,
        (store, own): (&Arc<Store>, StartWord),
        row: RowId,
        before: Before,
    ) -> Result<()> {
        let Some(after) = values_of(store, own, row, before.0.iter().map(|(id, _)| *id))? else {
            return Ok(());
        };
        let changed: Vec<ColumnId> = after
            .iter()
            .zip(&before.0)
            .filter(|(new, old)| new != old)
            .map(|((id, _), _)| *id)
            .collect();
        let is_changed = |columns: &[ColumnId]| columns.iter().any(|id| changed.contains(id));
        if is_changed(&table.referenced_columns()) {
            let event = RowEvent::Parent(ParentChange {
                table: table.clone(),
                old: before.0,
                new: Some(after),
            });
            self.row_events.lock().push(event, &self.txn)?;
        }
        if table
            .foreign_keys
            .iter()
            .any(|key| is_changed(&key.columns))
        {
            self.note_child(table, store, row)?;
        }
        Ok(())
    }

    fn note_child(&self, table: &Arc<TableDef>, store: &Arc<Store>, row: RowId) -> Result<()> {
        let mut events = self.row_events.lock();
        events.push_child((table, store), row, &self.txn)
    }

    /// Whether something was written that foreign keys have to look at.
    pub fn has_row_events(&self) -> bool {
        !self.row_events.lock().is_empty()
    }

    /// Drops the noted changes: they are known to violate no constraint, or violations are
    /// permitted.
    pub(crate) fn forget_row_events(&self) {
        *self.row_events.lock() = RowEvents::default();
    }

    /// Checks the statement's changes and runs the referential actions that follow from them.
    pub(super) fn settle_references(&self, rules: &dyn RowRules) -> Result<()> {
        let mut queue = std::mem::take(&mut *self.row_events.lock());
        if queue.is_empty() {
            return Ok(());
        }
        fence(Ordering::SeqCst);
        let mut referencing = HashMap::new();
        while let Some(event) = queue.pop() {
            self.txn.check_cancelled()?;
            match event {
                RowEvent::Child { table, store, rows } => {
                    self.check_children(&table, &store, &rows)?;
                }
                RowEvent::ChildRange {
                    table,
                    store,
                    range,
                } => self.check_range(&table, &store, range)?,
                RowEvent::Parent(change) => {
                    let known = referencing.entry(change.table.id).or_insert_with(|| {
                        let catalog = self.txn.catalog();
                        let table = catalog.tables.get(&change.table.id);
                        Arc::new(table.map_or_else(Vec::new, |table| catalog.referencing(table)))
                    });
                    self.follow_parent(&change, &known.clone(), rules, &mut queue)?;
                }
            }
        }
        Ok(())
    }

    fn follow_parent(
        &self,
        change: &ParentChange,
        referencing: &[(Arc<TableDef>, Arc<ForeignKeyDef>)],
        rules: &dyn RowRules,
        queue: &mut RowEvents,
    ) -> Result<()> {
        for (child, key) in referencing {
            if let Some((old, new)) = change.keys(key) {
                let gone = ParentGone {
                    parent: change.table.id,
                    child: child.id,
                    name: key.name.clone(),
                    old,
                };
                queue.append(self.act(child, key, gone, new, rules)?, &self.txn)?;
                fence(Ordering::SeqCst);
            }
        }
        Ok(())
    }
}

fn read_before(
    table: &TableDef,
    (store, own): (&Store, StartWord),
    row: RowId,
    set: Option<&[(ColumnId, Value)]>,
) -> Result<Option<Before>> {
    let mut columns = table.referenced_columns();
    if let Some(set) = set {
        let sets = |columns: &[ColumnId]| columns.iter().any(|c| set.iter().any(|(id, _)| id == c));
        if !sets(&columns) {
            columns.clear();
        }
        for key in table.foreign_keys.iter().filter(|key| sets(&key.columns)) {
            columns.extend(&key.columns);
        }
        columns.sort_unstable();
        columns.dedup();
    }
    if columns.is_empty() {
        return Ok(None);
    }
    Ok(values_of(store, own, row, columns.into_iter())?.map(Before))
}

/// The newest values of a row's columns; None if there is no such row.
fn values_of(
    store: &Store,
    own: StartWord,
    row: RowId,
    columns: impl Iterator<Item = ColumnId>,
) -> Result<Option<ColumnValues>> {
    let columns: Vec<ColumnId> = columns.collect();
    let mut values = vec![Value::Null; columns.len()];
    let found = store
        .rows()
        .read(row, &newest(own), &columns, &mut values)?;
    Ok(found.then(|| columns.into_iter().zip(values).collect()))
}
