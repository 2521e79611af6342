//! Ctrl-C while a statement runs: cancels it.
//!
//! Python runs signal handlers on its main thread between two bytecodes, which is too late for a
//! thread that is inside a statement. Its C handler, however, writes a byte into the *wakeup
//! descriptor* (`signal.set_wakeup_fd`) at once. A thread of ours reads the other end and cancels
//! what the main thread runs; the statement fails, and the thread that ran it lets Python raise
//! `KeyboardInterrupt`. A statement pays nothing for it.
//!
//! A program that has a wakeup descriptor of its own, as asyncio's event loops may, keeps it. Ours
//! is set again, at most once a second, when its main thread runs a statement.

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
/// How often a thread looks whether the wakeup descriptor is still ours.
const REARMED: Duration = Duration::from_secs(1);

/// Names the calling thread; never 0.
pub fn this_thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    thread_local! {
        static TOKEN: usize = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    TOKEN.with(|token| *token)
}

/// The thread that Python runs signal handlers on; 0: not known yet.
static MAIN_THREAD: AtomicUsize = AtomicUsize::new(0);

/// The end that Python writes to, and the process it belongs to as [`forks`] counts.
static WRITER: Mutex<Option<(u32, UnixStream)>> = Mutex::new(None);

/// Cancels the statements that run on a thread, which [`this_thread`] has named.
pub type CancelOnThread = fn(usize);

/// When called on the main thread: from `now` on Ctrl-C calls `cancel` with this thread.
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
        // Not the main thread.
        Err(error) if error.is_instance_of::<PyValueError>(py) => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Lets go, in a forked child, of the descriptor that it has from its parent: what the child wrote
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

/// The descriptor for Python; None if the process can have no more. A forked child gets its own.
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
