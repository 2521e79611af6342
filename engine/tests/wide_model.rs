//! Random work on random tables against a naive oracle: every SQL type, NULLs, more than 64
//! columns, batches, keys that move, bulk loads with updates on top, columns added on the way,
//! savepoints, checkpoints, reopening, and a past that is kept for a while and then forgotten.
//!
//! `STRANDLINE_SEED` replays one seed, `STRANDLINE_RUNS` sets how many are tried.

mod common;

use arrow_array::{ArrayRef, RecordBatch, UInt64Array};
use common::{add_column, alter_in, clock, column, definition, open_eager};
use std::collections::BTreeMap;
use std::sync::Arc;
use strandline_base::ManualClock;
use strandline_base::rng::Rng;
use strandline_column::types;
use strandline_device::MemoryDevice;
use strandline_engine::catalog::{ColumnDef, HistoryPolicy, TableDef};
use strandline_engine::*;

const TYPES: [SqlType; 21] = [
    SqlType::Boolean,
    SqlType::SmallInt,
    SqlType::Integer,
    SqlType::BigInt,
    SqlType::Real,
    SqlType::Double,
    SqlType::Numeric {
        precision: 12,
        scale: 2,
    },
    SqlType::Numeric {
        precision: 38,
        scale: 6,
    },
    SqlType::Text,
    SqlType::Varchar(40),
    SqlType::Char(5),
    SqlType::Bytea,
    SqlType::Date,
    SqlType::Time,
    SqlType::Timestamp,
    SqlType::TimestampTz,
    SqlType::Interval,
    SqlType::Uuid,
    SqlType::Json,
    SqlType::Point,
    SqlType::Box,
];
/// How long the past is kept, and how far the clock moves per step at most.
const RETENTION_US: u64 = 40_000_000;
const STEP_US: u64 = 2_000_000;
/// Records that make a range due: few, so that columns are often merged apart.
const DUE: u32 = 12;

type Rows = BTreeMap<i64, Vec<Value>>;

/// One table as the oracle has it.
#[derive(Clone, Default)]
struct Oracle {
    rows: Rows,
}

struct World {
    device: Arc<MemoryDevice>,
    clock: Arc<ManualClock>,
    db: Arc<Db>,
    tables: usize,
    history: HistoryPolicy,
    /// committed states of all tables
    moments: Vec<(CommitTs, Vec<Oracle>)>,
}

fn value(rng: &mut Rng, sql_type: SqlType) -> Value {
    if rng.one_in(5) {
        return Value::Null;
    }
    // Small domains often, so that dictionaries and runs come up; extremes now and then.
    let n = match rng.below(4) {
        0 => rng.next_u64() as i64,
        1 => [0, -1, 1, i64::MAX, i64::MIN][rng.below(5) as usize],
        _ => rng.below(20) as i64 - 5,
    };
    match sql_type {
        SqlType::Boolean => Value::Boolean(n & 1 == 1),
        SqlType::SmallInt => Value::SmallInt(n as i16),
        SqlType::Integer => Value::Integer(n as i32),
        SqlType::BigInt => Value::BigInt(n),
        SqlType::Real => Value::Real([n as f32 / 8.0, f32::NAN, -0.0][rng.below(3) as usize]),
        SqlType::Double => {
            let special = [n as f64 / 100.0, f64::NAN, -0.0, f64::INFINITY, 1e-300];
            Value::Double(special[rng.below(5) as usize])
        }
        SqlType::Numeric { precision: 38, .. } => {
            Value::Numeric(i128::from(n) * 1_000_000_007 * i128::from(rng.below(1 << 30) + 1))
        }
        SqlType::Numeric { .. } => Value::Numeric(i128::from(n % 1_000_000_000_000)),
        SqlType::Bytea => Value::Bytea(n.to_le_bytes()[..rng.below(9) as usize].into()),
        SqlType::Date => Value::Date(n as i32),
        SqlType::Time => Value::Time(n.rem_euclid(86_400_000_000)),
        SqlType::Timestamp => Value::Timestamp(n),
        SqlType::TimestampTz => Value::TimestampTz(n),
        SqlType::Interval => Value::Interval(Interval {
            months: n as i32,
            days: (n >> 3) as i32,
            nanos: n,
        }),
        SqlType::Uuid => Value::Uuid([n as u8; 16]),
        SqlType::Point => Value::Point(Point::new([n as f64 / 8.0, -0.0])),
        SqlType::Box => Value::Box(BoxCorners::new([n as f64, f64::NAN], [0.5, f64::INFINITY])),
        SqlType::Char(_) => Value::from(format!("{:<5}", n.rem_euclid(100))),
        _ => match rng.below(3) {
            0 => Value::from(""),
            1 => Value::from(format!("ünï {n}")),
            _ => Value::from(format!("{n} is more than twelve bytes")),
        },
    }
}

