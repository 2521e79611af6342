//! The background work of the SSD cache: its steps free slots ahead of evictions and make admitted
//! blocks durable.
//!
//! A thread of its own makes them, since evictions do not wait for free slots and a checkpoint may
//! take long. Without background threads they are part of a turn of the maintenance.
//!
//! A step that fails is told once and tried again after growing pauses. After a failed sync the
//! cache takes no writes any more: a checkpoint then gives up the files that went through it
//! (`checkpoint::index_files`), and the database goes on without a cache.

use crate::db::cache_steps::CacheSteps;
use crate::db::{Db, Maintenance};
use crate::index_files::IndexFiles;
use crate::maintenance::set_aside::contained;
use std::sync::atomic::Ordering;
use std::time::Duration;
use strandline_base::{Clock, ErrorKind};

/// Interval of the thread's turns when no admission wakes it.
const IDLE: Duration = Duration::from_millis(200);

/// The thread: it ends when the database is closed.
pub(super) fn run(
    files: &IndexFiles,
    steps: &CacheSteps,
    maintenance: &Maintenance,
    clock: &dyn Clock,
) {
    let Some(cache) = files.cache() else {
        return;
    };
    while !maintenance.closed.load(Ordering::Acquire) {
        if !step(files, steps, maintenance, clock) {
            cache.await_step(IDLE);
        }
    }
}

/// Makes a step if one is due and may be made now. Returns whether it has achieved something and
/// more is due.
fn step(
    files: &IndexFiles,
    steps: &CacheSteps,
    maintenance: &Maintenance,
    clock: &dyn Clock,
) -> bool {
    let Some(cache) = files.cache() else {
        return false;
    };
    if steps.is_pausing(clock.elapsed_us()) {
        return false;
    }
    if !cache.is_step_due() {
        if steps.failure().is_some() {
            steps.note(Ok(()), clock.elapsed_us());
        }
        return false;
    }
    let outcome = contained(|| cache.step());
    steps.note(outcome.as_ref().map(|_| ()), clock.elapsed_us());
    match outcome {
        Ok(is_more_due) => is_more_due,
        Err(failure) => {
            if failure.kind() == ErrorKind::Closed {
                maintenance.want();
            }
            false
        }
    }
}

impl Db {
    /// Makes the steps of the SSD cache that are due, unless a thread does so.
    pub(super) fn make_cache_steps(&self) {
        if self.settings.background_maintenance {
            return;
        }
        while step(
            &self.index_files,
            &self.caches.ssd,
            &self.maintenance,
            &*self.clock,
        ) {}
    }
}
