//! Random inserts, updates, deletes, rollbacks, savepoints, definitions, checkpoints and reopens:
//! what indexes find is what scans find, now, in old snapshots and AS OF.
//!
//! `STRANDLINE_SEED` replays one seed.

use crate::common::*;
use crate::support::*;
use std::sync::Arc;
use strandline_base::ManualClock;
use strandline_base::rng::Rng;
use strandline_device::MemoryDevice;
use strandline_engine::catalog::{HistoryPolicy, KeyDef, TableDef};
use strandline_engine::*;

const KEYS: u64 = 60;

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
    fn value(&mut self) -> Value {
        match self.rng.below(6) {
            0 => Value::Null,
            v => Value::BigInt(v as i64),
        }
    }
    fn text(&mut self) -> Value {
        match self.rng.below(8) {
            0 => Value::Null,
            1 => Value::from("x".repeat(1100 + self.rng.below(2) as usize)),
            v => Value::from(format!("text {v}")),
        }
    }

    /// One random change in a statement; one that fails is undone.
    fn change(&mut self, txn: &Arc<Transaction>) {
        let table = txn.next_catalog();
        let table = table.table("public", "t").expect("t").clone();
        let savepoint = txn.savepoint();
        let statement = txn.begin_statement().expect("statement");
        let key = self.rng.below(KEYS) as i64;
        let at = [Value::BigInt(key)];
        let done = match self.rng.below(10) {
            0..4 => {
                let mut row = vec![at[0].clone(), self.value(), self.text()];
                row.resize(table.columns.len(), Value::Null);
                statement.point_insert(&table, &row).map(|_| ())
            }
            4..8 => {
                let mut set = Vec::new();
                if self.rng.one_in(2) {
                    set.push((ColumnId(1), self.value()));
                }
                if self.rng.one_in(3) {
                    set.push((ColumnId(2), self.text()));
                }
                if set.is_empty() || self.rng.one_in(6) {
                    set.push((ColumnId(0), Value::BigInt(self.rng.below(KEYS) as i64)));
                }
                statement.point_update(&table, 0, &at, &set).map(|_| ())
            }
            _ => statement.point_delete(&table, 0, &at).map(|_| ()),
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
            assert_indexes_agree(&statement, &view, &table, &rows, "its own changes");
        }
        match self.rng.one_in(4) {
            true => txn.rollback(),
            false => drop(txn.commit().expect("commit")),
        }
    }

    fn definition(&mut self) {
        self.indexes += 1;
        let name = format!("index_{}", self.indexes);
        let mut parts = match self.rng.below(4) {
            0 => vec![part(1)],
            1 => vec![part(2)],
            2 => vec![part(1), part(2)],
            _ => vec![part(2), part(0)],
        };
        for part in &mut parts {
            part.descending = self.rng.one_in(3);
            part.nulls_first = self.rng.one_in(2);
        }
        let def = index(&name, parts);
        match self.rng.below(9) {
            6.. => self.key(&name),
            0 | 1 => create_online(&self.db, &def).expect("create index"),
            2 => create_alone(&self.db, &def).expect("create index"),
            3 => {
                let txn = self.db.begin(TxnOptions::default()).expect("begin");
                self.change(&txn);
                create_in(&txn, &def).expect("create index");
                self.change(&txn);
                txn.rollback();
            }
            4 => {
                let table = table(&self.db);
                if let Some(first) = table.indexes.first().filter(|_| table.indexes.len() > 2) {
                    alter(&self.db, |table| drop_index(table, &first.name));
                }
            }
            _ => {
                let (c, text) = (table(&self.db).next_column, self.text());
                alter(&self.db, |table| {
                    add_column(table, &format!("c{c}"), SqlType::Text, text.clone());
                });
            }
        }
    }

    /// Adds or drops a constraint, ordered or not, over columns that the primary key is among.
    fn key(&mut self, name: &str) {
        let columns = match self.rng.below(3) {
            0 => vec![ColumnId(1), ColumnId(0)],
            1 => vec![ColumnId(0), ColumnId(2)],
            _ => vec![ColumnId(2), ColumnId(1), ColumnId(0)],
        };
        let mut key = KeyDef::new(name, false, columns);
        key.nulls_not_distinct = self.rng.one_in(4);
        if !self.rng.one_in(4) {
            key = key.with_ordered_index(crate::STORAGE);
        }
        let (is_dropped, is_undone) = (self.rng.one_in(3), self.rng.one_in(4));
        let txn = self.db.begin(TxnOptions::default()).expect("begin");
        self.change(&txn);
        let changed = txn.change_catalog(&mut |catalog| {
            let mut table = TableDef::clone(catalog.table("public", "t").expect("t"));
            match is_dropped && table.keys.len() > 1 {
                true => drop(table.keys.remove(1)),
                false => table.keys.push(key.clone()),
            }
            catalog.put_table(table);
            Ok(())
        });
        changed.expect("a key");
        self.change(&txn);
        match is_undone {
            true => txn.rollback(),
            false => drop(txn.commit().expect("commit")),
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
        assert_indexes_agree(&statement, &view, &table, &rows, &context);
        for held in &self.held {
            let view = held.statement.view(&held.table).expect("view");
            let context = format!("{context}, old snapshot");
            assert_indexes_agree(&held.statement, &view, &held.table, &held.rows, &context);
        }
        // Half of the moments in turns.
        let moments = self.moments.iter().skip(step / CHECK_STEPS % 2).step_by(2);
        for (ts, then, rows) in moments {
            let view = statement.view_as_of(then, *ts).expect("view");
            let context = format!("{context}, as of {ts}");
            assert_indexes_agree(&statement, &view, then, rows, &context);
            // An index made later, if it says that it is complete for this moment.
            if then.columns.len() == table.columns.len() {
                assert_indexes_agree(&statement, &view, &table, rows, &context);
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
    create_table(&db, history);
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
            0 | 1 => run.definition(),
            2 => run.hold(),
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
        None => (1..=3).collect(),
    }
}

#[test]
fn indexes_find_what_scans_find_without_history() {
    for seed in seeds() {
        model(seed, HistoryPolicy::None);
    }
}

#[test]
fn indexes_find_what_scans_find_with_history() {
    for seed in seeds() {
        model(seed, HistoryPolicy::Forever);
    }
}