/// Bitwise, but all NaNs are one.
fn is_same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Real(a), Value::Real(b)) => {
            a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
        }
        (Value::Double(a), Value::Double(b)) => {
            a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
        }
        (a, b) => a == b,
    }
}

fn assert_same(found: &Rows, expected: &Rows, what: &dyn std::fmt::Display) {
    let keys = |rows: &Rows| rows.keys().copied().collect::<Vec<_>>();
    assert_eq!(keys(found), keys(expected), "{what}: keys");
    for (key, row) in expected {
        for (at, (found, expected)) in found[key].iter().zip(row).enumerate() {
            assert!(
                is_same(found, expected),
                "{what}: key {key}, column {at}: found {found:?}, expected {expected:?}"
            );
        }
        assert_eq!(found[key].len(), row.len(), "{what}: key {key}");
    }
}

fn batch_of(types: &[SqlType], rows: &[Vec<Value>]) -> RecordBatch {
    let columns = types.iter().enumerate().map(|(at, t)| {
        let values: Vec<Value> = rows.iter().map(|row| row[at].clone()).collect();
        let array: ArrayRef = types::array_of(*t, &values).expect("array");
        (format!("c{at}"), array, true)
    });
    RecordBatch::try_from_iter_with_nullable(columns).expect("batch")
}

fn types_of(table: &TableDef) -> Vec<SqlType> {
    table.columns.iter().map(|c| c.sql_type).collect()
}

impl World {
    fn new(rng: &mut Rng) -> Self {
        let (device, clock) = (Arc::new(MemoryDevice::new()), clock());
        let db = open_eager(device.clone(), &clock, DUE).expect("open");
        let history = match rng.below(4) {
            0 => HistoryPolicy::Forever,
            1 => HistoryPolicy::None,
            _ => HistoryPolicy::For(RETENTION_US),
        };
        let tables = 1 + rng.below(3) as usize;
        let txn = db.begin(TxnOptions::default()).expect("begin");
        txn.change_catalog(&mut |catalog| {
            for n in 0..tables {
                let width = [3, 6, 20, 70][rng.below(4) as usize];
                let any = |id: u32, rng: &mut Rng| {
                    let sql_type = TYPES[rng.below(TYPES.len() as u64) as usize];
                    column(id, &format!("c{id}"), sql_type, false)
                };
                let mut columns = vec![column(0, "k", SqlType::BigInt, true)];
                columns.extend((1..width).map(|id| any(id, rng)));
                let name = if n == 0 {
                    "t".to_string()
                } else {
                    format!("t{n}")
                };
                let table = TableDef {
                    name,
                    ..definition(catalog, columns, history)
                };
                catalog.put_table(table);
            }
            Ok(())
        })
        .expect("create");
        let ts = txn.commit().expect("commit");
        let moments = vec![(ts, vec![Oracle::default(); tables])];
        drop(txn);
        Self {
            device,
            clock,
            db,
            tables,
            history,
            moments,
        }
    }

    fn table(&self, n: usize) -> Arc<TableDef> {
        table_in(&self.db.catalog(), n)
    }

    fn reopen(&mut self) {
        let other = Arc::new(MemoryDevice::new());
        self.db = open_eager(other, &self.clock, DUE).expect("placeholder");
        self.db = open_eager(self.device.clone(), &self.clock, DUE).expect("reopen");
    }

