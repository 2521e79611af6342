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
//! 4. A transaction that lets go of locks before it finishes (back to a savepoint) counts that in
//!    `releases` after it has let go, and wakes its waiters. Each looks again at what it waits
//!    for. A waiter that looked before the count changed does not sleep.
//!
//! Edges to finished holders stay until their waiters have run. A search follows neither these
//! edges nor edges from before the holder's last release: their waiters look again, and a waiter
//! that waits on searches anew.
//!
//! Waiting is counted in slices that timed out, not by a clock: it is right under an injected
//! clock that stands still, and precise to the scheduler's delay per slice.

use crate::start_word::{StartWord, TxnStatus};
use crate::transaction_table::TransactionTable;
use std::collections::HashMap;
use std::time::Duration;
use strandline_base::sync::{Arc, AtomicU64, Condvar, Mutex, MutexGuard, Ordering, yield_now};
use strandline_base::{Error, ErrorKind, Result, SqlState};

/// How often a waiter looks at its cancel flag and whether the holder is still in its way.
pub(crate) const CANCEL_POLL: Duration = Duration::from_millis(50);

/// Looks at a finished holder before a waiter sleeps between two of them.
const RELEASE_LOOKS: usize = 1_000;

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

/// State of a waiter between two waits for the same lock.
#[derive(Debug, Default)]
pub struct Looks {
    /// the count of releases before the last look; None: it has not looked since it knew one
    releases: Option<u64>,
    /// the last holder and how long it was waited for
    last: Option<(StartWord, Duration)>,
}

impl Looks {
    fn waited_for(&self, holder: StartWord) -> Duration {
        match self.last {
            Some((last, waited)) if last == holder => waited,
            _ => Duration::ZERO,
        }
    }
}

/// The waiters of one holder.
#[derive(Default)]
struct Queue {
    wake: Arc<Condvar>,
    waiters: usize,
    /// how often the holder has let go of something since the queue began
    releases: u64,
}

/// From a waiter to the transaction that it waits for.
#[derive(Clone, Copy)]
struct Edge {
    holder: StartWord,
    /// `Queue::releases` when the waiter last looked
    releases: u64,
}

#[derive(Default)]
struct WaitGraph {
    /// by waiter
    edges: HashMap<StartWord, Edge>,
    /// holder → its waiters
    queues: HashMap<StartWord, Queue>,
}

impl WaitGraph {
    fn enter(&mut self, waiter: StartWord, holder: StartWord) -> Arc<Condvar> {
        let queue = self.queues.entry(holder).or_default();
        queue.waiters += 1;
        let releases = queue.releases;
        self.edges.insert(waiter, Edge { holder, releases });
        queue.wake.clone()
    }

    fn leave(&mut self, waiter: StartWord, holder: StartWord) {
        self.edges.remove(&waiter);
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
            let edge = self.edges.get(&at)?;
            if self.is_outdated(edge) {
                return None;
            }
            at = edge.holder;
        }
        Some(path)
    }

    /// Whether the holder has let go of something since the waiter looked.
    fn is_outdated(&self, edge: &Edge) -> bool {
        let queue = self.queues.get(&edge.holder);
        queue.is_none_or(|queue| queue.releases != edge.releases)
    }
}

/// The waiting transactions of a database.
#[derive(Default)]
pub(crate) struct Waits {
    graph: Mutex<WaitGraph>,
    /// how often a transaction has let go of something before its end
    releases: AtomicU64,
}

