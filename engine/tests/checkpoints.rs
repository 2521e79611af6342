//! What checkpoints write, merge and leave: nothing twice, nothing forgotten beside transactions
//! that stay open.

mod common;

use common::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use strandline_device::MemoryDevice;
use strandline_engine::catalog::HistoryPolicy;
use strandline_engine::*;
use strandline_sim::SimDisk;

fn database() -> Arc<Db> {
    let db = open(Arc::new(MemoryDevice::new()), &clock()).expect("open");
    create_table(&db, HistoryPolicy::Forever);
    for k in 0..20 {
        insert(&db, &row(k, 0, ""));
    }
    db
}

fn set(db: &Arc<Db>, k: i64, a: i64) {
    let t = table(db);
    let set = [(ColumnId(1), Value::BigInt(a))];
    run(db, |s| s.point_update(&t, 0, &[Value::BigInt(k)], &set)).expect("update");
}

#[test]
fn records_are_written_once() {
    let db = database();
    assert_eq!(db.checkpoint(false).expect("checkpoint").run_records, 20);
    assert_eq!(db.checkpoint(false).expect("checkpoint").run_records, 0);
    set(&db, 3, 1);
    set(&db, 3, 2);
    // Both updates and the value before.
    assert_eq!(db.checkpoint(false).expect("checkpoint").run_records, 3);
    assert_eq!(db.checkpoint(false).expect("checkpoint").run_records, 0);
    assert_eq!(db.checkpoint(true).expect("checkpoint").merged_ranges, 1);
    let report = db.checkpoint(true).expect("checkpoint");
    assert_eq!((report.merged_ranges, report.run_records), (0, 0));
}

#[test]
fn a_merge_passes_over_an_open_transaction_and_takes_its_records_later() {
    let db = database();
    db.checkpoint(true).expect("checkpoint");
    let txn = db.begin(TxnOptions::default()).expect("begin");
    let statement = txn.begin_statement().expect("statement");
    let t = table(&db);
    let late = [(ColumnId(1), Value::BigInt(-1))];
    statement
        .point_update(&t, 0, &[Value::BigInt(0)], &late)
        .expect("update");
    for round in 0..30 {
        for k in 1..20 {
            set(&db, k, round);
        }
        let report = db.checkpoint(true).expect("checkpoint");
        assert_eq!(report.merged_ranges, 1, "round {round}");
    }
    txn.commit().expect("commit");
    let report = db.checkpoint(true).expect("checkpoint");
    assert_eq!(report.merged_ranges, 1, "the late record is merged");
    assert_eq!(db.checkpoint(true).expect("checkpoint").merged_ranges, 0);
    assert_eq!(get(&db, 0), Some(row(0, -1, "").to_vec()));
    assert_eq!(get(&db, 7), Some(row(7, 29, "").to_vec()));
}

/// Inserts and first updates beside checkpoints; a kill at any moment keeps what was acknowledged,
/// and no row shows another one's values.
#[test]
fn checkpoints_beside_writers_mix_no_rows() {
    const WRITERS: usize = 3;
    const ROWS: i64 = 60;
    let disk = SimDisk::new(1);
    let wall = clock();
    let db = open(disk.device(), &wall).expect("open");
    let (t, _) = create_table(&db, HistoryPolicy::None);
    // Per writer: the number of acknowledged steps; a row takes four.
    let steps: [AtomicI64; WRITERS] = Default::default();
    std::thread::scope(|scope| {
        for (writer, acknowledged) in steps.iter().enumerate() {
            let (db, t) = (&db, &t);
            scope.spawn(move || {
                for step in 0..ROWS * 4 {
                    let (k, a) = (writer as i64 * 1000 + step / 4, step % 4);
                    let text = format!("{k}:{a}");
                    let set = [
                        (ColumnId(1), Value::BigInt(a)),
                        (ColumnId(2), text.as_str().into()),
                    ];
                    run(db, |s| match a {
                        0 => s.point_insert(t, &row(k, 0, &text)).map(|_| true),
                        _ => s.point_update(t, 0, &[Value::BigInt(k)], &set),
                    })
                    .expect("write");
                    acknowledged.store(step + 1, Ordering::SeqCst);
                }
            });
        }
        let is_done = || steps.iter().all(|s| s.load(Ordering::SeqCst) == ROWS * 4);
        let mut round = 0;
        loop {
            let last = is_done();
            db.checkpoint(round % 5 == 4).expect("checkpoint");
            let least: Vec<i64> = steps.iter().map(|s| s.load(Ordering::SeqCst)).collect();
            let again = open(disk.after_kill().device(), &wall).expect("reopen");
            for (writer, steps) in least.iter().enumerate() {
                for i in 0..ROWS {
                    let k = writer as i64 * 1000 + i;
                    let known = (steps - i * 4).clamp(0, 4);
                    let found = get(&again, k);
                    let a = match found.as_ref().map(|row| &row[1]) {
                        Some(Value::BigInt(a)) => *a,
                        _ => -1,
                    };
                    assert!(
                        a >= known - 1,
                        "round {round}: row {k} is {found:?} after {known}"
                    );
                    if a >= 0 {
                        let expected = row(k, a, &format!("{k}:{a}")).to_vec();
                        assert_eq!(found, Some(expected), "round {round}");
                    }
                }
            }
            let damage = again.check().expect("check");
            assert!(damage.is_empty(), "{damage:?}");
            if last {
                break;
            }
            round += 1;
        }
    });
}

