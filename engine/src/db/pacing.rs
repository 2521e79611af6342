//! State of background checkpoints: failing, without effect, or working; and their pauses.
//!
//! * *Failing*: the device refuses an operation, or the disk is full. The pause grows up to
//!   [`LONGEST_PAUSE`]. A success ends it, and so does a change of the catalog, which may be a DROP
//!   that frees space.
//! * *In vain* (without effect): memory is short and no range could be merged, because open
//!   transactions or snapshots keep the pending records. The pause grows up to
//!   [`LONGEST_PAUSE_IN_VAIN`]. It ends when a snapshot that was open has ended, or when enough has
//!   been committed to be merged. A checkpoint that the log's size requires is not delayed.
//!
//! Each change of state is reported once. `/health`, the metrics and `strandline_stats()` show the
//! state.
//!
//! Lock order: `state` is taken with nothing else held but the checkpoint's lock.

use super::pauses::Pauses;
use crate::events;
use std::time::Duration;
use strandline_base::sync::Mutex;
use strandline_base::{CommitTs, Error};
use tracing::{info, warn};

/// The first pause after a checkpoint that failed or had no effect.
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// The longest pause between failing checkpoints.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The longest pause between checkpoints without effect.
const LONGEST_PAUSE_IN_VAIN: Duration = Duration::from_secs(5);

/// A pause of checkpoints without effect ends after so much log: the tails' share divided by this.
const HELPFUL_PART: usize = 16;

/// The state of background checkpoints.
#[derive(Debug)]
pub(crate) struct Pacing {
    state: Mutex<PacingState>,
}

#[derive(Debug)]
struct PacingState {
    failures: Pauses,
    in_vain: Pauses,
    /// failure of the last checkpoint
    failure: Option<Error>,
    /// the last checkpoint freed no memory although it is short
    is_in_vain: bool,
    /// the newest catalog version at the last checkpoint
    catalog: CommitTs,
    /// a snapshot older than this was open at the last checkpoint
    held: Option<CommitTs>,
}

/// A checkpoint that has not failed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Success {
    /// memory is still short, and nothing was merged
    pub is_in_vain: bool,
    /// the stable timestamp
    pub stable: CommitTs,
    /// the oldest snapshot
    pub oldest: CommitTs,
    /// bytes of record pages
    pub tail_bytes: usize,
}

/// The events that may end a pause.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// by [`super::Db::elapsed_us`]
    pub now_us: u64,
    /// the newest catalog version
    pub catalog: CommitTs,
    /// the oldest snapshot
    pub oldest: CommitTs,
    /// bytes logged since the last checkpoint
    pub logged_bytes: u64,
    /// the tails' share
    pub tail_bytes: usize,
    /// a checkpoint is not delayed once the log has this many bytes
    pub checkpoint_wal_bytes: u64,
}

/// The state of background checkpoints, for reports.
#[derive(Clone, Debug)]
pub(crate) struct PacingReport {
    /// failure of the last checkpoint
    pub failure: Option<Error>,
    /// the last checkpoint freed no memory although it is short
    pub is_in_vain: bool,
    /// the length of the pause; zero if there is none
    pub pause_us: u64,
}

impl Default for Pacing {
    fn default() -> Self {
        let state = PacingState {
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

impl Pacing {
    /// Records that a checkpoint has not failed.
    pub fn note_success(&self, success: &Success, now_us: u64) {
        let mut state = self.state.lock();
        events::background_work("checkpoints", state.failure.as_ref(), None);
        state.failure = None;
        state.failures.reset();
        state.held = (success.oldest < success.stable).then_some(success.stable);
        match (state.is_in_vain, success.is_in_vain) {
            (false, true) => warn!(
                tail_bytes = success.tail_bytes,
                "checkpoints free no memory, because open transactions or snapshots keep what is \
                 pending; they pause until some end"
            ),
            (true, false) => info!("checkpoints free memory again"),
            _ => {}
        }
        state.is_in_vain = success.is_in_vain;
        match success.is_in_vain {
            true => state.in_vain.grow(now_us),
            false => state.in_vain.reset(),
        }
    }

    /// Records that a checkpoint has failed, and reports it if the one before had not. `catalog` is
    /// the newest version.
    pub fn note_failure(&self, failure: &Error, catalog: CommitTs, now_us: u64) {
        let mut state = self.state.lock();
        events::background_work("checkpoints", state.failure.as_ref(), Some(failure));
        state.failure = Some(failure.clone());
        state.failures.grow(now_us);
        state.catalog = catalog;
    }

    /// Whether background checkpoints are paused now.
    pub fn is_pausing(&self, moment: &Moment) -> bool {
        let state = self.state.lock();
        if state.failure.is_some() {
            return state.failures.is_pausing(moment.now_us) && state.catalog == moment.catalog;
        }
        let has_helpful = moment.logged_bytes >= (moment.tail_bytes / HELPFUL_PART) as u64;
        let is_released = state.held.is_some_and(|held| moment.oldest >= held);
        let is_log_long = moment.logged_bytes >= moment.checkpoint_wal_bytes;
        state.in_vain.is_pausing(moment.now_us) && !has_helpful && !is_released && !is_log_long
    }

    /// The state.
    pub fn report(&self) -> PacingReport {
        let state = self.state.lock();
        let pauses = match state.failure {
            Some(_) => &state.failures,
            None => &state.in_vain,
        };
        PacingReport {
            failure: state.failure.clone(),
            is_in_vain: state.is_in_vain,
            pause_us: pauses.micros(),
        }
    }
}
