//! The past of few rows with many versions against a naive oracle: updates of some columns, to what
//! they were, a little more, NULL and back; deletions and keys that come again; runs written,
//! united and read again after a crash. Each version by key, moments and intervals at random.
//!
//! `STRANDLINE_SEED` replays one seed, `STRANDLINE_RUNS` sets how many are tried.

mod common;

use arrow_array::RecordBatch;
use common::*;
use std::sync::Arc;
use strandline_base::ManualClock;
use strandline_base::rng::Rng;
use strandline_column::types;
use strandline_engine::catalog::HistoryPolicy;
use strandline_engine::*;
use strandline_sim::SimDisk;

const KEYS: i64 = 5;
/// Columns behind the key.
const TYPES: [SqlType; 14] = [
    SqlType::BigInt,
    SqlType::BigInt,
    SqlType::Integer,
    SqlType::Double,
    SqlType::Real,
    SqlType::Numeric {
        precision: 12,
        scale: 2,
    },
    SqlType::Numeric {
        precision: 38,
        scale: 6,
    },
    SqlType::Text,
    SqlType::Text,
    SqlType::Bytea,
    SqlType::Uuid,
    SqlType::Interval,
    SqlType::Point,
    SqlType::Box,
];

fn sql_type(column: ColumnId) -> SqlType {
    match column.0 {
        0 => SqlType::BigInt,
        id => TYPES[id as usize - 1],
    }
}

fn value(rng: &mut Rng, t: SqlType) -> Value {
    let n = [rng.next_u64() as i64, rng.below(50) as i64 - 25][rng.below(2) as usize];
    match t {
        _ if rng.one_in(6) => Value::Null,
        SqlType::BigInt => Value::BigInt(n),
        SqlType::Integer => Value::Integer(n as i32),
        SqlType::Double => {
            [n as f64 / 8.0, -0.0, 0.0, f64::NAN].map(Value::Double)[n as usize % 4].clone()
        }
        SqlType::Real => {
            [n as f32 / 8.0, -0.0, 0.0, f32::NAN].map(Value::Real)[n as usize % 4].clone()
        }
        SqlType::Numeric { precision: 12, .. } => Value::Numeric(i128::from(n % 1_000_000_000_000)),
        SqlType::Numeric { .. } => Value::Numeric(i128::from(n) << rng.below(60)),
        SqlType::Bytea => Value::Bytea(n.to_le_bytes()[..rng.below(9) as usize].into()),
        SqlType::Uuid => Value::Uuid([n as u8; 16]),
        SqlType::Point => Value::Point(Point::new([n as f64 / 8.0, f64::NAN])),
        SqlType::Box => Value::Box(BoxCorners::new([n as f64, -0.0], [0.5, f64::INFINITY])),
        SqlType::Interval => Value::Interval(Interval {
            months: n as i32,
            days: 0,
            nanos: n,
        }),
        _ if rng.one_in(100) => Value::from("huge ".repeat(20_000) + &n.to_string()),
        _ => Value::from(format!("a täxt of n = {n}")),
    }
}

/// What a column is set to: often to what it was, or to something near.
fn next(rng: &mut Rng, t: SqlType, before: &Value) -> Value {
    match (rng.below(4), before) {
        (0, before) => before.clone(),
        (1, Value::BigInt(v)) => Value::BigInt(v.wrapping_add(1)),
        (1, Value::Double(v)) => Value::Double(v + 0.5),
        (1, Value::Text(v)) => Value::from(v.replacen("täxt", "text", 1)),
        (1, Value::Numeric(v)) if v.abs() < 100_000_000_000 => Value::Numeric(v + 1),
        _ => value(rng, t),
    }
}

/// One version: values (key first), when it began and ended.
#[derive(Clone)]
struct Version {
    values: Vec<Value>,
    from: u64,
    to: Option<u64>,
}

impl Version {
    /// All there is to compare, NaNs and zeros included.
    fn text(&self) -> String {
        format!("{:?} from {} to {:?}", self.values, self.from, self.to)
    }
    fn is_at(&self, ts: u64) -> bool {
        self.from <= ts && self.to.is_none_or(|to| to > ts)
    }
}

struct World {
    disk: SimDisk,
    clock: Arc<ManualClock>,
    db: Arc<Db>,
    versions: Vec<Version>,
    /// by key, where its version is
    live: [Option<usize>; KEYS as usize],
}

