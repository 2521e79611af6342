//! The counters of identity columns.
//!
//! Values are not transactional: a rollback leaves a gap. A value is logged no later than the first
//! committed row that contains it. A commit logs every drawn value that is not in the log yet. It
//! holds the counters' lock until its record has its place in the log, so that the last value in
//! the log is the last one drawn.
//!
//! The counters of a table go when no catalog version names the table any more, with the checkpoint
//! that finds it: going back to a moment before a DROP TABLE goes on with the same counters.
//!
//! Lock order: counters → log.

use crate::catalog::TableDef;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use strandline_base::sync::Mutex;
use strandline_base::{ColumnId, Error, Result, SqlState, TableId};

#[derive(Clone, Copy, Debug)]
struct Counter {
    last: i64,
    is_logged: bool,
}

/// The last drawn value of each identity column.
#[derive(Debug, Default)]
pub struct Identities {
    counters: Mutex<BTreeMap<(TableId, ColumnId), Counter>>,
    /// Whether some counter is not logged; lets most commits skip the lock. A transaction that
    /// draws a value sets it before its own commit reads it. It is cleared when the value is in the
    /// log.
    unlogged: AtomicBool,
}

impl Identities {
    /// The counters that a checkpoint has recorded.
    pub fn recovered(values: &[(TableId, ColumnId, i64)]) -> Self {
        let identities = Self::default();
        for &(table, column, last) in values {
            identities.recover(table, column, last);
        }
        identities
    }

    /// Recovery: the log contains `last` as a drawn value.
    pub fn recover(&self, table: TableId, column: ColumnId, last: i64) {
        let is_logged = true;
        let counter = Counter { last, is_logged };
        self.counters.lock().insert((table, column), counter);
    }

    /// Forgets the counters of tables that are not `kept`.
    pub fn retain(&self, kept: impl Fn(TableId) -> bool) {
        self.counters.lock().retain(|(table, _), _| kept(*table));
    }

    /// The next value of a column of `table`; 22003 if there is none left.
    pub fn next(&self, table: &TableDef, column: ColumnId) -> Result<i64> {
        let def = table.column_by_id(column).and_then(|c| c.identity.as_ref());
        let def = def.ok_or_else(|| {
            let name = &table.name;
            Error::internal(format!("column {column} of \"{name}\" is no identity"))
        })?;
        let mut counters = self.counters.lock();
        let next = match counters.get(&(table.id, column)) {
            None => Some(def.start),
            Some(counter) => counter.last.checked_add(def.increment),
        };
        let last = next.ok_or_else(|| {
            Error::invalid(
                SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
                format!(
                    "the identity column of table \"{}\" has no more values",
                    table.name
                ),
            )
        })?;
        let is_logged = false;
        counters.insert((table.id, column), Counter { last, is_logged });
        self.unlogged.store(true, Ordering::Release);
        Ok(last)
    }

    /// The last value that a column has been given; None: none yet.
    pub fn last(&self, table: &TableDef, column: ColumnId) -> Option<i64> {
        let def = table.column_by_id(column)?.identity.as_ref()?;
        let last = self.counters.lock().get(&(table.id, column))?.last;
        // A counter that was set back to its start stands one step before the start.
        (last.checked_add(def.increment) != Some(def.start)).then_some(last)
    }

    /// Makes `last` the last value that a column of `table` has been given.
    pub fn set(&self, table: TableId, column: ColumnId, last: i64) {
        let is_logged = false;
        let counter = Counter { last, is_logged };
        self.counters.lock().insert((table, column), counter);
        self.unlogged.store(true, Ordering::Release);
    }

    /// Lets `put` add the values that are in no log record yet to `record`, which `append` then
    /// puts into the log.
    pub fn log_with<R>(
        &self,
        record: &mut Vec<u8>,
        put: impl Fn(&mut Vec<u8>, TableId, ColumnId, i64),
        append: impl FnOnce(&mut Vec<u8>) -> Result<R>,
    ) -> Result<R> {
        if !self.unlogged.load(Ordering::Acquire) {
            return append(record);
        }
        let mut counters = self.counters.lock();
        for ((table, column), counter) in counters.iter().filter(|(_, c)| !c.is_logged) {
            put(record, *table, *column, counter.last);
        }
        let appended = append(record)?;
        counters.values_mut().for_each(|c| c.is_logged = true);
        self.unlogged.store(false, Ordering::Release);
        Ok(appended)
    }

