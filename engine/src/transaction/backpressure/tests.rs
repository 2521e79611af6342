//! What writers pay, and which transactions are counted individually.

use super::*;
use crate::catalog::{Catalog, ColumnDef, HistoryPolicy, KeyDef, TableDef};
use crate::db::backpressure::{Backpressure, OpenBytes};
use crate::settings::{DbOptions, Settings, TxnOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use strandline_base::{Clock, ColumnId, ManualClock, SqlType, Value};
use strandline_device::MemoryDevice;

const LIMIT: usize = 64 << 20;

#[test]
fn pauses_grow_with_the_fill_and_the_bytes() {
    let pause = |written, used| pause_us(written, used, 0, LIMIT);
    assert_eq!(pause(1 << 20, LIMIT / 2), 0, "half is free");
    let mut before = 0;
    for sixteenth in 9..=16 {
        let us = pause(64 << 10, LIMIT / 16 * sixteenth);
        assert!(us >= before, "{us} after {before}");
        before = us;
    }
    assert_eq!(before, 250_000, "256 KiB a second");
    assert_eq!(pause(64 << 10, LIMIT * 2), before, "and no less");
    assert_eq!(pause(32 << 10, LIMIT), before / 2);
    assert_eq!(pause(64 << 20, LIMIT), PAUSE_MAX_US);
    // The update of a counter.
    assert_eq!(pause(128, LIMIT / 4 * 3), 0);
    assert!(pause(128, LIMIT) < 500);
}

#[test]
fn what_no_merge_can_free_slows_nobody_down() {
    let pause = |open| pause_us(64 << 10, LIMIT, open, LIMIT);
    assert_eq!(pause(LIMIT), 0);
    assert_eq!(
        pause(LIMIT / 5 * 2),
        pause(0) / 2,
        "with what goes with the records"
    );
    assert_eq!(pause(LIMIT / 4 * 3), 0, "a merge would hardly help");
    assert_eq!(pause(LIMIT * 2), 0);
}

#[test]
fn large_transactions_are_known_until_they_end() {
    let known = Backpressure::default();
    let [mut small, mut large, mut larger] = [const { OpenBytes(None) }; 3];
    known.show(&mut small, SMALL_BYTES - 1);
    known.show(&mut large, SMALL_BYTES);
    known.show(&mut larger, SMALL_BYTES);
    known.show(&mut larger, SMALL_BYTES * 3);
    let others = |count, bytes, largest| Others {
        count,
        bytes,
        largest,
    };
    let all = others(2, SMALL_BYTES * 4, SMALL_BYTES * 3);
    assert_eq!(known.others(&small), all);
    assert_eq!(known.others(&larger), others(1, SMALL_BYTES, SMALL_BYTES));
    // After a rollback to a savepoint the transaction is still listed.
    known.show(&mut larger, 10);
    assert_eq!(known.others(&large), others(1, 10, 10));
    drop(larger);
    assert_eq!(known.others(&large), Others::default());
    drop(large);
    known.show(&mut small, SMALL_BYTES);
    assert_eq!(known.large.lock().len(), 1);
}

/// A clock that advances at each reading.
struct Stepping {
    us: AtomicU64,
    step_us: u64,
}

impl Clock for Stepping {
    fn now_us(&self) -> u64 {
        1_700_000_000_000_000 + self.elapsed_us()
    }
    fn elapsed_us(&self) -> u64 {
        self.us.fetch_add(self.step_us, Ordering::SeqCst)
    }
}

/// A table `t (k bigint primary key, b text)` with little memory. Committed rows fill `sixteenths`
/// sixteenths of the limit. Nothing is merged, since there is no background thread.
fn filled(clock: Arc<dyn Clock>, sixteenths: usize) -> Arc<Db> {
    let settings = Settings {
        memory_bytes: Settings::MEMORY_BYTES_MIN,
        background_maintenance: false,
        reserve_bytes: 0,
        ..Settings::default()
    };
    let device = Arc::new(MemoryDevice::new());
    let mut db = Db::open(DbOptions {
        device,
        clock,
        settings,
    })
    .expect("open");
    let ddl = db.begin(TxnOptions::default()).expect("begin");
    ddl.change_catalog(&mut |catalog| {
        let table = definition(catalog);
        catalog.put_table(table);
        Ok(())
    })
    .expect("create");
    ddl.commit().expect("commit");
    drop(ddl);
    let mut key = 0;
    while db.shared.page_bytes.used() < db.tail_limit() / 16 * sixteenths {
        key += 1;
        insert(&begin(&db), key, 4000).expect("inserted");
    }
    if sixteenths > 16 {
        // Small transactions may continue until the reserve is full, with a row of any size.
        insert(&begin(&db), -100, 2 << 20).expect("inserted");
    }
    Arc::get_mut(&mut db)
        .expect("nobody else has it")
        .settings
        .background_maintenance = true;
    db
}

fn definition(catalog: &mut Catalog) -> TableDef {
    let columns = vec![
        ColumnDef::new(ColumnId(0), "k", SqlType::BigInt),
        ColumnDef::new(ColumnId(1), "b", SqlType::Text),
    ];
    TableDef {
        id: catalog.new_table_id(),
        storage: catalog.new_storage_id(),
        keys: vec![KeyDef::new("t_pkey", true, vec![ColumnId(0)])],
        history: HistoryPolicy::None,
        ..TableDef::new("public", "t", columns)
    }
}

fn begin(db: &Arc<Db>) -> Arc<Transaction> {
    db.begin(TxnOptions::default()).expect("begin")
}

/// Inserts a row with a text of `bytes` bytes and commits.
fn insert(txn: &Arc<Transaction>, key: i64, bytes: usize) -> Result<()> {
    let catalog = txn.db().catalog();
    let table = catalog.table("public", "t").expect("table t");
    let text = "x".repeat(bytes);
    let row = [Value::BigInt(key), Value::from(text.as_str())];
    txn.begin_statement()?.point_insert(table, &row)?;
    txn.commit().map(|_| ())
}

#[test]
fn writers_of_large_rows_pause_and_those_of_small_ones_hardly() {
    let clock = || {
        Arc::new(Stepping {
            us: AtomicU64::new(0),
            step_us: 5_000,
        })
    };
    let db = filled(clock(), 15);
    let writes = |keys: std::ops::Range<i64>, bytes| {
        let before = db.backpressure.paused();
        for key in keys {
            insert(&begin(&db), key, bytes).expect("inserted");
        }
        let after = db.backpressure.paused();
        (after.0 - before.0, after.1 - before.1)
    };
    let (pauses, large_us) = writes(10_000..10_016, 4000);
    assert_eq!(pauses, 16, "each commit pays for its row");
    assert!((130_000..200_000).contains(&large_us), "{large_us}");
    let (_, small_us) = writes(20_000..20_016, 20);
    assert!(small_us * 20 < large_us, "{small_us} beside {large_us}");
    let db = filled(clock(), 7);
    insert(&begin(&db), -1, 4000).expect("inserted");
    assert_eq!(db.backpressure.paused(), (0, 0), "there is room");
}

/// The clock stands still and no checkpoint runs, so only these events end a wait.
#[test]
fn waits_for_memory_are_cancelled_and_time_out() {
    let still = || Arc::new(ManualClock::new(1_700_000_000_000_000));
    let cancelled = || TxnOptions {
        cancel: Arc::new(AtomicBool::new(true)),
        ..TxnOptions::default()
    };
    // A pause: the transaction has written 4000 bytes before its next write.
    let db = filled(still(), 15);
    let txn = db.begin(cancelled()).expect("begin");
    let table = db.catalog().table("public", "t").expect("table t").clone();
    let text = "x".repeat(4000);
    let insert_one = |key| {
        let row = [Value::BigInt(key), Value::from(text.as_str())];
        txn.begin_statement()?.point_insert(&table, &row)
    };
    insert_one(-1).expect("nothing to pay for yet");
    let error = insert_one(-2).expect_err("cancelled");
    assert_eq!(error.sqlstate(), SqlState::QUERY_CANCELED);
    txn.rollback();
    // A wait for a checkpoint, behind the reserve.
    let db = filled(still(), 17);
    let error = insert(&db.begin(cancelled()).expect("begin"), -1, 1);
    let error = error.expect_err("cancelled");
    assert_eq!(error.sqlstate(), SqlState::QUERY_CANCELED);
    let impatient = TxnOptions {
        lock_timeout: Some(Duration::ZERO),
        ..TxnOptions::default()
    };
    let error = insert(&db.begin(impatient).expect("begin"), -1, 1).expect_err("waited");
    assert_eq!(error.sqlstate(), SqlState::LOCK_NOT_AVAILABLE);
}