#[test]
fn a_range_that_takes_no_more_rows_becomes_chunks() {
    let db = database();
    alter(&db, |t| add_column(t, "c", SqlType::Text, Value::Null));
    assert_eq!(db.checkpoint(false).expect("checkpoint").merged_ranges, 0);
    insert(&db, &[&row(100, 0, "")[..], &[Value::Null]].concat());
    assert_eq!(db.checkpoint(false).expect("checkpoint").merged_ranges, 1);
}

#[test]
fn several_updates_of_one_transaction_are_one_in_a_run() {
    let device = Arc::new(MemoryDevice::new());
    let db = open(device.clone(), &clock()).expect("open");
    let (t, _) = create_table(&db, HistoryPolicy::Forever);
    insert(&db, &row(1, 0, "before"));
    db.checkpoint(true).expect("checkpoint");
    let txn = db.begin(TxnOptions::default()).expect("begin");
    let sets = [
        (ColumnId(1), Value::BigInt(5)),
        (ColumnId(2), Value::from("after")),
    ];
    for set in &sets {
        let statement = txn.begin_statement().expect("statement");
        let key = [Value::BigInt(1)];
        assert!(
            statement
                .point_update(&t, 0, &key, std::slice::from_ref(set))
                .expect("update")
        );
    }
    txn.commit().expect("commit");
    drop(txn);
    db.checkpoint(false).expect("checkpoint");
    drop(db);
    let db = open(device, &clock()).expect("reopen");
    assert_eq!(get(&db, 1), Some(row(1, 5, "after").to_vec()));
}

#[test]
fn a_statement_does_not_see_what_it_writes_itself() {
    let db = database();
    let t = table(&db);
    let txn = db.begin(TxnOptions::default()).expect("begin");
    txn.begin_statement()
        .expect("first")
        .point_insert(&t, &row(50, 0, ""))
        .expect("insert");
    let statement = txn.begin_statement().expect("second");
    statement.point_insert(&t, &row(51, 0, "")).expect("insert");
    let scan = statement.scan(&t, request()).expect("scan");
    let keys: Vec<i64> = scan_all(&scan).into_keys().filter(|k| *k >= 50).collect();
    assert_eq!(keys, [50], "the earlier statement's row, not its own");
}

/// The runs on the disk.
fn run_files(disk: &SimDisk) -> usize {
    let names = disk.device().list().expect("list");
    names.iter().filter(|name| name.starts_with("run-")).count()
}

#[test]
fn history_kept_for_ever_is_in_few_runs_and_stays_right() {
    let mut disk = SimDisk::new(3);
    let wall = clock();
    let mut db = open(disk.device(), &wall).expect("open");
    let (t, _) = create_table(&db, HistoryPolicy::Forever);
    for k in 0..20 {
        insert(&db, &row(k, -1, "first"));
    }
    let mut state: State = (0..20).map(|k| (k, (Some(-1), "first".into()))).collect();
    let mut moments = vec![(db.stable(), state.clone())];
    for round in 0..150i64 {
        let k = round * 7 % 20;
        wall.advance(10);
        if round % 50 == 49 {
            run(&db, |s| s.point_delete(&t, 0, &[Value::BigInt(k)])).expect("delete");
            state.remove(&k);
        } else if state.contains_key(&k) {
            set(&db, k, round);
            state.insert(k, (Some(round), "first".into()));
        }
        moments.push((db.stable(), state.clone()));
        db.checkpoint(round % 40 == 30).expect("checkpoint");
        if round % 60 == 59 {
            disk = disk.after_kill();
            db = open(disk.device(), &wall).expect("reopen");
        }
        assert!(run_files(&disk) <= 12, "{} runs", run_files(&disk));
    }
    assert!(db.check().expect("check").is_empty());
    let txn = db.begin(TxnOptions::default()).expect("begin");
    let statement = txn.begin_statement().expect("statement");
    for (ts, expected) in &moments {
        let scan = statement.scan_as_of(&t, *ts, request()).expect("as of");
        assert_eq!(&scan_all(&scan), expected, "as of {ts}");
    }
}

