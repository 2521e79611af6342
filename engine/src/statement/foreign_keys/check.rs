//! The checks: a referencing row has its referenced row; no row references a key that is gone. They
//! need no statement, so a deferred check runs after its statement has ended.

use super::look::{ParentKey, referencing_rows};
use super::violation;
use crate::catalog::index::ForeignKeyDef;
use crate::catalog::{Catalog, TableDef};
use crate::statement::{Statement, write_conflict};
use crate::store::all_rows::visit_range;
use crate::store::{Store, TableStore, newest};
use crate::transaction::Transaction;
use crate::transaction::deferred::DeferredCheck;
use std::cmp::Ordering;
use std::sync::Arc;
use strandline_base::{RangeNo, Result, RowId, TableId, Value};
use strandline_column::row_bytes::values_bytes;
use strandline_txn::Visibility;

/// The rows of one foreign key that are to be checked.
struct ChildCheck {
    table: Arc<TableDef>,
    store: Arc<Store>,
    key: Arc<ForeignKeyDef>,
    rows: ChildRows,
}

enum ChildRows {
    One(RowId),
    Range(RangeNo),
}

/// A referenced key that went, or changed.
pub(crate) struct ParentGone {
    /// the referenced table
    pub parent: TableId,
    /// the referencing table
    pub child: TableId,
    /// the foreign key
    pub name: String,
    /// the key before, in the order of the foreign key
    pub old: Vec<Value>,
}

impl Statement {
    /// Checks rows of a referencing table against its foreign keys, or defers that.
    pub(super) fn check_children(
        &self,
        table: &Arc<TableDef>,
        store: &Arc<Store>,
        rows: &[RowId],
    ) -> Result<()> {
        let catalog = self.txn.catalog();
        let mut parents = Vec::with_capacity(table.foreign_keys.len());
        for key in &table.foreign_keys {
            parents.push(match self.defers(table, key) {
                true => None,
                false => Some(ParentKey::new(&self.txn, &catalog, table, key)?),
            });
        }
        for &row in rows {
            for (key, parent) in table.foreign_keys.iter().zip(&parents) {
                match parent {
                    Some(parent) => check_row(&self.txn, table, store, (key, parent), row)?,
                    None => self.txn.defer(Box::new(ChildCheck {
                        table: table.clone(),
                        store: store.clone(),
                        key: key.clone(),
                        rows: ChildRows::One(row),
                    }))?,
                }
            }
        }
        Ok(())
    }

    /// The same for a range that was bulk-loaded.
    pub(super) fn check_range(
        &self,
        table: &Arc<TableDef>,
        store: &Arc<Store>,
        range: RangeNo,
    ) -> Result<()> {
        for key in &table.foreign_keys {
            let check = ChildCheck {
                table: table.clone(),
                store: store.clone(),
                key: key.clone(),
                rows: ChildRows::Range(range),
            };
            match self.defers(table, key) {
                true => self.txn.defer(Box::new(check))?,
                false => check.run_in(&self.txn, &self.txn.catalog())?,
            }
        }
        Ok(())
    }

    pub(super) fn defers(&self, table: &TableDef, key: &ForeignKeyDef) -> bool {
        self.txn.is_deferred(table.id, &key.name, key.timing)
    }
}

impl ChildCheck {
    fn run_in(&self, transaction: &Transaction, catalog: &Catalog) -> Result<()> {
        let parent = ParentKey::new(transaction, catalog, &self.table, &self.key)?;
        let look = (&*self.key, &parent);
        match self.rows {
            ChildRows::One(row) => check_row(transaction, &self.table, &self.store, look, row),
            ChildRows::Range(range) => {
                check_sorted(transaction, &self.table, &self.store, look, range)
            }
        }
    }
}

impl DeferredCheck for ChildCheck {
    fn constraint(&self) -> (TableId, &str) {
        (self.table.id, &self.key.name)
    }

    fn table(&self) -> TableId {
        self.table.id
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>()
    }

    fn run(&self, transaction: &Transaction) -> Result<()> {
        self.run_in(transaction, &transaction.catalog())
    }
}

impl DeferredCheck for ParentGone {
    fn constraint(&self) -> (TableId, &str) {
        (self.child, &self.name)
    }

