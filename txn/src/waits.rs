//! Writers that wait for other transactions to finish, and the wait-for graph that finds
//! deadlocks. Only the slow path comes here.
//!
//! # Invariants
//!
//! 1. A transaction waits for one other at a time: at most one edge leaves a node.
//! 2. An edge is added only if following the edges from its holder does not lead back to the
//!    waiter, under the graph's lock: the graph stays free of cycles, and a deadlock is found by
//!    the transaction that would close it.
//! 3. No wake-up is lost. The waiter sets the holder's *waited* bit while the holder is in
//!    progress and holds the graph's lock from before that until it sleeps; the finisher's one
//!    read-modify-write of the same word either comes first (then setting the bit fails and the
//!    waiter does not sleep) or sees the bit, and then notifies under the graph's lock, which it
//!    gets only once the waiter sleeps.
//!
//! Edges to finished holders stay until their waiters have run; a search does not follow them.
//!
//! Waiting is counted in slices that timed out, not by a clock: it is right under an injected
//! clock that stands still, and precise to the scheduler's delay per slice.

use crate::start_word::{StartWord, TxnStatus};
use crate::transaction_table::TransactionTable;
use std::collections::HashMap;
use std::time::Duration;
use strandline_base::sync::{Arc, Condvar, Mutex, MutexGuard};
use strandline_base::{Error, ErrorKind, Result, SqlState};

/// How often a waiter looks at its cancel flag and whether the holder is still in its way.
const CANCEL_POLL: Duration = Duration::from_millis(50);

/// How long a transaction waits for another one. The functions are called with the wait-for graph
/// locked and must only read.
pub struct WaitLimits<'a> {
    /// The longest wait; None: for ever.
    pub timeout: Option<Duration>,
    /// Whether the waiting statement has been cancelled.
    pub cancelled: &'a dyn Fn() -> bool,
    /// Whether the holder, while it runs, still has what the waiter wants.
    pub in_the_way: &'a dyn Fn() -> bool,
}

/// Those who wait for one holder.
#[derive(Default)]
struct Queue {
    finished: Arc<Condvar>,
    waiters: usize,
}

#[derive(Default)]
struct WaitGraph {
    /// waiter → holder
    holder_of: HashMap<StartWord, StartWord>,
    /// holder → its waiters
    queues: HashMap<StartWord, Queue>,
}

impl WaitGraph {
    fn enter(&mut self, waiter: StartWord, holder: StartWord) -> Arc<Condvar> {
        self.holder_of.insert(waiter, holder);
        let queue = self.queues.entry(holder).or_default();
        queue.waiters += 1;
        queue.finished.clone()
    }

    fn leave(&mut self, waiter: StartWord, holder: StartWord) {
        self.holder_of.remove(&waiter);
        let queue = self
            .queues
            .get_mut(&holder)
            .expect("the waiter's own queue");
        queue.waiters -= 1;
        if queue.waiters == 0 {
            self.queues.remove(&holder);
        }
    }

    /// The transactions from `holder` on, each waiting for the next, if they lead to `waiter`.
    fn path(
        &self,
        holder: StartWord,
        waiter: StartWord,
        table: &TransactionTable,
    ) -> Option<Vec<StartWord>> {
        let mut path = Vec::new();
        let mut at = holder;
        while at != waiter {
            if !is_unfinished(table, at) {
                return None;
            }
            path.push(at);
            at = *self.holder_of.get(&at)?;
        }
        Some(path)
    }
}

/// The waiting transactions of a database.
#[derive(Default)]
pub(crate) struct Waits {
    graph: Mutex<WaitGraph>,
}

impl Waits {
    /// See [`TxnManager::wait_while`](crate::TxnManager::wait_while).
    pub fn wait_for(
        &self,
        table: &TransactionTable,
        (waiter, holder): (StartWord, StartWord),
        limits: &WaitLimits<'_>,
    ) -> Result<()> {
        let mut graph = self.graph.lock();
        if !table.mark_waited(holder) {
            return Ok(());
        }
        if let Some(path) = graph.path(holder, waiter, table) {
            return Err(deadlock(waiter, &path));
        }
        if graph.holder_of.contains_key(&waiter) {
            return Err(Error::internal(format!(
                "transaction {waiter} waits for {holder} while it waits for another one"
            )));
        }
        let finished = graph.enter(waiter, holder);
        let in_the_way = || is_unfinished(table, holder) && (limits.in_the_way)();
        let limits = WaitLimits {
            in_the_way: &in_the_way,
            ..*limits
        };
        let outcome = block(&mut graph, &finished, &limits);
        graph.leave(waiter, holder);
        outcome.map_err(|error| {
            error.with_detail(format!(
                "Transaction {waiter} waited for transaction {holder}."
            ))
        })
    }

    /// Wakes all who wait for `holder`, which has finished.
    pub fn wake(&self, holder: StartWord) {
        let graph = self.graph.lock();
        if let Some(queue) = graph.queues.get(&holder) {
            queue.finished.notify_all();
        }
    }
}

fn is_unfinished(table: &TransactionTable, word: StartWord) -> bool {
    matches!(
        table.status(word),
        TxnStatus::InProgress | TxnStatus::PreCommitted(_)
    )
}

/// Sleeps until the holder is out of the way, the time is up or the statement is cancelled.
fn block(
    graph: &mut MutexGuard<'_, WaitGraph>,
    finished: &Condvar,
    limits: &WaitLimits<'_>,
) -> Result<()> {
    let mut waited = Duration::ZERO;
    while (limits.in_the_way)() {
        if (limits.cancelled)() {
            return Err(Error::new(
                ErrorKind::Cancelled,
                SqlState::QUERY_CANCELED,
                "canceling statement due to user request",
            ));
        }
        let left = limits
            .timeout
            .map_or(CANCEL_POLL, |timeout| timeout.saturating_sub(waited));
        if left.is_zero() {
            return Err(lock_timeout(waited));
        }
        let slice = left.min(CANCEL_POLL);
        if finished.wait_for(graph, slice).timed_out() {
            waited += slice;
        }
    }
    Ok(())
}

fn lock_timeout(waited: Duration) -> Error {
    Error::new(
        ErrorKind::Cancelled,
        SqlState::LOCK_NOT_AVAILABLE,
        "canceling statement due to lock timeout",
    )
    .with_hint(format!(
        "lock_timeout is {} ms; raise it, or find out why the other transaction stays open.",
        waited.as_millis()
    ))
}

/// `path`: the transactions between the waiter and itself.
fn deadlock(waiter: StartWord, path: &[StartWord]) -> Error {
    let mut edges = Vec::with_capacity(path.len() + 1);
    let mut from = waiter;
    for &to in path.iter().chain([&waiter]) {
        edges.push(format!("transaction {from} waits for transaction {to}"));
        from = to;
    }
    let holder = path.first().copied().unwrap_or(waiter);
    Error::new(
        ErrorKind::Conflict,
        SqlState::DEADLOCK_DETECTED,
        format!("deadlock detected between transactions {waiter} and {holder}"),
    )
    .with_detail(format!("{}.", edges.join("; ")))
    .with_hint("Run the transaction again; writing rows in the same order avoids deadlocks.")
}
