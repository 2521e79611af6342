//! Runs of dead entries, which walks over an ordered index leave out.
//!
//! An entry stays for as long as history may be asked for its row under its key (24 hours, unless
//! the table says otherwise). So a queue's index begins with the entries of all jobs that were
//! taken since, and each walk to the first waiting job would read all of their rows. A walk that
//! comes over many dead entries has them verified (`statement::dead_entries`) and kept here as a
//! *run*: an interval of entries of which no moment from `since` on sees a row under its key.
//!
//! Invariants:
//! 1. No snapshot at or after a run's `since` sees a row under the key of an entry within the run.
//! 2. Runs are disjoint and ascending, at most [`RUNS_MAX`].
//!
//! Protocol. A writer writes its record, adds the entry, and calls [`DeadRuns::entered`], all
//! before its commit. A learner begins ([`DeadRuns::begin`]), walks over the interval, finds each
//! row committed under another key or deleted, and publishes.
//! * The writer's record was there before the learner looked at the row: it finds an unfinished
//!   writer, or a commit after `since`, and the entry is not dead. Or it was not: then the
//!   writer's look at `watched` comes after the learner's mark (the fences order them), and the
//!   interval that the entry falls into is not published, or is split.
//! * The entry was added before the learner came to its place: the learner finds it. Or after: the
//!   writer's look at `watched` comes after the learner's mark.
//!
//! Why invariant 1 holds for a reader: it has its snapshot before it loads the runs. A writer whose
//! commit the snapshot sees has split the run before.
//!
//! Runs are in memory only and begin empty. Memory: two keys of at most 1 KB each a run.
//!
//! Lock order: `state` is held over nothing.

use std::sync::Arc;
use strandline_base::sync::{AtomicBool, Mutex, Ordering, fence};
use strandline_base::{CommitTs, RowId};
use strandline_index::{Direction, KeyBytes};

/// Runs of one index.
const RUNS_MAX: usize = 16;

/// The place of an entry in the index's order.
pub(crate) type Place = (KeyBytes, RowId);

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct DeadRuns {
    /// whether there are runs or a learner
    watched: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    runs: Arc<[DeadRun]>,
    learning: Option<Learning>,
}

/// An interval that is being looked at.
struct Learning {
    from: Place,
    last: Place,
    /// an entry was added within it
    is_void: bool,
}

/// See the module's documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeadRun {
    /// inclusive; need not be an entry
    pub from: Place,
    /// inclusive; need not be an entry
    pub last: Place,
    /// the first moment that it holds for
    pub since: CommitTs,
}

/// The right to publish a run of an interval.
pub(crate) struct Learner<'a> {
    dead: &'a DeadRuns,
    /// the run before the interval; it may be made longer
    pub before: Option<DeadRun>,
    /// the runs at the beginning
    pub runs: Arc<[DeadRun]>,
}

impl DeadRuns {
    /// An entry has been added, of a row whose record has been written.
    #[inline]
    pub fn entered(&self, key: &KeyBytes, row: RowId) {
        fence(Ordering::SeqCst);
        if self.watched.load(Ordering::SeqCst) {
            self.enter(key, row);
        }
    }

    /// Many entries have been added.
    pub fn entered_many(&self) {
        fence(Ordering::SeqCst);
        if self.watched.load(Ordering::SeqCst) {
            let mut state = self.state.lock();
            if let Some(learning) = &mut state.learning {
                learning.is_void = true;
            }
            state.runs = Arc::default();
            self.note_watched(&state);
        }
    }

    #[cold]
    fn enter(&self, key: &KeyBytes, row: RowId) {
        let place = (key, &row);
        let mut state = self.state.lock();
        if let Some(learning) = &mut state.learning {
            learning.is_void |= is_within(place, &learning.from, &learning.last);
        }
        if let Some(at) = position(&state.runs, place) {
            let mut runs = state.runs.to_vec();
            let whole = runs.remove(at);
            runs.splice(at..at, split(whole, (key.clone(), row)));
            runs.truncate(RUNS_MAX);
            state.runs = runs.into();
        }
        self.note_watched(&state);
    }

