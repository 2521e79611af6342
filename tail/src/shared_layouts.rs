//! Layouts that tail pages of a storage share, so that a reader of many tails finds the layout in
//! the processor's cache.
//!
//! Lock order: `known` comes last.

use crate::column_set::ColumnSet;
use crate::record_layout::{RecordLayout, StorageColumns};
use std::sync::{Arc, Weak};
use strandline_base::sync::Mutex;

/// Layouts looked through for one that fits; further ones are made for a single page each.
const LAYOUTS_MAX: usize = 32;

/// The layouts that live pages have. A copy of a schema begins without any.
#[derive(Debug, Default)]
pub(crate) struct SharedLayouts {
    /// weak: a layout goes with its last page
    known: Mutex<Vec<Weak<RecordLayout>>>,
}

impl SharedLayouts {
    /// The layout for records with values of `columns`; see [`RecordLayout::covered`]. `storage` is
    /// always the same list, that of the schema which has these layouts.
    pub fn covering(&self, storage: &StorageColumns, columns: ColumnSet) -> Arc<RecordLayout> {
        let columns = RecordLayout::covered(storage, columns);
        let mut known = self.known.lock();
        known.retain(|layout| layout.strong_count() > 0);
        let mut live = known.iter().filter_map(Weak::upgrade);
        if let Some(found) = live.find(|layout| layout.columns == columns) {
            return found;
        }
        let layout = RecordLayout::new(storage, columns);
        if known.len() < LAYOUTS_MAX {
            known.push(Arc::downgrade(&layout));
        }
        layout
    }
}

impl Clone for SharedLayouts {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl PartialEq for SharedLayouts {
    /// All are equal: they say nothing about the schema.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}
