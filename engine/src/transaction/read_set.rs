//! The reads of a serializable transaction: looked-up keys, and scans with their predicates
//! \[L-Store §5.1.1: read validation\].
//!
//! Reads are logical: they include keys that had no row, and rows inserted later that satisfy a
//! scan's predicate. Reads of the past (AS OF) cannot change and are not recorded.

use super::Transaction;
use crate::catalog::{TableDef, column_of};
use crate::request::{ColumnPredicate, RowFilter, ScanRequest};
use crate::store::{Store, StoredIndex};
use std::sync::Arc;
use strandline_base::{ColumnId, Result, SqlType, TableId, Value};

/// A looked-up key.
pub struct KeyRead {
    /// the table
    pub table: TableId,
    /// its rows
    pub store: Arc<Store>,
    /// the index of the look-up
    pub index: Arc<StoredIndex>,
    /// the key
    pub values: Vec<Value>,
}

impl KeyRead {
    /// Whether `key` is the looked-up key.
    pub fn is(&self, key: &[Value]) -> bool {
        StoredIndex::are_duplicates(&self.values, key, self.index.nulls_are_equal())
    }
}

/// A scan.
pub struct ScanRead {
    /// the table
    pub table: TableId,
    /// its rows
    pub store: Arc<Store>,
    /// columns whose values were read, the predicate's columns included, with their types
    pub columns: Vec<(ColumnId, SqlType)>,
    /// the predicate, first part
    pub bounds: Vec<ColumnPredicate>,
    /// the predicate, second part
    pub filters: Vec<Arc<dyn RowFilter>>,
    /// whether every version was read, so that each change of a row counts
    pub every_version: bool,
}

/// All reads of a transaction.
#[derive(Default)]
pub struct ReadSet {
    /// keys looked up
    pub keys: Vec<KeyRead>,
    /// scans
    pub scans: Vec<ScanRead>,
}

impl ReadSet {
    /// Whether nothing was read.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.scans.is_empty()
    }

    /// Records a looked-up key; once if it is looked up several times in a row.
    pub fn note_key(
        &mut self,
        table: TableId,
        store: &Arc<Store>,
        index: &Arc<StoredIndex>,
        values: &[Value],
    ) {
        let is_last = self.keys.last().is_some_and(|last| {
            Arc::ptr_eq(&last.store, store)
                && Arc::ptr_eq(&last.index, index)
                && last.values == values
        });
        if !is_last {
            self.keys.push(KeyRead {
                table,
                store: store.clone(),
                index: index.clone(),
                values: values.to_vec(),
            });
        }
    }

    /// The tables read, with the storages that they had.
    pub fn tables(&self) -> impl Iterator<Item = (TableId, &Arc<Store>)> {
        let keys = self.keys.iter().map(|key| (key.table, &key.store));
        keys.chain(self.scans.iter().map(|scan| (scan.table, &scan.store)))
    }
}

impl Transaction {
    /// Whether the transaction records its reads: only a serializable one does.
    pub fn notes_reads(&self) -> bool {
        self.reads.is_some()
    }

    /// Records a looked-up key of a serializable transaction.
    pub(crate) fn note_key(
        &self,
        table: &TableDef,
        store: &Arc<Store>,
        index: &Arc<StoredIndex>,
        values: &[Value],
    ) {
        if let Some(reads) = &self.reads {
            reads.lock().note_key(table.id, store, index, values);
        }
    }

    /// Records a serializable transaction's scan of a table, or of all versions of its rows.
    pub(crate) fn note_scan(
        &self,
        table: &TableDef,
        request: &ScanRequest,
        every_version: bool,
    ) -> Result<()> {
        let Some(reads) = &self.reads else {
            return Ok(());
        };
        let filters = request.filters.iter().filter(|filter| filter.is_fixed());
        let filters: Vec<_> = filters.cloned().collect();
        let mut columns = request.columns.clone();
        columns.extend(filters.iter().flat_map(|filter| filter.columns()));
        columns.extend(request.prune.iter().map(|bound| bound.column));
        columns.sort_unstable();
        columns.dedup();
        let typed = |id| Ok((id, column_of(table, id)?.sql_type));
        let scan = ScanRead {
            table: table.id,
            store: self.db.store(table.storage)?,
            columns: columns.into_iter().map(typed).collect::<Result<_>>()?,
            bounds: request.prune.clone(),
            filters,
            every_version,
        };
        reads.lock().scans.push(scan);
        Ok(())
    }
}