    /// The runs that hold for a snapshot at `ts` or later; None: there are none.
    pub fn runs_at(&self, ts: CommitTs) -> Option<Arc<[DeadRun]>> {
        if !self.watched.load(Ordering::Acquire) {
            return None;
        }
        let runs = self.state.lock().runs.clone();
        runs.iter().any(|run| run.since <= ts).then_some(runs)
    }

    /// Begins to look at the entries from `from` to `last`, both inclusive. None: another thread
    /// looks at some.
    pub fn begin(&self, from: Place, last: Place) -> Option<Learner<'_>> {
        let mut state = self.state.lock();
        if state.learning.is_some() {
            return None;
        }
        let runs = state.runs.clone();
        let before = runs[..runs.partition_point(|run| run.last < from)].last();
        let before = before.cloned();
        state.learning = Some(Learning {
            from: before.as_ref().map_or(from, |run| run.from.clone()),
            last,
            is_void: false,
        });
        self.watched.store(true, Ordering::SeqCst);
        drop(state);
        fence(Ordering::SeqCst);
        Some(Learner {
            dead: self,
            before,
            runs,
        })
    }

    fn note_watched(&self, state: &State) {
        let is_watched = !state.runs.is_empty() || state.learning.is_some();
        self.watched.store(is_watched, Ordering::SeqCst);
    }
}

impl Learner<'_> {
    /// Keeps a run, joined with those that it touches, unless an entry was added meanwhile. It lies
    /// within the interval, or reaches from the beginning of `before` into it, and holds from a
    /// moment on that is not before theirs. Returns whether it did.
    pub fn publish(self, mut run: DeadRun) -> bool {
        let mut state = self.dead.state.lock();
        if state.learning.as_ref().is_none_or(|own| own.is_void) {
            return false;
        }
        let known = &state.runs;
        let first = known.partition_point(|known| known.last < run.from);
        let end = known.partition_point(|known| known.from <= run.last);
        if let (Some(first), Some(last)) = (known[first..end].first(), known[first..end].last()) {
            run.from = run.from.min(first.from.clone());
            run.last = run.last.max(last.last.clone());
        }
        let mut runs = known.to_vec();
        let is_full = runs.len() - (end - first) == RUNS_MAX;
        runs.splice(first..end, [run]);
        if is_full {
            // The oldest one is the likeliest to be swept.
            let oldest = runs.iter().enumerate().min_by_key(|(_, run)| run.since);
            let oldest = oldest.map(|(at, _)| at);
            oldest.map(|at| runs.remove(at));
        }
        state.runs = runs.into();
        true
    }
}

impl Drop for Learner<'_> {
    fn drop(&mut self) {
        let mut state = self.dead.state.lock();
        state.learning = None;
        self.dead.note_watched(&state);
    }
}

impl DeadRun {
    /// Where a walk in this direction leaves the run.
    pub fn end(&self, direction: Direction) -> &Place {
        match direction {
            Direction::Forward => &self.last,
            Direction::Backward => &self.from,
        }
    }
}

/// The run that an entry lies in, if it holds at `ts`.
pub(crate) fn run_of<'a>(
    runs: &'a [DeadRun],
    (key, row): &Place,
    ts: CommitTs,
) -> Option<&'a DeadRun> {
    let run = &runs[position(runs, (key, row))?];
    (run.since <= ts).then_some(run)
}

fn position(runs: &[DeadRun], place: (&KeyBytes, &RowId)) -> Option<usize> {
    let at = runs.partition_point(|run| (&run.last.0, &run.last.1) < place);
    let run = runs.get(at)?;
    is_within(place, &run.from, &run.last).then_some(at)
}

fn is_within(place: (&KeyBytes, &RowId), from: &Place, last: &Place) -> bool {
    (&from.0, &from.1) <= place && place <= (&last.0, &last.1)
}

/// The parts of a run before and behind a place.
fn split(run: DeadRun, (key, row): Place) -> impl Iterator<Item = DeadRun> {
    let before = row.0.checked_sub(1).map(|row| DeadRun {
        last: (key.clone(), RowId(row)),
        ..run.clone()
    });
    let behind = row.0.checked_add(1).map(|row| DeadRun {
        from: (key, RowId(row)),
        ..run
    });
    let parts = before.into_iter().chain(behind);
    parts.filter(|part| part.from <= part.last)
}

#[cfg(all(test, not(shuttle)))]
mod tests;