fn create(db: &Arc<Db>) {
    let txn = db.begin(TxnOptions::default()).expect("begin");
    txn.change_catalog(&mut |catalog| {
        let columns = (0..=TYPES.len() as u32).map(ColumnId);
        let columns = columns.map(|id| column(id.0, &format!("c{id}"), sql_type(id), id.0 == 0));
        let table = definition(catalog, columns.collect(), HistoryPolicy::Forever);
        catalog.put_table(table);
        Ok(())
    })
    .expect("create table");
    txn.commit().expect("commit");
}

impl World {
    fn new(seed: u64) -> Self {
        let (disk, clock) = (SimDisk::new(seed), clock());
        let db = open_eager(disk.device(), &clock, 7).expect("open");
        create(&db);
        Self {
            disk,
            clock,
            db,
            versions: Vec::new(),
            live: [None; KEYS as usize],
        }
    }

    /// Opens what is on the disk: a process that was killed, or one that closed.
    fn reopen(&mut self, is_killed: bool) {
        let other = open_eager(SimDisk::new(0).device(), &self.clock, 7).expect("placeholder");
        let killed = is_killed.then(|| self.disk.after_kill());
        drop(std::mem::replace(&mut self.db, other));
        if let Some(disk) = killed {
            self.disk = disk;
        }
        self.db = open_eager(self.disk.device(), &self.clock, 7).expect("reopen");
    }

    /// Ends the version of a key and begins another.
    fn commit(&mut self, key: i64, values: Option<Vec<Value>>) {
        let ts = self.db.stable().0;
        if let Some(old) = self.live[key as usize].take() {
            self.versions[old].to = Some(ts);
        }
        if let Some(values) = values {
            self.live[key as usize] = Some(self.versions.len());
            let (from, to) = (ts, None);
            self.versions.push(Version { values, from, to });
        }
    }

    fn insert(&mut self, rng: &mut Rng, key: i64) {
        let others = TYPES.iter().map(|t| value(rng, *t));
        let row: Vec<Value> = [Value::BigInt(key)].into_iter().chain(others).collect();
        insert(&self.db, &row);
        self.commit(key, Some(row));
    }

    /// Updates some columns in up to two steps of one transaction.
    fn update(&mut self, rng: &mut Rng, key: i64, at: usize) {
        let mut values = self.versions[at].values.clone();
        let t = table(&self.db);
        let one_in = [1, 2, 4, 12][rng.below(4) as usize];
        run(&self.db, |s| {
            for _ in 0..=rng.below(2) {
                let mut set = Vec::new();
                for (value, id) in values.iter_mut().zip(0..).skip(1) {
                    if rng.one_in(one_in) {
                        *value = next(rng, sql_type(ColumnId(id)), value);
                        set.push((ColumnId(id), value.clone()));
                    }
                }
                if set.is_empty() {
                    set.push((ColumnId(1), values[1].clone()));
                }
                assert!(s.point_update(&t, 0, &[Value::BigInt(key)], &set)?);
            }
            Ok(())
        })
        .expect("update");
        self.commit(key, Some(values));
    }

    fn step(&mut self, rng: &mut Rng) {
        self.clock.advance(1 + rng.below(3));
        // Some rows are hot.
        let key = (rng.below(KEYS as u64) * rng.below(KEYS as u64) / KEYS as u64) as i64;
        match (rng.below(60), self.live[key as usize]) {
            (0, _) => self.reopen(rng.one_in(2)),
            (1..5, _) => {
                self.db.checkpoint(rng.one_in(2)).expect("checkpoint");
            }
            (_, None) => self.insert(rng, key),
            (5..7, Some(_)) => {
                let t = table(&self.db);
                let found = run(&self.db, |s| s.point_delete(&t, 0, &[Value::BigInt(key)]));
                assert!(found.expect("delete"));
                self.commit(key, None);
            }
            (_, Some(at)) => self.update(rng, key, at),
        }
    }

    fn check(&self, rng: &mut Rng) {
        let txn = self.db.begin(TxnOptions::default()).expect("begin");
        let statement = txn.begin_statement().expect("statement");
        self.check_keys(&statement);
        let moments: Vec<u64> = self.versions.iter().map(|v| v.from).collect();
        let any = |rng: &mut Rng| moments[rng.below(moments.len() as u64) as usize];
        for _ in 0..12 {
            let ts = any(rng) - rng.below(2);
            self.check_moment(&statement, ts);
            let through = ts.max(any(rng));
            self.check_interval(&statement, ts, through);
        }
        self.check_moment(&statement, self.db.stable().0);
        assert!(self.db.check().expect("check").is_empty());
    }

