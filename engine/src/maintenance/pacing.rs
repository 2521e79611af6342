//! How background checkpoints go: whether they fail, achieve nothing, or work, and how long they
//! pause.
//!
//! * *Failing*: the device refuses something, or the disk is full. The pause grows up to
//!   [`LONGEST_PAUSE`]; a success ends it, and so does a change of the catalog, which may be a DROP
//!   that frees space.
//! * *In vain*: memory is short, and no range could be merged: open transactions or snapshots keep
//!   the pending records. The pause grows up to [`LONGEST_PAUSE_IN_VAIN`]; it ends when a snapshot
//!   that was open has gone, or when enough has been committed to be merged. A log that has grown
//!   is not put off.
//!
//! Each change of state is told once. `/health`, the metrics and `strandline_stats()` show the
//! state.
//!
//! Lock order: `state` is taken with nothing else held but the checkpoint's lock.

use crate::checkpoint::CheckpointOutcome;
use crate::db::{Db, closed};
use crate::events;
use crate::maintenance::pauses::Pauses;
use crate::maintenance::set_aside::Work;
use parking_lot::Mutex;
use std::sync::atomic::Ordering;
use std::time::Duration;
use strandline_base::{CommitTs, Error, ErrorKind, Result, SqlState};
use tracing::{info, warn};

/// The first pause after a checkpoint that has failed or achieved nothing.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// The longest pause between checkpoints that fail.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// The longest pause between checkpoints that achieve nothing.
const LONGEST_PAUSE_IN_VAIN: Duration = Duration::from_secs(5);
/// Commits of so much log, as a part of the tails' share, end a pause of checkpoints in vain.
const HELPFUL_PART: usize = 16;

/// The state of background checkpoints.
#[derive(Debug)]
pub(crate) struct Pacing {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    failures: Pauses,
    in_vain: Pauses,
    /// of the last checkpoint
    failure: Option<Error>,
    /// the last checkpoint freed no memory though it is short
    is_in_vain: bool,
    /// the newest catalog version at the last checkpoint
    catalog: CommitTs,
    /// a snapshot older than this was open at the last checkpoint
    held: Option<CommitTs>,
}

impl Default for Pacing {
    fn default() -> Self {
        let state = State {
            failures: Pauses::new(FIRST_PAUSE, LONGEST_PAUSE),
            in_vain: Pauses::new(FIRST_PAUSE, LONGEST_PAUSE_IN_VAIN),
            failure: None,
            is_in_vain: false,
            catalog: CommitTs::ZERO,
            held: None,
        };
        Self {
            state: Mutex::new(state),
        }
    }
}

impl Db {
    /// Notes how a checkpoint ended.
    pub(crate) fn note_attempt(&self, outcome: &Result<CheckpointOutcome>) {
        let failure = match outcome {
            Ok(outcome) => outcome.failure.as_ref(),
            Err(error) => Some(error),
        };
        if let Some(failure) = failure {
            return self.note_failure(failure);
        }
        let merged = outcome.as_ref().map_or(0, |o| o.report.merged_ranges);
        let is_in_vain = merged == 0 && self.is_short_of_memory();
        let (stable, oldest) = (self.stable(), self.txns().oldest_snapshot());
        let mut state = self.pacing.state.lock();
        events::background_work("checkpoints", state.failure.as_ref(), None);
        state.failure = None;
        state.failures.reset();
        state.held = (oldest < stable).then_some(stable);
        match (state.is_in_vain, is_in_vain) {
            (false, true) => warn!(
                tail_bytes = self.shared.page_bytes.used(),
                "checkpoints free no memory, because open transactions or snapshots keep what is \
                 pending; they pause until some end"
            ),
            (true, false) => info!("checkpoints free memory again"),
            _ => {}
        }
        state.is_in_vain = is_in_vain;
        match is_in_vain {
            true => state.in_vain.grow(self.elapsed_us()),
            false => state.in_vain.reset(),
        }
    }

