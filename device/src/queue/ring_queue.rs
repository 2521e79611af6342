//! A queue over an io_uring of Linux.
//!
//! A request takes a slot of the ring. It is transferred piece by piece, each of at most
//! [`SLOT_BYTES`]; after a short transfer the rest is the next piece. Aligned reads of which
//! nothing is in the page cache go past it (`O_DIRECT`): random reads through it took 1.5 times the
//! time.
//!
//! Invariants:
//! 1. One thread at a time waits for the kernel (`is_waiting`); only this thread takes completions
//!    from the ring meanwhile, so that it finds the one that it waits for. Other threads wait on
//!    `served`.
//! 2. While requests wait, every slot is in service.
//! 3. A request whose file has no descriptor is served when it is submitted.
//! 4. After a call of the ring has failed for good, the requests in service are completed with that
//!    error, and later ones are served when they are submitted.
//!
//! Lock order: `state` is the only lock. Submitting is a system call under it, in which the kernel
//! waits for no device.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use strandline_base::sync::{Condvar, Mutex, MutexGuard, yield_now};
use strandline_base::{Error, Result};

use super::uring::{
    DIRECT_ALIGN, Operation, Ring, SLOT_BYTES, Waiter, is_in_page_cache, is_passing,
};
use super::{Completion, DEPTH_MAX, Queue, Request};
use crate::{Descriptors, short_read_error};

/// A request in a slot.
#[derive(Debug)]
struct InService {
    tag: u64,
    request: Request,
    /// bytes transferred
    done: usize,
    /// bytes of the whole transfer
    total: usize,
    /// the file has refused to be read past the page cache
    is_direct_refused: bool,
    /// the piece in service goes past the page cache
    is_direct: bool,
}

#[derive(Debug)]
struct State {
    /// dropped first: it waits for the requests, which keep their files open
    ring: Ring,
    /// None: the slot is free
    slots: Vec<Option<InService>>,
    in_service: usize,
    waiting: VecDeque<(u64, Request)>,
    done: VecDeque<Completion>,
    /// a thread waits for the kernel
    is_waiting: bool,
    /// a call of the ring has failed for good
    has_failed: bool,
}

/// A queue over an io_uring.
#[derive(Debug)]
pub struct UringQueue {
    state: Mutex<State>,
    waiter: Waiter,
    /// notified when a request is done, or nobody waits for the kernel any more
    served: Condvar,
    depth: usize,
}

impl UringQueue {
    /// A queue that serves `depth` requests at the same time, between 1 and [`DEPTH_MAX`].
    ///
    /// # Errors
    /// Those of the kernel, which may not have io_uring or not allow it.
    pub fn new(depth: usize) -> io::Result<Self> {
        let depth = depth.clamp(1, DEPTH_MAX);
        let ring = Ring::new(depth)?;
        let waiter = ring.waiter();
        let state = State {
            ring,
            slots: (0..depth).map(|_| None).collect(),
            in_service: 0,
            waiting: VecDeque::new(),
            done: VecDeque::new(),
            is_waiting: false,
            has_failed: false,
        };
        Ok(Self {
            state: Mutex::new(state),
            waiter,
            served: Condvar::new(),
            depth,
        })
    }
}

impl Queue for UringQueue {
    fn depth(&self) -> usize {
        self.depth
    }

    fn kind(&self) -> &'static str {
        "io_uring"
    }

    fn submit(&self, batch: Vec<(u64, Request)>) {
        let mut state = self.state.lock();
        state.waiting.extend(batch);
        state.fill_slots();
        if !state.done.is_empty() {
            self.served.notify_all();
        }
    }

    fn complete(&self, min: usize) -> Vec<Completion> {
        let mut state = self.state.lock();
        loop {
            if !state.is_waiting {
                state.take_completions();
            }
            if state.done.len() >= min.min(state.outstanding()) {
                break;
            }
            if state.is_waiting {
                self.served.wait(&mut state);
                continue;
            }
            if state.ring.unsubmitted() > 0 {
                // The kernel is short of memory. What it has may be done by the next turn.
                MutexGuard::unlocked(&mut state, yield_now);
                continue;
            }
            state.is_waiting = true;
            let waited = MutexGuard::unlocked(&mut state, || self.waiter.wait());
            state.is_waiting = false;
            if let Err(error) = waited {
                state.note_failure(&error);
            }
            self.served.notify_all();
        }
        let completions = state.done.drain(..).collect();
        drop(state);
        // Another thread may wait for more than are outstanding now.
        self.served.notify_all();
        completions
    }

    fn outstanding(&self) -> usize {
        self.state.lock().outstanding()
    }

    fn memory_bytes(&self) -> usize {
        self.depth * SLOT_BYTES
    }
}

impl State {
    fn outstanding(&self) -> usize {
        self.waiting.len() + self.in_service + self.done.len()
    }

    /// Takes what the kernel has done, and goes on with the next pieces and requests.
    fn take_completions(&mut self) {
        let mut reaped = Vec::new();
        self.ring.reap(&mut reaped);
        for (slot, result) in reaped {
            if let Some(mut served) = self.slots[slot].take() {
                match served.advance(&self.ring, slot, result) {
                    Some(result) => self.finish(served, result),
                    None => self.start(slot, served),
                }
            }
        }
        self.fill_slots();
    }

