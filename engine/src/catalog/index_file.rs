//! The files that definitions of indexes name.

use crate::catalog::index::{IndexDef, IndexState, IndexStorage};
use crate::catalog::{Catalog, TableDef};
use std::collections::BTreeSet;
use std::sync::Arc;
use strandline_storage::level_blocks::{LevelFileId, file_names, level_file_id, level_file_name};
use strandline_storage::pages::{PageFileId, page_file_id, page_file_name};

/// The file of an index, or its files. Numbers are unique among files of all kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum IndexFile {
    /// a page file
    Pages(PageFileId),
    /// a level file, with its images
    Levels(LevelFileId),
    /// the page file of a tree; the page file with the next number has the tree's LIDBlocks
    Blocks(PageFileId),
}

impl IndexFile {
    /// The file of an index with this storage; None for one in memory.
    pub fn new(storage: IndexStorage, number: u32) -> Option<Self> {
        match storage {
            IndexStorage::Memory => None,
            IndexStorage::Pages => Some(Self::Pages(PageFileId(number))),
            IndexStorage::Levels => Some(Self::Levels(LevelFileId(number))),
            IndexStorage::Blocks(_) => Some(Self::Blocks(PageFileId(number))),
        }
    }

    /// How many numbers the files of an index with this storage take.
    pub fn numbers(storage: IndexStorage) -> u32 {
        match storage {
            IndexStorage::Memory => 0,
            IndexStorage::Pages | IndexStorage::Levels => 1,
            IndexStorage::Blocks(_) => 2,
        }
    }

    /// The file that has this name, taken for an index's only one; None for a name of other files.
    pub fn of_name(name: &str) -> Option<Self> {
        let pages = page_file_id(name).map(Self::Pages);
        pages.or_else(|| level_file_id(name).map(Self::Levels))
    }

    /// Its number.
    pub fn number(self) -> u32 {
        match self {
            Self::Pages(id) | Self::Blocks(id) => id.0,
            Self::Levels(id) => id.0,
        }
    }

    /// The number behind its own.
    pub fn next_number(self) -> u32 {
        let own = match self {
            Self::Pages(_) | Self::Levels(_) => 1,
            Self::Blocks(_) => 2,
        };
        self.number().saturating_add(own)
    }

    /// Whether an index with this storage may have it.
    pub fn is_of(self, storage: IndexStorage) -> bool {
        Self::new(storage, self.number()) == Some(self)
    }

    /// The page files that belong to it: the tree's, then that of its LIDBlocks.
    pub fn page_files(self) -> impl Iterator<Item = PageFileId> {
        let numbers = match self {
            Self::Pages(_) | Self::Blocks(_) => self.number()..self.next_number(),
            Self::Levels(_) => 0..0,
        };
        numbers.map(PageFileId)
    }

    /// The name of its first part: of a level file, or of a tree's page file.
    pub fn name(self) -> String {
        match self {
            Self::Pages(id) | Self::Blocks(id) => page_file_name(id),
            Self::Levels(id) => level_file_name(id),
        }
    }
}

/// The file of the LIDBlocks of a tree.
pub(crate) fn blocks_file(tree: PageFileId) -> PageFileId {
    PageFileId(tree.0.saturating_add(1))
}

impl IndexFile {
    /// The names of all its parts.
    pub fn names(self) -> impl Iterator<Item = String> {
        let parts = match self {
            Self::Pages(_) | Self::Blocks(_) => self.page_files().map(page_file_name).collect(),
            Self::Levels(_) => Vec::from(file_names(&self.name())),
        };
        parts.into_iter()
    }
}

impl IndexDef {
    /// Whether its entries are in a file.
    pub fn is_on_device(&self) -> bool {
        !self.storage.is_memory()
    }

    /// The file that it names.
    pub(crate) fn file(&self) -> Option<IndexFile> {
        IndexFile::new(self.storage, self.file_number?)
    }
}

impl TableDef {
    /// The definition with the files that `file_of` gives for the indexes on the device; None: it
    /// names them, and no others.
    pub(crate) fn naming_files(
        &self,
        file_of: impl Fn(&IndexDef) -> Option<IndexFile>,
    ) -> Option<Self> {
        let wanted = |def: &IndexDef| {
            let file = def.is_on_device().then(|| file_of(def)).flatten();
            let file = file.filter(|file| file.is_of(def.storage));
            file.map(IndexFile::number)
        };
        if self
            .readable_indexes()
            .all(|def| def.file_number == wanted(def))
        {
            return None;
        }
        let mut table = self.clone();
        let keys = table.keys.iter_mut().filter_map(|key| key.ordered.as_mut());
        for def in table.indexes.iter_mut().chain(keys) {
            let number = wanted(def);
            if def.file_number != number {
                Arc::make_mut(def).file_number = number;
            }
        }
        Some(table)
    }
}

impl Catalog {
    /// The same definitions without files; itself if it names none.
    pub(crate) fn without_index_files(self: &Arc<Self>) -> Arc<Self> {
        let mut catalog = self.clone();
        for (id, table) in &self.tables {
            if let Some(table) = table.naming_files(|_| None) {
                Arc::make_mut(&mut catalog)
                    .tables
                    .insert(*id, Arc::new(table));
            }
        }
        catalog
    }

    /// The files of all indexes.
    pub(crate) fn index_files(&self) -> BTreeSet<IndexFile> {
        self.index_files_of(|_| true)
    }

    /// The files of the indexes that an opening finds complete.
    pub(crate) fn finished_index_files(&self) -> BTreeSet<IndexFile> {
        self.index_files_of(|def| def.state == IndexState::Valid)
    }

    /// The name of the index with this file, and its table's, for messages.
    pub(crate) fn index_of_file(&self, file: IndexFile) -> String {
        self.index_whose(|own| own == file).unwrap_or_default()
    }

    /// The name of the index to which this page file belongs, and its table's, for messages.
    pub(crate) fn index_of_pages(&self, file: PageFileId) -> Option<String> {
        self.index_whose(|own| own.page_files().any(|own| own == file))
    }

    fn index_whose(&self, is_meant: impl Fn(IndexFile) -> bool) -> Option<String> {
        let mut tables = self.tables.values();
        tables.find_map(|table| {
            let mut defs = table.readable_indexes();
            let def = defs.find(|def| def.file().is_some_and(&is_meant))?;
            Some(format!("{}.{}: {}", table.schema, table.name, def.name))
        })
    }

    fn index_files_of(&self, is_meant: impl Fn(&IndexDef) -> bool) -> BTreeSet<IndexFile> {
        let tables = self.tables.values();
        let defs = tables.flat_map(|table| table.readable_indexes());
        defs.filter(|def| is_meant(def))
            .filter_map(|def| def.file())
            .collect()
    }
}
