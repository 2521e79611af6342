//! All versions of a row, for `strandline_history`.

use crate::catalog::TableDef;
use crate::statement::{Statement, record_batch};
use crate::store::{RowVersion, Store, TableStore, VersionBounds, key_index};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{Field, Schema};
use std::sync::Arc;
use strandline_base::{ColumnId, CommitTs, Error, Result, RowId, SqlState, SqlType, Value};
use strandline_column::types::{array_of, arrow_type};
use strandline_index::is_same_key;

struct HistoryRow {
    values: Vec<Value>,
    from: CommitTs,
    to: Option<CommitTs>,
}

impl Statement {
    /// All versions, within the retention, of the rows that have or had the primary key `key`,
    /// oldest first. The result has every column of the table, then `valid_from` and `valid_to`
    /// (timestamptz; NULL = still valid).
    pub fn history(&self, table: &Arc<TableDef>, key: &[Value]) -> Result<RecordBatch> {
        let primary = table.primary_key().ok_or_else(|| {
            Error::invalid(
                SqlState::INVALID_TABLE_DEFINITION,
                format!("table \"{}\" has no primary key", table.name),
            )
            .with_hint("The history of a row is looked up by its primary key.")
        })?;
        if key.len() != primary.columns.len() {
            return Err(Error::invalid(
                SqlState::INVALID_PARAMETER_VALUE,
                format!(
                    "the primary key of table \"{}\" has {} columns, {} values were given",
                    table.name,
                    primary.columns.len(),
                    key.len()
                ),
            ));
        }
        let store = self.transaction().db().store(table.storage)?;
        let db = self.transaction().db();
        let from = db.horizon(table, &store);
        let hold = db.txns().hold_history(from, self.snapshot_ts());
        // Versions dropped before the hold are left out.
        let oldest = db.horizon(table, &store);
        let mut versions = Vec::new();
        let index = key_index(&store, &primary.columns)?;
        if let Some(bytes) = index.key_bytes(key) {
            let mut rows = Vec::new();
            index.index.lookup(&bytes, &mut rows)?;
            for row in rows {
                let at = (row, oldest);
                self.versions_of(table, &store, at, &primary.columns, key, &mut versions)?;
            }
        }
        drop(hold);
        versions.sort_by_key(|v| v.from);
        history_batch(table, &versions)
    }

    fn versions_of(
        &self,
        table: &TableDef,
        store: &Store,
        (row, oldest): (RowId, CommitTs),
        key_columns: &[ColumnId],
        key: &[Value],
        out: &mut Vec<HistoryRow>,
    ) -> Result<()> {
        let columns: Vec<ColumnId> = table.columns.iter().map(|c| c.id).collect();
        let bounds = VersionBounds::AnyChange;
        store
            .rows()
            .visit_versions(row, &columns, bounds, &mut |version| {
                self.transaction().check_cancelled()?;
                let RowVersion { from, to, values } = version;
                if from > self.snapshot_ts() || to.is_some_and(|to| to <= oldest) {
                    return Ok(());
                }
                let position = |c: &ColumnId| table.position(*c);
                let own_key: Vec<Value> = key_columns
                    .iter()
                    .filter_map(position)
                    .map(|at| values[at].clone())
                    .collect();
                if is_same_key(&own_key, key) {
                    out.push(HistoryRow {
                        values: values.to_vec(),
                        from,
                        to: to.filter(|to| *to <= self.snapshot_ts()),
                    });
                }
                Ok(())
            })
    }
}

fn history_batch(table: &TableDef, versions: &[HistoryRow]) -> Result<RecordBatch> {
    let mut fields = Vec::new();
    let mut arrays: Vec<ArrayRef> = Vec::new();
    for (at, column) in table.columns.iter().enumerate() {
        let values: Vec<Value> = versions.iter().map(|v| v.values[at].clone()).collect();
        fields.push(Field::new(&column.name, arrow_type(column.sql_type), true));
        arrays.push(array_of(column.sql_type, &values)?);
    }
    let time = |ts: CommitTs| Value::TimestampTz(ts.0 as i64);
    let from: Vec<Value> = versions.iter().map(|v| time(v.from)).collect();
    let to: Vec<Value> = versions
        .iter()
        .map(|v| v.to.map_or(Value::Null, time))
        .collect();
    for (name, values) in [("valid_from", from), ("valid_to", to)] {
        fields.push(Field::new(name, arrow_type(SqlType::TimestampTz), true));
        arrays.push(array_of(SqlType::TimestampTz, &values)?);
    }
    record_batch(Arc::new(Schema::new(fields)), arrays, versions.len())
}
