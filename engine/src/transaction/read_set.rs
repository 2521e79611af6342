//! The reads of a serializable transaction: looked-up keys, and scans with their predicates
//! \[L-Store §5.1.1: read validation\].
//!
//! Reads are logical: they include keys that had no row, and rows inserted later that satisfy a
//! scan's predicate. Reads of the past (AS OF) cannot change and are not recorded.
//!
//! They are found by what a changed row may contradict: storage, index and key, or a column's value
//! that a scan asks for ([`ScanFinder`]). So a validation costs changed rows plus the reads that
//! they concern, not rows times reads.
//!
//! Memory: the reads count among what transactions keep until they end. A set that exceeds its
//! share is made coarser: of the storage with the most reads everything counts as read from then
//! on. That aborts transactions that need not be aborted, and never commits one that must not be.

use super::Transaction;
use crate::catalog::{TableDef, column_of};
use crate::db::backpressure::SMALL_BYTES;
use crate::db::memory_account::HeldBytes;
use crate::request::{ColumnPredicate, CompareOp, RowFilter, ScanRequest};
use crate::store::{Store, StoredIndex};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use strandline_base::{ColumnId, Result, SqlType, StorageId, TableId, Value};
use strandline_index::KeyBytes;

/// A transaction's reads may keep this part of what all open transactions may keep.
const SHARE_PART: usize = 16;
/// Scans of a storage beyond which everything of it counts as read, unless the scans ask for single
/// values.
const RANGES_MAX: usize = 1_024;
/// Bytes of a map's entry beside its key and its value, unused room included.
const ENTRY_BYTES: usize = 32;

/// Keys looked up in one index.
pub struct IndexReads {
    /// the index of the look-ups
    pub index: Arc<StoredIndex>,
    /// the keys by their bytes
    pub keys: HashMap<KeyBytes, Vec<Box<[Value]>>>,
}

impl IndexReads {
    /// The looked-up key that equals `key`.
    pub fn find(&self, key: &[Value]) -> Option<&[Value]> {
        let bytes = self.index.key_bytes(key)?;
        let keys = self.keys.get(&bytes)?;
        keys.iter().map(|k| &**k).find(|k| self.is(k, key))
    }

    /// Whether the looked-up key `read` and `key` are the same.
    pub fn is(&self, read: &[Value], key: &[Value]) -> bool {
        StoredIndex::are_duplicates(read, key, self.index.nulls_are_equal())
    }
}

/// A scan.
pub struct ScanRead {
    /// columns whose values were read, the predicate's columns included, with their types
    pub columns: Vec<(ColumnId, SqlType)>,
    /// the predicate, first part
    pub bounds: Vec<ColumnPredicate>,
    /// the predicate, second part
    pub filters: Vec<Arc<dyn RowFilter>>,
}

/// The reads of one storage.
pub struct StorageReads {
    /// the table
    pub table: TableId,
    /// its rows
    pub store: Arc<Store>,
    /// keys looked up
    pub keys: Vec<IndexReads>,
    /// scans
    pub scans: Vec<ScanRead>,
    /// how many of the scans ask for no single value
    ranges: usize,
    /// each change of a row contradicts what was read
    pub everything: bool,
    bytes: usize,
}

/// All reads of a transaction.
#[derive(Default)]
pub struct ReadSet {
    storages: BTreeMap<StorageId, StorageReads>,
    bytes: usize,
    /// None: they are few
    held: Option<HeldBytes>,
}

impl ScanRead {
    /// A column and the value that the scan asks of it.
    fn single(&self) -> Option<(ColumnId, Single)> {
        let mut bounds = self.bounds.iter().filter(|b| b.op == CompareOp::Eq);
        bounds.find_map(|bound| Some((bound.column, Single::of(&bound.value)?)))
    }

    fn bytes(&self) -> usize {
        let values = self.bounds.iter().map(|bound| heap_bytes(&bound.value));
        let filters = self.filters.len() * 2 * size_of::<usize>();
        size_of::<Self>()
            + self.columns.len() * size_of::<(ColumnId, SqlType)>()
            + self.bounds.len() * size_of::<ColumnPredicate>()
            + values.sum::<usize>()
            + filters
    }
}

/// A value by which scans are found. Values of one column that are equal give equal ones.
#[derive(PartialEq, Eq, Hash)]
enum Single {
    Integer(i64),
    Text(Arc<str>),
}

impl Single {
    fn of(value: &Value) -> Option<Self> {
        Some(match value {
            Value::SmallInt(v) => Self::Integer(i64::from(*v)),
            Value::Integer(v) | Value::Date(v) => Self::Integer(i64::from(*v)),
            Value::BigInt(v) | Value::Timestamp(v) | Value::TimestampTz(v) => Self::Integer(*v),
            Value::Text(v) => Self::Text(v.clone()),
            _ => return None,
        })
    }
}

/// Finds the scans of a storage that a row may concern.
#[derive(Default)]
pub struct ScanFinder {
    singles: BTreeMap<ColumnId, HashMap<Single, Vec<usize>>>,
    others: Vec<usize>,
}

impl ScanFinder {
    /// Finds among `scans`.
    pub fn of(scans: &[ScanRead]) -> Self {
        let mut finder = Self::default();
        for (at, scan) in scans.iter().enumerate() {
            match scan.single() {
                Some((column, value)) => {
                    let values = finder.singles.entry(column).or_default();
                    values.entry(value).or_default().push(at);
                }
                None => finder.others.push(at),
            }
        }
        finder
    }

