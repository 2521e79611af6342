//! When a range's [overlay](crate::overlay) is made anew, and how it is published.
//!
//! Readers add up what visits of records behind the overlay have cost them. When the sum exceeds
//! the cost of a new overlay, one is made from the settled records.
//!
//! Lock order: publishing takes the range's `publish`, with nothing else held.

use crate::overlay::{Overlay, Settled, build};
use crate::page_memory::PageBytes;
use crate::range::{Range, RangeVersion};
use crate::tail::Tail;
use crate::tail_pages::TailPages;
use std::sync::Arc;
use strandline_base::sync::Ordering;
use strandline_base::{CommitTs, UPDATE_RANGES};
use strandline_txn::TxnManager;

/// Least cost of visits that is worth an overlay. Models and tests should meet overlays soon.
const COST_MIN: u32 = if cfg!(any(shuttle, debug_assertions)) {
    1
} else {
    64
};
/// Values of an overlay whose copying costs as much as the visit of one record: copies run through
/// memory in order and on another thread.
const COPIED_PER_VISITED: u32 = 16;
/// Records whose visits cost as much as the look at a tail, whose parts are in no cache.
const TAIL_COST: usize = 32;

impl<B> Range<B> {
    /// Notes that a reader at `ts` has paid for visiting `records` records of `tails` tails;
    /// whether it is time for [`Range::consolidate`].
    pub fn note_visit(&self, overlay: Option<&Overlay>, tails: usize, records: usize) -> bool {
        let size = overlay.map_or(0, Overlay::size) as u32;
        let cost = (tails * TAIL_COST + records) as u32;
        let paid = &self.marks().paid;
        let now = paid.fetch_add(cost, Ordering::Relaxed).saturating_add(cost);
        let pays = now >= COST_MIN + size / COPIED_PER_VISITED;
        if pays {
            paid.store(0, Ordering::Relaxed);
        }
        pays
    }

    /// Puts the records settled at `ts` into a new overlay and publishes it.
    pub fn consolidate(&self, ts: CommitTs, txns: &TxnManager, bytes: &PageBytes) {
        let marks = self.marks();
        let number = marks.draw();
        let version = self.load_full();
        let before = version.overlay.as_deref();
        if before.is_some_and(|overlay| overlay.newest() > ts) {
            return;
        }
        let mut through = before.map_or([0; UPDATE_RANGES], Overlay::ends);
        let (mut settled, mut kept) = (Vec::new(), [false; UPDATE_RANGES]);
        for (at, tail) in version.tails.iter().enumerate() {
            let Some(tail) = tail else { continue };
            if before.is_some_and(|overlay| marks.is_complete(at, overlay.number())) {
                kept[at] = true;
                continue;
            }
            let pages = claimed_pages(tail);
            let first = pages.first_seq();
            kept[at] = before.is_some_and(|overlay| overlay.through(at) >= first);
            let from = if kept[at] { through[at] } else { first };
            let found = Settled::find(at, pages, from, ts, txns);
            if !found.is_all {
                marks.mark(at, number);
            }
            through[at] = found.records.end;
            settled.push(found);
        }
        let changed = |found: &Settled| !found.records.is_empty();
        if settled.iter().any(changed) {
            let overlay = build(number, before, &kept, &settled, through, bytes);
            self.publish_overlay(&version, overlay);
        }
    }

    /// Puts `overlay` in the place of that of `version` which it was made from.
    fn publish_overlay(&self, version: &RangeVersion<B>, overlay: Overlay) {
        let right = self.lock();
        let present = self.load_full();
        let as_ptr = |version: &RangeVersion<B>| version.overlay.as_ref().map(Arc::as_ptr);
        if Arc::ptr_eq(&present.base, &version.base) && as_ptr(&present) == as_ptr(version) {
            let mut next = RangeVersion::clone(&present);
            next.overlay = Some(Arc::new(overlay));
            self.publish(&right, next);
        }
    }
}

/// The pages of a tail with all the records that were claimed before: in this order.
fn claimed_pages(tail: &Tail) -> Arc<TailPages> {
    tail.claims();
    Arc::clone(&tail.pages())
}
