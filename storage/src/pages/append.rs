//! Appends of slots under a shared latch; `frame/append.rs` has the protocol.
//!
//! A slot's record names the LSN of the committed image that its batch lies over. Redo applies it
//! to a page with this LSN or a later one before the record's own. The first record of a page
//! behind a checkpoint's begin is an image (invariant 2 of the page store), for which the whole
//! page is latched.

use std::sync::Arc;

use strandline_base::{Error, Result};

use super::change::image_boundary;
use super::frame::{Begun, SlotWrite};
use super::header::PAGE_BODY_BYTES;
use super::record;
use super::store::PageStore;
use super::{Access, PageFileId, PageId, PageNumber};
use crate::wal::Lsn;

impl PageStore {
    /// Writes one slot of a page beside other appenders, and logs it. `choose` gives the slot by
    /// the page's body, or None if nothing is to be written. It runs under a lock of the page, at
    /// most twice; the last call counts. Slots that other threads write have their final bytes in
    /// this body, but may not be logged yet; `choose` must not overwrite them. Returns the end of
    /// the record.
    ///
    /// # Errors
    /// Those of [`PageStore::read`] and of the log's append; then nothing has changed.
    pub fn append_slot(
        self: &Arc<Self>,
        file: PageFileId,
        number: PageNumber,
        choose: &mut dyn FnMut(&[u8]) -> Option<SlotWrite>,
    ) -> Result<Option<Lsn>> {
        let id = PageId { file, number };
        let (frame, append) = loop {
            let frame = self.frame(id, Access::Random)?;
            match frame.begin_append(choose) {
                Begun::Gone => self.forget(&frame),
                Begun::Nothing => return Ok(None),
                Begun::Slot(append) => break (frame, append),
            }
        };
        // Held until the slot is reported, so that a checkpoint's begin has no slot before it that
        // its page does not know.
        let gate = self.gate.read();
        if append.base.0 <= image_boundary(self) {
            frame.cancel_append(&append);
            drop(gate);
            return self.append_alone(id, choose);
        }
        let mut out = record::begin_slot(file);
        record::put_slot(&mut out, number, append.base, &append.write);
        let logged = self.log.append(&out);
        match &logged {
            Ok(lsn) => frame.end_append(*lsn),
            Err(_) => frame.cancel_append(&append),
        }
        drop(gate);
        logged.map(Some)
    }

    /// [`PageStore::append_slot`] with the whole page latched.
    fn append_alone(
        self: &Arc<Self>,
        id: PageId,
        choose: &mut dyn FnMut(&[u8]) -> Option<SlotWrite>,
    ) -> Result<Option<Lsn>> {
        let mut change = self.begin(id.file);
        change.write(id.number)?;
        let Some(SlotWrite { offset, bytes }) = choose(change.body(id.number)) else {
            return Ok(None);
        };
        let body = change.body_mut(id.number);
        let place = body
            .get_mut(offset..)
            .and_then(|b| b.get_mut(..bytes.len()));
        let place = place.ok_or_else(|| {
            let end = offset + bytes.len();
            Error::internal(format!("a slot ends at {end} of {PAGE_BODY_BYTES} bytes"))
        })?;
        place.copy_from_slice(&bytes);
        change.commit().map(Some)
    }
}
