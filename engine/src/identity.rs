//! The counters of identity columns.
//!
//! Values are not transactional: a rollback leaves a gap. What a committed row may carry is in the
//! log no later than the row: a commit logs every value that was given out and is not logged yet,
//! and holds the counters' lock until its record has its place in the log, so that the last value
//! in the log is the last one given out.
//!
//! Lock order: counters → log.

use crate::catalog::TableDef;
use crate::redo;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use strandline_base::{ColumnId, Error, Result, SqlState, TableId};

#[derive(Clone, Copy, Debug)]
struct Counter {
    last: i64,
    is_logged: bool,
}

/// The last value given out per identity column.
#[derive(Debug, Default)]
pub struct Identities {
    counters: Mutex<BTreeMap<(TableId, ColumnId), Counter>>,
    /// Whether some counter is not logged: spares most commits the lock. Whoever draws a value
    /// sets it before its own commit looks at it; it is cleared when the value is in the log.
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

    /// The log says that `last` was given out.
    pub fn recover(&self, table: TableId, column: ColumnId, last: i64) {
        let is_logged = true;
        let counter = Counter { last, is_logged };
        self.counters.lock().insert((table, column), counter);
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

    /// Adds the values that are in no log record yet to `record`, which `append` then puts into
    /// the log.
    pub fn log_with<R>(
        &self,
        record: &mut Vec<u8>,
        append: impl FnOnce(&mut Vec<u8>) -> Result<R>,
    ) -> Result<R> {
        if !self.unlogged.load(Ordering::Acquire) {
            return append(record);
        }
        let mut counters = self.counters.lock();
        for ((table, column), counter) in counters.iter().filter(|(_, c)| !c.is_logged) {
            redo::put_identity(record, *table, *column, counter.last);
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
