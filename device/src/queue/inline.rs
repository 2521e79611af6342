//! A queue that serves each request when it is submitted, in the order of submission.

use super::{Completion, Queue, Request};
use std::collections::VecDeque;
use strandline_base::sync::Mutex;

/// A queue of depth 1 without a thread, for simulations.
#[derive(Debug, Default)]
pub struct InlineQueue {
    done: Mutex<VecDeque<Completion>>,
}

impl InlineQueue {
    /// An empty queue.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Queue for InlineQueue {
    fn depth(&self) -> usize {
        1
    }

    fn kind(&self) -> &'static str {
        "inline"
    }

    fn submit(&self, batch: Vec<(u64, Request)>) {
        for (tag, request) in batch {
            let completion = request.serve(tag);
            self.done.lock().push_back(completion);
        }
    }

    fn complete(&self, _min: usize) -> Vec<Completion> {
        self.done.lock().drain(..).collect()
    }

    fn outstanding(&self) -> usize {
        self.done.lock().len()
    }
}
