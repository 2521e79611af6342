//! Replacement of pages: second chance (clock), together with the frames of the pool.
//!
//! The pool's hand chooses between a frame and a page (`crate::pool`); here is what it does to
//! pages. Pages that were read ahead and not used are the first victims (`clock`). A clean page
//! that was read at random is offered to the SSD cache as it leaves. A cold dirty page is put
//! aside, and written before it leaves:
//! * A thread that needs room for a page writes the coldest waiting pages, a batch at a time, and
//!   goes on. It may hold latches: writing waits for the log and for other writes, never for a
//!   latch or a frame.
//! * A thread that needs room for a frame, or reads ahead, writes nothing: it may hold locks that
//!   the log needs. It takes what is next in the order.
//! * [`PageStore::write_back`] writes what waits, so that pages leave though nobody asks for pages.
//!
//! Latched pages stay, if need be beyond the budget: a thread that holds latches never waits for a
//! frame. So do pages that cannot be written: their file's failure is no failure of others that
//! need room, until pages exceed the budget by a quarter.

use std::sync::Arc;

use strandline_base::sync::Ordering;
use strandline_base::{Error, Result};

use super::Access;
use super::file::PageFile;
use super::frame::{Coldness, Frame};
use super::header::{PAGE_BYTES, PageImage};
use super::store::PageStore;
use crate::pool::{Moved, Pages};

/// Cold dirty pages that are written together. The hand stops when so many wait.
const DIRTY_BATCH: usize = 8;
/// Batches that are written for one frame's room. Other threads may have used every page meanwhile.
const BATCHES_MAX: usize = 4;
/// Entries that the hand passes for a page that is read ahead.
const GLANCES: usize = 64;
/// The fewest pages that memory may hold.
pub(super) const FRAMES_MIN: usize = 4;

/// Frames beyond the budget that pages may take that cannot be written: one in so many of it.
const EXCESS_PART: usize = 4;
/// The least of these.
const EXCESS_MIN: usize = 4;

/// A file of which a page could not be written.
type Failed = (Arc<PageFile>, Error);

/// The outcome of an eviction.
#[derive(Default)]
struct Room {
    any_evicted: bool,
    failed: Vec<Failed>,
}

/// A move of the hand over the pages.
#[derive(Debug)]
struct Search<'a> {
    store: &'a PageStore,
    /// the caller writes pages that wait for that
    is_writing: bool,
    /// dirty pages of these files are of no use
    failed: &'a [Failed],
}

