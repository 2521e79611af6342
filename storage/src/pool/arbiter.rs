//! The hand of the clock: what leaves, a frame or a page.

use super::{Entry, FLOOR_PART, Pool};
use std::fmt::Debug;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

/// A frame, as the hand sees it.
pub(super) trait Evict: Send + Sync + Debug {
    /// Empties the handle unless it was read since the last call; returns whether it was emptied.
    fn evict_if_cold(&self) -> bool;
}

/// The pages of a page store, as the hand sees them.
pub trait Pages: Send + Sync + Debug {
    /// Pages that the hand may meet.
    fn len(&self) -> usize;
    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The stamp of the next page under the hand.
    fn oldest(&self) -> Option<u64>;
    /// Moves the hand until a page has left, at most over the pages with stamps up to `through`,
    /// and at most `turns` pages, which it counts down. Spared pages get new stamps.
    fn evict(&self, through: u64, turns: &mut usize) -> Moved;
}

/// What has come of a move of the hand over one ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// one entry has left
    Evicted,
    /// the hand has passed all the entries it was allowed to
    Passed,
    /// the hand stops: dirty pages that are colder than all else wait for their write
    Stopped,
}

/// The ring that the hand goes to, and the last stamp that it may pass there.
enum Hand {
    Frames(u64),
    Pages(u64),
}

impl Pool {
    /// The stamp of an entry that enters or is spared. The caller holds the lock of its ring.
    pub fn next_stamp(&self) -> u64 {
        self.stamps.fetch_add(1, Ordering::Relaxed)
    }

    /// Names the store whose pages leave for frames. It replaces the one before.
    pub fn set_pages(&self, pages: Weak<dyn Pages>) {
        *self.pages.lock() = Some(pages);
    }

    /// Counts pages that enter memory.
    pub fn add_page_bytes(&self, bytes: usize) {
        self.page_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts pages that have left memory.
    pub fn remove_page_bytes(&self, bytes: usize) {
        self.page_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Evicts frames and clean pages until they are within the budget, as far as that goes.
    pub fn shrink(&self) {
        if !self.is_over_budget() {
            return;
        }
        let pages = self.pages.lock().as_ref().and_then(Weak::upgrade);
        let mut turns = self.two_rounds(pages.as_deref());
        while self.is_over_budget() && self.evict(pages.as_deref(), &mut turns) {}
    }

    /// The moves of the hand in which everything that is cold, and not read meanwhile, leaves: the
    /// first round clears reference bits.
    pub fn two_rounds(&self, pages: Option<&dyn Pages>) -> usize {
        (self.ring.lock().len() + pages.map_or(0, Pages::len)) * 2
    }

    /// Moves the hand until a frame or a page has left, over `turns` entries at most, which it
    /// counts down. Returns whether one has left.
    pub fn evict(&self, pages: Option<&dyn Pages>, turns: &mut usize) -> bool {
        while *turns > 0 {
            let oldest_page = pages.and_then(Pages::oldest);
            let moved = match (self.hand(oldest_page), pages) {
                (Some(Hand::Pages(through)), Some(pages)) => pages.evict(through, turns),
                (Some(Hand::Frames(through)), _) => self.evict_frame(through, turns),
                _ => return false,
            };
            match moved {
                Moved::Evicted => return true,
                Moved::Passed => {}
                Moved::Stopped => return false,
            }
        }
        false
    }

    /// Bytes that each kind keeps.
    fn floor_bytes(&self) -> usize {
        self.budget_bytes() / FLOOR_PART
    }

    /// Whether frames have more than they keep.
    pub fn has_frames_beyond_floor(&self) -> bool {
        self.frame_bytes() > self.floor_bytes()
    }

    /// The ring with the lower front stamp, unless what is in it is a floor's.
    fn hand(&self, oldest_page: Option<u64>) -> Option<Hand> {
        let oldest_frame = self.ring.lock().front().map(|entry| entry.stamp);
        let has_frames = self.has_frames_beyond_floor();
        let has_pages = self.page_bytes() > self.floor_bytes();
        match (oldest_frame, oldest_page) {
            (Some(_), Some(_)) if has_pages && !has_frames => Some(Hand::Pages(u64::MAX)),
            (Some(_), Some(_)) if has_frames && !has_pages => Some(Hand::Frames(u64::MAX)),
            (Some(frame), Some(page)) if page < frame => Some(Hand::Pages(frame)),
            (Some(_), Some(page)) => Some(Hand::Frames(page)),
            (None, Some(_)) => Some(Hand::Pages(u64::MAX)),
            // Pages beyond their floor that cannot leave do not cost the frames theirs.
            (Some(_), None) if has_pages && !has_frames => None,
            (Some(_), None) => Some(Hand::Frames(u64::MAX)),
            (None, None) => None,
        }
    }

    fn evict_frame(&self, through: u64, turns: &mut usize) -> Moved {
        let mut ring = self.ring.lock();
        while *turns > 0
            && ring.front().is_some_and(|entry| entry.stamp <= through)
            && let Some(entry) = ring.pop_front()
        {
            *turns -= 1;
            let Some(frame) = entry.frame.upgrade() else {
                self.dropped.fetch_sub(1, Ordering::Relaxed);
                continue;
            };
            if frame.evict_if_cold() {
                return Moved::Evicted;
            }
            let stamp = self.next_stamp();
            ring.push_back(Entry { stamp, ..entry });
        }
        Moved::Passed
    }

    /// Adds a frame behind the hand.
    pub(super) fn enter(&self, frame: &Arc<dyn Evict>) {
        let mut ring = self.ring.lock();
        ring.push_back(Entry {
            stamp: self.next_stamp(),
            frame: Arc::downgrade(frame),
        });
    }
}
