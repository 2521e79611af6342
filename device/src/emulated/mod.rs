//! Devices that are slower than the one they wrap: [`EmulatedHdd`] has the delays of a hard disk,
//! [`Throttled`] a bound on bandwidth and requests. For benchmarks and tests only.
//!
//! Invariant: the location of an emulated device says what is emulated, so that every message and
//! every result that names the device is labelled.

mod hdd;
mod hdd_model;
mod throttled;

pub use hdd::EmulatedHdd;
pub use hdd_model::HddModel;
pub use throttled::{Limits, Load, Throttled};

use std::fmt::Debug;
use std::time::Duration;
use strandline_base::sync::{Arc, Condvar, Mutex};
use strandline_base::{Clock, SystemClock};

/// The time of emulated delays. Tests have a clock of their own that never waits.
pub trait DelayClock: Send + Sync + Debug + 'static {
    /// Nanoseconds since some moment; never steps back.
    fn now_ns(&self) -> u64;
    /// Returns at `until_ns` or later.
    fn wait_until(&self, until_ns: u64);
}

/// The operating system's time.
#[derive(Debug, Default)]
struct RealDelays {
    /// nobody notifies it: it only times out
    never: (Mutex<()>, Condvar),
}

impl DelayClock for RealDelays {
    fn now_ns(&self) -> u64 {
        SystemClock.elapsed_us() * 1_000
    }

    fn wait_until(&self, until_ns: u64) {
        let mut guard = self.never.0.lock();
        loop {
            let left = until_ns.saturating_sub(self.now_ns());
            if left == 0 {
                return;
            }
            self.never
                .1
                .wait_for(&mut guard, Duration::from_nanos(left));
        }
    }
}

/// The clock that waits in real time.
pub fn real_delays() -> Arc<dyn DelayClock> {
    Arc::new(RealDelays::default())
}

#[cfg(test)]
mod tests;
