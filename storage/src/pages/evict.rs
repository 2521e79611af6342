//! Replacement of frames: second chance (clock), clean pages first.
//!
//! Pages that were read ahead and not used are the first victims (`clock`). A frame enters without
//! the reference bit, as in the pool of blocks, so that pages read once leave before pages read
//! repeatedly. A dirty page is written before it leaves, a clean one that was read at random is
//! offered to the SSD cache. Latched pages stay, if need be beyond the budget: a thread that holds
//! latches never waits for a frame. So do pages that cannot be written: their file's failure is no
//! failure of others that need room, until they take a quarter of the budget beyond it.

use std::sync::Arc;

use strandline_base::sync::Ordering;
use strandline_base::{Error, Result};

use super::Access;
use super::clock::Clock;
use super::file::PageFile;
use super::frame::{Coldness, Frame};
use super::header::PageImage;
use super::store::PageStore;

/// Cold dirty pages that one search collects before it writes them.
const DIRTY_BATCH: usize = 8;
/// Searches for one frame's room. Other threads may have used every page meanwhile.
const SEARCHES_MAX: usize = 4;
/// Frames that a search without writes looks at.
const GLANCES: usize = 64;

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

enum Found {
    Clean(Arc<Frame>),
    Leaving(Arc<Frame>, Arc<PageImage>),
    Dirty(Vec<Arc<Frame>>),
    Nothing,
}

impl PageStore {
    /// Evicts pages until the frames are within the budget, or all others are in use. Pages that
    /// cannot be written stay, up to a quarter beyond the budget.
    ///
    /// # Errors
    /// The failure of writing a page, which may be another file's, if no page could be evicted and
    /// the frames exceed the budget by more than that.
    pub(super) fn make_room(&self) -> Result<()> {
        let room = self.evict();
        let excess_max = (self.frames_max / EXCESS_PART).max(EXCESS_MIN);
        let excess = self
            .frames
            .load(Ordering::Relaxed)
            .saturating_sub(self.frames_max);
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
            let room = self.evict();
            if room.any_evicted || room.failed.is_empty() {
                return;
            }
            for (file, failure) in room.failed {
                file.fail(failure);
            }
        }
    }

    /// Evicts pages until the frames are within the budget. A file of which a page cannot be
    /// written is passed over.
    fn evict(&self) -> Room {
        let mut room = Room::default();
        let mut searches = 0;
        while self.is_over_budget() && searches < SEARCHES_MAX {
            match self.search(true, &room.failed) {
                Found::Clean(frame) => {
                    self.forget(&frame);
                    room.any_evicted = true;
                }
                Found::Leaving(frame, image) => {
                    self.leave(&frame, &image);
                    room.any_evicted = true;
                }
                Found::Nothing => break,
                Found::Dirty(frames) => {
                    searches += 1;
                    for frame in frames {
                        // The file of a page may have been closed by a failure meanwhile.
                        if frame.file.has_failed() || is_of(&room.failed, &frame) {
                            continue;
                        }
                        if let Err(failure) = self.store(&frame, None) {
                            room.failed.push((Arc::clone(&frame.file), failure));
                        }
                    }
                }
            }
        }
        room
    }

    /// Evicts clean pages until the frames are within the budget; whether they are. Gives up early.
    pub(super) fn make_room_without_writes(&self) -> bool {
        while self.is_over_budget() {
            match self.search(false, &[]) {
                Found::Clean(frame) => self.forget(&frame),
                Found::Leaving(frame, image) => self.leave(&frame, &image),
                Found::Dirty(_) | Found::Nothing => return false,
            }
        }
        true
    }

    fn is_over_budget(&self) -> bool {
        self.frames.load(Ordering::Relaxed) > self.frames_max
    }

    fn leave(&self, frame: &Arc<Frame>, image: &PageImage) {
        self.hand_over(frame, image);
        frame.leave();
        self.forget(frame);
    }

    /// Evicts the oldest page that was read ahead and not used.
    fn evict_unused(&self, clock: &mut Clock, is_any: bool) -> Option<Arc<Frame>> {
        while let Some(frame) = clock.pop_unused(is_any) {
            // If the SSD cache had the page, it has it still.
            match frame.evict_if_cold(false) {
                Coldness::Gone(true) => {
                    self.read_ahead.unused.fetch_add(1, Ordering::Relaxed);
                    return Some(frame);
                }
                Coldness::Gone(false) => {}
                // Somebody has just begun to use it.
                Coldness::Warm | Coldness::Dirty | Coldness::Leaving(_) => clock.push(frame),
            }
        }
        None
    }

    /// Moves the hand until a page was evicted, at most twice around. If dirty pages are of no use,
    /// over [`GLANCES`] frames at most. Dirty pages of `failed` files are of no use.
    fn search(&self, is_dirty_wanted: bool, failed: &[Failed]) -> Found {
        self.handle_ready_arrivals();
        let mut dirty: Vec<Arc<Frame>> = Vec::new();
        let mut clock = self.clock.lock();
        if let Some(frame) = self.evict_unused(&mut clock, false) {
            return Found::Clean(frame);
        }
        let frames = match is_dirty_wanted {
            true => clock.len() * 2,
            false => (clock.len() * 2).min(GLANCES),
        };
        for _ in 0..frames {
            let Some(frame) = clock.pop() else {
                break;
            };
            // The SSD cache takes no clean page that was not read at random.
            let is_cached = self.cache_of(&frame.file).is_some();
            let is_handed_over = is_cached && frame.access() == Access::Random;
            match frame.evict_if_cold(is_handed_over) {
                Coldness::Gone(true) => return Found::Clean(frame),
                Coldness::Leaving(image) => return Found::Leaving(frame, image),
                Coldness::Gone(false) => {}
                Coldness::Warm => clock.push(frame),
                Coldness::Dirty => {
                    let is_known = dirty.iter().any(|known| Arc::ptr_eq(known, &frame));
                    if !is_known && is_dirty_wanted && !is_of(failed, &frame) {
                        dirty.push(Arc::clone(&frame));
                    }
                    clock.push(frame);
                    if dirty.len() == DIRTY_BATCH {
                        break;
                    }
                }
            }
        }
        match dirty.is_empty() {
            // An unused page does not leave for another one.
            true if !is_dirty_wanted => Found::Nothing,
            true => match self.evict_unused(&mut clock, true) {
                Some(frame) => Found::Clean(frame),
                None => Found::Nothing,
            },
            false => Found::Dirty(dirty),
        }
    }
}

fn is_of(failed: &[Failed], frame: &Frame) -> bool {
    failed.iter().any(|(file, _)| file.id == frame.id.file)
}
