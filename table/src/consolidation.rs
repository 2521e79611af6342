//! Who makes overlays (see `strandline_tail::overlay`): a thread beside the readers that want them,
//! or, in a database without background work, the readers themselves.
//!
//! Lock order: `state` is taken with nothing held; overlays are made without it.

use crate::lineage::Lineage;
use crate::range::Range;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use strandline_base::{CommitTs, RangeNo, StorageId};

/// Ranges whose readers want new overlays.
#[derive(Default)]
pub struct Consolidation {
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Default)]
struct State {
    /// a thread is at work
    is_running: bool,
    is_closed: bool,
    /// the moments that readers read at
    wanted: BTreeMap<(StorageId, RangeNo), (Weak<Lineage>, CommitTs)>,
}

impl Consolidation {
    /// Makes what readers want until the database is closed. From the call on they leave it to
    /// this thread.
    pub fn run(&self) {
        let mut state = self.state.lock();
        state.is_running = true;
        while !state.is_closed {
            let wanted = std::mem::take(&mut state.wanted);
            if wanted.is_empty() {
                self.work.wait(&mut state);
                continue;
            }
            drop(state);
            for ((_, no), (lineage, ts)) in wanted {
                if let Some(lineage) = lineage.upgrade()
                    && let Some(range) = lineage.range(no)
                {
                    lineage.make_overlay(range, ts);
                }
            }
            state = self.state.lock();
        }
        state.is_running = false;
    }

    /// Lets the thread end.
    pub fn close(&self) {
        self.state.lock().is_closed = true;
        self.work.notify_all();
    }

    /// Whether the thread takes it over.
    fn takes(&self, lineage: &Arc<Lineage>, range: &Range, ts: CommitTs) -> bool {
        let mut state = self.state.lock();
        if !state.is_running {
            return false;
        }
        let key = (lineage.id(), range.no());
        state.wanted.insert(key, (Arc::downgrade(lineage), ts));
        self.work.notify_one();
        true
    }
}

impl Lineage {
    /// A reader at `ts` finds that a new overlay of `range` pays.
    pub(crate) fn want_overlay(self: &Arc<Self>, range: &Range, ts: CommitTs) {
        if !self.shared.consolidation.takes(self, range, ts) {
            self.make_overlay(range, ts);
        }
    }

    fn make_overlay(&self, range: &Range, ts: CommitTs) {
        range.consolidate(ts, &self.shared.txns, &self.shared.page_bytes);
    }
}