    /// Visits the scans, by their place in the list, that may select a row; `value_of` gives the
    /// row's value of a column.
    pub fn each(&self, value_of: impl Fn(ColumnId) -> Value, visit: &mut dyn FnMut(usize)) {
        self.others.iter().copied().for_each(&mut *visit);
        for (column, values) in &self.singles {
            // A value of another kind equals none of the single ones.
            let found = Single::of(&value_of(*column)).and_then(|value| values.get(&value));
            found.into_iter().flatten().copied().for_each(&mut *visit);
        }
    }
}

fn heap_bytes(value: &Value) -> usize {
    match value {
        Value::Text(text) => text.len(),
        Value::Bytea(bytes) => bytes.len(),
        Value::Box(corners) => corners.as_bytes().len(),
        _ => 0,
    }
}

impl StorageReads {
    /// From now on each change of a row counts. Returns the bytes that were freed.
    fn coarsen(&mut self) -> usize {
        self.everything = true;
        self.keys = Vec::new();
        self.scans = Vec::new();
        std::mem::take(&mut self.bytes)
    }

    /// Records a looked-up key, once.
    fn note_key(&mut self, index: &Arc<StoredIndex>, values: &[Value]) -> usize {
        let Some(bytes) = index.key_bytes(values) else {
            return 0; // no row ever has it
        };
        let known = self.keys.iter().rposition(|k| Arc::ptr_eq(&k.index, index));
        let at = known.unwrap_or_else(|| {
            self.keys.push(IndexReads {
                index: index.clone(),
                keys: HashMap::new(),
            });
            self.keys.len() - 1
        });
        let mut added = 2 * bytes.heap_bytes() + size_of::<(KeyBytes, Vec<Box<[Value]>>)>();
        let read = &mut self.keys[at];
        let keys = read.keys.entry(bytes).or_default();
        if keys.iter().any(|known| **known == *values) {
            return 0;
        }
        added += ENTRY_BYTES + values.iter().map(heap_bytes).sum::<usize>();
        added += size_of_val(values);
        keys.push(values.into());
        self.bytes += added;
        added
    }

    fn note_scan(&mut self, scan: ScanRead) -> usize {
        let added = scan.bytes();
        self.ranges += usize::from(scan.single().is_none());
        self.scans.push(scan);
        self.bytes += added;
        added
    }
}

impl ReadSet {
    /// Whether nothing was read.
    pub fn is_empty(&self) -> bool {
        self.storages.is_empty()
    }

    /// The reads of all storages.
    pub fn storages(&self) -> impl Iterator<Item = &StorageReads> {
        self.storages.values()
    }

    /// The reads of one storage.
    pub fn of(&self, storage: StorageId) -> Option<&StorageReads> {
        self.storages.get(&storage)
    }

    /// The reads of a storage, to add one; None: everything of it counts as read anyway.
    fn open(&mut self, table: TableId, store: &Arc<Store>) -> Option<&mut StorageReads> {
        let reads = self.storages.entry(store.id());
        let reads = reads.or_insert_with(|| StorageReads {
            table,
            store: store.clone(),
            keys: Vec::new(),
            scans: Vec::new(),
            ranges: 0,
            everything: false,
            bytes: 0,
        });
        (!reads.everything).then_some(reads)
    }

    /// Makes the reads of the storage with the most bytes coarser.
    fn coarsen_largest(&mut self) {
        let largest = self.storages.values_mut().max_by_key(|reads| reads.bytes);
        self.bytes -= largest.map_or(0, StorageReads::coarsen);
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
            let mut reads = reads.lock();
            let open = reads.open(table.id, store);
            let added = open.map_or(0, |open| open.note_key(index, values));
            self.bound_reads(&mut reads, added);
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
        let store = self.db.store(table.storage)?;
        let mut reads = reads.lock();
        let Some(open) = reads.open(table.id, &store) else {
            return Ok(());
        };
        if every_version || open.ranges >= RANGES_MAX {
            let freed = open.coarsen();
            reads.bytes -= freed;
            return Ok(());
        }
        let filters = request.filters.iter().filter(|filter| filter.is_fixed());
        let filters: Vec<_> = filters.cloned().collect();
        let mut columns = request.columns.clone();
        columns.extend(filters.iter().flat_map(|filter| filter.columns()));
        columns.extend(request.prune.iter().map(|bound| bound.column));
        columns.sort_unstable();
        columns.dedup();
        let typed = |id| Ok((id, column_of(table, id)?.sql_type));
        let added = open.note_scan(ScanRead {
            columns: columns.into_iter().map(typed).collect::<Result<_>>()?,
            bounds: request.prune.clone(),
            filters,
        });
        self.bound_reads(&mut reads, added);
        Ok(())
    }

    /// Counts `added` bytes of reads once they are many, and makes the set coarser if they are more
    /// than their share.
    fn bound_reads(&self, reads: &mut ReadSet, added: usize) {
        reads.bytes += added;
        if reads.bytes < SMALL_BYTES || added == 0 {
            return;
        }
        let held = reads.held.take();
        let mut held = held.unwrap_or_else(|| self.db.list_memory.share());
        held.set(reads.bytes);
        let most = self.db.settings().list_bytes() / SHARE_PART;
        if reads.bytes > most || !self.db.has_room_for_lists() {
            reads.coarsen_largest();
            held.set(reads.bytes);
        }
        reads.held = Some(held);
    }
}
