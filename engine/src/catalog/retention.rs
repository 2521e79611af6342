//! The age of a commit timestamp: retention uses elapsed time, not the wall clock.
//!
//! Commit timestamps follow the wall clock, which an operator may set wrong by a century and then
//! right again. This must not make every version one that was "superseded 24 hours ago". So the
//! database keeps a [`TimeMap`]: for each *elapsed time* on a monotonic clock, the newest commit
//! timestamp possible then.
//!
//! Elapsed time is:
//! * while the database is open, the time of the monotonic clock (sleep of the machine does not
//!   count);
//! * while it is closed, the wall clock's advance since the last checkpoint, at most
//!   [`CLOSED_US_MAX`]. Nothing distinguishes a week without use from a clock that is a week ahead.
//!   So a wrong clock at a restart costs at most this much history. A database that is seldom open
//!   keeps history longer than promised, never shorter.
//!
//! Invariants:
//! 1. [`TimeMap::at`] of an elapsed time is less than the timestamp of every commit since then, if
//!    the wall clock jumps at most once between two readings. Errors keep versions longer. The
//!    maintenance thread reads the clocks five times a second.
//! 2. Dropped history is never offered again: `Store::kept_from` does not move back, even if a
//!    later map gives an earlier moment.
//!
//! Lock order: `state` is held only to look and to change, with nothing else taken.

use crate::catalog::HistoryPolicy;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use strandline_base::sync::Mutex;
use strandline_base::utc::format_utc;
use strandline_base::{Clock, CommitTs};
use tracing::warn;

const SECOND_US: u64 = 1_000_000;
/// The maximum elapsed time that counts for a closed period: one hour.
pub const CLOSED_US_MAX: u64 = 3_600 * SECOND_US;
/// Deviations of the wall clock from the map that do not begin a new piece. Clocks that are
/// corrected slowly deviate by a second in half an hour at most.
const SLACK_US: u64 = SECOND_US;
/// A difference between wall clock and elapsed time that is reported as a jump of the clock.
const JUMP_US: u64 = 10 * SECOND_US;
/// The maximum number of pieces of a map; beyond it, two are united.
const PIECES_MAX: usize = 64;

/// Commit timestamps by elapsed time. Part of the manifest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TimeMap {
    /// Elapsed time in microseconds, counted from the wall clock's time at the begin of the map.
    pub elapsed_us: u64,
    /// The wall clock at `elapsed_us`.
    pub wall_us: u64,
    /// Ordered by elapsed time; empty: nothing is known.
    pub pieces: Vec<Piece>,
}

/// The map from an elapsed time on, up to the next piece.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Piece {
    /// elapsed time
    pub from_us: u64,
    /// the newest possible commit timestamp at that time
    pub ts: u64,
    /// Timestamps follow the wall clock. False: the wall clock is behind the newest commit, and
    /// timestamps only increase by counting.
    pub moves: bool,
}

/// One reading of the clocks.
#[derive(Clone, Copy)]
struct Look {
    /// elapsed time since the last reading
    us: u64,
    /// the wall clock
    wall_us: u64,
    /// the newest commit at the last reading
    newest_before: CommitTs,
    /// the newest commit now
    newest: CommitTs,
}

impl Piece {
    fn at(&self, elapsed_us: u64) -> u64 {
        match self.moves {
            true => self.ts + elapsed_us.saturating_sub(self.from_us),
            false => self.ts,
        }
    }
}

impl TimeMap {
    /// A map that begins at this moment.
    pub fn begin(wall_us: u64) -> Self {
        Self {
            elapsed_us: wall_us,
            wall_us,
            pieces: Vec::new(),
        }
    }

    /// The time for which the database has been closed, limited to what counts.
    fn closed_us(&self, wall_us: u64) -> u64 {
        wall_us.saturating_sub(self.wall_us).min(CLOSED_US_MAX)
    }

