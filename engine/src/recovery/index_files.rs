//! Opening the indexes in files.
//!
//! 1. The files that the newest catalog does not name for a finished index are removed, the others
//!    are opened.
//! 2. The log's records of pages are replayed. They lie from the position of the last checkpoint of
//!    the files on, and are durable: opening the log has seen to that. The pages that they change
//!    are read ahead, if they have left memory since their image.
//! 3. An index has the entries of its file. An index in levels gets those of the noted rows again
//!    (`noted_rows`). An index whose file is missing, lost or damaged is built from the rows, in a
//!    new file. An opening that only looks leaves the index unusable and the file where it is: a
//!    checkpoint names it as lost.
//! 4. A transaction makes the definitions name the files that are in use. Only after it may there
//!    be writers, so no definition names a file that writers have passed over. Without room for it
//!    these files are removed, and a definition names a file that is missing.
//!
//! The rows of a table that cannot be restored cannot be noted for a later opening. So the table's
//! indexes in levels are lost, and built by the opening that restores it.

use super::page_records::PageRecords;
use super::restore::Recovery;
use crate::catalog::index::IndexDef;
use crate::catalog::index_file::IndexFile;
use crate::catalog::{Catalog, TableDef};
use crate::db::Db;
use crate::expressions::RowExpressions;
use crate::index_files::WantedLevels;
use crate::maintenance::reserve::is_full_disk;
use crate::manifest_state::ManifestState;
use crate::settings::TxnOptions;
use crate::store::index_build::{Unobserved, fill, refill};
use crate::store::{Store, StoredIndex};
use std::collections::BTreeSet;
use std::sync::Arc;
use strandline_base::{Error, Result};
use strandline_device::Device;
use strandline_storage::pages::file_of_record;
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
        files.recover_wanted(WantedLevels {
            known: known.levels,
            others: state.indexes_from().saturating_add(1),
        });
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
            newest.map_or_else(BTreeSet::new, |(_, newest)| newest.finished_index_files());
        let is_lost = |file: &IndexFile| known.lost.contains(&file.number());
        let lost: BTreeSet<IndexFile> = named.extract_if(.., is_lost).collect();
        for file in &lost {
            let what = "its entries could not be stored before the database was closed";
            files.note_lost(*file, Error::corrupt(file.name(), what));
        }
        for (file, failure) in files.open(device, &named, &lost)? {
            named.remove(&file);
            if self.only_looks {
                files.note_lost(file, failure);
                continue;
            }
            let index = newest.map_or_else(String::new, |(_, newest)| newest.index_of_file(file));
            error!(
                file = file.name(),
                index, "a file cannot be opened, and its index is built from the rows: {failure}"
            );
        }
        self.index_files = named;
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

    fn opened(&self, def: &IndexDef) -> Option<IndexFile> {
        let file = def.file();
        file.filter(|file| self.index_files.contains(file))
    }

    /// Adds the entries of noted rows to an index that has been opened. How many rows there were.
    fn enter_noted(&self, store: &Store, index: &StoredIndex) -> Result<u64> {
        match index.file() {
            Some(IndexFile::Levels(_)) => {
                let entered = refill(store, index, self.noted_rows.of(store.id()))?;
                index.set_complete();
                Ok(entered)
            }
            _ => Ok(0),
        }
    }

    /// Loses the indexes in levels of a table that cannot be restored.
    pub(super) fn give_up_levels(&self, table: &TableDef) {
        let files = table.readable_indexes().filter_map(|def| self.opened(def));
        for file in files.filter(|file| matches!(file, IndexFile::Levels(_))) {
            let what = "it lacks entries, since its table could not be restored";
            let files = &self.database.index_files;
            files.note_lost(file, Error::corrupt(file.name(), what));
        }
    }

    /// The index that `open` makes of the file of its definition, and the number of rows that were
    /// entered again. None: it is to be built.
    ///
    /// # Errors
    /// Those of the file, if the opening only looks.
    fn index_of_file(
        &self,
        def: &IndexDef,
        store: &Store,
        open: impl FnOnce(IndexFile) -> Result<Arc<StoredIndex>>,
    ) -> Result<Option<(Arc<StoredIndex>, u64)>> {
        let files = &self.database.index_files;
        let failed = match self.opened(def) {
            Some(file) => {
                let opened = open(file).and_then(|index| {
                    let entered = self.enter_noted(store, &index)?;
                    Ok((index, entered))
                });
                match opened {
                    Ok(opened) => return Ok(Some(opened)),
                    Err(cause) => Some((file, cause)),
                }
            }
            // The others have been told.
            None => {
                let file = def.file().filter(|_| self.only_looks);
                file.and_then(|file| files.lost().remove_entry(&file))
            }
        };
        match failed {
            Some((file, cause)) if self.only_looks => {
                files.note_lost(file, cause.clone());
                Err(cause.context(format!(
                    "file \"{}\" cannot be used, and an ordinary opening builds the index from \
                     the rows",
                    file.name()
                )))
            }
            Some((_, cause)) => {
                note_unopened(&def.name, &cause);
                Ok(None)
            }
            None => Ok(None),
        }
    }

    /// Step 3 of a secondary index, with the number of rows that were entered again. None: it is to
    /// be built.
    ///
    /// # Errors
    /// Those of its file, if the opening only looks.
    pub(super) fn secondary_of_file(
        &self,
        table: &TableDef,
        def: &IndexDef,
        store: &Store,
        expressions: Option<&dyn RowExpressions>,
    ) -> Result<Option<(Arc<StoredIndex>, u64)>> {
        self.index_of_file(def, store, |file| {
            StoredIndex::secondary_of_file(table, def, store, (file, expressions))
        })
    }

    /// Step 3 of a constraint's index, of which `key` is one in memory. Returns the number of rows
    /// that were entered again.
    pub(super) fn key_in_file(
        &self,
        table: &TableDef,
        key: &StoredIndex,
        store: &Arc<Store>,
    ) -> Result<u64> {
        let mut defs: Vec<&IndexDef> = table.ordered_defs(&key.columns).collect();
        defs.sort_by_key(|def| self.opened(def).is_none());
        if let Some(def) = defs.first() {
            let open = |file| StoredIndex::key_of_file(table, &key.columns, store, file);
            if let Some((index, entered)) = self.index_of_file(def, store, open)? {
                store.put_index(index);
                return Ok(entered);
            }
        }
        let index = StoredIndex::of_key(table, &key.columns, store)?;
        fill(store, &index, StartWord(0), self.threads, &Unobserved)?;
        store.put_index(index);
        Ok(0)
    }
}

