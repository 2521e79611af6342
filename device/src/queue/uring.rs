//! An io_uring and the memory that it transfers: the only unsafe code of this crate, behind an
//! interface that is safe.
//!
//! The kernel reads and writes *slots* only: pieces of [`SLOT_BYTES`] of one allocation that the
//! ring owns. Callers copy from and to slots. So no buffer of a caller has to outlive a request.
//!
//! Invariants:
//! 1. A slot is `busy` from [`Ring::start`] until [`Ring::reap`] has taken its completion. Only the
//!    kernel accesses a busy slot.
//! 2. The memory is freed only when no slot is busy. If the kernel cannot be asked any more, the
//!    memory is leaked.
//! 3. Only the [`Ring`] accesses the submission and the completion queue, through `&mut self`. A
//!    [`Waiter`] makes the system call that waits, and accesses neither.
//! 4. A slot has at most one request, so that neither queue of the ring overflows.

#![expect(
    unsafe_code,
    reason = "shared memory with the kernel; `xtask tidy` names this module as the only one"
)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr::NonNull;

use io_uring::{IoUring, opcode, squeue, types};
use rustix::io::Errno;
use strandline_base::sync::Arc;

/// Bytes of a slot.
pub(super) const SLOT_BYTES: usize = 64 << 10;
/// Alignment of the slots, and of what is read past the page cache: no device has larger blocks.
pub(super) const DIRECT_ALIGN: usize = 4096;
/// Of `io_uring_enter`: waits for completions.
const ENTER_GETEVENTS: u32 = 1;
/// The number of the system call `cachestat`, equal on all architectures.
const SYS_CACHESTAT: libc::c_long = 451;

/// What the kernel does with a slot's bytes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Operation {
    /// fills the first bytes from the file
    Read { offset: u64, bytes: usize },
    /// writes the first bytes to the file
    Write { offset: u64, bytes: usize },
    /// fdatasync; the slot's bytes do not matter
    Sync,
}

/// The memory of all slots.
#[derive(Debug)]
struct Slots {
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the allocation has no other owner and is not tied to a thread. Accesses go through
// `Ring`, which takes `&mut self` for them.
unsafe impl Send for Slots {}
// SAFETY: as above; a shared `Slots` gives no access.
unsafe impl Sync for Slots {}

impl Slots {
    fn new(count: usize) -> io::Result<Self> {
        let layout = Layout::from_size_align(count * SLOT_BYTES, DIRECT_ALIGN)
            .map_err(|_| io::ErrorKind::OutOfMemory)?;
        // SAFETY: the size is not zero, since a ring has a slot at least.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) });
        let base = base.ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, layout })
    }

    /// The address of a slot.
    fn at(&self, slot: usize) -> *mut u8 {
        assert!((slot + 1) * SLOT_BYTES <= self.layout.size(), "a slot");
        // SAFETY: by the assertion the result is within the allocation.
        unsafe { self.base.as_ptr().add(slot * SLOT_BYTES) }
    }
}

/// The kernel's part.
struct Uring(IoUring);

impl fmt::Debug for Uring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Uring").field(&self.0.as_raw_fd()).finish()
    }
}

/// A ring with its slots.
#[derive(Debug)]
pub(super) struct Ring {
    uring: Arc<Uring>,
    /// None once leaked (invariant 2)
    slots: Option<Slots>,
    busy: Vec<bool>,
    /// the kernel has the slots' pages pinned
    is_registered: bool,
}

/// Waits for completions of a ring, without access to it.
#[derive(Clone, Debug)]
pub(super) struct Waiter(Arc<Uring>);

