//! Retirement of merged tail pages \[L-Store §4.1.1 steps 4 and 5\].
//!
//! A merge has folded commits into base, up to `through` for each column. Unmerged records may
//! stand between the merged ones: of other transactions, or of columns whose chunks lag. So the
//! pages before the first unmerged record retire. A tail without unmerged records is sealed and
//! leaves the range.
//!
//! Invariants:
//! 1. A record is *done* if it is aborted, or stamped with a commit that is merged in all its
//!    columns, or the old value of a done update (and therefore in a run).
//! 2. A record that is claimed but not published is not done: its content is not known yet.
//! 3. A tail is dropped only if all its records are found done while it is sealed: an appender may
//!    have entered and left between a first look and the seal.
//! 4. Old values that no update needs any more become tombstones under their row's latch: a writer
//!    that finds them relies on them, and one that comes later writes its own.
//! 5. `pending` never falls below the number of unmerged records.

use crate::merge_watermarks::MergeWatermarks;
use crate::record_page::RecordKind;
use crate::tail::Tail;
use crate::tail_pages::locate;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use strandline_txn::StartWord;

/// The records that a merge leaves in a tail.
struct Unmerged {
    /// the first sequence number that must stay
    first: u64,
    /// updates and deletes that are not merged, undecided ones included
    records: u32,
    /// slots with old values and nothing else that is not aborted
    abandoned: Vec<u16>,
}

/// Pages of a tail that are done with. They go when no reader needs them any more.
#[derive(Debug)]
pub struct DonePages {
    /// all that end at or before this sequence number
    pub before: u64,
    /// pages of tombstones between others, by their first records' numbers, in order
    pub between: Vec<u64>,
}

impl DonePages {
    /// The pages that end at or before a sequence number.
    pub fn before(before: u64) -> Self {
        let between = Vec::new();
        Self { before, between }
    }
}

/// The part of a tail that must stay when a merge is published.
#[derive(Debug)]
pub enum Retired {
    /// the records from this sequence number on, when the last reader of earlier versions has gone
    Upto(u64),
    /// nothing: the tail is sealed
    Whole(SealGuard),
}

/// A sealed tail, which is opened again unless the seal is kept: so a panic before the tail has
/// left its range keeps no appender out.
#[derive(Debug)]
pub struct SealGuard(Option<Arc<Tail>>);

impl SealGuard {
    fn new(tail: &Arc<Tail>) -> Option<Self> {
        tail.seal().then(|| Self(Some(tail.clone())))
    }
    /// The tail has left its range.
    pub fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for SealGuard {
    fn drop(&mut self) {
        if let Some(tail) = &self.0 {
            tail.unseal();
        }
    }
}

impl Tail {
    /// A base that is merged as far as `through` is about to be published: seals the tail if
    /// nothing else is in it.
    pub fn retire_merged(self: &Arc<Self>, through: &MergeWatermarks) -> Retired {
        let before = self.pending();
        let mut unmerged = self.unmerged(through);
        if !unmerged.abandoned.is_empty() {
            for slot in &unmerged.abandoned {
                self.abandon_old_values(*slot, through);
            }
            unmerged = self.unmerged(through);
        }
        self.set_pending(before, unmerged.records);
        if unmerged.records == 0
            && let Some(sealed) = SealGuard::new(self)
            && self.unmerged(through).records == 0
        {
            return Retired::Whole(sealed);
        }
        Retired::Upto(unmerged.first)
    }

    /// Drops pages that no reader needs any more.
    pub fn drop_pages(&self, done: &DonePages) {
        self.drop_pages_between(&done.between);
        self.drop_pages_before(done.before);
    }

    /// Turns a row's old values into tombstones if all updates they were written for have been
    /// aborted. Its latch keeps out the writer that would rely on them.
    fn abandon_old_values(&self, slot: u16, through: &MergeWatermarks) {
        // A later merge does it, if somebody holds the latch for long.
        let Some(latch) = self.row_map().latch(usize::from(slot)) else {
            return;
        };
        let pages = self.pages();
        let mut old_values = Vec::new();
        let mut next = pages.head(latch.entry());
        while next != 0
            && let Some((page, i)) = locate(&pages, next - 1)
        {
            next = page.back(i);
            if page.start(i) == StartWord::ABORTED {
                continue;
            }
            if page.slot_kind(i).1 != RecordKind::OldValue {
                let ts = page.start(i).commit_ts();
                if ts.is_some_and(|ts| through.has(ts, page.columns_of(i))) {
                    break; // merged, and with it what is older
                }
                return;
            }
            old_values.push((page, i));
        }
        for (page, i) in old_values {
            page.set_start(i, StartWord::ABORTED);
        }
    }

    fn unmerged(&self, through: &MergeWatermarks) -> Unmerged {
        let mut open_old_values: HashMap<u16, u64> = HashMap::new();
        let mut with_others = HashSet::new();
        let (mut first, mut end, mut records) = (None, 0, 0);
        let pages = self.pages();
        for page in pages.iter() {
            for i in 0..page.claimed() {
                let word = page.start(i);
                let seq = page.first() + u64::from(i);
                end = seq + 1;
                if word == StartWord::ABORTED {
                    continue;
                }
                let (slot, kind) = page.slot_kind(i);
                let is_published = word != StartWord::UNPUBLISHED;
                if is_published && kind == RecordKind::OldValue {
                    open_old_values.entry(slot).or_insert(seq);
                } else if word
                    .commit_ts()
                    .is_some_and(|ts| through.has(ts, page.columns_of(i)))
                {
                    open_old_values.remove(&slot);
                } else {
                    records += 1;
                    first.get_or_insert(seq);
                    with_others.insert(slot);
                }
            }
        }
        // An old value whose update is not merged may still be needed; if nothing else is left of
        // the row its update was aborted, and the next writer writes it again.
        let open = open_old_values.values().copied();
        let first = open.chain(first).min().unwrap_or(end);
        let abandoned = |slot: &u16| !with_others.contains(slot);
        Unmerged {
            first,
            records,
            abandoned: open_old_values.into_keys().filter(abandoned).collect(),
        }
    }
}