    /// Processes the next reading of the clocks.
    fn advance(&mut self, look: Look) {
        let before_us = self.elapsed_us;
        self.elapsed_us += look.us;
        self.wall_us = look.wall_us;
        let moves = look.wall_us.saturating_add(SLACK_US) >= look.newest.0;
        let ts = look.wall_us.max(look.newest.0);
        let mut from = (self.elapsed_us, ts);
        if let Some(last) = self.pieces.last_mut() {
            let expected = last.at(self.elapsed_us);
            if last.moves == moves && ts.abs_diff(expected) <= SLACK_US {
                // Invariant 1: commits are at the wall clock or later, and the newest is no bound
                // for those just before it. A deviation above the map of less than the slack is
                // left until it is larger.
                let least = if moves { look.wall_us } else { ts };
                last.ts = last.ts.saturating_sub(expected.saturating_sub(least));
                return;
            }
            if ts < expected {
                // The clock may have been set back, and commits made, right after the last reading.
                let then = match moves {
                    true => look.wall_us.saturating_sub(look.us),
                    false => look.newest_before.0.min(ts),
                };
                from = (before_us, then);
            }
        }
        let (from_us, ts) = from;
        self.pieces.push(Piece { from_us, ts, moves });
        if self.pieces.len() > PIECES_MAX {
            self.unite();
        }
    }

    /// Unites the two neighbours for which the map becomes too low by the least, relative to their
    /// age.
    fn unite(&mut self) {
        let united = |pair: &[Piece], end_us: u64| {
            let (a, b) = (pair[0], pair[1]);
            let moves = a.moves && b.moves;
            let above = match moves {
                true => a.at(b.from_us).saturating_sub(b.ts),
                false => a.ts.saturating_sub(b.ts),
            };
            let ts = a.ts.saturating_sub(above);
            let one = Piece { ts, moves, ..a };
            let lost = |us: u64, of: &Piece| of.at(us).saturating_sub(one.at(us));
            let error = lost(b.from_us, &a).max(lost(end_us, &b));
            let age = self.elapsed_us.saturating_sub(b.from_us) + 1;
            (one, error as f64 / age as f64)
        };
        let candidates = self.pieces.windows(3).enumerate();
        let candidates = candidates.map(|(i, w)| (i, united(&w[..2], w[2].from_us)));
        let best = candidates.min_by(|(_, (_, a)), (_, (_, b))| a.total_cmp(b));
        if let Some((i, (one, _))) = best {
            self.pieces.splice(i..i + 2, [one]);
        }
    }

    /// The newest timestamp that a commit can have had `ago_us` of elapsed time ago, or somewhat
    /// less (invariant 1). Zero if that is before the map.
    pub fn at(&self, ago_us: u64) -> CommitTs {
        let Some(then) = self.elapsed_us.checked_sub(ago_us) else {
            return CommitTs::ZERO;
        };
        let after = self.pieces.partition_point(|piece| piece.from_us <= then);
        let (until, later) = self.pieces.split_at(after);
        // If the clock was set back before any commit, later pieces may be lower.
        let least = later.iter().map(|piece| piece.ts).min();
        let ts = until.last().map_or(0, |piece| piece.at(then));
        CommitTs(ts.min(least.unwrap_or(u64::MAX)))
    }

    /// The moment from which on a policy keeps versions.
    pub fn begin_of(&self, policy: HistoryPolicy) -> CommitTs {
        match policy {
            HistoryPolicy::Forever => CommitTs::ZERO,
            HistoryPolicy::For(us) => self.at(us),
            HistoryPolicy::None => CommitTs::MAX,
        }
    }
}

/// The map of an open database, and its clocks.
pub(crate) struct Retention {
    clock: Arc<dyn Clock>,
    state: Mutex<ClockState>,
    jumps: AtomicU64,
}

struct ClockState {
    map: TimeMap,
    /// the monotonic clock at the last reading
    seen_us: u64,
    /// the newest commit at the last reading
    newest: CommitTs,
    is_behind: bool,
}

impl Retention {
    /// Begins a new map.
    pub fn begin(clock: Arc<dyn Clock>) -> Self {
        let map = TimeMap::begin(clock.followed_us());
        Self::open(clock, map, CommitTs::ZERO, CommitTs::ZERO)
    }

    /// Continues the map of the checkpoint at `checkpoint`; `newest` is the newest commit.
    pub fn open(
        clock: Arc<dyn Clock>,
        mut map: TimeMap,
        checkpoint: CommitTs,
        newest: CommitTs,
    ) -> Self {
        let (wall_us, seen_us) = (clock.followed_us(), clock.elapsed_us());
        map.advance(Look {
            us: map.closed_us(wall_us),
            wall_us,
            newest_before: checkpoint,
            newest,
        });
        Self {
            clock,
            state: Mutex::new(ClockState {
                map,
                seen_us,
                newest,
                is_behind: false,
            }),
            jumps: AtomicU64::new(0),
        }
    }

