//! The commit clock: wall-clock microseconds made strictly increasing.
//!
//! A wall clock that jumps forward is followed: it cannot be told from one that was wrong before.
//! When it is put right, ticks count on by microseconds until it has caught up. What is not
//! followed is a time after the year 9999, which SQL has no timestamp for.
//!
//! Invariant: `last` never decreases, and every tick is above every earlier tick, every observed
//! timestamp and every moment that a snapshot has been promised to be complete at, whatever the
//! wall clock does.

use std::sync::Arc;
use strandline_base::utc::format_utc;
use strandline_base::{Clock, CommitTs, Error, Result, SqlState};

/// Owned by the commit queue, whose lock orders the ticks.
pub(crate) struct CommitClock {
    wall: Arc<dyn Clock>,
    last: CommitTs,
}

impl CommitClock {
    /// `last`: the newest timestamp given out before.
    pub fn new(wall: Arc<dyn Clock>, last: CommitTs) -> Self {
        Self { wall, last }
    }

    /// max(now, last + 1).
    pub fn tick(&mut self) -> CommitTs {
        let ts = CommitTs(self.wall.followed_us().max(self.last.0 + 1));
        assert!(
            ts <= CommitTs::MAX,
            "commit timestamps last until the year 148,000"
        );
        self.last = ts;
        ts
    }

    /// Later ticks will be above `ts`.
    pub fn observe(&mut self, ts: CommitTs) {
        self.last = self.last.max(ts);
    }

    /// Later ticks will be above `at`, which must not be in the future: 22023 if it is.
    pub fn reach(&mut self, at: CommitTs) -> Result<()> {
        let now = self.wall.followed_us().max(self.last.0);
        if at.0 > now {
            return Err(Error::invalid(
                SqlState::INVALID_PARAMETER_VALUE,
                format!(
                    "cannot read as of {}: the database's clock is at {}",
                    format_utc(at.0),
                    format_utc(now)
                ),
            )
            .with_hint("Give a moment in the past."));
        }
        self.observe(at);
        Ok(())
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use strandline_base::ManualClock;
    use strandline_base::clock::FOLLOWED_US_END;
    use strandline_base::rng::Rng;

    #[test]
    fn ticks_grow_while_the_wall_clock_jumps() {
        for seed in 0..50 {
            println!("seed {seed}");
            let mut rng = Rng::new(seed);
            let wall = Arc::new(ManualClock::new(1_000));
            let mut clock = CommitClock::new(wall.clone(), CommitTs(5_000));
            let mut last = CommitTs(5_000);
            for _ in 0..200 {
                wall.set(rng.below(20_000));
                if rng.one_in(4) {
                    let seen = CommitTs(rng.below(20_000));
                    clock.observe(seen);
                    last = last.max(seen);
                }
                let ts = clock.tick();
                assert!(ts > last && ts.0 >= wall.now_us(), "{ts} after {last}");
                assert!(ts.0 == last.0 + 1 || ts.0 == wall.now_us());
                last = ts;
            }
        }
    }

    #[test]
    fn a_wall_clock_beyond_sql_is_not_followed() {
        let wall = Arc::new(ManualClock::new(5_000));
        let mut clock = CommitClock::new(wall.clone(), CommitTs::ZERO);
        assert_eq!(clock.tick(), CommitTs(5_000));
        for absurd in [FOLLOWED_US_END, u64::MAX] {
            wall.set(absurd);
            let last = clock.last;
            assert_eq!(clock.tick(), CommitTs(last.0 + 1));
            clock
                .reach(CommitTs(absurd.min(i64::MAX as u64)))
                .expect_err("the future");
        }
        wall.set(FOLLOWED_US_END - 1);
        assert_eq!(clock.tick(), CommitTs(FOLLOWED_US_END - 1));
    }

    #[test]
    fn the_future_is_refused_with_both_times() {
        let mut clock = CommitClock::new(Arc::new(ManualClock::new(1_000_000)), CommitTs(5));
        clock
            .reach(CommitTs(1_000_000))
            .expect("now is not the future");
        let error = clock.reach(CommitTs(1_000_001)).expect_err("the future");
        assert_eq!(error.sqlstate(), SqlState::INVALID_PARAMETER_VALUE);
        assert!(
            error.message().contains("1970-01-01 00:00:01.000001+00"),
            "{error}"
        );
        assert!(
            error.message().contains("1970-01-01 00:00:01+00"),
            "{error}"
        );
        assert_eq!(clock.tick(), CommitTs(1_000_001));
        assert_eq!(clock.tick(), CommitTs(1_000_002));
        clock
            .reach(CommitTs(1_000_002))
            .expect("own ticks are the past, even ahead of the wall");
    }
}
