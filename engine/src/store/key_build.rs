//! Filling a key index from the rows: at open, and when a constraint is added.

use crate::store::newest;
use crate::store::{KeyColumns, Store};
use std::sync::Arc;
use strandline_base::{ColumnId, CommitTs, Result, RowId, Value};
use strandline_column::types::value_at;
use strandline_table::lineage::base::BaseBody;
use strandline_table::lineage::range::{Range, RangeVersion};
use strandline_txn::{StartWord, Visibility};

/// Builds the index over `columns` and puts it into the store; uncommitted rows of `own` count.
pub fn build_key(store: &Arc<Store>, columns: &[ColumnId], own: StartWord) -> Result<()> {
    let key = store.empty_key(columns.to_vec());
    let ranges = store.lineage.ranges();
    let half = ranges.len().div_ceil(2);
    let (left, right) = ranges.split_at(half);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            right
                .iter()
                .try_for_each(|r| index_range(store, &key, r, own))
        });
        left.iter()
            .try_for_each(|r| index_range(store, &key, r, own))?;
        other
            .join()
            .map_err(|_| strandline_base::Error::internal("an index builder panicked"))?
    })?;
    store.put_key(key);
    Ok(())
}

/// Enters every key that a row of the range has, or had within the retention.
fn index_range(store: &Store, key: &KeyColumns, range: &Arc<Range>, own: StartWord) -> Result<()> {
    let mut others = Vec::new();
    let version = range.load_full();
    let mut load = key.index.bulk_load();
    // What base has, deleted rows included: AS OF may ask for them.
    visit_keys(
        store,
        key,
        range,
        &version,
        &newest(own),
        &mut |values, row| {
            others.clear();
            load.push(values, row, &mut others)
        },
    )?;
    load.finish()?;
    index_former_keys(store, key, range)
}

/// Takes the entries of the rows of a bulk-loaded range out of all indexes: the load is about to be
/// rolled back, and its rows still carry the transaction's word. A range that cannot be read keeps
/// its entries, which lead to rows that nobody sees.
pub(crate) fn forget_loaded(store: &Store, range: &Arc<Range>) {
    let version = range.load_full();
    let BaseBody::Chunks(chunks) = &version.base.body else {
        return;
    };
    let as_loaded = Visibility {
        ts: CommitTs::ZERO,
        own: chunks.start.load(),
        statement: chunks.start.statement + 1,
    };
    for key in store.keys().iter() {
        let retire = &mut |values: &[Value], row| {
            let bytes = key.index.encode(values);
            key.index.retire(&bytes, row, CommitTs::ZERO)
        };
        let _ = visit_keys(store, key, range, &version, &as_loaded, retire);
    }
}

/// Visits the key of every slot of a range whose rows `visibility` sees, those
/// without a visible row included. NULLs are passed over.
fn visit_keys(
    store: &Store,
    key: &KeyColumns,
    range: &Arc<Range>,
    version: &Arc<RangeVersion>,
    visibility: &Visibility,
    visit: &mut dyn FnMut(&[Value], RowId) -> Result<()>,
) -> Result<()> {
    let lineage = &store.lineage;
    let schema = lineage.schema();
    let (counters, columns) = (Arc::default(), Arc::from(key.columns.as_slice()));
    let snapshot = lineage.range_snapshot_of(range, version, visibility, &columns, &counters)?;
    let part = snapshot.part(0..snapshot.rows());
    let mut arrays = Vec::with_capacity(key.columns.len());
    for at in 0..key.columns.len() {
        arrays.push((schema.column(key.columns[at]).sql_type, part.column(at)?));
    }
    let mut values = vec![Value::Null; key.columns.len()];
    for slot in 0..snapshot.rows() {
        for (value, (sql_type, array)) in values.iter_mut().zip(&arrays) {
            *value = value_at(*sql_type, array, slot);
        }
        if !values.iter().any(Value::is_null) {
            visit(&values, RowId::new(range.no(), slot as u16))?;
        }
    }
    Ok(())
}

/// Keys that rows had before an update of a key column. A sweep will look at them.
fn index_former_keys(store: &Store, key: &KeyColumns, range: &Range) -> Result<()> {
    let lineage = &store.lineage;
    let (mut others, mut left) = (Vec::new(), Vec::new());
    for row in lineage.rows_with_updates_of(range, &key.columns)? {
        key.note_moved();
        let times = lineage.version_times(row)?;
        left.extend(times.last().map(|newest| (*newest, row)));
        for ts in times {
            let visibility = Visibility {
                ts,
                own: StartWord(0),
                statement: 0,
            };
            let mut values = vec![Value::Null; key.columns.len()];
            if lineage.read(row, &visibility, &key.columns, &mut values)?
                && let Some(bytes) = key.key_bytes(&values)
            {
                key.index.insert(&bytes, row, &mut others)?;
                others.clear();
            }
        }
    }
    key.sweep.note_all_left(left);
    Ok(())
}
