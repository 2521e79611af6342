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

use super::read_set::{IndexReads, ReadSet, ScanFinder, ScanRead, StorageReads};
use crate::catalog::TableDef;
use crate::db::Db;
use crate::db::commit_watch::CommitWatch;
use crate::redo::{self, Scope};
use crate::request::CompareOp;
use crate::store::TableStore;
use crate::store::{Store, StoredIndex};
use arrow_array::RecordBatch;
use arrow_schema::{Field, Schema};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use strandline_base::{
    ColumnId, CommitTs, Error, ErrorKind, Result, RowId, SqlState, StorageId, Value,
};
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
    /// keys of rows, and scans of versions, that were compared
    #[cfg(test)]
    pub(super) compared: std::cell::Cell<usize>,
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
            #[cfg(test)]
            compared: std::cell::Cell::default(),
        };
        // Orders the following reads after every commit that was queued before the watch began.
        db.txns().queued();
        validation.check_definitions()?;
        for reads in reads.storages() {
            for read in &reads.keys {
                let index = validation.current_index(reads, &read.index)?;
                for key in read.keys.values().flatten() {
                    validation.check_key((reads, read), index.as_ref(), key)?;
                }
            }
            if reads.everything || !reads.scans.is_empty() {
                let rows = reads.store.rows().changed_since(snapshot, own)?;
                validation.check_scans(reads, &ScanFinder::of(&reads.scans), &rows)?;
            }
        }
        Ok(validation)
    }

    /// Examines the commits since `begin`. The caller holds the log's lock and draws the
    /// transaction's timestamp before it releases the lock.
    pub fn finish(&self) -> Result<()> {
        let mut rows: BTreeMap<StorageId, Vec<RowId>> = BTreeMap::new();
        for record in self.watch.take() {
            let (_, operations) = redo::decode(&record, "a commit of this run")?;
            for redo in operations {
                match redo.operation.scope() {
                    Scope::Row(storage, row) if self.reads.of(storage).is_some() => {
                        rows.entry(storage).or_default().push(row);
                    }
                    Scope::Row(..) | Scope::Identities => {}
                    Scope::Storage(storage) => self.check_load(storage)?,
                    Scope::Definitions => self.check_definitions()?,
                }
            }
        }
        for (storage, mut rows) in rows {
            rows.sort_unstable();
            rows.dedup();
            if let Some(reads) = self.reads.of(storage) {
                self.check_rows(reads, &rows)?;
            }
        }
        Ok(())
    }

    fn check_rows(&self, reads: &StorageReads, rows: &[RowId]) -> Result<()> {
        for read in &reads.keys {
            for &row in rows {
                for ts in [self.snapshot, CommitTs::MAX] {
                    self.note_compared();
                    let found = read.index.key_at(reads.store.rows(), row, &of_others(ts))?;
                    if let Some(key) = found.and_then(|found| read.find(&found)) {
                        let index = self.current_index(reads, &read.index)?;
                        self.check_key((reads, read), index.as_ref(), key)?;
                    }
                }
            }
        }
        self.check_scans(reads, &ScanFinder::of(&reads.scans), rows)
    }

    fn note_compared(&self) {
        #[cfg(test)]
        self.compared.set(self.compared.get() + 1);
    }

    /// A bulk load into a table that was read is a conflict: its rows are not examined under the
    /// log's lock.
    fn check_load(&self, storage: StorageId) -> Result<()> {
        match self.reads.of(storage) {
            Some(reads) => Err(self.conflict(&reads.store)),
            None => Ok(()),
        }
    }

    /// Checks that the tables read still have the same storages.
    fn check_definitions(&self) -> Result<()> {
        let catalog = self.db.catalogs.at(CommitTs::MAX)?;
        for StorageReads { table, store, .. } in self.reads.storages() {
            let now = catalog.tables.get(table);
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

    /// Checks that the same row has the key, unchanged. `index`: see [`Self::current_index`].
    fn check_key(
        &self,
        (reads, read): (&StorageReads, &IndexReads),
        index: Option<&Arc<StoredIndex>>,
        key: &[Value],
    ) -> Result<()> {
        let Some(index) = index else {
            return Err(self.conflict(&reads.store));
        };
        let stored = reads.store.rows();
        let Some(bytes) = index.key_bytes(key) else {
            return Ok(());
        };
        let mut rows = Vec::new();
        index.index.lookup(&bytes, &mut rows)?;
        for row in rows {
            let has_key = |ts| -> Result<bool> {
                let found = index.key_at(stored, row, &of_others(ts))?;
                Ok(found.is_some_and(|found| read.is(key, &found)))
            };
            let (before, now) = (has_key(self.snapshot)?, has_key(CommitTs::MAX)?);
            let has_changed =
                before != now || now && stored.has_changed_since(row, self.snapshot, self.own)?;
            if has_changed {
                return Err(self.conflict(&reads.store));
            }
        }
        Ok(())
    }

    /// The index into which writers enter their keys by now; None if it has been dropped.
    fn current_index(
        &self,
        reads: &StorageReads,
        index: &StoredIndex,
    ) -> Result<Option<Arc<StoredIndex>>> {
        let store = &reads.store;
        let catalog = self.db.catalogs.at(CommitTs::MAX)?;
        let is_defined = |table: &Arc<TableDef>| match index.id() {
            None => table.keys.iter().any(|def| def.columns == index.columns),
            Some(id) => table.index(id).is_some(),
        };
        if !catalog.tables.get(&reads.table).is_some_and(is_defined) && !self.is_own_change(store) {
            return Ok(None);
        }
        Ok(match index.id() {
            None => store.key(&index.columns),
            Some(id) => store.secondary_index(id),
        })
    }

    /// Checks that the scans of a storage select the same of `rows`, with the same values. Each row
    /// is read once, whatever the number of scans.
    fn check_scans(&self, reads: &StorageReads, finder: &ScanFinder, rows: &[RowId]) -> Result<()> {
        if reads.everything && !rows.is_empty() {
            return Err(self.conflict(&reads.store));
        }
        let scanned = reads.scans.iter().flat_map(|scan| &scan.columns);
        let columns: BTreeSet<ColumnId> = scanned.map(|(id, _)| *id).collect();
        let columns: Vec<ColumnId> = columns.into_iter().collect();
        for rows in rows.chunks(BATCH_ROWS) {
            let mut candidates: BTreeMap<usize, Vec<Vec<Value>>> = BTreeMap::new();
            for &row in rows {
                let versions = self.versions_of(&reads.store, row, &columns)?;
                for (at, version) in versions.iter().enumerate() {
                    let other = versions.get(1 - at);
                    finder.each(
                        |column| version[place_of(&columns, column)].clone(),
                        &mut |no| {
                            self.note_compared();
                            let scan = &reads.scans[no];
                            let values = scan.values_of(&columns, version);
                            let is_same = other.is_some_and(|other| {
                                // Nothing that was read has changed.
                                scan.values_of(&columns, other) == values
                            });
                            if !is_same && is_within(scan, &values) {
                                candidates.entry(no).or_default().push(values);
                            }
                        },
                    );
                }
            }
            for (no, rows) in candidates {
                if any_selected(&reads.scans[no], &rows)? {
                    return Err(self.conflict(&reads.store));
                }
            }
        }
        Ok(())
    }

    /// The values of a row as of the snapshot and of now, without versions that do not exist.
    fn versions_of(
        &self,
        store: &Store,
        row: RowId,
        columns: &[ColumnId],
    ) -> Result<Vec<Vec<Value>>> {
        let mut versions = Vec::with_capacity(2);
        for ts in [self.snapshot, CommitTs::MAX] {
            let mut values = vec![Value::Null; columns.len()];
            if store
                .rows()
                .read(row, &of_others(ts), columns, &mut values)?
            {
                versions.push(values);
            }
        }
        Ok(versions)
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

/// The place of a column in a list that has it.
fn place_of(columns: &[ColumnId], column: ColumnId) -> usize {
    columns.partition_point(|id| *id < column)
}

impl ScanRead {
    /// The values of the scan's columns among those of `columns`.
    fn values_of(&self, columns: &[ColumnId], values: &[Value]) -> Vec<Value> {
        let own = self.columns.iter();
        own.map(|(id, _)| values[place_of(columns, *id)].clone())
            .collect()
    }
}

fn is_within(scan: &ScanRead, values: &[Value]) -> bool {
    scan.bounds.iter().all(|bound| {
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
