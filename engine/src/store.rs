//! A storage with its key indexes and the lock that lets DDL wait for writers.
//!
//! Order: a definition change that waits for the writers lets no further writer in, so that a
//! stream of them cannot keep it waiting; those who hold the storage already go on. A newcomer
//! waits for the change's transaction until that ends or gives up its claim (at its `lock_timeout`,
//! say). As it waits in the wait-for graph like anyone, a cycle through it is a deadlock.
//!
//! Lock order: the wait-for graph → `holders`, which is held only to look and to register, never
//! while waiting.

use crate::catalog::TableDef;
use crate::key_sweep::KeySweep;
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use strandline_base::{ColumnId, CommitTs, RangeNo, Result, StorageId, Value};
use strandline_index::{HashIndex, KeyIndex, KeySequences, hash_key};
use strandline_table::lineage::{Lineage, Shared};
use strandline_tail::schema::StorageSchema;
use strandline_txn::{Looks, StartWord, TxnManager, WaitLimits};

/// The index of one PRIMARY KEY or UNIQUE constraint.
pub struct KeyColumns {
    /// the key's columns in order
    pub columns: Vec<ColumnId>,
    /// hash of the key → rows that have or had it
    pub index: Arc<dyn KeyIndex>,
    /// a short cut for keys that are serial numbers
    pub sequences: KeySequences,
    /// a row may have, or have had, another key than that of an entry
    moved: AtomicBool,
    /// entries that may go
    pub(crate) sweep: KeySweep,
}

impl KeyColumns {
    /// Whether some row may have changed its key since it was inserted.
    pub fn rows_may_have_moved(&self) -> bool {
        self.moved.load(Ordering::Acquire)
    }
    /// A row is about to change its key, or has done so before the index was made.
    pub fn note_moved(&self) {
        self.moved.store(true, Ordering::Release);
    }
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

/// How a transaction holds a storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// beside other writers
    Writer,
    /// alone, to change the definition of its table or because it has made the storage
    Alone,
}

#[derive(Default)]
struct Holders {
    writers: Vec<StartWord>,
    exclusive: Option<StartWord>,
    /// who waits to become exclusive, and lets no new writer in meanwhile
    claimant: Option<StartWord>,
}