    fn table(&self) -> TableId {
        self.parent
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.name.capacity() + values_bytes(&self.old)
    }

    fn run(&self, transaction: &Transaction) -> Result<()> {
        self.check(transaction, true)
    }
}

impl ParentGone {
    /// 23503 if rows reference the key. With `may_return` only if no row has the key again.
    pub(super) fn check(&self, transaction: &Transaction, may_return: bool) -> Result<()> {
        let catalog = transaction.catalog();
        let tables = &catalog.tables;
        let (Some(parent), Some(child)) = (tables.get(&self.parent), tables.get(&self.child))
        else {
            return Ok(()); // the constraint went with them
        };
        let mut keys = child.foreign_keys.iter();
        let Some(key) = keys.find(|key| key.name == self.name && key.parent == parent.id) else {
            return Ok(());
        };
        let found = referencing_rows(transaction, child, (key, parent), &self.old, true)?;
        if found.is_empty() {
            return Ok(());
        }
        if may_return {
            let look = ParentKey::new(transaction, &catalog, child, key)?;
            if let Some(old) = look.of_parent(&self.old)
                && look.is_there(transaction, &old)?
            {
                return Ok(());
            }
        }
        Err(violation::still_referenced(parent, key, child, &self.old)?)
    }
}

/// Checks the newest version of one row, if there is one.
fn check_row(
    transaction: &Transaction,
    table: &TableDef,
    store: &Store,
    (key, parent): (&ForeignKeyDef, &ParentKey),
    row: RowId,
) -> Result<()> {
    let own = transaction.word()?;
    let mut values = vec![Value::Null; key.columns.len()];
    let stored = store.rows();
    if !stored.read(row, &newest(own), &key.columns, &mut values)? {
        return Ok(()); // deleted since
    }
    let nulls = values.iter().filter(|value| value.is_null()).count();
    if nulls > 0 {
        return match key.match_full && nulls < values.len() {
            true => Err(violation::mixed_nulls(table, key)),
            false => Ok(()),
        };
    }
    let referenced = parent.of_child(&values);
    if let Some(referenced) = &referenced {
        if parent.is_there(transaction, referenced)? {
            return Ok(());
        }
        // A transaction with one snapshot sees a row that has gone since.
        if let Some(ts) = transaction.fixed_snapshot() {
            let visibility = Visibility {
                ts,
                own,
                statement: u32::MAX,
            };
            if parent.was_there(referenced, &visibility)? {
                return Err(write_conflict(&parent.table));
            }
        }
    }
    Err(violation::not_present(table, key, &parent.table, &values)?)
}

/// Checks the rows of a range: each distinct key once, in order.
fn check_sorted(
    transaction: &Transaction,
    table: &TableDef,
    store: &Store,
    (key, parent): (&ForeignKeyDef, &ParentKey),
    range: RangeNo,
) -> Result<()> {
    let own = transaction.word()?;
    let mut keys: Vec<(Vec<Value>, RowId)> = Vec::new();
    let mut odd = Vec::new();
    visit_range(
        store,
        range,
        &key.columns,
        &newest(own),
        &mut |row, values| match parent.of_child(values) {
            Some(referenced) if !referenced.iter().any(Value::is_null) => {
                keys.push((referenced, row));
            }
            _ => odd.push(row),
        },
    )?;
    keys.sort_unstable_by(|a, b| compare(&a.0, &b.0).then(a.1.cmp(&b.1)));
    keys.dedup_by(|a, b| compare(&a.0, &b.0) == Ordering::Equal);
    for (referenced, row) in keys {
        transaction.check_cancelled()?;
        if !parent.is_there(transaction, &referenced)? {
            odd.push(row);
        }
    }
    // Slots without a visible row are among them.
    odd.sort_unstable();
    let mut rows = odd.into_iter();
    rows.try_for_each(|row| check_row(transaction, table, store, (key, parent), row))
}

fn compare(a: &[Value], b: &[Value]) -> Ordering {
    let mut pairs = a.iter().zip(b);
    let order = pairs.find_map(|(a, b)| a.compare(b).filter(|order| order.is_ne()));
    order.unwrap_or(Ordering::Equal)
}
