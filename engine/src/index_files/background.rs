//! The work of checkpoints and of the thread of compactions on all files.

use super::IndexFiles;
use crate::catalog::index_file::IndexFile;
use std::collections::BTreeMap;
use strandline_base::{Error, Result};
use strandline_storage::wal::Lsn;

/// Does some steps of an index's compaction, or moves a block; whether there are more.
pub(crate) type Steps<'a> = &'a dyn Fn() -> Result<bool>;

/// The outcome of a checkpoint of the files.
pub(crate) struct FilesCheckpoint {
    /// the replay of the files begins there, unless one has failed
    pub redo_from: Lsn,
    /// files that could not be stored, and that are to be tried again
    pub failed: Vec<(IndexFile, Error)>,
    /// by number of level file how much of the log the newest image covers
    pub levels: BTreeMap<u32, u64>,
}

impl IndexFiles {
    /// Writes the changed pages of all page files and the images of all indexes in levels. Files
    /// that have been closed are lost from now on.
    ///
    /// # Errors
    /// Those of the log.
    pub fn checkpoint(&self) -> Result<FilesCheckpoint> {
        // Before the images are gathered: they have the entries of every commit up to there.
        let (redo_from, failures) = self.pages.checkpoint_each()?;
        let mut failed = Vec::new();
        for (id, failure) in failures {
            let file = self.files.lock().owner(id);
            match self.pages.check_usable(id) {
                Ok(()) => failed.push((file, failure)),
                Err(cause) => {
                    self.forget(file);
                    self.note_lost(file, cause);
                }
            }
        }
        let (held, mut levels) = (self.files.lock().levels(), BTreeMap::new());
        for (file, index) in held {
            match (index.checkpoint(), index.check_usable()) {
                (Ok(covers), _) => drop(levels.insert(file.number(), covers)),
                (Err(failure), Ok(())) => failed.push((file, failure)),
                (Err(_), Err(cause)) => self.note_lost(file, cause),
            }
        }
        Ok(FilesCheckpoint {
            redo_from,
            failed,
            levels,
        })
    }

    /// Calls `each` for the indexes in levels and those with LIDBlocks that are not pausing, with
    /// their next steps: of compactions that are under way or due, or the move of a nearly full
    /// block. The steps return whether there are more. Those of a compaction that has failed for
    /// good return its error, which a writer may have met.
    pub fn compact(
        &self,
        is_pausing: &dyn Fn(IndexFile) -> bool,
        each: &mut dyn FnMut(IndexFile, Steps<'_>),
    ) {
        let files = self.files.lock();
        let (levels, blocks) = (files.levels(), files.blocks());
        drop(files);
        for (file, index) in levels {
            if !is_pausing(file) {
                each(file, &|| index.compact());
            }
        }
        for (file, index) in blocks {
            let are_usable = file
                .page_files()
                .all(|id| self.pages.check_usable(id).is_ok());
            if are_usable && !is_pausing(file) {
                each(file, &|| index.flush_step());
            }
        }
    }
}
