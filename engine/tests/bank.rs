//! Bank transfers from several threads while others scan and merge: every snapshot sees the same
//! total, and so does every moment of the past.

mod common;

use common::{batch, create_table, request, scan_all};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use strandline_base::rng::Rng;
use strandline_device::MemoryDevice;
use strandline_engine::catalog::{HistoryPolicy, TableDef};
use strandline_engine::*;

const ACCOUNTS: i64 = 40;
const TOTAL: i64 = ACCOUNTS * 1000;

fn open(device: &Arc<MemoryDevice>) -> Arc<Db> {
    let settings = Settings {
        background_maintenance: false,
        wal_segment_bytes: 1 << 16,
        ..Settings::default()
    };
    let clock = Arc::new(SystemClock);
    Db::open(DbOptions {
        device: device.clone(),
        clock,
        settings,
    })
    .expect("open")
}

fn read(statement: &Statement, table: &Arc<TableDef>, key: i64) -> i64 {
    let mut out = Vec::new();
    let found = statement
        .point_get(table, 0, &[Value::BigInt(key)], &[ColumnId(1)], &mut out)
        .expect("get");
    assert!(found, "account {key} is gone");
    match out[0] {
        Value::BigInt(v) => v,
        ref other => panic!("balance {other:?}"),
    }
}

/// Moves money; false if another transaction was in the way.
fn transfer(db: &Arc<Db>, table: &Arc<TableDef>, rng: &mut Rng) -> bool {
    let options = TxnOptions {
        isolation: Isolation::Snapshot,
        synchronous_commit: rng.one_in(4),
        ..TxnOptions::default()
    };
    let txn = db.begin(options).expect("begin");
    let from = rng.below(ACCOUNTS as u64) as i64;
    let to = (from + 1 + rng.below(ACCOUNTS as u64 - 1) as i64) % ACCOUNTS;
    let amount = rng.below(50) as i64;
    for (account, change) in [(from, -amount), (to, amount)] {
        let statement = txn.begin_statement().expect("statement");
        let set = [(
            ColumnId(1),
            Value::BigInt(read(&statement, table, account) + change),
        )];
        match statement.point_update(table, 0, &[Value::BigInt(account)], &set) {
            Ok(found) => assert!(found),
            Err(e) => {
                let expected = [SqlState::SERIALIZATION_FAILURE, SqlState::DEADLOCK_DETECTED];
                assert!(expected.contains(&e.sqlstate()), "{e}");
                txn.rollback();
                return false;
            }
        }
    }
    if rng.one_in(10) {
        txn.rollback();
        return false;
    }
    txn.commit().expect("commit");
    true
}

fn total(scan: &std::sync::Arc<TableScan>) -> i64 {
    let state = scan_all(scan);
    assert_eq!(state.len() as i64, ACCOUNTS);
    state
        .values()
        .map(|(balance, _)| balance.expect("not null"))
        .sum()
}

#[test]
fn every_snapshot_sees_the_same_total() {
    let device = Arc::new(MemoryDevice::new());
    let db = open(&device);
    let (table, _) = create_table(&db, HistoryPolicy::Forever);
    let txn = db.begin(TxnOptions::default()).expect("begin");
    let statement = txn.begin_statement().expect("statement");
    let rows: Vec<_> = (0..ACCOUNTS)
        .map(|k| (k, Some(1000), String::new()))
        .collect();
    statement
        .insert(&table, &batch(&rows), OnInvisibleDuplicate::Violation)
        .expect("insert");
    statement.finish().expect("finish");
    let start = txn.commit().expect("commit");
    drop((statement, txn));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|seed| {
                let (db, table) = (&db, &table);
                scope.spawn(move || {
                    let mut rng = Rng::new(seed);
                    (0..1500).filter(|_| transfer(db, table, &mut rng)).count()
                })
            })
            .collect();
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                db.checkpoint(true).expect("checkpoint");
            }
        });
        scope.spawn(|| {
            let mut rng = Rng::new(99);
            while !done.load(Ordering::Relaxed) {
                let txn = db.begin(TxnOptions::default()).expect("begin");
                let statement = txn.begin_statement().expect("statement");
                let scan = statement.scan(&table, request()).expect("scan");
                assert_eq!(total(&scan), TOTAL, "now");
                let span = statement.snapshot_ts().0 - start.0;
                let at = CommitTs(start.0 + rng.below(span + 1));
                let scan = statement.scan_as_of(&table, at, request()).expect("as of");
                assert_eq!(total(&scan), TOTAL, "as of {at:?}");
                let sum: i64 = (0..ACCOUNTS).map(|k| read(&statement, &table, k)).sum();
                assert_eq!(sum, TOTAL, "by key");
            }
        });
        let commits: usize = writers.into_iter().map(|w| w.join().expect("writer")).sum();
        done.store(true, Ordering::Relaxed);
        assert!(commits > 100, "only {commits} transfers committed");
    });
    let damage = db.check().expect("check");
    assert!(damage.is_empty(), "{damage:?}");
    drop(db);
    let db = open(&device);
    let table = db.catalog().table("public", "t").expect("table").clone();
    let txn = db.begin(TxnOptions::default()).expect("begin");
    let statement = txn.begin_statement().expect("statement");
    assert_eq!(
        total(&statement.scan(&table, request()).expect("scan")),
        TOTAL,
        "reopened"
    );
}
