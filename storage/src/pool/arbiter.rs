//! The hand of the clock: what leaves, a frame or a page.

use super::{Entry, FLOOR_PART, Pool};
use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

/// A frame, as the hand sees it.
pub(super) trait Evict: Send + Sync + Debug {
    /// Whether it was read since the last call.
    fn take_reference(&self) -> bool;
    /// Empties the handle, unless it is being filled; returns whether it was emptied.
    fn empty(&self) -> bool;
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
        let filled = self.filled.load(Ordering::Relaxed);
        let frames = filled + self.dropped.load(Ordering::Relaxed);
        (frames.max(0) as usize + pages.map_or(0, Pages::len)) * 2
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
                // No frame is left but those that other threads are emptying.
                Moved::Passed if oldest_page.is_none() => return false,
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
        let has_frames = self.has_frames_beyond_floor();
        let has_pages = self.page_bytes() > self.floor_bytes();
        let Some(page) = oldest_page else {
            // Pages beyond their floor that cannot leave do not cost the frames theirs.
            let is_frames_turn = has_frames || !has_pages;
            return is_frames_turn.then_some(Hand::Frames(u64::MAX));
        };
        let Some(frame) = self.ring.lock().front().map(|entry| entry.stamp) else {
            return Some(Hand::Pages(u64::MAX));
        };
        Some(match (has_frames, has_pages) {
            (false, true) => Hand::Pages(u64::MAX),
            (true, false) => Hand::Frames(u64::MAX),
            _ if page < frame => Hand::Pages(frame),
            _ => Hand::Frames(page),
        })
    }

    /// Threads that read what is not in memory meet at the ring's lock: it is held for moves of
    /// entries only, and a frame is emptied and freed without it.
    fn evict_frame(&self, through: u64, turns: &mut usize) -> Moved {
        while let Some((entry, frame)) = self.next_cold(through, turns) {
            if frame.empty() {
                return Moved::Evicted;
            }
            self.spare(&mut self.ring.lock(), entry);
        }
        Moved::Passed
    }

    /// Moves the hand to the next frame with a stamp up to `through` that was not read since the
    /// hand's last move, and takes its entry.
    fn next_cold(&self, through: u64, turns: &mut usize) -> Option<(Entry, Arc<dyn Evict>)> {
        let mut ring = self.ring.lock();
        while *turns > 0 {
            *turns -= 1;
            let entry = ring.pop_front_if(|entry| entry.stamp <= through)?;
            match entry.frame.upgrade() {
                None => _ = self.dropped.fetch_sub(1, Ordering::Relaxed),
                Some(frame) if !frame.take_reference() => return Some((entry, frame)),
                Some(_) => self.spare(&mut ring, entry),
            }
        }
        None
    }

    fn spare(&self, ring: &mut VecDeque<Entry>, entry: Entry) {
        let stamp = self.next_stamp();
        ring.push_back(Entry { stamp, ..entry });
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
