//! Reads of several blocks that are at the device at the same time, through a queue. One queue
//! serves the indexes of a database.
//!
//! One caller at a time uses the queue: it submits its reads and waits for all of them. A caller
//! that finds the queue in use reads by itself instead. So no completion is anybody else's.

use std::sync::Arc;
use strandline_base::sync::{Mutex, OnceLock};
use strandline_base::{Error, Result};
use strandline_device::{CountedQueue, Device, Queue, QueueStats, Request, Tier};

/// Requests in service at the device.
const DEPTH: usize = 32;

/// A queue to the fast tier of a device.
#[derive(Debug)]
pub struct BlockQueue {
    device: Arc<dyn Device>,
    /// made at the first use; None inside if the system refuses it
    queue: OnceLock<Option<CountedQueue>>,
    turn: Mutex<()>,
}

impl BlockQueue {
    /// A queue to `device`, which is made at the first read.
    pub fn new(device: Arc<dyn Device>) -> Arc<Self> {
        Arc::new(Self {
            device,
            queue: OnceLock::new(),
            turn: Mutex::new(()),
        })
    }

    /// Counts of the requests; None before the first one.
    pub fn stats(&self) -> Option<QueueStats> {
        Some(self.queue.get()?.as_ref()?.stats())
    }

    /// The buffers of these reads, in this order. None if the queue is in use, or if there is none.
    pub(super) fn read(&self, requests: Vec<Request>) -> Option<Result<Vec<Vec<Vec<u8>>>>> {
        let make = || self.device.queue(Tier::Fast, DEPTH).ok();
        let queue = self.queue.get_or_init(|| make().map(CountedQueue::new));
        let queue = queue.as_ref()?;
        let _turn = self.turn.try_lock()?;
        let mut read = vec![Vec::new(); requests.len()];
        queue.submit((0..).zip(requests).collect());
        let mut failed = None;
        while queue.outstanding() > 0 {
            for completion in queue.complete(1) {
                match (completion.result, read.get_mut(completion.tag as usize)) {
                    (Ok(()), Some(buffers)) => *buffers = completion.buffers,
                    (Ok(()), None) => failed = Some(Error::internal("a completion without a read")),
                    (Err(error), _) => failed = Some(error),
                }
            }
        }
        Some(failed.map_or(Ok(read), Err))
    }

    /// Runs `work` while the queue is in use.
    #[cfg(test)]
    pub(super) fn while_in_use(&self, work: impl FnOnce()) {
        let _turn = self.turn.lock();
        work();
    }
}
