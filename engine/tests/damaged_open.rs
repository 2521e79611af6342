//! Opening a database whose files are damaged: a table that cannot be restored is closed off, an
//! index that cannot be built is unusable, and all other tables go on. Nothing is lost: with the
//! file back, the next opening has everything.

mod common;

use common::counting_device::CountingDevice;
use common::*;
use std::sync::Arc;
use strandline_base::{Error, ManualClock};
use strandline_device::{Device, MemoryDevice};
use strandline_engine::catalog::{HistoryPolicy, TableDef};
use strandline_engine::*;
use strandline_sim::SimDisk;

const ROWS: i64 = 200;
/// Enough for a range of their own, which the log names.
const LOADED: i64 = 4_096;
const UNRESTORED: &str = "tables_unrestored";
const UNUSABLE: &str = "indexes_unusable";

fn open_small(disk: &SimDisk, clock: &Arc<ManualClock>) -> Arc<Db> {
    open_on(disk.device(), clock)
}

fn open_on(device: Arc<dyn Device>, clock: &Arc<ManualClock>) -> Arc<Db> {
    let settings = Settings {
        wal_segment_bytes: 1 << 16,
        background_maintenance: false,
        recovery_threads: 2,
        ..Settings::default()
    };
    let options = DbOptions {
        device,
        clock: clock.clone(),
        settings,
    };
    Db::open(options).expect("one table's damage does not keep the others from opening")
}

/// Tables `t` and `u` of the same rows, merged into chunks.
fn two_tables(disk: &SimDisk, clock: &Arc<ManualClock>, history: HistoryPolicy) -> Arc<Db> {
    let db = open_small(disk, clock);
    fill_two_tables(&db, history);
    db
}

fn fill_two_tables(db: &Arc<Db>, history: HistoryPolicy) {
    for name in ["t", "u"] {
        create(db, name, history);
        insert_rows(db, name, 0..ROWS).expect("insert");
    }
    db.checkpoint(true).expect("checkpoint");
}

fn create(db: &Arc<Db>, name: &str, history: HistoryPolicy) {
    change(db, &|catalog| {
        let columns = vec![
            column(0, "k", SqlType::BigInt, true),
            column(1, "a", SqlType::BigInt, false),
            column(2, "b", SqlType::Text, false),
        ];
        let mut table = definition(catalog, columns, history);
        table.name = name.into();
        catalog.put_table(table);
    })
    .expect("create");
}

fn change(db: &Arc<Db>, edit: &dyn Fn(&mut catalog::Catalog)) -> Result<()> {
    let txn = db.begin(TxnOptions::default()).expect("begin");
    txn.change_catalog(&mut |catalog| {
        edit(catalog);
        Ok(())
    })?;
    txn.commit().map(|_| ())
}

fn named(db: &Db, name: &str) -> Arc<TableDef> {
    db.catalog().table("public", name).expect("a table").clone()
}

fn insert_rows(db: &Arc<Db>, name: &str, keys: std::ops::Range<i64>) -> Result<()> {
    let rows: Vec<_> = keys.map(|k| (k, Some(k), format!("row {k}"))).collect();
    let t = named(db, name);
    run(db, |s| {
        s.insert(&t, &batch(&rows), OnInvisibleDuplicate::Violation)
    })
    .map(|_| ())
}

fn set(db: &Arc<Db>, name: &str, k: i64, text: &str) -> Result<()> {
    let (t, set) = (named(db, name), [(ColumnId(2), Value::from(text))]);
    let found = run(db, |s| s.point_update(&t, 0, &[Value::BigInt(k)], &set))?;
    assert!(found, "{name} has row {k}");
    Ok(())
}

fn text(db: &Arc<Db>, name: &str, k: i64) -> Result<Value> {
    let (t, mut out) = (named(db, name), Vec::new());
    run(db, |s| {
        s.point_get(&t, 0, &[Value::BigInt(k)], &[ColumnId(2)], &mut out)
    })?;
    Ok(out.remove(0))
}