/// Updates `a` and `b` of the rows with these keys, in one transaction.
fn set_all(db: &Arc<Db>, keys: std::ops::Range<i64>, a: i64, text: &str) {
    let t = table(db);
    let set = [(ColumnId(1), Value::BigInt(a)), (ColumnId(2), text.into())];
    run(db, |s| {
        for k in keys {
            s.point_update(&t, 0, &[Value::BigInt(k)], &set)?;
        }
        Ok(())
    })
    .expect("update");
}

fn run_bytes(disk: &SimDisk) -> usize {
    let names = disk.device().list().expect("list");
    let runs = names.iter().filter(|name| name.starts_with("run-"));
    runs.map(|name| disk.content(name).expect("a file").len())
        .sum()
}

#[test]
fn what_expires_is_reduced_without_being_asked() {
    let disk = SimDisk::new(4);
    let wall = clock();
    let settings = Settings {
        merge_pending_records: 1,
        wal_segment_bytes: 1 << 16,
        background_maintenance: false,
        recovery_threads: 1,
        ..Settings::default()
    };
    let db = Db::open(DbOptions {
        device: disk.device(),
        clock: wall.clone(),
        settings,
    })
    .expect("open");
    create_table(&db, HistoryPolicy::For(1000));
    for k in 0..100 {
        insert(&db, &row(k, 0, ""));
    }
    db.checkpoint(true).expect("checkpoint");
    // Two columns of 100 rows in 10 versions, of which one stays.
    for a in 0..10 {
        // Nothing of a text is in the next: no version costs less because of it.
        set_all(&db, 0..100, a, &a.to_string().repeat(200));
    }
    db.checkpoint(false).expect("checkpoint");
    let bytes = run_bytes(&disk);
    wall.advance(500);
    set_all(&db, 1..2, 11, "");
    db.checkpoint(false).expect("checkpoint");
    assert!(run_bytes(&disk) >= bytes, "all may still be asked for");
    wall.advance(5000);
    set_all(&db, 1..2, 12, "");
    db.checkpoint(false).expect("checkpoint");
    let left = run_bytes(&disk);
    assert!(left < bytes / 5, "{left} bytes are left of {bytes}");
    assert!(db.check().expect("check").is_empty());
}

#[test]
fn runs_united_without_the_oldest_keep_the_order_of_their_records() {
    let disk = SimDisk::new(5);
    let wall = clock();
    let db = open(disk.device(), &wall).expect("open");
    let (t, _) = create_table(&db, HistoryPolicy::For(1000));
    for k in 0..200 {
        insert(&db, &row(k, 0, ""));
    }
    // The oldest run is large, and so alone in its level.
    set_all(&db, 0..200, 1, &"text".repeat(100));
    db.checkpoint(true).expect("checkpoint");
    for a in 2..5 {
        wall.advance(10);
        set_all(&db, 1..2, a, "small");
        db.checkpoint(true).expect("checkpoint");
    }
    assert_eq!(run_files(&disk), 4);
    // All of them expire, and the next small run is united with the other small ones.
    wall.advance(5000);
    set_all(&db, 1..2, 5, "small");
    db.checkpoint(false).expect("checkpoint");
    assert_eq!(run_files(&disk), 2);
    db.checkpoint(true).expect("checkpoint");
    let before = CommitTs(db.stable().0 - 500);
    let txn = db.begin(TxnOptions::default()).expect("begin");
    let statement = txn.begin_statement().expect("statement");
    let scan = statement.scan_as_of(&t, before, request()).expect("as of");
    assert_eq!(scan_all(&scan)[&1], (Some(4), "small".into()));
}

