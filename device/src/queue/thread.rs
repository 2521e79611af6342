//! A queue with a thread for each request in service.

use super::{Completion, Queue, Request};
use std::collections::VecDeque;
use std::thread::{self, JoinHandle};
use strandline_base::sync::{Arc, Condvar, Mutex};
use strandline_base::{Error, Result};

/// The most requests in service, and so the most threads.
pub const DEPTH_MAX: usize = 64;

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<(u64, Request)>,
    in_service: usize,
    done: VecDeque<Completion>,
    is_closed: bool,
}

impl State {
    fn outstanding(&self) -> usize {
        self.waiting.len() + self.in_service + self.done.len()
    }
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// notified when requests wait, or the queue is closed
    submitted: Condvar,
    /// notified when a request is done
    served: Condvar,
}

/// A queue over the blocking methods of files.
#[derive(Debug)]
pub struct ThreadQueue {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl ThreadQueue {
    /// A queue that serves `depth` requests at the same time, between 1 and [`DEPTH_MAX`].
    ///
    /// # Errors
    /// 58030 if the system refuses a thread.
    pub fn new(depth: usize) -> Result<Self> {
        let mut queue = Self {
            shared: Arc::default(),
            threads: Vec::new(),
        };
        for n in 0..depth.clamp(1, DEPTH_MAX) {
            let shared = queue.shared.clone();
            let thread = thread::Builder::new()
                .name(format!("queue-{n}"))
                .spawn(move || shared.serve_all())
                .map_err(|error| Error::io("a thread of a queue of requests", &error))?;
            queue.threads.push(thread);
        }
        Ok(queue)
    }
}

impl Shared {
    /// Serves requests until the queue is closed.
    fn serve_all(&self) {
        let mut state = self.state.lock();
        loop {
            if state.is_closed {
                return;
            }
            let Some((tag, request)) = state.waiting.pop_front() else {
                self.submitted.wait(&mut state);
                continue;
            };
            state.in_service += 1;
            drop(state);
            let completion = request.serve(tag);
            state = self.state.lock();
            state.in_service -= 1;
            state.done.push_back(completion);
            self.served.notify_all();
        }
    }
}

impl Queue for ThreadQueue {
    fn depth(&self) -> usize {
        self.threads.len()
    }

    fn kind(&self) -> &'static str {
        "threads"
    }

    fn submit(&self, batch: Vec<(u64, Request)>) {
        self.shared.state.lock().waiting.extend(batch);
        self.shared.submitted.notify_all();
    }

    fn complete(&self, min: usize) -> Vec<Completion> {
        let mut state = self.shared.state.lock();
        while state.done.len() < min.min(state.outstanding()) {
            self.shared.served.wait(&mut state);
        }
        let completions = state.done.drain(..).collect();
        drop(state);
        // Another thread may wait for more than are outstanding now.
        self.shared.served.notify_all();
        completions
    }

    fn outstanding(&self) -> usize {
        self.shared.state.lock().outstanding()
    }
}

impl Drop for ThreadQueue {
    fn drop(&mut self) {
        self.shared.state.lock().is_closed = true;
        self.shared.submitted.notify_all();
        for thread in self.threads.drain(..) {
            // A thread that has panicked leaves nothing to wait for.
            let _ = thread.join();
        }
    }
}
