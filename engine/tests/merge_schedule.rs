//! When the background work merges: enough records, age, its share of the time; on several threads.

mod common;

use common::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use strandline_base::Clock;
use strandline_device::MemoryDevice;
use strandline_engine::catalog::HistoryPolicy;
use strandline_engine::*;

/// A clock that goes on by itself at every look, and by hand.
struct TickingClock {
    now_us: AtomicU64,
    tick_us: u64,
}

impl TickingClock {
    fn new(tick_us: u64) -> Arc<Self> {
        let now_us = AtomicU64::new(1_700_000_000_000_000);
        Arc::new(Self { now_us, tick_us })
    }
    fn advance(&self, by: Duration) {
        let us = by.as_micros() as u64;
        self.now_us.fetch_add(us, Ordering::Relaxed);
    }
}

impl Clock for TickingClock {
    fn now_us(&self) -> u64 {
        self.now_us.fetch_add(self.tick_us, Ordering::Relaxed)
    }

    fn elapsed_us(&self) -> u64 {
        self.now_us()
    }
}

fn open_with(clock: Arc<TickingClock>, settings: Settings) -> Arc<Db> {
    let options = DbOptions {
        device: Arc::new(MemoryDevice::new()),
        clock,
        settings: Settings {
            background_maintenance: false,
            ..settings
        },
    };
    Db::open(options).expect("open")
}

fn set(db: &Arc<Db>, k: i64, value: i64) {
    let t = table(db);
    let set = [(ColumnId(1), Value::BigInt(value))];
    let found = run(db, |s| s.point_update(&t, 0, &[Value::BigInt(k)], &set));
    assert!(found.expect("update"));
}

fn merged_ranges(db: &Db) -> u64 {
    let counters = db.counters();
    let merged = counters.iter().find(|(name, _)| *name == "merged_ranges");
    merged.expect("a counter").1
}

#[test]
fn old_records_are_merged_in_all_columns() {
    let clock = TickingClock::new(0);
    let age = Duration::from_secs(30);
    let settings = Settings {
        merge_age: age,
        ..Settings::default()
    };
    let db = open_with(clock.clone(), settings);
    create_table(&db, HistoryPolicy::Forever);
    (0..20).for_each(|k| insert(&db, &row(k, 0, "first")));
    db.checkpoint(true).expect("merge");
    set(&db, 3, 7);
    assert!(!db.merge_due(false).expect("look"), "just seen");
    clock.advance(age - Duration::from_secs(1));
    assert!(!db.merge_due(false).expect("look"), "not old enough");
    let before = merged_ranges(&db);
    clock.advance(Duration::from_secs(1));
    assert!(db.merge_due(false).expect("merge"));
    assert_eq!(merged_ranges(&db), before + 1);
    let image = db.lineage_of(&table(&db)).expect("image").remove(0);
    assert!(image.records.is_empty(), "nothing is left in the tails");
    assert_eq!(image.rows[3].values[1], Value::BigInt(7), "in base");
    // What comes now has an age of its own.
    set(&db, 4, 8);
    assert!(!db.merge_due(false).expect("look"));
    clock.advance(age);
    assert!(db.merge_due(false).expect("merge"));
    clock.advance(age * 2);
    assert!(!db.merge_due(false).expect("look"), "nothing is pending");
}

#[test]
fn merges_rest_and_what_is_urgent_does_not() {
    // Every look at the clock takes a second.
    let clock = TickingClock::new(1_000_000);
    let settings = Settings {
        merge_pending_records: 1,
        merge_percent: 10,
        ..Settings::default()
    };
    let db = open_with(clock, settings);
    create_table(&db, HistoryPolicy::Forever);
    (0..20).for_each(|k| insert(&db, &row(k, 0, "first")));
    db.checkpoint(true).expect("merge");
    set(&db, 3, 1);
    assert!(db.merge_due(false).expect("merge"));
    set(&db, 3, 2);
    assert!(!db.merge_due(false).expect("look"), "it rests");
    assert!(db.merge_due(true).expect("merge"), "wanted");
    set(&db, 3, 3);
    let rested = (0..1_000).take_while(|_| !db.merge_due(false).expect("look"));
    let rested = rested.count();
    assert!(
        (1..1_000).contains(&rested),
        "{rested} looks while it rested"
    );
}

#[test]
fn several_threads_merge_what_one_does() {
    let rows = 3 * 65_536 - 5_000;
    let states = [1, 3].map(|merge_threads| {
        let settings = Settings {
            merge_threads,
            memory_bytes: 64 << 20,
            ..Settings::default()
        };
        let db = open_with(TickingClock::new(0), settings);
        create_table(&db, HistoryPolicy::Forever);
        let txn = db.begin(TxnOptions::default()).expect("begin");
        let statement = txn.begin_statement().expect("statement");
        let mut load = statement.bulk_insert(&table(&db)).expect("load");
        let rows: Vec<_> = (0..rows).map(|k| (k, Some(k % 7), String::new())).collect();
        load.append(&batch(&rows)).expect("append");
        load.finish().expect("loaded");
        statement.finish().expect("finish");
        txn.commit().expect("commit");
        for k in (0..rows.len() as i64).step_by(10_007) {
            set(&db, k, -k);
        }
        let report = db.checkpoint(true).expect("merge");
        assert_eq!(report.merged_ranges, 3);
        assert!(db.check().expect("check").is_empty());
        let t = table(&db);
        let state = run(&db, |s| s.scan(&t, request())).expect("scan");
        scan_all(&state)
    });
    assert_eq!(states[0].len(), rows as usize);
    assert!(states[0] == states[1]);
}
