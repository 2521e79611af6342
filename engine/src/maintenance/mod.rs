//! Background work: checkpoints when the log has grown or ranges are due, within the share of time
//! that [`due`] computes.
//!
//! Writers wait for it only when memory is short (`transaction::backpressure`). Work that fails for
//! one table is set aside ([`set_aside`]); checkpoints that fail or achieve nothing pause
//! ([`crate::db::pacing`]).

mod block_cache_steps;
mod cache_steps;
pub(crate) mod checkpoint;
mod counters;
mod due;
mod effort;
mod health;
mod horizons;
mod key_sweep;
mod level_steps;
mod log_writer;
mod opened_entries;
mod outcome;
pub(crate) mod reserve;
pub(crate) mod set_aside;

pub use outcome::CheckpointReport;

use crate::db::{Db, Maintenance, closed};
use set_aside::contained;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;
use strandline_base::{Error, Result};

/// Interval of the maintenance thread's turns when no event wakes it.
const IDLE: Duration = Duration::from_millis(200);

impl Db {
    /// Starts the background threads. The one that works on ranges holds the database only while it
    /// works.
    pub(crate) fn start_maintenance(self: &Arc<Self>) -> Result<()> {
        let db = Arc::downgrade(self);
        let maintenance = self.maintenance.clone();
        let thread = std::thread::Builder::new()
            .name("strandline-maintenance".into())
            .spawn(move || {
                let _stopping = Stopping(&maintenance);
                while let Some(wanted) = maintenance.next_turn() {
                    let Some(db) = db.upgrade() else { break };
                    db.remove_left_indexes();
                    db.maintenance_turn(wanted);
                    db.start_index_moves();
                }
            })
            .map_err(|e| Error::io("starting the maintenance thread", &e))?;
        self.maintenance.state.lock().thread = Some(thread);
        let consolidation = self.shared.consolidation.clone();
        std::thread::Builder::new()
            .name("strandline-overlays".into())
            .spawn(move || consolidation.run())
            .map_err(|e| Error::io("starting the thread that makes overlays", &e))?;
        let wal = self.wal.clone();
        let thread = std::thread::Builder::new()
            .name("strandline-log".into())
            .spawn(move || log_writer::run(&wal))
            .map_err(|e| Error::io("starting the thread that writes the log", &e))?;
        self.maintenance.state.lock().log_writer = Some(thread);
        self.start_level_steps()?;
        self.start_cache_steps()?;
        self.start_block_cache_steps()
    }

    fn start_level_steps(self: &Arc<Self>) -> Result<()> {
        let (db, maintenance) = (Arc::downgrade(self), self.maintenance.clone());
        let thread = std::thread::Builder::new()
            .name("strandline-levels".into())
            .spawn(move || level_steps::run(&db, &maintenance))
            .map_err(|e| Error::io("starting the thread of indexes in levels", &e))?;
        self.maintenance.state.lock().level_steps = Some(thread);
        Ok(())
    }

    fn start_cache_steps(&self) -> Result<()> {
        if self.index_files.cache().is_none() {
            return Ok(());
        }
        let (files, steps) = (self.index_files.clone(), self.caches.ssd.clone());
        let (maintenance, clock) = (self.maintenance.clone(), self.clock.clone());
        let thread = std::thread::Builder::new()
            .name("strandline-ssd-cache".into())
            .spawn(move || cache_steps::run(&files, &steps, &maintenance, &*clock))
            .map_err(|e| Error::io("starting the thread of the SSD cache", &e))?;
        self.caches.ssd.set_thread(thread);
        Ok(())
    }

    fn start_block_cache_steps(&self) -> Result<()> {
        let Some(cache) = self.shared.files.block_cache().cloned() else {
            return Ok(());
        };
        let (steps, clock) = (self.caches.block.clone(), self.clock.clone());
        let thread = std::thread::Builder::new()
            .name("strandline-block-cache".into())
            .spawn(move || block_cache_steps::run(&cache, &steps, &*clock))
            .map_err(|e| Error::io("starting the thread of the block cache", &e))?;
        self.caches.block.set_thread(thread);
        Ok(())
    }

