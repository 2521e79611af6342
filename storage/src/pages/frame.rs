//! A page in memory: its latch, its committed image, and whether the file has the image.
//!
//! State: *loading* or *ahead* → *present* → (*leaving* →) *gone*. Only the thread that has made a
//! frame ends its loading. A frame that is ahead is read by a queue; whoever takes the completion
//! ends that, and threads wait for it with `PageStore::await_ahead` before they latch the page. A
//! clean page that the SSD cache may take is *leaving* until the cache has it; threads that look
//! for the page wait, so that nobody changes it meanwhile. A gone frame is not in use and not
//! dirty; threads that still find it look the page up again. `append` has the third way to latch a
//! page, beside readers and writers: slots written by several threads at once.

mod append;

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use strandline_base::sync::{AtomicBool, Condvar, Mutex, MutexGuard, Ordering};

pub(super) use append::Begun;
pub use append::SlotWrite;

use super::file::PageFile;
use super::header::PageImage;
use super::{Access, PageId};
use crate::wal::Lsn;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Loading,
    Ahead,
    Present,
    Leaving,
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
    appends: append::Appends,
}

impl FrameState {
    fn is_latched(&self) -> bool {
        let writers = self.writers_waiting + self.appends.writers;
        self.readers > 0 || self.is_written_to || writers > 0
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
    /// the page was read at random
    is_random: AtomicBool,
    /// the page was read ahead, and nobody has asked for it since
    is_unused: AtomicBool,
}

/// What the clock's hand finds.
#[derive(Clone, Debug)]
pub(super) enum Coldness {
    /// it left the pool: before, or just now if true
    Gone(bool),
    /// it leaves the pool as soon as the SSD cache has it
    Leaving(Arc<PageImage>),
    /// cold, but to be written first
    Dirty,
    /// in use or recently read
    Warm,
}

impl Frame {
    /// A frame in the state *loading*.
    pub fn loading(id: PageId, file: Arc<PageFile>) -> Self {
        Self::absent(id, file, Phase::Loading)
    }

    /// A frame in the state *ahead*.
    pub fn ahead(id: PageId, file: Arc<PageFile>) -> Self {
        Self::absent(id, file, Phase::Ahead)
    }

    fn absent(id: PageId, file: Arc<PageFile>, phase: Phase) -> Self {
        Self {
            id,
            file,
            state: Mutex::new(FrameState {
                phase,
                image: None,
                readers: 0,
                is_written_to: false,
                writers_waiting: 0,
                is_dirty: false,
                is_stored: false,
                appends: append::Appends::default(),
            }),
            progress: Condvar::new(),
            referenced: AtomicBool::new(false),
            is_random: AtomicBool::new(false),
            is_unused: AtomicBool::new(phase == Phase::Ahead),
        }
    }

    /// Whether the page is read ahead and has not come.
    pub fn is_ahead(&self) -> bool {
        self.is_unused() && self.state.lock().phase == Phase::Ahead
    }

    /// Whether the page was read ahead and nobody has asked for it since.
    pub fn is_unused(&self) -> bool {
        self.is_unused.load(Ordering::Relaxed)
    }

    /// Notes that somebody has asked for the page; whether this is the first use of a page that was
    /// read ahead. That is to the clock what reading it would have been.
    pub fn note_use(&self, access: Access) -> bool {
        let is_first = self.is_unused() && self.is_unused.swap(false, Ordering::Relaxed);
        match access {
            Access::Random if is_first => self.mark_random(),
            Access::Random => self.touch(),
            Access::Sequential => {}
        }
        is_first
    }

    /// Marks the page as one that was read at random, for the SSD cache.
    pub fn mark_random(&self) {
        if !self.is_random.load(Ordering::Relaxed) {
            self.is_random.store(true, Ordering::Relaxed);
        }
    }

    /// How the page was read.
    pub fn access(&self) -> Access {
        match self.is_random.load(Ordering::Relaxed) {
            true => Access::Random,
            false => Access::Sequential,
        }
    }

    /// Marks the page as read, for the clock.
    fn touch(&self) {
        self.mark_random();
        if !self.referenced.load(Ordering::Relaxed) {
            self.referenced.store(true, Ordering::Relaxed);
        }
    }

