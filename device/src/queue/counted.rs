//! A queue that counts the requests of another one.

use super::{Completion, Queue, Request};
use strandline_base::sync::{Arc, AtomicU64, AtomicUsize, Ordering};

/// Counts since a queue was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueStats {
    /// requests accepted
    pub submitted: u64,
    /// completions taken
    pub completed: u64,
    /// the most requests outstanding at the same time
    pub outstanding_max: usize,
}

/// Passes everything on to a queue.
#[derive(Debug)]
pub struct CountedQueue {
    inner: Arc<dyn Queue>,
    submitted: AtomicU64,
    completed: AtomicU64,
    outstanding_max: AtomicUsize,
}

impl CountedQueue {
    /// A queue over `inner`, which nobody else uses.
    pub fn new(inner: Arc<dyn Queue>) -> Self {
        Self {
            inner,
            submitted: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            outstanding_max: AtomicUsize::new(0),
        }
    }

    /// The counts.
    pub fn stats(&self) -> QueueStats {
        QueueStats {
            submitted: self.submitted.load(Ordering::Relaxed),
            completed: self.completed.load(Ordering::Relaxed),
            outstanding_max: self.outstanding_max.load(Ordering::Relaxed),
        }
    }
}

impl Queue for CountedQueue {
    fn depth(&self) -> usize {
        self.inner.depth()
    }

    fn kind(&self) -> &'static str {
        self.inner.kind()
    }

    fn submit(&self, batch: Vec<(u64, Request)>) {
        let more = batch.len() as u64;
        let submitted = self.submitted.fetch_add(more, Ordering::Relaxed) + more;
        let outstanding = submitted.saturating_sub(self.completed.load(Ordering::Relaxed));
        self.outstanding_max
            .fetch_max(outstanding as usize, Ordering::Relaxed);
        self.inner.submit(batch);
    }

    fn complete(&self, min: usize) -> Vec<Completion> {
        let completions = self.inner.complete(min);
        self.completed
            .fetch_add(completions.len() as u64, Ordering::Relaxed);
        completions
    }

    fn outstanding(&self) -> usize {
        self.inner.outstanding()
    }

    fn memory_bytes(&self) -> usize {
        self.inner.memory_bytes()
    }
}