/// The number of rows that a scan of the texts finds.
fn scanned(db: &Arc<Db>, name: &str) -> Result<usize> {
    let t = named(db, name);
    run(db, |s| {
        let request = ScanRequest {
            columns: vec![ColumnId(2)],
            ..Default::default()
        };
        let scan = s.scan(&t, request)?;
        let mut rows = 0;
        for unit in 0..scan.units() {
            rows += scan
                .read_unit(unit)?
                .iter()
                .map(|b| b.num_rows())
                .sum::<usize>();
        }
        Ok(rows)
    })
}

fn counter(db: &Db, name: &str) -> (u64, String) {
    let counters = db.detailed_counters();
    let found = counters.into_iter().find(|(n, ..)| *n == name);
    let (_, value, detail) = found.expect("a counter");
    (value, detail)
}

fn files(disk: &SimDisk, prefix: &str) -> Vec<String> {
    let mut names = Device::list(&*disk.device()).expect("list");
    names.retain(|name| name.starts_with(prefix));
    names.sort();
    names
}

/// Flips a bit of a file whose name begins with `prefix`, so that `is_wanted` holds of the opened
/// database; the file and the place.
fn damage(
    disk: &SimDisk,
    clock: &Arc<ManualClock>,
    prefix: &str,
    is_wanted: impl Fn(&Arc<Db>) -> bool,
) -> (String, u64) {
    for name in files(disk, prefix) {
        let bytes = disk.content(&name).expect("a file").len() as u64;
        for at in (64..bytes).step_by(97) {
            let damaged = disk.after_kill();
            damaged.flip_bits(&name, at, 0x10);
            if is_wanted(&open_small(&damaged, clock)) {
                disk.flip_bits(&name, at, 0x10);
                return (name, at);
            }
        }
    }
    panic!("no byte of {prefix} has the effect")
}

/// Table `u` is read, written, and checkpointed.
fn works(db: &Arc<Db>, name: &str) {
    for round in 0..3 {
        for k in 0..20 {
            set(db, name, k, &format!("round {round}")).expect("update");
        }
        insert_rows(db, name, 1_000 + round..1_001 + round).expect("insert");
        let _ = db.checkpoint(true);
    }
    assert_eq!(text(db, name, 3).expect("read"), "round 2".into());
    assert_eq!(scanned(db, name).expect("scan"), ROWS as usize + 3);
}

fn is_refused<R: std::fmt::Debug>(outcome: Result<R>, words: &[&str]) -> Error {
    let error = outcome.expect_err("refused");
    assert_eq!(error.sqlstate(), SqlState::DATA_CORRUPTED, "{error}");
    for word in words {
        assert!(error.message().contains(word), "{word}: {error}");
    }
    assert!(error.hint().is_some(), "{error}");
    error
}

#[test]
fn a_damaged_key_column_leaves_its_table_to_scans() {
    let (disk, clock) = (SimDisk::new(1), clock());
    two_tables(&disk, &clock, HistoryPolicy::None)
        .close()
        .expect("close");
    let is_key_of_t =
        |db: &Arc<Db>| counter(db, UNUSABLE).1.contains("public.t") && scanned(db, "t").is_ok();
    let (file, at) = damage(&disk, &clock, "chunks-", is_key_of_t);
    let db = open_small(&disk, &clock);
    works(&db, "u");
    let index = "the index of constraint \"t_pkey\" could not be built";
    let words = [index, file.as_str()];
    is_refused(text(&db, "t", 0), &words);
    is_refused(insert_rows(&db, "t", 5_000..5_001), &words);
    is_refused(set(&db, "t", 0, "x"), &words);
    assert_eq!(scanned(&db, "t").expect("scan"), ROWS as usize);
    let (count, detail) = counter(&db, UNUSABLE);
    assert_eq!(count, 1);
    assert!(
        detail.contains("public.t") && detail.contains(&file),
        "{detail}"
    );
    db.check_health().expect("the database serves");
    assert!(db.failing_work()[0].contains(&file));
    assert!(
        db.check()
            .expect("check")
            .iter()
            .any(|line| line.contains(&file))
    );
    // Without the constraint the table takes rows again.
    change(&db, &|catalog| {
        let mut table = TableDef::clone(catalog.table("public", "t").expect("table"));
        table.keys.clear();
        catalog.put_table(table);
    })
    .expect("a key is dropped");
    insert_rows(&db, "t", 5_000..5_001).expect("insert");
    assert_eq!(scanned(&db, "t").expect("scan"), ROWS as usize + 1);
    drop(db);
    // The last change is in the log only.
    disk.flip_bits(&file, at, 0x10);
    let db = open_small(&disk, &clock);
    assert_eq!(counter(&db, UNUSABLE), (0, String::new()));
    assert_eq!(scanned(&db, "t").expect("scan"), ROWS as usize + 1);
}

