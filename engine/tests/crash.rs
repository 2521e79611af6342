//! A crash at any device operation: recovery yields exactly the acknowledged transactions, plus at
//! most the one in flight, `check` finds nothing, and moments of the past are as they were. A
//! database in two directories may lose what is not synced in one of them only.
//!
//! `STRANDLINE_SEED` replays one seed; `STRANDLINE_CRASH_STRIDE` sets how many operations lie
//! between two crash points (1 = every operation).

mod common;

use common::{State, batch, create_table, request, scan_all};
use std::collections::BTreeMap;
use std::sync::Arc;
use strandline_base::ManualClock;
use strandline_base::rng::Rng;
use strandline_engine::catalog::HistoryPolicy;
use strandline_engine::*;
use strandline_sim::SimDisk;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// The disks of one machine with a database.
struct Disks {
    fast: SimDisk,
    /// the second directory, if there is one
    capacity: Option<SimDisk>,
}

impl Disks {
    fn new(seed: u64, is_tiered: bool) -> Self {
        let fast = SimDisk::new(seed);
        let capacity = is_tiered.then(|| fast.beside(seed + 100));
        Self { fast, capacity }
    }

    fn device(&self) -> Result<Arc<dyn Device>> {
        Ok(match &self.capacity {
            None => self.fast.device(),
            Some(capacity) => {
                let tiers = TieredDevice::new(self.fast.device(), capacity.device(), "/capacity");
                Arc::new(tiers?)
            }
        })
    }

    /// The disks found after a crash: an outcome for each.
    fn after_crash(&self, (fast, capacity): (u64, u64)) -> Self {
        let found = |disk: &SimDisk| disk.after_crash(capacity);
        Self {
            fast: self.fast.after_crash(fast),
            capacity: self.capacity.as_ref().map(found),
        }
    }

    /// The outcomes of a crash at operation `point`: unsynced work is lost, is kept, or some of it
    /// is; with two disks, different outcomes for each.
    fn outcomes(&self, point: u64) -> Vec<(u64, u64)> {
        let random = 2 + point;
        match self.capacity {
            None => vec![(0, 0), (1, 1), (random, random)],
            Some(_) => vec![
                (0, 1),
                (1, 0),
                (random, 0),
                (0, random),
                (random, random + 1),
            ],
        }
    }

    /// Log and manifest are on the fast tier, chunks on the capacity tier.
    fn check_places(&self, what: &str) {
        let Some(capacity) = &self.capacity else {
            return;
        };
        let names = |disk: &SimDisk| disk.device().list().expect("list");
        let is_chunks = |name: &String| name.starts_with("chunks-");
        assert!(!names(&self.fast).iter().any(is_chunks), "{what}");
        let expected = ["chunks-", "run-", "lock", "tier"];
        for name in names(capacity) {
            let is_expected = expected.iter().any(|kind| name.starts_with(kind));
            assert!(is_expected, "{what}: {name} is on the capacity tier");
        }
    }
}

fn open(disks: &Disks, clock: &Arc<ManualClock>) -> Result<Arc<Db>> {
    let settings = Settings {
        wal_segment_bytes: 1 << 14,
        merge_pending_records: 6,
        background_maintenance: false,
        recovery_threads: 1,
        ..Settings::default()
    };
    Db::open(DbOptions {
        device: disks.device()?,
        clock: clock.clone(),
        settings,
    })
}

/// What the workload knows when it stops.
#[derive(Default)]
struct Known {
    /// acknowledged states by commit timestamp
    moments: BTreeMap<CommitTs, State>,
    /// the state if the commit in flight made it
    in_flight: Option<State>,
}

/// Runs transactions until the workload's end or the first error.
#[expect(
    clippy::map_entry,
    reason = "the branches mirror the statements, not the map"
)]
fn workload(db: &Arc<Db>, clock: &ManualClock, seed: u64, known: &mut Known) -> Result<()> {
    let mut rng = Rng::new(seed);
    known.in_flight = Some(State::new());
    let (table, ts) = {
        let txn = db.begin(TxnOptions::default())?;
        drop(txn);
        if db.catalog().table("public", "t").is_some() {
            unreachable!("a fresh database has no table");
        }
        create(db)?
    };
    known.moments.insert(ts, State::new());
    for round in 0..40 {
        clock.advance(500);
        if round % 7 == 5 {
            // The last one merges everything, so that there is history.
            let merges_all = rng.one_in(2) || round == 33;
            db.checkpoint(merges_all)?;
        }
        let mut next = known
            .moments
            .values()
            .next_back()
            .cloned()
            .unwrap_or_default();
        let txn = db.begin(TxnOptions::default())?;
        if round == 20 {
            let statement = txn.begin_statement()?;
            let mut load = statement.bulk_insert(&table)?;
            let rows: Vec<_> = (1000..6000).map(|k| (k, Some(k), format!("{k}"))).collect();
            load.append(&batch(&rows))?;
            load.finish()?;
            statement.finish()?;
            next.extend(rows.into_iter().map(|(k, a, b)| (k, (a, b))));
        }
        for _ in 0..=rng.below(4) {
            let key = rng.below(12) as i64;
            let value = (
                Some(rng.next_u64() as i64),
                format!("value {}", rng.next_u64()),
            );
            let statement = txn.begin_statement()?;
            if next.contains_key(&key) {
                if rng.one_in(3) {
                    statement.point_delete(&table, 0, &[Value::BigInt(key)])?;
                    next.remove(&key);
                } else {
                    let text = Value::from(value.1.as_str());
                    let set = [(ColumnId(1), Value::BigInt(round)), (ColumnId(2), text)];
                    statement.point_update(&table, 0, &[Value::BigInt(key)], &set)?;
                    next.insert(key, (Some(round), value.1));
                }
            } else {
                let row = [
                    Value::BigInt(key),
                    value.0.map_or(Value::Null, Value::BigInt),
                    Value::from(value.1.as_str()),
                ];
                statement.point_insert(&table, &row)?;
                next.insert(key, value);
            }
        }
        known.in_flight = Some(next.clone());
        let ts = txn.commit()?;
        known.moments.insert(ts, next);
        known.in_flight = None;
    }
    Ok(())
}

