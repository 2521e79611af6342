//! Waiting for a future on the present thread: at the API's entry points, and where DataFusion's
//! interface is synchronous, in a function's evaluation.
//!
//! Waits may nest on one thread. Each wait has its own flag, which its waker sets. So a wake-up for
//! the outer wait that arrives during the inner wait is not lost.

use std::cell::Cell;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use tokio::runtime::{Handle, RuntimeFlavor};

/// Wakes the waiting thread.
struct ThreadWaker {
    thread: Thread,
    woken: AtomicBool,
}

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// Polls `future` on this thread until it is done. The thread may run a tokio task, whose poll
/// budget nothing would refill here, so the future is polled without a budget.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(tokio::task::unconstrained(future));
    let signal = Arc::new(ThreadWaker {
        thread: std::thread::current(),
        woken: AtomicBool::new(false),
    });
    let waker = Waker::from(signal.clone());
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => {
                while !signal.woken.swap(false, Ordering::Acquire) {
                    std::thread::park();
                }
            }
        }
    }
}

/// [`block_on`] within a query: a query thread first hands its other tasks on.
pub fn wait<F: Future>(future: F) -> F::Output {
    in_place(|| block_on(future))
}

/// Runs `work`, which may block, on this thread. A query thread first hands its other tasks on. A
/// caller's thread just blocks, in any runtime.
pub(crate) fn in_place<T>(work: impl FnOnce() -> T) -> T {
    let flavor = Handle::try_current().map(|handle| handle.runtime_flavor());
    match flavor {
        Ok(RuntimeFlavor::MultiThread) if !on_callers_thread() => tokio::task::block_in_place(work),
        _ => work(),
    }
}

thread_local! {
    /// The number of [`CallersThread`]s on this thread's stack.
    static BLOCKED_ON: Cell<usize> = const { Cell::new(0) };
}

/// Whether this is a caller's thread in the API's `block_on`, which may therefore block.
pub(crate) fn on_callers_thread() -> bool {
    BLOCKED_ON.get() > 0
}

/// Marks the present thread while it is in the API's `block_on`.
pub(crate) struct CallersThread;

impl CallersThread {
    pub(crate) fn enter() -> Self {
        BLOCKED_ON.set(BLOCKED_ON.get() + 1);
        Self
    }
}

impl Drop for CallersThread {
    fn drop(&mut self) {
        BLOCKED_ON.set(BLOCKED_ON.get() - 1);
    }
}
