//! Snapshots and holds of history as their owners have them: registered until they are dropped.

use crate::manager::TxnManager;
use strandline_base::sync::Arc;
use strandline_base::{CommitTs, Result};

impl TxnManager {
    /// Registers a snapshot at the stable timestamp (or at `at`) so that nothing it can see is
    /// dropped; unregistered on drop. An `at` later than stable waits until the commits up to it
    /// are finished, and no later commit gets a timestamp at or below it; one in the future of the
    /// clock is an error (22023). For an `at` older than stable check the retention after this
    /// call: only from here on is anything kept for it.
    pub fn snapshot(self: &Arc<Self>, at: Option<CommitTs>) -> Result<SnapshotGuard> {
        match at {
            Some(at) => self.snapshot_at(at, &|| false),
            None => {
                let entered = self.snapshots().enter(|| self.stable());
                Ok(SnapshotGuard::entered(self.clone(), entered))
            }
        }
    }

    /// As [`TxnManager::snapshot`] at a given moment; 57014 if `cancelled` turns true while it
    /// waits (looked at every 50 ms, with the commit queue locked: it must only read a flag).
    pub fn snapshot_at(
        self: &Arc<Self>,
        at: CommitTs,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<SnapshotGuard> {
        let entered = self.snapshots().enter(|| at);
        let guard = SnapshotGuard::entered(self.clone(), entered);
        self.commits().complete_through(at, cancelled)?;
        Ok(guard)
    }

    /// Registers a snapshot that sees commits which are in the log and may not be durable yet. Its
    /// reader depends on them: it must acknowledge nothing before stable has reached the snapshot's
    /// timestamp, and fails if the log fails \[L-Store §5.1.1: speculative reads\].
    pub fn speculative_snapshot(self: &Arc<Self>) -> SnapshotGuard {
        let entered = self.snapshots().enter(|| self.queued());
        SnapshotGuard::entered(self.clone(), entered)
    }

    /// From now on all versions that are valid at some moment from `from` to `through`, both
    /// inclusive, are kept, until this is dropped. As with a snapshot at an old moment: check the
    /// retention *after* this call.
    pub fn hold_history(self: &Arc<Self>, from: CommitTs, through: CommitTs) -> HistoryHold {
        HistoryHold::new(self.clone(), (from, through))
    }
}

/// Keeps all versions that are valid within an interval of time, for readers of it. Ends when
/// dropped.
pub struct HistoryHold {
    manager: Arc<TxnManager>,
    interval: (CommitTs, CommitTs),
}

impl HistoryHold {
    fn new(manager: Arc<TxnManager>, interval: (CommitTs, CommitTs)) -> Self {
        manager.snapshots().hold(interval);
        Self { manager, interval }
    }
}

impl Drop for HistoryHold {
    fn drop(&mut self) {
        self.manager.snapshots().end_hold(self.interval);
    }
}

/// A registered snapshot: the versions it sees are kept. Clone to share; the registration ends with
/// the last clone.
pub struct SnapshotGuard {
    manager: Arc<TxnManager>,
    ts: CommitTs,
    stripe: usize,
}

impl SnapshotGuard {
    fn entered(manager: Arc<TxnManager>, (ts, stripe): (CommitTs, usize)) -> Self {
        Self {
            manager,
            ts,
            stripe,
        }
    }
    /// Commits up to here are visible.
    pub fn ts(&self) -> CommitTs {
        self.ts
    }
}

impl Clone for SnapshotGuard {
    fn clone(&self) -> Self {
        // In the same stripe: elsewhere a visitor of all stripes could miss both.
        let entered = self.manager.snapshots().enter_in(self.stripe, || self.ts);
        Self::entered(self.manager.clone(), entered)
    }
}

impl Drop for SnapshotGuard {
    fn drop(&mut self) {
        self.manager.snapshots().leave(self.ts, self.stripe);
    }
}

impl std::fmt::Debug for SnapshotGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SnapshotGuard({})", self.ts)
    }
}