    /// Every version of each row that is there, by point reads.
    fn check_keys(&self, statement: &Arc<Statement>) {
        let t = table(&self.db);
        for at in self.live.iter().flatten() {
            let key = &self.versions[*at].values[0];
            let found = statement
                .history(&t, std::slice::from_ref(key))
                .expect("history");
            let of_key = self.versions.iter().filter(|v| v.values[0] == *key);
            assert_versions(vec![found], of_key.cloned(), "by key");
        }
    }

    fn check_moment(&self, statement: &Arc<Statement>, ts: u64) {
        let t = table(&self.db);
        let request = ScanRequest {
            columns: t.columns.iter().map(|c| c.id).collect(),
            ..ScanRequest::default()
        };
        let scan = statement
            .scan_as_of(&t, CommitTs(ts), request)
            .expect("as of");
        let mut found: Vec<String> = Vec::new();
        for unit in 0..scan.units() {
            for batch in scan.read_unit(unit).expect("read") {
                found.extend((0..batch.num_rows()).map(|row| format!("{:?}", row_of(&batch, row))));
            }
        }
        let visible = self.versions.iter().filter(|v| v.is_at(ts));
        let mut expected: Vec<String> = visible.map(|v| format!("{:?}", v.values)).collect();
        found.sort();
        expected.sort();
        assert_eq!(found, expected, "as of {ts}");
    }

    fn check_interval(&self, statement: &Arc<Statement>, from: u64, through: u64) {
        let t = table(&self.db);
        let columns: Vec<VersionColumn> = t
            .columns
            .iter()
            .map(|c| VersionColumn::Stored(c.id))
            .chain(VersionColumn::TIMES.map(|(_, column)| column))
            .collect();
        let interval = (CommitTs(from), CommitTs(through));
        let scan = statement
            .scan_versions(&t, interval, None, &columns)
            .expect("versions");
        let mut batches = Vec::new();
        for unit in 0..scan.units() {
            let mut reader = scan.open_unit(unit).expect("open");
            while let Some(batch) = reader.next_batch().expect("read") {
                batches.push(batch);
            }
        }
        let is_in = |v: &&Version| v.from <= through && v.to.is_none_or(|to| to > from);
        let expected = self.versions.iter().filter(is_in).cloned();
        assert_versions(batches, expected, &format!("from {from} through {through}"));
    }
}

fn row_of(batch: &RecordBatch, row: usize) -> Vec<Value> {
    let columns = (0..=TYPES.len()).map(|at| (ColumnId(at as u32), batch.column(at)));
    columns
        .map(|(id, array)| types::value_at(sql_type(id), array, row))
        .collect()
}

/// Versions with their times behind the columns.
fn assert_versions(batches: Vec<RecordBatch>, expected: impl Iterator<Item = Version>, what: &str) {
    let time = |batch: &RecordBatch, at: usize, row| match types::value_at(
        SqlType::TimestampTz,
        batch.column(at),
        row,
    ) {
        Value::TimestampTz(us) => Some(us as u64),
        _ => None,
    };
    let mut found = Vec::new();
    for batch in &batches {
        let at = TYPES.len() + 1;
        let versions = (0..batch.num_rows()).map(|row| Version {
            values: row_of(batch, row),
            from: time(batch, at, row).expect("a beginning"),
            to: time(batch, at + 1, row),
        });
        found.extend(versions.map(|v| v.text()));
    }
    let mut expected: Vec<String> = expected.map(|v| v.text()).collect();
    found.sort();
    expected.sort();
    assert_eq!(found, expected, "{what}");
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn every_version_is_there_and_right() {
    let seeds = match number("STRANDLINE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("STRANDLINE_RUNS").unwrap_or(8),
    };
    for seed in seeds {
        println!("STRANDLINE_SEED={seed}");
        let mut rng = Rng::new(seed);
        let mut world = World::new(seed);
        (0..KEYS).for_each(|key| world.insert(&mut rng, key));
        for _ in 0..8 {
            for _ in 0..60 {
                world.step(&mut rng);
            }
            world.check(&mut rng);
        }
        world.db.checkpoint(true).expect("checkpoint");
        world.check(&mut rng);
        world.reopen(true);
        world.check(&mut rng);
    }
}
