//! Random inserts, updates, deletes, rollbacks, savepoints, definitions, checkpoints and reopens:
//! what indexes over places find is what scans find, now, in old snapshots and AS OF.
//!
//! `STRANDLINE_SEED` replays one seed.

use crate::common::*;
use crate::places::*;
use crate::support::*;
use std::sync::Arc;
use strandline_base::ManualClock;
use strandline_base::rng::Rng;
use strandline_device::MemoryDevice;
use strandline_engine::catalog::{HistoryPolicy, TableDef};
use strandline_engine::*;

const KEYS: u64 = 80;

/// Steps between two looks at everything.
const CHECK_STEPS: usize = 20;

/// A snapshot, its table and what a scan found in it.
struct Held {
    statement: Arc<Statement>,
    table: Arc<TableDef>,
    rows: Vec<Vec<Value>>,
}

struct Run {
    device: Arc<MemoryDevice>,
    clock: Arc<ManualClock>,
    db: Arc<Db>,
    rng: Rng,
    held: Vec<Held>,
    /// moments, the table's definition and its rows then
    moments: Vec<(CommitTs, Arc<TableDef>, Vec<Vec<Value>>)>,
    indexes: u32,
}

impl Run {
    /// One random change in a statement; one that fails is undone.
    fn change(&mut self, txn: &Arc<Transaction>) {
        let table = txn.next_catalog();
        let table = table.table("public", "t").expect("t").clone();
        let savepoint = txn.savepoint();
        let statement = txn.begin_statement().expect("statement");
        let key = Value::BigInt(self.rng.below(KEYS) as i64);
        let rng = &mut self.rng;
        let done = match rng.below(10) {
            0..4 => {
                let row = [key, random_point(rng), random_box(rng)];
                statement.point_insert(&table, &row).map(|_| ())
            }
            4..8 => {
                let mut set = Vec::new();
                if rng.one_in(2) {
                    set.push((ColumnId(P), random_point(rng)));
                }
                if rng.one_in(2) {
                    set.push((ColumnId(B), random_box(rng)));
                }
                if set.is_empty() {
                    set.push((ColumnId(0), Value::BigInt(rng.below(KEYS) as i64)));
                }
                statement.point_update(&table, 0, &[key], &set).map(|_| ())
            }
            _ => statement.point_delete(&table, 0, &[key]).map(|_| ()),
        };
        if done.and_then(|()| statement.finish()).is_err() {
            txn.rollback_to(&savepoint).expect("back");
        }
    }

    fn transaction(&mut self) {
        let txn = self.db.begin(TxnOptions::default()).expect("begin");
        for _ in 0..self.rng.below(6) {
            let savepoint = txn.savepoint();
            self.change(&txn);
            if self.rng.one_in(4) {
                txn.rollback_to(&savepoint).expect("back");
            }
        }
        if self.rng.one_in(8) {
            let statement = txn.begin_statement().expect("statement");
            let table = txn.catalog().table("public", "t").expect("t").clone();
            let rows = scanned(&statement, &table);
            let view = statement.view(&table).expect("view");
            let own = (&mut self.rng, "its own changes");
            assert_places_agree((&statement, &view), &table, &rows, own);
        }
        match self.rng.one_in(4) {
            true => txn.rollback(),
            false => drop(txn.commit().expect("commit")),
        }
    }

    fn definition(&mut self) {
        self.indexes += 1;
        let column = [P, B][self.rng.below(2) as usize];
        let def = rtree(&format!("index_{}", self.indexes), column);
        match self.rng.below(5) {
            0 | 1 => create_online(&self.db, &def).expect("create index"),
            2 => create_alone(&self.db, &def).expect("create index"),
            3 => {
                let txn = self.db.begin(TxnOptions::default()).expect("begin");
                self.change(&txn);
                create_in(&txn, &def).expect("create index");
                self.change(&txn);
                txn.rollback();
            }
            _ => {
                let table = table(&self.db);
                if let Some(first) = table.indexes.first().filter(|_| table.indexes.len() > 2) {
                    alter(&self.db, |table| drop_index(table, &first.name));
                }
            }
        }
    }

