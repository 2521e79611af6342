//! All versions of all rows of a table in an interval of time, for `FOR SYSTEM_TIME FROM … TO` and
//! `BETWEEN … AND`.
//!
//! The columns are those of the present definition. A TRUNCATE in the interval leaves the rows
//! before it in another storage. The scan reads each storage for the time in which it was the
//! table's.
//!
//! A unit is prepared like a scan's unit (see `db::open_readers`).

use crate::catalog::column_of;
use crate::catalog::versions::Version;
use crate::catalog::{ColumnDef, TableDef};
use crate::db::open_readers::Prepared;
use crate::request::ScanRequest;
use crate::scan::batch_of;
use crate::statement::Statement;
use crate::store::{RangeVersions, Store, StoredRange, VersionInterval, VersionRows};
use crate::transaction::Transaction;
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{Field, Schema, SchemaRef};
use std::sync::Arc;
use strandline_base::{ColumnId, CommitTs, Result, SqlType, Value};
use strandline_column::types::{array_of, arrow_type};
use strandline_txn::{HistoryHold, SnapshotGuard};

/// A column of a scan of versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionColumn {
    /// a column of the table
    Stored(ColumnId),
    /// the begin of the version
    ValidFrom,
    /// the end of the version; NULL: still valid at the snapshot
    ValidTo,
}

impl VersionColumn {
    /// The names of the two time columns.
    pub const TIMES: [(&'static str, Self); 2] =
        [("valid_from", Self::ValidFrom), ("valid_to", Self::ValidTo)];
}

/// The source of a stored column's values.
enum ColumnSource {
    /// index into the columns read from the ranges
    Read(usize),
    /// the storage never had the column
    Missing(SqlType, Value),
    Time(VersionColumn),
}

/// The ranges of one storage, for the time in which it was the table's.
struct Segment {
    store: Arc<Store>,
    interval: VersionInterval,
    /// when another storage replaced it
    end: Option<CommitTs>,
    columns: Arc<[ColumnId]>,
    places: Vec<ColumnSource>,
}

/// A running scan of versions: a list of work units (ranges) that any thread may take.
pub struct VersionScan {
    transaction: Arc<Transaction>,
    _snapshots: [SnapshotGuard; 2],
    _hold: HistoryHold,
    segments: Vec<Segment>,
    /// segment and range of each unit
    units: Vec<(usize, StoredRange)>,
    schema: SchemaRef,
}

impl Statement {
    /// A scan of the versions of `table`'s rows that are valid at some moment from `from` to
    /// `through`, both inclusive. It leaves out versions that are later than this statement's
    /// snapshot (or than `as_of`, if that is earlier), and changes of its own transaction. A `from`
    /// older than the retention is 72000.
    pub fn scan_versions(
        &self,
        table: &TableDef,
        (from, through): (CommitTs, CommitTs),
        as_of: Option<CommitTs>,
        columns: &[VersionColumn],
    ) -> Result<Arc<VersionScan>> {
        let db = self.transaction().db();
        let request = ScanRequest {
            columns: table.columns.iter().map(|column| column.id).collect(),
            ..ScanRequest::default()
        };
        // Versions that end by the snapshot do not change, but later ones may be added.
        self.transaction().note_scan(table, &request, true)?;
        let seen = as_of.unwrap_or(CommitTs::MAX).min(self.snapshot_ts());
        let is_empty = from > through;
        let from = from.min(seen);
        let cancelled = || self.transaction().is_cancelled();
        let snapshots = [
            db.txns().snapshot_at(from, &cancelled)?,
            db.txns().snapshot_at(seen, &cancelled)?,
        ];
        let hold = db.txns().hold_history(from, seen);
        // From here on no version since that moment can be dropped.
        db.check_retained(table, from)?;
        let interval = VersionInterval {
            from,
            through: through.min(seen),
            seen,
        };
        let mut segments = Vec::new();
        if !is_empty {
            for (def, begin, end) in storages_of(table, &db.catalogs.through(seen)) {
                if begin <= interval.through && end.is_none_or(|end| end > from) {
                    db.check_retained(&def, from)?;
                    let store = db.store(def.storage)?;
                    segments.push(Segment::new(store, &def, table, interval, end, columns)?);
                }
            }
        }
        let mut units = Vec::new();
        for (at, segment) in segments.iter().enumerate() {
            let ranges = segment.store.ranges().into_iter();
            units.extend(ranges.map(|range| (at, range)));
        }
        Ok(Arc::new(VersionScan {
            transaction: self.transaction().clone(),
            _snapshots: snapshots,
            _hold: hold,
            segments,
            units,
            schema: Arc::new(schema_of(table, columns)?),
        }))
    }
}

/// The definitions of `table` with each of its storages, oldest first, with the begin and the end
/// of the time in which it had the storage.
fn storages_of(
    table: &TableDef,
    catalogs: &[Version],
) -> Vec<(Arc<TableDef>, CommitTs, Option<CommitTs>)> {
    let mut found: Vec<(Arc<TableDef>, CommitTs, Option<CommitTs>)> = Vec::new();
    for (ts, catalog) in catalogs {
        let def = catalog.tables.get(&table.id);
        match (found.last_mut(), def) {
            (Some(last), Some(def)) if last.0.storage == def.storage => last.0 = def.clone(),
            (last, _) => {
                if let Some(last) = last {
                    last.2.get_or_insert(*ts);
                }
                found.extend(def.map(|def| (def.clone(), *ts, None)));
            }
        }
    }
    found
}

/// The columns, all of which may be NULL, since versions may be older than a NOT NULL.
fn schema_of(table: &TableDef, columns: &[VersionColumn]) -> Result<Schema> {
    let mut fields = Vec::with_capacity(columns.len());
    for column in columns {
        let (name, sql_type) = match column {
            VersionColumn::Stored(id) => {
                let column = column_of(table, *id)?;
                (column.name.as_str(), column.sql_type)
            }
            VersionColumn::ValidFrom => (VersionColumn::TIMES[0].0, SqlType::TimestampTz),
            VersionColumn::ValidTo => (VersionColumn::TIMES[1].0, SqlType::TimestampTz),
        };
        fields.push(Field::new(name, arrow_type(sql_type), true));
    }
    Ok(Schema::new(fields))
}

/// The column of an older storage's definition that corresponds to `wanted`, a column of the
/// present one. A TRUNCATE that restarts an identity gives its column a new id.
fn counterpart<'a>(def: &'a TableDef, wanted: &ColumnDef) -> Option<&'a ColumnDef> {
    let found = def.column_by_id(wanted.id);
    let found = found.or_else(|| def.column(&wanted.name).filter(|c| c.identity.is_some()));
    found.filter(|column| arrow_type(column.sql_type) == arrow_type(wanted.sql_type))
}

