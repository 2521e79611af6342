//! The background work of the block cache: its full segments are written.
//!
//! A thread of its own writes them, since a checkpoint may take long and admissions are refused
//! while two segments wait. Without background threads a turn of the maintenance does it. An
//! orderly end writes what is only in memory, so that the next opening is warm.
//!
//! A write that fails switches off the cache alone: its blocks are not cached, and admission pauses
//! for growing numbers of blocks. It is told once, and reads go to the capacity tier.

use crate::db::Db;
use crate::db::cache_steps::CacheSteps;
use crate::maintenance::set_aside::contained;
use strandline_base::{Clock, ErrorKind, Result};
use strandline_storage::block_cache::BlockCache;

/// The thread: it ends when the cache is closed, or by a bug in it.
pub(super) fn run(cache: &BlockCache, steps: &CacheSteps, clock: &dyn Clock) {
    while cache.wait_for_segment() {
        let written = step(cache, steps, clock);
        if written.is_err_and(|failure| failure.kind() == ErrorKind::Internal) {
            return;
        }
    }
}

/// Writes the segment that waits, and notes the outcome. Whether there was one.
fn step(cache: &BlockCache, steps: &CacheSteps, clock: &dyn Clock) -> Result<bool> {
    let written = contained(|| cache.step());
    if !matches!(written, Ok(false)) {
        let outcome = written.as_ref().map(|_| ());
        steps.note(outcome, clock.elapsed_us());
    }
    written
}

impl Db {
    /// Writes the segment of the block cache that waits, unless a thread does so.
    pub(super) fn make_block_cache_steps(&self) {
        if let Some(cache) = self.shared.files.block_cache()
            && !self.settings.background_maintenance
        {
            // A failure is noted.
            let _ = step(cache, &self.caches.block, &*self.clock);
        }
    }

    /// Ends the thread of the block cache and writes what is only in memory. The database still has
    /// its lock.
    pub(super) fn end_block_cache_steps(&self) {
        let thread = self.caches.block.take_thread();
        let Some(cache) = self.shared.files.block_cache() else {
            return;
        };
        cache.close();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
        let flushed = contained(|| cache.flush());
        let now_us = self.clock.elapsed_us();
        self.caches.block.note(flushed.as_ref().map(|_| ()), now_us);
    }
}
