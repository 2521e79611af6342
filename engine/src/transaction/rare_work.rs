//! Work that few transactions do: bulk loads, changes of definitions, updates of keys, deferred
//! checks.
//!
//! One pointer of the transaction's state leads to the state of this work. A transaction without
//! such work creates and drops no lists for it. The cost of a short transaction depends on the
//! bytes of code on its path.

use super::TxnState;
use super::deferred::{ConstraintModes, DeferredChecks};
use crate::store::index_build::forget_loaded;
use crate::store::moved_keys::MovedKeys;
use crate::store::{Store, StoredIndex, TableStore};
use std::sync::Arc;
use strandline_base::RangeNo;
use strandline_storage::file::data_file::DataFile;
use strandline_tail::schema::StorageSchema;

/// The rare work; see the module's documentation.
#[derive(Default)]
pub(crate) struct RareWork {
    /// keys of rows that the transaction updated
    pub(crate) moved: MovedKeys,
    /// checks of constraints that wait for the transaction's end
    pub(super) deferred: DeferredChecks,
    /// storages that got columns, with their schemas before, for rollback
    pub(super) grown: Vec<(Arc<Store>, Arc<StorageSchema>)>,
    /// secondary indexes that the transaction created, for rollback
    pub(super) built: Vec<(Arc<Store>, Arc<StoredIndex>)>,
    /// indexes of constraints on pages in whose place others are, for rollback: the definitions
    /// then name their files again
    pub(super) replaced: Vec<(Arc<Store>, Arc<StoredIndex>)>,
    /// bulk-loaded ranges
    pub(crate) loads: Vec<Load>,
}

/// A bulk-loaded range. A rollback finds all it needs in the range; nothing is kept per row.
pub(crate) struct Load {
    /// removed on rollback
    pub(crate) file: Arc<DataFile>,
    pub(crate) store: Arc<Store>,
    pub(crate) range: RangeNo,
}

/// The lengths of the lists at a savepoint.
#[derive(Clone, Default)]
pub(super) struct RareMark {
    moved: usize,
    loads: usize,
    grown: usize,
    built: usize,
    replaced: usize,
    deferred: usize,
    modes: Option<Arc<ConstraintModes>>,
}

impl RareMark {
    /// The mark before any work.
    pub const START: Self = Self {
        moved: 0,
        loads: 0,
        grown: 0,
        built: 0,
        replaced: 0,
        deferred: 0,
        modes: None,
    };
}

impl RareWork {
    /// Whether there is no work left that a rollback would undo.
    pub(super) fn is_undone(&self) -> bool {
        let is_empty = self.loads.is_empty() && self.grown.is_empty() && self.built.is_empty();
        is_empty && self.replaced.is_empty() && self.moved.len() == 0
    }

    /// Bytes reserved for the lists that grow with the rows.
    pub(super) fn memory_bytes(&self) -> usize {
        self.moved.memory_bytes() + self.deferred.memory_bytes()
    }

    /// Releases the lists' unused capacity.
    pub(super) fn shrink(&mut self) {
        self.moved.shrink();
        self.deferred.shrink();
    }

    fn mark(&self) -> RareMark {
        RareMark {
            moved: self.moved.len(),
            loads: self.loads.len(),
            grown: self.grown.len(),
            built: self.built.len(),
            replaced: self.replaced.len(),
            deferred: self.deferred.len(),
            modes: self.deferred.modes.clone(),
        }
    }

    /// Removes the keys entered since `mark` from the indexes.
    #[cold]
    pub(super) fn take_back_keys(&mut self, mark: &RareMark) {
        self.moved.take_back(mark.moved);
    }

    /// Removes the index entries of the ranges loaded since `mark`.
    #[cold]
    pub(super) fn forget_loads(&self, mark: &RareMark) {
        for load in &self.loads[mark.loads..] {
            forget_loaded(&load.store, load.range);
        }
    }

    /// Undoes the loads and the changes of definitions since `mark`; their rows are undone already.
    /// Returns whether indexes in files are back, whose files may have been lost meanwhile.
    #[cold]
    pub(super) fn undo(&mut self, mark: &RareMark) -> bool {
        for load in self.loads.drain(mark.loads..) {
            load.file.remove_when_unused();
        }
        for (store, schema) in self.grown.drain(mark.grown..).rev() {
            store.rows().take_back_schema(schema);
        }
        for (store, index) in self.built.drain(mark.built..) {
            store.remove_index(&index);
        }
        // Complete: the transaction holds the table alone, and its own rows are undone.
        let is_any_back = self.replaced.len() > mark.replaced;
        for (store, index) in self.replaced.drain(mark.replaced..).rev() {
            store.put_index(index);
        }
        is_any_back
    }

    /// Restores the checks and the modes of constraints at `mark`.
    #[cold]
    pub(super) fn go_back_in_checks(&mut self, mark: &RareMark) {
        self.deferred.go_back(mark.deferred, mark.modes.clone());
    }
}

impl TxnState {
    /// The rare work, for additions.
    pub(crate) fn rare_work(&mut self) -> &mut RareWork {
        self.rare.get_or_insert_default()
    }

    /// The mark of the present lengths.
    pub(super) fn rare_mark(&self) -> RareMark {
        self.rare
            .as_ref()
            .map_or(RareMark::START, |rare| rare.mark())
    }

    /// Whether the transaction has loaded ranges in bulk.
    #[inline]
    pub(super) fn has_loads(&self) -> bool {
        self.rare
            .as_ref()
            .is_some_and(|rare| !rare.loads.is_empty())
    }

    /// Whether there are deferred checks, passed ones included.
    #[inline]
    pub(super) fn has_deferred(&self) -> bool {
        let rare = self.rare.as_ref();
        rare.is_some_and(|rare| rare.deferred.len() > 0)
    }
}