    fn now(&self) -> Vec<Oracle> {
        self.moments.last().expect("one").1.clone()
    }

    /// Compares the newest state, moments of the past, and points.
    fn check(&self, rng: &mut Rng) {
        let txn = self.db.begin(TxnOptions::default()).expect("begin");
        let statement = txn.begin_statement().expect("statement");
        for (n, oracle) in self.now().iter().enumerate() {
            let table = self.table(n);
            let found = scan(&statement, &table, None).expect("scan");
            assert_same(&found, &oracle.rows, &format!("table {n} now"));
            self.check_points(&statement, &table, oracle, rng);
        }
        let newest_us = self.clock_us();
        for i in 0..self.moments.len() {
            let (ts, oracles) = &self.moments[i];
            if self.moments.len() > 8 && !rng.one_in(self.moments.len() as u64 / 4) {
                continue;
            }
            let until = self.moments.get(i + 1).map_or(ts.0, |next| next.0.0 - 1);
            let at = CommitTs(ts.0 + rng.below(until - ts.0 + 1));
            let is_kept = match self.history {
                HistoryPolicy::Forever => true,
                HistoryPolicy::For(us) => at.0 >= newest_us.saturating_sub(us),
                HistoryPolicy::None => at >= self.db.stable(),
            };
            for (n, oracle) in oracles.iter().enumerate() {
                let found = self
                    .db
                    .catalog_at(at)
                    .and_then(|catalog| scan(&statement, &table_in(&catalog, n), Some(at)));
                match found {
                    Ok(found) => assert_same(&found, &oracle.rows, &format!("{n} as of {at}")),
                    Err(e) => {
                        assert_eq!(e.sqlstate(), SqlState::SNAPSHOT_TOO_OLD, "{e}");
                        assert!(!is_kept, "{e} at {newest_us}");
                    }
                }
            }
        }
        let damage = self.db.check().expect("check");
        assert!(damage.is_empty(), "{damage:?}");
    }

    fn clock_us(&self) -> u64 {
        self.db.now_us()
    }

    fn check_points(
        &self,
        statement: &Statement,
        table: &Arc<TableDef>,
        o: &Oracle,
        rng: &mut Rng,
    ) {
        for _ in 0..10 {
            let key = some_key(&o.rows, rng);
            let mut ids: Vec<(usize, ColumnId)> =
                table.columns.iter().map(|c| c.id).enumerate().collect();
            ids.retain(|_| rng.one_in(2));
            let columns: Vec<ColumnId> = ids.iter().map(|(_, id)| *id).collect();
            let mut out = Vec::new();
            let found = statement
                .point_get(table, 0, &[Value::BigInt(key)], &columns, &mut out)
                .expect("get");
            let expected = o.rows.get(&key);
            assert_eq!(found, expected.is_some(), "key {key}");
            for ((at, _), found) in ids.iter().zip(&out) {
                let expected = &expected.expect("found")[*at];
                assert!(
                    is_same(found, expected),
                    "key {key}, column {at}: {found:?} {expected:?}"
                );
            }
        }
    }

    /// One transaction of random batches.
    fn transaction(&mut self, rng: &mut Rng) {
        let options = TxnOptions {
            isolation: if rng.one_in(2) {
                Isolation::Snapshot
            } else {
                Isolation::ReadCommitted
            },
            synchronous_commit: rng.one_in(2),
            ..TxnOptions::default()
        };
        let txn = self.db.begin(options).expect("begin");
        let mut state = self.now();
        for _ in 0..=rng.below(4) {
            let n = rng.below(self.tables as u64) as usize;
            let savepoint = txn.savepoint();
            let before = state[n].clone();
            if rng.one_in(12) {
                add_random_column(&txn, n, &mut state[n], rng);
            } else {
                let table = table_in(&txn.catalog(), n);
                let statement = txn.begin_statement().expect("statement");
                change(&statement, &table, &mut state[n], rng);
                statement.finish().expect("keys");
            }
            if rng.one_in(5) {
                txn.rollback_to(&savepoint).expect("rollback to");
                state[n] = before;
            }
            if rng.one_in(3) {
                // In a checkpoint beside the open transaction, and in its own view.
                if rng.one_in(3) {
                    self.db.checkpoint(rng.one_in(2)).expect("checkpoint");
                }
                let table = table_in(&txn.catalog(), n);
                let statement = txn.begin_statement().expect("statement");
                let found = scan(&statement, &table, None).expect("scan");
                assert_same(&found, &state[n].rows, &"its own view");
            }
        }
        if rng.one_in(6) {
            txn.rollback();
            return;
        }
        let has_written = txn.has_written();
        let ts = txn.commit().expect("commit");
        if has_written {
            self.moments.push((ts, state));
        }
    }
}

