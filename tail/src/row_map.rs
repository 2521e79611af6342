//! The row map: for every row of an update range with unmerged updates, the newest tail record.
//! The papers' indirection column \[L-Store §2.2\] and LtoR table \[Indirection §2\].
//!
//! An entry is 0 (no tail record) or the record's sequence number modulo [`ENTRIES`], + 1; its top
//! bit is the latch of the write protocol \[L-Store §5.1.1\]. Readers ignore the latch bit: the
//! record below it is published before the entry names it.
//!
//! The first updated rows of a group of 512 share one cache line, [`FewRows`]: updates that are
//! spread over a large table would take 2 KiB each otherwise. Once the line is full, the other rows
//! of the group have entries in an array. A row's entry never moves: the array says [`AMONG_FEW`]
//! for the rows of the line.
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
//! 5. A row takes the first free place of its group's line, and keeps it. So a row has one place,
//!    and a full line never changes its rows. The array is made after that.
//!
//! Most rows of a large table have no entry: their bits say so in a 32nd of the memory, which stays
//! in the processor's caches. That spares cold point reads one of their two misses.
//!
//! Differences from the paper: the map exists only for update ranges that have a live tail, in
//! groups of 512 rows allocated on use; it is memory-only and rebuilt from log and runs.
//!
//! Smaller groups would lie scattered over as many pages of memory, and looking one up would miss
//! the processor's table of pages (TLB) as well as its caches: with 64 rows that was more than half
//! of a point read's chain. The groups' addresses stand in the tail itself.

use crate::page_memory::PageMemory;
use strandline_base::UPDATE_ROWS;
use strandline_base::sync::{
    AtomicU16, AtomicU32, AtomicU64, OnceLock, Ordering, spin_loop, yield_now,
};

const GROUP_ROWS: usize = 512;
const GROUPS: usize = UPDATE_ROWS / GROUP_ROWS;
const WORD_ROWS: usize = u64::BITS as usize;
const LATCH: u32 = 1 << 31;
/// Places of a group's line: they fill 64 bytes. Models need lines that fill.
const FEW: usize = if cfg!(shuttle) { 2 } else { 10 };
/// In a group's array: the row's entry is in the line. No entry has this value.
const AMONG_FEW: u32 = LATCH - 1;
/// Numbers of records that have an entry of their own; tests come round soon.
pub(crate) const ENTRIES: u64 = if cfg!(shuttle) {
    61
} else if cfg!(test) {
    (1 << 14) - 1
} else {
    (1 << 31) - 2
};

/// Looks at a latch that somebody holds before a writer stops waiting, to see whether it still
/// should. An append takes less than a microsecond unless it reads base from the disk.
const LATCH_LOOKS: u32 = if cfg!(shuttle) { 64 } else { 1 << 14 };

/// Entries of the first updated rows of a group.
#[derive(Debug, Default)]
#[repr(align(64))]
struct FewRows {
    entries: [AtomicU32; FEW],
    /// a row's place in the group + 1; 0: the place is free
    rows: [AtomicU16; FEW],
}

impl FewRows {
    /// The entry of row `at` of the group, if it has a place here.
    #[inline]
    fn find(&self, at: usize) -> Option<&AtomicU32> {
        let wanted = at as u16 + 1;
        let is_row = |row: &AtomicU16| row.load(Ordering::Acquire) == wanted;
        self.rows.iter().position(is_row).map(|i| &self.entries[i])
    }
    /// As [`FewRows::find`]; the row gets a place if one is free.
    fn find_or_take(&self, at: usize) -> Option<&AtomicU32> {
        let wanted = at as u16 + 1;
        let is_row = |row: &AtomicU16| {
            let taken = row.compare_exchange(0, wanted, Ordering::AcqRel, Ordering::Acquire);
            taken.is_ok() || taken == Err(wanted)
        };
        self.rows.iter().position(is_row).map(|i| &self.entries[i])
    }
}

type ManyRows = [AtomicU32; GROUP_ROWS];

/// The entries of a group of rows.
#[derive(Debug, Default)]
struct Group {
    few: OnceLock<Box<FewRows>>,
    many: OnceLock<Box<ManyRows>>,
}

