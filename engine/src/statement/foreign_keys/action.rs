//! Referential actions: what a change of a referenced row does to the rows that reference it.
//!
//! CASCADE, SET NULL and SET DEFAULT run as statements of the same transaction that see everything
//! committed by then, with the checks of any statement. Under one snapshot a referencing row that
//! it does not see is a conflict (40001).

use super::look::referencing_rows;
use super::{ParentGone, RowEvents};
use crate::catalog::foreign_keys::equal_value;
use crate::catalog::index::{ForeignKeyDef, ReferentialAction};
use crate::catalog::{TableDef, column_of};
use crate::statement::Statement;
use crate::statement::write_target::WriteTarget;
use crate::store::{TableStore, newest};
use std::sync::Arc;
use strandline_base::{ColumnId, Error, Result, RowId, SqlState, Value};

/// Rules about a table's rows that the engine does not know.
pub trait RowRules {
    /// The error if a row, its values in column order, violates a CHECK constraint.
    fn check(&self, table: &Arc<TableDef>, row: &[Value]) -> Result<()>;
    /// The value of a column's DEFAULT, or the next one of its identity.
    fn default_value(&self, table: &Arc<TableDef>, column: ColumnId) -> Result<Value>;
}

/// For callers without rules: an action that needs a rule is refused.
pub(crate) struct NoRules;

impl RowRules for NoRules {
    fn check(&self, table: &Arc<TableDef>, _: &[Value]) -> Result<()> {
        Err(Error::unsupported(format!(
            "an action on table \"{}\", which has CHECK constraints, takes an SQL statement",
            table.name
        )))
    }

    fn default_value(&self, table: &Arc<TableDef>, column: ColumnId) -> Result<Value> {
        let column = column_of(table, column)?;
        match column.default.is_none() && column.identity.is_none() {
            true => Ok(Value::Null),
            false => Err(Error::unsupported(format!(
                "setting column \"{}\" of table \"{}\" to its default takes an SQL statement",
                column.name, table.name
            ))),
        }
    }
}

impl Statement {
    /// Runs the action of `key` of `child` for a referenced key that is gone, or has become `new`.
    /// Returns the changes that other foreign keys have to check.
    pub(super) fn act(
        &self,
        child: &Arc<TableDef>,
        key: &ForeignKeyDef,
        gone: ParentGone,
        new: Option<Vec<Value>>,
        rules: &dyn RowRules,
    ) -> Result<RowEvents> {
        let action = match new {
            None => key.on_delete,
            Some(_) => key.on_update,
        };
        match action {
            ReferentialAction::NoAction if self.defers(child, key) => {
                self.txn.defer(Box::new(gone))?;
                return Ok(RowEvents::default());
            }
            ReferentialAction::NoAction => gone.check(&self.txn, true)?,
            ReferentialAction::Restrict => gone.check(&self.txn, false)?,
            _ => return self.change_children(child, key, gone, (action, new), rules),
        }
        Ok(RowEvents::default())
    }

    fn change_children(
        &self,
        child: &Arc<TableDef>,
        key: &ForeignKeyDef,
        gone: ParentGone,
        (action, new): (ReferentialAction, Option<Vec<Value>>),
        rules: &dyn RowRules,
    ) -> Result<RowEvents> {
        let catalog = self.txn.catalog();
        let parent = catalog.tables.get(&gone.parent);
        let parent = parent.ok_or_else(|| Error::internal("a referenced table is gone"))?;
        let rows = referencing_rows(&self.txn, child, (key, parent), &gone.old, false)?;
        if rows.is_empty() {
            return Ok(RowEvents::default());
        }
        // It sees what was committed up to now, the rows that were waited for included.
        let statement = self.txn.begin_statement()?;
        let set_on_delete = || match key.delete_sets.is_empty() {
            true => &key.columns,
            false => &key.delete_sets,
        };
        let columns = match &new {
            None => set_on_delete(),
            Some(_) => &key.columns,
        };
        match (action, new) {
            (ReferentialAction::Cascade, None) => statement.delete(child, &rows)?,
            (ReferentialAction::Cascade, Some(new)) => {
                let set = cascaded(child, key, parent, &new)?;
                statement.set_all(child, &rows, &set, rules)?;
            }
            (ReferentialAction::SetDefault, _) => {
                for &row in &rows {
                    let value = |id: &ColumnId| Ok((*id, rules.default_value(child, *id)?));
                    let set: Vec<_> = columns.iter().map(value).collect::<Result<_>>()?;
                    statement.set_all(child, &[row], &set, rules)?;
                }
            }
            _ => {
                let set: Vec<_> = columns.iter().map(|id| (*id, Value::Null)).collect();
                statement.set_all(child, &rows, &set, rules)?;
            }
        }
        statement.check_keys()?;
        if action == ReferentialAction::SetDefault {
            // A default that equals the key that went changes nothing that would be checked.
            gone.check(&self.txn, true)?;
        }
        let events = std::mem::take(&mut *statement.row_events.lock());
        Ok(events)
    }

    /// Sets columns of rows, which pass the table's constraints then.
    fn set_all(
        &self,
        table: &Arc<TableDef>,
        rows: &[RowId],
        set: &[(ColumnId, Value)],
        rules: &dyn RowRules,
    ) -> Result<()> {
        let target = self.writable(table)?;
        for &row in rows {
            self.txn.admit_next_write()?;
            if self.update_row(&target, row, set)? && !table.checks.is_empty() {
                check_new_row(&target, row, rules)?;
            }
        }
        Ok(())
    }
}

fn check_new_row(target: &WriteTarget<'_>, row: RowId, rules: &dyn RowRules) -> Result<()> {
    let table = target.table;
    let columns: Vec<ColumnId> = table.columns.iter().map(|column| column.id).collect();
    let mut values = vec![Value::Null; columns.len()];
    let stored = target.store.rows();
    match stored.read(row, &newest(target.writer.word), &columns, &mut values)? {
        true => rules.check(table, &values),
        false => Ok(()),
    }
}

/// The referencing columns with the new key's values.
fn cascaded(
    child: &TableDef,
    key: &ForeignKeyDef,
    parent: &TableDef,
    new: &[Value],
) -> Result<Vec<(ColumnId, Value)>> {
    let mut set = Vec::with_capacity(new.len());
    for ((id, of), value) in key.columns.iter().zip(&key.parent_columns).zip(new) {
        let (to, from) = (column_of(child, *id)?, column_of(parent, *of)?);
        let value = equal_value(value, from.sql_type, to.sql_type).ok_or_else(|| {
            Error::invalid(
                SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
                format!(
                    "the new key of table \"{}\" has no equal value of type {} for column \"{}\" \
                     of table \"{}\"",
                    parent.name, to.sql_type, to.name, child.name
                ),
            )
        })?;
        set.push((*id, value));
    }
    Ok(set)
}
