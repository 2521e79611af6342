//! A page in memory: its latch, its committed image, and whether the file has the image.
//!
//! State: *loading* → *present* → *gone*. Only the thread that has made a frame ends its loading.
//! A gone frame is not in use and not dirty; threads that still find it look the page up again.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use strandline_base::sync::{AtomicBool, Condvar, Mutex, MutexGuard, Ordering};

use super::PageId;
use super::file::PageFile;
use super::header::PageImage;
use crate::wal::Lsn;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Loading,
    Present,
    Gone,
}

#[derive(Debug)]
struct FrameState {
    phase: Phase,
    /// None while loading
    image: Option<Arc<PageImage>>,
    readers: usize,
    is_written_to: bool,
    writers_waiting: usize,
    /// the file does not have `image`
    is_dirty: bool,
    /// a thread writes an image to the file
    is_stored: bool,
}

impl FrameState {
    fn is_latched(&self) -> bool {
        self.readers > 0 || self.is_written_to || self.writers_waiting > 0
    }
}

/// A page in memory.
#[derive(Debug)]
pub(super) struct Frame {
    pub id: PageId,
    pub file: Arc<PageFile>,
    state: Mutex<FrameState>,
    progress: Condvar,
    referenced: AtomicBool,
}

/// What the clock's hand finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coldness {
    /// it left the pool: before, or just now if true
    Gone(bool),
    /// cold, but to be written first
    Dirty,
    /// in use or recently read
    Warm,
}

impl Frame {
    /// A frame in the state *loading*.
    pub fn loading(id: PageId, file: Arc<PageFile>) -> Self {
        Self {
            id,
            file,
            state: Mutex::new(FrameState {
                phase: Phase::Loading,
                image: None,
                readers: 0,
                is_written_to: false,
                writers_waiting: 0,
                is_dirty: false,
                is_stored: false,
            }),
            progress: Condvar::new(),
            referenced: AtomicBool::new(false),
        }
    }

    /// Marks the page as read, for the clock.
    pub fn touch(&self) {
        if !self.referenced.load(Ordering::Relaxed) {
            self.referenced.store(true, Ordering::Relaxed);
        }
    }

    /// Ends the loading.
    pub fn fill(&self, image: PageImage) {
        let mut state = self.state.lock();
        debug_assert_eq!(state.phase, Phase::Loading);
        state.image = Some(Arc::new(image));
        state.phase = Phase::Present;
        self.progress.notify_all();
    }

    /// Ends the loading with a zeroed page that the caller has latched exclusively.
    pub fn fill_latched(&self) -> Arc<PageImage> {
        let image = Arc::new(PageImage::zeroed());
        let mut state = self.state.lock();
        debug_assert_eq!(state.phase, Phase::Loading);
        state.image = Some(Arc::clone(&image));
        state.phase = Phase::Present;
        state.is_written_to = true;
        self.progress.notify_all();
        image
    }

    /// Ends the loading without a page.
    pub fn fail(&self) {
        self.state.lock().phase = Phase::Gone;
        self.progress.notify_all();
    }