impl Ring {
    /// A ring of `slots` slots.
    ///
    /// # Errors
    /// Those of the kernel, for example ENOSYS or EPERM where io_uring is not there or not allowed.
    /// EINVAL if it cannot read, write and sync files.
    pub fn new(slots: usize) -> io::Result<Self> {
        let uring = IoUring::new(slots as u32)?;
        let mut known = io_uring::Probe::new();
        uring.submitter().register_probe(&mut known)?;
        let needed = [
            opcode::Read::CODE,
            opcode::ReadFixed::CODE,
            opcode::Write::CODE,
            opcode::WriteFixed::CODE,
            opcode::Fsync::CODE,
        ];
        if !needed.iter().all(|&code| known.is_supported(code)) {
            return Err(Errno::INVAL.into());
        }
        let memory = Slots::new(slots)?;
        let all = libc::iovec {
            iov_base: memory.base.as_ptr().cast(),
            iov_len: memory.layout.size(),
        };
        // SAFETY: the memory is freed only when the kernel transfers nothing (invariant 2). A limit
        // on locked memory may refuse the registration: then each request pins its pages.
        let is_registered = unsafe { uring.submitter().register_buffers(&[all]) }.is_ok();
        let mut ring = Self {
            uring: Arc::new(Uring(uring)),
            slots: Some(memory),
            busy: vec![false; slots],
            is_registered,
        };
        ring.check_entering()?;
        Ok(ring)
    }

