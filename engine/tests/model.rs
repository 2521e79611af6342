//! Random transactions against a naive oracle: several transactions interleaved, merges and
//! checkpoints forced at random points, reopening at random points, every AS OF moment compared.
//!
//! `STRANDLINE_SEED` replays one seed, `STRANDLINE_RUNS` sets how many are tried.

mod common;

use arrow_array::UInt64Array;
use common::{State, batch, create_table, request, scan_all};
use std::collections::BTreeMap;
use std::sync::Arc;
use strandline_base::ManualClock;
use strandline_base::rng::Rng;
use strandline_device::MemoryDevice;
use strandline_engine::catalog::{HistoryPolicy, TableDef};
use strandline_engine::*;

struct World {
    device: Arc<MemoryDevice>,
    clock: Arc<ManualClock>,
    db: Arc<Db>,
    table: Arc<TableDef>,
    /// committed states by commit timestamp
    moments: BTreeMap<CommitTs, State>,
    history: HistoryPolicy,
}

fn open(device: &Arc<MemoryDevice>, clock: &Arc<ManualClock>) -> Arc<Db> {
    let settings = Settings {
        wal_segment_bytes: 1 << 16,
        merge_pending_records: 8,
        background_maintenance: false,
        ..Settings::default()
    };
    Db::open(DbOptions {
        device: device.clone(),
        clock: clock.clone(),
        settings,
    })
    .expect("open")
}

struct Open {
    txn: Arc<Transaction>,
    begin: State,
    /// own writes: None = deleted
    writes: BTreeMap<i64, Option<(Option<i64>, String)>>,
}

impl Open {
    fn view(&self, committed: &State) -> State {
        let mut view = match self.txn.options().isolation {
            Isolation::Snapshot => self.begin.clone(),
            _ => committed.clone(),
        };
        for (key, value) in &self.writes {
            match value {
                Some(value) => view.insert(*key, value.clone()),
                None => view.remove(key),
            };
        }
        view
    }
}

impl World {
    fn new(history: HistoryPolicy) -> Self {
        let device = Arc::new(MemoryDevice::new());
        let clock = Arc::new(ManualClock::new(1_700_000_000_000_000));
        let db = open(&device, &clock);
        let (table, ts) = create_table(&db, history);
        let moments = BTreeMap::from([(ts, State::new())]);
        Self {
            device,
            clock,
            db,
            table,
            moments,
            history,
        }
    }
    fn now(&self) -> State {
        self.moments.values().next_back().expect("one").clone()
    }
    fn check_moments(&self, rng: &mut Rng) {
        let txn = self.db.begin(TxnOptions::default()).expect("begin");
        let statement = txn.begin_statement().expect("statement");
        let now = scan_all(&statement.scan(&self.table, request()).expect("scan"));
        assert_eq!(now, self.now(), "the newest state");
        if self.history == HistoryPolicy::None {
            return;
        }
        let moments: Vec<_> = self.moments.iter().collect();
        for (i, (ts, expected)) in moments.iter().enumerate() {
            if moments.len() > 12 && !rng.one_in(moments.len() as u64 / 6) {
                continue;
            }
            let scan = statement
                .scan_as_of(&self.table, **ts, request())
                .expect("as of");
            assert_eq!(&scan_all(&scan), *expected, "as of {ts:?}");
            // just before the next commit the state is still this one
            if let Some((next, _)) = moments.get(i + 1) {
                let at = CommitTs(next.0 - 1);
                let scan = statement
                    .scan_as_of(&self.table, at, request())
                    .expect("as of");
                assert_eq!(&scan_all(&scan), *expected, "as of {at:?}");
            }
        }
        let damage = self.db.check().expect("check");
        assert!(damage.is_empty(), "{damage:?}");
    }
    fn reopen(&mut self) {
        let (device, clock) = (self.device.clone(), self.clock.clone());
        let placeholder = Arc::new(MemoryDevice::new());
        self.db = open(&placeholder, &clock);
        self.db = open(&device, &clock);
        self.table = self
            .db
            .catalog()
            .table("public", "t")
            .expect("table")
            .clone();
    }
}

fn text(rng: &mut Rng) -> String {
    match rng.below(3) {
        0 => String::new(),
        1 => format!("v{}", rng.below(50)),
        _ => format!("a longer value that is not inlined {}", rng.next_u64()),
    }
}

