//! All versions of all rows in an interval, against a list of versions kept beside: random
//! transactions, some of them open or rolled back, bulk loads, merges, checkpoints, reopening,
//! retention; columns that were added, and TRUNCATE.
//!
//! `STRANDLINE_SEED` replays one seed.

mod common;

use arrow_array::RecordBatch;
use common::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use strandline_base::rng::Rng;
use strandline_column::types;
use strandline_device::MemoryDevice;
use strandline_engine::catalog::{HistoryPolicy, TableDef};
use strandline_engine::*;

const END: CommitTs = CommitTs(CommitTs::MAX.0 - 1);

/// One version: values, when it began and ended.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Version {
    k: i64,
    from: u64,
    to: Option<u64>,
    a: Option<i64>,
    b: String,
}

/// Key → new values; None: deleted.
type Writes = BTreeMap<i64, Option<(Option<i64>, String)>>;

#[derive(Default)]
struct Oracle {
    versions: Vec<Version>,
    live: BTreeMap<i64, usize>,
}

impl Oracle {
    fn commit(&mut self, ts: CommitTs, writes: Writes) {
        for (k, value) in writes {
            if let Some(old) = self.live.remove(&k) {
                self.versions[old].to = Some(ts.0);
            }
            if let Some((a, b)) = value {
                self.live.insert(k, self.versions.len());
                let (from, to) = (ts.0, None);
                self.versions.push(Version { k, from, to, a, b });
            }
        }
    }

    fn expected(&self, from: u64, through: u64, seen: u64) -> Vec<Version> {
        let (from, through) = (from.min(seen), through.min(seen));
        let mut found: Vec<Version> = self.versions.clone();
        for version in &mut found {
            version.to = version.to.filter(|to| *to <= seen);
        }
        found.retain(|v| v.from <= through && v.to.is_none_or(|to| to > from));
        found.sort();
        found
    }
}

fn columns(table: &TableDef) -> Vec<VersionColumn> {
    let stored = table.columns.iter().map(|c| VersionColumn::Stored(c.id));
    stored
        .chain(VersionColumn::TIMES.map(|(_, column)| column))
        .collect()
}

fn batches(scan: &Arc<VersionScan>) -> Vec<RecordBatch> {
    let mut batches = Vec::new();
    for unit in 0..scan.units() {
        let mut reader = scan.open_unit(unit).expect("open");
        while let Some(batch) = reader.next_batch().expect("read") {
            batches.push(batch);
        }
    }
    batches
}

fn time(batch: &RecordBatch, at: usize, row: usize) -> Option<u64> {
    match types::value_at(SqlType::TimestampTz, batch.column(at), row) {
        Value::TimestampTz(us) => Some(us as u64),
        _ => None,
    }
}

fn read(statement: &Statement, from: CommitTs, through: CommitTs) -> Vec<Version> {
    let t = table(statement.transaction().db());
    let scan = statement.scan_versions(&t, (from, through), None, &columns(&t));
    versions_of(&scan.expect("scan"), &t)
}

fn versions_of(scan: &Arc<VersionScan>, t: &TableDef) -> Vec<Version> {
    let mut found = Vec::new();
    let mut last = (None, 0);
    for batch in batches(scan) {
        for row in 0..batch.num_rows() {
            let value = |at: usize| types::value_at(t.columns[at].sql_type, batch.column(at), row);
            let (Value::BigInt(k), Value::Text(b)) = (value(0), value(2)) else {
                panic!("key {:?}, text {:?}", value(0), value(2));
            };
            let a = match value(1) {
                Value::BigInt(a) => Some(a),
                _ => None,
            };
            let begin = time(&batch, 3, row).expect("a version has a beginning");
            if last.0 == Some(k) {
                assert!(last.1 < begin, "versions of row {k} out of order");
            }
            last = (Some(k), begin);
            found.push(Version {
                k,
                from: begin,
                to: time(&batch, 4, row),
                a,
                b: b.to_string(),
            });
        }
    }
    found.sort();
    found
}

fn text(rng: &mut Rng) -> String {
    match rng.below(3) {
        0 => String::new(),
        1 => format!("v{}", rng.below(50)),
        _ => format!("a longer value that is not inlined {}", rng.next_u64()),
    }
}

