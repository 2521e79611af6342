//! The order in which pages are looked at when something has to leave: the clock's ring, the pages
//! that were read ahead and that nobody has used, and the cold dirty pages that wait for their
//! write.
//!
//! Invariants:
//! 1. A frame of the table is in one of the three lists, once it is present. Frames that have left
//!    the table may still be there.
//! 2. Unused frames are the first victims as soon as there are more than `unused_max` of them, the
//!    oldest first: fewer may be about to be used.
//! 3. The hand puts aside a cold page that is dirty. Written, it goes to the front of the ring, as
//!    it is colder than all that the hand has not passed. If it was used meanwhile, the hand spares
//!    it there.
//! 4. The ring's stamps ascend (`crate::pool`).

use std::collections::VecDeque;
use std::sync::Arc;

use super::PageFileId;
use super::frame::Frame;
use crate::pool::Pool;

#[derive(Debug)]
pub(super) struct Entry {
    pub stamp: u64,
    pub frame: Arc<Frame>,
}

/// Frames in the order of their eviction.
#[derive(Debug)]
pub(super) struct Clock {
    pool: Arc<Pool>,
    /// the hand is at the front
    ring: VecDeque<Entry>,
    /// read ahead, the oldest at the front; those that were used since move to the ring
    unused: VecDeque<Arc<Frame>>,
    /// cold when the hand passed, and dirty; the coldest at the front
    aside: VecDeque<Entry>,
}

impl Clock {
    /// A clock without frames, whose stamps are those of `pool`.
    pub fn new(pool: Arc<Pool>) -> Self {
        Self {
            pool,
            ring: VecDeque::new(),
            unused: VecDeque::new(),
            aside: VecDeque::new(),
        }
    }

    /// Adds a frame behind the hand.
    pub fn push(&mut self, frame: Arc<Frame>) {
        let stamp = self.pool.next_stamp();
        self.ring.push_back(Entry { stamp, frame });
    }

    /// Adds a frame that was read ahead.
    pub fn push_unused(&mut self, frame: Arc<Frame>) {
        self.unused.push_back(frame);
    }

    /// Puts aside what [`Clock::pop`] has given.
    pub fn put_aside(&mut self, entry: Entry) {
        self.aside.push_back(entry);
    }

    /// The stamp of the next victim; 0 for an unused frame that is one too many.
    pub fn oldest(&mut self, unused_max: usize) -> Option<u64> {
        self.settle_unused();
        match self.unused.len() > unused_max {
            true => Some(0),
            false => self.ring.front().map(|entry| entry.stamp),
        }
    }

    /// Takes the frame under the hand, if its stamp is at most `through`.
    pub fn pop(&mut self, through: u64) -> Option<Entry> {
        self.ring.pop_front_if(|entry| entry.stamp <= through)
    }

    /// Takes the oldest unused frame if there are more than `unused_max`.
    pub fn pop_unused(&mut self, unused_max: usize) -> Option<Arc<Frame>> {
        self.settle_unused();
        match self.unused.len() > unused_max {
            true => self.unused.pop_front(),
            false => None,
        }
    }

    /// Moves used frames from the front of the unused ones to the ring.
    fn settle_unused(&mut self) {
        while let Some(frame) = self.unused.pop_front_if(|frame| !frame.is_unused()) {
            self.push(frame);
        }
    }

    /// Frames that wait for their write.
    pub fn waiting(&self) -> usize {
        self.aside.len()
    }

    /// The stamp of the first frame that waits for its write.
    pub fn oldest_waiting(&self) -> Option<u64> {
        self.aside.front().map(|entry| entry.stamp)
    }

    /// The first frames that wait for their write, `count` at most. They stay until
    /// [`Clock::settle`].
    pub fn waiting_first(&self, count: usize) -> Vec<Arc<Frame>> {
        let first = self.aside.iter().take(count);
        first.map(|entry| Arc::clone(&entry.frame)).collect()
    }

    /// Takes the frames out of the waiting ones that wait no more, from the first one on: written
    /// ones to the front of the ring, those that cannot be written to its back.
    pub fn settle(&mut self, cannot_be_written: impl Fn(&Frame) -> bool) {
        let mut written = Vec::new();
        while let Some(entry) = self.aside.pop_front() {
            if cannot_be_written(&entry.frame) {
                self.push(entry.frame);
            } else if entry.frame.is_evictable() {
                written.push(entry);
            } else {
                self.aside.push_front(entry);
                break;
            }
        }
        let written = written.into_iter().rev();
        written.for_each(|entry| self.ring.push_front(entry));
    }

    /// Gives all waiting frames back to the hand: a checkpoint has written nearly all.
    pub fn settle_all(&mut self) {
        while let Some(entry) = self.aside.pop_back() {
            self.ring.push_front(entry);
        }
    }

    /// Frames of the ring.
    pub fn len(&self) -> usize {
        self.ring.len()
    }

    /// Takes the frames of a file out.
    pub fn forget_file(&mut self, file: PageFileId) {
        self.ring.retain(|entry| entry.frame.id.file != file);
        self.unused.retain(|frame| frame.id.file != file);
        self.aside.retain(|entry| entry.frame.id.file != file);
    }
}