impl Segment {
    fn new(
        store: Arc<Store>,
        def: &TableDef,
        table: &TableDef,
        mut interval: VersionInterval,
        end: Option<CommitTs>,
        wanted: &[VersionColumn],
    ) -> Result<Self> {
        if let Some(end) = end {
            let last = CommitTs(end.0 - 1);
            interval.through = interval.through.min(last);
            interval.seen = interval.seen.min(last);
        }
        let (mut columns, mut places) = (Vec::new(), Vec::with_capacity(wanted.len()));
        for column in wanted {
            let VersionColumn::Stored(id) = column else {
                places.push(ColumnSource::Time(*column));
                continue;
            };
            let present = column_of(table, *id)?;
            let stored = match def.storage == table.storage {
                true => Some(*id),
                false => counterpart(def, present).map(|column| column.id),
            };
            places.push(match stored {
                Some(id) => {
                    columns.push(id);
                    ColumnSource::Read(columns.len() - 1)
                }
                None => ColumnSource::Missing(present.sql_type, present.missing.clone()),
            });
        }
        Ok(Self {
            store,
            interval,
            end,
            columns: columns.into(),
            places,
        })
    }

    fn batch(&self, schema: &SchemaRef, rows: &VersionRows) -> Result<RecordBatch> {
        let count = rows.from.len();
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.places.len());
        for place in &self.places {
            columns.push(match place {
                ColumnSource::Read(at) => rows.columns[*at].clone(),
                ColumnSource::Missing(t, value) => array_of(*t, &vec![value.clone(); count])?,
                ColumnSource::Time(VersionColumn::ValidTo) => {
                    times(rows.to.iter().map(|to| to.or(self.end)))?
                }
                ColumnSource::Time(_) => times(rows.from.iter().map(|from| Some(*from)))?,
            });
        }
        batch_of(schema.clone(), columns, count)
    }
}

fn times(times: impl Iterator<Item = Option<CommitTs>>) -> Result<ArrayRef> {
    let value = |ts: Option<CommitTs>| ts.map_or(Value::Null, |ts| Value::TimestampTz(ts.0 as i64));
    let values: Vec<Value> = times.map(value).collect();
    array_of(SqlType::TimestampTz, &values)
}

impl VersionScan {
    /// The schema of the batches.
    pub fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    /// The number of units.
    pub fn units(&self) -> usize {
        self.units.len()
    }

    /// Opens unit `unit` (below `units()`).
    pub fn open_unit(self: &Arc<Self>, unit: usize) -> Result<VersionReader> {
        self.transaction.check_cancelled()?;
        let versions = self.prepare(unit, 0)?;
        let readers = &self.transaction.db().open_readers;
        Ok(VersionReader {
            scan: self.clone(),
            unit,
            next_row: 0,
            prepared: Prepared::new(readers, versions),
        })
    }

    /// Prepares unit `unit` from slot `next_row` on.
    fn prepare(&self, unit: usize, next_row: usize) -> Result<RangeVersions> {
        let (segment, range) = &self.units[unit];
        let segment = &self.segments[*segment];
        let (interval, columns) = (segment.interval, &segment.columns);
        let store = &segment.store;
        store.read_versions(range, interval, columns, next_row)
    }
}

/// A reader of one unit of a scan of versions.
pub struct VersionReader {
    scan: Arc<VersionScan>,
    unit: usize,
    /// the first slot whose versions have not been returned
    next_row: usize,
    prepared: Prepared<RangeVersions>,
}

impl VersionReader {
    /// The next versions, in row-id order, the versions of one row oldest first; None at the end.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        let scan = &self.scan;
        let place = self.prepared.place();
        let mut prepared = place.lock();
        let versions = match &mut *prepared {
            Some(versions) => versions,
            taken => taken.insert(scan.prepare(self.unit, self.next_row)?),
        };
        while let Some(rows) = versions.next_rows()? {
            self.next_row = versions.next_row();
            scan.transaction.check_cancelled()?;
            if !rows.from.is_empty() {
                let segment = &scan.segments[scan.units[self.unit].0];
                return segment.batch(&scan.schema, &rows).map(Some);
            }
        }
        Ok(None)
    }
}
