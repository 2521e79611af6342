//! A device whose queue holds requests until somebody waits for them, and serves the newest first.

use strandline_base::sync::Mutex;
use strandline_device::{Completion, Device, InlineQueue, Queue, Request, Tier};

use super::*;

#[derive(Debug, Default)]
struct HeldQueue {
    held: Mutex<Vec<(u64, Request)>>,
    inner: InlineQueue,
}

impl Queue for HeldQueue {
    fn depth(&self) -> usize {
        1
    }

    fn kind(&self) -> &'static str {
        "held"
    }

    fn submit(&self, batch: Vec<(u64, Request)>) {
        self.held.lock().extend(batch);
    }

    fn complete(&self, min: usize) -> Vec<Completion> {
        let mut held = self.held.lock();
        for _ in 0..min {
            self.inner.submit(held.pop().into_iter().collect());
        }
        self.inner.complete(0)
    }

    fn outstanding(&self) -> usize {
        self.held.lock().len() + self.inner.outstanding()
    }
}

/// The files of a device, with such a queue.
#[derive(Debug)]
pub(super) struct Held {
    inner: Arc<dyn Device>,
}

impl Held {
    pub fn new(inner: Arc<dyn Device>) -> Arc<Self> {
        Arc::new(Self { inner })
    }
}

impl Device for Held {
    strandline_device::forward!(inner: create create_on open remove rename list sync_directory);
    strandline_device::forward!(inner: lock may_fill_up location tiers);

    fn queue(&self, _tier: Tier, _depth: usize) -> Result<Arc<dyn Queue>> {
        Ok(Arc::new(HeldQueue::default()))
    }
}
