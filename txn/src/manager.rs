//! [`TxnManager`] joins the transaction table, the commit queue, the snapshots and the waiting
//! writers; [`TxnSlot`] is a running transaction's claim on its slot. Snapshots are taken in
//! `snapshot_guard`.

use crate::commit_queue::{CommitQueue, Durability};
use crate::snapshots::Snapshots;
use crate::start_word::{StartWord, TxnStatus};
use crate::transaction_table::{Finish, SLOTS, TransactionTable};
use crate::waits::{Looks, WaitLimits, Waits};
use std::time::Duration;
use strandline_base::sync::{Arc, AtomicBool, Ordering};
use strandline_base::{Clock, CommitTs, Error, Result};

/// Shared by all tables and connections of a database.
pub struct TxnManager {
    table: TransactionTable,
    commits: CommitQueue,
    snapshots: Snapshots,
    waits: Waits,
}

impl TxnManager {
    /// `last`: the newest timestamp ever given out, from recovery; the clock never goes below it
    /// and stable starts there.
    pub fn new(clock: Arc<dyn Clock>, last: CommitTs) -> Arc<Self> {
        Self::with_slots(clock, last, SLOTS)
    }

    /// As [`TxnManager::new`], with room for `slots` running transactions (at most 65,536).
    pub fn with_slots(clock: Arc<dyn Clock>, last: CommitTs, slots: usize) -> Arc<Self> {
        Arc::new(Self {
            table: TransactionTable::new(slots),
            commits: CommitQueue::new(clock, last),
            snapshots: Snapshots::new(),
            waits: Waits::default(),
        })
    }

    /// The next tick: max(now, last + 1), whatever the wall clock does. Called under the log lock
    /// by a commit, which passes the timestamp to [`TxnManager::enqueue_commit`] before it
    /// releases the lock: snapshots at later moments wait for it from now on.
    pub fn tick(&self) -> CommitTs {
        self.commits.tick()
    }

    /// Everything up to it is finished (and durable where asked for). It moves with
    /// [`TxnManager::finish_through`] only: it is the timestamp of the last finished commit.
    #[inline]
    pub fn stable(&self) -> CommitTs {
        self.commits.stable()
    }

    /// Recovery replayed a commit at `ts`: clock and stable are at least there. Only before the
    /// first commit of this run.
    pub fn observe(&self, ts: CommitTs) {
        self.commits.observe(ts);
    }

    /// Claims a slot and a generation; 53200 if all slots are taken.
    pub fn begin(self: &Arc<Self>) -> Result<TxnSlot> {
        let word = self.table.begin()?;
        Ok(TxnSlot {
            manager: self.clone(),
            word,
            queued: AtomicBool::new(false),
            released: false,
        })
    }

    /// Resolves a transaction word (`word.is_txn()`). Lock-free.
    #[inline]
    pub fn status(&self, word: StartWord) -> TxnStatus {
        debug_assert!(word.is_txn(), "{word} needs no resolving");
        self.table.status(word)
    }

    /// The intervals, bounds inclusive, of which all versions are held.
    pub fn held_intervals(&self) -> Vec<(CommitTs, CommitTs)> {
        self.snapshots.holds()
    }

    /// The newest timestamp that a commit has been queued with: every commit up to it is
    /// pre-committed or finished. In one total order with the caller's other SeqCst operations.
    pub fn queued(&self) -> CommitTs {
        self.commits.queued()
    }

    /// The oldest registered snapshot, or stable if there is none: versions superseded at or
    /// before it are invisible to every snapshot. Possibly lower than necessary, never higher.
    pub fn oldest_snapshot(&self) -> CommitTs {
        let stable = self.stable();
        self.snapshots.oldest(stable)
    }

    /// The registered snapshots, ascending. Of those below a stable timestamp loaded before this
    /// call none is missing: a version superseded at or before that timestamp, and visible to none
    /// of them, is invisible to every later snapshot.
    pub fn registered_snapshots(&self) -> Vec<CommitTs> {
        self.snapshots.registered()
    }

