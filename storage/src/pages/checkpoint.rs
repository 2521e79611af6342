//! Checkpoints of the page files: every page that is dirty at their begin is written and durable
//! at their end.

use std::sync::Arc;

use strandline_base::sync::Ordering;
use strandline_base::{Error, Result};

use super::PageFileId;
use super::frame::Frame;
use super::store::PageStore;
use crate::ssd_cache::{Checkpoint, SsdCache};
use crate::wal::Lsn;

impl PageStore {
    /// Writes the pages that are dirty when it begins, syncs the files, and returns the position
    /// from which redo must begin. Changes go on meanwhile. Files with many free pages at their
    /// end are cut (`shrink`).
    ///
    /// # Errors
    /// Those of the log and of the files; then the position of the last success holds.
    pub fn checkpoint(self: &Arc<Self>) -> Result<Lsn> {
        let (begin, failures) = self.checkpoint_each()?;
        match failures.into_iter().next() {
            Some((_, failure)) => Err(failure),
            None => Ok(begin),
        }
    }

    /// As [`PageStore::checkpoint`], each file by itself: also returns the files whose pages could
    /// not be stored. The position holds for the others. A failed sync of the SSD cache closes all
    /// files that go through it: their newest versions may be lost with it.
    ///
    /// # Errors
    /// Those of the log.
    pub fn checkpoint_each(self: &Arc<Self>) -> Result<(Lsn, Vec<(PageFileId, Error)>)> {
        let _checkpointing = self.checkpointing.lock();
        self.drop_unused_maps();
        let (begin, tails) = {
            let _gate = self.gate.write();
            let begin = self.log.end();
            self.boundary.store(begin.0, Ordering::Release);
            (begin, self.tails())
        };
        let mut dirty: Vec<(Arc<Frame>, Lsn)> = Vec::new();
        for frames in self.all_frames() {
            dirty.extend(frames.into_iter().filter_map(|frame| {
                let lsn = frame.dirty_lsn()?;
                Some((frame, lsn))
            }));
        }
        if let Some(lsn) = dirty.iter().map(|(_, lsn)| *lsn).max() {
            self.log.make_durable(lsn)?;
        }
        dirty.sort_unstable_by_key(|(frame, _)| frame.id);
        let cache = self.cache.as_ref().map(SsdCache::checkpoint);
        let mut failures: Vec<(PageFileId, Error)> = Vec::new();
        let mut note = |file: PageFileId, stored: Result<()>| {
            let is_known = failures.iter().any(|(failed, _)| *failed == file);
            failures.extend(stored.err().filter(|_| !is_known).map(|e| (file, e)));
        };
        for (frame, _) in &dirty {
            // A dropped file's pages are needed no more.
            if self.files.contains(frame.id.file) {
                note(frame.id.file, self.store(frame, cache.as_ref()));
            }
        }
        if let Err(error) = cache.map_or(Ok(()), Checkpoint::finish) {
            let failure = self.cache.as_ref().and_then(SsdCache::failure);
            for file in self.files.all().iter().filter(|file| file.is_cached) {
                failure
                    .iter()
                    .for_each(|failure| file.fail(failure.clone()));
                note(file.id, Err(error.clone()));
            }
        }
        for file in self.files.all() {
            note(file.id, file.sync());
        }
        for (file, tail) in tails {
            if !failures.iter().any(|(failed, _)| *failed == file.id) {
                self.cut(&file, tail);
            }
        }
        self.clock.lock().settle_all();
        self.pool.shrink();
        Ok((begin, failures))
    }
}
