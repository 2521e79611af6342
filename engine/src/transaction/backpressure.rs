//! Backpressure: how writers share the memory of tails when it is short or used up.
//!
//! Bytes of open transactions (*open bytes*) are freed only by these transactions. Committed bytes
//! are freed by the next merge. A checkpoint helps only with committed bytes, so only they slow
//! writers down.
//!
//! 1. Up to half of the limit ([`Db::tail_limit`]) no writer waits. The check is one load.
//! 2. Above it a writer pauses for every byte that it has written since its last pause
//!    ([`pause_us`]). The time per byte grows with the fourth power of the fill, and falls with the
//!    part of the memory that open transactions hold. If a merge can free less than an eighth of
//!    the limit, no writer pauses. So writers of large rows wait, writers of a counter hardly wait,
//!    and a statement that fills the memory alone runs at full speed.
//! 3. Above the limit a transaction that holds less than [`SMALL_BYTES`] continues as in 2, into a
//!    reserve of an eighth of the limit. Others wait for a checkpoint that began after their wait,
//!    unless it would free less than an eighth of the limit.
//! 4. If memory is still short, the transaction that holds the most is refused with 53200. Others
//!    continue into the reserve. Once the reserve is used up, every writer is refused. A refused
//!    statement is rolled back, which frees the memory of its records (`transaction/release`).
//!
//! A writer pays before each statement or point operation, after each [`PACE_BYTES`] within a
//! statement, and after its commit, when it holds no locks any more.
//!
//! Invariants:
//! 1. A wait ends when the statement is cancelled; a wait for a checkpoint also at `lock_timeout`.
//!    A pause also ends when background work has stopped, or has run two rounds. So no writer waits
//!    for ever under a clock that stands still.
//! 2. No writer waits while it holds a latch or the lock of a transaction's state. It does hold its
//!    row locks.
//! 3. A transaction counts as a holder of open bytes from [`SMALL_BYTES`] on, until it ends.
//!
//! Without background work (tests) there are no pauses, and a writer that meets a full memory runs
//! a checkpoint itself.
//!
//! Lock order: `large` and the maintenance state are taken with nothing else held.

use super::Transaction;
use crate::db::backpressure::{Others, SMALL_BYTES};
use crate::db::{Db, closed};
use std::sync::atomic::Ordering;
use std::time::Duration;
use strandline_base::{Error, ErrorKind, Result, SqlState};

/// Bytes that a statement writes between two checks of the memory.
pub(crate) const PACE_BYTES: usize = 64 << 10;
/// The rate of a writer, in bytes per second, when all memory has committed records.
const SLOWEST_BYTES: u64 = 256 << 10;
/// The longest single pause, in microseconds.
const PAUSE_MAX_US: u64 = 1_000_000;
/// Pauses shorter than this are left out, since waking a thread takes about as long.
const PAUSE_MIN_US: u64 = 100;
/// The interval at which a waiting writer checks the clock and its cancellation.
const LOOK: Duration = Duration::from_millis(10);
/// The reserve is the limit divided by this. A checkpoint that would free less is not waited for.
pub(super) const RESERVE_PART: usize = 8;

/// The bytes of `used` that a merge may free, while open transactions have written `open`. Row maps
/// and free slots for records are not counted separately; they are freed with the records.
fn mergeable_bytes(used: usize, open: usize) -> usize {
    used.saturating_sub(open + open / 4)
}

/// A writer's pause for `written` bytes, in microseconds. Tails hold `used` bytes of `limit`, of
/// which open transactions have `open`.
fn pause_us(written: usize, used: usize, open: usize, limit: usize) -> u64 {
    let free_upto = limit / 2;
    let (filled, room) = (used.min(limit).saturating_sub(free_upto), limit - free_upto);
    let fill = filled as f64 / room.max(1) as f64;
    let mergeable = mergeable_bytes(used, open);
    if mergeable < limit / RESERVE_PART {
        return 0;
    }
    let mergeable = mergeable as f64 / used.max(1) as f64;
    let slowest = written as f64 * 1e6 / SLOWEST_BYTES as f64;
    let us = (slowest * fill.powi(4) * mergeable) as u64;
    match us.min(PAUSE_MAX_US) {
        us if us < PAUSE_MIN_US => 0,
        us => us,
    }
}

impl Db {
    /// Whether tails have so much free memory that no writer waits.
    #[inline]
    pub(crate) fn has_room_for_writes(&self) -> bool {
        self.shared.page_bytes.used() <= self.tail_limit() / 2
    }

    /// Borrows from the cache's share the bytes that tails, their spare memory, the lists of open
    /// transactions, bulk loads and merges hold beyond the tails' share, or returns them.
    pub(crate) fn lend_to_tails(&self) {
        let pages = &self.shared.page_bytes;
        let accounts = [&self.list_memory, &self.load_memory, &self.merge_memory];
        let accounts: usize = accounts.iter().map(|account| account.used()).sum();
        let held = pages.used() + pages.spare() + accounts;
        let lent = held.saturating_sub(self.settings.tail_bytes());
        self.shared.pool.lend(lent);
    }

