//! Hints of the rows that have the keys of a unique index: a short cut past a tree.
//!
//! A hint is a row number under the hash of a key. It may be wrong, or gone: the row's values prove
//! it. A row that a reader sees with the key is the only one, since no reader sees two rows with
//! one key of a unique index. So the index is not asked. A constraint that is deferrable has no
//! hints: a transaction may see two rows of a key until it checks the constraint.
//!
//! Invariants:
//! 1. A hint is used only if the reader sees the row with this key.
//! 2. A slot holds one number. Its readers and writers need no order among themselves.
//! 3. The bytes are counted as indexes' memory.
//!
//! A key's hint is in one of the eight slots of a bucket, which is a cache line. A full bucket
//! replaces one of them. The table begins small. When it has replaced an eighth as many hints as it
//! has slots, an empty one of four times the size takes its place, while there is memory for it. So
//! few looks are wasted until all keys that are read have room. The hints of the table before are
//! found until the next one comes.

use arc_swap::ArcSwap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering}; // hints and counters; no protocol
use strandline_base::{RowId, Value};
use strandline_index::hash_key;

/// Slots of a bucket.
const BUCKET_SLOTS: usize = 8;
/// Buckets of the first table: 2 KiB.
const BUCKETS_MIN: usize = 32;
/// Bits of a row number that a slot holds; the others are a tag from the key's hash.
const ROW_BITS: u32 = 48;
const ROW_MASK: u64 = (1 << ROW_BITS) - 1;
/// The slot of no hint. The row of this number, the last one of all, has no hints.
const NONE: u64 = ROW_MASK;

/// The slots of the hashes with the same low bits.
#[repr(align(64))]
struct Bucket([AtomicU64; BUCKET_SLOTS]);

const _: () = assert!(size_of::<Bucket>() == 64);

impl Bucket {
    fn new() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(NONE)))
    }

    /// A slot with the tag of a hash, and its hint.
    #[inline]
    fn find(&self, hash: u64) -> Option<(&AtomicU64, u64)> {
        let slots = self.0.iter();
        let mut hints = slots.map(|slot| (slot, slot.load(Ordering::Relaxed)));
        hints.find(|(_, hint)| *hint != NONE && (hint ^ hash) & !ROW_MASK == 0)
    }
}

struct Table {
    buckets: Arc<[Bucket]>,
    /// those of the table before
    before: Arc<[Bucket]>,
    /// hints of other keys that were replaced
    replaced: AtomicUsize,
}

impl Table {
    fn new(buckets: usize, before: Arc<[Bucket]>) -> Self {
        Self {
            buckets: (0..buckets).map(|_| Bucket::new()).collect(),
            before,
            replaced: AtomicUsize::new(0),
        }
    }

    /// The hint of a hash.
    #[inline]
    fn find(&self, hash: u64) -> Option<u64> {
        let found = |buckets| Some(bucket(buckets, hash)?.find(hash)?.1);
        found(&self.buckets).or_else(|| found(&self.before))
    }

    fn bytes_of(buckets: usize) -> usize {
        buckets * size_of::<Bucket>()
    }

    fn bytes(&self) -> usize {
        Self::bytes_of(self.buckets.len() + self.before.len())
    }
}

/// The bucket of a hash: its low bits choose it. The number of buckets is a power of two, or 0.
#[inline]
fn bucket(buckets: &[Bucket], hash: u64) -> Option<&Bucket> {
    buckets.get(hash as usize & buckets.len().wrapping_sub(1))
}

/// The hints of one index; see the module's documentation.
pub(crate) struct KeyHints {
    table: ArcSwap<Table>,
    /// bytes that indexes use
    memory: Arc<AtomicUsize>,
}

impl KeyHints {
    /// No hints; their bytes are counted in `memory`.
    pub fn counted(memory: Arc<AtomicUsize>) -> Self {
        Self {
            table: ArcSwap::from_pointee(Table::new(0, Arc::default())),
            memory,
        }
    }

    /// A row that may have this key.
    #[inline]
    pub fn get(&self, key: &[Value]) -> Option<RowId> {
        let table = self.table.load();
        if table.buckets.is_empty() {
            return None;
        }
        let hint = table.find(hash_key(key))?;
        Some(RowId(hint & ROW_MASK))
    }