impl Waits {
    /// See [`TxnManager::wait_while`](crate::TxnManager::wait_while).
    pub fn wait_for(
        &self,
        table: &TransactionTable,
        (waiter, holder): (StartWord, StartWord),
        limits: &WaitLimits<'_>,
        looks: &mut Looks,
    ) -> Result<()> {
        let mut graph = self.graph.lock();
        if !table.mark_waited(holder) {
            return Ok(());
        }
        let releases = self.releases.load(Ordering::Acquire);
        if looks.releases.replace(releases) != Some(releases) {
            return Ok(());
        }
        if let Some(path) = graph.path(holder, waiter, table) {
            return Err(deadlock(waiter, &path));
        }
        if graph.edges.contains_key(&waiter) {
            return Err(Error::internal(format!(
                "transaction {waiter} waits for {holder} while it waits for another one"
            )));
        }
        let wake = graph.enter(waiter, holder);
        let in_the_way = || is_unfinished(table, holder) && (limits.in_the_way)();
        let limits = WaitLimits {
            in_the_way: &in_the_way,
            ..*limits
        };
        let mut waited = looks.waited_for(holder);
        let outcome = block(&mut graph, waiter, &wake, &limits, &mut waited);
        graph.leave(waiter, holder);
        looks.last = Some((holder, waited));
        looks.releases = Some(self.releases.load(Ordering::Acquire));
        outcome.map_err(|error| {
            error.with_detail(format!(
                "Transaction {waiter} waited for transaction {holder}."
            ))
        })
    }

    /// The unfinished `holder` has released a lock: its waiters look again.
    pub fn release(&self, table: &TransactionTable, holder: StartWord) {
        self.releases.fetch_add(1, Ordering::AcqRel);
        if !table.is_waited_ordered(holder) {
            return;
        }
        let mut graph = self.graph.lock();
        if let Some(queue) = graph.queues.get_mut(&holder) {
            queue.releases += 1;
            queue.wake.notify_all();
        }
    }

    /// See [`TxnManager::wait_for_release`](crate::TxnManager::wait_for_release).
    pub fn wait_for_release(&self, limits: &WaitLimits<'_>) -> Result<()> {
        for _ in 0..RELEASE_LOOKS {
            if !(limits.in_the_way)() {
                return Ok(());
            }
            yield_now();
        }
        // Nobody wakes it: the holder has finished long ago.
        let (nobody, mut waited) = (Condvar::new(), Duration::ZERO);
        let mut graph = self.graph.lock();
        while (limits.in_the_way)() {
            let slice = next_slice(limits, waited)?;
            nobody.wait_for(&mut graph, slice);
            waited += slice;
        }
        Ok(())
    }

    /// Wakes all who wait for `holder`, which has finished.
    pub fn wake(&self, holder: StartWord) {
        let graph = self.graph.lock();
        if let Some(queue) = graph.queues.get(&holder) {
            queue.wake.notify_all();
        }
    }
}

fn is_unfinished(table: &TransactionTable, word: StartWord) -> bool {
    matches!(
        table.status(word),
        TxnStatus::InProgress | TxnStatus::PreCommitted(_)
    )
}

/// Sleeps until the holder is out of the way or has let go of something, the time is up or the
/// statement is cancelled. `waited` grows by the time slept.
fn block(
    graph: &mut MutexGuard<'_, WaitGraph>,
    waiter: StartWord,
    wake: &Condvar,
    limits: &WaitLimits<'_>,
    waited: &mut Duration,
) -> Result<()> {
    let is_outdated = |graph: &WaitGraph| graph.is_outdated(&graph.edges[&waiter]);
    while (limits.in_the_way)() && !is_outdated(graph) {
        let slice = next_slice(limits, *waited)?;
        if wake.wait_for(graph, slice).timed_out() {
            *waited += slice;
        }
    }
    Ok(())
}

/// How long to sleep before the next look; the error if the wait is over.
fn next_slice(limits: &WaitLimits<'_>, waited: Duration) -> Result<Duration> {
    if (limits.cancelled)() {
        return Err(query_cancelled());
    }
    let left = limits
        .timeout
        .map_or(CANCEL_POLL, |timeout| timeout.saturating_sub(waited));
    if left.is_zero() {
        return Err(lock_timeout(waited));
    }
    Ok(left.min(CANCEL_POLL))
}

/// 57014: the statement was cancelled.
pub fn query_cancelled() -> Error {
    Error::new(
        ErrorKind::Cancelled,
        SqlState::QUERY_CANCELED,
        "canceling statement due to user request",
    )
}

/// 55P03: a lock was waited for as long as `lock_timeout` allows.
pub fn lock_timeout(waited: Duration) -> Error {
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
