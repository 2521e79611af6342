//! A device with a bound on bandwidth and on requests per second, as virtual machines have them.
//!
//! Reads and writes share both bounds. A request returns when the wrapped device has done it and
//! both bounds allow the next one. Syncs are not counted: they move no bytes of their own.

use strandline_base::Result;
use strandline_base::sync::{Arc, Mutex};

use super::DelayClock;
use crate::{Device, File, Queue, ThreadQueue, Tier};

/// The bounds of a [`Throttled`] device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// bytes per second, at least 1
    pub bandwidth: u64,
    /// requests per second, at least 1
    pub requests: u64,
}

/// The requests that a [`Throttled`] device has served so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// bytes read and written
    pub bytes: u64,
    /// reads and writes
    pub requests: u64,
}

/// The times from which the bounds allow the next request, and the requests so far.
#[derive(Debug, Default)]
struct Allowed {
    bytes_ns: u64,
    requests_ns: u64,
    load: Load,
}

#[derive(Debug)]
struct Meter {
    limits: Limits,
    clock: Arc<dyn DelayClock>,
    allowed: Mutex<Allowed>,
}

impl Meter {
    /// Counts a request that arrives now; when it may return.
    fn count(&self, bytes: usize) -> u64 {
        let now_ns = self.clock.now_ns();
        let share_ns = |amount: usize, limit: u64| {
            (amount as u128 * 1_000_000_000 / u128::from(limit.max(1))) as u64
        };
        let mut allowed = self.allowed.lock();
        let Allowed {
            bytes_ns,
            requests_ns,
            load,
        } = &mut *allowed;
        load.bytes += bytes as u64;
        load.requests += 1;
        *bytes_ns = now_ns.max(*bytes_ns) + share_ns(bytes, self.limits.bandwidth);
        *requests_ns = now_ns.max(*requests_ns) + share_ns(1, self.limits.requests);
        (*bytes_ns).max(*requests_ns)
    }

    fn meter(&self, bytes: usize, request: impl FnOnce() -> Result<()>) -> Result<()> {
        let until_ns = self.count(bytes);
        let done = request();
        self.clock.wait_until(until_ns);
        done
    }
}

/// A device that is no faster than its limits.
#[derive(Debug)]
pub struct Throttled {
    inner: Arc<dyn Device>,
    meter: Arc<Meter>,
}

impl Throttled {
    /// The files of `inner` within `limits`.
    pub fn new(inner: Arc<dyn Device>, limits: Limits, clock: Arc<dyn DelayClock>) -> Self {
        let meter = Meter {
            limits,
            clock,
            allowed: Mutex::default(),
        };
        let meter = Arc::new(meter);
        Self { inner, meter }
    }

    /// The requests served so far.
    pub fn load(&self) -> Load {
        self.meter.allowed.lock().load
    }

    /// What is emulated, for results.
    pub fn label(&self) -> String {
        let Limits {
            bandwidth,
            requests,
        } = self.meter.limits;
        format!("throttled to {bandwidth} bytes and {requests} requests per second")
    }

    fn handle(&self, inner: Arc<dyn File>) -> Arc<dyn File> {
        let meter = self.meter.clone();
        Arc::new(ThrottledFile { inner, meter })
    }
}

impl Device for Throttled {
    crate::forward!(inner: remove rename list sync_directory lock may_fill_up);
    crate::forward!(inner: is_written_once request_stats directory_number is_stored);

    fn create(&self, name: &str) -> Result<Arc<dyn File>> {
        Ok(self.handle(self.inner.create(name)?))
    }

    fn open(&self, name: &str) -> Result<Arc<dyn File>> {
        Ok(self.handle(self.inner.open(name)?))
    }

    fn queue(&self, _tier: Tier, depth: usize) -> Result<Arc<dyn Queue>> {
        Ok(Arc::new(ThreadQueue::new(depth)?))
    }

    fn location(&self) -> String {
        format!("{} ({})", self.inner.location(), self.label())
    }
}

#[derive(Debug)]
struct ThrottledFile {
    inner: Arc<dyn File>,
    meter: Arc<Meter>,
}

impl File for ThrottledFile {
    crate::forward!(inner: name sync len set_len);

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let bytes = buf.len();
        self.meter
            .meter(bytes, || self.inner.read_exact_at(buf, offset))
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.meter
            .meter(buf.len(), || self.inner.write_all_at(buf, offset))
    }
}