/// One row's change in `txn`; what it leaves of the row goes to `writes`.
fn step(txn: &Arc<Transaction>, view: &State, writes: &mut Writes, key: i64, rng: &mut Rng) {
    let statement = txn.begin_statement().expect("statement");
    let t = table(txn.db());
    let now = match writes.get(&key) {
        Some(own) => own.clone(),
        None => view.get(&key).cloned(),
    };
    let k = [Value::BigInt(key)];
    let (a, b) = (rng.below(1000) as i64, text(rng));
    let Some((old_a, old_b)) = now else {
        statement
            .point_insert(&t, &row(key, a, &b))
            .expect("insert");
        writes.insert(key, Some((Some(a), b)));
        return;
    };
    let set_a = (ColumnId(1), Value::BigInt(a));
    let set_b = (ColumnId(2), Value::from(b.as_str()));
    let (set, new) = match rng.below(5) {
        0 => {
            statement.point_delete(&t, 0, &k).expect("delete");
            writes.insert(key, None);
            return;
        }
        1 => (vec![set_b], (old_a, b)),
        2 => (vec![set_a, set_b], (Some(a), b)),
        3 => (vec![(ColumnId(1), Value::Null)], (None, old_b)),
        _ => (vec![set_a], (Some(a), old_b)),
    };
    statement.point_update(&t, 0, &k, &set).expect("update");
    writes.insert(key, Some(new));
}

fn bulk(world: &World, oracle: &mut Oracle, first: i64, rng: &mut Rng) {
    let rows: Vec<_> = (first..first + 5000)
        .map(|k| (k, Some(k * 2), format!("row {k}")))
        .collect();
    let t = table(&world.db);
    let txn = world.db.begin(TxnOptions::default()).expect("begin");
    let statement = txn.begin_statement().expect("statement");
    let mut load = statement.bulk_insert(&t).expect("load");
    load.append(&batch(&rows)).expect("append");
    load.finish().expect("finish");
    statement.finish().expect("keys");
    if rng.one_in(3) {
        return txn.rollback();
    }
    let ts = txn.commit().expect("commit");
    oracle.commit(
        ts,
        rows.into_iter()
            .map(|(k, a, b)| (k, Some((a, b))))
            .collect(),
    );
}

impl Oracle {
    fn state(&self) -> State {
        let row = |(k, at): (&i64, &usize)| {
            let v = &self.versions[*at];
            (*k, (v.a, v.b.clone()))
        };
        self.live.iter().map(row).collect()
    }
}

struct Model {
    world: World,
    oracle: Oracle,
    rng: Rng,
    /// a transaction at work on keys of its own
    open: Option<(Arc<Transaction>, Writes)>,
    /// a snapshot taken earlier
    old: Option<Arc<Statement>>,
    first_ts: u64,
}

impl Model {
    fn new(seed: u64, history: HistoryPolicy) -> Self {
        let (device, clock) = (Arc::new(MemoryDevice::new()), clock());
        // With few pending records a merge takes some columns along and leaves others behind.
        let few = Settings {
            merge_pending_records: 5,
            background_maintenance: false,
            ..Settings::default()
        };
        let db = match seed % 2 {
            0 => open(device.clone(), &clock),
            _ => Db::open(DbOptions {
                device: device.clone(),
                clock: clock.clone(),
                settings: few,
            }),
        };
        let db = db.expect("open");
        create_table(&db, history);
        let world = World { device, clock, db };
        let first_ts = world.db.stable().0;
        Self {
            world,
            oracle: Oracle::default(),
            rng: Rng::new(seed),
            open: None,
            old: None,
            first_ts,
        }
    }

    fn begin(&self, isolation: Isolation) -> Arc<Transaction> {
        let options = TxnOptions {
            isolation,
            ..TxnOptions::default()
        };
        self.world.db.begin(options).expect("begin")
    }

