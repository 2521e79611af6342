//! A table `t (k bigint primary key, a bigint, b text)` and helpers, shared by the engine's tests.

#![allow(dead_code, reason = "every test binary uses a part")]

pub mod counting_device;

use arrow_array::{Array, Int64Array, RecordBatch, StringViewArray};
use arrow_schema::{DataType, Field, Schema};
use std::collections::BTreeMap;
use std::sync::Arc;
use strandline_base::ManualClock;
use strandline_column::types;
use strandline_device::MemoryDevice;
use strandline_engine::catalog::{Catalog, ColumnDef, HistoryPolicy, KeyDef, TableDef};
use strandline_engine::*;

/// key → (a, b)
pub type State = BTreeMap<i64, (Option<i64>, String)>;

pub fn column(id: u32, name: &str, sql_type: SqlType, not_null: bool) -> ColumnDef {
    ColumnDef {
        not_null,
        ..ColumnDef::new(ColumnId(id), name, sql_type)
    }
}

/// A table `t` of `columns`, numbered from 0, the first of which is its primary key.
pub fn definition(
    catalog: &mut Catalog,
    columns: Vec<ColumnDef>,
    history: HistoryPolicy,
) -> TableDef {
    TableDef {
        id: catalog.new_table_id(),
        storage: catalog.new_storage_id(),
        keys: vec![KeyDef::new("t_pkey", true, vec![ColumnId(0)])],
        history,
        ..TableDef::new("public", "t", columns)
    }
}

pub fn create_table(db: &Arc<Db>, history: HistoryPolicy) -> (Arc<TableDef>, CommitTs) {
    let txn = db.begin(TxnOptions::default()).expect("begin");
    txn.change_catalog(&mut |catalog| {
        let columns = vec![
            column(0, "k", SqlType::BigInt, true),
            column(1, "a", SqlType::BigInt, false),
            column(2, "b", SqlType::Text, false),
        ];
        let table = definition(catalog, columns, history);
        catalog.put_table(table);
        Ok(())
    })
    .expect("create table");
    let ts = txn.commit().expect("commit");
    (
        db.catalog().table("public", "t").expect("table").clone(),
        ts,
    )
}

pub fn batch(rows: &[(i64, Option<i64>, String)]) -> RecordBatch {
    let schema = Schema::new(vec![
        Field::new("k", DataType::Int64, false),
        Field::new("a", DataType::Int64, true),
        Field::new("b", DataType::Utf8View, true),
    ]);
    RecordBatch::try_new(
        Arc::new(schema),
        vec![
            Arc::new(Int64Array::from_iter_values(rows.iter().map(|r| r.0))),
            Arc::new(rows.iter().map(|r| r.1).collect::<Int64Array>()),
            Arc::new(StringViewArray::from_iter_values(rows.iter().map(|r| &r.2))),
        ],
    )
    .expect("batch")
}

pub fn scan_all(scan: &Arc<TableScan>) -> State {
    let mut state = State::new();
    for unit in 0..scan.units() {
        for batch in scan.read_unit(unit).expect("read") {
            let k = batch
                .column(0)
                .as_any()
                .downcast_ref::<Int64Array>()
                .expect("k");
            let a = batch
                .column(1)
                .as_any()
                .downcast_ref::<Int64Array>()
                .expect("a");
            let b = batch
                .column(2)
                .as_any()
                .downcast_ref::<StringViewArray>()
                .expect("b");
            for i in 0..batch.num_rows() {
                let a = (!a.is_null(i)).then(|| a.value(i));
                let before = state.insert(k.value(i), (a, b.value(i).to_string()));
                assert!(before.is_none(), "key {} twice in one scan", k.value(i));
            }
        }
    }
    state
}

pub fn request() -> ScanRequest {
    ScanRequest {
        columns: vec![ColumnId(0), ColumnId(1), ColumnId(2)],
        ..Default::default()
    }
}

