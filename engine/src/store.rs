//! A storage with its key indexes and the lock that lets DDL wait for writers.
//!
//! Lock order: `holders` is held only to look and to register, never while waiting.

use crate::catalog::TableDef;
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use strandline_base::{ColumnId, CommitTs, RangeNo, Result, StorageId, Value};
use strandline_index::{HashIndex, KeyIndex, hash_key};
use strandline_table::lineage::{Lineage, Shared};
use strandline_table::schema::StorageSchema;
use strandline_txn::{StartWord, TxnManager};

/// The index of one PRIMARY KEY or UNIQUE constraint.
pub struct KeyColumns {
    /// the key's columns in order
    pub columns: Vec<ColumnId>,
    /// hash of the key → rows that have or had it
    pub index: Arc<dyn KeyIndex>,
}

/// One storage as the engine keeps it.
pub struct Store {
    /// the rows
    pub lineage: Arc<Lineage>,
    /// one per distinct list of key columns
    keys: ArcSwap<Vec<Arc<KeyColumns>>>,
    holders: Mutex<Holders>,
    /// versions superseded before it may be gone
    kept_from: AtomicU64,
    /// bulk-loaded ranges that no checkpoint has put into the manifest yet
    pub unlisted: Mutex<Vec<RangeNo>>,
}

#[derive(Default)]
struct Holders {
    writers: Vec<StartWord>,
    exclusive: Option<StartWord>,
}

/// The storage's columns, by id, as `table` and everything before it defined them. Columns dropped
/// before have no definition any more: they keep a place of any type, and nobody asks for them.
pub fn storage_schema(table: &TableDef, before: Option<&StorageSchema>) -> Arc<StorageSchema> {
    let known = before.map_or(0, StorageSchema::len) as u32;
    let columns = (0..table.next_column.max(known)).map(|id| {
        let id = ColumnId(id);
        match (table.column_by_id(id), before) {
            (Some(c), _) => (c.sql_type, c.missing.clone()),
            (None, Some(before)) if (id.0 as usize) < before.len() => (
                before.column(id).sql_type,
                before.column(id).missing.clone(),
            ),
            (None, _) => (strandline_base::SqlType::Boolean, Value::Null),
        }
    });
    StorageSchema::new(columns)
}

impl Store {
    /// An empty storage for `table`, taken by `holder` if a transaction is creating it. `before`:
    /// the columns it is known to have had.
    pub fn new(
        table: &TableDef,
        before: Option<&StorageSchema>,
        shared: &Shared,
        holder: Option<StartWord>,
    ) -> Arc<Self> {
        let lineage = Lineage::new(table.storage, storage_schema(table, before), shared.clone());
        let store = Self {
            lineage,
            keys: ArcSwap::from_pointee(Vec::new()),
            holders: Mutex::new(Holders {
                writers: Vec::new(),
                exclusive: holder,
            }),
            kept_from: AtomicU64::new(0),
            unlisted: Mutex::default(),
        };
        for key in &table.keys {
            store.put_key(Self::empty_key(key.columns.clone()));
        }
        Arc::new(store)
    }

    /// The storage's id.
    pub fn id(&self) -> StorageId {
        self.lineage.id()
    }

    /// An index with nothing in it.
    pub fn empty_key(columns: Vec<ColumnId>) -> Arc<KeyColumns> {
        Arc::new(KeyColumns {
            columns,
            index: Arc::new(HashIndex::new()),
        })
    }

    /// Versions superseded before it may be gone.
    pub fn kept_from(&self) -> CommitTs {
        CommitTs(self.kept_from.load(Ordering::SeqCst))
    }

    /// Versions superseded before `ts` are about to go, unless a snapshot registered by now can
    /// see them. Never goes back, whatever becomes of the policy and the clock.
    pub fn raise_kept_from(&self, ts: CommitTs) {
        self.kept_from.fetch_max(ts.0, Ordering::SeqCst);
    }

    /// The indexes.
    pub fn keys(&self) -> arc_swap::Guard<Arc<Vec<Arc<KeyColumns>>>> {
        self.keys.load()
    }

    /// The index over exactly these columns.
    pub fn key(&self, columns: &[ColumnId]) -> Option<Arc<KeyColumns>> {
        self.keys
            .load()
            .iter()
            .find(|k| k.columns == columns)
            .cloned()
    }

    /// Adds an index, filled.
    pub fn put_key(&self, key: Arc<KeyColumns>) {
        let mut keys = Vec::clone(&self.keys.load());
        keys.retain(|k| k.columns != key.columns);
        keys.push(key);
        self.keys.store(Arc::new(keys));
    }

    /// Registers `word` as a writer until [`Store::release`]; waits for a definition change.
    pub fn lock_shared(&self, word: StartWord, waiting: &Waiting<'_>) -> Result<()> {
        loop {
            let holder = {
                let mut holders = self.holders.lock();
                match holders.exclusive {
                    Some(holder) if holder != word => holder,
                    _ => {
                        if !holders.writers.contains(&word) {
                            holders.writers.push(word);
                        }
                        return Ok(());
                    }
                }
            };
            waiting.wait(word, holder)?;
        }
    }

    /// Takes the storage for a definition change: waits until no other transaction writes it.
    pub fn lock_exclusive(&self, word: StartWord, waiting: &Waiting<'_>) -> Result<()> {
        loop {
            let holder = {
                let mut holders = self.holders.lock();
                let other = holders.writers.iter().copied().find(|w| *w != word);
                match (holders.exclusive, other) {
                    (Some(holder), _) if holder != word => holder,
                    (_, Some(writer)) => writer,
                    _ => {
                        holders.exclusive = Some(word);
                        return Ok(());
                    }
                }
            };
            waiting.wait(word, holder)?;
        }
    }

    /// Ends what `word` holds. The caller's transaction has finished: whoever waits for it wakes.
    pub fn release(&self, word: StartWord) {
        let mut holders = self.holders.lock();
        holders.writers.retain(|w| *w != word);
        if holders.exclusive == Some(word) {
            holders.exclusive = None;
        }
    }

    /// Whether a transaction is registered.
    pub fn is_held(&self) -> bool {
        let holders = self.holders.lock();
        holders.exclusive.is_some() || !holders.writers.is_empty()
    }

    /// The hash of a key, None if a part is NULL (NULLs are distinct).
    pub fn key_hash(values: &[Value]) -> Option<u64> {
        (!values.iter().any(Value::is_null)).then(|| hash_key(values))
    }
}

/// How a transaction waits for another one.
pub struct Waiting<'a> {
    /// who knows when it ends
    pub txns: &'a TxnManager,
    /// the longest wait
    pub timeout: Option<Duration>,
    /// whether the statement has been cancelled
    pub cancelled: &'a dyn Fn() -> bool,
}

impl Waiting<'_> {
    /// Waits until `holder` has finished.
    pub fn wait(&self, waiter: StartWord, holder: StartWord) -> Result<()> {
        self.txns
            .wait_for(waiter, holder, self.timeout, self.cancelled)
    }
}
