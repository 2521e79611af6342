//! Slots of one page written by several threads at once: ownership relaying \[L-Store §5.2\].
//!
//! A page takes its writes in a *batch*. The first appender copies the committed body; all write
//! their slots into this copy and log them on their own. Appenders are compatible with each other
//! and with readers, who have the committed image, and exclude changes of the whole page.
//!
//! Invariants:
//! 1. The committed image does not change while there is an appender, except by the last one.
//! 2. An appender that has logged its slot reports its LSN; `owner_lsn` is the greatest one. It
//!    relays the page to the appenders that remain. The last one to leave owns the page: it
//!    installs the copy as the committed image with `owner_lsn`.
//! 3. So an image with LSN L has every slot that was logged at or before L, since an appender that
//!    has logged and not reported is one that remains.
//! 4. While there are reported slots that are not installed, nobody begins to read the page, and
//!    the page is dirty. So whoever looks after an appender has returned sees its slot, and a
//!    checkpoint after that writes it.
//! 5. While somebody waits for reported slots no appender joins, so that the wait ends with the
//!    appenders that are there.
//!
//! Differences from the paper: the owner is the appender that leaves last, not the one with the
//! greatest LSN, so that no owner waits for a promotion of its latch. Readers keep an immutable
//! image, so that a slot needs no compare-and-swap.

use std::sync::Arc;

use super::{Frame, FrameState, Phase};
use crate::pages::header::{PageBody, PageImage};
use crate::wal::Lsn;

/// Bytes for one slot of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotWrite {
    /// where the slot begins in the page's body
    pub offset: usize,
    /// the slot's bytes, at least one
    pub bytes: Vec<u8>,
}

/// The batch of a page.
#[derive(Debug, Default)]
pub(super) struct Appends {
    /// threads that write a slot
    pub writers: usize,
    /// the committed body with the batch's slots; None without a batch
    body: Option<PageBody>,
    /// the greatest LSN of reported slots; None: nothing is reported
    pub owner_lsn: Option<Lsn>,
    /// threads that wait until reported slots are installed
    pub awaited_by: usize,
}

/// A slot in a batch, to be logged.
#[derive(Debug)]
pub(in crate::pages) struct Append {
    pub write: SlotWrite,
    /// the LSN of the committed image
    pub base: Lsn,
    /// the bytes before
    before: Vec<u8>,
}

/// The begin of an append.
#[derive(Debug)]
pub(in crate::pages) enum Begun {
    /// the frame is gone
    Gone,
    /// nothing is to be written
    Nothing,
    /// the slot is in the batch; the caller ends with `end_append` or `cancel_append`
    Slot(Append),
}

impl Frame {
    /// Writes the slot that `choose` gives, by the body with all slots of the batch, into the
    /// batch. A slot outside the body counts as none.
    pub fn begin_append(&self, choose: &mut dyn FnMut(&[u8]) -> Option<SlotWrite>) -> Begun {
        let mut state = self.state.lock();
        loop {
            // An appender that waits is no latch: the page may have begun to leave meanwhile.
            state = self.wait_settled(state);
            if state.phase == Phase::Gone {
                return Begun::Gone;
            }
            let appends = &state.appends;
            let is_awaited = appends.awaited_by > 0 && appends.owner_lsn.is_some();
            if !state.is_written_to && state.writers_waiting == 0 && !is_awaited {
                break;
            }
            self.progress.wait(&mut state);
        }
        let image = Arc::clone(state.image.as_ref().expect("a present page has an image"));
        let body = state.appends.body.get_or_insert_with(|| image.body.clone());
        let write = choose(body);
        let place = write.as_ref().and_then(|write| {
            let end = write.offset.checked_add(write.bytes.len())?;
            body.get_mut(write.offset..end)
        });
        let (Some(place), Some(write)) = (place, write) else {
            if state.appends.writers == 0 {
                state.appends.body = None;
            }
            return Begun::Nothing;
        };
        let before = place.to_vec();
        place.copy_from_slice(&write.bytes);
        state.appends.writers += 1;
        Begun::Slot(Append {
            write,
            base: image.lsn,
            before,
        })
    }

    /// Reports a slot that was logged, and leaves the batch.
    pub fn end_append(&self, lsn: Lsn) {
        let mut state = self.state.lock();
        state.appends.owner_lsn = state.appends.owner_lsn.max(Some(lsn));
        state.is_dirty = true;
        self.leave_batch(&mut state);
    }

    /// Takes back a slot that was not logged, and leaves the batch.
    pub fn cancel_append(&self, append: &Append) {
        let mut state = self.state.lock();
        let start = append.write.offset;
        let body = state.appends.body.as_mut();
        let place = body.and_then(|body| body.get_mut(start..start + append.before.len()));
        let place = place.expect("the batch lasts as long as its appenders");
        place.copy_from_slice(&append.before);
        self.leave_batch(&mut state);
    }

    /// The last one to leave installs the batch.
    fn leave_batch(&self, state: &mut FrameState) {
        state.appends.writers -= 1;
        if state.appends.writers > 0 {
            return;
        }
        let body = state.appends.body.take();
        if let (Some(lsn), Some(body)) = (state.appends.owner_lsn.take(), body) {
            state.image = Some(Arc::new(PageImage { lsn, body }));
        }
        self.progress.notify_all();
    }
}