impl Group {
    /// The entry of row `at` of the group, if it has one.
    #[inline]
    fn find(&self, at: usize) -> Option<&AtomicU32> {
        if let Some(many) = self.many.get() {
            let entry = &many[at];
            if entry.load(Ordering::Relaxed) != AMONG_FEW {
                return Some(entry);
            }
        }
        self.few.get()?.find(at)
    }
    /// As [`Group::find`]; the row gets an entry, counted in `memory`.
    #[inline]
    fn find_or_take(&self, at: usize, memory: &PageMemory) -> &AtomicU32 {
        match self.many.get().map(|many| &many[at]) {
            Some(entry) if entry.load(Ordering::Relaxed) != AMONG_FEW => entry,
            _ => self.take(at, memory),
        }
    }
    fn take(&self, at: usize, memory: &PageMemory) -> &AtomicU32 {
        let few = self.few.get_or_init(|| {
            memory.add(size_of::<FewRows>());
            Box::default()
        });
        if let Some(entry) = few.find_or_take(at) {
            return entry;
        }
        let many = self.many.get_or_init(|| {
            memory.add(size_of::<ManyRows>());
            let many = Box::new(std::array::from_fn(|_| AtomicU32::new(0)));
            for row in &few.rows {
                let at = usize::from(row.load(Ordering::Relaxed)) - 1;
                many[at].store(AMONG_FEW, Ordering::Relaxed);
            }
            many
        });
        &many[at]
    }
}

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
    groups: [Group; GROUPS],
    memory: PageMemory,
}

impl RowMap {
    /// An empty map; its later growth is added to `memory`.
    pub(crate) fn new(memory: PageMemory) -> Self {
        Self {
            updated: std::array::from_fn(|_| AtomicU64::new(0)),
            groups: Default::default(),
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
        match self.groups[slot / GROUP_ROWS].find(slot % GROUP_ROWS) {
            Some(entry) => Entry(entry.load(Ordering::Acquire) & !LATCH),
            None => Entry::NONE,
        }
    }

    /// Takes the latch of `slot`. Spins, because holders never wait for another transaction; None
    /// if a thread holds it for long all the same, for example because of a slow disk.
    #[inline]
    pub fn latch(&self, slot: usize) -> Option<LatchGuard<'_>> {
        let group = &self.groups[slot / GROUP_ROWS];
        let entry = group.find_or_take(slot % GROUP_ROWS, &self.memory);
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

    /// Adds one to the entry of a row, whose latch other threads take too.
    fn add_one(map: &RowMap, row: usize) {
        let latch = loop {
            if let Some(latch) = map.latch(row) {
                break latch;
            }
        };
        let next = latch.entry().0;
        latch.publish(u64::from(next)); // its entry is one more
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
        assert_eq!(bytes.used(), 2 * 64);
        drop(map);
        assert_eq!(bytes.used(), 0);
    }

    #[test]
    fn a_group_with_many_rows_keeps_the_entries_of_its_first_ones() {
        let bytes = PageBytes::default();
        let map = empty(&bytes);
        let held = latch(&map, 21);
        let is_updated = |row: &usize| (GROUP_ROWS - 1 - row).is_multiple_of(3);
        for row in (0..GROUP_ROWS).rev().filter(is_updated) {
            latch(&map, row).publish(row as u64);
        }
        assert_eq!(bytes.used(), 64 + 4 * GROUP_ROWS);
        held.publish(99);
        for row in 0..GROUP_ROWS {
            let expected = match row {
                21 => Entry(100),
                row if is_updated(&row) => Entry(row as u32 + 1),
                _ => Entry::NONE,
            };
            assert_eq!(map.entry(row), expected, "row {row}");
            latch(&map, row).clear();
            assert_eq!(map.entry(row), Entry::NONE);
        }
    }

    #[test]
    fn threads_give_a_row_one_entry() {
        for _ in 0..100 {
            let map = empty(&PageBytes::default());
            let add_to_all = || (0..2 * FEW).for_each(|row| add_one(&map, row));
            std::thread::scope(|s| {
                (0..4).for_each(|_| drop(s.spawn(add_to_all)));
            });
            let entries: Vec<_> = (0..2 * FEW).map(|row| map.entry(row)).collect();
            assert_eq!(entries, [Entry(4); 2 * FEW]);
        }
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
                s.spawn(|| (0..1000).for_each(|_| add_one(&map, 7)));
            }
        });
        assert_eq!(map.entry(7), Entry(4000));
    }
}
