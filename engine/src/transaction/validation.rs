//! Validation of a serializable transaction's reads \[L-Store §5.1.1\].
//!
//! The transaction read at snapshot s and is about to commit at c, later than all commits so far.
//! It is serializable at c if each of its reads, repeated now, gives the same result as at s: the
//! whole transaction could then have run at c. So the commits of others in (s, c) are compared with
//! its reads:
//! * a key: the row that has it must be the same (or still none), and unchanged;
//! * a scan: no row may have begun to satisfy its predicate, ceased to, or changed in a column read
//!   while it satisfied it. This includes phantoms, and rows that a merge has moved into base.
//!
//! Versions between those of s and of now do not matter. The transaction's own changes are left out
//! on both sides. A transaction that wrote nothing needs no validation: it is serializable at s,
//! because transactions that wrote are serializable in commit order.
//!
//! The work is done in two steps. [`Validation::begin`] examines all commits and pre-commits, with
//! no lock held. [`Validation::finish`] runs under the log's lock, where no other transaction can
//! commit. It examines only rows of commits since `begin` (see `db::commit_watch`).
//!
//! Invariants:
//! 1. No timestamp is drawn between `finish` and the transaction's own.
//! 2. The transaction's snapshot stays registered, so the versions of s can be read.
//!
//! Lock order: the log's lock → `CommitWatches` and the locks that point reads take.
//!
//! Differences from the paper: it validates each version read. Here the reads are repeated, which
//! finds phantoms in the same way and accepts a version that has been restored. Pre-committed
//! transactions are taken as committed: they abort only if the log fails, and then this one fails
//! too.

use super::read_set::{KeyRead, ReadSet, ScanRead};
use crate::catalog::TableDef;
use crate::db::Db;
use crate::db::commit_watch::CommitWatch;
use crate::redo::{self, Scope};
use crate::request::{ColumnPredicate, CompareOp};
use crate::store::TableStore;
use crate::store::{Store, StoredIndex};
use arrow_array::RecordBatch;
use arrow_schema::{Field, Schema};
use std::cmp::Ordering;
use std::sync::Arc;
use strandline_base::{CommitTs, Error, ErrorKind, Result, RowId, SqlState, StorageId, Value};
use strandline_column::types::{array_of, arrow_type};
use strandline_txn::{StartWord, Visibility};

/// The number of rows whose filters are evaluated together.
const BATCH_ROWS: usize = 1024;

/// A running validation.
pub struct Validation<'a> {
    db: &'a Db,
    reads: &'a ReadSet,
    snapshot: CommitTs,
    own: StartWord,
    watch: CommitWatch<'a>,
}

impl<'a> Validation<'a> {
    /// Examines all commits of others after `snapshot`; 40001 if one contradicts `reads`. `own` is
    /// the transaction's word.
    pub fn begin(
        db: &'a Db,
        reads: &'a ReadSet,
        snapshot: CommitTs,
        own: StartWord,
    ) -> Result<Self> {
        let validation = Self {
            db,
            reads,
            snapshot,
            own,
            watch: db.commit_watches.watch(),
        };
        // Orders the following reads after every commit that was queued before the watch began.
        db.txns().queued();
        validation.check_definitions()?;
        for key in &reads.keys {
            validation.check_key(key)?;
        }
        let mut changed: Vec<(StorageId, Vec<RowId>)> = Vec::new();
        for scan in &reads.scans {
            let id = scan.store.id();
            if !changed.iter().any(|(known, _)| *known == id) {
                let rows = scan.store.rows().changed_since(snapshot, own)?;
                changed.push((id, rows));
            }
            for (_, rows) in changed.iter().filter(|(known, _)| *known == id) {
                validation.check_scan(scan, rows)?;
            }
        }
        Ok(validation)
    }

