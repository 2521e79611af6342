//! Redo of changes after a crash.
//!
//! Records are replayed in the order of the log, from the position that the last successful
//! checkpoint returned or from an earlier one, and only when they are durable in the log: a page
//! written meanwhile must not be newer than the log that the next crash leaves.
//!
//! * An image replaces the page without reading it. It may be older than the page in the file; then
//!   the records behind it, which are durable, make the page what it was.
//!   So every page that was changed since the checkpoint is written again, as rule 3 of
//!   `strandline_device` demands: bytes that a failed sync has lost stay readable.
//! * A delta applies to the body it was made from. If the page is newer, the record is older than
//!   the checkpoint: an image follows, or the checkpoint has made the page durable. If the page is
//!   unreadable, a later image replaces it, or reading it stays an error. If the page is older, a
//!   change is missing: the file is closed.
//! * Records of files that are not open are of files dropped since.

use std::sync::Arc;

use strandline_base::{Error, ErrorKind, Result};

use super::file::PageFile;
use super::frame::Frame;
use super::header::{PageImage, zeroed_body};
use super::record::{PageRedo, decode};
use super::store::PageStore;
use super::{Access, PageId};
use crate::wal::Lsn;

impl PageStore {
    /// Applies the record that ends at `lsn` to the pages that lack it. Nobody uses the files
    /// meanwhile. Damage of a file closes the file and is no error here.
    ///
    /// # Errors
    /// XX001 for a damaged record; 58030 if a page cannot be read, or cannot be written to make
    /// room.
    pub fn replay(&self, record: &[u8], lsn: Lsn) -> Result<()> {
        let (file, pages) = decode(record)?;
        let Ok(file) = self.file(file) else {
            return Ok(());
        };
        *file.space.lock() = None;
        for page in &pages {
            if file.has_failed() {
                break;
            }
            self.replay_page(&file, page, lsn)?;
        }
        Ok(())
    }

    fn replay_page(&self, file: &Arc<PageFile>, page: &PageRedo<'_>, lsn: Lsn) -> Result<()> {
        let id = PageId {
            file: file.id,
            number: page.number,
        };
        match page.base {
            None => self.replay_image(file, id, page, lsn),
            Some(base) => self.replay_delta(file, id, page, (base, lsn)),
        }
    }

    fn replay_image(
        &self,
        file: &Arc<PageFile>,
        id: PageId,
        page: &PageRedo<'_>,
        lsn: Lsn,
    ) -> Result<()> {
        let mut body = zeroed_body();
        page.apply(&mut body);
        let frame = self.latch_unread(file, id)?;
        frame.install(Arc::new(PageImage { lsn, body }));
        frame.unlatch_exclusive();
        Ok(())
    }

    /// Latches the frame of a page whose bytes in the file do not matter.
    fn latch_unread(&self, file: &Arc<PageFile>, id: PageId) -> Result<Arc<Frame>> {
        loop {
            let (frame, is_new) = self.enter(id, file);
            if !is_new {
                if frame.latch_exclusive().is_some() {
                    return Ok(frame);
                }
                self.forget(&frame);
                continue;
            }
            if let Err(e) = self.make_room() {
                frame.fail();
                self.forget(&frame);
                return Err(e);
            }
            frame.fill_latched();
            self.ring.lock().push_back(Arc::clone(&frame));
            return Ok(frame);
        }
    }

    fn replay_delta(
        &self,
        file: &Arc<PageFile>,
        id: PageId,
        page: &PageRedo<'_>,
        (base, lsn): (Lsn, Lsn),
    ) -> Result<()> {
        let (frame, before) = loop {
            let frame = match self.frame(id, Access::Random) {
                Ok(frame) => frame,
                Err(e) if e.kind() == ErrorKind::Corrupt => return Ok(()),
                Err(e) => return Err(e),
            };
            match frame.latch_exclusive() {
                Some(before) => break (frame, before),
                None => self.forget(&frame),
            }
        };
        if before.lsn == base {
            let mut body = before.body.clone();
            page.apply(&mut body);
            frame.install(Arc::new(PageImage { lsn, body }));
        } else if before.lsn < lsn {
            let what = format!(
                "the page has LSN {}, but the log's next change was made on LSN {}",
                before.lsn.0, base.0
            );
            file.fail(Error::corrupt(file.place(id.number), what));
        }
        frame.unlatch_exclusive();
        Ok(())
    }
}