    /// Has the kernel serve a request that does nothing: a filter of system calls may allow a ring
    /// and refuse its use.
    fn check_entering(&mut self) -> io::Result<()> {
        self.push(&opcode::Nop::new().build());
        loop {
            match self.uring.0.submitter().submit_and_wait(1) {
                Ok(_) => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        // SAFETY: invariant 3.
        let served = unsafe { self.uring.0.completion_shared() }.count();
        if served == 1 {
            return Ok(());
        }
        Err(Errno::INVAL.into())
    }

    fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: invariant 3. The entry's memory is a busy slot, which lives until the completion
        // (invariants 1 and 2).
        let pushed = unsafe { self.uring.0.submission_shared().push(entry) };
        pushed.expect("the queue has an entry for each slot (invariant 4)");
    }

    /// Starts an operation on `file`, which the caller keeps open until [`Ring::reap`] has returned
    /// the slot. The kernel sees it at the next [`Ring::submit`].
    pub fn start(&mut self, slot: usize, file: BorrowedFd<'_>, operation: Operation) {
        assert!(!self.busy[slot], "the kernel has slot {slot}");
        let memory = self.slots.as_ref().expect("not leaked while it is used");
        let at = memory.at(slot);
        let file = types::Fd(file.as_raw_fd());
        let entry = match operation {
            Operation::Read { offset, bytes } => {
                let bytes = piece(bytes);
                match self.is_registered {
                    true => opcode::ReadFixed::new(file, at, bytes, 0)
                        .offset(offset)
                        .build(),
                    false => opcode::Read::new(file, at, bytes).offset(offset).build(),
                }
            }
            Operation::Write { offset, bytes } => {
                let (at, bytes) = (at.cast_const(), piece(bytes));
                match self.is_registered {
                    true => opcode::WriteFixed::new(file, at, bytes, 0)
                        .offset(offset)
                        .build(),
                    false => opcode::Write::new(file, at, bytes).offset(offset).build(),
                }
            }
            Operation::Sync => opcode::Fsync::new(file)
                .flags(types::FsyncFlags::DATASYNC)
                .build(),
        };
        self.busy[slot] = true;
        self.push(&entry.user_data(slot as u64));
    }

    /// Gives the kernel what was started. After an error it has a part of it or nothing; the rest
    /// stays for the next call.
    pub fn submit(&mut self) -> io::Result<()> {
        match self.unsubmitted() {
            0 => Ok(()),
            _ => self.uring.0.submit().map(drop),
        }
    }

    /// Operations started that the kernel does not have.
    pub fn unsubmitted(&mut self) -> usize {
        // SAFETY: invariant 3.
        unsafe { self.uring.0.submission_shared() }.len()
    }

    /// Takes the completions that are there: slots, with bytes transferred or the error.
    pub fn reap(&mut self, done: &mut Vec<(usize, Result<usize, Errno>)>) {
        // SAFETY: invariant 3.
        for entry in unsafe { self.uring.0.completion_shared() } {
            let slot = entry.user_data() as usize;
            self.busy[slot] = false;
            let result = usize::try_from(entry.result());
            let error = |_| Errno::from_raw_os_error(-entry.result());
            done.push((slot, result.map_err(error)));
        }
    }

    /// Copies bytes of an idle slot, from `at` on.
    pub fn copy_out(&self, slot: usize, at: usize, to: &mut [u8]) {
        if let Some(from) = self.idle(slot, at, to.len()) {
            // SAFETY: the bytes were initialised when they were allocated, and nobody writes them
            // meanwhile: the slot is not busy, and other writers need `&mut self`. `to` is
            // elsewhere.
            unsafe { from.copy_to_nonoverlapping(to.as_mut_ptr(), to.len()) }
        }
    }

    /// Copies bytes into an idle slot, from `at` on.
    pub fn copy_in(&mut self, slot: usize, at: usize, from: &[u8]) {
        if let Some(to) = self.idle(slot, at, from.len()) {
            // SAFETY: as in `copy_out`; `&mut self` makes this access the only one.
            unsafe { to.copy_from_nonoverlapping(from.as_ptr(), from.len()) }
        }
    }

    /// The address of bytes within an idle slot.
    fn idle(&self, slot: usize, at: usize, bytes: usize) -> Option<*mut u8> {
        assert!(!self.busy[slot], "the kernel has slot {slot}");
        assert!(at + bytes <= SLOT_BYTES, "within the slot");
        // SAFETY: by the assertion the result is within the slot.
        let within = |slots: &Slots| unsafe { slots.at(slot).add(at) };
        self.slots.as_ref().map(within)
    }

    /// The part of the ring that waits.
    pub fn waiter(&self) -> Waiter {
        Waiter(Arc::clone(&self.uring))
    }
}

impl Waiter {
    /// Returns when a completion is there. The caller knows that the kernel has a request whose
    /// completion nobody else takes.
    pub fn wait(&self) -> io::Result<()> {
        let submitter = self.0.0.submitter();
        // SAFETY: no argument points to memory.
        let waited = unsafe { submitter.enter::<libc::sigset_t>(0, 1, ENTER_GETEVENTS, None) };
        waited.map(drop)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let mut done = Vec::new();
        while self.busy.contains(&true) {
            let asked = self.submit().and_then(|()| self.waiter().wait());
            self.reap(&mut done);
            match asked {
                Err(e) if !is_passing(&e) => {
                    // The kernel may write into the memory for ever.
                    self.slots = None;
                    return;
                }
                _ => {}
            }
        }
        if let Some(Slots { base, layout }) = self.slots.take() {
            // SAFETY: allocated with this layout, and no slot is busy (invariant 2).
            unsafe { dealloc(base.as_ptr(), layout) }
        }
    }
}

/// Whether a call of the ring succeeds later: a signal came, or the kernel is short of memory.
pub(super) fn is_passing(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::INTR | Errno::AGAIN | Errno::BUSY)
    )
}

/// The length of a transfer, which is within the slot.
fn piece(bytes: usize) -> u32 {
    assert!(bytes <= SLOT_BYTES, "a transfer is within its slot");
    bytes as u32
}

#[repr(C)]
struct CacheRange {
    offset: u64,
    bytes: u64,
}

/// Pages of a range of a file.
#[repr(C)]
#[derive(Default)]
struct CacheStatus {
    cached: u64,
    dirty: u64,
    in_writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// Whether the page cache has a page of the range; false where the kernel cannot say (before 6.5).
pub(super) fn is_in_page_cache(file: BorrowedFd<'_>, offset: u64, bytes: usize) -> bool {
    let range = CacheRange {
        offset,
        bytes: bytes as u64,
    };
    let mut status = CacheStatus::default();
    let file: RawFd = file.as_raw_fd();
    // SAFETY: both pointers are to values of the layouts that the system call has, which live until
    // it returns.
    let failed = unsafe { libc::syscall(SYS_CACHESTAT, file, &range, &mut status, 0_u32) } != 0;
    !failed && status.cached > 0
}