    /// Examines the commits since `begin`. The caller holds the log's lock and draws the
    /// transaction's timestamp before it releases the lock.
    pub fn finish(&self) -> Result<()> {
        for record in self.watch.take() {
            let (_, operations) = redo::decode(&record, "a commit of this run")?;
            for redo in operations {
                match redo.operation.scope() {
                    Scope::Row(storage, row) => self.check_row(storage, row)?,
                    Scope::Storage(storage) => self.check_load(storage)?,
                    Scope::Definitions => self.check_definitions()?,
                    Scope::Identities => {}
                }
            }
        }
        Ok(())
    }

    fn check_row(&self, storage: StorageId, row: RowId) -> Result<()> {
        for key in self.reads.keys.iter().filter(|k| k.store.id() == storage) {
            for ts in [self.snapshot, CommitTs::MAX] {
                let found = key.index.key_at(key.store.rows(), row, &of_others(ts))?;
                if found.is_some_and(|found| key.is(&found)) {
                    return self.check_key(key);
                }
            }
        }
        for scan in self.reads.scans.iter().filter(|s| s.store.id() == storage) {
            self.check_scan(scan, &[row])?;
        }
        Ok(())
    }

    /// A bulk load into a table that was read is a conflict: its rows are not examined under the
    /// log's lock.
    fn check_load(&self, storage: StorageId) -> Result<()> {
        match self.reads.tables().find(|(_, s)| s.id() == storage) {
            Some((_, store)) => Err(self.conflict(store)),
            None => Ok(()),
        }
    }

    /// Checks that the tables read still have the same storages.
    fn check_definitions(&self) -> Result<()> {
        let catalog = self.db.catalogs.at(CommitTs::MAX)?;
        for (table, store) in self.reads.tables() {
            let now = catalog.tables.get(&table);
            if now.is_none_or(|now| now.storage != store.id()) && !self.is_own_change(store) {
                return Err(self.conflict(store));
            }
        }
        Ok(())
    }

    /// Whether this transaction holds the storage exclusively: it has replaced or dropped it, or
    /// created it and not committed yet.
    fn is_own_change(&self, store: &Store) -> bool {
        store.is_exclusive_to(self.own)
    }

    /// Checks that the same row has the key, unchanged.
    fn check_key(&self, key: &KeyRead) -> Result<()> {
        let Some(index) = self.current_index(key)? else {
            return Err(self.conflict(&key.store));
        };
        let stored = key.store.rows();
        let Some(bytes) = index.key_bytes(&key.values) else {
            return Ok(());
        };
        let mut rows = Vec::new();
        index.index.lookup(&bytes, &mut rows)?;
        for row in rows {
            let has_key = |ts| -> Result<bool> {
                let found = index.key_at(stored, row, &of_others(ts))?;
                Ok(found.is_some_and(|found| key.is(&found)))
            };
            let (before, now) = (has_key(self.snapshot)?, has_key(CommitTs::MAX)?);
            let has_changed =
                before != now || now && stored.has_changed_since(row, self.snapshot, self.own)?;
            if has_changed {
                return Err(self.conflict(&key.store));
            }
        }
        Ok(())
    }

    /// The index into which writers enter their keys by now; None if it has been dropped.
    fn current_index(&self, key: &KeyRead) -> Result<Option<Arc<StoredIndex>>> {
        let (store, index) = (&key.store, &key.index);
        let catalog = self.db.catalogs.at(CommitTs::MAX)?;
        let is_defined = |table: &Arc<TableDef>| match index.id() {
            None => table.keys.iter().any(|def| def.columns == index.columns),
            Some(id) => table.index(id).is_some(),
        };
        if !catalog.tables.get(&key.table).is_some_and(is_defined) && !self.is_own_change(store) {
            return Ok(None);
        }
        Ok(match index.id() {
            None => store.key(&index.columns),
            Some(id) => store.secondary_index(id),
        })
    }

