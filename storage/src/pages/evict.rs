//! Replacement of frames: second chance (clock), clean pages first.
//!
//! A frame enters without the reference bit, as in the pool of blocks, so that pages read once
//! leave before pages read repeatedly. A dirty page is written before it leaves, a clean one that
//! was read at random is offered to the SSD cache. Latched pages
//! stay, if need be beyond the budget: a thread that holds latches never waits for a frame.

use std::sync::Arc;

use strandline_base::Result;
use strandline_base::sync::Ordering;

use super::Access;
use super::frame::{Coldness, Frame};
use super::header::PageImage;
use super::store::PageStore;

/// Cold dirty pages that one search collects before it writes them.
const DIRTY_BATCH: usize = 8;
/// Searches for one frame's room. Other threads may have used every page meanwhile.
const SEARCHES_MAX: usize = 4;

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
        while self.frames.load(Ordering::Relaxed) > self.frames_max && searches < SEARCHES_MAX {
            match self.search() {
                Found::Clean(frame) => self.forget(&frame),
                Found::Leaving(frame, image) => {
                    self.hand_over(&frame, &image);
                    frame.leave();
                    self.forget(&frame);
                }
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

    /// Moves the hand until a page was evicted, at most twice around.
    fn search(&self) -> Found {
        let mut dirty: Vec<Arc<Frame>> = Vec::new();
        let mut ring = self.ring.lock();
        for _ in 0..ring.len() * 2 {
            let Some(frame) = ring.pop_front() else {
                break;
            };
            // The SSD cache takes no clean page that was not read at random.
            let is_handed_over = self.cache.is_some() && frame.access() == Access::Random;
            match frame.evict_if_cold(is_handed_over) {
                Coldness::Gone(true) => return Found::Clean(frame),
                Coldness::Leaving(image) => return Found::Leaving(frame, image),
                Coldness::Gone(false) => {}
                Coldness::Warm => ring.push_back(frame),
                Coldness::Dirty => {
                    let is_known = dirty.iter().any(|known| Arc::ptr_eq(known, &frame));
                    if !is_known {
                        dirty.push(Arc::clone(&frame));
                    }
                    ring.push_back(frame);
                    if dirty.len() == DIRTY_BATCH {
                        break;
                    }
                }
            }
        }
        match dirty.is_empty() {
            true => Found::Nothing,
            false => Found::Dirty(dirty),
        }
    }
}
