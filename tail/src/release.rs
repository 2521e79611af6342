//! The memory of rolled-back writers, given back without a merge.
//!
//! A merge frees the tail pages of commits that it has put into base. Records of a rolled-back
//! transaction are tombstones at once, but no merge frees them, since there is nothing to merge. So
//! a rollback releases them itself. A release publishes the same base again, as a base state of its
//! own, and retires on the old one the memory that the tails no longer need, as a merge does:
//!
//! * A tail with nothing but tombstones and merged records leaves the range.
//! * Of a tail with other records, pages that are done with at the front go, and so do pages of
//!   tombstones between others. The last page stays: records are appended to it.
//!
//! Invariants:
//! 1. A page is released from between others only if all its records are tombstones, it is full,
//!    and no row map entry and no chain from an entry leads into it. Entries that did are set to
//!    the row's newest record that is not a tombstone, under the row's latch. No later record
//!    points into the page: an appender that takes the latch later skips tombstones, starting from
//!    an entry or a record that does not lead there.
//! 2. A reader that may have loaded an entry before it was changed holds the old base: the page
//!    stays in the list for that long (see `succession`).
//! 3. A release does not change the base's content, so a concurrent merge publishes its result on
//!    top of the released version.
//! 4. The range's overlay is dropped: it covers a tail that may have left. A thread that has made
//!    another overlay of the version before does not publish it (see `overlay`).
//!
//! A tail of which some row's latch is held for long keeps its pages until the next release or
//! merge.
//!
//! Lock order: `publish` → `swept` of a tail → row latches.
//!
//! Differences from the paper: it leaves tombstones to the merge \[L-Store §5.1.3\].

use crate::merge_watermarks::MergeWatermarks;
use crate::range::{Range, RangeVersion};
use crate::retirement::{DonePages, Retired, SealGuard};
use crate::succession::Succeeded;
use crate::tail::Tail;
use crate::tail_pages::{TailPages, locate};
use std::collections::BTreeMap;
use std::sync::Arc;
use strandline_base::UPDATE_ROWS;
use strandline_txn::StartWord;

/// Update ranges of a range: bit `at` is the `at`-th one.
pub type TailMask = u16;

/// A base that can be published once more.
pub trait Renewed: Succeeded {
    /// The same rows in a state of its own.
    fn renewed(&self) -> Arc<Self>;
    /// Which commits it has.
    fn lineage(&self) -> MergeWatermarks;
}

impl<B: Renewed<Release = (Arc<Tail>, DonePages)>> Range<B> {
    /// Releases the memory of tombstones in several tails; false if there is nothing to release.
    pub fn release_aborted(&self, tails: TailMask) -> bool {
        let right = self.lock();
        let old = self.load_full();
        let merged = old.base.lineage();
        let mut next = RangeVersion {
            base: old.base.renewed(),
            tails: old.tails.clone(),
            overlay: None,
        };
        let (mut retired, mut given_up) = (Vec::new(), Vec::new());
        let of_mask = |(at, _): &(usize, _)| tails >> at & 1 == 1;
        for (_, slot) in next.tails.iter_mut().enumerate().filter(of_mask) {
            let Some(tail) = slot.take() else { continue };
            match tail.retire_merged(&merged) {
                Retired::Upto(before) => {
                    let between = tail.detach_aborted(before);
                    let done = DonePages { before, between };
                    if tail.has_done(&done) {
                        retired.push((tail.clone(), done));
                    }
                    *slot = Some(tail);
                }
                Retired::Whole(sealed) => given_up.push(sealed),
            }
        }
        if retired.is_empty() && given_up.is_empty() {
            return false;
        }
        old.base.successor().retire(&next.base, retired);
        self.publish(&right, next);
        given_up.into_iter().for_each(SealGuard::keep);
        true
    }
}

impl Tail {
    /// Whether the list has a page that holds no needed record.
    fn has_done(&self, done: &DonePages) -> bool {
        let pages = self.pages();
        let first = pages.iter().next().filter(|_| pages.len() > 1);
        !done.between.is_empty() || first.is_some_and(|page| page.end() <= done.before)
    }

