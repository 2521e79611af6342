//! The rows of a storage one after the other, for what no index answers.

use crate::store::Store;
use std::sync::Arc;
use strandline_base::{ColumnId, RangeNo, Result, RowId, Value};
use strandline_column::types::value_at;
use strandline_table::lineage::base::BaseBody;
use strandline_table::lineage::range::Range;
use strandline_txn::Visibility;

/// Slots of a range that may hold a row.
pub(crate) fn slots(range: &Range) -> u32 {
    match &range.load().base.body {
        BaseBody::Insert(inserted) => inserted.rows(),
        BaseBody::Chunks(chunks) => chunks.rows,
    }
}

/// Visits every slot that may hold a row, rows that nobody sees included.
pub(crate) fn visit_slots(store: &Store, visit: &mut dyn FnMut(RowId) -> Result<()>) -> Result<()> {
    for range in store.lineage.ranges() {
        for slot in 0..slots(&range) {
            visit(RowId::new(range.no(), slot as u16))?;
        }
    }
    Ok(())
}

/// Visits the values of `columns` in every slot of a range, as `visibility` sees them; slots
/// without a visible row are visited too.
pub(crate) fn visit_range(
    store: &Store,
    range: RangeNo,
    columns: &[ColumnId],
    visibility: &Visibility,
    visit: &mut dyn FnMut(RowId, &[Value]),
) -> Result<()> {
    let lineage = &store.lineage;
    let Some(range) = lineage.range(range) else {
        return Ok(());
    };
    let version = range.load_full();
    let schema = lineage.schema();
    let (counters, ids) = (Arc::default(), Arc::from(columns));
    let snapshot = lineage.range_snapshot_of(range, &version, visibility, &ids, &counters)?;
    let part = snapshot.part(0..snapshot.rows());
    let mut arrays = Vec::with_capacity(columns.len());
    for (at, id) in columns.iter().enumerate() {
        arrays.push((schema.column(*id).sql_type, part.column(at)?));
    }
    let mut values = vec![Value::Null; columns.len()];
    for slot in 0..snapshot.rows() {
        for (value, (sql_type, array)) in values.iter_mut().zip(&arrays) {
            *value = value_at(*sql_type, array, slot);
        }
        visit(RowId::new(range.no(), slot as u16), &values);
    }
    Ok(())
}