    /// A row of this key. The table may grow while all indexes use less than `memory_max` bytes.
    pub fn put(&self, key: &[Value], row: RowId, memory_max: usize) {
        let hash = hash_key(key);
        let hint = (hash & !ROW_MASK) | row.0;
        if row.0 >= NONE {
            return;
        }
        let table = self.table.load();
        let Some(bucket) = bucket(&table.buckets, hash) else {
            return self.grow(&table, memory_max);
        };
        if let Some((slot, _)) = bucket.find(hash) {
            slot.store(hint, Ordering::Relaxed);
            return;
        }
        let mut slots = bucket.0.iter();
        if let Some(free) = slots.find(|slot| slot.load(Ordering::Relaxed) == NONE) {
            free.store(hint, Ordering::Relaxed);
            return;
        }
        let replaced = table.replaced.fetch_add(1, Ordering::Relaxed) + 1;
        if let Some(slot) = bucket.0.get(replaced % BUCKET_SLOTS) {
            slot.store(hint, Ordering::Relaxed);
        }
        if replaced.is_multiple_of(table.buckets.len()) {
            self.grow(&table, memory_max);
        }
    }

    #[cold]
    fn grow(&self, known: &Arc<Table>, memory_max: usize) {
        let buckets = (known.buckets.len() * 4).max(BUCKETS_MIN);
        let used = self.memory.load(Ordering::Relaxed);
        if used + Table::bytes_of(buckets) > memory_max {
            return;
        }
        let next = Arc::new(Table::new(buckets, known.buckets.clone()));
        let before = self.table.compare_and_swap(known, next.clone());
        if Arc::ptr_eq(&before, known) {
            let grown = next.bytes().wrapping_sub(known.bytes());
            self.memory.fetch_add(grown, Ordering::Relaxed);
        }
    }
}

impl Drop for KeyHints {
    fn drop(&mut self) {
        let bytes = self.table.load().bytes();
        self.memory.fetch_sub(bytes, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    fn key(k: i64) -> [Value; 1] {
        [Value::from(format!("key {k}"))]
    }

    #[test]
    fn a_hint_is_found_under_its_key_alone_and_the_last_one_counts() {
        let hints = KeyHints::counted(Arc::default());
        assert_eq!(hints.get(&key(1)), None, "none");
        hints.put(&key(1), RowId(7), usize::MAX);
        assert_eq!(hints.get(&key(1)), None, "the first one makes the table");
        hints.put(&key(1), RowId(7), usize::MAX);
        assert_eq!(hints.get(&key(1)), Some(RowId(7)));
        hints.put(&key(1), RowId(8), usize::MAX);
        assert_eq!(hints.get(&key(1)), Some(RowId(8)));
        let others = (2..10_000).filter(|k| hints.get(&key(*k)).is_some());
        assert!(others.count() < 10, "the tag keeps other keys apart");
        // The numbers at the ends.
        hints.put(&key(1), RowId(0), usize::MAX);
        assert_eq!(hints.get(&key(1)), Some(RowId(0)));
        hints.put(&key(1), RowId(NONE), usize::MAX);
        assert_eq!(hints.get(&key(1)), Some(RowId(0)), "the last row has none");
        hints.put(&key(1), RowId(NONE - 1), usize::MAX);
        assert_eq!(hints.get(&key(1)), Some(RowId(NONE - 1)));
    }

    #[test]
    fn a_larger_table_finds_what_the_one_before_has() {
        let hints = KeyHints::counted(Arc::default());
        let buckets = || hints.table.load().buckets.len();
        let mut keys = 0;
        let mut put = || {
            hints.put(&key(keys), RowId(keys as u64), usize::MAX);
            keys += 1;
        };
        put();
        while buckets() == BUCKETS_MIN {
            put();
        }
        let known = (0..keys).filter(|k| hints.get(&key(*k)) == Some(RowId(*k as u64)));
        // The first one made the table; others have replaced as many as it has buckets.
        assert!(
            known.count() >= keys as usize - 1 - BUCKETS_MIN,
            "of {keys}"
        );
    }

    #[test]
    fn the_table_grows_with_the_keys_and_only_within_the_memory() {
        let memory = Arc::new(AtomicUsize::new(0));
        let hints = KeyHints::counted(memory.clone());
        let known = |n: i64| (0..n).filter(|k| hints.get(&key(*k)) == Some(RowId(*k as u64)));
        let most = 1 << 16;
        for _ in 0..20 {
            (0..1000).for_each(|k| hints.put(&key(k), RowId(k as u64), most));
        }
        assert!(known(1000).count() > 700, "{}", known(1000).count());
        for _ in 0..20 {
            (0..100_000).for_each(|k| hints.put(&key(k), RowId(k as u64), most));
        }
        let bytes = memory.load(Ordering::Relaxed);
        assert!((most / 2..=most).contains(&bytes), "{bytes}");
        drop(hints);
        assert_eq!(memory.load(Ordering::Relaxed), 0);
    }
}
