//! When a writer may add to the head: there is room, and the compaction under way is as far as the
//! head is full (docs/rfcs/3-fd-tree.md, "Writers and the compaction").
//!
//! Invariants:
//! 1. While every writer pays what it owes, a compaction has ended before the new head has three
//!    quarters of the budget that fences leave, and the next one begins with a quarter free.
//! 2. A writer with room waits for at most [`SHARES_MAX`] times its share of the work.
//!
//! Differences from the paper: it lets writers wait when there is no room, as the modes for
//! comparison do here.

use super::head::Head;
use super::state::{Mode, Settings, State};

/// What a writer pays at most, in shares of the compaction: the debts of others are paid back by
/// several writers.
const SHARES_MAX: u128 = 4;
/// Part of the head's budget that is left to fences which a compaction adds.
const RESERVE: usize = 8;
/// An underflow needs at least so many deletes.
const DELETES_MIN: u64 = 16;

/// A writer's claim on the head's budget.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    /// bytes that its entry takes in the head
    bytes: usize,
    /// a compaction, by its number, and the work that it must have done
    owed: Option<(u64, u64)>,
    /// compactions that had begun when it came
    begun: u64,
}

/// What becomes of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Admitted,
    Waits,
    /// two whole compactions have left nothing in the head but pending entries
    Refused,
}

impl Claim {
    /// The claim of an entry of so many bytes.
    pub fn new(settings: &Settings, state: &State, entry_bytes: usize) -> Self {
        let bytes = Head::bytes_of(entry_bytes);
        Self {
            bytes,
            owed: owed(settings, state, bytes),
            begun: state.begun,
        }
    }

    /// What becomes of the claim now. Nobody pays while the compaction does no steps.
    pub fn verdict(&self, settings: &Settings, state: &State, has_steps: bool) -> Verdict {
        let has_data = state.head.data_bytes() > 0 || state.old.is_some();
        if !has_data || room(settings, state) >= self.bytes {
            let is_paid = !has_steps || self.is_paid(state);
            return match is_paid {
                true => Verdict::Admitted,
                false => Verdict::Waits,
            };
        }
        let is_hopeless = state.old.is_none()
            && state.begun > self.begun + 1
            && state.head.data.values().all(|data| data.is_pending);
        match is_hopeless {
            true => Verdict::Refused,
            false => Verdict::Waits,
        }
    }

    fn is_paid(&self, state: &State) -> bool {
        let (Some((number, done)), Some(old)) = (self.owed, &state.old) else {
            return true;
        };
        number != state.begun || old.work.left == 0 || old.work.done >= done
    }
}

/// The compaction under way, and how much work it must have done before these bytes are added, if
/// it has not.
fn owed(settings: &Settings, state: &State, bytes: usize) -> Option<(u64, u64)> {
    let old = state.old.as_ref().filter(|_| pays_ahead(settings.mode))?;
    let (done, total) = (u128::from(old.work.done), u128::from(old.work.total()));
    let half = half(state) as u128;
    let new = (state.head.data_bytes() + bytes) as u128;
    let room = room(settings, state) as u128;
    let goal = goal(state) as u128;
    let available = goal.min(state.head.data_bytes() as u128 + room).max(1);
    let required = (new * total).div_ceil(available).min(total);
    let payable = SHARES_MAX * (bytes as u128 * total).div_ceil(half);
    let until = required.min(done + payable);
    (until > done).then_some((state.begun, until as u64))
}

/// Whether writers pay for the compaction ahead. In the modes for comparison they wait for room.
pub(super) fn pays_ahead(mode: Mode) -> bool {
    matches!(mode, Mode::Fc | Mode::FcTuple)
}

/// Bytes of data that the new head may have at the end of a compaction.
pub(super) fn goal(state: &State) -> usize {
    half(state) * 3 / 2
}

/// Bytes of the budget that fences and their reserve leave to data entries; at least half of it,
/// also if the fences of long keys take more than the rest: else each writer would wait for a
/// compaction of its own.
fn data_budget(state: &State) -> usize {
    let budget = state.head_budget;
    let old = state.old.as_ref();
    let fences = state.head.fence_bytes() + old.map_or(0, |old| old.head.fence_bytes());
    let data = budget.saturating_sub(budget / RESERVE + fences);
    data.max(budget / 2)
}

/// Half of the bytes that are left to data entries.
fn half(state: &State) -> usize {
    (data_budget(state) / 2).max(1)
}

/// Bytes of the head's budget that writers may take now.
fn room(settings: &Settings, state: &State) -> usize {
    let head = &state.head;
    let (limit, taken) = match (settings.mode, &state.old) {
        (Mode::FcNoSharing, Some(_)) => (state.head_budget / 2, head.bytes()),
        (_, old) => {
            let old_bytes = old.as_ref().map_or(0, |old| old.head.data_bytes());
            (data_budget(state), head.data_bytes() + old_bytes)
        }
    };
    limit.saturating_sub(taken)
}

/// Why a compaction should begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trigger {
    /// the head is half full
    Overflow,
    /// too many deletes (I5)
    Underflow,
}

/// Whether a compaction should begin, if none is under way.
pub(super) fn trigger(state: &State) -> Option<Trigger> {
    if state.deletes * 3 > state.inserts && state.deletes >= DELETES_MIN {
        return Some(Trigger::Underflow);
    }
    let is_overflow = state.head.data_bytes() >= half(state);
    is_overflow.then_some(Trigger::Overflow)
}
