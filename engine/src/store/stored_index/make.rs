//! New indexes: empty ones in memory or in a new file, ones whose file has their entries, and
//! those in the place of an index that cannot be used.

use super::{Kind, Ordered, Secondary, SecondaryOrder, StoredIndex};
use crate::catalog::index::{IndexDef, IndexMethod, IndexPart, IndexStorage};
use crate::catalog::index_file::IndexFile;
use crate::catalog::{KeyDef, TableDef};
use crate::expressions::RowExpressions;
use crate::index_files::{FileEntries, FileKeys, HeldFile};
use crate::store::Store;
use crate::store::dead_runs::DeadRuns;
use crate::store::key_hints::KeyHints;
use crate::store::key_of_row::KeyOfRow;
use crate::store::key_sweep::KeySweep;
use crate::store::moved_rows::MovedRows;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize as Counter; // counts bytes; no part of the protocol
use strandline_base::sync::AtomicBool;
use strandline_base::{ColumnId, Error, Result};
use strandline_index::{
    AccessMethod, MemoryIndex, OrderedIndex, OrderedKeys, PartOrder, UnusableIndex,
};

/// The entries of an index: the access method and its file.
pub(super) struct Entries {
    index: Arc<dyn AccessMethod>,
    file: Option<HeldFile>,
    /// there may be entries that nothing is known of
    are_old: bool,
}

impl Entries {
    fn in_memory(index: impl AccessMethod + 'static) -> Self {
        Self {
            index: Arc::new(index),
            file: None,
            are_old: false,
        }
    }

    fn in_file((index, file): FileEntries, are_old: bool) -> Self {
        Self {
            index,
            file: Some(file),
            are_old,
        }
    }

    /// No entries yet, of an ordered index or of one over boxes.
    fn new(store: &Store, storage: IndexStorage, keys: FileKeys) -> Result<Self> {
        match (storage, keys) {
            (IndexStorage::Memory, FileKeys::Ordered { parts, .. }) => {
                Ok(Self::in_memory(OrderedIndex::counted(parts, memory(store))))
            }
            (storage, keys) => {
                let created = store.index_files.create(storage, keys)?;
                Ok(Self::in_file(created, false))
            }
        }
    }

    /// Those of a file that the opening has found.
    fn of_file(store: &Store, file: IndexFile, keys: FileKeys) -> Result<Self> {
        let opened = store.index_files.open_index(file, keys)?;
        Ok(Self::in_file(opened, true))
    }

    fn unusable(failure: Error) -> Self {
        Self {
            are_old: true,
            ..Self::in_memory(UnusableIndex::new(failure))
        }
    }
}

fn memory(store: &Store) -> Arc<Counter> {
    store.lineage.pool().taken_bytes().clone()
}

/// The order of each part of an index's keys.
fn orders(def: &IndexDef) -> Vec<PartOrder> {
    let order = |part: &IndexPart| PartOrder {
        descending: part.descending,
        nulls_first: part.nulls_first,
    };
    def.parts.iter().map(order).collect()
}

/// The keys of a secondary index.
fn keys_of(def: &IndexDef) -> FileKeys {
    match def.method {
        IndexMethod::Spatial => FileKeys::Boxes,
        IndexMethod::Ordered | IndexMethod::Hash => FileKeys::Ordered {
            parts: orders(def),
            is_unique: def.unique,
        },
    }
}

/// The keys of a constraint's index.
fn keys_of_table(columns: &[ColumnId]) -> FileKeys {
    FileKeys::Ordered {
        parts: key_parts(columns),
        is_unique: true,
    }
}

impl SecondaryOrder {
    fn of(def: &IndexDef, store: &Store) -> Self {
        match def.method {
            IndexMethod::Spatial => Self::None(MovedRows::counted(memory(store))),
            IndexMethod::Ordered | IndexMethod::Hash => {
                Self::ByKey(Ordered::new(orders(def), store))
            }
        }
    }

    /// The same of an index without entries.
    fn emptied(&self, store: &Store) -> Self {
        match self {
            Self::None(_) => Self::None(MovedRows::counted(memory(store))),
            Self::ByKey(order) => Self::ByKey(Ordered::new(order.keys.parts().to_vec(), store)),
        }
    }
}

impl Ordered {
    fn new(parts: Vec<PartOrder>, store: &Store) -> Self {
        Self {
            keys: OrderedKeys::new(parts),
            moved_rows: MovedRows::counted(memory(store)),
            dead_runs: DeadRuns::default(),
            hints: KeyHints::counted(memory(store)),
        }
    }
}

impl StoredIndex {
    /// That of the table's constraints over exactly these columns, to be filled from the rows. It
    /// is ordered, and in a file, if one of them is.
    ///
    /// # Errors
    /// Those of creating a file.
    pub fn of_key(table: &TableDef, columns: &[ColumnId], store: &Store) -> Result<Arc<Self>> {
        let storage = table.storage_of_key(columns);
        if storage.is_memory() {
            return Ok(Self::key_in_memory(table, columns, store));
        }
        let entries = Entries::new(store, storage, keys_of_table(columns))?;
        Ok(Self::over_key(table, columns, store, entries, true))
    }

    /// As [`StoredIndex::of_key`], but in memory. Its memory is taken from the cache's.
    pub fn key_in_memory(table: &TableDef, columns: &[ColumnId], store: &Store) -> Arc<Self> {
        let known = store.key(columns);
        // A rollback may bring back a definition that is ordered.
        let is_ordered = table.orders_key(columns) || known.is_some_and(|key| key.is_ordered());
        let entries = match is_ordered {
            true => Entries::in_memory(OrderedIndex::counted(key_parts(columns), memory(store))),
            false => Entries::in_memory(MemoryIndex::counted(memory(store))),
        };
        Self::over_key(table, columns, store, entries, is_ordered)
    }

