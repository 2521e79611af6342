//! Bulk loads of the ordered methods: entries are collected, sorted, and entered in order.
//!
//! A load holds up to [`RUN_BYTES`] of entries, which are counted in the index's memory.

use crate::access_method::{AccessMethod, BulkLoad, Collision, KeyBytes};
use crate::sequences::{SequenceBuilder, integer_key};
use strandline_base::{Result, RowId, Value};

/// The maximum number of entries that a load sorts together.
const RUN_ENTRIES: usize = if cfg!(test) { 1000 } else { 1 << 20 };
/// The maximum bytes of these entries.
const RUN_BYTES: usize = 48 << 20;
/// Bytes that sorting takes per entry: its head with its position, then its slice.
const SORT_BYTES: usize = 32;

/// An index that takes sorted entries.
pub(crate) trait LoadTarget: AccessMethod {
    /// Appends the bytes of an entry.
    ///
    /// # Errors
    /// 54000 and the like if the index cannot hold it; the bytes behind the old end are dropped.
    fn put_entry(&self, key: &[Value], row: RowId, bytes: &mut Vec<u8>) -> Result<()>;

    /// Adds entries, which are sorted and distinct, unless they are there. Appends to `met`
    /// those that may not be alone under their key. An entry that was there counts, too: a load
    /// after a crash may find its own.
    fn enter(&self, entries: &[&[u8]], met: Option<&mut Vec<Vec<u8>>>) -> Result<()>;

    /// An entry's key and row; None if it is too short.
    fn parts<'e>(&self, entry: &'e [u8]) -> Option<(&'e [u8], RowId)>;

    /// A load's memory has changed, in bytes.
    fn account(&self, before: usize, after: usize);
}

/// A load of an index.
pub(crate) struct SortedLoad<'a, T: LoadTarget> {
    index: &'a T,
    run: Run,
    /// rows under the same key, to be reported; None: not looked for
    collisions: Option<Vec<Collision>>,
    sequences: SequenceBuilder,
    /// bytes that are counted in the index's memory
    counted: usize,
}

/// A run: the bytes of entries, one behind the other, and the begin of each.
#[derive(Default)]
struct Run {
    bytes: Vec<u8>,
    starts: Vec<u32>,
}

impl Run {
    fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.starts.capacity() * size_of::<u32>()
    }

    fn get(&self, at: usize) -> &[u8] {
        let end = self.starts.get(at + 1);
        let end = end.map_or(self.bytes.len(), |end| *end as usize);
        &self.bytes[self.starts[at] as usize..end]
    }

    /// The entries in order, each once. Most differ in the eight bytes behind their common prefix.
    fn sorted(&self) -> Vec<&[u8]> {
        let Some(first) = self.starts.first().map(|_| self.get(0)) else {
            return Vec::new();
        };
        let entries = || (0..self.starts.len()).map(|at| self.get(at));
        let common = entries().fold(first.len(), |common, entry| {
            let equal = first[..common].iter().zip(entry);
            equal.take_while(|(a, b)| a == b).count()
        });
        let head = |entry: &[u8]| {
            let (mut head, rest) = ([0; 8], &entry[common..]);
            let len = rest.len().min(8);
            head[..len].copy_from_slice(&rest[..len]);
            u64::from_be_bytes(head)
        };
        let mut order: Vec<(u64, u32)> = entries().map(head).zip(0..).collect();
        order.sort_unstable_by(|a, b| {
            let by_bytes = || self.get(a.1 as usize).cmp(self.get(b.1 as usize));
            a.0.cmp(&b.0).then_with(by_bytes)
        });
        let mut sorted: Vec<_> = order.iter().map(|(_, at)| self.get(*at as usize)).collect();
        sorted.dedup();
        sorted
    }
}

impl<'a, T: LoadTarget> SortedLoad<'a, T> {
    /// A load; if `is_unique`, it looks for rows under the same key.
    pub fn new(index: &'a T, is_unique: bool) -> Self {
        Self {
            index,
            run: Run::default(),
            collisions: is_unique.then(Vec::new),
            sequences: SequenceBuilder::default(),
            counted: 0,
        }
    }

    fn count(&mut self, bytes: usize) {
        self.index.account(self.counted, bytes);
        self.counted = bytes;
    }

    /// Adds the collected entries to the index.
    fn enter(&mut self) -> Result<()> {
        let run = std::mem::take(&mut self.run);
        self.count(run.memory_bytes() + run.starts.len() * SORT_BYTES);
        let mut met = self.collisions.is_some().then(Vec::new);
        let sorted = run.sorted();
        if !sorted.is_empty() {
            self.index.enter(&sorted, met.as_mut())?;
        }
        for entry in met.into_iter().flatten() {
            let Some((key, row)) = self.index.parts(&entry) else {
                continue;
            };
            let key = KeyBytes::encoded(key);
            let mut others = Vec::new();
            self.index.lookup(&key, &mut others)?;
            let own = others.iter().position(|other| *other == row);
            let own = own.map(|at| others.remove(at));
            if let (Some(row), false) = (own, others.is_empty()) {
                let collision = Collision { key, row, others };
                self.collisions.get_or_insert_default().push(collision);
            }
        }
        self.count(0);
        Ok(())
    }
}

impl<T: LoadTarget> BulkLoad for SortedLoad<'_, T> {
    fn push(&mut self, key: &[Value], row: RowId, _others: &mut Vec<RowId>) -> Result<()> {
        let run = &mut self.run;
        let start = run.bytes.len();
        if let Err(error) = self.index.put_entry(key, row, &mut run.bytes) {
            run.bytes.truncate(start);
            return Err(error);
        }
        run.starts.push(start as u32);
        if self.index.sequences().is_some() {
            self.sequences.push(integer_key(key), row);
        }
        if run.starts.len() >= RUN_ENTRIES || run.bytes.len() >= RUN_BYTES {
            self.enter()?;
        } else if run.starts.len().is_multiple_of(1 << 12) {
            let bytes = run.memory_bytes();
            self.count(bytes);
        }
        Ok(())
    }

    fn collisions(&mut self) -> Result<Vec<Collision>> {
        self.enter()?;
        let found = self.collisions.as_mut().map(std::mem::take);
        Ok(found.unwrap_or_default())
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        self.enter()?;
        // They come last, so that a row found by one always has its entry.
        if let Some(sequences) = self.index.sequences() {
            sequences.add(&std::mem::take(&mut self.sequences).finish());
        }
        Ok(())
    }
}

impl<T: LoadTarget> Drop for SortedLoad<'_, T> {
    fn drop(&mut self) {
        self.count(0);
    }
}
