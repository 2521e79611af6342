//! The columns of a storage, by [`ColumnId`]: a column's id is its position here for ever.
//! Dropped columns keep their place, added ones come at the end.

use crate::shared_layouts::SharedLayouts;
use std::sync::Arc;
use strandline_base::cell::StorageColumn;
use strandline_base::{ColumnId, SqlType, Value};

/// All columns a storage ever had.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StorageSchema {
    columns: Vec<StorageColumn>,
    layouts: SharedLayouts,
}

impl StorageSchema {
    /// A schema from (type, missing value) pairs in column-id order.
    pub fn new(columns: impl IntoIterator<Item = (SqlType, Value)>) -> Arc<Self> {
        Arc::new(Self {
            columns: columns
                .into_iter()
                .map(|(sql_type, missing)| StorageColumn::new(sql_type, missing))
                .collect(),
            layouts: SharedLayouts::default(),
        })
    }
    /// Those of tail pages.
    pub(crate) fn layouts(&self) -> &SharedLayouts {
        &self.layouts
    }
    /// How many columns there are, dropped ones included.
    pub fn len(&self) -> usize {
        self.columns.len()
    }
    /// Whether there is no column at all.
    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }
    /// The column with `id`.
    pub fn column(&self, id: ColumnId) -> &StorageColumn {
        &self.columns[id.0 as usize]
    }
    /// The column with `id`, if there is one.
    pub fn get(&self, id: ColumnId) -> Option<&StorageColumn> {
        self.columns.get(id.0 as usize)
    }
    /// Ids and columns in order.
    pub fn iter(&self) -> impl Iterator<Item = (ColumnId, &StorageColumn)> {
        self.columns
            .iter()
            .enumerate()
            .map(|(i, c)| (ColumnId(i as u32), c))
    }
}
