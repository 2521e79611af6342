//! Keys whose index is ordered. Such an index serves the key's prefixes, ranges and orders as a
//! secondary index does, so readers get an [`IndexDef`] of it.
//!
//! Invariant: the definition of an ordered key's index has a number of its own among the table's
//! indexes, and the name, columns and NULLs of its key. [`Catalog::link_ordered_keys`] restores it
//! after each change of definitions. An ordered index has entries for keys with NULL as well.

use crate::catalog::index::{
    IndexDef, IndexId, IndexMethod, IndexPart, IndexState, IndexStorage, IndexValue,
};
use crate::catalog::{Catalog, KeyDef, TableDef};
use std::collections::BTreeMap;
use std::sync::Arc;
use strandline_base::{ColumnId, CommitTs};

/// The number of an index that has none yet.
const UNNUMBERED: IndexId = IndexId(u32::MAX);

/// The index of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyIndex {
    /// a hash of the whole key
    Hash,
    /// an ordered index in memory
    Ordered,
    /// an ordered index on the pages of a file
    Btree,
    /// an ordered index in the levels of a file
    FdTree,
}

impl KeyIndex {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Hash, Self::Ordered, Self::Btree, Self::FdTree];

    /// Its word as a value of `key_index`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Hash => "hash",
            Self::Ordered => "ordered",
            Self::Btree => "btree",
            Self::FdTree => "fdtree",
        }
    }

    /// The index that a word of `key_index` means; None: there is no such word.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|index| index.word() == word)
    }

    /// Whether it is in memory.
    pub fn is_in_memory(self) -> bool {
        self.storage().is_memory()
    }

    fn method(self) -> IndexMethod {
        match self {
            Self::Hash => IndexMethod::Hash,
            Self::Ordered | Self::Btree | Self::FdTree => IndexMethod::Ordered,
        }
    }

    fn storage(self) -> IndexStorage {
        match self {
            Self::Hash | Self::Ordered => IndexStorage::Memory,
            Self::Btree => IndexStorage::Pages,
            Self::FdTree => IndexStorage::Levels,
        }
    }
}

impl KeyDef {
    /// This key with such an index. An ordered one of the same storage stays the one it is.
    #[must_use]
    pub fn with_index(mut self, index: KeyIndex) -> Self {
        if index == KeyIndex::Hash {
            self.ordered = None;
            return self;
        }
        let storage = index.storage();
        let is_one = |known: &Arc<IndexDef>| known.storage == storage;
        match self.ordered.as_ref().is_some_and(is_one) {
            true => self,
            false => self.with_ordered_index(storage),
        }
    }

    /// This key with an ordered index.
    #[must_use]
    pub fn with_ordered_index(mut self, storage: IndexStorage) -> Self {
        let def = IndexDef {
            storage,
            ..self.index_def(UNNUMBERED)
        };
        self.ordered = Some(Arc::new(def));
        self
    }

    fn index_def(&self, id: IndexId) -> IndexDef {
        let part = |id: &ColumnId| IndexPart {
            value: IndexValue::Column(*id),
            descending: false,
            nulls_first: false,
            operator_class: None,
        };
        IndexDef {
            id,
            name: self.name.clone(),
            method: IndexMethod::Ordered,
            parts: self.columns.iter().map(part).collect(),
            include: Vec::new(),
            unique: true,
            nulls_not_distinct: self.nulls_not_distinct,
            predicate: None,
            state: IndexState::Valid,
            complete_since: CommitTs::ZERO,
            options: BTreeMap::new(),
            comment: None,
            storage: IndexStorage::default(),
            stays_in_memory: false,
            was_moved: false,
            file_number: None,
        }
    }

    /// The definition that its ordered index must have but has not.
    fn mended_index(&self, next: u32) -> Option<IndexDef> {
        let known = self.ordered.as_ref()?;
        let id = match known.id {
            UNNUMBERED => IndexId(next),
            id => id,
        };
        let wanted = IndexDef {
            complete_since: known.complete_since,
            storage: known.storage,
            file_number: known.file_number,
            ..self.index_def(id)
        };
        (**known != wanted).then_some(wanted)
    }
}

impl TableDef {
    /// The index of the keys that are added; None: the table has been defined without one.
    pub fn key_index(&self) -> Option<KeyIndex> {
        let wanted = (self.key_index?, self.key_storage);
        let mut all = KeyIndex::ALL.into_iter();
        all.find(|index| (index.method(), index.storage()) == wanted)
    }

    /// Sets the index of the keys that are added.
    pub fn set_key_index(&mut self, index: KeyIndex) {
        self.key_index = Some(index.method());
        self.key_storage = index.storage();
    }

    /// The indexes that readers may walk over: the secondary ones and those of ordered keys.
    pub fn readable_indexes(&self) -> impl Iterator<Item = &Arc<IndexDef>> {
        let keys = self.keys.iter().filter_map(|key| key.ordered.as_ref());
        self.indexes.iter().chain(keys)
    }

    /// The ordered key whose index has this number.
    pub(crate) fn ordered_key(&self, id: IndexId) -> Option<&KeyDef> {
        let has_id = |key: &&KeyDef| key.ordered.as_ref().is_some_and(|index| index.id == id);
        self.keys.iter().find(has_id)
    }

    /// The definitions of the ordered indexes that keys over exactly these columns have.
    pub(crate) fn ordered_defs(&self, columns: &[ColumnId]) -> impl Iterator<Item = &IndexDef> {
        let same = self.keys.iter().filter(move |key| key.columns == columns);
        same.filter_map(|key| key.ordered.as_deref())
    }

    /// Whether a key over exactly these columns is ordered.
    pub(crate) fn orders_key(&self, columns: &[ColumnId]) -> bool {
        self.ordered_defs(columns).next().is_some()
    }

    /// The storage of the index of the keys over exactly these columns: one that is kept, if a key
    /// asks for it.
    pub(crate) fn storage_of_key(&self, columns: &[ColumnId]) -> IndexStorage {
        let mut storages = self.ordered_defs(columns).map(|def| def.storage);
        storages
            .find(|storage| !storage.is_memory())
            .unwrap_or_default()
    }
}

impl Catalog {
    /// Makes the definitions of the ordered keys' indexes agree with their keys.
    pub(crate) fn link_ordered_keys(&mut self) {
        for table in self.tables.values_mut() {
            let is_right = |key: &KeyDef| key.mended_index(table.next_index).is_none();
            if table.keys.iter().all(is_right) {
                continue;
            }
            let table = Arc::make_mut(table);
            for key in &mut table.keys {
                let Some(def) = key.mended_index(table.next_index) else {
                    continue;
                };
                if def.id.0 == table.next_index {
                    table.next_index = table.next_index.saturating_add(1);
                }
                key.ordered = Some(Arc::new(def));
            }
        }
    }

    /// Notes since when the ordered index of a key has every version.
    pub(crate) fn complete_ordered_key(&mut self, built: &BuiltKey) {
        let Some(table) = self.tables.get_mut(&built.table) else {
            return;
        };
        let keys = Arc::make_mut(table).keys.iter_mut();
        for key in keys.filter(|key| key.columns == built.columns) {
            if let Some(index) = &mut key.ordered {
                Arc::make_mut(index).complete_since = built.complete_since;
            }
        }
    }
}

/// A key whose index was filled from existing rows.
pub(crate) struct BuiltKey {
    pub table: strandline_base::TableId,
    pub columns: Vec<ColumnId>,
    /// the index has every version that was visible at this moment or later
    pub complete_since: CommitTs,
}