fn create(db: &Arc<Db>) -> Result<(Arc<strandline_engine::catalog::TableDef>, CommitTs)> {
    // `create_table` expects success; a crash inside it shows as a panic we turn into an error.
    let attempt = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        create_table(db, HistoryPolicy::Forever)
    }));
    attempt.map_err(|_| Error::internal("crashed while creating the table"))
}

fn verify(disks: &Disks, clock: &Arc<ManualClock>, known: &Known, what: &str) {
    let db = open(disks, clock).unwrap_or_else(|e| panic!("{what}: recovery failed: {e}"));
    let damage = db.check().expect("check");
    assert!(damage.is_empty(), "{what}: {damage:?}");
    let Some(table) = db.catalog().table("public", "t").cloned() else {
        assert!(known.moments.is_empty(), "{what}: the table is gone");
        return;
    };
    let txn = db.begin(TxnOptions::default()).expect("begin");
    let statement = txn.begin_statement().expect("statement");
    let found = scan_all(&statement.scan(&table, request()).expect("scan"));
    let newest = known
        .moments
        .values()
        .next_back()
        .cloned()
        .unwrap_or_default();
    let acceptable = found == newest || known.in_flight.as_ref() == Some(&found);
    assert!(acceptable, "{what}: found {found:?}\nexpected {newest:?}");
    for (ts, expected) in &known.moments {
        let scan = statement.scan_as_of(&table, *ts, request()).expect("as of");
        assert_eq!(&scan_all(&scan), expected, "{what}: as of {ts:?}");
    }
    // The database goes on working, and what it writes survives an orderly end.
    let key = [Value::BigInt(77), Value::Null, Value::from("after")];
    let statement = txn.begin_statement().expect("statement");
    statement.point_insert(&table, &key).expect("insert");
    txn.commit().expect("commit");
    drop(statement);
    drop(txn);
    db.close().expect("close");
    drop(db);
    disks.check_places(what);
    let db = open(disks, clock).unwrap_or_else(|e| panic!("{what}: second open failed: {e}"));
    let txn = db.begin(TxnOptions::default()).expect("begin");
    let statement = txn.begin_statement().expect("statement");
    let mut out = Vec::new();
    let there = statement
        .point_get(&table, 0, &[Value::BigInt(77)], &[ColumnId(2)], &mut out)
        .expect("get");
    assert!(there, "{what}: a commit after recovery is gone");
}

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(1_700_000_000_000_000))
}

#[test]
fn every_crash_point_recovers_exactly_what_was_acknowledged() {
    crash_everywhere(false, 7);
}

#[test]
fn every_crash_point_of_two_directories_recovers_exactly_what_was_acknowledged() {
    crash_everywhere(true, 11);
}

/// Crashes at every `stride`-th operation.
fn crash_everywhere(is_tiered: bool, stride: u64) {
    // Panics of `create_table` at a crash point are expected: keep them quiet.
    std::panic::set_hook(Box::new(|info| {
        let text = info.to_string();
        if !text.contains("create table") && !text.contains("commit: ") {
            eprintln!("{text}");
        }
    }));
    let seeds = number("STRANDLINE_SEED").map_or(1..3, |s| s..s + 1);
    let stride = number("STRANDLINE_CRASH_STRIDE").unwrap_or(stride);
    for seed in seeds {
        let disks = Disks::new(seed, is_tiered);
        let wall = clock();
        let db = open(&disks, &wall).expect("open");
        workload(&db, &wall, seed, &mut Known::default()).expect("workload without a crash");
        drop(db);
        if let Some(capacity) = &disks.capacity {
            let names = capacity.device().list().expect("list");
            assert!(
                names.iter().any(|name| name.starts_with("run-")),
                "no history"
            );
        }
        let operations = disks.fast.operations();
        let mut point = 1 + seed % stride;
        while point <= operations {
            let disks = Disks::new(seed, is_tiered);
            disks.fast.crash_at(point);
            let wall = clock();
            let mut known = Known::default();
            if let Ok(db) = open(&disks, &wall) {
                let _ = workload(&db, &wall, seed, &mut known);
            }
            for outcome in disks.outcomes(point) {
                let what = format!("seed {seed}, crash at operation {point}, outcome {outcome:?}");
                verify(&disks.after_crash(outcome), &wall, &known, &what);
            }
            point += stride;
        }
    }
}