/// A database where `t` has changes in a run and later ones, a bulk load among them, in the log.
fn with_changes(disk: &SimDisk, clock: &Arc<ManualClock>, history: HistoryPolicy) {
    let db = two_tables(disk, clock, history);
    for name in ["t", "u"] {
        set(&db, name, 1, "in a run").expect("update");
    }
    db.checkpoint(false).expect("checkpoint");
    assert_eq!(files(disk, "run-").len(), 2, "a run each");
    set(&db, "t", 2, "in the log").expect("update");
    let t = named(&db, "t");
    run(&db, |s| {
        let rows: Vec<_> = (7_000..7_000 + LOADED)
            .map(|k| (k, Some(k), "loaded".into()))
            .collect();
        let mut load = s.bulk_insert(&t)?;
        load.append(&batch(&rows))?;
        load.finish()
    })
    .expect("load");
}

fn has_everything(db: &Arc<Db>) {
    has_rows(db);
    assert!(db.check().expect("check").is_empty());
}

fn has_rows(db: &Arc<Db>) {
    assert_eq!(text(db, "t", 1).expect("read"), "in a run".into());
    assert_eq!(text(db, "t", 2).expect("read"), "in the log".into());
    assert_eq!(text(db, "t", 7_050).expect("read"), "loaded".into());
    assert_eq!(scanned(db, "t").expect("scan"), (ROWS + LOADED) as usize);
}

#[test]
fn a_table_whose_run_is_damaged_is_closed_off() {
    let (disk, clock) = (SimDisk::new(1), clock());
    with_changes(&disk, &clock, HistoryPolicy::None);
    let disk = disk.after_kill();
    let is_of_t = |db: &Arc<Db>| counter(db, UNRESTORED).1.contains("public.t");
    let (file, at) = damage(&disk, &clock, "run-", is_of_t);
    let words = ["public.t could not be restored", file.as_str()];
    for _ in 0..3 {
        let db = open_small(&disk, &clock);
        assert_eq!(counter(&db, UNRESTORED).0, 1);
        is_refused(text(&db, "t", 50), &words);
        is_refused(scanned(&db, "t"), &words);
        is_refused(set(&db, "t", 50, "x"), &words);
        is_refused(insert_rows(&db, "t", 5_000..5_001), &words);
        set(&db, "u", 1, "still written").expect("update");
        db.checkpoint(true)
            .expect("what t needs of the log is kept");
        assert_eq!(files(&disk, "kept-").len(), 1);
        db.check_health().expect("the database serves");
        assert!(db.failing_work()[0].contains(&file));
        assert!(
            db.check()
                .expect("check")
                .iter()
                .any(|line| line.contains(&file))
        );
        let inspection = format!("{:?}", db.inspect().expect("inspect"));
        assert!(inspection.contains("Kept logs"), "{inspection}");
        let target = Arc::new(MemoryDevice::new()) as Arc<dyn Device>;
        is_refused(db.backup(&target, &|_| true), &["a backup needs", &file]);
        let _ = db.close();
    }
    works(&open_small(&disk.after_kill(), &clock), "u");
    disk.flip_bits(&file, at, 0x10);
    let db = open_small(&disk, &clock);
    has_everything(&db);
    db.checkpoint(true).expect("checkpoint");
    db.close().expect("close");
    assert_eq!(files(&disk, "kept-").len(), 0);
    has_everything(&open_small(&disk, &clock));
}