    /// Notes that checkpoints fail, and tells it if they did not before.
    pub(crate) fn note_failure(&self, failure: &Error) {
        let catalog = self.catalogs.newest();
        let mut state = self.pacing.state.lock();
        events::background_work("checkpoints", state.failure.as_ref(), Some(failure));
        state.failure = Some(failure.clone());
        state.failures.grow(self.elapsed_us());
        state.catalog = catalog;
    }

    /// The failure of the last checkpoint.
    pub(crate) fn pacing_failure(&self) -> Option<Error> {
        self.pacing.state.lock().failure.clone()
    }

    /// Whether no background checkpoint is to be made now.
    pub(crate) fn is_pausing(&self) -> bool {
        let now_us = self.elapsed_us();
        let logged = self.maintenance.logged_bytes.load(Ordering::Relaxed);
        let state = self.pacing.state.lock();
        if state.failure.is_some() {
            return state.failures.is_pausing(now_us) && state.catalog == self.catalogs.newest();
        }
        let has_helpful = logged >= (self.settings.tail_bytes() / HELPFUL_PART) as u64;
        let is_released = state
            .held
            .is_some_and(|held| self.txns().oldest_snapshot() >= held);
        let is_log_long = logged >= self.settings.checkpoint_wal_bytes;
        state.in_vain.is_pausing(now_us) && !has_helpful && !is_released && !is_log_long
    }

    /// Whether commits can be made durable and what background work needs is there: the error that
    /// has made the log or the manifest refuse them for good, that checkpoints fail, that a table's
    /// records cannot be written, that writers are refused for lack of memory, or that the database
    /// is closed.
    pub fn check_health(&self) -> Result<()> {
        if self.maintenance.closed.load(Ordering::Acquire) {
            return Err(closed());
        }
        self.check_writable()?;
        if let Some(failure) = self.pacing_failure() {
            return Err(failure.context("checkpoints fail"));
        }
        let behind = self.set_aside_work();
        if let Some(behind) = behind.iter().find(|w| w.work == Work::WriteRecords) {
            let what = format!("the log cannot be cut: {}", behind.line);
            let state = behind.failure.sqlstate();
            return Err(Error::new(ErrorKind::Unavailable, state, what));
        }
        let (used, limit) = (self.shared.page_bytes.used(), self.tail_limit());
        if self.pacing.state.lock().is_in_vain && used > limit {
            return Err(Error::new(
                ErrorKind::Unavailable,
                SqlState::OUT_OF_MEMORY,
                format!(
                    "writers are refused: pending updates use {used} bytes of memory, their share \
                     is {limit}, and checkpoints free none"
                ),
            ));
        }
        Ok(())
    }

    /// Counters of background work that fails or pauses, each with what it is about, a line each.
    pub(crate) fn maintenance_counters(&self) -> Vec<(&'static str, u64, String)> {
        let all = self.set_aside_work();
        let of = |name, is_it: fn(&Work) -> bool| {
            let found = all.iter().filter(|w| is_it(&w.work));
            let lines: Vec<&str> = found.map(|w| w.line.as_str()).collect();
            (name, lines.len() as u64, lines.join("\n"))
        };
        let (failure, is_in_vain, pause_us) = {
            let state = self.pacing.state.lock();
            let pause_us = match state.failure {
                Some(_) => state.failures.micros(),
                None => state.in_vain.micros(),
            };
            (state.failure.clone(), state.is_in_vain, pause_us)
        };
        let message = failure.as_ref().map_or("", Error::message).to_owned();
        let in_vain = "open transactions or snapshots keep what is pending";
        let in_vain = if is_in_vain { in_vain } else { "" };
        vec![
            of("ranges_set_aside", |w| matches!(w, Work::Merge(_))),
            of("unions_set_aside", |w| *w == Work::UniteRuns),
            of("tables_behind", |w| *w == Work::WriteRecords),
            ("checkpoints_failing", u64::from(failure.is_some()), message),
            ("checkpoints_in_vain", u64::from(is_in_vain), in_vain.into()),
            ("checkpoint_pause_micros", pause_us, String::new()),
        ]
    }
}
