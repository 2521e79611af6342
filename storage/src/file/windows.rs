//! Windows: bytes of files that were requested before the scan that needs them asks for them.
//!
//! Only files whose reads can be started without waiting have windows: objects of an object store.
//! A scan starts windows and owns them; a read of any scan that lies within a window takes its
//! bytes from there, and waits for them if they are on their way.
//!
//! Invariants:
//! 1. A window has bytes of an immutable file. While the process runs, no other file gets the
//!    file's number. So a window's bytes are those of the device, and readers compare checksums as
//!    with bytes of the device.
//! 2. A window that has failed has no bytes: the reader reads by itself, and has its own error.
//!    No error of a window is an error of a read.
//! 3. `bytes` is the sum of the lengths of all windows. The pool counts it as taken from before the
//!    request starts until the last owner lets go.
//! 4. All windows together have at most a [`SHARE_PART`]th of the pool's budget, and at most
//!    [`SHARE_BYTES_MAX`]. One scan has at most half of what others leave of this, so that a scan
//!    whose reader has stopped leaves room to others.
//! 5. A window that is dropped before its bytes have arrived ends its request.
//!
//! Lock order: `list` is not held during a request, nor while a reader waits for a window.

use std::fmt;
use std::ops::Range;
use std::sync::Weak;
use std::sync::atomic::{AtomicUsize, Ordering};

use strandline_base::sync::{Arc, Mutex, OnceLock};
use strandline_device::{ReadBytes, StartedRead};

use super::Extent;
use crate::pool::Pool;

/// The inverse share of the pool's budget that all windows may have.
const SHARE_PART: usize = 4;
/// Bytes of all windows.
const SHARE_BYTES_MAX: usize = 256 << 20;
/// Extents of one file that are so close together share a window: on a store that answers after
/// 20 ms and sends 100 MB/s, the bytes between take less time than another request.
const GAP_BYTES: u64 = 256 << 10;
/// The longest window of several extents.
const WINDOW_BYTES_MAX: u64 = 4 << 20;

/// Bytes of one file that were requested ahead of their reader.
pub struct Window {
    len: usize,
    /// None once a reader waits for it
    started: Mutex<Option<Box<dyn StartedRead>>>,
    /// None inside: the request has failed
    bytes: OnceLock<Option<ReadBytes>>,
    _held: HeldBytes,
}

impl Window {
    /// Bytes that the window takes from the pool.
    pub fn memory_bytes(&self) -> usize {
        self.len
    }

    /// Whether a reader has waited for the window in vain.
    pub fn has_failed(&self) -> bool {
        matches!(self.bytes.get(), Some(None))
    }

    /// Waits for the bytes. False: the request has failed.
    pub fn wait(&self) -> bool {
        self.bytes().is_some()
    }

    fn bytes(&self) -> Option<&ReadBytes> {
        let wait = || self.started.lock().take()?.wait().ok();
        self.bytes.get_or_init(wait).as_ref()
    }

    /// Fills `memory` from byte `at` of the window, for which it waits. False: the request has
    /// failed.
    fn read(&self, at: usize, memory: &mut [u8]) -> bool {
        let bytes = self.bytes();
        let bytes = bytes.and_then(|bytes| (**bytes).as_ref().get(at..at + memory.len()));
        bytes.is_some_and(|bytes| {
            memory.copy_from_slice(bytes);
            true
        })
    }
}

impl fmt::Debug for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut window = f.debug_struct("Window");
        window.field("len", &self.len).finish_non_exhaustive()
    }
}

/// Bytes that a window takes from the pool, returned on drop.
struct HeldBytes {
    len: usize,
    all: Arc<AtomicUsize>,
    pool: Arc<Pool>,
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.pool
            .taken_bytes()
            .fetch_sub(self.len, Ordering::Relaxed);
        self.all.fetch_sub(self.len, Ordering::Relaxed);
    }
}

/// The windows of one database's files.
#[derive(Debug, Default)]
pub(super) struct Windows {
    list: Mutex<Vec<Listed>>,
    bytes: Arc<AtomicUsize>,
}