    /// Reads the clocks and calls `with` with the present map; `newest` is the newest commit.
    fn look<R>(&self, newest: CommitTs, with: impl FnOnce(&TimeMap) -> R) -> R {
        let mut state = self.state.lock();
        let (wall_us, now_us) = (self.clock.followed_us(), self.clock.elapsed_us());
        let us = now_us.saturating_sub(state.seen_us);
        state.seen_us += us;
        self.tell(&mut state, us, wall_us, newest);
        let newest_before = std::mem::replace(&mut state.newest, newest);
        state.map.advance(Look {
            us,
            wall_us,
            newest_before,
            newest,
        });
        with(&state.map)
    }

    fn tell(&self, state: &mut ClockState, us: u64, wall_us: u64, newest: CommitTs) {
        let expected = state.map.wall_us.saturating_add(us);
        let seconds = |us: u64| us / SECOND_US;
        if wall_us > expected.saturating_add(JUMP_US) {
            self.jumps.fetch_add(1, Ordering::Relaxed);
            warn!(
                seconds = seconds(wall_us - expected),
                to = format_utc(wall_us),
                "the wall clock has jumped forward: timestamps of commits follow it; retention \
                 counts the time that has passed"
            );
        } else if expected > wall_us.saturating_add(JUMP_US) {
            self.jumps.fetch_add(1, Ordering::Relaxed);
            warn!(
                seconds = seconds(expected - wall_us),
                to = format_utc(wall_us),
                "the wall clock has jumped back"
            );
        }
        let is_behind = newest.0 > wall_us.saturating_add(JUMP_US);
        if is_behind && !state.is_behind {
            warn!(
                seconds = seconds(newest.0 - wall_us),
                newest = format_utc(newest.0),
                "the wall clock is behind the newest commit: until it has caught up, timestamps of \
                 commits count on from there by microseconds"
            );
        }
        state.is_behind = is_behind;
    }

    /// Records the clocks' readings.
    pub fn note(&self, newest: CommitTs) {
        self.look(newest, |_| ());
    }

    /// See [`TimeMap::at`].
    pub fn ago(&self, us: u64, newest: CommitTs) -> CommitTs {
        self.look(newest, |map| map.at(us))
    }

    /// The present map, for the manifest.
    pub fn map(&self, newest: CommitTs) -> TimeMap {
        self.look(newest, TimeMap::clone)
    }

