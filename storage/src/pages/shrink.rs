//! Free pages at the end of a file go back to the device.
//!
//! A checkpoint cuts a file behind its last page in use, if that gives back more than twice the
//! pages by which the file would grow again. Free pages between pages in use stay for later
//! allocations: no page moves, since structures point to pages by number.
//!
//! # Invariants
//! 1. A page is cut off only if it was free at the begin of the checkpoint and is free after the
//!    sync of the file. So the durable space map does not have it, and its later uses begin with
//!    images behind the begin.
//! 2. Redo from an earlier begin may meet records of a page that is gone. Its first record is an
//!    image, which needs no page in the file; a delta before it finds no page and is passed over.
//! 3. While the file is cut, no page behind the place is reserved, in use, dirty or being written.
//!    The SSD cache has forgotten these pages, so that it copies none of them to the file.
//! 4. The cut need not be durable: redo and space map are right for a longer file too.
//!
//! Map pages at the end that describe no page in use leave the map first, by a logged change of
//! page 0. The cut then follows as for other pages.

use std::sync::Arc;

use strandline_base::Result;

use super::PageNumber;
use super::file::PageFile;
use super::files::block_of;
use super::store::PageStore;

impl PageStore {
    /// The files that a checkpoint may cut, and where. Called at its begin, with the gate closed:
    /// then the pages are free in the committed state.
    pub(super) fn tails(&self) -> Vec<(Arc<PageFile>, PageNumber)> {
        let files = self.files.all().into_iter();
        let tails = files.filter_map(|file| {
            let tail = file.tail(false).filter(|_| !file.has_failed())?;
            Some((file, tail))
        });
        tails.collect()
    }

    /// Drops the last map pages of files if they describe nothing. A failure leaves them to the
    /// next checkpoint.
    pub(super) fn drop_unused_maps(self: &Arc<Self>) {
        for file in self.files.all() {
            let tail = file.tail(true);
            if tail.is_some() && tail != file.tail(false) && !file.has_failed() {
                let _ = self.drop_maps(&file);
            }
        }
    }

    fn drop_maps(self: &Arc<Self>, file: &PageFile) -> Result<()> {
        let mut change = self.begin(file.id);
        if change.drop_maps()? {
            change.commit()?;
        }
        Ok(())
    }

    /// Cuts a file at `tail` or behind it. A failure leaves the file longer than it need be, and
    /// the next checkpoint tries again.
    pub(super) fn cut(&self, file: &Arc<PageFile>, tail: PageNumber) {
        let _ = file.cut(tail, |from| {
            if self.has_unsettled_from(file, from) {
                return false;
            }
            if let Some(cache) = self.cache_of(file) {
                cache.forget_from(block_of(file.id, from));
            }
            true
        });
    }

    /// Whether a page of a file from `from` on is in memory and not in the file.
    fn has_unsettled_from(&self, file: &PageFile, from: PageNumber) -> bool {
        self.all_frames().flatten().any(|frame| {
            let is_meant = frame.id.file == file.id && frame.id.number >= from;
            is_meant && frame.is_unsettled()
        })
    }
}
