//! Growing pauses between attempts of work that fails or has no effect.
//!
//! The pause doubles with each attempt in vain, up to a bound. Callers use a clock that never steps
//! back. A time before the begin of the pause ends the pause nevertheless.

use std::time::Duration;

/// The state of the pauses before further attempts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pauses {
    first_us: u64,
    longest_us: u64,
    /// zero: no pause
    pause_us: u64,
    since_us: u64,
}

impl Pauses {
    /// No pause yet. The first one will take `first`, and none more than `longest`.
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self {
            first_us: first.as_micros() as u64,
            longest_us: longest.as_micros() as u64,
            pause_us: 0,
            since_us: 0,
        }
    }
    /// Records that an attempt at `now_us` was in vain.
    pub fn grow(&mut self, now_us: u64) {
        let next_us = (self.pause_us * 2).max(self.first_us);
        self.pause_us = next_us.min(self.longest_us);
        self.since_us = now_us;
    }
    /// Ends the pause; the next one is a first one again.
    pub fn reset(&mut self) {
        self.pause_us = 0;
    }
    /// Whether attempts are paused at `now_us`.
    pub fn is_pausing(&self, now_us: u64) -> bool {
        let elapsed_us = now_us.checked_sub(self.since_us);
        elapsed_us.is_some_and(|elapsed_us| elapsed_us < self.pause_us)
    }
    /// The length of the pause in microseconds; zero if there is none.
    pub fn micros(&self) -> u64 {
        self.pause_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_000_000;

    #[test]
    fn pauses_double_up_to_the_longest_and_begin_anew_after_a_reset() {
        let mut pauses = Pauses::new(Duration::from_micros(10), Duration::from_micros(35));
        assert!(!pauses.is_pausing(NOW));
        for (at, micros) in [(NOW, 10), (NOW + 10, 20), (NOW + 30, 35), (NOW + 65, 35)] {
            assert!(!pauses.is_pausing(at));
            pauses.grow(at);
            assert_eq!(pauses.micros(), micros);
            assert!(pauses.is_pausing(at) && pauses.is_pausing(at + micros - 1));
            assert!(!pauses.is_pausing(at + micros));
        }
        pauses.reset();
        assert!(!pauses.is_pausing(NOW + 65));
        pauses.grow(NOW);
        assert_eq!(pauses.micros(), 10);
    }

    #[test]
    fn a_clock_that_goes_back_ends_a_pause() {
        let mut pauses = Pauses::new(Duration::from_secs(1), Duration::from_secs(1));
        pauses.grow(NOW);
        assert!(!pauses.is_pausing(NOW - 1));
    }
}