/// The disk after `t` has lost a run: the run's name, its content, and the disk.
fn without_run() -> (SimDisk, Arc<ManualClock>, (String, u64)) {
    let (disk, clock) = (SimDisk::new(1), clock());
    with_changes(&disk, &clock, HistoryPolicy::None);
    let disk = disk.after_kill();
    let is_of_t = |db: &Arc<Db>| counter(db, UNRESTORED).1.contains("public.t");
    let place = damage(&disk, &clock, "run-", is_of_t);
    (disk, clock, place)
}

/// Many segments of the log are filled by `u`.
fn fill_log(db: &Arc<Db>, rounds: u32) {
    fill_log_by(db, "u", rounds);
}

fn fill_log_by(db: &Arc<Db>, name: &str, rounds: u32) {
    for round in 0..rounds {
        for k in 0..ROWS {
            set(db, name, k, &format!("{round} of {k} {}", "x".repeat(300))).expect("update");
        }
    }
}

/// Lets the n-th operation of a kind fail.
type Fault = fn(&SimDisk, u64);

/// The first checkpoint after the opening, with a crash, or with a failure, at each of its
/// operations: nothing of `t` is lost, wherever that happens, and the next checkpoint does the
/// work.
#[test]
fn a_log_is_kept_or_the_kept_log_is_whole() {
    let (ready, clock, (file, at)) = without_run();
    fill_log(&open_small(&ready, &clock), 5);
    let faults: [(&str, Fault); 4] = [
        ("crash", |disk, n| disk.crash_at(disk.operations() + n)),
        ("write", |disk, n| disk.fail_write(n)),
        ("sync", |disk, n| disk.fail_sync(n)),
        ("operation", |disk, n| disk.fail_operation(n)),
    ];
    let mut kept = 0;
    for (kind, fault) in faults {
        for n in 1.. {
            let disk = ready.after_kill();
            let db = open_small(&disk, &clock);
            let count = |disk: &SimDisk| match kind {
                "write" => disk.writes(),
                "sync" => disk.syncs(),
                _ => disk.operations(),
            };
            let before = count(&disk);
            fault(&disk, n);
            let outcome = db.checkpoint(false);
            if count(&disk) < before + n {
                outcome.expect("nothing has failed");
                assert!(files(&disk, "wal-").len() <= 4, "the log is cut");
                break;
            }
            drop(db);
            for seed in 0..if kind == "crash" { 2 } else { 1 } {
                let what = format!("{kind} {n}, crash {seed}: {outcome:?}");
                let crashed = disk.after_crash(seed);
                kept += files(&crashed, "kept-").len();
                let mended = crashed.after_kill();
                mended.flip_bits(&file, at, 0x10);
                has_rows(&open_small(&mended, &clock));

                let db = open_small(&crashed, &clock);
                text(&db, "t", 1).expect_err(&what);
                db.checkpoint(false).expect(&what);
                assert!(files(&crashed, "wal-").len() <= 4, "{what}");
                assert_eq!(files(&crashed, "kept-").len(), 1, "{what}");
                drop(db);
                crashed.flip_bits(&file, at, 0x10);
                let db = open_small(&crashed, &clock);
                has_rows(&db);
                db.checkpoint(true).expect(&what);
                assert_eq!(files(&crashed, "kept-").len(), 0, "{what}");
                drop(db);
                has_rows(&open_small(&crashed, &clock));
            }
        }
    }
    assert!(kept > 0, "some faults come after the file was made");
}

