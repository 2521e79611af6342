//! The thread that runs the device's asynchronous work.
//!
//! The runtime is given, so that a test's runtime has a clock of its own. Its thread ends when the
//! executor is dropped; work that is under way then is dropped with it. Work must not own the
//! executor: it would be dropped, and waited for, on its own thread.

use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use strandline_base::{Error, Result};
use tokio::runtime::{Handle, Runtime};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

/// A runtime on a thread of its own.
#[derive(Debug)]
pub(crate) struct Executor {
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Executor {
    /// Moves `runtime` to a new thread.
    ///
    /// # Errors
    /// 58030 if the system refuses a thread.
    pub fn start(runtime: Runtime) -> Result<Self> {
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = thread::Builder::new()
            .name("objects".to_owned())
            .spawn(move || {
                // An executor that is dropped without a signal has stopped too.
                let _ = runtime.block_on(stopped);
                runtime.shutdown_background();
            })
            .map_err(|error| Error::io("the thread of an object store", &error))?;
        Ok(Self {
            handle,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Starts `work`; [`Pending::wait`] has its result. Work whose [`Pending`] is dropped goes on.
    pub fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Pending<T> {
        let (sender, receiver) = mpsc::sync_channel(1);
        let task = self.handle.spawn(async move {
            // Nobody may wait for the result any more.
            let _ = sender.send(work.await);
        });
        Pending {
            result: receiver,
            task: task.abort_handle(),
        }
    }

    /// Runs `work` and waits for it.
    ///
    /// # Errors
    /// Those of `work`, and of [`Pending::wait`].
    pub fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        self.spawn(work).wait()?
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A thread that has panicked leaves nothing to wait for.
            let _ = thread.join();
        }
    }
}

/// Work that has been started.
#[derive(Debug)]
pub(crate) struct Pending<T> {
    result: mpsc::Receiver<T>,
    task: AbortHandle,
}

impl<T> Pending<T> {
    /// Blocks until the work is done. Only the first call has its result.
    ///
    /// # Errors
    /// XX000 if the work has panicked.
    pub fn wait(&self) -> Result<T> {
        let lost = |_| Error::internal("a request to an object store has ended without a result");
        self.result.recv().map_err(lost)
    }

    /// Ends the work where it waits next, unless it is done.
    pub fn cancel(&self) {
        self.task.abort();
    }
}
