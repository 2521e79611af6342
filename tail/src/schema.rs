//! The columns of a storage, by [`ColumnId`]: a column's id is its position here for ever.
//! Dropped columns keep their place, added ones come at the end.

use crate::column_set::ColumnSet;
use crate::record_layout::{RecordLayout, StorageColumns};
use crate::shared_layouts::SharedLayouts;
use std::sync::Arc;
use strandline_base::cell::StorageColumn;
use strandline_base::{ColumnId, SqlType, Value};

/// All columns a storage ever had.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StorageSchema {
    columns: StorageColumns,
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
    /// The columns, which pages are made for.
    #[inline]
    pub(crate) fn columns(&self) -> &StorageColumns {
        &self.columns
    }
    /// A layout of tail pages for records with values of `columns`.
    pub(crate) fn layout_covering(&self, columns: ColumnSet) -> Arc<RecordLayout> {
        self.layouts.covering(&self.columns, columns)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_with_the_same_columns_share_a_layout() {
        let schema = StorageSchema::new([const { (SqlType::BigInt, Value::Null) }; 40]);
        let layout = |columns: &[u32]| {
            let columns = columns.iter().map(|&column| ColumnId(column)).collect();
            schema.layout_covering(columns)
        };
        let (one, two) = (layout(&[1, 2]), layout(&[2]));
        assert!(Arc::ptr_eq(&one, &layout(&[2, 1])));
        assert!(!Arc::ptr_eq(&one, &two));
        let all: Vec<_> = (0..40).map(|column| layout(&[column])).collect();
        assert!(Arc::ptr_eq(&all[0], &layout(&[0])), "one of the first");
        assert!(!Arc::ptr_eq(&all[39], &layout(&[39])), "one too many");
        assert_eq!(layout(&[39]).columns, all[39].columns);
        drop((one, two, all));
        let again = layout(&[39]);
        assert!(Arc::ptr_eq(&again, &layout(&[39])), "the others are gone");
    }

    #[test]
    fn a_schema_goes_with_its_layouts() {
        let schema = StorageSchema::new([(SqlType::BigInt, Value::Null)]);
        let weak = Arc::downgrade(&schema);
        drop(schema.layout_covering(ColumnSet::default()));
        drop(schema);
        assert!(weak.upgrade().is_none());
    }
}