fn note_unopened(index: &str, cause: &Error) {
    error!(
        index,
        sqlstate = cause.sqlstate().0,
        "the file of an index cannot be used, and the index is built from the rows: {cause}"
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
                self.give_up_reserve(&error);
                warn!(
                    "the disk is full: indexes in files that this opening has built, or could not \
                     build, are built again by the next one: {error}"
                );
                Ok(())
            }
            outcome => outcome,
        }
    }

    fn commit_file_names(self: &Arc<Self>) -> Result<()> {
        let txn = self.begin_own(TxnOptions::default())?;
        txn.change_catalog(&mut |catalog| self.name_index_files(None, catalog))?;
        txn.commit().map(|_| ())
    }

    /// Removes the files that definitions name and that no index in memory has.
    fn remove_passed_over(&self) -> Result<()> {
        let catalog = self.catalog();
        let mut renamed = Catalog::clone(&catalog);
        self.name_index_files(None, &mut renamed)?;
        let named = renamed.index_files();
        self.index_files.remove_unused(&named);
        let found = self.device().list()?;
        for file in catalog.index_files().difference(&named) {
            self.index_files.forget(*file);
            for name in file.names().filter(|name| found.contains(name)) {
                self.device().remove(&name)?;
            }
        }
        self.device().sync_directory()
    }
}
