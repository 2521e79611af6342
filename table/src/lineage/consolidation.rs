//! The thread that makes overlays for readers (see `strandline_tail::overlay`). In a database
//! without background work the readers make them.
//!
//! Lock order: `state` is taken with nothing held; overlays are made without it.

use std::collections::BTreeMap;
use std::sync::Weak;
use std::time::Duration;
use strandline_base::sync::{Condvar, Mutex, MutexGuard};
use strandline_base::{CommitTs, RangeNo, StorageId};

/// Interval of the thread's turns while readers want overlays. Waking the thread would cost a
/// reader more than one overlay saves it.
const REST: Duration = Duration::from_micros(500);
/// Looks that find nothing, one after the other, before the thread sleeps until it is woken.
const IDLE_LOOKS: u32 = 40;

/// Ranges whose readers want new overlays.
#[derive(Default)]
pub struct Consolidation {
    state: Mutex<WorkerState>,
    work: Condvar,
}

/// Makes overlays: a storage.
pub trait OverlayMaker: Send + Sync {
    /// Makes an overlay of range `no` from the records that are settled at `ts`.
    fn make_overlay(&self, no: RangeNo, ts: CommitTs);
}

/// Readers' moments by range.
type Wanted = BTreeMap<(StorageId, RangeNo), (Weak<dyn OverlayMaker>, CommitTs)>;

#[derive(Default)]
struct WorkerState {
    /// a thread is at work
    is_running: bool,
    is_closed: bool,
    /// the thread looks again only when it is woken
    is_asleep: bool,
    wanted: Wanted,
}

impl Consolidation {
    /// Makes the overlays that readers want until the database is closed. From this call on readers
    /// leave them to this thread.
    pub fn run(&self) {
        let mut state = self.state.lock();
        state.is_running = true;
        let mut idle_looks = 0;
        while !state.is_closed {
            let wanted = std::mem::take(&mut state.wanted);
            if !wanted.is_empty() {
                idle_looks = 0;
                MutexGuard::unlocked(&mut state, || make_overlays(wanted));
            } else if idle_looks < IDLE_LOOKS {
                idle_looks += 1;
                self.work.wait_for(&mut state, REST);
            } else {
                state.is_asleep = true;
                self.work.wait(&mut state);
                state.is_asleep = false;
                idle_looks = 0;
            }
        }
        state.is_running = false;
    }

    /// Lets the thread end.
    pub fn close(&self) {
        self.state.lock().is_closed = true;
        self.work.notify_all();
    }

    /// A reader at `ts` wants an overlay of a range of `maker`. False if no thread is there to make
    /// it: then the reader does.
    pub fn takes(
        &self,
        maker: Weak<dyn OverlayMaker>,
        range: (StorageId, RangeNo),
        ts: CommitTs,
    ) -> bool {
        let mut state = self.state.lock();
        if !state.is_running {
            return false;
        }
        state.wanted.insert(range, (maker, ts));
        if std::mem::take(&mut state.is_asleep) {
            self.work.notify_one();
        }
        true
    }
}

fn make_overlays(wanted: Wanted) {
    for ((_, no), (maker, ts)) in wanted {
        if let Some(maker) = maker.upgrade() {
            maker.make_overlay(no, ts);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn wait_until(consolidation: &Consolidation, holds: impl Fn(&WorkerState) -> bool) {
        while !holds(&consolidation.state.lock()) {
            std::thread::yield_now();
        }
    }

    #[test]
    fn the_thread_ends_awake_and_asleep() {
        let states: [fn(&WorkerState) -> bool; 2] =
            [|state| state.is_running, |state| state.is_asleep];
        for reached in states {
            let consolidation = Arc::new(Consolidation::default());
            let thread = std::thread::spawn({
                let consolidation = consolidation.clone();
                move || consolidation.run()
            });
            wait_until(&consolidation, reached);
            consolidation.close();
            thread.join().expect("no panic");
            assert!(!consolidation.state.lock().is_running);
        }
    }
}