    fn hold(&mut self) {
        let options = TxnOptions {
            isolation: Isolation::Snapshot,
            ..TxnOptions::default()
        };
        let txn = self.db.begin(options).expect("begin");
        let statement = txn.begin_statement().expect("statement");
        let table = txn.catalog().table("public", "t").expect("t").clone();
        let rows = scanned(&statement, &table);
        let held = Held {
            statement,
            table,
            rows,
        };
        self.held.push(held);
        if self.held.len() > 4 {
            let gone = self.rng.below(self.held.len() as u64) as usize;
            self.held.remove(gone);
        }
    }

    fn note_moment(&mut self) {
        self.clock.advance(10);
        let table = table(&self.db);
        let (ts, rows) =
            run(&self.db, |s| Ok((s.snapshot_ts(), scanned(s, &table)))).expect("scan");
        self.moments.push((ts, table, rows));
        self.clock.advance(10);
    }

    fn check(&mut self, seed: u64, step: usize) {
        let context = format!("STRANDLINE_SEED={seed}, step {step}");
        let table = table(&self.db);
        let statement = self.db.begin(TxnOptions::default()).expect("begin");
        let statement = statement.begin_statement().expect("statement");
        let rows = scanned(&statement, &table);
        let view = statement.view(&table).expect("view");
        let rng = &mut self.rng;
        assert_places_agree((&statement, &view), &table, &rows, (rng, &context));
        for held in &self.held {
            let view = held.statement.view(&held.table).expect("view");
            let context = format!("{context}, old snapshot");
            let reader = (&*held.statement, &view);
            assert_places_agree(reader, &held.table, &held.rows, (rng, &context));
        }
        for (ts, then, rows) in &self.moments {
            let view = statement.view_as_of(then, *ts).expect("view");
            let context = format!("{context}, as of {ts}");
            // The indexes of then, and those of now that are complete for this moment.
            for table in [then, &table] {
                assert_places_agree((&statement, &view), table, rows, (rng, &context));
            }
        }
        assert_eq!(self.db.check().expect("check"), Vec::<String>::new());
    }

    fn reopen(&mut self) {
        self.held.clear();
        let (device, clock) = (self.device.clone(), self.clock.clone());
        // The old one lets go of the device first.
        self.db = open_eager(Arc::new(MemoryDevice::new()), &clock, 6).expect("open");
        self.db = open_eager(device, &clock, 6).expect("reopen");
    }
}

fn model(seed: u64, history: HistoryPolicy) {
    let (device, clock) = (Arc::new(MemoryDevice::new()), clock());
    let db = open_eager(device.clone(), &clock, 6).expect("open");
    create_places(&db, history);
    for (name, column) in [("t_p", P), ("t_b", B)] {
        create_alone(&db, &rtree(name, column)).expect("create index");
    }
    let keeps = history == HistoryPolicy::Forever;
    let mut run = Run {
        device,
        clock,
        db,
        rng: Rng::new(seed),
        held: Vec::new(),
        moments: Vec::new(),
        indexes: 0,
    };
    for step in 0..300 {
        run.clock.advance(1000);
        match run.rng.below(30) {
            0 => run.definition(),
            1 | 2 => run.hold(),
            3 => drop(run.db.checkpoint(run.rng.one_in(2)).expect("checkpoint")),
            4 => drop(run.db.merge_due(false).expect("a turn")),
            5 if run.rng.one_in(4) => run.reopen(),
            6 if keeps && run.moments.len() < 8 => run.note_moment(),
            _ => run.transaction(),
        }
        if step % CHECK_STEPS == CHECK_STEPS - 1 {
            run.check(seed, step);
        }
    }
}

fn seeds() -> Vec<u64> {
    let given = std::env::var("STRANDLINE_SEED").ok();
    match given.and_then(|seed| seed.parse().ok()) {
        Some(seed) => vec![seed],
        None => (1..=2).collect(),
    }
}

#[test]
fn places_are_found_as_scans_find_them_without_history() {
    for seed in seeds() {
        model(seed, HistoryPolicy::None);
    }
}

#[test]
fn places_are_found_as_scans_find_them_with_history() {
    for seed in seeds() {
        model(seed, HistoryPolicy::Forever);
    }
}
