//! Terminals: threads that run the mix with waits in between, and the rate of New-Orders over time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use strandline_base::{Error, Result};

use crate::input::{Input, Inputs, Scale};
use crate::workload::{Outcome, Workload};

/// The resolution of a [`Timeline`].
const BUCKET: Duration = Duration::from_millis(100);

/// The terminals of a run.
#[derive(Clone, Copy, Debug)]
pub struct Terminals {
    pub scale: Scale,
    pub count: u32,
    /// mean of the waits between a terminal's transactions; zero: none
    pub wait: Duration,
    /// runs with different seeds have different inputs
    pub seed: u64,
}

/// Committed New-Orders over time.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// of each tenth of a second from the begin
    pub new_orders: Vec<u64>,
    /// transactions of all kinds, rolled-back ones included
    pub transactions: u64,
    /// rolled-back New-Orders
    pub rolled_back: u64,
    /// microseconds from a New-Order's begin to its end, all added up
    pub response_us: u64,
}

impl Timeline {
    /// New-Orders per minute (tpmC) from `from` to `until`, in seconds.
    pub fn tpmc(&self, from: f64, until: f64) -> f64 {
        let bucket = |seconds: f64| (seconds / BUCKET.as_secs_f64()).round() as usize;
        let (from, until) = (bucket(from), bucket(until).max(bucket(from) + 1));
        let buckets = self.new_orders.iter().skip(from).take(until - from);
        let minutes = (until - from) as f64 * BUCKET.as_secs_f64() / 60.0;
        buckets.sum::<u64>() as f64 / minutes
    }

    /// tpmC of each second.
    pub fn by_second(&self) -> Vec<f64> {
        let seconds = self.new_orders.len() / 10;
        let second = |at: usize| self.tpmc(at as f64, at as f64 + 1.0);
        (0..seconds).map(second).collect()
    }

    /// Mean response time of New-Orders in milliseconds.
    pub fn response_ms(&self) -> f64 {
        let orders: u64 = self.new_orders.iter().sum();
        self.response_us as f64 / 1_000.0 / orders.max(1) as f64
    }
}

impl Terminals {
    /// Runs all terminals for `time`. A transaction that began within the time is finished.
    ///
    /// # Errors
    /// The first error of a transaction, which ends all terminals.
    pub fn run(&self, workload: &dyn Workload, time: Duration) -> Result<Timeline> {
        let tenths = time.as_nanos().div_ceil(BUCKET.as_nanos()) as usize;
        let shared = Shared {
            begun: Instant::now(),
            time,
            buckets: (0..tenths).map(|_| AtomicU64::new(0)).collect(),
            rolled_back: AtomicU64::new(0),
            transactions: AtomicU64::new(0),
            response_us: AtomicU64::new(0),
            is_over: std::sync::atomic::AtomicBool::new(false),
        };
        let shared = &shared;
        let ends: Vec<Result<()>> = std::thread::scope(|scope| {
            let spawn = |number| {
                scope.spawn(move || {
                    let end = self.terminal(number, workload, shared);
                    if end.is_err() {
                        shared.is_over.store(true, Ordering::Relaxed);
                    }
                    end
                })
            };
            let threads: Vec<_> = (0..self.count).map(spawn).collect();
            let panicked = || Err(Error::internal("a terminal has panicked"));
            let join = |thread: std::thread::ScopedJoinHandle<'_, Result<()>>| {
                thread.join().unwrap_or_else(|_| panicked())
            };
            threads.into_iter().map(join).collect()
        });
        ends.into_iter().collect::<Result<()>>()?;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Ok(Timeline {
            new_orders: shared.buckets.iter().map(read).collect(),
            transactions: read(&shared.transactions),
            rolled_back: read(&shared.rolled_back),
            response_us: read(&shared.response_us),
        })
    }

    fn terminal(&self, number: u32, workload: &dyn Workload, shared: &Shared) -> Result<()> {
        let mut inputs = Inputs::new(self.scale, number, self.seed);
        let mut wait = self.wait.mul_f64(inputs.wait_share().min(1.0));
        loop {
            let now = shared.begun.elapsed();
            let left = shared.time.saturating_sub(now);
            if left.is_zero() || shared.is_over.load(Ordering::Relaxed) {
                return Ok(());
            }
            if !wait.is_zero() {
                std::thread::sleep(wait.min(left));
                if wait >= left {
                    return Ok(());
                }
            }
            let begun = shared.begun.elapsed();
            let input = inputs.draw();
            let outcome = workload.run(&input)?;
            shared.note(&input, outcome, begun);
            wait = self.wait.mul_f64(inputs.wait_share());
        }
    }
}

/// What the terminals of a run share.
struct Shared {
    begun: Instant,
    time: Duration,
    buckets: Vec<AtomicU64>,
    rolled_back: AtomicU64,
    transactions: AtomicU64,
    response_us: AtomicU64,
    is_over: std::sync::atomic::AtomicBool,
}

impl Shared {
    fn note(&self, input: &Input, outcome: Outcome, begun: Duration) {
        self.transactions.fetch_add(1, Ordering::Relaxed);
        let ended = self.begun.elapsed();
        match (input, outcome) {
            (Input::NewOrder(_), Outcome::Committed(_)) => {
                let bucket = (ended.as_nanos() / BUCKET.as_nanos()) as usize;
                if let Some(bucket) = self.buckets.get(bucket) {
                    bucket.fetch_add(1, Ordering::Relaxed);
                    let took = ended.saturating_sub(begun).as_micros() as u64;
                    self.response_us.fetch_add(took, Ordering::Relaxed);
                }
            }
            (_, Outcome::RolledBack) => {
                self.rolled_back.fetch_add(1, Ordering::Relaxed);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_of_its_seconds() {
        let timeline = Timeline {
            new_orders: [vec![1; 10], vec![3; 10]].concat(),
            response_us: 80_000,
            ..Timeline::default()
        };
        assert_eq!(timeline.tpmc(0.0, 1.0), 600.0);
        assert_eq!(timeline.tpmc(0.0, 2.0), 1_200.0);
        assert_eq!(timeline.by_second(), [600.0, 1_800.0]);
        assert_eq!(timeline.response_ms(), 2.0);
    }
}