    /// Finds the pages that end after `before` and hold nothing but tombstones, and has no entry
    /// and no chain lead into them: their first records' numbers, in order. A later call finds
    /// those again that have not been dropped yet.
    fn detach_aborted(&self, before: u64) -> Vec<u64> {
        let _kept = self.keep_first_pages();
        let mut aborted = AbortedPages::find(&self.pages(), before);
        for slot in 0..UPDATE_ROWS {
            if aborted.ends.is_empty() {
                break;
            }
            if !aborted.has_slot(slot) {
                continue;
            }
            let Some(latch) = self.row_map().latch(slot) else {
                return Vec::new();
            };
            // After the latch: it has the entry's record.
            let pages = self.pages();
            let head = pages.head(latch.entry());
            let newest = past_tombstones(&pages, head);
            aborted.keep_reachable(&pages, newest);
            match newest {
                _ if newest == head => {}
                0 => latch.clear(),
                newest => latch.publish(newest - 1),
            }
        }
        aborted.ends.into_keys().collect()
    }
}

/// Pages of tombstones.
struct AbortedPages {
    /// the first number, and that behind the last
    ends: BTreeMap<u64, u64>,
    /// a bit per row that has a record in them
    slots: [u64; UPDATE_ROWS / WORD_ROWS],
}

const WORD_ROWS: usize = u64::BITS as usize;

impl AbortedPages {
    /// The pages of the list, without the last one, that end after `before`.
    fn find(pages: &TailPages, before: u64) -> Self {
        let mut found = Self {
            ends: BTreeMap::new(),
            slots: [0; UPDATE_ROWS / WORD_ROWS],
        };
        let last = pages.len().saturating_sub(1);
        for page in pages.iter().take(last).filter(|page| page.end() > before) {
            // Asked first: a page that is full gets no further record.
            let is_full = page.is_full();
            let mut records = 0..page.claimed();
            if !is_full || records.any(|i| page.start(i) != StartWord::ABORTED) {
                continue;
            }
            for i in 0..page.claimed() {
                let slot = usize::from(page.slot_kind(i).0);
                found.slots[slot / WORD_ROWS] |= 1 << (slot % WORD_ROWS);
            }
            found.ends.insert(page.first(), page.end());
        }
        found
    }

    fn has_slot(&self, slot: usize) -> bool {
        self.slots[slot / WORD_ROWS] >> (slot % WORD_ROWS) & 1 == 1
    }

    /// Leaves out the pages that the chain from `next` on (a number + 1, or 0) leads through.
    fn keep_reachable(&mut self, pages: &TailPages, mut next: u64) {
        while next != 0
            && let Some((page, i)) = locate(pages, next - 1)
        {
            self.ends.remove(&page.first());
            next = page.back(i);
        }
    }
}