    /// A constraints' index with the entries that its file has.
    ///
    /// # Errors
    /// Those of opening the file: XX001 if it is damaged.
    pub fn key_of_file(
        table: &TableDef,
        columns: &[ColumnId],
        store: &Store,
        file: IndexFile,
    ) -> Result<Arc<Self>> {
        let entries = Entries::of_file(store, file, keys_of_table(columns))?;
        if let Some(sequences) = entries.index.sequences() {
            sequences.add(&store.opened_sequences(columns));
        }
        Ok(Self::over_key(table, columns, store, entries, true))
    }

    /// A constraints' index with the entries of this one, a secondary index over nothing but
    /// columns that is in a file. Nothing is known of these entries until they have been compared
    /// with their rows.
    ///
    /// # Errors
    /// XX000 if it is in memory.
    pub(crate) fn as_key(&self, table: &TableDef, store: &Store) -> Result<Arc<Self>> {
        let file = self.file.as_ref().map(HeldFile::again);
        let file = file.ok_or_else(|| Error::internal("an index in memory becomes a key's"))?;
        let entries = Entries::in_file((self.index.clone(), file), true);
        Ok(Self::over_key(table, &self.columns, store, entries, true))
    }

    fn over_key(
        table: &TableDef,
        columns: &[ColumnId],
        store: &Store,
        entries: Entries,
        is_ordered: bool,
    ) -> Arc<Self> {
        let order = is_ordered.then(|| Box::new(Ordered::new(key_parts(columns), store)));
        let index = Self {
            columns: columns.to_vec(),
            is_unique: true,
            nulls_are_equal: Self::has_equal_nulls(&table.keys, columns),
            ..Self::over(Kind::Constraint(order), entries, store)
        };
        Arc::new(index)
    }

    /// Whether a constraint over these columns has equal NULLs, so that NULLs have entries.
    pub fn has_equal_nulls(keys: &[KeyDef], columns: &[ColumnId]) -> bool {
        let mut same = keys.iter().filter(|key| key.columns == columns);
        same.any(|key| key.nulls_not_distinct)
    }

    /// A secondary index with nothing in it.
    ///
    /// # Errors
    /// Those of compiling its expressions; 0A000 if the database was opened without an evaluator;
    /// those of creating a file.
    pub fn secondary(
        table: &TableDef,
        def: &IndexDef,
        store: &Store,
        expressions: Option<&dyn RowExpressions>,
    ) -> Result<Arc<Self>> {
        let key = KeyOfRow::of(table, def, expressions)?;
        let entries = Entries::new(store, def.storage, keys_of(def))?;
        Ok(Self::over_secondary(def, key, entries, store))
    }

    /// A secondary index with the entries that its file has.
    ///
    /// # Errors
    /// Those of compiling its expressions and of opening the file: XX001 if it is damaged.
    pub fn secondary_of_file(
        table: &TableDef,
        def: &IndexDef,
        store: &Store,
        (file, expressions): (IndexFile, Option<&dyn RowExpressions>),
    ) -> Result<Arc<Self>> {
        let key = KeyOfRow::of(table, def, expressions)?;
        let entries = Entries::of_file(store, file, keys_of(def))?;
        Ok(Self::over_secondary(def, key, entries, store))
    }

    /// In the place of a secondary index whose build ended with `failure`. Its key is not computed:
    /// `failure` may be that its expressions do not compile.
    pub fn unusable_secondary(def: &IndexDef, store: &Store, failure: Error) -> Arc<Self> {
        Self::over_secondary(def, None, Entries::unusable(failure), store)
    }

    fn over_secondary(
        def: &IndexDef,
        key: Option<KeyOfRow>,
        entries: Entries,
        store: &Store,
    ) -> Arc<Self> {
        let secondary = Secondary {
            id: def.id,
            key,
            order: SecondaryOrder::of(def, store),
        };
        Arc::new(Self {
            columns: def.key_columns(),
            is_unique: def.unique,
            nulls_are_equal: def.nulls_not_distinct,
            ..Self::over(Kind::Secondary(Box::new(secondary)), entries, store)
        })
    }

    /// In the place of this index, which cannot be used because of `failure`.
    pub fn made_unusable(&self, store: &Store, failure: Error) -> Arc<Self> {
        let kind = match &self.kind {
            Kind::Constraint(_) => Kind::Constraint(None),
            Kind::Secondary(secondary) => Kind::Secondary(Box::new(Secondary {
                id: secondary.id,
                key: None,
                order: secondary.order.emptied(store),
            })),
        };
        Arc::new(Self {
            columns: self.columns.clone(),
            is_unique: self.is_unique,
            nulls_are_equal: self.nulls_are_equal,
            ..Self::over(kind, Entries::unusable(failure), store)
        })
    }

    /// The part that all indexes have in common.
    fn over(kind: Kind, entries: Entries, store: &Store) -> Self {
        let index = Self {
            columns: Vec::new(),
            index: entries.index,
            kind,
            is_unique: false,
            nulls_are_equal: false,
            moved: AtomicBool::new(entries.are_old),
            is_filling: AtomicBool::new(false),
            sweep: KeySweep::counted(memory(store)),
            file: entries.file,
        };
        if let Some(moved) = index.moved_rows().filter(|_| entries.are_old) {
            moved.note_unknown();
        }
        index
    }
}

/// The order of the parts of a key's ordered index.
fn key_parts(columns: &[ColumnId]) -> Vec<PartOrder> {
    vec![PartOrder::default(); columns.len()]
}
