//! Ctrl-C while a statement runs: cancels it.
//!
//! Python runs signal handlers on its main thread between two bytecodes, which is too late for a
//! thread inside a statement. Its C handler, however, writes a byte into the *wakeup descriptor*
//! (`signal.set_wakeup_fd`) at once.
//!
//! A thread of this module reads the other end and cancels the main thread's statement. The
//! statement fails, and its thread lets Python raise `KeyboardInterrupt`. Statements themselves pay
//! nothing for it.
//!
//! A program's own wakeup descriptor, as asyncio's event loops may have, stays in place. This
//! module's descriptor is set again, at most once a second, when the main thread runs a statement.

use crate::process::forks;
use parking_lot::Mutex;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict};
use std::cell::Cell;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// SIGINT's number.
const INTERRUPT: u8 = 2;
/// The interval at which a thread checks that the wakeup descriptor is still this module's.
const REARMED: Duration = Duration::from_secs(1);

/// The number of the calling thread; never 0.
pub fn this_thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    thread_local! {
        static TOKEN: usize = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    TOKEN.with(|token| *token)
}

/// The thread on which Python runs signal handlers; 0: not known yet.
static MAIN_THREAD: AtomicUsize = AtomicUsize::new(0);

/// The end that Python writes to, and the process that it belongs to, as numbered by [`forks`].
static WRITER: Mutex<Option<(u32, UnixStream)>> = Mutex::new(None);

/// Cancels the statements that run on a thread, as numbered by [`this_thread`].
pub type CancelOnThread = fn(usize);

/// On the main thread, makes Ctrl-C call `cancel` with this thread from `now` on. On other threads
/// it does nothing.
pub fn arm(py: Python<'_>, now: Instant, cancel: CancelOnThread) -> PyResult<()> {
    thread_local! {
        static LAST: Cell<Option<(u32, Instant)>> = const { Cell::new(None) };
    }
    let forks = forks();
    let is_recent = LAST
        .get()
        .is_some_and(|(f, at)| f == forks && now - at < REARMED);
    if is_recent {
        return Ok(());
    }
    LAST.set(Some((forks, now)));
    let Some(descriptor) = writer(forks, cancel) else {
        return Ok(());
    };
    let set = |fd: i32| set_wakeup_fd(py, fd);
    match set(descriptor) {
        Ok(before) if before >= 0 && before != descriptor => {
            set(before)?;
            MAIN_THREAD.store(0, Ordering::Release);
        }
        Ok(_) => MAIN_THREAD.store(this_thread(), Ordering::Release),
        // This is not the main thread.
        Err(error) if error.is_instance_of::<PyValueError>(py) => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Releases, in a forked child, the descriptor that it has inherited. A byte that the child wrote
/// there would cancel its parent's statement.
pub fn disarm(py: Python<'_>) -> PyResult<()> {
    let Some((_, stream)) = WRITER.lock().take() else {
        return Ok(());
    };
    let before = set_wakeup_fd(py, -1)?;
    if before >= 0 && before != stream.as_raw_fd() {
        set_wakeup_fd(py, before)?;
    }
    Ok(())
}

fn set_wakeup_fd(py: Python<'_>, descriptor: i32) -> PyResult<i32> {
    let options: Bound<'_, PyDict> = [("warn_on_full_buffer", false)].into_py_dict(py)?;
    py.import("signal")?
        .call_method("set_wakeup_fd", (descriptor,), Some(&options))?
        .extract()
}

/// The descriptor for Python; None if the process can open no more. A forked child gets its own.
fn writer(forks: u32, cancel: CancelOnThread) -> Option<i32> {
    let mut writer = WRITER.lock();
    if let Some((made, stream)) = &*writer
        && *made == forks
    {
        return Some(stream.as_raw_fd());
    }
    let (reader, stream) = UnixStream::pair().ok()?;
    stream.set_nonblocking(true).ok()?;
    std::thread::Builder::new()
        .name("strandline-interrupt".into())
        .spawn(move || watch(reader, cancel))
        .ok()?;
    let descriptor = stream.as_raw_fd();
    *writer = Some((forks, stream));
    Some(descriptor)
}

fn watch(mut reader: UnixStream, cancel: CancelOnThread) {
    let mut bytes = [0; 64];
    while let Ok(read @ 1..) = reader.read(&mut bytes) {
        if bytes[..read].contains(&INTERRUPT) {
            cancel(MAIN_THREAD.load(Ordering::Acquire));
        }
    }
}
