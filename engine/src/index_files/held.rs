//! Which files are in use, and by which indexes in memory.
//!
//! Lock order: `files` is held only to look and to change.

use super::levels::LevelIndex;
use super::{IndexFiles, blocks};
use crate::catalog::index_file::IndexFile;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use strandline_base::{Error, Result};
use strandline_index::{AccessMethod, LidIndex, TreeFigures};
use strandline_storage::pages::PageFileId;

/// The files of the database.
#[derive(Default)]
pub(super) struct Files {
    pub held: BTreeMap<IndexFile, Uses>,
    /// files that no opening uses again
    pub lost: BTreeMap<IndexFile, Lost>,
}

/// A lost file.
pub(super) struct Lost {
    pub cause: Error,
    /// the manifest names it
    pub is_named: bool,
}

/// The uses of a file.
#[derive(Default)]
pub(super) struct Uses {
    /// how many indexes in memory have it
    pub count: usize,
    /// that index, if it is in levels
    pub levels: Weak<LevelIndex>,
    /// that index, if it has LIDBlocks
    pub blocks: Weak<LidIndex>,
}

impl Files {
    /// The indexes in levels, by number.
    pub fn levels(&self) -> Vec<(IndexFile, Arc<LevelIndex>)> {
        let held = self.held.iter();
        held.filter_map(|(file, uses)| Some((*file, uses.levels.upgrade()?)))
            .collect()
    }

    /// The indexes with LIDBlocks, by number of the tree's file.
    pub fn blocks(&self) -> Vec<(IndexFile, Arc<LidIndex>)> {
        let held = self.held.iter();
        held.filter_map(|(file, uses)| Some((*file, uses.blocks.upgrade()?)))
            .collect()
    }

    /// The file of an index of which a page file is part.
    pub fn owner(&self, part: PageFileId) -> IndexFile {
        let mut held = self.held.keys();
        let owner = held.find(|file| file.page_files().any(|own| own == part));
        owner.copied().unwrap_or(IndexFile::Pages(part))
    }
}

/// The use of a file by an index in memory.
pub(crate) struct HeldFile {
    files: Arc<IndexFiles>,
    id: IndexFile,
    /// the index, if it is in levels
    pub(super) levels: Option<Arc<LevelIndex>>,
}

impl HeldFile {
    /// The file.
    pub fn id(&self) -> IndexFile {
        self.id
    }

    /// Another use of the same entries.
    pub fn again(&self) -> Self {
        let mut again = self.files.hold(self.id);
        again.levels.clone_from(&self.levels);
        again
    }

    /// The length of its parts in bytes; 0 of those that have been closed.
    pub fn bytes(&self) -> u64 {
        let levels = self.levels.as_ref().map_or(0, |levels| levels.file_bytes());
        let pages = self.id.page_files();
        let pages = pages.map(|id| self.files.pages.file_bytes(id).unwrap_or(0));
        levels + pages.sum::<u64>()
    }

    /// Reads every page that is in use, and appends the first damage. The check of an index in
    /// levels reads its blocks itself.
    pub fn check(&self, damage: &mut Vec<String>) {
        for id in self.id.page_files() {
            let checked = self.files.pages.check(id);
            damage.extend(checked.err().map(|error| error.to_string()));
        }
    }

    /// Whether the index is in levels.
    pub fn is_in_levels(&self) -> bool {
        self.levels.is_some()
    }

    /// Figures of its levels, for which all blocks are read, if the index is in levels.
    pub fn level_figures(&self) -> Option<TreeFigures> {
        let levels = self.levels.as_ref()?;
        Some(levels.index.tree().figures())
    }

    /// An opened index has got the entries of all commits that its file may lack.
    pub fn set_complete(&self) {
        if let Some(levels) = &self.levels {
            levels.set_complete();
        }
    }

    /// What an index with LIDBlocks has in them now, in words; None: it has none. Reads them.
    ///
    /// # Errors
    /// Those of reading the blocks: XX001 if they are damaged.
    pub fn blocks(&self) -> Result<Option<String>> {
        let files = self.files.files.lock();
        let uses = files.held.get(&self.id);
        let index = uses.and_then(|uses| uses.blocks.upgrade());
        drop(files);
        index.map(|index| blocks::in_words(&index)).transpose()
    }

    /// Makes the entries durable that the log does not have: those of an index in levels.
    ///
    /// # Errors
    /// The device's and the log's.
    pub fn store_unlogged(&self) -> Result<()> {
        self.levels
            .as_ref()
            .map_or(Ok(()), |levels| levels.complete())
    }
}

impl Drop for HeldFile {
    fn drop(&mut self) {
        let mut files = self.files.files.lock();
        if let Some(held) = files.held.get_mut(&self.id) {
            held.count = held.count.saturating_sub(1);
        }
    }
}

impl IndexFiles {
    pub(super) fn hold(self: &Arc<Self>, id: IndexFile) -> HeldFile {
        self.enter(id, 1);
        HeldFile {
            files: self.clone(),
            id,
            levels: None,
        }
    }

    /// Adds a file unless it is known, and so many indexes that have it.
    pub(super) fn enter(&self, id: IndexFile, uses: usize) {
        let mut files = self.files.lock();
        files.held.entry(id).or_default().count += uses;
    }

    /// The index in levels of a held file.
    pub(super) fn use_levels(
        &self,
        held: &mut HeldFile,
        index: LevelIndex,
    ) -> Arc<dyn AccessMethod> {
        let index = Arc::new(index);
        if let Some(uses) = self.files.lock().held.get_mut(&held.id) {
            uses.levels = Arc::downgrade(&index);
        }
        let entries = index.index.clone();
        held.levels = Some(index);
        entries
    }

    /// The index with LIDBlocks of a held file.
    pub(super) fn use_blocks(&self, file: IndexFile, index: LidIndex) -> Arc<dyn AccessMethod> {
        let index = Arc::new(index.with_block_memory(self.settings.index_blocks_bytes()));
        if let Some(uses) = self.files.lock().held.get_mut(&file) {
            uses.blocks = Arc::downgrade(&index);
        }
        index
    }

    /// Modifications of the entries of all indexes in levels, and of all LIDBlocks, since they were
    /// opened. Without new ones no step becomes due.
    pub fn changes(&self) -> u64 {
        let files = self.files.lock();
        let (levels, blocks) = (files.levels(), files.blocks());
        drop(files);
        let of_levels = levels.iter().map(|(_, index)| index.changes());
        of_levels
            .chain(blocks.iter().map(|(_, index)| index.changes()))
            .sum()
    }
}