    fn check_scan(&self, scan: &ScanRead, rows: &[RowId]) -> Result<()> {
        if scan.every_version && !rows.is_empty() {
            return Err(self.conflict(&scan.store));
        }
        let columns: Vec<_> = scan.columns.iter().map(|(id, _)| *id).collect();
        let stored = scan.store.rows();
        for rows in rows.chunks(BATCH_ROWS) {
            let mut candidates = Vec::new();
            for &row in rows {
                let mut versions = Vec::with_capacity(2);
                for ts in [self.snapshot, CommitTs::MAX] {
                    let mut values = vec![Value::Null; columns.len()];
                    if stored.read(row, &of_others(ts), &columns, &mut values)? {
                        versions.push(values);
                    }
                }
                if let [before, now] = versions.as_slice()
                    && before == now
                {
                    continue; // nothing that was read has changed
                }
                let selected = |values: &Vec<Value>| is_within(&scan.bounds, scan, values);
                candidates.extend(versions.into_iter().filter(selected));
            }
            if any_selected(scan, &candidates)? {
                return Err(self.conflict(&scan.store));
            }
        }
        Ok(())
    }

    fn conflict(&self, store: &Store) -> Error {
        let catalog = self.db.catalogs.at(self.snapshot);
        let table = catalog.ok().and_then(|catalog| {
            let mut tables = catalog.tables.values();
            let table = tables.find(|table| table.storage == store.id());
            table.map(|table| table.name.clone())
        });
        Error::new(
            ErrorKind::Conflict,
            SqlState::SERIALIZATION_FAILURE,
            "could not serialize access due to read/write dependencies among transactions",
        )
        .with_detail(format!(
            "What the transaction has read of table \"{}\" was changed by another one that \
             committed first.",
            table.unwrap_or_default()
        ))
        .with_hint("Retry the transaction.")
    }
}

/// The view of commits and pre-commits of others up to `ts`, without this transaction's changes.
fn of_others(ts: CommitTs) -> Visibility {
    Visibility {
        ts,
        own: StartWord(0),
        statement: 0,
    }
}

fn is_within(bounds: &[ColumnPredicate], scan: &ScanRead, values: &[Value]) -> bool {
    bounds.iter().all(|bound| {
        let at = scan.columns.iter().position(|(id, _)| *id == bound.column);
        let order = at.and_then(|at| values[at].compare(&bound.value));
        match (order, bound.op) {
            (None, _) => false,
            (Some(order), CompareOp::Eq) => order == Ordering::Equal,
            (Some(order), CompareOp::Lt) => order == Ordering::Less,
            (Some(order), CompareOp::Le) => order != Ordering::Greater,
            (Some(order), CompareOp::Gt) => order == Ordering::Greater,
            (Some(order), CompareOp::Ge) => order != Ordering::Less,
        }
    })
}

/// Whether the scan's filters select any of the rows.
fn any_selected(scan: &ScanRead, rows: &[Vec<Value>]) -> Result<bool> {
    if rows.is_empty() {
        return Ok(false);
    }
    let mut selected = vec![true; rows.len()];
    for filter in &scan.filters {
        let mut fields = Vec::new();
        let mut arrays = Vec::new();
        for id in filter.columns() {
            let at = scan.columns.iter().position(|(known, _)| known == id);
            let at = at.ok_or_else(|| Error::internal("a filter's column was not noted"))?;
            let sql_type = scan.columns[at].1;
            let cells: Vec<Value> = rows.iter().map(|row| row[at].clone()).collect();
            fields.push(Field::new(format!("c{id}"), arrow_type(sql_type), true));
            arrays.push(array_of(sql_type, &cells)?);
        }
        let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(rows.len()));
        let schema = Arc::new(Schema::new(fields));
        let batch = RecordBatch::try_new_with_options(schema, arrays, &options)
            .map_err(|e| Error::internal(format!("building a batch: {e}")))?;
        let keep = filter.evaluate(&batch)?;
        for (selected, keep) in selected.iter_mut().zip(&keep) {
            *selected &= keep == Some(true);
        }
    }
    Ok(selected.contains(&true))
}