    fn step(&mut self) {
        self.world.clock.advance(self.rng.below(2000));
        match self.rng.below(30) {
            0..=14 => {
                let txn = self.begin(Isolation::ReadCommitted);
                let (view, mut writes) = (self.oracle.state(), Writes::new());
                for _ in 0..self.rng.below(4) + 1 {
                    // Among the loaded rows as well, if there are any.
                    let key = match self.rng.below(3) {
                        0 => 10_000 + self.rng.below(40) as i64 * 300,
                        _ => self.rng.below(30) as i64,
                    };
                    step(&txn, &view, &mut writes, key, &mut self.rng);
                    let statement = txn.begin_statement().expect("statement");
                    let other = self.rng.below(30) as i64;
                    lock(&statement, &table(&self.world.db), other);
                }
                if self.rng.one_in(6) {
                    return txn.rollback();
                }
                let ts = txn.commit().expect("commit");
                self.oracle.commit(ts, writes);
            }
            15..=17 => {
                let begun = (self.begin(Isolation::ReadCommitted), Writes::new());
                let (txn, mut writes) = self.open.take().unwrap_or(begun);
                let key = 1000 + self.rng.below(10) as i64;
                let view = self.oracle.state();
                step(&txn, &view, &mut writes, key, &mut self.rng);
                self.open = Some((txn, writes));
            }
            18 => {
                if let Some((txn, writes)) = self.open.take() {
                    let ts = txn.commit().expect("commit");
                    self.oracle.commit(ts, writes);
                }
            }
            19 => {
                let txn = self.begin(Isolation::Snapshot);
                self.old = Some(txn.begin_statement().expect("statement"));
            }
            20..=22 => {
                let all = self.rng.one_in(2);
                self.world.db.checkpoint(all).expect("checkpoint");
            }
            23 if self.rng.one_in(2) => self.reopen(),
            24 if self.rng.one_in(2) && !self.oracle.versions.iter().any(|v| v.k >= 10_000) => {
                bulk(&self.world, &mut self.oracle, 10_000, &mut self.rng);
            }
            _ => self.check(),
        }
    }

    fn reopen(&mut self) {
        (self.open, self.old) = (None, None);
        let stand_in = World::new(HistoryPolicy::Forever);
        self.world = std::mem::replace(&mut self.world, stand_in).reopen();
    }

    fn moment(&mut self) -> u64 {
        let count = self.oracle.versions.len() as u64;
        let span = self.world.db.stable().0 - self.first_ts + 100;
        match self.rng.below(4) {
            0 => self.first_ts + self.rng.below(span),
            at if count > 0 => {
                let version = &self.oracle.versions[self.rng.below(count) as usize];
                let moment = if at == 1 { version.to } else { None };
                moment.unwrap_or(version.from) + self.rng.below(3) - 1
            }
            _ => self.first_ts,
        }
    }

    fn check(&mut self) {
        let statement = self.begin(Isolation::ReadCommitted).begin_statement();
        let mut statement = statement.expect("statement");
        if let Some(old) = self.old.as_ref().filter(|_| self.rng.one_in(2)) {
            statement = old.clone();
        }
        let seen = statement.snapshot_ts();
        let whole = read(&statement, CommitTs(self.first_ts), END);
        assert_eq!(whole, self.oracle.expected(self.first_ts, END.0, seen.0));
        for _ in 0..4 {
            let (from, through) = (self.moment(), self.moment());
            let found = read(&statement, CommitTs(from), CommitTs(through));
            let expected = match from <= through {
                true => self.oracle.expected(from, through, seen.0),
                false => Vec::new(),
            };
            assert_eq!(found, expected, "from {from} through {through} at {seen}");
        }
    }
}

#[test]
fn every_version_comes_once_whatever_has_been_merged() {
    let seeds = match std::env::var("STRANDLINE_SEED") {
        Ok(seed) => vec![seed.parse().expect("a number")],
        Err(_) => (0..12).collect::<Vec<u64>>(),
    };
    for seed in seeds {
        println!("seed {seed}");
        let mut model = Model::new(seed, HistoryPolicy::Forever);
        for _ in 0..160 {
            model.step();
        }
        model.world.db.checkpoint(true).expect("checkpoint");
        model.check();
        model.reopen();
        model.check();
        let damage = model.world.db.check().expect("check");
        assert!(damage.is_empty(), "{damage:?}");
    }
}