/// Opens or recovers the database on `device`, without background work.
pub fn open(device: Arc<dyn Device>, clock: &Arc<ManualClock>) -> Result<Arc<Db>> {
    open_with(device, clock, Settings::default())
}

/// Records that [`open_eager`]'s tails get before their numbers need another bit: their models
/// cross 2^31.
const RECORDS_BEFORE_2_31: u64 = 40;

/// Entries of an opened index that [`open_eager`]'s maintenance compares in a turn: most indexes of
/// the suites need several turns.
const COMPARISON_TURN_ENTRIES: usize = 64;

/// Bytes of entries that a sweep of [`open_eager`] holds: most sweeps walk over an index several
/// times.
const SWEEP_BYTES: usize = 2_000;

/// The same; a range is due for a merge, if not in all its columns, when it has so many pending
/// records.
pub fn open_eager(
    device: Arc<dyn Device>,
    clock: &Arc<ManualClock>,
    merge_pending_records: u32,
) -> Result<Arc<Db>> {
    open_with(device, clock, eager(merge_pending_records))
}

/// The settings of [`open_eager`].
pub fn eager(merge_pending_records: u32) -> Settings {
    Settings {
        merge_pending_records,
        first_tail_record: (1 << 31) - RECORDS_BEFORE_2_31,
        comparison_turn_entries: COMPARISON_TURN_ENTRIES,
        sweep_bytes_max: SWEEP_BYTES,
        ..Settings::default()
    }
}

/// Bytes of the head of an index in levels: few entries, so that most are in levels.
const HEAD_BYTES: usize = 8 << 10;

/// As [`open`], with `settings`.
pub fn open_with(
    device: Arc<dyn Device>,
    clock: &Arc<ManualClock>,
    settings: Settings,
) -> Result<Arc<Db>> {
    let settings = Settings {
        wal_segment_bytes: 1 << 16,
        index_head_bytes_max: HEAD_BYTES,
        reserve_bytes: 0,
        background_maintenance: false,
        recovery_threads: 1,
        ..settings
    };
    let clock = clock.clone();
    Db::open(DbOptions {
        device,
        clock,
        settings,
    })
}

pub fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(1_700_000_000_000_000))
}

/// The newest definition of table `t`.
pub fn table(db: &Db) -> Arc<TableDef> {
    db.catalog().table("public", "t").expect("table t").clone()
}

/// Changes the definition of table `t` in a transaction of its own.
pub fn alter(db: &Arc<Db>, edit: impl Fn(&mut TableDef)) -> CommitTs {
    let txn = db.begin(TxnOptions::default()).expect("begin");
    alter_in(&txn, edit);
    txn.commit().expect("commit")
}

/// Changes the definition of table `t`.
pub fn alter_in(txn: &Transaction, edit: impl Fn(&mut TableDef)) {
    txn.change_catalog(&mut |catalog| {
        let mut table = TableDef::clone(catalog.table("public", "t").expect("table t"));
        edit(&mut table);
        catalog.put_table(table);
        Ok(())
    })
    .expect("alter");
}

/// Adds a column at the end.
pub fn add_column(table: &mut TableDef, name: &str, sql_type: SqlType, missing: Value) {
    let id = table.next_column;
    table.next_column += 1;
    table.columns.push(ColumnDef {
        missing,
        ..column(id, name, sql_type, false)
    });
}

/// One statement in a transaction of its own.
pub fn run<R>(db: &Arc<Db>, work: impl FnOnce(&Arc<Statement>) -> Result<R>) -> Result<R> {
    let txn = db.begin(TxnOptions::default())?;
    let statement = txn.begin_statement()?;
    let out = work(&statement)?;
    statement.finish()?;
    txn.commit()?;
    Ok(out)
}

pub fn insert(db: &Arc<Db>, row: &[Value]) {
    let table = table(db);
    run(db, |s| s.point_insert(&table, row)).expect("insert");
}

