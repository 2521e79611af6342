//! Replacement of frames: second chance (clock), clean pages first.
//!
//! Pages that were read ahead and not used are the first victims (`clock`). A frame enters without
//! the reference bit, as in the pool of blocks, so that pages read once leave before pages read
//! repeatedly. A dirty page is written before it leaves, a clean one that was read at random is
//! offered to the SSD cache. Latched pages stay, if need be beyond the budget: a thread that holds
//! latches never waits for a frame.

use std::sync::Arc;

use strandline_base::Result;
use strandline_base::sync::Ordering;

use super::Access;
use super::clock::Clock;
use super::frame::{Coldness, Frame};
use super::header::PageImage;
use super::store::PageStore;

/// Cold dirty pages that one search collects before it writes them.
const DIRTY_BATCH: usize = 8;
/// Searches for one frame's room. Other threads may have used every page meanwhile.
const SEARCHES_MAX: usize = 4;
/// Frames that a search without writes looks at.
const GLANCES: usize = 64;

enum Found {
    Clean(Arc<Frame>),
    Leaving(Arc<Frame>, Arc<PageImage>),
    Dirty(Vec<Arc<Frame>>),
    Nothing,
}

impl PageStore {
    /// Evicts pages until the frames are within the budget, or all others are in use.
    ///
    /// # Errors
    /// Those of writing a dirty page.
    pub(super) fn make_room(&self) -> Result<()> {
        let mut searches = 0;
        while self.is_over_budget() && searches < SEARCHES_MAX {
            match self.search(true) {
                Found::Clean(frame) => self.forget(&frame),
                Found::Leaving(frame, image) => self.leave(&frame, &image),
                Found::Nothing => return Ok(()),
                Found::Dirty(frames) => {
                    searches += 1;
                    for frame in frames {
                        // The file of a page may have been closed by a failure meanwhile.
                        if !frame.file.has_failed() {
                            self.store(&frame, None)?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Evicts clean pages until the frames are within the budget; whether they are. Gives up early.
    pub(super) fn make_room_without_writes(&self) -> bool {
        while self.is_over_budget() {
            match self.search(false) {
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
    /// over [`GLANCES`] frames at most.
    fn search(&self, is_dirty_wanted: bool) -> Found {
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
            let is_handed_over = self.cache.is_some() && frame.access() == Access::Random;
            match frame.evict_if_cold(is_handed_over) {
                Coldness::Gone(true) => return Found::Clean(frame),
                Coldness::Leaving(image) => return Found::Leaving(frame, image),
                Coldness::Gone(false) => {}
                Coldness::Warm => clock.push(frame),
                Coldness::Dirty => {
                    let is_known = dirty.iter().any(|known| Arc::ptr_eq(known, &frame));
                    if !is_known && is_dirty_wanted {
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
