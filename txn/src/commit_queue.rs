//! Commits whose timestamp is drawn and whose log record may not be durable yet, in commit order.
//!
//! # Invariants
//!
//! 1. `drawn` and the entries' timestamps grow strictly, and so do the entries' log positions:
//!    both are set under the log's lock.
//! 2. Every transaction that ever commits at or below the clock's `last` is finished, queued or
//!    `drawn`.
//! 3. Entries leave at the front as committed, or from anywhere as aborted.
//! 4. `stable` is stored under the lock, after every commit at or below it was marked; outside the
//!    lock nothing marked is above stable.
//! 5. `queued` is the newest timestamp that was ever queued; it is stored after its transaction was
//!    marked pre-committed, so that a reader that loads it finds all commits at or below it at
//!    least pre-committed.
//!
//! A snapshot at a moment later than stable is complete once the clock can give out no timestamp
//! at or below it any more and nothing at or below it is drawn or queued: by 2 all its commits
//! are finished then. See `CommitQueue::complete_through`.

use crate::clock::CommitClock;
use crate::start_word::StartWord;
use crate::transaction_table::{Finish, TransactionTable};
use crate::waits::{CANCEL_POLL, query_cancelled};
use std::collections::VecDeque;
use std::sync::Arc;
use strandline_base::sync::{AtomicU64, Condvar, Mutex, Ordering};
use strandline_base::{Clock, CommitTs, Result};

/// When a queued commit may be marked committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// When its log record is durable (`synchronous_commit = on`).
    Logged,
    /// As soon as every commit before it is (`synchronous_commit = off`).
    Relaxed,
}

struct QueuedCommit {
    word: StartWord,
    ts: CommitTs,
    log_end: u64,
    durability: Durability,
}

struct Pending {
    clock: CommitClock,
    /// A timestamp that has been given out and is about to be queued.
    drawn: Option<CommitTs>,
    entries: VecDeque<QueuedCommit>,
    /// Snapshots that wait in `complete_through`.
    snapshots_waiting: usize,
}

impl Pending {
    fn unfinished_through(&self, at: CommitTs) -> bool {
        self.drawn.is_some_and(|ts| ts <= at) || self.entries.front().is_some_and(|e| e.ts <= at)
    }
}

/// The queue, its clock and the stable timestamp.
pub(crate) struct CommitQueue {
    pending: Mutex<Pending>,
    finished: Condvar,
    stable: Moment,
    queued: Moment,
}

/// Alone on its cache lines: every reader loads it.
#[repr(align(128))]
struct Moment(AtomicU64);

impl CommitQueue {
    /// An empty queue; everything up to `last` is finished.
    pub fn new(wall: Arc<dyn Clock>, last: CommitTs) -> Self {
        Self {
            pending: Mutex::new(Pending {
                clock: CommitClock::new(wall, last),
                drawn: None,
                entries: VecDeque::new(),
                snapshots_waiting: 0,
            }),
            finished: Condvar::new(),
            stable: Moment(AtomicU64::new(last.0)),
            queued: Moment(AtomicU64::new(last.0)),
        }
    }

    /// Every commit up to it is pre-committed or finished.
    pub fn queued(&self) -> CommitTs {
        CommitTs(self.queued.0.load(Ordering::SeqCst))
    }

    /// Every commit up to it is marked.
    pub fn stable(&self) -> CommitTs {
        CommitTs(self.stable.0.load(Ordering::Acquire))
    }

    /// The timestamp of the commit that is enqueued next.
    pub fn tick(&self) -> CommitTs {
        let mut pending = self.pending.lock();
        let ts = pending.clock.tick();
        pending.drawn = Some(ts);
        ts
    }

    /// Marks the transaction that drew `ts` with the last tick pre-committed, and queues it.
    pub fn enqueue(
        &self,
        (word, table): (StartWord, &TransactionTable),
        ts: CommitTs,
        log_end: u64,
        durability: Durability,
    ) {
        let mut pending = self.pending.lock();
        assert_eq!(
            pending.drawn,
            Some(ts),
            "a commit is queued under the log lock it ticked under"
        );
        if let Some(newest) = pending.entries.back() {
            assert!(newest.log_end < log_end, "commit order is log order");
        }
        pending.drawn = None;
        pending.entries.push_back(QueuedCommit {
            word,
            ts,
            log_end,
            durability,
        });
        table.pre_commit(word, ts);
        self.queued.0.store(ts.0, Ordering::SeqCst);
    }

    /// Marks the commits logged before `log_end`, and relaxed ones next in line, and moves stable.
    /// Returns the commits that transactions wait for.
    pub fn finish_through(&self, log_end: u64, table: &TransactionTable) -> Vec<StartWord> {
        let mut waited = Vec::new();
        let mut pending = self.pending.lock();
        let mut newest = None;
        while let Some(front) = pending.entries.front() {
            if front.durability == Durability::Logged && front.log_end > log_end {
                break;
            }
            if table.commit(front.word, front.ts) == Finish::Waited {
                waited.push(front.word);
            }
            newest = Some(front.ts);
            pending.entries.pop_front();
        }
        if let Some(ts) = newest {
            self.stable.0.store(ts.0, Ordering::Release);
            self.notify(&pending);
        }
        waited
    }

    /// Takes an aborted transaction out of the queue: its log record will never be durable.
    pub fn remove(&self, word: StartWord) {
        let mut pending = self.pending.lock();
        pending.entries.retain(|entry| entry.word != word);
        self.notify(&pending);
    }

    /// Returns when every commit at or below `at` is marked and no further one can get such a
    /// timestamp; 22023 if `at` is in the future of the clock, 57014 if `cancelled` turns true.
    pub fn complete_through(&self, at: CommitTs, cancelled: &dyn Fn() -> bool) -> Result<()> {
        if at <= self.stable() {
            return Ok(());
        }
        let mut pending = self.pending.lock();
        pending.clock.reach(at)?;
        pending.snapshots_waiting += 1;
        let mut outcome = Ok(());
        while outcome.is_ok() && pending.unfinished_through(at) {
            match cancelled() {
                true => outcome = Err(query_cancelled()),
                false => {
                    self.finished.wait_for(&mut pending, CANCEL_POLL);
                }
            }
        }
        pending.snapshots_waiting -= 1;
        outcome
    }

    /// Returns when stable has passed every commit that is marked now.
    pub fn settle(&self) {
        drop(self.pending.lock());
    }

    /// Recovery replayed a commit at `ts`.
    pub fn observe(&self, ts: CommitTs) {
        let mut pending = self.pending.lock();
        assert!(
            pending.entries.is_empty() && pending.drawn.is_none(),
            "commits are replayed before the first transaction commits"
        );
        pending.clock.observe(ts);
        if ts > self.stable() {
            self.stable.0.store(ts.0, Ordering::Release);
            self.queued.0.store(ts.0, Ordering::SeqCst);
        }
    }

    fn notify(&self, pending: &Pending) {
        if pending.snapshots_waiting > 0 {
            self.finished.notify_all();
        }
    }
}