    /// Waits for `us` microseconds of the clock, or for two rounds of the background work.
    fn pause(&self, us: u64, check: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        let from = self.elapsed_us();
        let mut state = self.maintenance.state.lock();
        let first = state.rounds;
        let passed = loop {
            let passed = self.elapsed_us().saturating_sub(from);
            if passed >= us || state.has_stopped || state.rounds >= first + 2 {
                break passed;
            }
            check()?;
            let left = Duration::from_micros(us - passed);
            self.maintenance.done.wait_for(&mut state, left.min(LOOK));
        };
        drop(state);
        let counters = &self.backpressure;
        counters.pauses.fetch_add(1, Ordering::Relaxed);
        counters
            .pause_us
            .fetch_add(passed.min(us), Ordering::Relaxed);
        Ok(())
    }

    /// Waits until tails are within `limit` or a checkpoint that began after now has ended.
    fn wait_for_checkpoint(
        &self,
        limit: usize,
        check: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        if !self.settings.background_maintenance {
            return self.checkpoint(true).map(|_| ());
        }
        let mut state = self.maintenance.state.lock();
        let first = state.rounds;
        while self.shared.page_bytes.used() > limit {
            if let Some(error) = state.failure.clone() {
                return Err(error);
            }
            if state.has_stopped {
                return Err(closed());
            }
            // A checkpoint that began before the wait may have missed bytes that can be freed by
            // now.
            if state.rounds >= first + 2 {
                return Ok(());
            }
            check()?;
            state.wanted = true;
            self.maintenance.work.notify_all();
            self.maintenance.done.wait_for(&mut state, LOOK);
        }
        Ok(())
    }
}

impl Transaction {
    /// Pauses for the bytes written since the last call, and waits for memory; called before a
    /// write.
    ///
    /// # Errors 53200 if there is no memory and this transaction holds the most of it; 57014 and
    /// 55P03 like any wait; errors of a checkpoint that it waits for.
    #[inline]
    pub(crate) fn admit_write(&self) -> Result<()> {
        let db = self.db();
        if db.has_room_for_writes() && db.has_room_for_lists() {
            self.unpaid.store(0, Ordering::Relaxed);
            return Ok(());
        }
        self.admit_in_turn()
    }

    /// Pays within a statement, from time to time.
    #[inline]
    pub(crate) fn admit_next_write(&self) -> Result<()> {
        match self.unpaid.load(Ordering::Relaxed) < PACE_BYTES {
            true => Ok(()),
            false => self.admit_write(),
        }
    }

    #[cold]
    fn admit_in_turn(&self) -> Result<()> {
        let db = self.db();
        let own = self.state.lock().footprint.bytes;
        db.lend_to_tails();
        self.admit_to_lists()?;
        self.pay_for_writes(&mut || self.check_cancelled())?;
        let (used, limit) = (|| db.shared.page_bytes.used(), db.tail_limit());
        let hard_limit = limit + limit / RESERVE_PART;
        if used() <= limit || own < SMALL_BYTES && used() <= hard_limit {
            return Ok(());
        }
        let mergeable = mergeable_bytes(used(), own + self.others().bytes);
        if mergeable >= limit / RESERVE_PART {
            let mut busy_since = None;
            db.wait_for_checkpoint(limit, &mut || self.wait_for_latch(&mut busy_since))?;
        }
        let (used, others) = (used(), self.others());
        let goes_on = own < others.largest && used <= hard_limit;
        match used <= limit || goes_on {
            true => Ok(()),
            false => Err(no_memory(used, limit, own, &others)),
        }
    }

    pub(super) fn others(&self) -> Others {
        let state = self.state.lock();
        self.db().backpressure.others(&state.footprint.shown)
    }

    /// Pauses for the bytes written since the last pause, if memory is short.
    #[inline]
    pub(crate) fn pay_for_writes(&self, check: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        match self.db().has_room_for_writes() {
            true => Ok(()),
            false => self.pause_for_writes(check),
        }
    }

    #[cold]
    fn pause_for_writes(&self, check: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        let db = self.db();
        if !db.settings.background_maintenance {
            return Ok(());
        }
        let written = self.unpaid.swap(0, Ordering::Relaxed);
        if written == 0 {
            return Ok(());
        }
        let own = self.state.lock().footprint.bytes;
        let open = own + self.others().bytes;
        let used = db.shared.page_bytes.used();
        match pause_us(written, used, open, db.tail_limit()) {
            0 => Ok(()),
            us => db.pause(us, check),
        }
    }
}

#[cold]
fn no_memory(used: usize, limit: usize, own: usize, others: &Others) -> Error {
    let rest = used.saturating_sub(own + others.bytes);
    let hint = match own < others.largest {
        true => "End transactions that have been open for long, or raise memory_bytes.",
        false => "Change fewer rows in one transaction, or raise memory_bytes.",
    };
    Error::new(
        ErrorKind::Unavailable,
        SqlState::OUT_OF_MEMORY,
        format!("pending updates use {used} bytes of memory, their share is {limit}"),
    )
    .with_detail(format!(
        "This transaction holds {own} bytes. {} other open transactions of more than {SMALL_BYTES} \
         bytes hold {}, the largest of them {}. The other {rest} bytes are smaller transactions, \
         committed changes that wait for their merge, what readers keep, row maps and places for \
         further records.",
        others.count, others.bytes, others.largest
    ))
    .with_hint(hint)
}

#[cfg(test)]
mod tests;