    /// All counters, for the manifest.
    pub fn values(&self) -> Vec<(TableId, ColumnId, i64)> {
        let value = |(&(table, column), counter): (&(TableId, ColumnId), &Counter)| {
            (table, column, counter.last)
        };
        self.counters.lock().iter().map(value).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{ColumnDef, IdentityDef};
    use strandline_base::{SqlType, StorageId};

    fn table(id: u32, increment: i64) -> TableDef {
        let column = |id| ColumnDef {
            not_null: true,
            identity: Some(IdentityDef {
                always: false,
                start: 1,
                increment,
            }),
            ..ColumnDef::new(ColumnId(id), format!("c{id}"), SqlType::BigInt)
        };
        TableDef {
            id: TableId(id),
            storage: StorageId(id),
            ..TableDef::new("public", "t", vec![column(0), column(1)])
        }
    }

    fn put(record: &mut Vec<u8>, table: TableId, column: ColumnId, value: i64) {
        record.extend([table.0, column.0].iter().flat_map(|id| id.to_le_bytes()));
        record.extend(value.to_le_bytes());
    }

    /// The bytes that a commit adds to its record.
    fn logged(identities: &Identities) -> Vec<u8> {
        let mut record = Vec::new();
        identities
            .log_with(&mut record, put, |_| Ok(()))
            .expect("appended");
        record
    }

    #[test]
    fn counters_go_on_where_checkpoint_and_log_end() {
        for increment in [1, 10, -3] {
            let (one, two) = (table(1, increment), table(2, increment));
            let (a, b) = (ColumnId(0), ColumnId(1));
            let identities = Identities::recovered(&[(one.id, a, 500), (one.id, b, 7)]);
            // The log is newer than the checkpoint, and its last value wins.
            for value in [400, 600, 530] {
                identities.recover(one.id, a, value);
            }
            identities.recover(two.id, a, -9);
            let next = |table, column| identities.next(table, column).expect("a value");
            assert!(logged(&identities).is_empty(), "all of it is in the log");
            assert_eq!(next(&one, a), 530 + increment);
            assert_eq!(next(&one, a), 530 + 2 * increment);
            assert_eq!(next(&one, b), 7 + increment);
            assert_eq!(next(&two, a), -9 + increment);
            assert_eq!(next(&two, b), 1, "never drawn: the start");
            let values = [
                (one.id, a, 530 + 2 * increment),
                (one.id, b, 7 + increment),
                (two.id, a, -9 + increment),
                (two.id, b, 1),
            ];
            assert_eq!(identities.values(), values);
        }
    }

    #[test]
    fn a_commit_logs_what_was_drawn_and_a_failed_one_leaves_it_to_the_next() {
        let one = table(1, 1);
        let identities = Identities::recovered(&[(one.id, ColumnId(0), 41)]);
        identities.next(&one, ColumnId(1)).expect("a value");
        let mut record = Vec::new();
        let failed: Result<()> =
            identities.log_with(&mut record, put, |_| Err(Error::internal("no room")));
        failed.expect_err("no room");
        let mut expected = Vec::new();
        put(&mut expected, one.id, ColumnId(1), 1);
        assert_eq!(logged(&identities), expected, "not the recovered one");
        assert!(logged(&identities).is_empty());
    }

    #[test]
    fn the_last_value_is_followed_by_an_error() {
        for (last, increment) in [(i64::MAX - 1, 1), (i64::MIN + 1, -1)] {
            let one = table(1, increment);
            let identities = Identities::recovered(&[(one.id, ColumnId(0), last)]);
            let end = identities.next(&one, ColumnId(0)).expect("the last one");
            assert_eq!(end, last + increment);
            let error = identities.next(&one, ColumnId(0)).expect_err("none left");
            assert_eq!(error.sqlstate(), SqlState::NUMERIC_VALUE_OUT_OF_RANGE);
            assert_eq!(identities.values()[0].2, end);
        }
    }
}