/// Does something random in `open`; returns whether the transaction is still usable.
fn step(world: &World, open: &mut Open, locked: &dyn Fn(i64) -> bool, rng: &mut Rng) -> bool {
    let statement = open.txn.begin_statement().expect("statement");
    let view = open.view(&world.now());
    let key = rng.below(60) as i64;
    if locked(key) {
        return true; // would wait for another open transaction
    }
    let value = (
        rng.one_in(4)
            .then_some(())
            .map_or(Some(rng.next_u64() as i64), |()| None),
        text(rng),
    );
    let k = [Value::BigInt(key)];
    match rng.below(10) {
        0..=2 => {
            let rows: Vec<_> = match rng.below(3) {
                0 => vec![(key, value.0, value.1.clone())],
                _ => vec![(key, value.0, value.1.clone())],
            };
            let inserted = statement
                .insert(&world.table, &batch(&rows), OnInvisibleDuplicate::Violation)
                .and_then(|_| statement.finish());
            match inserted {
                Ok(()) => {
                    assert!(!view.contains_key(&key), "a duplicate was let in");
                    open.writes.insert(key, Some(value));
                }
                Err(e) => {
                    assert_eq!(e.sqlstate(), SqlState::UNIQUE_VIOLATION, "{e}");
                    let committed = world.now();
                    assert!(view.contains_key(&key) || committed.contains_key(&key));
                    open.txn.rollback();
                    return false;
                }
            }
        }
        3..=6 => {
            let set: Vec<_> = match rng.below(3) {
                0 => vec![(ColumnId(1), value.0.map_or(Value::Null, Value::BigInt))],
                1 => vec![(ColumnId(2), Value::from(value.1.as_str()))],
                _ => vec![
                    (ColumnId(1), value.0.map_or(Value::Null, Value::BigInt)),
                    (ColumnId(2), Value::from(value.1.as_str())),
                ],
            };
            match statement.point_update(&world.table, 0, &k, &set) {
                Ok(found) => {
                    assert_eq!(found, view.contains_key(&key), "update of {key}");
                    if let Some(mut new) = view.get(&key).cloned() {
                        for (column, v) in &set {
                            match (column.0, v) {
                                (1, Value::BigInt(v)) => new.0 = Some(*v),
                                (1, _) => new.0 = None,
                                (_, Value::Text(v)) => new.1 = v.to_string(),
                                _ => unreachable!(),
                            }
                        }
                        open.writes.insert(key, Some(new));
                    }
                }
                Err(e) => return conflict(open, &e),
            }
        }
        7 => match statement.point_delete(&world.table, 0, &k) {
            Ok(found) => {
                assert_eq!(found, view.contains_key(&key), "delete of {key}");
                if found {
                    open.writes.insert(key, None);
                }
            }
            Err(e) => return conflict(open, &e),
        },
        8 => {
            let scan = statement.scan(&world.table, request()).expect("scan");
            assert_eq!(scan_all(&scan), view, "a transaction's own view");
        }
        _ => {
            let mut out = Vec::new();
            let columns = [ColumnId(2), ColumnId(1)];
            let found = statement
                .point_get(&world.table, 0, &k, &columns, &mut out)
                .expect("get");
            let expected = view.get(&key);
            assert_eq!(found, expected.is_some());
            if let Some((a, b)) = expected {
                let a = a.map_or(Value::Null, Value::BigInt);
                assert_eq!(out, vec![Value::from(b.as_str()), a]);
            }
        }
    }
    true
}

fn conflict(open: &Open, e: &Error) -> bool {
    assert_eq!(e.sqlstate(), SqlState::SERIALIZATION_FAILURE, "{e}");
    assert_eq!(open.txn.options().isolation, Isolation::Snapshot, "{e}");
    open.txn.rollback();
    false
}

fn bulk(world: &mut World, rng: &mut Rng) {
    let now = world.now();
    let first = now.keys().next_back().copied().unwrap_or(0).max(1000) + 1;
    let rows: Vec<_> = (first..first + 5000)
        .map(|k| (k, Some(k * 2), text(rng)))
        .collect();
    let txn = world.db.begin(TxnOptions::default()).expect("begin");
    let statement = txn.begin_statement().expect("statement");
    let mut load = statement.bulk_insert(&world.table).expect("load");
    load.append(&batch(&rows)).expect("append");
    assert_eq!(load.finish().expect("finish"), 5000);
    statement.finish().expect("keys");
    if rng.one_in(3) {
        txn.rollback();
        return;
    }
    let ts = txn.commit().expect("commit");
    let mut next = now;
    next.extend(rows.into_iter().map(|(k, a, b)| (k, (a, b))));
    world.moments.insert(ts, next);
}

