//! The row map: for every row of an update range with unmerged updates, the newest tail record.
//! The papers' indirection column \[L-Store §2.2\] and LtoR table \[Indirection §2\].
//!
//! An entry is 0 (no tail record) or the record's sequence number + 1; its top bit is the latch of
//! the write protocol \[L-Store §5.1.1\]. Readers ignore the latch bit: the record below it is
//! published before the entry names it.
//!
//! Invariants:
//! 1. Only the holder of the latch changes an entry.
//! 2. An entry is stored with Release after its record's start word, and loaded with Acquire.
//! 3. A latch is held for the time of one append, never over a wait.
//! 4. The bit of a row whose entry is not 0 is set. It is set before the entry is stored with
//!    Release, so that who has to see the record sees the bit.
//!
//! Most rows of a large table have no entry: their bits say so in a 32nd of the memory, which stays
//! in the processor's caches. That spares cold point reads one of their two misses.
//!
//! Differences from the paper: the map exists only for update ranges that have a live tail, in
//! groups of 512 rows allocated on first use; it is memory-only and rebuilt from log and runs.
//!
//! Smaller groups would lie scattered over as many pages of memory, and looking one up would miss
//! the processor's table of pages (TLB) as well as its caches: with 64 rows that was more than half
//! of a point read's chain. The groups' addresses stand in the tail itself.

use crate::page_memory::PageMemory;
use strandline_base::UPDATE_ROWS;
use strandline_base::sync::{AtomicU32, AtomicU64, OnceLock, Ordering, spin_loop, yield_now};

const GROUP_ROWS: usize = 512;
const GROUPS: usize = UPDATE_ROWS / GROUP_ROWS;
const WORD_ROWS: usize = u64::BITS as usize;
const LATCH: u32 = 1 << 31;

type Group = Box<[AtomicU32; GROUP_ROWS]>;

/// The row map slice of one update range.
#[doc(alias("indirection column", "LtoR"))]
#[derive(Debug)]
pub struct RowMap {
    /// a bit per row: whether it may have an entry
    updated: [AtomicU64; UPDATE_ROWS / WORD_ROWS],
    groups: [OnceLock<Group>; GROUPS],
    memory: PageMemory,
}

impl RowMap {
    /// An empty map; what it comes to hold is added to `memory`.
    pub(crate) fn new(memory: PageMemory) -> Self {
        Self {
            updated: std::array::from_fn(|_| AtomicU64::new(0)),
            groups: std::array::from_fn(|_| OnceLock::new()),
            memory,
        }
    }

    /// The newest record of `slot`: sequence number + 1, or 0.
    #[inline]
    pub fn head(&self, slot: usize) -> u32 {
        let updated = self.updated[slot / WORD_ROWS].load(Ordering::Relaxed);
        if updated >> (slot % WORD_ROWS) & 1 == 0 {
            return 0;
        }
        match self.groups[slot / GROUP_ROWS].get() {
            Some(group) => group[slot % GROUP_ROWS].load(Ordering::Acquire) & !LATCH,
            None => 0,
        }
    }

    #[cold]
    fn new_group(&self) -> Group {
        self.memory.add(size_of::<[AtomicU32; GROUP_ROWS]>());
        Box::new(std::array::from_fn(|_| AtomicU32::new(0)))
    }

    /// Takes the latch of `slot` and returns its head. Spins: holders never wait for anything.
    #[inline]
    pub fn latch(&self, slot: usize) -> LatchGuard<'_> {
        let group = self.groups[slot / GROUP_ROWS].get_or_init(|| self.new_group());
        let entry = &group[slot % GROUP_ROWS];
        let mut spins = 0u32;
        loop {
            let seen = entry.load(Ordering::Relaxed);
            if seen & LATCH == 0
                && entry
                    .compare_exchange(seen, seen | LATCH, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            {
                return LatchGuard {
                    entry,
                    updated: &self.updated[slot / WORD_ROWS],
                    bit: 1 << (slot % WORD_ROWS),
                    head: seen,
                };
            }
            spins += 1;
            if spins.is_multiple_of(64) {
                yield_now();
            } else {
                spin_loop();
            }
        }
    }
}

/// A latched entry; released unchanged on drop.
pub struct LatchGuard<'a> {
    entry: &'a AtomicU32,
    updated: &'a AtomicU64,
    bit: u64,
    head: u32,
}

impl LatchGuard<'_> {
    /// The head when the latch was taken: sequence number + 1, or 0.
    pub fn head(&self) -> u32 {
        self.head
    }
    /// Releases the latch with record `seq`, already published, as the new head.
    pub fn publish(mut self, seq: u32) {
        if self.updated.load(Ordering::Relaxed) & self.bit == 0 {
            self.updated.fetch_or(self.bit, Ordering::Relaxed);
        }
        self.head = seq + 1;
    }
}

impl Drop for LatchGuard<'_> {
    fn drop(&mut self) {
        self.entry.store(self.head, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page_memory::PageBytes;

    fn empty(bytes: &PageBytes) -> RowMap {
        RowMap::new(PageMemory::new(bytes, 0))
    }

    #[test]
    fn heads_are_kept_per_slot_and_latches_release() {
        let bytes = PageBytes::default();
        let map = empty(&bytes);
        assert_eq!(map.head(0), 0);
        assert_eq!(bytes.used(), 0);
        map.latch(5).publish(41);
        assert_eq!(map.head(5), 42);
        drop(map.latch(5));
        assert_eq!(map.head(5), 42);
        assert_eq!([map.head(4), map.head(5 + WORD_ROWS)], [0, 0]);
        map.latch(UPDATE_ROWS - 1).publish(0);
        assert_eq!(map.head(UPDATE_ROWS - 1), 1);
        assert_eq!(bytes.used(), 2 * 4 * GROUP_ROWS);
        drop(map);
        assert_eq!(bytes.used(), 0);
    }

    #[test]
    fn the_latch_excludes() {
        let map = empty(&PageBytes::default());
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    for _ in 0..1000 {
                        let latch = map.latch(7);
                        let head = latch.head();
                        latch.publish(head); // head + 1
                    }
                });
            }
        });
        assert_eq!(map.head(7), 4000);
    }
}