/// As long as the part of the log cannot be moved, the log is kept, and that is told.
#[test]
fn a_log_that_cannot_be_moved_stays_and_is_told() {
    let (disk, clock, (file, at)) = without_run();
    let db = open_small(&disk, &clock);
    disk.fail_write(1);
    let error = db.checkpoint(false).expect_err("the write failed");
    assert_eq!(error.sqlstate(), SqlState::IO_ERROR, "{error}");
    let (count, detail) = counter(&db, "tables_behind");
    assert_eq!(count, 1);
    assert!(detail.contains("moving its part of the log"), "{detail}");
    let health = db.check_health().expect_err("the log grows");
    assert!(
        health.message().contains("the log cannot be cut"),
        "{health}"
    );
    fill_log(&db, 10);
    db.checkpoint(false).expect_err("not tried again at once");
    assert!(files(&disk, "wal-").len() > 8, "the log stays");
    assert!(files(&disk, "kept-").is_empty());
    db.checkpoint(true).expect("tried again");
    assert_eq!(counter(&db, "tables_behind").0, 0);
    db.check_health().expect("well");
    assert!(files(&disk, "wal-").len() <= 4, "the log is cut");
    drop(db);
    disk.flip_bits(&file, at, 0x10);
    has_everything(&open_small(&disk, &clock));
}

/// A table that was restored from its kept log is written, and closed off again before a
/// checkpoint: the second part of its log is kept beside the first.
#[test]
fn a_kept_log_grows_by_what_was_written_between_two_closures() {
    let (disk, clock, (file, at)) = without_run();
    for (round, text) in ["first", "second", "third"].into_iter().enumerate() {
        let db = open_small(&disk, &clock);
        db.checkpoint(false).expect("checkpoint");
        assert_eq!(files(&disk, "kept-").len(), 1 + round);
        drop(db);
        disk.flip_bits(&file, at, 0x10);
        let db = open_small(&disk, &clock);
        set(&db, "t", 3 + round as i64, text).expect("update");
        drop(db);
        disk.flip_bits(&file, at, 0x10);
    }
    disk.flip_bits(&file, at, 0x10);
    for _ in 0..2 {
        let db = open_small(&disk, &clock);
        has_everything(&db);
        for (k, expected) in [(3, "first"), (4, "second"), (5, "third")] {
            assert_eq!(text(&db, "t", k).expect("read"), expected.into());
        }
        db.checkpoint(true).expect("checkpoint");
    }
    assert_eq!(files(&disk, "kept-").len(), 0);
}

/// A table's part of the log is copied once, however large it is: later checkpoints, also after
/// another opening, neither write it again nor read the log for it.
#[test]
fn a_large_kept_log_is_written_once() {
    let (device, clock) = (Arc::new(CountingDevice::default()), clock());
    let db = open_on(device.clone(), &clock);
    fill_two_tables(&db, HistoryPolicy::None);
    for name in ["t", "u"] {
        set(&db, name, 1, "in a run").expect("update");
    }
    db.checkpoint(false).expect("checkpoint");
    fill_log_by(&db, "t", 20);
    drop(db);
    let mut runs = device.list().expect("list");
    runs.retain(|name| name.starts_with("run-"));
    let run = runs.into_iter().min().expect("the run of t");
    let content = device.content(&run);
    device.remove(&run).expect("remove");

    let db = open_on(device.clone(), &clock);
    text(&db, "t", 1).expect_err("closed off");
    db.checkpoint(false).expect("the log is moved");
    let kept = device.written("kept");
    assert!(kept > 1 << 20, "{kept} bytes of t's log");
    drop(db);
    for opening in 0..3 {
        let db = open_on(device.clone(), &clock);
        fill_log(&db, 1);
        db.checkpoint(false).expect("the first after an opening");
        let read = device.read("wal");
        for effort in [false, true, false] {
            fill_log(&db, 1);
            db.checkpoint(effort).expect("checkpoint");
        }
        assert_eq!(device.written("kept"), kept, "opening {opening}");
        assert_eq!(device.read("wal"), read, "opening {opening}");
        let log = device.stored("wal");
        assert!(log < kept, "the log has {log} bytes in opening {opening}");
    }
    let file = device.create(&run).expect("create");
    file.write_all_at(&content, 0).expect("write");
    let db = open_on(device.clone(), &clock);
    let last = text(&db, "t", 1).expect("restored");
    assert_eq!(last, format!("19 of 1 {}", "x".repeat(300)).as_str().into());
    assert_eq!(scanned(&db, "t").expect("scan"), ROWS as usize);
    db.checkpoint(true).expect("checkpoint");
    assert_eq!(device.stored("kept"), 0);
}