/// A window by the bytes of the file that it has.
#[derive(Debug)]
struct Listed {
    file: u64,
    range: Range<u64>,
    window: Weak<Window>,
}

impl Listed {
    fn has(&self, file: u64, range: &Range<u64>) -> bool {
        self.file == file && self.range.start <= range.start && range.end <= self.range.end
    }
}

impl Windows {
    /// Fills `memory` from `offset` of the file of number `file`, if a window has these bytes.
    /// Waits for a window that is on its way.
    pub fn read(&self, file: u64, offset: u64, memory: &mut [u8]) -> bool {
        if self.bytes.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let range = offset..offset + memory.len() as u64;
        let found = {
            let list = self.list.lock();
            let mut found = list.iter().filter(|listed| listed.has(file, &range));
            found.find_map(|listed| Some((listed.window.upgrade()?, listed.range.start)))
        };
        found.is_some_and(|(window, start)| window.read((offset - start) as usize, memory))
    }

    /// Whether a window has these bytes, or waits for them.
    pub fn has(&self, file: u64, extent: Extent) -> bool {
        let range = range_of(extent);
        let is_live = |listed: &Listed| listed.window.strong_count() > 0;
        let list = self.list.lock();
        list.iter()
            .any(|listed| listed.has(file, &range) && is_live(listed))
    }

    /// Makes the window of `extent` of the file of number `file`, for a scan whose windows have
    /// `own` bytes. `start` starts the read. None if there is no room, or no read was started.
    pub fn start(
        &self,
        (file, extent): (u64, Extent),
        own: usize,
        pool: &Arc<Pool>,
        start: impl FnOnce() -> Option<Box<dyn StartedRead>>,
    ) -> Option<Arc<Window>> {
        let held = self.hold(usize::try_from(extent.len).ok()?, own, pool)?;
        let started = start()?;
        let window = Arc::new(Window {
            len: held.len,
            started: Mutex::new(Some(started)),
            bytes: OnceLock::new(),
            _held: held,
        });
        let mut list = self.list.lock();
        list.retain(|listed| listed.window.strong_count() > 0);
        list.push(Listed {
            file,
            range: range_of(extent),
            window: Arc::downgrade(&window),
        });
        Some(window)
    }

    /// Takes the bytes of a window from the pool, if there is room for it.
    fn hold(&self, len: usize, own: usize, pool: &Arc<Pool>) -> Option<HeldBytes> {
        // Windows reduce the pool's budget, of which they have a share.
        let has_room = |all: usize| {
            let share = (pool.budget_bytes() + all) / SHARE_PART;
            let others = all.saturating_sub(own);
            let room = share.min(SHARE_BYTES_MAX).saturating_sub(others) / 2;
            len <= room.saturating_sub(own)
        };
        let take = |all: usize| has_room(all).then(|| all + len);
        let (order, all) = (Ordering::Relaxed, &self.bytes);
        all.fetch_update(order, order, take).ok()?;
        pool.taken_bytes().fetch_add(len, order);
        let (all, pool) = (all.clone(), pool.clone());
        Some(HeldBytes { len, all, pool })
    }
}

fn range_of(extent: Extent) -> Range<u64> {
    extent.offset..extent.offset.saturating_add(extent.len)
}

/// Extents in the order of their offsets, those that are close together joined.
pub(super) fn joined(mut extents: Vec<Extent>) -> Vec<Extent> {
    extents.sort_unstable_by_key(|extent| extent.offset);
    let mut joined: Vec<Extent> = Vec::with_capacity(extents.len());
    for extent in extents {
        let end = range_of(extent).end;
        if let Some(last) = joined.last_mut() {
            let last_end = range_of(*last).end;
            let is_within = end <= last_end;
            let is_close = extent.offset <= last_end.saturating_add(GAP_BYTES);
            if is_within || (is_close && end - last.offset <= WINDOW_BYTES_MAX) {
                last.len = end.max(last_end) - last.offset;
                continue;
            }
        }
        joined.push(extent);
    }
    joined
}

#[cfg(test)]
mod tests;
