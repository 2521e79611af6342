//! Reads of pages on their way: the queue to the device, and the frames that wait for its
//! completions.
//!
//! Invariants:
//! 1. A frame in the state *ahead* belongs to one request in `requests`, until its completion is
//!    handled.
//! 2. One thread at a time waits for completions (`is_taking`), whichever frame it needs. Other
//!    threads wait on `handled` until it has handled some, and look again. So a thread waits for no
//!    other page than its own.
//!
//! Lock order: `pending` → a frame's state → nothing.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use strandline_base::sync::{
    AtomicU64, AtomicUsize, Condvar, Mutex, MutexGuard, OnceLock, Ordering,
};
use strandline_device::{
    Completion, CountedQueue, DEPTH_MAX, Device, Queue, QueueStats, Request, Tier,
};

use super::frame::Frame;
use super::header::PAGE_BYTES;
use crate::pool::Pool;

/// The most requests in service at the device, and the least.
const DEPTH: RangeInclusive<usize> = 8..=DEPTH_MAX;
/// One request in service for so many pages of memory: a queue may keep 64 KiB for each, so that it
/// takes a 16th.
const DEPTH_PART: usize = 128;

/// The reads ahead since the start, for inspection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadAheadStats {
    /// how the device serves requests: `io_uring`, `threads` or `inline`
    pub queue: &'static str,
    /// requests in service at the same time
    pub depth: usize,
    /// requests of one page or of adjacent ones
    pub requests: QueueStats,
    /// pages read
    pub pages: u64,
    /// pages that were evicted before anybody used them
    pub unused: u64,
}

#[derive(Debug, Default)]
struct Pending {
    next_tag: u64,
    requests: HashMap<u64, Vec<Arc<Frame>>>,
    is_taking: bool,
}

/// The frames of a completed request, and its outcome.
pub(super) type Arrival = (Vec<Arc<Frame>>, Completion);

/// The reads ahead of a store.
#[derive(Debug)]
pub(super) struct ReadAhead {
    device: Arc<dyn Device>,
    pool: Arc<Pool>,
    /// made at the first use; None inside if the system refuses it
    queue: OnceLock<Option<CountedQueue>>,
    pending: Mutex<Pending>,
    handled: Condvar,
    /// pages on their way
    on_their_way: AtomicUsize,
    pub pages: AtomicU64,
    pub unused: AtomicU64,
}

impl ReadAhead {
    /// The reads ahead from a device into the pages of a pool.
    pub fn new(device: Arc<dyn Device>, pool: Arc<Pool>) -> Self {
        Self {
            device,
            pool,
            queue: OnceLock::new(),
            pending: Mutex::new(Pending::default()),
            handled: Condvar::new(),
            on_their_way: AtomicUsize::new(0),
            pages: AtomicU64::new(0),
            unused: AtomicU64::new(0),
        }
    }

    /// The queue; None if there can be none. Page files are on the capacity tier.
    fn queue(&self) -> Option<&CountedQueue> {
        let make = || {
            let pages = self.pool.budget_bytes() / PAGE_BYTES;
            let depth = (pages / DEPTH_PART).clamp(*DEPTH.start(), *DEPTH.end());
            let queue = self.device.queue(Tier::Capacity, depth).ok();
            let queue = queue.map(CountedQueue::new)?;
            let taken = self.pool.taken_bytes();
            taken.fetch_add(queue.memory_bytes(), Ordering::Relaxed);
            Some(queue)
        };
        self.queue.get_or_init(make).as_ref()
    }

    /// Bytes that the queue takes from the pool.
    pub fn taken_bytes(&self) -> usize {
        let queue = self.queue.get().and_then(Option::as_ref);
        queue.map_or(0, Queue::memory_bytes)
    }

    /// How many pages more may be on their way, `pages_max` being the most.
    pub fn free(&self, pages_max: usize) -> usize {
        match self.queue() {
            Some(_) => pages_max.saturating_sub(self.on_their_way.load(Ordering::Relaxed)),
            None => 0,
        }
    }

    /// Submits requests, each with the frames that its buffers are for.
    pub fn submit(&self, requests: Vec<(Request, Vec<Arc<Frame>>)>) {
        let Some(queue) = self.queue() else { return };
        let pages: usize = requests.iter().map(|(_, frames)| frames.len()).sum();
        self.on_their_way.fetch_add(pages, Ordering::Relaxed);
        let mut batch = Vec::with_capacity(requests.len());
        let mut pending = self.pending.lock();
        for (request, frames) in requests {
            let tag = pending.next_tag;
            pending.next_tag += 1;
            pending.requests.insert(tag, frames);
            batch.push((tag, request));
        }
        drop(pending);
        queue.submit(batch);
    }

    /// Handles completions until `is_done`, and waits for them.
    pub fn handle_until(&self, is_done: impl Fn() -> bool, mut handle: impl FnMut(Arrival)) {
        let mut pending = self.pending.lock();
        while !is_done() {
            let Some(queue) = self.queue().filter(|_| !pending.is_taking) else {
                self.handled.wait(&mut pending);
                continue;
            };
            self.take(queue, &mut pending, 1, &mut handle);
        }
    }

    /// Handles the completions that are there, unless another thread does.
    pub fn handle_ready(&self, mut handle: impl FnMut(Arrival)) {
        if self.on_their_way.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut pending = self.pending.lock();
        if let Some(queue) = self.queue().filter(|_| !pending.is_taking) {
            self.take(queue, &mut pending, 0, &mut handle);
        }
    }

    fn take(
        &self,
        queue: &CountedQueue,
        pending: &mut MutexGuard<'_, Pending>,
        min: usize,
        handle: &mut impl FnMut(Arrival),
    ) {
        pending.is_taking = true;
        let completions = MutexGuard::unlocked(pending, || queue.complete(min));
        let mut arrivals = Vec::with_capacity(completions.len());
        for completion in completions {
            if let Some(frames) = pending.requests.remove(&completion.tag) {
                self.on_their_way.fetch_sub(frames.len(), Ordering::Relaxed);
                arrivals.push((frames, completion));
            }
        }
        MutexGuard::unlocked(pending, || arrivals.into_iter().for_each(handle));
        pending.is_taking = false;
        self.handled.notify_all();
    }

    /// Counts; None before the first use.
    pub fn stats(&self) -> Option<ReadAheadStats> {
        let queue = self.queue.get()?.as_ref()?;
        Some(ReadAheadStats {
            queue: queue.kind(),
            depth: queue.depth(),
            requests: queue.stats(),
            pages: self.pages.load(Ordering::Relaxed),
            unused: self.unused.load(Ordering::Relaxed),
        })
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        let taken = self.taken_bytes();
        self.pool.taken_bytes().fetch_sub(taken, Ordering::Relaxed);
    }
}
