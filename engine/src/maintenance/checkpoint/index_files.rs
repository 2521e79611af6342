//! The files of indexes in a checkpoint.
//!
//! Their changed pages, or their images, are written before the manifest's edit, which moves the
//! start of their replay. A file that cannot be written keeps the start where it is, and so the
//! log. A file that was closed (by a failed sync) keeps nothing: the edit names it as *lost*, then
//! its index is unusable, and writers pass it over. Unused files are removed after the edit.

use super::moment::Moment;
use super::parts::Parts;
use crate::catalog::TableDef;
use crate::catalog::index_file::IndexFile;
use crate::db::Db;
use crate::db::set_aside::Work;
use crate::maintenance::effort::Effort;
use crate::maintenance::reserve::is_full_disk;
use crate::maintenance::set_aside::contained;
use crate::manifest_state::{IndexFilesState, ManifestState};
use crate::store::{Store, StoredIndex};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use strandline_base::{CommitTs, Error, Result, StorageId};

impl Db {
    /// Writes the changes of all files; returns what the manifest is to say of the files.
    ///
    /// # Errors
    /// Those of the log. The failure of one file is noted with its table.
    pub(super) fn store_index_files(
        &self,
        parts: &mut Parts,
        state: &ManifestState,
        effort: Effort,
    ) -> Result<Option<IndexFilesState>> {
        let files = &self.index_files;
        if files.next() == 1 && state.index_files.is_none() {
            return Ok(None);
        }
        let mut redo_from = state.indexes_from();
        let known = state.index_files.as_ref();
        let mut levels = known.map_or_else(BTreeMap::new, |known| known.levels.clone());
        if effort != Effort::DropsOnly {
            let outcome = contained(|| files.checkpoint())?;
            // The manifest may name no position that a crash could cut off.
            self.wal.wait_durable(outcome.redo_from)?;
            if outcome.failed.is_empty() {
                redo_from = outcome.redo_from.0;
            }
            let failed = outcome.failed.iter().map(|(file, _)| file.number());
            let failed: BTreeSet<u32> = failed.collect();
            // A file that was not stored keeps its older position, and the log.
            levels.retain(|file, _| failed.contains(file));
            levels.extend(outcome.levels);
            self.note_files(parts, &outcome.failed);
        }
        Ok(Some(IndexFilesState {
            redo_from,
            next: files.next(),
            levels,
            lost: files.lost().into_keys().map(IndexFile::number).collect(),
            // Behind the positions from which on the log is kept.
            swept_from: files.swept_from(|storage| self.any_store(storage).is_ok()),
            is_cached: files.has_lasting_cache(),
        }))
    }

    /// Notes the files that could not be written, and those that work again.
    fn note_files(&self, parts: &mut Parts, failed: &[(IndexFile, Error)]) {
        let mut failing: BTreeSet<StorageId> = BTreeSet::new();
        for (file, failure) in failed {
            if is_full_disk(failure) {
                parts.no_room.get_or_insert(failure.clone());
            } else {
                parts.behind.get_or_insert(failure.clone());
            }
            if let Some((store, _)) = self.index_of(*file) {
                failing.insert(store.id());
                self.note_work(&store, Work::StoreIndexes, Err(failure));
            }
        }
        for ((storage, work), _) in self.set_aside.all() {
            if work == Work::StoreIndexes
                && !failing.contains(&storage)
                && let Ok(store) = self.any_store(storage)
            {
                self.note_work(&store, work, Ok(()));
            }
        }
    }

    /// The index in memory that has a file, and its storage.
    pub(crate) fn index_of(&self, file: IndexFile) -> Option<(Arc<Store>, Arc<StoredIndex>)> {
        let stores = self.stores.read();
        stores.values().find_map(|store| {
            let mut indexes = store.indexes().into_iter();
            let index = indexes.find(|index| index.file() == Some(file))?;
            Some((store.clone(), index))
        })
    }

    /// Makes the indexes of lost files unusable that the manifest names. A rollback calls it, too,
    /// when it has brought back indexes in files.
    pub(crate) fn give_up_lost_files(&self) {
        for (file, cause) in self.index_files.lost_named() {
            let Some((store, index)) = self.index_of(file) else {
                continue;
            };
            let failure = lost(&self.index_name(&store, &index), &cause);
            // A REINDEX may have replaced it meanwhile.
            if store.replace_index(&index, &index.made_unusable(&store, failure.clone())) {
                self.note_unrestored(store.id(), Work::BuildIndexes, &failure);
            }
        }
    }

    /// The name of an index that has a file.
    pub(crate) fn index_name(&self, store: &Store, index: &StoredIndex) -> String {
        let catalog = self.catalog();
        let mut tables = catalog.tables.values();
        let table = tables.find(|table| table.storage == store.id());
        let is_meant = |table: &Arc<TableDef>| {
            let mut defs = table.readable_indexes();
            let def = defs.find(|def| match index.id() {
                Some(id) => def.id == id,
                None => def.is_on_device() && def.key_columns() == index.columns,
            });
            def.map(|def| def.name.clone())
        };
        table.and_then(is_meant).unwrap_or_default()
    }

    /// Removes the files that no index in memory has and no opening will look for.
    pub(super) fn remove_unused_files(&self, moment: &Moment) {
        if !self.index_files.has_unused() {
            return;
        }
        // An opening finds the version of the checkpoint or a later one.
        let versions = self.catalogs.through(CommitTs::MAX);
        let newest = versions.partition_point(|(from, _)| *from <= moment.through);
        let found = versions.iter().skip(newest.saturating_sub(1));
        let named = found.flat_map(|(_, catalog)| catalog.index_files());
        self.index_files.remove_unused(&named.collect());
    }
}

/// The error of an index whose file is lost.
fn lost(index: &str, cause: &Error) -> Error {
    let what = format!("its file lacks changes: {}", cause.message());
    Error::corrupt(format!("index \"{index}\""), what).with_hint(
        "REINDEX builds the index again, and so does the next opening of the database. Check the \
         device first.",
    )
}