fn chunk_files(disk: &SimDisk) -> usize {
    let names = disk.device().list().expect("list");
    names.iter().filter(|n| n.starts_with("chunks-")).count()
}

#[test]
fn a_range_whose_rows_are_all_gone_takes_no_space_and_its_row_ids_never_come_again() {
    let disk = SimDisk::new(6);
    let wall = clock();
    let db = open(disk.device(), &wall).expect("open");
    let (t, _) = create_table(&db, HistoryPolicy::For(1000));
    for k in 0..20 {
        insert(&db, &row(k, 0, "first"));
    }
    db.checkpoint(true).expect("checkpoint");
    let full = db.stable();
    for k in 0..20 {
        set(&db, k, 1);
        run(&db, |s| s.point_delete(&t, 0, &[Value::BigInt(k)])).expect("delete");
    }
    db.checkpoint(true).expect("checkpoint");
    let txn = db.begin(TxnOptions::default()).expect("begin");
    let statement = txn.begin_statement().expect("statement");
    let scan = statement.scan_as_of(&t, full, request()).expect("as of");
    drop(statement);
    let files = chunk_files(&disk);
    wall.advance(5000);
    insert(&db, &row(100, 0, "second"));
    // The scan's snapshot still sees the rows.
    db.checkpoint(false).expect("checkpoint");
    assert_eq!(scan_all(&scan).len(), 20);
    assert_eq!(chunk_files(&disk), files);
    drop((scan, txn));
    insert(&db, &row(101, 0, "second"));
    let report = db.checkpoint(false).expect("checkpoint");
    assert_eq!((report.merged_ranges, chunk_files(&disk)), (1, 0));
    assert_eq!(db.checkpoint(true).expect("checkpoint").merged_ranges, 1);
    let mut expected: State = [100, 101]
        .map(|k| (k, (Some(0), "second".into())))
        .into_iter()
        .collect();
    for db in [db, open(disk.after_kill().device(), &wall).expect("reopen")] {
        for k in 0..20 {
            assert_eq!(get(&db, k), None);
            insert(&db, &row(k, 2, "again"));
            expected.insert(k, (Some(2), "again".into()));
        }
        let found = run(&db, |s| s.scan(&t, request()).map(|scan| scan_all(&scan)));
        assert_eq!(found.expect("scan"), expected);
        assert_eq!(get(&db, 3), Some(row(3, 2, "again").to_vec()));
        assert!(db.check().expect("check").is_empty());
        let counters = db.counters();
        assert!(counters.contains(&("key_entries", 22)), "{counters:?}");
        db.checkpoint(true).expect("checkpoint");
        assert!(db.check().expect("check").is_empty()); // which reads every chunk
        let statistics = db.statistics(&t);
        assert_eq!(statistics.rows, 22);
        assert_eq!(statistics.columns[0].max, Some(Value::BigInt(101)));
    }
}

/// Estimates of the columns' bounds are there after an opening, before anything is read, and beside
/// changes that no chunk has.
#[test]
fn bounds_of_columns_survive_an_opening_and_changes() {
    let mut world = World::new(HistoryPolicy::Forever);
    for k in [5, -3, 40] {
        insert(&world.db, &row(k, k * 10, "text"));
    }
    let bounds = |db: &Arc<Db>| {
        let columns = db.statistics(&table(db)).columns;
        [0, 1, 2].map(|at| (columns[at].min.clone(), columns[at].max.clone()))
    };
    let integers = |least, most| (Some(Value::BigInt(least)), Some(Value::BigInt(most)));
    assert_eq!(
        bounds(&world.db),
        [(None, None), (None, None), (None, None)]
    );
    world.db.checkpoint(true).expect("checkpoint");
    let text = Some(Value::from("text"));
    let all = [integers(-3, 40), integers(-30, 400), (text.clone(), text)];
    assert_eq!(bounds(&world.db), all);
    let unread = [integers(-3, 40), integers(-30, 400), (None, None)];
    for _ in 0..2 {
        world = world.reopen();
        assert_eq!(bounds(&world.db), unread, "text is not kept");
    }
    set(&world.db, 5, 1000);
    insert(&world.db, &row(90, 0, "text"));
    assert_eq!(bounds(&world.db), unread, "no chunk has the changes");
    world.db.checkpoint(true).expect("checkpoint");
    let world = world.reopen();
    let [k, a, _] = bounds(&world.db);
    assert_eq!([k, a], [integers(-3, 90), integers(-30, 1000)]);
}