fn table_in(catalog: &catalog::Catalog, n: usize) -> Arc<TableDef> {
    let name = if n == 0 {
        "t".to_string()
    } else {
        format!("t{n}")
    };
    catalog.table("public", &name).expect("table").clone()
}

fn some_key(rows: &Rows, rng: &mut Rng) -> i64 {
    let any = rng.below(300) as i64;
    rows.range(any..).next().map_or(any, |(k, _)| *k)
}

fn add_random_column(txn: &Transaction, n: usize, oracle: &mut Oracle, rng: &mut Rng) {
    let sql_type = TYPES[rng.below(TYPES.len() as u64) as usize];
    let mut missing = value(rng, sql_type);
    if let Value::Real(_) | Value::Double(_) = missing {
        missing = Value::Null; // NaN is refused as a default
    }
    if n == 0 {
        alter_in(txn, |t| {
            let name = format!("c{}", t.next_column);
            add_column(t, &name, sql_type, missing.clone());
        });
    } else {
        txn.change_catalog(&mut |catalog| {
            let mut table = TableDef::clone(&table_in(catalog, n));
            let id = table.next_column;
            let new = column(id, &format!("c{id}"), sql_type, false);
            table.columns.push(ColumnDef {
                missing: missing.clone(),
                ..new
            });
            table.next_column += 1;
            catalog.put_table(table);
            Ok(())
        })
        .expect("add column");
    }
    oracle
        .rows
        .values_mut()
        .for_each(|row| row.push(missing.clone()));
}

fn new_row(key: i64, types: &[SqlType], rng: &mut Rng) -> Vec<Value> {
    let rest = types[1..].iter().map(|t| value(rng, *t));
    std::iter::once(Value::BigInt(key)).chain(rest).collect()
}

