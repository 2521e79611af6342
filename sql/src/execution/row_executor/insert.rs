//! INSERT of a few rows, with ON CONFLICT of one row and one key.

use super::execution::{Decided, Execution};
use super::modify::{Modification, Written};
use super::program::{Conflict, Insert};
use super::source::Source;
use super::value::assigned;
use crate::execution::row_values::identity;
use std::sync::Arc;
use strandline_base::{Result, SqlState, Value};
use strandline_engine::OnInvisibleDuplicate;
use strandline_engine::catalog::TableDef;

impl Execution<'_> {
    pub(super) fn insert(
        &self,
        table: &Arc<TableDef>,
        insert: &Insert,
        written: &mut Written,
    ) -> Decided<u64> {
        let width = table.columns.len();
        let mut rows = Vec::with_capacity(insert.rows.len() * width);
        for sources in &insert.rows {
            if !self.proposed(table, sources, &mut rows)? {
                return Ok(None);
            }
        }
        let conflicts = match &insert.conflict {
            None => OnInvisibleDuplicate::Violation,
            Some(conflict) => {
                match self.on_conflict(table, conflict, &rows, written)? {
                    None => return Ok(None),
                    Some(OnExisting::Done(rows)) => return Ok(Some(rows)),
                    Some(OnExisting::Missing) => {}
                }
                OnInvisibleDuplicate::Conflict
            }
        };
        let Some(statement) = self.statement()? else {
            return Ok(None);
        };
        let inserted = statement.insert_values(table, &rows, conflicts);
        match inserted.and_then(|()| statement.finish()) {
            // Committed after the look for it and before this statement's snapshot.
            Err(error)
                if insert.conflict.is_some() && error.sqlstate() == SqlState::UNIQUE_VIOLATION =>
            {
                return Ok(None);
            }
            outcome => outcome?,
        }
        written.keep(|| rows);
        Ok(Some(insert.rows.len() as u64))
    }

    /// Appends the values of a row to insert; false if something is wrong with them.
    fn proposed(
        &self,
        table: &TableDef,
        sources: &[Source],
        rows: &mut Vec<Value>,
    ) -> Result<bool> {
        let from = rows.len();
        for (source, column) in sources.iter().zip(&table.columns) {
            let value = match source {
                Source::Identity => {
                    let next = self.transaction.db().next_identity(table, column.id)?;
                    identity(column, next).ok()
                }
                other => self
                    .datum(other)
                    .and_then(|d| assigned(&d, column.sql_type)),
            };
            match value {
                Some(value) if !(column.not_null && value.is_null()) => rows.push(value),
                _ => return Ok(false),
            }
        }
        Ok(self.passes(table, &rows[from..]))
    }

    /// What ON CONFLICT does if there is a row with the proposed row's key.
    fn on_conflict(
        &self,
        table: &Arc<TableDef>,
        conflict: &Conflict,
        row: &[Value],
        written: &mut Written,
    ) -> Decided<OnExisting> {
        let key: Vec<Value> = conflict.key.iter().map(|p| row[*p].clone()).collect();
        if key.iter().any(Value::is_null) {
            return Ok(Some(OnExisting::Missing));
        }
        let (point, index) = (&conflict.point, conflict.index);
        let Some(list) = &conflict.update else {
            let mut nothing = Vec::new();
            let found = self
                .transaction
                .try_point_get(point, &key, &[], &mut nothing)?
                || match self.statement()? {
                    Some(s) => s.point_get(table, index, &key, &[], &mut nothing)?,
                    None => return Ok(None),
                };
            return Ok(Some(match found {
                true => OnExisting::Done(0),
                false => OnExisting::Missing,
            }));
        };
        let Some(mut modification) = Modification::new(self, table, list, row) else {
            return Ok(None);
        };
        let place = (point, index, key.as_slice());
        let Some(updated) = self.apply(table, place, &mut modification, written)? else {
            return Ok(None);
        };
        Ok(Some(match updated {
            0 => OnExisting::Missing,
            rows => OnExisting::Done(rows),
        }))
    }
}

/// What ON CONFLICT found.
enum OnExisting {
    /// the row is there, and so many were updated
    Done(u64),
    Missing,
}
