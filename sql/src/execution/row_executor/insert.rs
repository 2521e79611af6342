//! INSERT of a few rows, with ON CONFLICT of one key.

use super::execution::{Decided, Execution};
use super::expressions::Rows;
use super::modify::{Modification, Written};
use super::program::{Conflict, Insert, SetList};
use super::source::Source;
use super::value::assigned;
use crate::execution::row_values::identity;
use std::cmp::Ordering;
use std::sync::Arc;
use strandline_base::{Result, SqlState, Value};
use strandline_engine::catalog::TableDef;
use strandline_engine::{Effect, OnInvisibleDuplicate, Statement};

impl Execution<'_> {
    pub(super) fn insert(
        &self,
        table: &Arc<TableDef>,
        insert: &Insert,
        written: &mut Written,
    ) -> Decided<u64> {
        let Some(rows) = self.proposed_rows(table, insert)? else {
            return Ok(None);
        };
        let conflicts = match &insert.conflict {
            None => OnInvisibleDuplicate::Violation,
            Some(conflict) if insert.rows.len() > 1 => {
                let done = self.insert_each(table, conflict, &rows, written);
                return without_duplicates(done);
            }
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
        let inserted = inserted.and_then(|()| statement.finish());
        match insert.conflict {
            None => inserted?,
            Some(_) => match without_duplicates(inserted.map(Some))? {
                Some(()) => {}
                None => return Ok(None),
            },
        }
        written.keep(|| rows);
        Ok(Some(insert.rows.len() as u64))
    }

    /// The values of all rows to insert; None: something is wrong with them.
    fn proposed_rows(&self, table: &TableDef, insert: &Insert) -> Decided<Vec<Value>> {
        let computed = match &insert.computed {
            None => Vec::new(),
            Some(computed) if computed.expressions.fit(&self.slots()) => {
                match computed.of(&self.slots(), &Rows::one(&[], &[])) {
                    Some(values) => values,
                    None => return Ok(None),
                }
            }
            Some(_) => return Ok(None),
        };
        let mut rows = Vec::with_capacity(insert.rows.len() * table.columns.len());
        for sources in &insert.rows {
            if !self.proposed(table, sources, &computed, &mut rows)? {
                return Ok(None);
            }
        }
        Ok(Some(rows))
    }

    /// Appends the values of a row to insert; false if something is wrong with them.
    fn proposed(
        &self,
        table: &TableDef,
        sources: &[Source],
        computed: &[Value],
        rows: &mut Vec<Value>,
    ) -> Result<bool> {
        let from = rows.len();
        for (source, column) in sources.iter().zip(&table.columns) {
            let value = match source {
                Source::Identity => {
                    let next = self.transaction.db().next_identity(table, column.id)?;
                    identity(column, next).ok()
                }
                Source::Computed(at) => computed.get(*at).cloned(),
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

    /// What ON CONFLICT does if there is a row with the one proposed row's key.
    fn on_conflict(
        &self,
        table: &Arc<TableDef>,
        conflict: &Conflict,
        row: &[Value],
        written: &mut Written,
    ) -> Decided<OnExisting> {
        let Some(key) = conflict.key_of(row) else {
            return Ok(Some(OnExisting::Missing));
        };
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
            0 if !modification.is_left => OnExisting::Missing,
            rows => OnExisting::Done(rows),
        }))
    }

    /// Inserts several rows in their order, or does with each what ON CONFLICT says.
    fn insert_each(
        &self,
        table: &Arc<TableDef>,
        conflict: &Conflict,
        rows: &[Value],
        written: &mut Written,
    ) -> Decided<u64> {
        let rows: Vec<&[Value]> = rows.chunks_exact(table.columns.len()).collect();
        let keys: Vec<_> = rows.iter().map(|row| conflict.key_of(row)).collect();
        let repeated = repeated(&keys);
        // A row that is updated twice is an error, which the full path words.
        if conflict.update.is_some() && repeated.contains(&true) {
            return Ok(None);
        }
        let Some(statement) = self.statement()? else {
            return Ok(None);
        };
        let mut done = 0;
        for ((row, key), is_repeated) in rows.into_iter().zip(&keys).zip(repeated) {
            if is_repeated {
                continue;
            }
            let existing = match key {
                None => Some(OnExisting::Missing),
                Some(key) => self.existing(&statement, table, (conflict, key), row, written)?,
            };
            match existing {
                None => return Ok(None),
                Some(OnExisting::Done(rows)) => done += rows,
                Some(OnExisting::Missing) => {
                    let conflicts = OnInvisibleDuplicate::Conflict;
                    statement.insert_values(table, row, conflicts)?;
                    written.keep(|| row.to_vec());
                    done += 1;
                }
            }
            written.settle();
        }
        statement.finish()?;
        Ok(Some(done))
    }

    /// What ON CONFLICT does for one of several rows if there is a row with its key.
    fn existing(
        &self,
        statement: &Statement,
        table: &Arc<TableDef>,
        (conflict, key): (&Conflict, &[Value]),
        row: &[Value],
        written: &mut Written,
    ) -> Decided<OnExisting> {
        let index = conflict.index;
        let list: &SetList = match &conflict.update {
            Some(list) => list,
            None => {
                let mut nothing = Vec::new();
                let found = statement.point_get(table, index, key, &[], &mut nothing)?;
                return Ok(Some(match found {
                    true => OnExisting::Done(0),
                    false => OnExisting::Missing,
                }));
            }
        };
        let Some(mut modification) = Modification::new(self, table, list, row) else {
            return Ok(None);
        };
        let mut candidates = Vec::new();
        statement.rows_of_key(table, index, key, &mut candidates)?;
        statement.note_key(table, index, key)?;
        let mut is_found = false;
        let mut effect = |row: &[Value], set: &mut Vec<_>| {
            if !conflict.has_key(row, key) {
                return Ok(Effect::Leave);
            }
            is_found = true;
            let effect = modification.decide(row, set)?;
            if effect == Effect::Update {
                written.keep(|| modification.new_row(row, set));
            }
            Ok(effect)
        };
        // Keys and foreign keys are checked when all rows are there.
        let reads = &conflict.reads;
        let updated = statement.modify_rows(table, &candidates, reads, &mut effect)? > 0;
        written.keep_only(updated);
        if modification.is_undecided {
            return Ok(None);
        }
        Ok(Some(match is_found && (updated || modification.is_left) {
            true => OnExisting::Done(u64::from(updated)),
            false => OnExisting::Missing,
        }))
    }
}

