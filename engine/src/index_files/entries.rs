//! Indexes in files: new ones in new files, and those of files that an opening has found.

use super::held::HeldFile;
use super::levels::LevelIndex;
use super::{IndexFiles, blocks, levels};
use crate::catalog::index::IndexStorage;
use crate::catalog::index_file::{IndexFile, blocks_file};
use std::sync::Arc;
use strandline_base::sync::Ordering;
use strandline_base::{Error, ErrorKind, Result, SqlState};
use strandline_device::Device;
use strandline_index::{
    AccessMethod, FdIndexSettings, FilterOf, LidIndex, PagedIndex, PagedIndexSettings, PartOrder,
    SpatialIndex, SpatialIndexSettings,
};
use strandline_storage::level_blocks::BlockQueue;

/// The keys of an index in a file.
pub(crate) enum FileKeys {
    /// ordered by parts. `is_unique`: most keys have one row
    Ordered {
        parts: Vec<PartOrder>,
        is_unique: bool,
    },
    /// points or boxes; on pages
    Boxes,
}

/// The entries of an index in a file, and the use of this file.
pub(crate) type FileEntries = (Arc<dyn AccessMethod>, HeldFile);

impl IndexFiles {
    /// An empty index in a new file, which is durable with its name on return.
    ///
    /// # Errors
    /// Those of the device and of the log: 53100 on a full disk; 53200 for more indexes in levels
    /// than memory allows; XX000 for an index in memory, and for one of boxes that is not on pages.
    pub fn create(self: &Arc<Self>, storage: IndexStorage, keys: FileKeys) -> Result<FileEntries> {
        if storage == IndexStorage::Levels {
            self.check_heads()?;
        }
        let taken = |next: u32| next.checked_add(IndexFile::numbers(storage));
        let used = self
            .next
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken);
        let used = used.map_err(|_| {
            let what = "all numbers of files of indexes have been used";
            Error::invalid(SqlState::PROGRAM_LIMIT_EXCEEDED, what)
        })?;
        let file = IndexFile::new(storage, used)
            .ok_or_else(|| Error::internal("an index in memory has no file"))?;
        // From the first moment on it is in use: a checkpoint removes the others.
        let mut held = self.hold(file);
        match (file, keys) {
            (IndexFile::Pages(id), FileKeys::Ordered { parts, .. }) => {
                let settings = self.page_settings(parts);
                let index = PagedIndex::create(self.pages.clone(), id, settings)?;
                Ok((Arc::new(index), held))
            }
            (IndexFile::Pages(id), FileKeys::Boxes) => {
                let settings = self.spatial_settings();
                let index = SpatialIndex::create(self.pages.clone(), id, settings)?;
                Ok((Arc::new(index), held))
            }
            (IndexFile::Levels(_) | IndexFile::Blocks(_), FileKeys::Boxes) => {
                Err(boxes_beside_pages())
            }
            (IndexFile::Levels(id), FileKeys::Ordered { parts, is_unique }) => {
                let settings = self.level_settings(parts, is_unique);
                let index = LevelIndex::create(self.level_device(), &self.log, id, settings)?;
                Ok((self.use_levels(&mut held, index), held))
            }
            (IndexFile::Blocks(id), FileKeys::Ordered { parts, .. }) => {
                let form = storage.blocks().map(blocks::form);
                let form = form.ok_or_else(|| Error::internal("an index without blocks"))?;
                let (files, settings) = ((id, blocks_file(id)), self.page_settings(parts));
                let index = LidIndex::create(self.pages.clone(), files, settings, form)?;
                Ok((self.use_blocks(file, index), held))
            }
        }
    }

    /// The index in open files. One on pages, with LIDBlocks or not, is as the replay of the log
    /// has left it, one in levels is as of its newest image.
    ///
    /// # Errors
    /// XX001 if it is damaged; the failure that has closed the file.
    pub fn open_index(self: &Arc<Self>, file: IndexFile, keys: FileKeys) -> Result<FileEntries> {
        let mut pages = file.page_files();
        pages.try_for_each(|id| self.pages.check_usable(id))?;
        match (file, keys) {
            (IndexFile::Pages(id), FileKeys::Ordered { parts, .. }) => {
                let settings = self.page_settings(parts);
                let index = PagedIndex::open(self.pages.clone(), id, settings)?;
                Ok((Arc::new(index), self.hold(file)))
            }
            (IndexFile::Pages(id), FileKeys::Boxes) => {
                let settings = self.spatial_settings();
                let index = SpatialIndex::open(self.pages.clone(), id, settings)?;
                Ok((Arc::new(index), self.hold(file)))
            }
            (IndexFile::Levels(_) | IndexFile::Blocks(_), FileKeys::Boxes) => {
                Err(boxes_beside_pages())
            }
            (IndexFile::Levels(id), FileKeys::Ordered { parts, is_unique }) => {
                let settings = self.level_settings(parts, is_unique);
                let wanted = self.wanted.lock().of(id.0);
                let index =
                    LevelIndex::open(self.level_device(), &self.log, (id, wanted), settings)?;
                let mut held = self.hold(file);
                Ok((self.use_levels(&mut held, index), held))
            }
            (IndexFile::Blocks(id), FileKeys::Ordered { parts, .. }) => {
                let (files, settings) = ((id, blocks_file(id)), self.page_settings(parts));
                let index = LidIndex::open(self.pages.clone(), files, settings)?;
                let held = self.hold(file);
                Ok((self.use_blocks(file, index), held))
            }
        }
    }

    fn page_settings(&self, parts: Vec<PartOrder>) -> PagedIndexSettings {
        let txns = self.txns.clone();
        PagedIndexSettings {
            memory: self.taken_bytes.clone(),
            ..PagedIndexSettings::new(parts, Arc::new(move || txns.oldest_snapshot()))
        }
    }

    fn spatial_settings(&self) -> SpatialIndexSettings {
        let txns = self.txns.clone();
        SpatialIndexSettings {
            memory: self.taken_bytes.clone(),
            ..SpatialIndexSettings::new(Arc::new(move || txns.oldest_snapshot()))
        }
    }

    fn level_settings(&self, parts: Vec<PartOrder>, is_unique: bool) -> FdIndexSettings {
        let txns = self.txns.clone();
        let mut settings = FdIndexSettings::new(parts, Arc::new(move || txns.oldest_snapshot()));
        settings.memory = self.taken_bytes.clone();
        settings.pool = self.pool.clone();
        settings.heads = Some(self.heads.clone());
        settings.filters = Some(self.filters.clone());
        settings.tree.head_blocks = levels::HEAD_BLOCKS;
        settings.tree.filter_of = match is_unique {
            true => FilterOf::Keys,
            false => FilterOf::Entries,
        };
        settings.tree.batch_bytes = self.settings.index_batch_bytes();
        settings
    }

    /// Whether the head of another index fits.
    ///
    /// # Errors
    /// 53200 if the heads would take more than the share of indexes.
    fn check_heads(&self) -> Result<()> {
        if self.heads.has_room() {
            return Ok(());
        }
        let (taken, limit) = (self.heads.taken(), self.heads.limit());
        let what = format!(
            "the heads of {} indexes in levels take {taken} of the {limit} bytes that indexes may \
             take",
            self.files.lock().levels().len()
        );
        let error = Error::new(ErrorKind::Unavailable, SqlState::OUT_OF_MEMORY, what);
        Err(error.with_hint("Raise memory_bytes, or make the index with storage = 'pages'."))
    }

    fn level_device(&self) -> (&dyn Device, &Arc<BlockQueue>) {
        (&*self.device, &self.level_queue)
    }
}

#[cold]
fn boxes_beside_pages() -> Error {
    Error::internal("an index over points or boxes is on pages, without levels and LIDBlocks")
}
