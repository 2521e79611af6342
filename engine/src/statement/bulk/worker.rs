//! A thread that encodes ranges of a load, one at a time. It lives as long as the load, so that the
//! allocator can use its memory again for the next range.

use super::Loaded;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use strandline_base::sync::Mutex;
use strandline_base::{Error, Result};

type Job = Box<dyn FnOnce() -> Result<Loaded> + Send>;

/// See the module's documentation. Dropping it waits for the thread.
pub(super) struct Worker {
    /// None: the thread is to end
    jobs: Option<Sender<Job>>,
    /// behind a lock, because threads that enter ranges share the load
    results: Mutex<Receiver<Result<Loaded>>>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    pub fn start() -> Result<Self> {
        let (jobs, next) = channel::<Job>();
        let (done, results) = channel();
        let thread = std::thread::Builder::new()
            .name("strandline-load".into())
            .spawn(move || {
                // Both ends are there until the worker is dropped.
                while let Ok(job) = next.recv()
                    && done.send(job()).is_ok()
                {}
            })
            .map_err(|e| Error::io("starting a loader thread", &e))?;
        Ok(Self {
            jobs: Some(jobs),
            results: Mutex::new(results),
            thread: Some(thread),
        })
    }

    /// Gives the thread a job, whose result has to be taken before the next job.
    pub fn give(&self, job: impl FnOnce() -> Result<Loaded> + Send + 'static) -> Result<()> {
        let given = self.jobs.as_ref().map(|jobs| jobs.send(Box::new(job)));
        match given {
            Some(Ok(())) => Ok(()),
            _ => Err(Error::internal("a loader thread has ended")),
        }
    }

    /// Waits for the job's result.
    pub fn result(&self) -> Result<Loaded> {
        let result = self.results.lock().recv();
        result.unwrap_or_else(|_| Err(Error::internal("a loader thread panicked")))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.jobs = None;
        // A panic has been reported by `result`.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