#[test]
fn an_interval_that_begins_within_the_retention_is_whole() {
    for seed in 0..6 {
        let mut model = Model::new(seed, HistoryPolicy::For(40_000));
        let mut answered = 0;
        for _ in 0..150 {
            model.step_without_checks();
            let from = model.moment();
            let txn = model.begin(Isolation::ReadCommitted);
            let statement = txn.begin_statement().expect("statement");
            let t = table(&model.world.db);
            let interval = (CommitTs(from), END);
            match statement.scan_versions(&t, interval, None, &columns(&t)) {
                Ok(_) => {
                    answered += 1;
                    let found = read(&statement, CommitTs(from), END);
                    let seen = statement.snapshot_ts().0;
                    assert_eq!(
                        found,
                        model.oracle.expected(from, END.0, seen),
                        "seed {seed}"
                    );
                }
                Err(e) => assert_eq!(e.sqlstate(), SqlState::SNAPSHOT_TOO_OLD, "{e}"),
            }
        }
        assert!(answered > 20, "{answered} intervals within the retention");
    }
}

impl Model {
    fn step_without_checks(&mut self) {
        if self.rng.one_in(3) {
            let all = self.rng.one_in(2);
            self.world.db.checkpoint(all).expect("checkpoint");
        }
        self.world.clock.advance(self.rng.below(2000));
        let txn = self.begin(Isolation::ReadCommitted);
        let (view, mut writes) = (self.oracle.state(), Writes::new());
        let key = self.rng.below(12) as i64;
        step(&txn, &view, &mut writes, key, &mut self.rng);
        let ts = txn.commit().expect("commit");
        self.oracle.commit(ts, writes);
    }
}

/// All values of all versions, in the order of the scan.
fn values(db: &Arc<Db>, from: CommitTs, through: CommitTs) -> Vec<Vec<Value>> {
    let txn = db.begin(TxnOptions::default()).expect("begin");
    values_in(&txn, from, through)
}

fn at(ts: CommitTs) -> Value {
    Value::TimestampTz(ts.0 as i64)
}

fn set_a(db: &Arc<Db>, k: i64, a: i64) -> CommitTs {
    let t = table(db);
    let set = [(ColumnId(1), Value::BigInt(a))];
    run(db, |s| s.point_update(&t, 0, &[Value::BigInt(k)], &set)).expect("update");
    db.stable()
}

#[test]
fn a_column_added_since_shows_its_missing_value_in_older_versions() {
    for merge in [false, true] {
        let world = World::new(HistoryPolicy::Forever);
        insert(&world.db, &row(1, 10, "x"));
        let inserted = world.db.stable();
        let updated = set_a(&world.db, 1, 11);
        if merge {
            world.db.checkpoint(true).expect("checkpoint");
        }
        alter(&world.db, |t| {
            add_column(t, "c", SqlType::BigInt, Value::BigInt(7))
        });
        let t = table(&world.db);
        let set = [(ColumnId(3), Value::BigInt(8))];
        run(&world.db, |s| {
            s.point_update(&t, 0, &[Value::BigInt(1)], &set)
        })
        .expect("update");
        let filled = world.db.stable();
        if merge {
            world.db.checkpoint(true).expect("checkpoint");
        }
        let version = |a, c, from, to: Option<CommitTs>| {
            let to = to.map_or(Value::Null, at);
            [&row(1, a, "x")[..], &[Value::BigInt(c), at(from), to]].concat()
        };
        let expected = [
            version(10, 7, inserted, Some(updated)),
            version(11, 7, updated, Some(filled)),
            version(11, 8, filled, None),
        ];
        assert_eq!(values(&world.db, inserted, END), expected, "merge {merge}");
        assert_eq!(values(&world.reopen().db, inserted, END), expected);
    }
}