/// A batch of one kind through the statement, and the same in the oracle.
fn change(statement: &Arc<Statement>, table: &Arc<TableDef>, oracle: &mut Oracle, rng: &mut Rng) {
    let types = types_of(table);
    let size = [1, 1, 5, 60][rng.below(4) as usize];
    let first = rng.below(300) as i64;
    match rng.below(9) {
        0..=2 => {
            let free = (first..)
                .filter(|k| !oracle.rows.contains_key(k))
                .take(size);
            let rows: Vec<_> = free.map(|k| new_row(k, &types, rng)).collect();
            let violation = OnInvisibleDuplicate::Violation;
            statement
                .insert(table, &batch_of(&types, &rows), violation)
                .expect("insert");
            put(oracle, rows);
        }
        3..=5 => {
            let keys: Vec<i64> = oracle
                .rows
                .range(first..)
                .take(size)
                .map(|(k, _)| *k)
                .collect();
            let ids = find(statement, table, &keys);
            let mut columns: Vec<usize> = (1..types.len()).filter(|_| rng.one_in(3)).collect();
            columns.truncate(8);
            if columns.is_empty() {
                columns.push(types.len() - 1);
            }
            let set_types: Vec<SqlType> = columns.iter().map(|c| types[*c]).collect();
            let set: Vec<Vec<Value>> = keys
                .iter()
                .map(|_| set_types.iter().map(|t| value(rng, *t)).collect())
                .collect();
            let column_ids: Vec<ColumnId> = columns.iter().map(|c| table.columns[*c].id).collect();
            statement
                .update(table, &ids, &column_ids, &batch_of(&set_types, &set))
                .expect("update");
            for (key, set) in keys.iter().zip(set) {
                let row = oracle.rows.get_mut(key).expect("row");
                columns.iter().zip(set).for_each(|(at, v)| row[*at] = v);
            }
        }
        6 => {
            // All keys of a stretch move by one: they meet only each other.
            let keys: Vec<i64> = oracle
                .rows
                .range(first..)
                .take(size)
                .map(|(k, _)| *k)
                .collect();
            let Some(last) = keys.last() else { return };
            let keys: Vec<i64> = match oracle.rows.contains_key(&(last + 1)) {
                true => return,
                false => keys,
            };
            let ids = find(statement, table, &keys);
            let set: Vec<Vec<Value>> = keys.iter().map(|k| vec![Value::BigInt(k + 1)]).collect();
            let values = batch_of(&[SqlType::BigInt], &set);
            statement
                .update(table, &ids, &[ColumnId(0)], &values)
                .expect("move");
            let moved: Vec<_> = keys
                .iter()
                .map(|k| oracle.rows.remove(k).expect("row"))
                .collect();
            let moved = keys.iter().zip(moved).map(|(k, mut row)| {
                row[0] = Value::BigInt(k + 1);
                row
            });
            let moved: Vec<_> = moved.collect();
            put(oracle, moved);
        }
        7 => {
            let keys: Vec<i64> = oracle
                .rows
                .range(first..)
                .take(size)
                .map(|(k, _)| *k)
                .collect();
            let ids = find(statement, table, &keys);
            statement.delete(table, &ids).expect("delete");
            keys.iter().for_each(|k| drop(oracle.rows.remove(k)));
        }
        _ if oracle.rows.len() < 3000 && types.len() < 30 => {
            let first = 10_000 + oracle.rows.keys().next_back().copied().unwrap_or(0);
            bulk(statement, table, oracle, first..first + 4200, rng);
        }
        _ => {}
    }
}

fn bulk(
    statement: &Arc<Statement>,
    table: &Arc<TableDef>,
    oracle: &mut Oracle,
    keys: std::ops::Range<i64>,
    rng: &mut Rng,
) {
    let types = types_of(table);
    let samples: Vec<_> = (0..17).map(|_| new_row(0, &types, rng)).collect();
    let row = |k: i64| {
        let mut row = samples[(k % 17) as usize].clone();
        row[0] = Value::BigInt(k);
        row
    };
    let rows: Vec<_> = keys.map(row).collect();
    let mut load = statement.bulk_insert(table).expect("load");
    for part in rows.chunks(3000) {
        load.append(&batch_of(&types, part)).expect("append");
    }
    assert_eq!(load.finish().expect("finish"), rows.len() as u64);
    put(oracle, rows);
}

fn put(oracle: &mut Oracle, rows: Vec<Vec<Value>>) {
    for row in rows {
        let Value::BigInt(key) = row[0] else {
            panic!("a key")
        };
        assert!(oracle.rows.insert(key, row).is_none());
    }
}

fn find(statement: &Statement, table: &Arc<TableDef>, keys: &[i64]) -> Vec<RowId> {
    let keys: Vec<_> = keys.iter().map(|k| vec![Value::BigInt(*k)]).collect();
    let found = statement.find_by_key(table, 0, &batch_of(&[SqlType::BigInt], &keys));
    found
        .expect("find")
        .into_iter()
        .map(|id| id.expect("a row that is there"))
        .collect()
}

/// All rows by key, with the row ids checked to be distinct.
fn scan(statement: &Statement, table: &Arc<TableDef>, at: Option<CommitTs>) -> Result<Rows> {
    let columns: Vec<ColumnId> = table.columns.iter().map(|c| c.id).collect();
    let request = ScanRequest {
        columns,
        with_row_id: true,
        ..ScanRequest::default()
    };
    let scan = match at {
        Some(ts) => statement.scan_as_of(table, ts, request)?,
        None => statement.scan(table, request)?,
    };
    let (mut rows, mut ids) = (Rows::new(), std::collections::BTreeSet::new());
    for unit in 0..scan.units() {
        for batch in scan.read_unit(unit)? {
            let row_ids = batch.columns().last().expect("row ids").as_any();
            let row_ids = row_ids.downcast_ref::<UInt64Array>().expect("row ids");
            ids.extend(row_ids.values().iter().copied());
            for i in 0..batch.num_rows() {
                let value =
                    |(at, c): (usize, &ColumnDef)| types::value_at(c.sql_type, batch.column(at), i);
                let row: Vec<Value> = table.columns.iter().enumerate().map(value).collect();
                let Value::BigInt(key) = row[0] else {
                    panic!("a key")
                };
                assert!(rows.insert(key, row).is_none(), "key {key} twice");
            }
        }
    }
    assert_eq!(ids.len(), rows.len(), "row ids are distinct");
    Ok(rows)
}

