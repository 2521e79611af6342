//! Registered snapshots, striped by thread.
//!
//! # Why `oldest` is never too high
//!
//! Taking a snapshot loads stable *inside* its stripe's lock and enters the value before
//! unlocking. [`Snapshots::oldest`] loads stable first (b) and then visits the stripes. For a
//! snapshot s in stripe i there are two cases. The visit of stripe i comes after s was entered:
//! then it sees s (or s has ended). Or it comes before s locked the stripe: then b was loaded
//! before the visit, the visit's unlock precedes s's lock, and s loaded stable after that; stable
//! never moves back, so b ≤ s, and the result is at most b.
//!
//! A snapshot at a given moment `at` is entered first and only then completed (waited for), so that
//! the same two cases hold if stable had not passed `at` when it was entered. If it had, versions
//! that only `at` could see may be gone already: a reader of an old moment checks it against the
//! retention *after* registering.

use std::sync::atomic::AtomicUsize as Counter; // numbers threads; no part of the protocol
use strandline_base::CommitTs;
use strandline_base::sync::{Mutex, Ordering};

const STRIPES: usize = if cfg!(shuttle) { 2 } else { 16 };

/// Live snapshots of one stripe: timestamps ascending, with counts.
#[derive(Default)]
struct Live(Vec<(CommitTs, usize)>);

impl Live {
    fn enter(&mut self, ts: CommitTs) {
        // Nearly always at the end: snapshots begin at stable.
        match self.0.last_mut() {
            Some((newest, count)) if *newest == ts => *count += 1,
            Some((newest, _)) if *newest > ts => self.enter_below(ts),
            _ => self.0.push((ts, 1)),
        }
    }

    fn enter_below(&mut self, ts: CommitTs) {
        match self.0.binary_search_by_key(&ts, |entry| entry.0) {
            Ok(i) => self.0[i].1 += 1,
            Err(i) => self.0.insert(i, (ts, 1)),
        }
    }

    fn leave(&mut self, ts: CommitTs) {
        let found = self.0.binary_search_by_key(&ts, |entry| entry.0);
        let i = found.expect("a guard leaves the stripe it entered");
        self.0[i].1 -= 1;
        if self.0[i].1 == 0 {
            self.0.remove(i);
        }
    }
}

#[repr(align(128))]
#[derive(Default)]
struct Stripe(Mutex<Live>);

/// All registered snapshots of a database.
pub(crate) struct Snapshots {
    stripes: Box<[Stripe]>,
    /// intervals of which every version is held, bounds inclusive, in no order
    holds: Mutex<Vec<(CommitTs, CommitTs)>>,
}

impl Snapshots {
    /// None.
    pub fn new() -> Self {
        Self {
            stripes: (0..STRIPES).map(|_| Stripe::default()).collect(),
            holds: Mutex::default(),
        }
    }

    /// Enters the timestamp that `choose` returns under the stripe's lock.
    pub fn enter(&self, choose: impl FnOnce() -> CommitTs) -> (CommitTs, usize) {
        self.enter_in(thread_stripe(), choose)
    }

    /// As [`Snapshots::enter`], in a given stripe.
    pub fn enter_in(&self, stripe: usize, choose: impl FnOnce() -> CommitTs) -> (CommitTs, usize) {
        let mut live = self.stripes[stripe].0.lock();
        let ts = choose();
        live.enter(ts);
        (ts, stripe)
    }

    /// Holds every version of an interval, bounds inclusive.
    pub fn hold(&self, interval: (CommitTs, CommitTs)) {
        self.holds.lock().push(interval);
    }

    /// Ends a [`Snapshots::hold`].
    pub fn end_hold(&self, interval: (CommitTs, CommitTs)) {
        let mut holds = self.holds.lock();
        let at = holds.iter().position(|held| *held == interval);
        holds.swap_remove(at.expect("a hold ends once"));
    }

    /// The intervals of which every version is held, bounds inclusive.
    pub fn holds(&self) -> Vec<(CommitTs, CommitTs)> {
        self.holds.lock().clone()
    }

    /// Ends a snapshot in the stripe that it was entered in.
    pub fn leave(&self, ts: CommitTs, stripe: usize) {
        self.stripes[stripe].0.lock().leave(ts);
    }

    /// All registered snapshots, ascending, each once. None below a `stable` loaded before this
    /// call is missing, by the same two cases as for [`Snapshots::oldest`].
    pub fn registered(&self) -> Vec<CommitTs> {
        let mut all = Vec::new();
        for stripe in &self.stripes {
            all.extend(stripe.0.lock().0.iter().map(|entry| entry.0));
        }
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The least of `stable`, loaded before this call, and the registered snapshots.
    pub fn oldest(&self, stable: CommitTs) -> CommitTs {
        self.stripes.iter().fold(stable, |oldest, stripe| {
            stripe
                .0
                .lock()
                .0
                .first()
                .map_or(oldest, |entry| oldest.min(entry.0))
        })
    }
}

fn thread_stripe() -> usize {
    static NEXT: Counter = Counter::new(0);
    thread_local! {
        static STRIPE: usize = NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES;
    }
    STRIPE.with(|stripe| *stripe)
}
