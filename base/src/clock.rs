//! The injected clocks: the wall clock, and one that only measures.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// A source of time.
pub trait Clock: Send + Sync + 'static {
    /// Wall-clock time in microseconds since the Unix epoch. It may jump either way; callers that
    /// need order use the transaction clock built on it.
    fn now_us(&self) -> u64;
    /// Microseconds since some moment before this process's first look; never steps back and never
    /// jumps. Every duration is a difference of two of these.
    fn elapsed_us(&self) -> u64;
    /// The wall clock as far as timestamps follow it: zero from the year 10000 on, for which SQL
    /// has no timestamps.
    fn followed_us(&self) -> u64 {
        let now_us = self.now_us();
        if now_us < FOLLOWED_US_END { now_us } else { 0 }
    }
}

/// The beginning of the year 10000, in microseconds since the Unix epoch.
pub const FOLLOWED_US_END: u64 = 253_402_300_800_000_000;

/// The operating system's clock.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that reads the system clock"
    )]
    fn now_us(&self) -> u64 {
        std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |d| d.as_micros() as u64)
    }

    fn elapsed_us(&self) -> u64 {
        static BEGAN: LazyLock<Instant> = LazyLock::new(instant);
        instant().saturating_duration_since(*BEGAN).as_micros() as u64
    }
}

fn instant() -> Instant {
    Instant::now()
}

/// A clock that tests set by hand.
#[derive(Debug, Default)]
pub struct ManualClock {
    wall_us: AtomicU64,
    elapsed_us: AtomicU64,
}

impl ManualClock {
    /// Starts at `now_us`.
    pub fn new(now_us: u64) -> Self {
        Self {
            wall_us: AtomicU64::new(now_us),
            elapsed_us: AtomicU64::new(0),
        }
    }
    /// Lets `us` microseconds pass.
    pub fn advance(&self, us: u64) {
        self.wall_us.fetch_add(us, Ordering::SeqCst);
        self.elapsed_us.fetch_add(us, Ordering::SeqCst);
    }
    /// Sets the wall clock, also backwards; no time passes.
    pub fn set(&self, now_us: u64) {
        self.wall_us.store(now_us, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_us(&self) -> u64 {
        self.wall_us.load(Ordering::SeqCst)
    }

    fn elapsed_us(&self) -> u64 {
        self.elapsed_us.load(Ordering::SeqCst)
    }
}