    /// Puts waiting requests into free slots and submits all pieces.
    fn fill_slots(&mut self) {
        while let Some((tag, request)) = self.next_waiting() {
            let free = self.slots.iter().position(Option::is_none);
            let has_descriptors = request.file().descriptors().is_some();
            let total = request.bytes();
            let is_empty = total == 0 && !matches!(request, Request::Sync { .. });
            match free {
                Some(slot) if has_descriptors && !is_empty && !self.has_failed => {
                    self.in_service += 1;
                    let served = InService {
                        tag,
                        request,
                        done: 0,
                        total,
                        is_direct_refused: false,
                        is_direct: false,
                    };
                    self.start(slot, served);
                }
                _ => self.done.push_back(request.serve(tag)),
            }
        }
        if !self.has_failed
            && let Err(error) = self.ring.submit()
        {
            self.note_failure(&error);
        }
    }

    /// The next waiting request, if it can be served.
    fn next_waiting(&mut self) -> Option<(u64, Request)> {
        if self.in_service == self.slots.len() && !self.has_failed {
            return None;
        }
        self.waiting.pop_front()
    }

    /// Starts the next piece of a request.
    fn start(&mut self, slot: usize, mut served: InService) {
        let bytes = (served.total - served.done).min(SLOT_BYTES);
        let offset = served.request.offset() + served.done as u64;
        let file = served.request.file().clone();
        let Some(descriptors) = file.descriptors() else {
            let error = Error::internal("a file has lost its descriptor");
            return self.finish(served, Err(error));
        };
        served.is_direct = false;
        let mut descriptor = descriptors.buffered;
        let operation = match &served.request {
            Request::Scatter { .. } => {
                if let Some(direct) = served.past_the_cache(&descriptors, offset, bytes) {
                    served.is_direct = true;
                    descriptor = direct;
                }
                Operation::Read { offset, bytes }
            }
            Request::Gather { buffers, .. } => {
                let mut at = 0;
                for (buffer, range) in pieces(buffers, served.done, bytes) {
                    let piece = &buffers[buffer][range];
                    self.ring.copy_in(slot, at, piece);
                    at += piece.len();
                }
                Operation::Write { offset, bytes }
            }
            Request::Sync { .. } => Operation::Sync,
        };
        self.ring.start(slot, descriptor, operation);
        self.slots[slot] = Some(served);
    }

    fn finish(&mut self, served: InService, result: Result<()>) {
        self.in_service -= 1;
        self.done.push_back(Completion {
            tag: served.tag,
            buffers: served.request.into_buffers(),
            result,
        });
    }

    /// Gives up the ring after an error that does not pass by itself.
    fn note_failure(&mut self, error: &io::Error) {
        if is_passing(error) {
            return;
        }
        self.has_failed = true;
        for slot in 0..self.slots.len() {
            if let Some(served) = self.slots[slot].take() {
                let error = Error::io("a queue of io_uring", error);
                self.finish(served, Err(error));
            }
        }
        self.fill_slots();
    }
}

impl InService {
    /// The descriptor that reads past the page cache, if this piece may use it.
    fn past_the_cache<'a>(
        &self,
        descriptors: &Descriptors<'a>,
        offset: u64,
        bytes: usize,
    ) -> Option<BorrowedFd<'a>> {
        let align = DIRECT_ALIGN as u64;
        let is_aligned = offset.is_multiple_of(align) && (bytes as u64).is_multiple_of(align);
        if !is_aligned || self.is_direct_refused {
            return None;
        }
        let direct = descriptors.direct?;
        (!is_in_page_cache(descriptors.buffered, offset, bytes)).then_some(direct)
    }

    /// Takes note of a piece; returns the outcome of the whole request if there is nothing left.
    fn advance(
        &mut self,
        ring: &Ring,
        slot: usize,
        result: Result<usize, Errno>,
    ) -> Option<Result<()>> {
        let bytes = match result {
            Ok(bytes) => bytes,
            Err(Errno::INTR | Errno::AGAIN) => return None,
            Err(Errno::INVAL | Errno::OPNOTSUPP) if self.is_direct => {
                self.is_direct_refused = true;
                return None;
            }
            Err(error) => return Some(Err(self.error(&error.into()))),
        };
        let done = self.done;
        match &mut self.request {
            Request::Sync { .. } => return Some(Ok(())),
            Request::Scatter { buffers, .. } => {
                let mut at = 0;
                for (buffer, range) in pieces(buffers, done, bytes) {
                    let piece = &mut buffers[buffer][range];
                    ring.copy_out(slot, at, piece);
                    at += piece.len();
                }
            }
            Request::Gather { .. } => {}
        }
        self.done += bytes;
        if self.done == self.total {
            return Some(Ok(()));
        }
        (bytes == 0).then(|| Err(self.no_more()))
    }

    /// The error of a transfer that has come to its end too early.
    fn no_more(&self) -> Error {
        let (file, offset) = (self.request.file(), self.request.offset());
        if matches!(self.request, Request::Gather { .. }) {
            return self.error(&io::ErrorKind::WriteZero.into());
        }
        let place = match file.descriptors() {
            Some(descriptors) => format!("\"{}\"", descriptors.path.display()),
            None => format!("\"{}\"", file.name()),
        };
        short_read_error(place, offset, self.total, file.len().unwrap_or(0))
    }

    fn error(&self, error: &io::Error) -> Error {
        match self.request.file().descriptors() {
            Some(descriptors) => crate::path_error(descriptors.path, error),
            None => Error::io(self.request.file().name(), error),
        }
    }
}

/// The next `bytes` of `buffers` behind their first `done` bytes: buffers with ranges in them.
fn pieces(buffers: &[Vec<u8>], done: usize, bytes: usize) -> Vec<(usize, Range<usize>)> {
    let (mut skipped, mut wanted) = (done, bytes);
    let mut pieces = Vec::new();
    for (at, buffer) in buffers.iter().enumerate() {
        let from = skipped.min(buffer.len());
        skipped -= from;
        let to = from + wanted.min(buffer.len() - from);
        wanted -= to - from;
        if from < to {
            pieces.push((at, from..to));
        }
    }
    pieces
}
