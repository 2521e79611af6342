//! Reads at the newest merged moment, against the committed states kept beside: what is read is
//! the state of that moment, with no tail or history until a merge comes between, and merges change
//! nothing of it.

mod common;

use common::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use strandline_base::rng::Rng;
use strandline_engine::catalog::{HistoryPolicy, TableDef};
use strandline_engine::*;

fn begin(db: &Arc<Db>) -> Arc<Statement> {
    let txn = db.begin(TxnOptions::default()).expect("begin");
    txn.begin_statement().expect("statement")
}

fn relaxed(db: &Arc<Db>, floor: CommitTs) -> Relaxed {
    begin(db).relaxed(&[table(db)], floor).expect("relaxed")
}

/// What `statement` sees, whatever has been merged meanwhile.
fn state(statement: &Statement, table: &Arc<TableDef>) -> State {
    scan_all(&statement.scan(table, request()).expect("scan"))
}

/// What `statement` sees, and that base alone told it.
fn merged_state(statement: &Statement, table: &Arc<TableDef>) -> State {
    let scan = statement.scan(table, request()).expect("scan");
    let state = scan_all(&scan);
    let columns = &scan.metrics().columns;
    assert_eq!(columns.tail_records_patched.load(Ordering::Relaxed), 0);
    assert_eq!(columns.history_records_read.load(Ordering::Relaxed), 0);
    state
}

fn load(db: &Arc<Db>, first: i64) {
    let rows: Vec<_> = (first..first + 5000)
        .map(|k| (k, Some(k), String::new()))
        .collect();
    let t = table(db);
    run(db, |s| {
        let mut load = s.bulk_insert(&t)?;
        load.append(&batch(&rows))?;
        load.finish()
    })
    .expect("load");
}

fn set(db: &Arc<Db>, k: i64, a: i64) {
    let t = table(db);
    let set = [(ColumnId(1), Value::BigInt(a))];
    let found = run(db, |s| s.point_update(&t, 0, &[Value::BigInt(k)], &set));
    assert!(found.expect("update"), "row {k}");
}

fn newest(db: &Arc<Db>) -> State {
    let statement = begin(db);
    scan_all(&statement.scan(&table(db), request()).expect("scan"))
}

#[test]
fn the_moment_is_just_before_the_first_unmerged_commit() {
    let world = World::new(HistoryPolicy::Forever);
    let db = &world.db;
    load(db, 0);
    assert!(matches!(relaxed(db, CommitTs::ZERO), Relaxed::Newest));
    let (loaded, before) = (db.stable(), newest(db));
    world.clock.advance(1000);
    set(db, 7, -1);
    let updated = db.stable();
    set(db, 8, -1);
    insert(db, &row(9000, 1, "new"));
    let t = table(db);
    let Relaxed::Older(statement) = relaxed(db, loaded) else {
        panic!("the loaded range is as it was");
    };
    assert_eq!(statement.snapshot_ts().0, updated.0 - 1);
    assert_eq!(merged_state(&statement, &t), before);
    assert!(matches!(relaxed(db, updated), Relaxed::Unmerged));
    let just_before = CommitTs(updated.0 - 1);
    assert!(matches!(relaxed(db, just_before), Relaxed::Older(_)));
    // Everything is merged: the newest moment is one.
    db.checkpoint(true).expect("checkpoint");
    assert!(matches!(relaxed(db, loaded), Relaxed::Newest));
    // The open one reads what it read before.
    assert_eq!(state(&statement, &t), before);
    // A transaction at work is in nobody's way.
    let now = newest(db);
    let txn = db.begin(TxnOptions::default()).expect("begin");
    let writer = txn.begin_statement().expect("statement");
    writer.delete(&t, &[RowId(3)]).expect("delete");
    assert!(matches!(relaxed(db, loaded), Relaxed::Newest));
    writer.finish().expect("finish");
    txn.commit().expect("commit");
    let Relaxed::Older(statement) = relaxed(db, loaded) else {
        panic!("all but the deletion is merged");
    };
    assert_eq!(merged_state(&statement, &t), now);
    // A definition that changed since is not that of the moment.
    alter(db, |t| add_column(t, "c", SqlType::BigInt, Value::Null));
    assert!(matches!(relaxed(db, loaded), Relaxed::Redefined));
}

#[test]
fn what_has_not_been_kept_is_not_read() {
    let world = World::new(HistoryPolicy::None);
    let db = &world.db;
    load(db, 0);
    let loaded = db.stable();
    world.clock.advance(1000);
    set(db, 5, 1);
    assert!(matches!(relaxed(db, loaded), Relaxed::Older(_)));
    // A checkpoint that merges nothing says that nothing before it is kept.
    db.checkpoint(false).expect("checkpoint");
    assert!(matches!(relaxed(db, loaded), Relaxed::Unmerged));
}

#[test]
fn random_moments_are_right_whatever_is_merged() {
    let mut older = 0;
    for seed in 0..4 {
        let mut rng = Rng::new(seed);
        let clock = clock();
        let db = Db::open(DbOptions {
            device: Arc::new(strandline_device::MemoryDevice::new()),
            clock: clock.clone(),
            settings: Settings {
                merge_pending_records: 6,
                background_maintenance: false,
                ..Settings::default()
            },
        })
        .expect("open");
        create_table(&db, HistoryPolicy::Forever);
        let t = table(&db);
        load(&db, 0);
        load(&db, 10_000);
        let mut moments = BTreeMap::from([(db.stable(), newest(&db))]);
        let mut open: Vec<(Arc<Statement>, State)> = Vec::new();
        let mut next_key = 20_000;
        for _ in 0..80 {
            clock.advance(rng.below(500) + 1);
            match rng.below(12) {
                0 => {
                    db.checkpoint(rng.one_in(4)).expect("checkpoint");
                }
                1 => {
                    next_key += 1;
                    insert(&db, &row(next_key, 0, "inserted"));
                }
                2 if next_key > 20_000 => set(&db, next_key, rng.below(100) as i64),
                3..=5 => set(&db, 10_000 + rng.below(50) as i64, rng.below(100) as i64),
                6 => {
                    let key = rng.below(50) as i64;
                    run(&db, |s| {
                        lock(s, &t, key);
                        Ok(())
                    })
                    .expect("lock");
                }
                // A column with few changes is left behind by merges of the other.
                7 => {
                    let text = [(
                        ColumnId(2),
                        Value::from(format!("{}", rng.below(9)).as_str()),
                    )];
                    let key = [Value::BigInt(rng.below(50) as i64)];
                    run(&db, |s| s.point_update(&t, 0, &key, &text)).expect("update");
                }
                8 => {
                    let key = [Value::BigInt(100 + rng.below(4000) as i64)];
                    run(&db, |s| s.point_delete(&t, 0, &key)).expect("delete");
                }
                _ => {
                    let back = CommitTs(db.stable().0 - rng.below(5000));
                    if let Relaxed::Older(statement) = relaxed(&db, back) {
                        let moment = statement.snapshot_ts();
                        assert!(back <= moment && moment < db.stable());
                        let (_, expected) = moments.range(..=moment).next_back().expect("one");
                        assert_eq!(&merged_state(&statement, &t), expected, "seed {seed}");
                        open.push((statement, expected.clone()));
                        older += 1;
                    }
                    for (statement, expected) in &open {
                        assert_eq!(&state(statement, &t), expected, "seed {seed}");
                    }
                    open.truncate(2);
                }
            }
            moments.insert(db.stable(), newest(&db));
        }
    }
    assert!(older > 12, "{older} older moments");
}