/// The newest record from `head` on (a number + 1, or 0) that is not a tombstone.
fn past_tombstones(pages: &TailPages, mut head: u64) -> u64 {
    while head != 0 {
        let Some((page, i)) = locate(pages, head - 1) else {
            return 0;
        };
        if page.start(i) != StartWord::ABORTED {
            break;
        }
        head = page.back(i);
    }
    head
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::column_set::ColumnSet;
    use crate::page_memory::PageBytes;
    use crate::record_page::RecordKind;
    use crate::schema::StorageSchema;
    use crate::tail::RecordHeader;
    use strandline_base::{ColumnId, SqlType, Value};

    const COMMITTED: StartWord = StartWord(5);

    struct World {
        tail: Arc<Tail>,
        schema: Arc<StorageSchema>,
    }

    impl World {
        fn new() -> Self {
            let schema = StorageSchema::new([(SqlType::BigInt, Value::Null)]);
            let tail = Arc::new(Tail::new(&PageBytes::default()));
            Self { tail, schema }
        }
        /// Appends a record on top of `back`, or of the row's newest that counts: its number.
        fn append(&self, slot: u16, kind: RecordKind, word: StartWord, back: Option<u64>) -> u64 {
            let latch = self.tail.row_map().latch(slot.into()).expect("free");
            let pages = self.tail.pages();
            let header = RecordHeader {
                slot,
                kind,
                back: back.unwrap_or_else(|| past_tombstones(&pages, pages.head(latch.entry()))),
                statement: 0,
                word,
            };
            let columns = ColumnSet::from_iter([ColumnId(0)]);
            let place = (&**pages, &self.schema);
            let (page, i) = self
                .tail
                .append(place, &header, &columns, |_, _| Ok(()))
                .expect("a number");
            let seq = page.first() + u64::from(i);
            latch.publish(seq);
            seq
        }
        fn update(&self, slot: u16, word: StartWord) -> u64 {
            self.append(slot, RecordKind::Update, word, None)
        }
        fn head(&self, slot: usize) -> u64 {
            let entry = self.tail.row_map().entry(slot);
            self.tail.pages().head(entry)
        }
        fn has(&self, seq: u64) -> bool {
            locate(&self.tail.pages(), seq).is_some()
        }
    }

    #[test]
    fn pages_of_tombstones_between_others_go() {
        let world = World::new();
        let kept = world.update(7, COMMITTED);
        // Pages of 8, 16, 32 and 64 records.
        let aborted: Vec<u64> = (0..119)
            .map(|n| world.update(n % 9, StartWord::ABORTED))
            .collect();
        let last = world.update(8, COMMITTED);
        let between = world.tail.detach_aborted(0);
        assert_eq!(between, [8, 24, 56]);
        for slot in (0..9).filter(|slot| *slot != 8) {
            assert_eq!(
                world.head(slot),
                if slot == 7 { kept + 1 } else { 0 },
                "{slot}"
            );
        }
        assert_eq!(world.head(8), last + 1);
        let bytes = world.tail.memory_bytes();
        world.tail.drop_pages(&DonePages { before: 0, between });
        assert!(world.tail.memory_bytes() < bytes / 3 * 2);
        assert!(world.has(kept) && world.has(last) && world.has(aborted[6]));
        assert!(aborted[7..].iter().all(|seq| !world.has(*seq)));
        assert_eq!(world.update(7, COMMITTED), last + 1, "numbers go on");
        assert_eq!(world.tail.detach_aborted(0), [0; 0], "once");
        world.tail.drop_pages(&DonePages::before(last));
        assert_eq!(world.tail.pages().first_seq(), last);
    }

    /// A lock that stands on top of one that has ended leads through its tombstone.
    #[test]
    fn a_page_that_a_chain_leads_through_stays() {
        let world = World::new();
        let kept = world.update(3, COMMITTED);
        (0..8).for_each(|_| {
            world.update(9, StartWord::ABORTED);
        });
        let ended = world.append(3, RecordKind::ShareLock, StartWord::ABORTED, None);
        (0..60).for_each(|_| {
            world.update(9, StartWord::ABORTED);
        });
        let lock = world.append(3, RecordKind::ShareLock, COMMITTED, Some(ended + 1));
        (0..60).for_each(|_| {
            world.update(9, StartWord::ABORTED);
        });
        let between = world.tail.detach_aborted(0);
        assert_eq!(between, [24], "8 has the ended lock, 56 the other one");
        world.tail.drop_pages(&DonePages { before: 0, between });
        let pages = world.tail.pages();
        let mut next = world.head(3);
        for expected in [lock, ended, kept] {
            assert_eq!(next, expected + 1);
            let (page, i) = locate(&pages, next - 1).expect("live");
            next = page.back(i);
        }
        assert_eq!(next, 0);
    }

    #[test]
    fn a_latch_that_is_held_keeps_the_pages() {
        let world = World::new();
        world.update(3, COMMITTED);
        (0..60).for_each(|_| {
            world.update(9, StartWord::ABORTED);
        });
        let latch = world.tail.row_map().latch(9).expect("free");
        assert_eq!(world.tail.detach_aborted(0), [0; 0]);
        drop(latch);
        assert_eq!(world.tail.detach_aborted(0), [8, 24]);
    }
}
