//! The page files that definitions of indexes name.

use crate::catalog::index::{IndexDef, IndexState, IndexStorage};
use crate::catalog::{Catalog, TableDef};
use std::collections::BTreeSet;
use std::sync::Arc;
use strandline_storage::pages::PageFileId;

impl IndexDef {
    /// Whether its entries are on pages.
    pub fn is_on_pages(&self) -> bool {
        self.storage == IndexStorage::Pages
    }
}

impl TableDef {
    /// The definition with the page files that `file_of` gives for the indexes on pages; None: it
    /// names them, and no others.
    pub(crate) fn naming_files(&self, file_of: impl Fn(&IndexDef) -> Option<u32>) -> Option<Self> {
        let wanted = |def: &IndexDef| def.is_on_pages().then(|| file_of(def)).flatten();
        if self
            .readable_indexes()
            .all(|def| def.page_file == wanted(def))
        {
            return None;
        }
        let mut table = self.clone();
        let keys = table.keys.iter_mut().filter_map(|key| key.ordered.as_mut());
        for def in table.indexes.iter_mut().chain(keys) {
            let page_file = wanted(def);
            if def.page_file != page_file {
                Arc::make_mut(def).page_file = page_file;
            }
        }
        Some(table)
    }
}

impl Catalog {
    /// The same definitions without page files; itself if it names none.
    pub(crate) fn without_page_files(self: &Arc<Self>) -> Arc<Self> {
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

    /// The page files of all indexes.
    pub(crate) fn page_files(&self) -> BTreeSet<PageFileId> {
        self.page_files_of(|_| true)
    }

    /// The page files of the indexes that an opening finds complete.
    pub(crate) fn finished_page_files(&self) -> BTreeSet<PageFileId> {
        self.page_files_of(|def| def.state == IndexState::Valid)
    }

    /// The name of the index with this file, and its table's, for messages.
    pub(crate) fn index_of_file(&self, file: PageFileId) -> String {
        let mut tables = self.tables.values();
        let found = tables.find_map(|table| {
            let mut defs = table.readable_indexes();
            let def = defs.find(|def| def.page_file == Some(file.0))?;
            Some(format!("{}.{}: {}", table.schema, table.name, def.name))
        });
        found.unwrap_or_default()
    }

    fn page_files_of(&self, is_meant: impl Fn(&IndexDef) -> bool) -> BTreeSet<PageFileId> {
        let tables = self.tables.values();
        let defs = tables.flat_map(|table| table.readable_indexes());
        let files = defs
            .filter(|def| is_meant(def))
            .filter_map(|def| def.page_file);
        files.map(PageFileId).collect()
    }
}
