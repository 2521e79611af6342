//! Replacement of frames: second chance (clock), clean pages first.
//!
//! A frame enters without the reference bit, as in the pool of blocks, so that pages read once
//! leave before pages read repeatedly. A dirty page is written before it leaves. Latched pages
//! stay, if need be beyond the budget: a thread that holds latches never waits for a frame.

use std::sync::Arc;

use strandline_base::Result;
use strandline_base::sync::Ordering;

use super::frame::{Coldness, Frame};
use super::store::PageStore;

/// Cold dirty pages that one search collects before it writes them.
const DIRTY_BATCH: usize = 8;
/// Searches for one frame's room. Other threads may have used every page meanwhile.
const SEARCHES_MAX: usize = 4;

enum Found {
    Clean,
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
                Found::Clean => {}
                Found::Nothing => return Ok(()),
                Found::Dirty(frames) => {
                    searches += 1;
                    for frame in frames {
                        // The file of a page may have been closed by a failure meanwhile.
                        if !frame.file.has_failed() {
                            self.store(&frame)?;
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
        let mut evicted = None;
        {
            let mut ring = self.ring.lock();
            for _ in 0..ring.len() * 2 {
                let Some(frame) = ring.pop_front() else {
                    break;
                };
                match frame.evict_if_cold() {
                    Coldness::Gone(true) => {
                        evicted = Some(frame);
                        break;
                    }
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
        }
        match evicted {
            Some(frame) => {
                self.forget(&frame);
                Found::Clean
            }
            None if dirty.is_empty() => Found::Nothing,
            None => Found::Dirty(dirty),
        }
    }
}