impl PageStore {
    /// Evicts frames and pages until they are within the budget, or all others are in use. Pages
    /// that cannot be written stay, up to a quarter beyond the budget.
    ///
    /// # Errors
    /// The failure of writing a page, which may be another file's, if nothing could be evicted and
    /// the pages exceed the budget by more than that.
    pub(super) fn make_room(&self) -> Result<()> {
        let room = self.evict_for_page();
        let frames_max = self.frames_max();
        let excess_max = (frames_max / EXCESS_PART).max(EXCESS_MIN);
        let excess = self.frames().saturating_sub(frames_max);
        match room.failed.into_iter().next() {
            Some((_, failure)) if !room.any_evicted && excess > excess_max => Err(failure),
            Some(_) => {
                self.excused.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Fills a new frame with zeros instead of its page, and latches it. Returns the zeros.
    ///
    /// # Errors
    /// Those of making room; then the frame is gone.
    pub(super) fn latch_zeroed(&self, frame: &Arc<Frame>) -> Result<Arc<PageImage>> {
        self.make_room().inspect_err(|_| self.give_up(frame))?;
        let zeros = frame.fill_latched();
        self.clock.lock().push(Arc::clone(frame));
        Ok(zeros)
    }

    /// Lets those go who wait for the page of a new frame, and takes the frame out of the table.
    pub(super) fn give_up(&self, frame: &Arc<Frame>) {
        frame.fail();
        self.forget(frame);
    }

    /// As [`PageStore::make_room`], for redo: a file whose pages cannot be written is closed
    /// instead, so that the failure stays with it.
    pub(super) fn make_room_for_redo(&self) {
        while self.is_over_budget() {
            let room = self.evict_for_page();
            if room.any_evicted || room.failed.is_empty() {
                return;
            }
            for (file, failure) in room.failed {
                file.fail(failure);
            }
        }
    }

    /// Evicts frames and pages until they are within the budget. A file of which a page cannot be
    /// written is passed over.
    fn evict_for_page(&self) -> Room {
        self.handle_ready_arrivals();
        let mut room = Room::default();
        let mut batches = 0;
        while self.is_over_budget() {
            let search = Search {
                store: self,
                is_writing: true,
                failed: &room.failed,
            };
            if self.evict_clean(&search, usize::MAX) {
                room.any_evicted = true;
                continue;
            }
            let batch = self.next_batch(&room.failed);
            if !batch.is_empty() && batches < BATCHES_MAX {
                batches += 1;
                self.write_batch(&batch, &mut room.failed);
            } else if batch.is_empty() && self.evict_unused(0) {
                room.any_evicted = true;
            } else {
                break;
            }
        }
        room
    }

    /// Evicts frames and clean pages until they are within the budget; whether they are. Gives up
    /// early.
    pub(super) fn make_room_without_writes(&self) -> bool {
        let search = self.without_writes();
        while self.is_over_budget() {
            if !self.evict_clean(&search, GLANCES) {
                return false;
            }
        }
        true
    }

    /// Writes the pages that wait for it, so that they can leave for frames. Returns how many are
    /// written. Pages that cannot be written go on waiting: a checkpoint tells of the failure.
    pub fn write_back(&self) -> usize {
        let mut failed = Vec::new();
        let mut count = self.clock.lock().waiting();
        let mut written = 0;
        while count > 0 {
            let batch = self.next_batch(&failed);
            if batch.is_empty() {
                break;
            }
            count = count.saturating_sub(batch.len());
            written += self.write_batch(&batch, &mut failed);
        }
        if written > 0 {
            self.pool.shrink();
        }
        written
    }

    fn without_writes(&self) -> Search<'_> {
        Search {
            store: self,
            is_writing: false,
            failed: &[],
        }
    }

    /// Evicts a frame or a clean page; a page if there are more than [`PageStore::frames_max`].
    /// Returns whether one has left.
    fn evict_clean(&self, search: &Search<'_>, turns_max: usize) -> bool {
        let mut turns = self.pool.two_rounds(Some(search)).min(turns_max);
        match self.is_over_bound() {
            true => search.evict(u64::MAX, &mut turns) == Moved::Evicted,
            false => self.pool.evict(Some(search), &mut turns),
        }
    }

    /// The coldest pages that wait for their write, but for those of `failed` files.
    fn next_batch(&self, failed: &[Failed]) -> Vec<Arc<Frame>> {
        let mut clock = self.clock.lock();
        clock.settle(|frame| is_of(failed, frame));
        clock.waiting_first(DIRTY_BATCH)
    }

    /// Writes pages that wait, and gives them back to the hand. Returns how many are written.
    fn write_batch(&self, batch: &[Arc<Frame>], failed: &mut Vec<Failed>) -> usize {
        let mut written = 0;
        for frame in batch {
            // The file of a page may have been closed by a failure meanwhile.
            if frame.file.has_failed() || is_of(failed, frame) {
                continue;
            }
            match self.store(frame, None) {
                Ok(()) => written += 1,
                Err(failure) => failed.push((Arc::clone(&frame.file), failure)),
            }
        }
        self.clock.lock().settle(|frame| is_of(failed, frame));
        written
    }

    fn is_over_budget(&self) -> bool {
        let is_over = self.is_over_bound() || self.pool.is_over_budget();
        is_over && (self.frames() > FRAMES_MIN || self.pool.has_frames_beyond_floor())
    }

    /// Whether there are more pages than their own bound allows.
    fn is_over_bound(&self) -> bool {
        let frames = self.frames();
        frames > FRAMES_MIN && frames * PAGE_BYTES > self.bytes_max
    }

    /// The pages that memory may hold, if there is no frame.
    pub(super) fn frames_max(&self) -> usize {
        (self.pool.budget_bytes().min(self.bytes_max) / PAGE_BYTES).max(FRAMES_MIN)
    }

    fn leave(&self, frame: &Arc<Frame>, image: Arc<PageImage>) {
        self.hand_over(frame, &image);
        drop(image);
        frame.leave();
        self.remove_gone(frame);
    }

    /// Takes an evicted frame out of the table, and keeps its buffer for the next page.
    fn remove_gone(&self, frame: &Arc<Frame>) {
        self.forget(frame);
        if let Some(image) = frame.take_image().and_then(Arc::into_inner) {
            self.buffers.keep(image.body.into_buffer());
        }
    }

    /// Evicts the oldest page that was read ahead and not used, if more than `unused_max` are.
    fn evict_unused(&self, unused_max: usize) -> bool {
        let mut clock = self.clock.lock();
        while let Some(frame) = clock.pop_unused(unused_max) {
            // If the SSD cache had the page, it has it still.
            match frame.evict_if_cold(false) {
                Coldness::Gone(true) => {
                    drop(clock);
                    self.read_ahead.unused.fetch_add(1, Ordering::Relaxed);
                    self.remove_gone(&frame);
                    return true;
                }
                Coldness::Gone(false) => {}
                // Somebody has just begun to use it.
                Coldness::Warm | Coldness::Dirty | Coldness::Leaving(_) => clock.push(frame),
            }
        }
        false
    }
}

impl Pages for Search<'_> {
    fn len(&self) -> usize {
        self.store.clock.lock().len()
    }

    fn oldest(&self) -> Option<u64> {
        let unused_max = self.store.unused_max();
        let mut clock = self.store.clock.lock();
        match self.is_writing && clock.waiting() >= DIRTY_BATCH {
            true => clock.oldest_waiting(),
            false => clock.oldest(unused_max),
        }
    }

    fn evict(&self, through: u64, turns: &mut usize) -> Moved {
        let store = self.store;
        if store.evict_unused(store.unused_max()) {
            return Moved::Evicted;
        }
        let mut clock = store.clock.lock();
        while *turns > 0 {
            if self.is_writing && clock.waiting() >= DIRTY_BATCH {
                return Moved::Stopped;
            }
            let Some(entry) = clock.pop(through) else {
                break;
            };
            *turns -= 1;
            let frame = &entry.frame;
            // The SSD cache takes no clean page that was not read at random.
            let is_cached = store.cache_of(&frame.file).is_some();
            let is_handed_over = is_cached && frame.access() == Access::Random;
            match frame.evict_if_cold(is_handed_over) {
                Coldness::Gone(true) => {
                    drop(clock);
                    store.remove_gone(frame);
                    return Moved::Evicted;
                }
                Coldness::Leaving(image) => {
                    drop(clock);
                    store.leave(frame, image);
                    return Moved::Evicted;
                }
                Coldness::Gone(false) => {}
                Coldness::Dirty if !is_of(self.failed, frame) => clock.put_aside(entry),
                Coldness::Dirty | Coldness::Warm => clock.push(entry.frame),
            }
        }
        Moved::Passed
    }
}

/// For the loads of frames.
impl Pages for PageStore {
    fn len(&self) -> usize {
        self.without_writes().len()
    }

    fn oldest(&self) -> Option<u64> {
        self.without_writes().oldest()
    }

    fn evict(&self, through: u64, turns: &mut usize) -> Moved {
        self.without_writes().evict(through, turns)
    }
}

fn is_of(failed: &[Failed], frame: &Frame) -> bool {
    failed.iter().any(|(file, _)| file.id == frame.id.file)
}