    fn wait_loaded<'a>(&self, mut state: MutexGuard<'a, FrameState>) -> MutexGuard<'a, FrameState> {
        while state.phase == Phase::Loading {
            self.progress.wait(&mut state);
        }
        state
    }

    /// Latches the page for reading; None if the frame is gone.
    pub fn latch_shared(&self) -> Option<Arc<PageImage>> {
        let mut state = self.wait_loaded(self.state.lock());
        loop {
            if state.phase == Phase::Gone {
                return None;
            }
            if !state.is_written_to && state.writers_waiting == 0 {
                state.readers += 1;
                return state.image.clone();
            }
            self.progress.wait(&mut state);
        }
    }

    /// Latches the page for changes; None if the frame is gone.
    pub fn latch_exclusive(&self) -> Option<Arc<PageImage>> {
        let mut state = self.wait_loaded(self.state.lock());
        state.writers_waiting += 1;
        while state.phase != Phase::Gone && (state.readers > 0 || state.is_written_to) {
            self.progress.wait(&mut state);
        }
        state.writers_waiting -= 1;
        if state.phase == Phase::Gone {
            self.progress.notify_all();
            return None;
        }
        state.is_written_to = true;
        state.image.clone()
    }

    /// Latches the page for changes if that needs no waiting.
    pub fn try_latch_exclusive(&self) -> Option<Arc<PageImage>> {
        let mut state = self.state.lock();
        if state.phase != Phase::Present || state.is_latched() {
            return None;
        }
        state.is_written_to = true;
        state.image.clone()
    }

    /// Whether the frame has left the pool.
    pub fn is_gone(&self) -> bool {
        self.state.lock().phase == Phase::Gone
    }

    /// Ends a reader's latch.
    fn unlatch_shared(&self) {
        let mut state = self.state.lock();
        state.readers -= 1;
        if state.readers == 0 {
            self.progress.notify_all();
        }
    }

    /// Ends a writer's latch.
    pub fn unlatch_exclusive(&self) {
        let mut state = self.state.lock();
        debug_assert!(state.is_written_to, "latched by the caller");
        state.is_written_to = false;
        self.progress.notify_all();
    }

    /// Ends a writer's latch on a page that was never committed: the frame is gone. False if it is
    /// dirty, and so stays.
    pub fn discard_latched(&self) -> bool {
        let mut state = self.state.lock();
        state.is_written_to = false;
        let is_gone = !state.is_dirty && !state.is_stored && !state.is_latched();
        if is_gone {
            state.phase = Phase::Gone;
        }
        self.progress.notify_all();
        is_gone
    }

    /// Sets the committed image, under the caller's exclusive latch.
    pub fn install(&self, image: Arc<PageImage>) {
        let mut state = self.state.lock();
        debug_assert!(state.is_written_to, "latched by the caller");
        state.image = Some(image);
        state.is_dirty = true;
    }

    /// Whether the file may lack the page, or just gets it.
    pub fn is_unsettled(&self) -> bool {
        let state = self.state.lock();
        state.is_dirty || state.is_stored
    }

    /// The image to write to the file, after any write that runs; None if the file has it. The
    /// caller ends with [`Frame::end_store`].
    pub fn begin_store(&self) -> Option<Arc<PageImage>> {
        let mut state = self.state.lock();
        while state.is_stored {
            self.progress.wait(&mut state);
        }
        if !state.is_dirty || state.phase != Phase::Present {
            return None;
        }
        state.is_dirty = false;
        state.is_stored = true;
        state.image.clone()
    }

    /// The end of a write to the file. After a failure the page is dirty again.
    pub fn end_store(&self, has_failed: bool) {
        let mut state = self.state.lock();
        state.is_stored = false;
        state.is_dirty |= has_failed;
        self.progress.notify_all();
    }

    /// The LSN of the image if the page is dirty.
    pub fn dirty_lsn(&self) -> Option<Lsn> {
        let state = self.state.lock();
        let is_dirty = state.is_dirty || state.is_stored;
        let image = state.image.as_ref().filter(|_| is_dirty);
        image.map(|image| image.lsn)
    }

    /// Evicts the page if it is clean, not latched and was not read since the last call.
    pub fn evict_if_cold(&self) -> Coldness {
        let mut state = self.state.lock();
        if state.phase == Phase::Gone {
            return Coldness::Gone(false);
        }
        let is_warm = self.referenced.swap(false, Ordering::Relaxed);
        if is_warm || state.phase == Phase::Loading || state.is_latched() || state.is_stored {
            return Coldness::Warm;
        }
        if state.is_dirty && !self.file.has_failed() {
            return Coldness::Dirty;
        }
        state.phase = Phase::Gone;
        self.progress.notify_all();
        Coldness::Gone(true)
    }
}

/// A page under a shared latch; dereferences to its body.
pub struct PageRead {
    frame: Arc<Frame>,
    image: Arc<PageImage>,
}

impl PageRead {
    pub(super) fn of(frame: Arc<Frame>, image: Arc<PageImage>) -> Self {
        Self { frame, image }
    }

    /// End of the record of the page's last change.
    pub fn lsn(&self) -> Lsn {
        self.image.lsn
    }
}

impl Deref for PageRead {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.image.body
    }
}

impl Drop for PageRead {
    fn drop(&mut self) {
        self.frame.unlatch_shared();
    }
}

impl fmt::Debug for PageRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PageRead").field(&self.frame.id).finish()
    }
}
