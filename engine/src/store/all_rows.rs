//! All rows of a storage in sequence, for questions that no index answers.

use crate::store::Store;
use arrow_array::{ArrayRef, BooleanArray};
use std::sync::Arc;
use strandline_base::{ColumnId, RangeNo, Result, RowId, SqlType, Value};
use strandline_column::types::value_at;
use strandline_table::lineage::base::BaseBody;
use strandline_table::lineage::range::{Range, RangeVersion};
use strandline_txn::Visibility;

/// Slots of a range that may hold a row.
pub(crate) fn slots(range: &Range) -> u32 {
    match &range.load().base.body {
        BaseBody::Insert(inserted) => inserted.rows(),
        BaseBody::Chunks(chunks) => chunks.rows,
    }
}

/// Visits every slot that may hold a row, invisible rows included.
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
    let Some(slots) = RangeSlots::of(store, range, columns, visibility)? else {
        return Ok(());
    };
    slots.visit(&mut |slot, values| {
        visit(RowId::new(range, slot as u16), values);
        Ok(())
    })
}

/// As [`visit_range`], of slots with a visible row. Returns how many slots the range has.
pub(crate) fn visit_rows(
    store: &Store,
    range: RangeNo,
    columns: &[ColumnId],
    visibility: &Visibility,
    visit: &mut dyn FnMut(RowId, &[Value]),
) -> Result<usize> {
    let Some(slots) = RangeSlots::of(store, range, columns, visibility)? else {
        return Ok(0);
    };
    slots.visit(&mut |slot, values| {
        if slots.is_visible(slot) {
            visit(RowId::new(range, slot as u16), values);
        }
        Ok(())
    })?;
    Ok(slots.len)
}

/// Columns of every slot of a range, as somebody sees them.
pub(crate) struct RangeSlots {
    pub columns: Vec<(SqlType, ArrayRef)>,
    /// slots with a visible row; None: all
    visible: Option<BooleanArray>,
    /// how many slots
    pub len: usize,
}

impl RangeSlots {
    /// Those of a range; None: it is not there.
    fn of(
        store: &Store,
        range: RangeNo,
        columns: &[ColumnId],
        visibility: &Visibility,
    ) -> Result<Option<Self>> {
        let range = store.lineage.range(range);
        let read = |range: &Arc<Range>| {
            Self::read(store, (range, &range.load_full()), columns, visibility)
        };
        range.map(read).transpose()
    }

    /// Reads `columns` as `visibility` sees them.
    pub fn read(
        store: &Store,
        (range, version): (&Arc<Range>, &Arc<RangeVersion>),
        columns: &[ColumnId],
        visibility: &Visibility,
    ) -> Result<Self> {
        let lineage = &store.lineage;
        let schema = lineage.schema();
        let (counters, ids) = (Arc::default(), Arc::from(columns));
        let snapshot = lineage.range_snapshot_of(range, version, visibility, &ids, &counters)?;
        let part = snapshot.part(0..snapshot.rows());
        let mut arrays = Vec::with_capacity(columns.len());
        for (at, id) in columns.iter().enumerate() {
            arrays.push((schema.column(*id).sql_type, part.column(at)?));
        }
        Ok(Self {
            visible: part.visible(),
            columns: arrays,
            len: snapshot.rows(),
        })
    }

    /// Whether a slot has a visible row.
    pub fn is_visible(&self, slot: usize) -> bool {
        self.visible.as_ref().is_none_or(|seen| seen.value(slot))
    }

    /// Visits the values of every slot.
    pub fn visit(&self, visit: &mut dyn FnMut(usize, &[Value]) -> Result<()>) -> Result<()> {
        let mut values = vec![Value::Null; self.columns.len()];
        for slot in 0..self.len {
            values_at(&self.columns, slot, &mut values);
            visit(slot, &values)?;
        }
        Ok(())
    }
}

/// Puts the values of one slot into `values`.
#[inline]
pub(crate) fn values_at(columns: &[(SqlType, ArrayRef)], slot: usize, values: &mut [Value]) {
    for (value, (sql_type, array)) in values.iter_mut().zip(columns) {
        *value = value_at(*sql_type, array, slot);
    }
}
