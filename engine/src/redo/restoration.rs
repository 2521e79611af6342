//! A database during recovery: the manifest's state, then the log's changes.

use crate::catalog::TableDef;
use crate::catalog::identity::Identities;
use crate::catalog::versions::Version;
use crate::index_files::IndexFiles;
use crate::manifest_state::{ManifestState, RangeEntry};
use crate::store::{Shared, Store, StoredIndex, TableStore, storage_schema};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use strandline_base::{ColumnId, RangeNo, Result, StorageId};
use strandline_storage::file::data_file::DataFile;
use strandline_tail::schema::StorageSchema;

/// The database during recovery; see the module's documentation.
pub(crate) struct Restoration {
    /// state shared by all storages
    pub shared: Shared,
    pub index_files: Arc<IndexFiles>,
    /// the storages
    pub stores: BTreeMap<StorageId, Arc<Store>>,
    /// chunk files that have ranges
    pub files: BTreeMap<u64, Arc<DataFile>>,
    /// the counters of identity columns
    pub identities: Identities,
    /// catalog versions, oldest first
    pub catalogs: Vec<Version>,
    /// the columns of each storage in the manifest
    columns: BTreeMap<StorageId, Arc<StorageSchema>>,
    /// storages that only old catalog versions have
    forgotten: BTreeSet<StorageId>,
}

impl Restoration {
    /// The definitions and counters of the manifest, with empty storages.
    pub fn new(shared: Shared, index_files: Arc<IndexFiles>, state: &ManifestState) -> Self {
        let columns = state.storages.iter();
        let columns = columns.map(|(id, s)| (*id, StorageSchema::new(s.columns.clone())));
        let mut restoration = Self {
            shared,
            index_files,
            stores: BTreeMap::new(),
            files: BTreeMap::new(),
            identities: Identities::recovered(&state.identities),
            catalogs: state.catalogs.clone(),
            columns: columns.collect(),
            forgotten: state.forgotten.clone(),
        };
        let mut before: Option<&Version> = None;
        for version in &state.catalogs {
            let is_known = |table: &&Arc<TableDef>| {
                let old = before.and_then(|(_, before)| before.tables.get(&table.id));
                old.is_some_and(|old| Arc::ptr_eq(old, table))
            };
            let tables = version.1.tables.values();
            restoration.adopt(tables.filter(|table| !is_known(table)));
            before = Some(version);
        }
        restoration
    }

    /// Creates the storages of tables that are new or changed in a catalog version. Later versions
    /// have at least the columns of earlier ones. Indexes in files are opened later, when the
    /// newest definitions are known.
    pub fn adopt<'a>(&mut self, tables: impl Iterator<Item = &'a Arc<TableDef>>) {
        for table in tables {
            match self.stores.get(&table.storage) {
                None if self.forgotten.contains(&table.storage) => {}
                None => {
                    let before = self.columns.get(&table.storage);
                    let before = before.map(AsRef::as_ref);
                    let shared = (&self.shared, &self.index_files);
                    let store = Store::new(table, before, shared, None);
                    let keys = table.keys.iter();
                    keys.for_each(|key| {
                        store.put_index(StoredIndex::key_in_memory(table, &key.columns, &store))
                    });
                    self.stores.insert(table.storage, store);
                }
                Some(store) => {
                    let schema = store.rows().schema();
                    if schema.len() < table.next_column as usize {
                        let grown = storage_schema(table, Some(&schema));
                        store.rows().set_schema(grown);
                    }
                    for key in &table.keys {
                        // An index where NULLs are equal has entries that others lack; it is filled
                        // later.
                        let nulls = StoredIndex::has_equal_nulls(&table.keys, &key.columns);
                        let known = store.key(&key.columns);
                        let lacks = |known: Arc<StoredIndex>| {
                            (nulls && !known.nulls_are_equal())
                                || (key.ordered.is_some() && !known.is_ordered())
                        };
                        if known.is_none_or(lacks) {
                            store.put_index(StoredIndex::key_in_memory(table, &key.columns, store));
                        }
                    }
                }
            }
        }
    }

    /// The newest definition of the table with a storage; None: it has been dropped.
    pub fn newest_with(&self, storage: StorageId) -> Option<&Arc<TableDef>> {
        let newest = self.catalogs.last().map(|(_, newest)| newest);
        let mut tables = newest.into_iter().flat_map(|newest| newest.tables.values());
        tables.find(|table| table.storage == storage)
    }

    /// The index of a key in words, by the constraints that have it.
    pub fn key_name(&self, storage: StorageId, columns: &[ColumnId]) -> String {
        let newest = self.catalogs.last().map(|(_, newest)| newest);
        let tables = newest.iter().flat_map(|newest| newest.tables.values());
        let keys = tables
            .filter(|t| t.storage == storage)
            .flat_map(|t| &t.keys);
        let names = keys.filter(|key| key.columns == columns);
        let names: Vec<_> = names.map(|key| format!("\"{}\"", key.name)).collect();
        match names.is_empty() {
            true => "an index of a key that was dropped".into(),
            false => format!("the index of constraint {}", names.join(" and ")),
        }
    }

    /// Creates a range from chunks, whose files are opened when they are read.
    pub fn restore_base(&mut self, store: &Store, no: RangeNo, entry: &RangeEntry) -> Result<()> {
        let (known, files) = (&mut self.files, &self.shared.files);
        store.restore_base(&entry.based(no), &mut |id| {
            let existing = || DataFile::existing(files, id);
            known.entry(id).or_insert_with(existing).clone()
        })
    }
}
