//! Opening the indexes on pages.
//!
//! 1. The files that the newest catalog does not name for a finished index are removed, the others
//!    are opened.
//! 2. The log's records of pages are replayed. They lie from the position of the last checkpoint of
//!    the files on, and are durable: opening the log has seen to that. The pages that they change
//!    are read ahead, if they have left memory since their image.
//! 3. An index has the entries of its file. An index whose file is missing, lost or damaged is
//!    built from the rows, in a new file.
//! 4. A transaction makes the definitions name the files that are in use. Only after it may there
//!    be writers, so no definition names a file that writers have passed over. Without room for it
//!    these files are removed, and a definition names a file that is missing.

use super::page_records::PageRecords;
use super::restore::Recovery;
use crate::catalog::index::IndexDef;
use crate::catalog::{Catalog, TableDef};
use crate::db::Db;
use crate::expressions::RowExpressions;
use crate::maintenance::reserve::is_full_disk;
use crate::manifest_state::ManifestState;
use crate::settings::TxnOptions;
use crate::store::index_build::{Unobserved, fill};
use crate::store::{Store, StoredIndex};
use std::collections::BTreeSet;
use std::sync::Arc;
use strandline_base::{Error, Result};
use strandline_device::Device;
use strandline_storage::pages::{PageFileId, file_of_record, page_file_name};
use strandline_storage::wal::{Lsn, Wal};
use strandline_txn::StartWord;
use tracing::{error, warn};

impl Recovery {
    /// Steps 1 and 2.
    pub fn open_index_files(
        &mut self,
        device: &dyn Device,
        wal: &Arc<Wal>,
        state: &ManifestState,
    ) -> Result<()> {
        let files = self.database.index_files.clone();
        files.attach(wal);
        let known = state.index_files.clone().unwrap_or_default();
        files.raise_next(known.next);
        for (storage, from) in &known.swept_from {
            files.recover_sweep(*storage, *from);
        }
        // What sweeps have removed is not offered again, also if the history is longer now.
        for (storage, from) in files.swept_from(|_| true) {
            if let Some(store) = self.database.stores.get(&storage) {
                store.raise_kept_from(from);
            }
        }
        let newest = self.database.catalogs.last();
        let mut named =
            newest.map_or_else(BTreeSet::new, |(_, newest)| newest.finished_page_files());
        for file in named.extract_if(.., |file| known.lost.contains(&file.0)) {
            let what = "its pages could not be stored before the database was closed";
            files.note_lost(file, Error::corrupt(page_file_name(file), what));
        }
        for (file, failure) in files.open(device, &named)? {
            let index = newest.map_or_else(String::new, |(_, newest)| newest.index_of_file(file));
            error!(
                file = file.0,
                index,
                "a page file cannot be opened, and its index is built from the rows: {failure}"
            );
            named.remove(&file);
        }
        self.page_files = named;
        let records = std::mem::replace(&mut self.page_records, PageRecords::new(Lsn(0), 0));
        let mut redo = files.redo();
        records.visit(wal, &mut |end, record| {
            files.raise_next(file_of_record(&record)?.0.saturating_add(1));
            redo.push(record, end)?;
            files.make_step_of_replay();
            Ok(())
        })?;
        redo.finish();
        Ok(())
    }

    fn opened(&self, file: Option<u32>) -> Option<PageFileId> {
        let file = file.map(PageFileId);
        file.filter(|file| self.page_files.contains(file))
    }

    /// Step 3 of a secondary index. None: it is to be built.
    pub(super) fn secondary_of_file(
        &self,
        table: &TableDef,
        def: &IndexDef,
        store: &Store,
        expressions: Option<&dyn RowExpressions>,
    ) -> Option<Arc<StoredIndex>> {
        let file = self.opened(def.page_file).filter(|_| def.is_on_pages())?;
        let index = StoredIndex::secondary_of_file(table, def, store, (file, expressions));
        index.map_err(|cause| note_unopened(&def.name, &cause)).ok()
    }

    /// Step 3 of a constraint's index, of which `key` is one in memory.
    pub(super) fn key_on_pages(
        &self,
        table: &TableDef,
        key: &StoredIndex,
        store: &Arc<Store>,
    ) -> Result<()> {
        let mut defs = table.ordered_defs(&key.columns);
        let def = defs.find(|def| self.opened(def.page_file).is_some());
        if let Some(def) = def
            && let Some(file) = self.opened(def.page_file)
        {
            match StoredIndex::key_of_file(table, &key.columns, store, file) {
                Ok(index) => {
                    store.put_index(index);
                    return Ok(());
                }
                Err(cause) => note_unopened(&def.name, &cause),
            }
        }
        let index = StoredIndex::of_key(table, &key.columns, store)?;
        fill(store, &index, StartWord(0), self.threads, &Unobserved)?;
        store.put_index(index);
        Ok(())
    }
}

fn note_unopened(index: &str, cause: &Error) {
    error!(
        index,
        sqlstate = cause.sqlstate().0,
        "the page file of an index cannot be used, and the index is built from the rows: {cause}"
    );
}

impl Db {
    /// Step 4. On a full disk the files that are passed over are removed instead, so that the next
    /// opening builds their indexes again.
    ///
    /// # Errors
    /// Those of a commit but for a full disk, and those of removing a file; then the definitions
    /// name files that are not in use, and the database is not opened.
    pub(super) fn name_opened_files(self: &Arc<Self>) -> Result<()> {
        if !self.has_unnamed_files()? {
            return Ok(());
        }
        match self.commit_file_names() {
            Err(error) if is_full_disk(&error) => self.remove_passed_over()?,
            outcome => return outcome,
        }
        // There may be room now.
        match self.commit_file_names() {
            Err(error) if is_full_disk(&error) => {
                self.give_up_reserve();
                warn!(
                    "the disk is full: indexes on pages that this opening has built, or could not \
                     build, are built again by the next one: {error}"
                );
                Ok(())
            }
            outcome => outcome,
        }
    }

    fn commit_file_names(self: &Arc<Self>) -> Result<()> {
        let txn = self.begin(TxnOptions::default())?;
        txn.change_catalog(&mut |catalog| self.name_page_files(None, catalog))?;
        txn.commit().map(|_| ())
    }

    /// Removes the files that definitions name and that no index in memory has.
    fn remove_passed_over(&self) -> Result<()> {
        let catalog = self.catalog();
        let mut renamed = Catalog::clone(&catalog);
        self.name_page_files(None, &mut renamed)?;
        let named = renamed.page_files();
        self.index_files.remove_unused(&named);
        let found = self.device().list()?;
        for file in catalog.page_files().difference(&named) {
            let name = page_file_name(*file);
            if found.contains(&name) {
                self.index_files.forget(*file);
                self.device().remove(&name)?;
            }
        }
        self.device().sync_directory()
    }
}
