//! The row map: for every row of an update range with unmerged updates, the newest tail record.
//! The papers' indirection column \[L-Store §2.2\] and LtoR table \[Indirection §2\].
//!
//! An entry is 0 (no tail record) or the record's sequence number modulo [`ENTRIES`], + 1; its top
//! bit is the latch of the write protocol \[L-Store §5.1.1\]. Readers ignore the latch bit: the
//! record below it is published before the entry names it.
//!
//! Sequence numbers have more bits than an entry, but the records that are in memory have far fewer
//! numbers: with the first one's number the entry tells the whole number, and entries whose
//! records are gone are cleared before their numbers come round (see `tail`). Wider entries would
//! miss the processor's caches more often.
//!
//! Invariants:
//! 1. Only the holder of the latch changes an entry.
//! 2. An entry is stored with Release after its record's start word, and loaded with Acquire.
//! 3. A latch is held for the time of one append, never over a wait for another transaction. It is
//!    released when its holder panics.
//! 4. The bit of a row whose entry is not 0 is set. It is set before the entry is stored with
//!    Release, so that a reader that must see the record sees the bit.
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
/// Numbers of records that have an entry of their own; tests come round soon.
pub(crate) const ENTRIES: u64 = if cfg!(shuttle) {
    61
} else if cfg!(test) {
    (1 << 14) - 1
} else {
    (1 << 31) - 1
};

/// Looks at a latch that somebody holds before a writer stops waiting, to see whether it still
/// should. An append takes less than a microsecond unless it reads base from the disk.
const LATCH_LOOKS: u32 = if cfg!(shuttle) { 64 } else { 1 << 14 };

type Group = Box<[AtomicU32; GROUP_ROWS]>;

/// A row map entry: the number of the row's newest tail record, modulo [`ENTRIES`].
/// [`TailPages::head`](crate::tail_pages::TailPages::head) completes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry(u32);

impl Entry {
    /// There is no tail record.
    pub const NONE: Self = Self(0);
    /// Of record `seq`.
    #[inline]
    pub(crate) fn of(seq: u64) -> Self {
        Self((seq % ENTRIES) as u32 + 1)
    }
    /// How far behind the record of `first` this one's is; None if there is no record.
    #[inline]
    pub(crate) fn behind(self, first: Self) -> Option<u64> {
        let steps = match self.0.checked_sub(first.0) {
            _ if self == Self::NONE => return None,
            Some(steps) => steps,
            None => ENTRIES as u32 - (first.0 - self.0),
        };
        Some(u64::from(steps))
    }
}

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
    /// An empty map; its later growth is added to `memory`.
    pub(crate) fn new(memory: PageMemory) -> Self {
        Self {
            updated: std::array::from_fn(|_| AtomicU64::new(0)),
            groups: std::array::from_fn(|_| OnceLock::new()),
            memory,
        }
    }

    /// Bytes that it and its tail hold, pages not counted.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.memory.own()
    }

    /// The newest record of `slot`. Load the pages afterwards.
    #[inline]
    pub fn entry(&self, slot: usize) -> Entry {
        let updated = self.updated[slot / WORD_ROWS].load(Ordering::Relaxed);
        if updated >> (slot % WORD_ROWS) & 1 == 0 {
            return Entry::NONE;
        }
        match self.groups[slot / GROUP_ROWS].get() {
            Some(group) => Entry(group[slot % GROUP_ROWS].load(Ordering::Acquire) & !LATCH),
            None => Entry::NONE,
        }
    }

    #[cold]
    fn new_group(&self) -> Group {
        self.memory.add(size_of::<[AtomicU32; GROUP_ROWS]>());
        Box::new(std::array::from_fn(|_| AtomicU32::new(0)))
    }

    /// Takes the latch of `slot`. Spins, because holders never wait for another transaction; None
    /// if a thread holds it for long all the same, for example because of a slow disk.
    #[inline]
    pub fn latch(&self, slot: usize) -> Option<LatchGuard<'_>> {
        let group = self.groups[slot / GROUP_ROWS].get_or_init(|| self.new_group());
        let entry = &group[slot % GROUP_ROWS];
        for look in 1..=LATCH_LOOKS {
            let seen = entry.load(Ordering::Relaxed);
            if seen & LATCH == 0
                && entry
                    .compare_exchange(seen, seen | LATCH, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            {
                return Some(LatchGuard {
                    entry,
                    updated: &self.updated[slot / WORD_ROWS],
                    bit: 1 << (slot % WORD_ROWS),
                    entry_now: Entry(seen),
                });
            }
            if look.is_multiple_of(64) {
                yield_now();
            } else {
                spin_loop();
            }
        }
        None
    }
}

/// A latched entry; released unchanged on drop.
pub struct LatchGuard<'a> {
    entry: &'a AtomicU32,
    updated: &'a AtomicU64,
    bit: u64,
    entry_now: Entry,
}

impl LatchGuard<'_> {
    /// The entry when the latch was taken.
    pub fn entry(&self) -> Entry {
        self.entry_now
    }
    /// Releases the latch of a row whose newest record is done with.
    pub(crate) fn clear(mut self) {
        self.entry_now = Entry::NONE;
    }
    /// Releases the latch with record `seq`, already published, as the new head.
    pub fn publish(mut self, seq: u64) {
        if self.updated.load(Ordering::Relaxed) & self.bit == 0 {
            self.updated.fetch_or(self.bit, Ordering::Relaxed);
        }
        self.entry_now = Entry::of(seq);
    }
}

impl Drop for LatchGuard<'_> {
    fn drop(&mut self) {
        self.entry.store(self.entry_now.0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page_memory::PageBytes;

    fn empty(bytes: &PageBytes) -> RowMap {
        RowMap::new(PageMemory::new(bytes, 0))
    }

    fn latch(map: &RowMap, slot: usize) -> LatchGuard<'_> {
        map.latch(slot).expect("nobody holds it")
    }

    #[test]
    fn heads_are_kept_per_slot_and_latches_release() {
        let bytes = PageBytes::default();
        let map = empty(&bytes);
        assert_eq!(map.entry(0), Entry::NONE);
        assert_eq!(bytes.used(), 0);
        latch(&map, 5).publish(41);
        assert_eq!(map.entry(5), Entry(42));
        drop(latch(&map, 5));
        assert_eq!(map.entry(5), Entry(42));
        assert_eq!([map.entry(4), map.entry(5 + WORD_ROWS)], [Entry::NONE; 2]);
        latch(&map, UPDATE_ROWS - 1).publish(0);
        assert_eq!(map.entry(UPDATE_ROWS - 1), Entry(1));
        assert_eq!(bytes.used(), 2 * 4 * GROUP_ROWS);
        drop(map);
        assert_eq!(bytes.used(), 0);
    }

    #[test]
    fn a_latch_that_is_held_is_not_waited_for_for_ever() {
        let map = empty(&PageBytes::default());
        let held = latch(&map, 5);
        assert!(map.latch(5).is_none());
        assert!(map.latch(6).is_some());
        drop(held);
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _held = latch(&map, 5);
            panic!("the holder's append");
        }));
        assert!(caught.is_err() && map.latch(5).is_some(), "released");
    }

    #[test]
    fn the_latch_excludes() {
        let map = empty(&PageBytes::default());
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    for _ in 0..1000 {
                        let latch = loop {
                            if let Some(latch) = map.latch(7) {
                                break latch;
                            }
                        };
                        let next = latch.entry().0;
                        latch.publish(u64::from(next)); // its entry is one more
                    }
                });
            }
        });
        assert_eq!(map.entry(7), Entry(4000));
    }
}