impl Holders {
    /// Who keeps `word` from becoming a writer.
    fn before_writer(&self, word: StartWord) -> Option<StartWord> {
        if self.writers.contains(&word) {
            return None;
        }
        let first = self.exclusive.or(self.claimant);
        first.filter(|holder| *holder != word)
    }
    /// Who keeps `word` from holding the storage alone.
    fn before_exclusive(&self, word: StartWord) -> Option<StartWord> {
        let others = self.exclusive.iter().chain(&self.claimant);
        let mut others = others.chain(&self.writers);
        others.find(|holder| **holder != word).copied()
    }
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
                exclusive: holder,
                ..Holders::default()
            }),
            kept_from: AtomicU64::new(0),
            unlisted: Mutex::default(),
        };
        for key in &table.keys {
            store.put_key(store.empty_key(key.columns.clone()));
        }
        Arc::new(store)
    }

    /// The storage's id.
    pub fn id(&self) -> StorageId {
        self.lineage.id()
    }

    /// An index with nothing in it. Its memory is taken from the cache's.
    pub fn empty_key(&self, columns: Vec<ColumnId>) -> Arc<KeyColumns> {
        let memory = self.lineage.cache().taken_bytes().clone();
        Arc::new(KeyColumns {
            columns,
            index: Arc::new(HashIndex::counted(memory)),
            sequences: KeySequences::default(),
            moved: AtomicBool::new(false),
            sweep: KeySweep::default(),
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
        // Whoever still holds one that is replaced is not told any more when a key changes.
        for replaced in keys.extract_if(.., |k| k.columns == key.columns) {
            replaced.note_moved();
        }
        keys.push(key);
        self.keys.store(Arc::new(keys));
    }

    /// Registers `word` as a writer until [`Store::release`]; waits for a definition change, and
    /// for one that waits itself.
    pub fn lock_shared(&self, word: StartWord, waiting: &Waiting<'_>) -> Result<()> {
        let mut looks = Looks::default();
        loop {
            let holder = {
                let mut holders = self.holders.lock();
                let Some(holder) = holders.before_writer(word) else {
                    if !holders.writers.contains(&word) {
                        holders.writers.push(word);
                    }
                    return Ok(());
                };
                holder
            };
            let is_in_the_way = || self.holders.lock().before_writer(word) == Some(holder);
            waiting.wait_for_release(word, holder, &is_in_the_way, &mut looks)?;
        }
    }

    /// Takes the storage for a definition change: waits until no other transaction writes it.
    pub fn lock_exclusive(&self, word: StartWord, waiting: &Waiting<'_>) -> Result<()> {
        let mut looks = Looks::default();
        loop {
            let holder = {
                let mut holders = self.holders.lock();
                let Some(holder) = holders.before_exclusive(word) else {
                    holders.exclusive = Some(word);
                    holders.claimant = None;
                    return Ok(());
                };
                holders.claimant.get_or_insert(word);
                holder
            };
            let is_in_the_way = || self.holders.lock().before_exclusive(word) == Some(holder);
            if let Err(error) = waiting.wait_for_release(word, holder, &is_in_the_way, &mut looks) {
                self.give_up_claim(word);
                return Err(error);
            }
        }
    }

    fn give_up_claim(&self, word: StartWord) {
        let mut holders = self.holders.lock();
        holders.claimant.take_if(|claimant| *claimant == word);
    }

    /// Ends what `word` holds. The caller's transaction has finished: whoever waits for it wakes.
    pub fn release(&self, word: StartWord) {
        let mut holders = self.holders.lock();
        holders.writers.retain(|w| *w != word);
        holders.exclusive.take_if(|holder| *holder == word);
        holders.claimant.take_if(|claimant| *claimant == word);
    }

    /// Ends one hold of `word`, which goes on and keeps its others.
    pub fn release_hold(&self, word: StartWord, hold: Hold) {
        let mut holders = self.holders.lock();
        match hold {
            Hold::Writer => holders.writers.retain(|w| *w != word),
            Hold::Alone => drop(holders.exclusive.take_if(|holder| *holder == word)),
        }
    }

    /// Whether a transaction is registered.
    pub fn is_held(&self) -> bool {
        let holders = self.holders.lock();
        holders.exclusive.is_some() || !holders.writers.is_empty()
    }

    /// Whether `word` has changed the definition, or has made the storage.
    pub fn is_exclusive_to(&self, word: StartWord) -> bool {
        self.holders.lock().exclusive == Some(word)
    }

    /// Whether a definition change waits for the writers.
    #[cfg(test)]
    pub fn is_claimed(&self) -> bool {
        self.holders.lock().claimant.is_some()
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
    /// Waits until `holder` has finished, is not `in_the_way` any more, or may have let go of what
    /// is wanted: called in a loop that looks, with the same `looks`.
    pub fn wait_while(
        &self,
        waiter: StartWord,
        holder: StartWord,
        in_the_way: &dyn Fn() -> bool,
        looks: &mut Looks,
    ) -> Result<()> {
        let limits = WaitLimits {
            timeout: self.timeout,
            cancelled: self.cancelled,
            in_the_way,
        };
        self.txns.wait_while(waiter, holder, &limits, looks)
    }

    /// As [`Waiting::wait_while`], and if `holder` has finished, until it is not `in_the_way` any
    /// more: it lets go of what it holds after its end.
    pub fn wait_for_release(
        &self,
        waiter: StartWord,
        holder: StartWord,
        in_the_way: &dyn Fn() -> bool,
        looks: &mut Looks,
    ) -> Result<()> {
        self.wait_while(waiter, holder, in_the_way, looks)?;
        if self.txns.is_unfinished(holder) {
            return Ok(());
        }
        self.txns.wait_for_release(&WaitLimits {
            timeout: self.timeout,
            cancelled: self.cancelled,
            in_the_way,
        })
    }
}
