//! Waiting for a future on the thread at hand: at the entrance of the API, and where DataFusion's
//! interface is synchronous, in a function's evaluation.
//!
//! Waits may nest on one thread. Each has a flag of its own that its waker sets, so that a wake-up
//! meant for the outer one, which arrives while the inner one waits, is not lost.

use std::cell::Cell;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use tokio::runtime::{Handle, RuntimeFlavor};

/// Wakes the thread that waits.
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

/// Polls `future` on this thread until it is done. The thread's own task may be one of tokio's,
/// whose budget of polls is not ours: nothing would ever refill it here.
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

/// As [`block_on`], inside of a query: a query thread hands its other tasks on before it waits.
pub fn wait<F: Future>(future: F) -> F::Output {
    in_place(|| block_on(future))
}

/// Runs `work`, which may wait, on this thread. A caller's thread may simply wait, whatever runtime
/// it belongs to; a query thread hands its other tasks on.
pub(crate) fn in_place<T>(work: impl FnOnce() -> T) -> T {
    let flavor = Handle::try_current().map(|handle| handle.runtime_flavor());
    match flavor {
        Ok(RuntimeFlavor::MultiThread) if !on_callers_thread() => tokio::task::block_in_place(work),
        _ => work(),
    }
}

thread_local! {
    /// How many [`CallersThread`]s are alive on this thread's stack.
    static BLOCKED_ON: Cell<usize> = const { Cell::new(0) };
}

/// Whether this thread is a caller's that waits for a future, which may then block it.
pub(crate) fn on_callers_thread() -> bool {
    BLOCKED_ON.get() > 0
}

/// Marks the thread while it is in the API's `block_on`.
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
