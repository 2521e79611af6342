//! Work on all versions of one row reads its history a few times, not once per version.

mod common;

use common::counting_device::CountingDevice;
use common::*;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use strandline_base::ManualClock;
use strandline_base::rng::Rng;
use strandline_engine::catalog::HistoryPolicy;
use strandline_engine::*;

const SECOND: u64 = 1_000_000;
const VERSIONS: i64 = 300;
/// The kind of the files with the history.
const RUNS: &str = "run";

/// A row whose key and text have been updated often; its history is in runs.
fn updated() -> (Arc<CountingDevice>, Arc<ManualClock>, Arc<Db>) {
    let (device, clock) = (Arc::new(CountingDevice::default()), clock());
    let db = open(device.clone(), &clock).expect("open");
    let (t, _) = create_table(&db, HistoryPolicy::For(10_000 * SECOND));
    let mut rng = Rng::new(3);
    insert(&db, &row(0, 0, ""));
    for k in 0..VERSIONS {
        clock.advance(SECOND);
        let words = (0..100).map(|_| format!("{:016x}", rng.next_u64()));
        let text = words.collect::<String>();
        let set = [
            (ColumnId(0), Value::BigInt(k + 1)),
            (ColumnId(2), Value::from(text.as_str())),
        ];
        let found = run(&db, |s| s.point_update(&t, 0, &[Value::BigInt(k)], &set));
        assert!(found.expect("update"));
        if k % 100 == 99 {
            db.checkpoint(true).expect("checkpoint");
        }
    }
    assert!(device.stored(RUNS) > 100 * VERSIONS as u64);
    (device, clock, db)
}

fn entries(db: &Db) -> u64 {
    let counters = db.counters();
    let found = counters
        .iter()
        .find(|(counter, _)| *counter == "key_entries");
    found.expect("a counter").1
}

#[test]
fn a_sweep_reads_the_history_of_a_row_a_few_times() {
    let (device, clock, db) = updated();
    assert_eq!(entries(&db), VERSIONS as u64 + 1);
    // Most versions are still kept: the sweep looks at all of them.
    clock.advance(9_900 * SECOND);
    let (swept, passes) = device.passes(RUNS, || db.checkpoint(true));
    swept.expect("checkpoint");
    let kept = entries(&db);
    assert!((100..300).contains(&kept), "{kept} entries");
    assert!(passes < 8.0, "{passes} passes");
}

#[test]
fn an_index_is_filled_by_reading_the_history_of_a_row_a_few_times() {
    let (device, clock, db) = updated();
    drop(db);
    let (db, passes) = device.passes(RUNS, || open(device.clone(), &clock).expect("open"));
    assert_eq!(entries(&db), VERSIONS as u64 + 1);
    assert!(passes < 8.0, "{passes} passes");
}

#[test]
fn a_history_reads_the_row_a_few_times_and_ends_when_it_is_cancelled() {
    let (device, _, db) = updated();
    let t = table(&db);
    for k in [0, 150, VERSIONS] {
        let history = || run(&db, |s| s.history(&t, &[Value::BigInt(k)]));
        let (found, passes) = device.passes(RUNS, history);
        assert_eq!(found.expect("history").num_rows(), 1);
        assert!(passes < 3.0, "{passes} passes");
    }
    let options = TxnOptions::default();
    let cancel = options.cancel.clone();
    let txn = db.begin(options).expect("begin");
    let statement = txn.begin_statement().expect("statement");
    cancel.store(true, Ordering::Relaxed);
    let ended = statement.history(&t, &[Value::BigInt(1)]);
    let error = ended.expect_err("cancelled");
    assert_eq!(error.sqlstate(), SqlState::QUERY_CANCELED);
}

/// A read of a recent moment ends at the first records that complete it.
#[test]
fn a_read_of_the_past_stops_at_the_record_it_needs() {
    let (device, clock, db) = updated();
    let t = table(&db);
    let options = TxnOptions {
        isolation: Isolation::Snapshot,
        ..TxnOptions::default()
    };
    let old = db.begin(options).expect("begin");
    let statement = old.begin_statement().expect("statement");
    clock.advance(SECOND);
    let set = [(ColumnId(2), Value::from("new"))];
    let key = [Value::BigInt(VERSIONS)];
    assert!(run(&db, |s| s.point_update(&t, 0, &key, &set)).expect("update"));
    db.checkpoint(true).expect("checkpoint");
    let read = || {
        let mut out = Vec::new();
        let found = statement.point_get(&t, 0, &key, &[ColumnId(2)], &mut out);
        assert!(found.expect("get"));
        out
    };
    let (found, passes) = device.passes(RUNS, read);
    assert_eq!(bytes_of(&found[0]), 1_600);
    assert!(passes < 0.4, "{passes} of the history");
}

fn bytes_of(text: &Value) -> usize {
    match text {
        Value::Text(text) => text.len(),
        other => panic!("{other:?} is no text"),
    }
}
