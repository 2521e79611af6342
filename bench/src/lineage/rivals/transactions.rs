//! The rivals' transactions: a clock of commits and, per session, the state of its transaction.
//!
//! A version's *start* is the time of the commit that made it, or the *mark* of the transaction
//! that is making it. A commit becomes visible by one store into the state of its session; its
//! versions are stamped with the time afterwards, and only then may the session begin again. So
//! whoever finds a mark twice, before and after reading the state, has read the state of just that
//! transaction.
//!
//! A transaction says that it is about to commit before it takes its time. A snapshot that finds it
//! so waits for its decision: its time may be older than the snapshot.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// The start of what is there from the beginning.
pub const FIRST: u64 = 2;
/// The start of what was rolled back.
pub const ABORTED: u64 = u64::MAX;
/// Marks have this bit.
const MARK: u64 = 1 << 63;
/// Low bits of a mark: the session.
const SESSION_BITS: u32 = 8;
const SESSIONS: usize = 1 << SESSION_BITS;

const ACTIVE: u64 = 0;
const COMMITTING: u64 = 1;

/// The clock and all sessions' states.
pub struct Transactions {
    newest: AtomicU64,
    states: Box<[State]>,
    free: Mutex<Vec<usize>>,
}

/// [`ACTIVE`], [`COMMITTING`] or the time of the commit; a cache line of its own.
#[repr(align(64))]
struct State(AtomicU64);

/// What became of the transaction that made a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Committed(u64),
    Active,
    Aborted,
}

/// What a reader sees.
#[derive(Clone, Copy)]
pub enum View {
    /// All that is committed, and what the transaction with this mark did.
    Newest { mark: u64 },
    /// What was committed at this time.
    Snapshot(u64),
}

impl Transactions {
    /// A clock at [`FIRST`].
    pub fn new() -> Self {
        Self {
            newest: AtomicU64::new(FIRST),
            states: (0..SESSIONS)
                .map(|_| State(AtomicU64::new(ACTIVE)))
                .collect(),
            free: Mutex::new((0..SESSIONS).collect()),
        }
    }

    /// A session's place; at most 256 at a time.
    pub fn join(&self) -> Member<'_> {
        let session = self.free.lock().pop().expect("at most 256 sessions");
        Member {
            transactions: self,
            session,
            sequence: 0,
        }
    }

    /// A snapshot of now.
    pub fn snapshot(&self) -> View {
        View::Snapshot(self.newest.load(Ordering::SeqCst))
    }

    /// Whether `view` contains the version whose start is read by `start`.
    pub fn sees(&self, view: View, start: impl Fn() -> u64) -> bool {
        match view {
            View::Newest { mark } => {
                let now = start();
                now < MARK
                    || now == mark
                    || matches!(self.status(false, start), Status::Committed(_))
            }
            View::Snapshot(time) => match self.status(true, start) {
                Status::Committed(start) => start <= time,
                Status::Active | Status::Aborted => false,
            },
        }
    }

    /// What became of the maker of a version; with `wait`, one that is committing is waited for,
    /// else it counts as active.
    pub fn status(&self, wait: bool, start: impl Fn() -> u64) -> Status {
        loop {
            let found = start();
            if found == ABORTED {
                return Status::Aborted;
            }
            if found < MARK {
                return Status::Committed(found);
            }
            let session = (found & (SESSIONS as u64 - 1)) as usize;
            let state = self.states[session].0.load(Ordering::SeqCst);
            if start() != found {
                continue; // stamped meanwhile: the state may be the next transaction's
            }
            match state {
                COMMITTING if wait => std::thread::yield_now(),
                ACTIVE | COMMITTING => return Status::Active,
                time => return Status::Committed(time),
            }
        }
    }
}

/// A session among the others.
pub struct Member<'t> {
    transactions: &'t Transactions,
    session: usize,
    sequence: u64,
}

impl Member<'_> {
    /// Begins a transaction: its mark. All versions of the one before are stamped.
    pub fn begin(&mut self) -> u64 {
        self.sequence += 1;
        self.state().store(ACTIVE, Ordering::SeqCst);
        MARK | self.sequence << SESSION_BITS | self.session as u64
    }

    /// Makes all versions with the mark visible: the time to stamp them with.
    pub fn commit(&self) -> u64 {
        self.state().store(COMMITTING, Ordering::SeqCst);
        let time = self.transactions.newest.fetch_add(1, Ordering::SeqCst) + 1;
        self.state().store(time, Ordering::SeqCst);
        time
    }

    fn state(&self) -> &AtomicU64 {
        &self.transactions.states[self.session].0
    }
}

impl Drop for Member<'_> {
    fn drop(&mut self) {
        self.transactions.free.lock().push(self.session);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_is_seen_by_later_snapshots_only() {
        let transactions = Transactions::new();
        let (mut writer, mut other) = (transactions.join(), transactions.join());
        let (mark, other) = (writer.begin(), other.begin());
        let sees = |view| transactions.sees(view, || mark);
        let before = transactions.snapshot();
        assert!(sees(View::Newest { mark }));
        assert!(!sees(View::Newest { mark: other }));
        let time = writer.commit();
        assert!(sees(View::Newest { mark: other }));
        assert!(!sees(before));
        assert!(sees(transactions.snapshot()));
        assert_eq!(transactions.status(true, || mark), Status::Committed(time));
        assert_eq!(transactions.status(true, || ABORTED), Status::Aborted);
    }
}