/// The files whose names begin with `kind`.
pub fn files(device: &dyn Device, kind: &str) -> Vec<String> {
    let names = device.list().expect("list").into_iter();
    names.filter(|name| name.starts_with(kind)).collect()
}

/// Sets `a` of rows by their keys.
pub fn set(db: &Arc<Db>, keys: std::ops::Range<i64>, a: i64) -> Result<()> {
    let table = table(db);
    run(db, |s| {
        for k in keys {
            let set = [(ColumnId(1), Value::BigInt(a))];
            s.point_update(&table, 0, &[Value::BigInt(k)], &set)?;
        }
        Ok(())
    })
    .map(|_| ())
}

/// The rows as of a moment.
pub fn state_at(db: &Arc<Db>, ts: CommitTs) -> State {
    let table = table(db);
    let txn = db.begin(TxnOptions::default()).expect("begin");
    let statement = txn.begin_statement().expect("statement");
    scan_all(&statement.scan_as_of(&table, ts, request()).expect("as of"))
}

/// Locks the row with key `k`, if there is one.
pub fn lock(statement: &Statement, table: &Arc<TableDef>, k: i64) {
    let keys = batch(&[(k, None, String::new())]);
    let keys = keys.project(&[0]).expect("the key");
    let found = statement.find_by_key(table, 0, &keys).expect("find");
    let rows: Vec<RowId> = found.into_iter().flatten().collect();
    let locked = statement.lock_rows(table, &rows, RowLock::Exclusive, LockWait::NoWait);
    assert_eq!(locked.expect("lock"), vec![true; rows.len()]);
}

/// All columns of the row with key `k`, newest state.
pub fn get(db: &Arc<Db>, k: i64) -> Option<Vec<Value>> {
    let table = table(db);
    let columns: Vec<ColumnId> = table.columns.iter().map(|c| c.id).collect();
    let mut out = Vec::new();
    let found = run(db, |s| {
        s.point_get(&table, 0, &[Value::BigInt(k)], &columns, &mut out)
    });
    found.expect("get").then_some(out)
}

/// The values that a scan of `columns` finds, one row each, sorted by the first column's text.
pub fn scan_values(statement: &Statement, table: &Arc<TableDef>) -> Vec<Vec<Value>> {
    let columns: Vec<ColumnId> = table.columns.iter().map(|c| c.id).collect();
    let request = ScanRequest {
        columns,
        ..ScanRequest::default()
    };
    let scan = statement.scan(table, request).expect("scan");
    rows_of(&scan, table)
}

/// All rows of a scan over all columns of `table`, in scan order.
pub fn rows_of(scan: &Arc<TableScan>, table: &TableDef) -> Vec<Vec<Value>> {
    let mut rows = Vec::new();
    for unit in 0..scan.units() {
        for batch in scan.read_unit(unit).expect("read") {
            for i in 0..batch.num_rows() {
                let value =
                    |(at, c): (usize, &ColumnDef)| types::value_at(c.sql_type, batch.column(at), i);
                rows.push(table.columns.iter().enumerate().map(value).collect());
            }
        }
    }
    rows
}

/// A row of table `t` as created by [`create_table`].
pub fn row(k: i64, a: i64, b: &str) -> [Value; 3] {
    [Value::BigInt(k), Value::BigInt(a), Value::from(b)]
}

/// A database in memory with the table, which can be opened again.
pub struct World {
    pub device: Arc<MemoryDevice>,
    pub clock: Arc<ManualClock>,
    pub db: Arc<Db>,
}

impl World {
    pub fn new(history: HistoryPolicy) -> Self {
        let (device, clock) = (Arc::new(MemoryDevice::new()), clock());
        let db = open(device.clone(), &clock).expect("open");
        create_table(&db, history);
        Self { device, clock, db }
    }
    pub fn reopen(self) -> Self {
        let Self { device, clock, db } = self;
        drop(db);
        let db = open(device.clone(), &clock).expect("reopen");
        Self { device, clock, db }
    }
}