    /// The number of jumps of the wall clock since the database was opened.
    pub fn jumps(&self) -> u64 {
        self.jumps.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strandline_base::ManualClock;
    use strandline_base::rng::Rng;

    const HOUR: u64 = 3_600 * SECOND_US;
    const START: u64 = 1_700_000_000 * SECOND_US;

    fn advance(map: &mut TimeMap, us: u64, wall_us: u64, newest: CommitTs) {
        map.advance(Look {
            us,
            wall_us,
            newest_before: CommitTs::ZERO,
            newest,
        });
    }

    #[test]
    fn without_jumps_the_map_is_the_wall_clock() {
        let mut map = TimeMap::begin(START);
        advance(&mut map, 0, START, CommitTs::ZERO);
        for minute in 1..5_000 {
            let wall = START + minute * 60 * SECOND_US;
            advance(&mut map, 60 * SECOND_US, wall, CommitTs(wall - 5));
        }
        assert_eq!(map.pieces.len(), 1);
        let wall = START + 4_999 * 60 * SECOND_US;
        assert_eq!(map.at(0), CommitTs(wall));
        assert_eq!(map.at(HOUR), CommitTs(wall - HOUR));
        assert_eq!(map.at(4_999 * 60 * SECOND_US), CommitTs(START));
        assert_eq!(map.at(5_000 * 60 * SECOND_US), CommitTs::ZERO);
        assert_eq!(map.at(u64::MAX), CommitTs::ZERO);
    }

    /// Jumps of any size, drift and restarts at any moment between readings and commits: no commit
    /// within the requested time is before the map's timestamp.
    #[test]
    fn every_commit_since_then_is_later_than_the_map_says() {
        let seeds = match std::env::var("STRANDLINE_SEED") {
            Ok(seed) => vec![seed.parse().expect("a number")],
            Err(_) => (0..300).collect::<Vec<u64>>(),
        };
        for seed in seeds {
            let mut rng = Rng::new(seed);
            let clock = Arc::new(ManualClock::new(START));
            let mut retention = Retention::begin(clock.clone());
            let mut newest = CommitTs::ZERO;
            // Times of commits, in elapsed time, and their timestamps.
            let mut commits: Vec<(u64, CommitTs)> = Vec::new();
            let mut counted = 0;
            for step in 0..600 {
                let kind = rng.below(8);
                if kind < 3 {
                    retention.map(newest); // one jump between two looks
                }
                match kind {
                    0 => {
                        let sizes = [
                            SECOND_US / 2,
                            3 * SECOND_US,
                            HOUR,
                            24 * HOUR,
                            876_000 * HOUR,
                        ];
                        let by = sizes[rng.below(5) as usize];
                        let wall = clock.now_us();
                        clock.set(match rng.one_in(2) {
                            true => wall + by,
                            false => wall.saturating_sub(by).max(1),
                        });
                    }
                    1 => clock.set(clock.now_us() + rng.below(SECOND_US)),
                    2 => clock.set(clock.now_us().saturating_sub(rng.below(SECOND_US)).max(1)),
                    3 if rng.one_in(4) => {
                        let map = retention.map(newest);
                        let before = map.elapsed_us;
                        clock.set(clock.now_us() + rng.below(2) * HOUR / 2);
                        retention = Retention::open(clock.clone(), map, newest, newest);
                        let closed = retention.map(newest).elapsed_us - before;
                        assert!(closed <= CLOSED_US_MAX, "STRANDLINE_SEED={seed}");
                        counted += closed;
                    }
                    4 | 5 => {
                        let us = rng.below(10) * 360 * SECOND_US;
                        clock.advance(us);
                        counted += us;
                    }
                    6 => {
                        newest = CommitTs(clock.now_us().max(newest.0 + 1));
                        commits.push((counted, newest));
                    }
                    _ => {
                        for ago in [0, SECOND_US, HOUR, 24 * HOUR, 300 * HOUR] {
                            let from = retention.ago(ago, newest);
                            let since = |(at, _): &&(u64, CommitTs)| at + ago > counted;
                            let least = commits.iter().filter(since).map(|(_, ts)| *ts).min();
                            assert!(
                                least.is_none_or(|least| least >= from),
                                "STRANDLINE_SEED={seed}, step {step}: {least:?} before {from}"
                            );
                        }
                        assert!(retention.map(newest).pieces.len() <= PIECES_MAX);
                    }
                }
            }
        }
    }

    #[test]
    fn a_jump_forward_moves_nothing_out_of_the_promise_and_a_correction_brings_it_back_in_time() {
        let clock = Arc::new(ManualClock::new(START));
        let retention = Retention::begin(clock.clone());
        let begins = |newest| retention.ago(24 * HOUR, CommitTs(newest)).0;
        assert_eq!(begins(0), 0, "nothing is older than the map");
        clock.advance(30 * HOUR);
        assert_eq!(begins(START), START + 6 * HOUR);
        let century = START + 876_000 * HOUR;
        clock.set(century);
        assert_eq!(begins(century), START + 6 * HOUR, "no time has passed");
        clock.advance(HOUR);
        assert_eq!(begins(century + HOUR), START + 7 * HOUR);
        // The clock is corrected; timestamps continue to count from the century.
        clock.set(START + 31 * HOUR);
        clock.advance(22 * HOUR);
        assert_eq!(begins(century + HOUR + 9), START + 29 * HOUR);
        clock.advance(2 * HOUR);
        assert_eq!(begins(century + HOUR + 10), century + HOUR);
        assert_eq!(retention.jumps(), 2);
    }

    #[test]
    fn a_restart_counts_an_hour_at_most_and_never_back() {
        let clock = Arc::new(ManualClock::new(START));
        let newest = CommitTs(START);
        let open = |map| Retention::open(clock.clone(), map, newest, newest);
        let mut map = Retention::begin(clock.clone()).map(CommitTs::ZERO);
        let moves = [
            (HOUR as i64 / 2, HOUR / 2),
            (100 * HOUR as i64, HOUR),
            (-(HOUR as i64), 0),
        ];
        for (by, counts) in moves {
            let before = map.elapsed_us;
            clock.set(clock.now_us().saturating_add_signed(by));
            let retention = open(map);
            map = retention.map(newest);
            assert_eq!(map.elapsed_us - before, counts, "{by}");
            assert_eq!(retention.jumps(), 0);
        }
    }
}