#[test]
fn rows_that_a_truncate_ended_are_found_in_the_storage_they_were_in() {
    for merge in [false, true] {
        let world = World::new(HistoryPolicy::Forever);
        insert(&world.db, &row(1, 10, "x"));
        let inserted = world.db.stable();
        let updated = set_a(&world.db, 1, 11);
        if merge {
            world.db.checkpoint(true).expect("checkpoint");
        }
        let txn = world.db.begin(TxnOptions::default()).expect("begin");
        txn.change_catalog(&mut |catalog| {
            let mut t = TableDef::clone(catalog.table("public", "t").expect("table t"));
            t.storage = catalog.new_storage_id();
            catalog.put_table(t);
            Ok(())
        })
        .expect("truncate");
        let before = values_in(&txn, inserted, END);
        let truncated = txn.commit().expect("commit");
        drop(txn);
        insert(&world.db, &row(1, 20, "y"));
        let again = world.db.stable();
        if merge {
            world.db.checkpoint(true).expect("checkpoint");
        }
        let version = |a, b, from, to: Option<CommitTs>| {
            [&row(1, a, b)[..], &[at(from), to.map_or(Value::Null, at)]].concat()
        };
        let first = version(10, "x", inserted, Some(updated));
        assert_eq!(before, [first.clone(), version(11, "x", updated, None)]);
        let expected = [
            first,
            version(11, "x", updated, Some(truncated)),
            version(20, "y", again, None),
        ];
        assert_eq!(values(&world.db, inserted, END), expected, "merge {merge}");
        assert_eq!(values(&world.db, updated, truncated), expected[1..2]);
        assert_eq!(values(&world.db, truncated, END), expected[2..]);
        assert_eq!(values(&world.reopen().db, inserted, END), expected);
    }
}

/// As [`values`], as a statement of `txn` sees them.
fn values_in(txn: &Arc<Transaction>, from: CommitTs, through: CommitTs) -> Vec<Vec<Value>> {
    let statement = txn.begin_statement().expect("statement");
    let catalog = txn.catalog();
    let t = catalog.table("public", "t").expect("table t");
    let wanted = columns(t);
    let scan = statement.scan_versions(t, (from, through), None, &wanted);
    let mut types: Vec<SqlType> = t.columns.iter().map(|c| c.sql_type).collect();
    types.extend([SqlType::TimestampTz; 2]);
    let mut rows = Vec::new();
    for batch in batches(&scan.expect("scan")) {
        for row in 0..batch.num_rows() {
            let value = |(at, t): (usize, &SqlType)| types::value_at(*t, batch.column(at), row);
            rows.push(types.iter().enumerate().map(value).collect());
        }
    }
    rows
}

/// An interval is read piece by piece: what its retention gives up meanwhile is kept for it.
#[test]
fn an_interval_that_is_being_read_stays_whole() {
    let world = World::new(HistoryPolicy::For(1_000_000));
    let insert = |k: i64, a: i64| {
        run(&world.db, |s| {
            let row = [
                Value::BigInt(k),
                Value::BigInt(a),
                Value::from(String::new()),
            ];
            s.point_insert(&table(&world.db), &row)
        })
        .expect("insert");
    };
    let set = |k: i64, a: i64| {
        run(&world.db, |s| {
            let set = [(ColumnId(1), Value::BigInt(a))];
            s.point_update(&table(&world.db), 0, &[Value::BigInt(k)], &set)
        })
        .expect("update");
    };
    insert(1, 0);
    world.db.checkpoint(true).expect("checkpoint");
    let first = world.db.stable();
    for a in 1..=5 {
        set(1, a);
        insert(100 + a, a);
        run(&world.db, |s| {
            s.point_delete(&table(&world.db), 0, &[Value::BigInt(100 + a)])
        })
        .expect("delete");
        world.db.checkpoint(a % 2 == 0).expect("checkpoint");
    }
    let txn = world.db.begin(TxnOptions::default()).expect("begin");
    let statement = txn.begin_statement().expect("statement");
    let expected = read(&statement, first, END);
    assert_eq!(
        expected.len(),
        6 + 5,
        "all versions of the row, and those that went again"
    );
    let t = table(&world.db);
    let scan = statement.scan_versions(&t, (first, END), None, &columns(&t));
    let scan = scan.expect("scan");
    world.clock.advance(3_000_000);
    set(1, 6);
    for _ in 0..3 {
        world.db.checkpoint(true).expect("checkpoint");
    }
    assert_eq!(versions_of(&scan, &t), expected);
    drop((scan, statement, txn));
    set(1, 7);
    world.db.checkpoint(true).expect("checkpoint");
    let txn = world.db.begin(TxnOptions::default()).expect("begin");
    let statement = txn.begin_statement().expect("statement");
    let late = statement.scan_versions(&t, (first, END), None, &columns(&t));
    let error = late.err().expect("given up");
    assert_eq!(error.sqlstate(), SqlState::SNAPSHOT_TOO_OLD);
}
