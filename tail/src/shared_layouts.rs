//! Layouts that tail pages of a storage have in common, so that whoever looks at many tails finds
//! the layout in a cache.
//!
//! Lock order: `known` comes last.

use crate::column_set::ColumnSet;
use crate::record_layout::RecordLayout;
use crate::schema::StorageSchema;
use std::sync::{Arc, Weak};
use strandline_base::sync::Mutex;

/// Layouts looked through for one that fits; further ones are made for a single page each.
const LAYOUTS_MAX: usize = 32;

/// The layouts that live pages have. A copy of a schema begins without any.
#[derive(Debug, Default)]
pub(crate) struct SharedLayouts {
    /// weak: layouts hold the schema, which holds these
    known: Mutex<Vec<Weak<RecordLayout>>>,
}

impl SharedLayouts {
    /// The layout of `schema`, whose layouts these are, for records with values of `columns`; see
    /// [`RecordLayout::covered`].
    pub fn covering(&self, schema: &Arc<StorageSchema>, columns: ColumnSet) -> Arc<RecordLayout> {
        let columns = RecordLayout::covered(schema, columns);
        let mut known = self.known.lock();
        known.retain(|layout| layout.strong_count() > 0);
        let mut live = known.iter().filter_map(Weak::upgrade);
        if let Some(found) = live.find(|layout| layout.columns == columns) {
            return found;
        }
        let layout = RecordLayout::new(schema, columns);
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
    /// They say nothing about the schema.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strandline_base::{ColumnId, SqlType, Value};

    #[test]
    fn pages_with_the_same_columns_share_a_layout() {
        let schema = StorageSchema::new([const { (SqlType::BigInt, Value::Null) }; 40]);
        let layout = |columns: &[u32]| {
            let columns = columns.iter().map(|&column| ColumnId(column)).collect();
            schema.layouts().covering(&schema, columns)
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
        drop(schema.layouts().covering(&schema, ColumnSet::default()));
        drop(schema);
        assert!(weak.upgrade().is_none());
    }
}