    /// Blocks `waiter` until the transaction behind `holder` has finished. 40P01 if that closes a
    /// cycle (the waiter is the victim), 55P03 after `timeout` (None: for ever), 57014 if
    /// `cancelled` turns true (looked at every 50 ms, with the wait-for graph locked: it must only
    /// read a flag). Wakes at once when the holder finishes; if it committed, stable has passed it
    /// when this returns, so that a new snapshot sees what it did.
    pub fn wait_for(
        &self,
        waiter: StartWord,
        holder: StartWord,
        timeout: Option<Duration>,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<()> {
        let limits = WaitLimits {
            timeout,
            cancelled,
            in_the_way: &|| true,
        };
        let mut looks = Looks::default();
        while self.is_unfinished(holder) {
            self.wait_while(waiter, holder, &limits, &mut looks)?;
        }
        self.commits.settle();
        Ok(())
    }

    /// As [`TxnManager::wait_for`], for something that the holder may let go of before it
    /// finishes. Returns also
    /// * when the holder is not [in the way](WaitLimits::in_the_way) any more, which is looked at
    ///   every 50 ms,
    /// * when the holder has let go of something ([`TxnSlot::let_go`]),
    /// * at once on the first call with these `looks`, and when any transaction has let go of
    ///   something since the call before.
    ///
    /// So the caller calls it in a loop, with the same `looks`, and looks each time whether what
    /// it wants is free.
    pub fn wait_while(
        &self,
        waiter: StartWord,
        holder: StartWord,
        limits: &WaitLimits<'_>,
        looks: &mut Looks,
    ) -> Result<()> {
        if waiter == holder {
            return Err(Error::internal(format!(
                "transaction {waiter} waits for itself"
            )));
        }
        self.waits
            .wait_for(&self.table, (waiter, holder), limits, looks)?;
        self.commits.settle();
        Ok(())
    }

    /// Whether the transaction behind `word` has neither committed nor rolled back.
    pub fn is_unfinished(&self, word: StartWord) -> bool {
        let status = self.table.status(word);
        matches!(status, TxnStatus::InProgress | TxnStatus::PreCommitted(_))
    }

    /// Blocks until a holder that has finished is not [in the way](WaitLimits::in_the_way) any
    /// more: it lets go of what it holds right after its end. As [`TxnManager::wait_for`] it
    /// honours the timeout and the cancel flag, in case the holder's thread hangs there.
    pub fn wait_for_release(&self, limits: &WaitLimits<'_>) -> Result<()> {
        self.waits.wait_for_release(limits)
    }

    /// Called under the log lock, in commit order: enqueues the commit that drew `ts` with the
    /// last [`TxnManager::tick`] and whose log record ends at `log_end`. It becomes Committed and
    /// stable passes it when [`TxnManager::finish_through`] reaches `log_end`.
    pub fn enqueue_commit(&self, slot: &TxnSlot, ts: CommitTs, log_end: u64) {
        self.enqueue(slot, ts, log_end, Durability::Logged);
    }

    /// As [`TxnManager::enqueue_commit`], with a choice of when the commit may finish. A
    /// [`Durability::Relaxed`] commit finishes with any `finish_through` call once everything
    /// before it has. Its owner calls `finish_through(0)` and, if stable is below `ts` then (a
    /// synchronous commit is ahead), waits for the log like a synchronous one: it must not be
    /// acknowledged before stable has passed it.
    pub fn enqueue(&self, slot: &TxnSlot, ts: CommitTs, log_end: u64, durability: Durability) {
        let queued_before = slot.queued.swap(true, Ordering::Relaxed);
        assert!(!queued_before, "transaction {} commits twice", slot.word);
        let marked = (slot.word, &self.table);
        self.commits.enqueue(marked, ts, log_end, durability);
    }

    /// Everything logged before `log_end` is durable: marks the queued commits up to there
    /// Committed, in order, and relaxed ones next in line, advances stable, wakes waiters. When it
    /// returns, stable has passed those commits, by this call or another one. (Their status may
    /// say so a moment earlier.)
    pub fn finish_through(&self, log_end: u64) {
        for word in self.commits.finish_through(log_end, &self.table) {
            self.waits.wake(word);
        }
    }

    #[inline]
    pub(crate) fn snapshots(&self) -> &Snapshots {
        &self.snapshots
    }
    pub(crate) fn commits(&self) -> &CommitQueue {
        &self.commits
    }
}

/// A running transaction's claim on its slot. Dropping it without `stamped` aborts it.
///
/// That drop is a safety net for panics: records may still carry the word, so the slot is never
/// reused and its status stays as it is for as long as the database is open. A queued commit is
/// not aborted by the drop, because its log record may become durable: it stays in the queue and
/// finishes in its turn.
pub struct TxnSlot {
    manager: Arc<TxnManager>,
    word: StartWord,
    queued: AtomicBool,
    released: bool,
}

impl TxnSlot {
    /// The word that the transaction writes into its records.
    pub fn word(&self) -> StartWord {
        self.word
    }

    /// The transaction's own state.
    pub fn status(&self) -> TxnStatus {
        self.manager.table.status(self.word)
    }

    /// Marks it aborted and wakes waiters. The owner then tombstones its records and calls
    /// `stamped`. A queued commit is aborted only when the log has failed for good, so that its
    /// record can not become durable while the database is open; it is taken out of the queue,
    /// which would be stuck otherwise. No effect on a finished transaction.
    pub fn abort(&self) {
        let finish = self.manager.table.abort(self.word);
        if finish == Finish::Already {
            return;
        }
        if self.is_queued() {
            self.manager.commits.remove(self.word);
            self.manager.finish_through(0);
        }
        if finish == Finish::Waited {
            self.manager.waits.wake(self.word);
        }
    }

    /// After the commit was queued: wakes the transactions that wait only for pre-commit.
    pub fn announce(&self) {
        if self.is_waited_for() {
            self.manager.waits.wake(self.word);
        }
    }

    /// The transaction has released a lock before its end: its waiters look again.
    pub fn let_go(&self) {
        self.manager.waits.release(&self.manager.table, self.word);
    }

    /// Whether somebody waits for the transaction.
    pub fn is_waited_for(&self) -> bool {
        self.manager.table.is_waited(self.word)
    }

    /// All records carry their final start word: the slot may be reused with a new generation.
    /// A transaction that wrote nothing comes here without commit or abort. Panics if its commit
    /// is still queued.
    pub fn stamped(mut self) {
        if !matches!(self.status(), TxnStatus::Committed(_) | TxnStatus::Aborted) {
            assert!(
                !self.is_queued(),
                "transaction {} is stamped before it commits",
                self.word
            );
            self.abort();
        }
        self.manager.table.release(self.word);
        self.released = true;
    }

    fn is_queued(&self) -> bool {
        self.queued.load(Ordering::Relaxed)
    }
}

impl Drop for TxnSlot {
    fn drop(&mut self) {
        if !self.released && !self.is_queued() {
            self.abort();
        }
    }
}

impl std::fmt::Debug for TxnSlot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TxnSlot({}, {:?})", self.word, self.status())
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests;
