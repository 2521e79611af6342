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
//! * A slot applies to the body that its batch lay over, or to that body with other slots. Slots
//!   come in the order of the log, so that a page's LSN says which ones it has.
//! * Records of files that are not open are of files dropped since.
//!
//! A [`Redo`] keeps a window of records that wait, and reads the pages of their deltas ahead. Only
//! pages that have left memory since their image are read at all.

use std::collections::{HashMap, VecDeque};
use std::ops::RangeInclusive;
use std::sync::Arc;

use strandline_base::{Error, ErrorKind, Result};

use super::file::PageFile;
use super::frame::Frame;
use super::header::{PageBody, PageImage};
use super::record::{Base, PageRedo, decode};
use super::store::PageStore;
use super::{Access, PageFileId, PageId};
use crate::wal::Lsn;

/// Records that wait until the pages of later ones are on their way.
const WINDOW_RECORDS: usize = 64;

/// A record that waits.
#[derive(Debug)]
struct Waiting {
    file: PageFileId,
    record: Vec<u8>,
    lsn: Lsn,
    /// the pages of which it has images
    images: Vec<PageId>,
}

/// Redo of records in their order, with the pages that they change read ahead.
#[derive(Debug)]
pub struct Redo<'a> {
    store: &'a PageStore,
    waiting: VecDeque<Waiting>,
    /// the pages of which waiting records have images, and how many: they are not read
    images: HashMap<PageId, usize>,
}

impl<'a> Redo<'a> {
    /// Redo on the pages of a store, whose files are open.
    pub fn new(store: &'a PageStore) -> Self {
        Self {
            store,
            waiting: VecDeque::new(),
            images: HashMap::new(),
        }
    }

    /// Adds the record that ends at `lsn`, and applies an earlier one. A file with a page that
    /// cannot be read for that is closed.
    ///
    /// # Errors
    /// XX001 for a damaged record, 0A000 for one of a newer version.
    pub fn push(&mut self, record: impl Into<Vec<u8>>, lsn: Lsn) -> Result<()> {
        let record = record.into();
        let (file, pages) = decode(&record)?;
        let (mut images, mut read) = (Vec::new(), Vec::new());
        for page in &pages {
            let number = page.number;
            let id = PageId { file, number };
            match page.base {
                Base::Zeros => images.push(id),
                _ if !self.images.contains_key(&id) => read.push(number),
                Base::Exactly(_) | Base::AtLeast(_) => {}
            }
        }
        if !read.is_empty() {
            self.store.prefetch(file, &read);
        }
        for id in &images {
            *self.images.entry(*id).or_default() += 1;
        }
        self.waiting.push_back(Waiting {
            file,
            record,
            lsn,
            images,
        });
        if self.waiting.len() > WINDOW_RECORDS {
            self.apply_oldest();
        }
        Ok(())
    }

    /// Applies the records that wait, as [`Redo::push`] does.
    pub fn finish(mut self) {
        while !self.waiting.is_empty() {
            self.apply_oldest();
        }
    }

    fn apply_oldest(&mut self) {
        let Some(oldest) = self.waiting.pop_front() else {
            return;
        };
        for id in oldest.images {
            if let Some(count) = self.images.get_mut(&id) {
                *count -= 1;
                if *count == 0 {
                    self.images.remove(&id);
                }
            }
        }
        if let Err(failure) = self.store.replay(&oldest.record, oldest.lsn) {
            self.store.fail_file(oldest.file, failure);
        }
    }
}

impl PageStore {
    /// Applies the record that ends at `lsn` to the pages that lack it. Nobody uses the files
    /// meanwhile. Damage of a file closes the file and is no error here, nor is a page of another
    /// file that cannot be written to make room: it closes that file.
    ///
    /// # Errors
    /// XX001 for a damaged record; 58030 if a page of the record's file cannot be read.
    pub fn replay(&self, record: &[u8], lsn: Lsn) -> Result<()> {
        let (file, pages) = decode(record)?;
        let Ok(file) = self.file(file) else {
            return Ok(());
        };
        *file.space.lock() = None;
        for page in &pages {
            self.make_room_for_redo();
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
            Base::Zeros => self.replay_image(file, id, page, lsn),
            Base::Exactly(base) => self.replay_delta(file, id, page, (base..=base, lsn)),
            // The LSN of a body with other slots of the batch is greater than the base.
            Base::AtLeast(base) => self.replay_delta(file, id, page, (base..=lsn, lsn)),
        }
    }

    fn replay_image(
        &self,
        file: &Arc<PageFile>,
        id: PageId,
        page: &PageRedo<'_>,
        lsn: Lsn,
    ) -> Result<()> {
        let mut body = PageBody::zeroed();
        page.apply(&mut body);
        let frame = self.latch_unread(file, id)?;
        frame.install(Arc::new(PageImage { lsn, body }));
        frame.unlatch_exclusive();
        Ok(())
    }

    /// Latches the frame of a page whose bytes in the file do not matter.
    fn latch_unread(&self, file: &Arc<PageFile>, id: PageId) -> Result<Arc<Frame>> {
        loop {
            let (frame, is_new) = self.enter(id, || Frame::loading(id, Arc::clone(file)));
            if !is_new {
                self.await_ahead(&frame);
                frame.note_use(Access::Random);
                if frame.latch_exclusive().is_some() {
                    return Ok(frame);
                }
                self.forget(&frame);
                continue;
            }
            self.latch_zeroed(&frame)?;
            return Ok(frame);
        }
    }

    fn replay_delta(
        &self,
        file: &Arc<PageFile>,
        id: PageId,
        page: &PageRedo<'_>,
        (bases, lsn): (RangeInclusive<Lsn>, Lsn),
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
        if before.lsn < lsn && bases.contains(&before.lsn) {
            let mut body = before.body.clone();
            page.apply(&mut body);
            frame.install(Arc::new(PageImage { lsn, body }));
        } else if before.lsn < lsn {
            let what = format!(
                "the page has LSN {}, but the log's next change was made on LSN {}",
                before.lsn.0,
                bases.start().0
            );
            file.fail(Error::corrupt(file.place(id.number), what));
        }
        frame.unlatch_exclusive();
        Ok(())
    }
}