fn run(seed: u64, history: HistoryPolicy) {
    let mut rng = Rng::new(seed);
    let mut world = World::new(history);
    let mut open: Vec<Open> = Vec::new();
    for _ in 0..rng.below(400) + 50 {
        world.clock.advance(rng.below(2000));
        match rng.below(24) {
            0 | 1 if open.len() < 3 => {
                let isolation = match rng.below(2) {
                    0 => Isolation::ReadCommitted,
                    _ => Isolation::Snapshot,
                };
                let options = TxnOptions {
                    isolation,
                    ..TxnOptions::default()
                };
                let txn = world.db.begin(options).expect("begin");
                open.push(Open {
                    txn,
                    begin: world.now(),
                    writes: BTreeMap::new(),
                });
            }
            2..=16 if !open.is_empty() => {
                let at = rng.below(open.len() as u64) as usize;
                let mut one = open.swap_remove(at);
                let locked = |key: i64| open.iter().any(|o| o.writes.contains_key(&key));
                if rng.one_in(6) {
                    let savepoint = one.txn.savepoint();
                    let writes = one.writes.clone();
                    if step(&world, &mut one, &locked, &mut rng) {
                        one.txn.rollback_to(&savepoint).expect("rollback to");
                        one.writes = writes;
                        open.push(one);
                    }
                } else if step(&world, &mut one, &locked, &mut rng) {
                    open.push(one);
                }
            }
            17 | 18 if !open.is_empty() => {
                let at = rng.below(open.len() as u64) as usize;
                let one = open.swap_remove(at);
                let mut next = world.now();
                for (key, value) in &one.writes {
                    match value {
                        Some(value) => next.insert(*key, value.clone()),
                        None => next.remove(key),
                    };
                }
                let wrote = !one.writes.is_empty();
                let ts = one.txn.commit().expect("commit");
                if wrote {
                    world.moments.insert(ts, next);
                }
            }
            19 if !open.is_empty() => open.remove(0).txn.rollback(),
            20 => {
                world.db.checkpoint(rng.one_in(2)).expect("checkpoint");
            }
            21 if open.is_empty() && rng.one_in(2) => world.reopen(),
            22 if open.is_empty() && rng.one_in(4) => bulk(&mut world, &mut rng),
            23 => world.check_moments(&mut rng),
            _ => {}
        }
    }
    drop(open);
    world.check_moments(&mut rng);
    world.db.checkpoint(true).expect("checkpoint");
    world.check_moments(&mut rng);
    world.reopen();
    world.check_moments(&mut rng);
}

fn seeds() -> Vec<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
    match number("STRANDLINE_SEED") {
        Some(seed) => vec![seed],
        None => (0..number("STRANDLINE_RUNS").unwrap_or(30)).collect(),
    }
}

#[test]
fn random_histories_agree_with_the_oracle() {
    for seed in seeds() {
        println!("seed {seed}");
        let history = match seed % 3 {
            0 => HistoryPolicy::None,
            _ => HistoryPolicy::Forever,
        };
        run(seed, history);
    }
}

#[test]
fn row_ids_come_with_scans() {
    let world = World::new(HistoryPolicy::Forever);
    let txn = world.db.begin(TxnOptions::default()).expect("begin");
    let statement = txn.begin_statement().expect("statement");
    let rows = [(1, None, String::new()), (2, None, String::new())];
    let ids = statement
        .insert(&world.table, &batch(&rows), OnInvisibleDuplicate::Violation)
        .expect("insert");
    statement.finish().expect("finish");
    let statement = txn.begin_statement().expect("statement");
    let request = ScanRequest {
        with_row_id: true,
        ..request()
    };
    let scan = statement.scan(&world.table, request).expect("scan");
    let batches = scan.read_unit(0).expect("read");
    let found = batches[0]
        .column(3)
        .as_any()
        .downcast_ref::<UInt64Array>()
        .expect("row ids");
    assert_eq!(found.values(), &[ids[0].0, ids[1].0]);
}
