//! The options of a transaction that may change while it runs. A change applies to waits and
//! commits that begin after it.

use super::Transaction;
use crate::settings::{ConflictPolicy, TxnOptions};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// `lock_timeout_ns` without a limit.
const FOR_EVER: u64 = u64::MAX;

/// The options; see the module's documentation.
#[derive(Debug)]
pub(super) struct Adjustable {
    synchronous_commit: AtomicBool,
    /// conflicts fail at once
    aborts: AtomicBool,
    lock_timeout_ns: AtomicU64,
}

impl Adjustable {
    /// The options with which a transaction begins.
    pub fn of(options: &TxnOptions) -> Self {
        let adjustable = Self {
            synchronous_commit: AtomicBool::default(),
            aborts: AtomicBool::default(),
            lock_timeout_ns: AtomicU64::default(),
        };
        adjustable.set(
            options.synchronous_commit,
            options.conflicts,
            options.lock_timeout,
        );
        adjustable
    }

    fn set(
        &self,
        synchronous_commit: bool,
        conflicts: ConflictPolicy,
        lock_timeout: Option<Duration>,
    ) {
        self.synchronous_commit
            .store(synchronous_commit, Ordering::Relaxed);
        let aborts = conflicts == ConflictPolicy::Abort;
        self.aborts.store(aborts, Ordering::Relaxed);
        let nanoseconds = lock_timeout.map_or(FOR_EVER, |timeout| {
            u64::try_from(timeout.as_nanos()).unwrap_or(FOR_EVER)
        });
        self.lock_timeout_ns.store(nanoseconds, Ordering::Relaxed);
    }
}

impl Transaction {
    /// Changes the options from now on.
    pub fn adjust(
        &self,
        synchronous_commit: bool,
        conflicts: ConflictPolicy,
        lock_timeout: Option<Duration>,
    ) {
        self.adjustable
            .set(synchronous_commit, conflicts, lock_timeout);
    }
    /// Whether the commit waits until it is durable.
    pub fn synchronous_commit(&self) -> bool {
        self.adjustable.synchronous_commit.load(Ordering::Relaxed)
    }
    /// The behaviour at another transaction's uncommitted change.
    pub fn conflicts(&self) -> ConflictPolicy {
        match self.adjustable.aborts.load(Ordering::Relaxed) {
            true => ConflictPolicy::Abort,
            false => ConflictPolicy::Wait,
        }
    }
    /// The time that a wait for another transaction may take; None: unlimited.
    pub(super) fn lock_timeout(&self) -> Option<Duration> {
        match self.adjustable.lock_timeout_ns.load(Ordering::Relaxed) {
            FOR_EVER => None,
            nanoseconds => Some(Duration::from_nanos(nanoseconds)),
        }
    }
}
