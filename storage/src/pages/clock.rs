//! The order in which frames are looked at when one has to leave: the clock's ring, and before it
//! the frames that were read ahead and that nobody has used.
//!
//! Invariants:
//! 1. A frame of the table is in one of the two lists, once it is present. Frames that have left
//!    the table may still be there.
//! 2. Unused frames are the first victims as soon as there are more than `unused_max` of them, the
//!    oldest first: fewer may be about to be used.

use std::collections::VecDeque;
use std::sync::Arc;

use super::PageFileId;
use super::frame::Frame;

/// Frames in the order of their eviction.
#[derive(Debug)]
pub(super) struct Clock {
    /// the hand is at the front
    ring: VecDeque<Arc<Frame>>,
    /// read ahead, the oldest at the front; those that were used since move to the ring
    unused: VecDeque<Arc<Frame>>,
    unused_max: usize,
}

impl Clock {
    /// A clock without frames.
    pub fn new(unused_max: usize) -> Self {
        Self {
            ring: VecDeque::new(),
            unused: VecDeque::new(),
            unused_max,
        }
    }

    /// Adds a frame behind the hand.
    pub fn push(&mut self, frame: Arc<Frame>) {
        self.ring.push_back(frame);
    }

    /// Adds a frame that was read ahead.
    pub fn push_unused(&mut self, frame: Arc<Frame>) {
        self.unused.push_back(frame);
    }

    /// Takes the frame under the hand.
    pub fn pop(&mut self) -> Option<Arc<Frame>> {
        self.ring.pop_front()
    }

    /// Takes the oldest unused frame if there are too many of them, or if `is_any`.
    pub fn pop_unused(&mut self, is_any: bool) -> Option<Arc<Frame>> {
        loop {
            let count = self.unused.len();
            let frame = self.unused.pop_front()?;
            if !frame.is_unused() {
                self.ring.push_back(frame);
            } else if is_any || count > self.unused_max {
                return Some(frame);
            } else {
                self.unused.push_front(frame);
                return None;
            }
        }
    }

    /// Frames of the ring.
    pub fn len(&self) -> usize {
        self.ring.len()
    }

    /// Takes the frames of a file out.
    pub fn forget_file(&mut self, file: PageFileId) {
        self.ring.retain(|frame| frame.id.file != file);
        self.unused.retain(|frame| frame.id.file != file);
    }
}