/// Damage to a kept log closes the table off as its run did; put back, it has everything. Files
/// that only it names stay.
#[test]
fn a_damaged_kept_log_is_told_and_can_be_put_back() {
    let (disk, clock, (file, at)) = without_run();
    let db = open_small(&disk, &clock);
    db.checkpoint(false).expect("checkpoint");
    drop(db);
    disk.flip_bits(&file, at, 0x10);
    let kept = files(&disk, "kept-").remove(0);
    let content = disk.content(&kept).expect("a file");
    for at in [8, 20, 30, 70, 90, content.len() as u64 / 2] {
        disk.flip_bits(&kept, at, 0x10);
        let db = open_small(&disk, &clock);
        let error = text(&db, "t", 1).expect_err("closed off");
        assert!(error.message().contains(&kept), "{error}");
        set(&db, "u", 1, "still written").expect("update");
        db.checkpoint(true).expect("the log is cut");
        let found = db.check().expect("check");
        assert!(found.iter().any(|line| line.contains(&kept)), "{found:?}");
        drop(db);
        disk.flip_bits(&kept, at, 0x10);
    }
    let db = open_small(&disk, &clock);
    has_everything(&db);
}

#[test]
fn a_missing_run_closes_its_table_off_and_dropping_it_ends_that() {
    for history in [HistoryPolicy::None, HistoryPolicy::Forever] {
        drop_a_table_without_its_run(history);
    }
}

fn drop_a_table_without_its_run(history: HistoryPolicy) {
    let (disk, clock) = (SimDisk::new(1), clock());
    with_changes(&disk, &clock, history);
    let disk = disk.after_kill();
    Device::remove(&*disk.device(), &files(&disk, "run-")[0]).expect("remove");
    let db = open_small(&disk, &clock);
    assert_eq!(counter(&db, UNRESTORED).0, 1);
    text(&db, "t", 1).expect_err("refused");
    // Its part of the log is kept, and the log is cut.
    for _ in 0..3 {
        fill_log(&db, 10);
        db.checkpoint(true).expect("checkpoint");
        assert!(files(&disk, "wal-").len() <= 4, "the log is cut");
        assert_eq!(files(&disk, "kept-").len(), 1);
    }
    change(&db, &|catalog| {
        let mut table = TableDef::clone(catalog.table("public", "t").expect("table"));
        table.name = "lost".into();
        catalog.put_table(table);
    })
    .expect("a change of the definition alone");
    change(&db, &|catalog| {
        let id = catalog.table("public", "lost").expect("table").id;
        catalog.tables.remove(&id);
    })
    .expect("drop");
    db.checkpoint(true).expect("nothing is behind");
    db.checkpoint(true).expect("the log is cut");
    assert_eq!(files(&disk, "kept-").len(), 0);
    assert_eq!(counter(&db, UNRESTORED), (0, String::new()));
    db.check_health().expect("well");
    assert!(files(&disk, "wal-").len() <= 4, "the log is cut");
    db.close().expect("close");
    let db = open_small(&disk, &clock);
    works(&db, "u");
}