impl Conflict {
    /// Whether a row, of which `reads` are given, has this key.
    fn has_key(&self, row: &[Value], key: &[Value]) -> bool {
        let mut parts = self.places.iter().zip(key);
        parts.all(|(place, part)| row[*place].compare(part) == Some(Ordering::Equal))
    }

    /// The key of a proposed row; None: it has NULL in it and conflicts with none.
    fn key_of(&self, row: &[Value]) -> Option<Vec<Value>> {
        let key: Vec<Value> = self.key.iter().map(|p| row[*p].clone()).collect();
        (!key.iter().any(Value::is_null)).then_some(key)
    }
}

/// Of each key whether an earlier one equals it.
fn repeated(keys: &[Option<Vec<Value>>]) -> Vec<bool> {
    let compare = |a: &[Value], b: &[Value]| {
        let mut parts = a.iter().zip(b).map(|(a, b)| a.compare(b));
        let first = parts.find(|order| *order != Some(Ordering::Equal));
        first.flatten().unwrap_or(Ordering::Equal)
    };
    let mut order: Vec<(usize, &[Value])> = Vec::with_capacity(keys.len());
    let keys_at = keys.iter().enumerate();
    order.extend(keys_at.filter_map(|(at, key)| Some((at, key.as_deref()?))));
    order.sort_by(|(i, a), (j, b)| compare(a, b).then(i.cmp(j)));
    let mut repeated = vec![false; keys.len()];
    for pair in order.windows(2) {
        if let [(_, a), (at, b)] = pair {
            repeated[*at] = compare(a, b) == Ordering::Equal;
        }
    }
    repeated
}

/// `None` for a duplicate: another transaction has committed it after the look for it and before
/// the statement's snapshot, or it violates another key. The full path decides.
fn without_duplicates<T>(outcome: Decided<T>) -> Decided<T> {
    match outcome {
        Err(error) if error.sqlstate() == SqlState::UNIQUE_VIOLATION => Ok(None),
        outcome => outcome,
    }
}

/// What ON CONFLICT found.
enum OnExisting {
    /// the row is there, and so many were updated
    Done(u64),
    Missing,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_repeats_an_earlier_equal_one() {
        let key = |v| Some(vec![Value::Integer(1), Value::Integer(v)]);
        let keys = [key(3), key(1), None, key(3), key(2), None, key(3)];
        let expected = [false, false, false, true, false, false, true];
        assert_eq!(repeated(&keys), expected);
    }
}