fn run(seed: u64) {
    let mut rng = Rng::new(seed);
    let mut world = World::new(&mut rng);
    for _ in 0..12 + rng.below(14) {
        world.clock.advance(rng.below(STEP_US));
        match rng.below(10) {
            0 => drop(world.db.checkpoint(true).expect("checkpoint")),
            1 => drop(world.db.checkpoint(false).expect("checkpoint")),
            2 => world.reopen(),
            3 => world.clock.advance(rng.below(RETENTION_US)),
            4 => world.check(&mut rng),
            _ => world.transaction(&mut rng),
        }
    }
    world.check(&mut rng);
    world.db.checkpoint(true).expect("checkpoint");
    world.check(&mut rng);
    world.reopen();
    world.check(&mut rng);
}

#[test]
fn random_tables_agree_with_the_oracle() {
    let number = |name: &str| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
    let seeds = match number("STRANDLINE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("STRANDLINE_RUNS").unwrap_or(12),
    };
    for seed in seeds {
        println!("seed {seed}");
        run(seed);
    }
}

/// More rows than one range has, loaded and inserted, changed across the border.
#[test]
fn several_ranges_agree_with_the_oracle() {
    let mut rng = Rng::new(5);
    let mut world = loop {
        let world = World::new(&mut rng);
        if world.table(0).columns.len() == 3 && world.history != HistoryPolicy::None {
            break world;
        }
    };
    let table = world.table(0);
    let types = types_of(&table);
    for round in 0..2 {
        let txn = world.db.begin(TxnOptions::default()).expect("begin");
        let mut state = world.now();
        let statement = txn.begin_statement().expect("statement");
        if round == 0 {
            bulk(
                &statement,
                &table,
                &mut state[0],
                100_000..170_000,
                &mut rng,
            );
        } else {
            let rows: Vec<_> = (200_000..266_000)
                .map(|k| new_row(k, &types, &mut rng))
                .collect();
            let violation = OnInvisibleDuplicate::Violation;
            statement
                .insert(&table, &batch_of(&types, &rows), violation)
                .expect("insert");
            put(&mut state[0], rows);
        }
        statement.finish().expect("keys");
        drop(statement);
        for _ in 0..3 {
            let keys: Vec<i64> = (0..200)
                .map(|i| (round + 1) * 100_000 + 65_436 + i)
                .collect();
            let keys: Vec<i64> = keys
                .into_iter()
                .filter(|k| state[0].rows.contains_key(k))
                .collect();
            let statement = txn.begin_statement().expect("statement");
            let ids = find(&statement, &table, &keys);
            let set: Vec<_> = keys
                .iter()
                .map(|_| vec![value(&mut rng, types[1])])
                .collect();
            let values = batch_of(&types[1..2], &set);
            statement
                .update(&table, &ids, &[ColumnId(1)], &values)
                .expect("update");
            for (key, set) in keys.iter().zip(set) {
                state[0].rows.get_mut(key).expect("row")[1] = set[0].clone();
            }
        }
        let ts = txn.commit().expect("commit");
        drop(txn);
        world.moments.push((ts, state));
        world.check(&mut rng);
        world.clock.advance(1_000_000);
        world.db.checkpoint(round == 0).expect("checkpoint");
        world.reopen();
    }
    world.db.checkpoint(true).expect("checkpoint");
    world.check(&mut rng);
    world.reopen();
    world.check(&mut rng);
}