    /// Ends the loading.
    pub fn fill(&self, image: PageImage) {
        let mut state = self.state.lock();
        debug_assert!(matches!(state.phase, Phase::Loading | Phase::Ahead));
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

    /// Waits while the page comes or leaves.
    fn wait_settled<'a>(
        &self,
        mut state: MutexGuard<'a, FrameState>,
    ) -> MutexGuard<'a, FrameState> {
        debug_assert_ne!(state.phase, Phase::Ahead, "awaited by the caller");
        while matches!(state.phase, Phase::Loading | Phase::Leaving) {
            self.progress.wait(&mut state);
        }
        state
    }

    /// Latches the page for reading; None if the frame is gone.
    pub fn latch_shared(&self) -> Option<Arc<PageImage>> {
        let mut state = self.state.lock();
        loop {
            state = self.wait_settled(state);
            if state.phase == Phase::Gone {
                return None;
            }
            let is_reported = state.appends.owner_lsn.is_some();
            if !state.is_written_to && state.writers_waiting == 0 && !is_reported {
                state.readers += 1;
                return state.image.clone();
            }
            state.appends.awaited_by += 1;
            self.progress.wait(&mut state);
            state.appends.awaited_by -= 1;
        }
    }

    /// Latches the page for changes; None if the frame is gone.
    pub fn latch_exclusive(&self) -> Option<Arc<PageImage>> {
        let mut state = self.wait_settled(self.state.lock());
        state.writers_waiting += 1;
        let is_busy = |state: &FrameState| {
            state.readers > 0 || state.is_written_to || state.appends.writers > 0
        };
        while state.phase != Phase::Gone && is_busy(&state) {
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

    /// Whether nothing has to be written before the page may leave.
    pub fn is_evictable(&self) -> bool {
        self.file.has_failed() || !self.is_unsettled()
    }

    /// The image to write to the file, after any write that runs, and with all reported slots;
    /// None if the file has it. The caller ends with [`Frame::end_store`].
    pub fn begin_store(&self) -> Option<Arc<PageImage>> {
        let mut state = self.state.lock();
        while state.is_stored || state.appends.owner_lsn.is_some() {
            state.appends.awaited_by += 1;
            self.progress.wait(&mut state);
            state.appends.awaited_by -= 1;
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

    /// The LSN of the image, or of the newest reported slot, if the page is dirty.
    pub fn dirty_lsn(&self) -> Option<Lsn> {
        let state = self.state.lock();
        let is_dirty = state.is_dirty || state.is_stored;
        let image = state.image.as_ref().filter(|_| is_dirty);
        image.map(|image| state.appends.owner_lsn.unwrap_or(image.lsn))
    }

    /// Evicts the page if it is clean, not latched and was not read since the last call. If
    /// `is_handed_over`, the caller gives it to the SSD cache and then calls [`Frame::leave`].
    pub fn evict_if_cold(&self, is_handed_over: bool) -> Coldness {
        let mut state = self.state.lock();
        if matches!(state.phase, Phase::Gone | Phase::Leaving) {
            return Coldness::Gone(false);
        }
        let is_warm = self.referenced.swap(false, Ordering::Relaxed);
        let is_present = state.phase == Phase::Present;
        if is_warm || !is_present || state.is_latched() || state.is_stored {
            return Coldness::Warm;
        }
        if state.is_dirty && !self.file.has_failed() {
            return Coldness::Dirty;
        }
        if is_handed_over && !self.file.has_failed() {
            state.phase = Phase::Leaving;
            return Coldness::Leaving(state.image.clone().expect("a present page has an image"));
        }
        state.phase = Phase::Gone;
        self.progress.notify_all();
        Coldness::Gone(true)
    }

    /// Takes the image of a frame that is gone.
    pub fn take_image(&self) -> Option<Arc<PageImage>> {
        self.state.lock().image.take()
    }

    /// Ends the eviction of a page that was handed over.
    pub fn leave(&self) {
        self.state.lock().phase = Phase::Gone;
        self.progress.notify_all();
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