    /// Starts a thread that moves indexes from memory into levels if a move is due and none is
    /// under way.
    fn start_index_moves(self: &Arc<Self>) {
        let mut thread = self.index_moves.thread.lock();
        if thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            // This thread, that one and the transaction that fills an index: nobody else uses the
            // database any more.
            let own = 2 + usize::from(!self.index_builds().is_empty());
            if Arc::strong_count(self) <= own {
                self.index_moves.cancel();
            }
            return;
        }
        if !self.has_due_index_move() {
            return;
        }
        let db = self.clone();
        let name = "strandline-index-moves".to_string();
        let started = std::thread::Builder::new().name(name).spawn(move || {
            db.index_moves.set_under_way(true);
            // A move that fails is noted with its table.
            let _ = contained(|| Ok(db.move_indexes()));
            db.index_moves.set_under_way(false);
        });
        match started {
            Ok(started) => *thread = Some(started),
            Err(error) => tracing::warn!(%error, "the thread that moves indexes does not start"),
        }
    }

    /// Ends the thread that moves indexes. The database is marked as closed.
    fn end_index_moves(&self) {
        self.index_moves.cancel();
        let thread = self.index_moves.thread.lock().take();
        join(thread);
    }

    /// Ends the thread of the SSD cache. The database is marked as closed.
    fn end_cache_steps(&self) {
        let thread = self.caches.ssd.take_thread();
        if let Some(cache) = self.index_files.cache() {
            cache.wake();
        }
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }

    /// Makes the log durable and ends its thread; after that no thread uses its files.
    fn close_log(&self) -> Result<()> {
        let outcome = self.wal.close(closed());
        let thread = self.maintenance.state.lock().log_writer.take();
        let ended = thread.map_or(Ok(()), JoinHandle::join);
        outcome.and(ended.map_err(|_| Error::internal("the thread that writes the log panicked")))
    }

    fn maintenance_turn(&self, wanted: bool) {
        let result = match self.check_writable() {
            Ok(()) => contained(|| self.merge_due(wanted).map(|_| ())),
            Err(refusal) => {
                self.note_failure(&refusal);
                Err(refusal)
            }
        };
        self.shared.page_bytes.trim_spare();
        let is_pausing = result.is_err() || self.is_pausing();
        let mut state = self.maintenance.state.lock();
        state.rounds += 1;
        state.failure = result.err();
        state.is_pausing = is_pausing;
        self.maintenance.done.notify_all();
    }

    /// Waits for running work, checkpoints, closes. Later transactions are refused.
    pub fn close(&self) -> Result<()> {
        if self.maintenance.closed.swap(true, Ordering::AcqRel) {
            return Err(closed());
        }
        // A change of the caches that is under way ends before their files may be another's.
        drop(self.caches.changing.lock());
        self.shared.consolidation.close();
        let thread = {
            let mut state = self.maintenance.state.lock();
            self.maintenance.work.notify_all();
            state.thread.take()
        };
        join(thread);
        self.end_index_moves();
        self.end_level_steps();
        self.end_cache_steps();
        let result = self.checkpoint(false).map(|_| ());
        self.end_block_cache_steps();
        // Transactions that are still open must not write into what may be another's by then.
        let result = result.and(self.close_log());
        *self.lock.lock() = None;
        result
    }
}

/// Waits for the end of a background thread, unless it is this one.
fn join(thread: Option<JoinHandle<()>>) {
    if let Some(thread) = thread
        && thread.thread().id() != std::thread::current().id()
    {
        let _ = thread.join();
    }
}

impl Maintenance {
    /// Waits for work a little, during a pause in any case: whether a checkpoint is wanted; None
    /// when the database is closed.
    fn next_turn(&self) -> Option<bool> {
        let mut state = self.state.lock();
        if (!state.wanted || state.is_pausing) && !self.closed.load(Ordering::Acquire) {
            self.work.wait_for(&mut state, IDLE);
        }
        let wanted = std::mem::take(&mut state.wanted);
        (!self.closed.load(Ordering::Acquire)).then_some(wanted)
    }
}

/// Marks the maintenance thread as ended, orderly or by a panic, so that no thread waits for it.
struct Stopping<'a>(&'a Maintenance);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.state.lock().has_stopped = true;
        self.0.done.notify_all();
    }
}

impl Drop for Db {
    fn drop(&mut self) {
        let was_closed = self.maintenance.closed.swap(true, Ordering::AcqRel);
        self.maintenance.work.notify_all();
        self.shared.consolidation.close();
        self.end_cache_steps();
        // After a close the directory may be another's.
        if !was_closed {
            self.end_block_cache_steps();
        }
        // Relaxed commits are not lost by an orderly end without close.
        let _ = self.close_log();
    }
}
