//! One table's fault stays with it: a range that cannot be merged, runs that cannot be united and a
//! table whose records cannot be written are set aside, and all other work goes on.

mod common;

use common::*;
use std::sync::Arc;
use std::time::Duration;
use strandline_base::ManualClock;
use strandline_engine::catalog::{HistoryPolicy, TableDef};
use strandline_engine::*;
use strandline_sim::SimDisk;

/// Rows of each table where one block is damaged: two blocks and a bit.
const ROWS: i64 = 9_000;
/// Longer than the longest pause between two attempts.
const LONG: Duration = Duration::from_secs(3_600);

struct Tables {
    disk: SimDisk,
    clock: Arc<ManualClock>,
    db: Arc<Db>,
}

impl Tables {
    /// Tables `t` and `u`, of the same columns and rows, in chunks; opened anew, so that nothing is
    /// cached but the keys.
    fn new(settings: Settings) -> Self {
        Self::with_rows(settings, 200)
    }

    fn with_rows(settings: Settings, rows: i64) -> Self {
        let (disk, clock) = (SimDisk::new(1), clock());
        let db = open_with(&disk, &clock, &settings);
        for name in ["t", "u"] {
            create(&db, name);
            fill(&db, name, rows);
        }
        db.checkpoint(true).expect("checkpoint");
        db.close().expect("close");
        let db = open_with(&disk, &clock, &settings);
        Self { disk, clock, db }
    }

    fn set(&self, name: &str, k: i64, text: &str) -> Result<()> {
        let t = named(&self.db, name);
        let set = [(ColumnId(2), Value::from(text))];
        let found = run(&self.db, |s| {
            s.point_update(&t, 0, &[Value::BigInt(k)], &set)
        });
        found.map(|found| assert!(found, "{name} has row {k}"))
    }

    fn text(db: &Arc<Db>, name: &str, k: i64) -> Result<Value> {
        let (t, mut out) = (named(db, name), Vec::new());
        let columns = [ColumnId(2)];
        run(db, |s| {
            s.point_get(&t, 0, &[Value::BigInt(k)], &columns, &mut out)
        })?;
        Ok(out.remove(0))
    }

    /// The chunk files of table `name`.
    fn chunk_files(&self, name: &str) -> Vec<String> {
        let number = self
            .db
            .catalog()
            .table("public", name)
            .expect("table")
            .storage;
        // The tables are merged one after the other, in the order of their storages.
        let mut files = self.files("chunks-");
        files.sort();
        assert_eq!(files.len(), 2, "one per table");
        vec![files.remove(usize::try_from(number.0).expect("small") - 1)]
    }

    fn files(&self, prefix: &str) -> Vec<String> {
        let names = strandline_device::Device::list(&*self.disk.device()).expect("list");
        names
            .into_iter()
            .filter(|n| n.starts_with(prefix))
            .collect()
    }

    fn advance(&self, by: Duration) {
        self.clock.advance(by.as_micros() as u64);
    }
}

fn open_with(disk: &SimDisk, clock: &Arc<ManualClock>, settings: &Settings) -> Arc<Db> {
    let settings = Settings {
        wal_segment_bytes: 1 << 16,
        background_maintenance: false,
        recovery_threads: 1,
        merge_threads: 2,
        ..settings.clone()
    };
    Db::open(DbOptions {
        device: disk.device(),
        clock: clock.clone(),
        settings,
    })
    .expect("open")
}

fn create(db: &Arc<Db>, name: &str) {
    let txn = db.begin(TxnOptions::default()).expect("begin");
    txn.change_catalog(&mut |catalog| {
        let columns = vec![
            column(0, "k", SqlType::BigInt, true),
            column(1, "a", SqlType::BigInt, false),
            column(2, "b", SqlType::Text, false),
        ];
        let mut table = definition(catalog, columns, HistoryPolicy::None);
        table.name = name.into();
        catalog.put_table(table);
        Ok(())
    })
    .expect("create");
    txn.commit().expect("commit");
}

fn named(db: &Db, name: &str) -> Arc<TableDef> {
    db.catalog().table("public", name).expect("a table").clone()
}

fn text_of(k: i64) -> String {
    format!(
        "text {} of row {k}",
        k.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64)
    )
}

fn fill(db: &Arc<Db>, name: &str, rows: i64) {
    let rows: Vec<_> = (0..rows).map(|k| (k, Some(k), text_of(k))).collect();
    let t = named(db, name);
    run(db, |s| {
        s.insert(&t, &batch(&rows), OnInvisibleDuplicate::Violation)
    })
    .expect("fill");
}

fn counter(db: &Db, name: &str) -> (u64, String) {
    let counters = db.detailed_counters();
    let found = counters.into_iter().find(|(n, ..)| *n == name);
    let (_, value, detail) = found.expect("a counter");
    (value, detail)
}

fn log_files(tables: &Tables) -> usize {
    tables.files("wal-").len()
}

/// Flips a bit that the last row's text needs and the first rows' do not; the file.
fn damage_last_block(tables: &Tables) -> String {
    let name = tables.chunk_files("t").remove(0);
    let bytes = tables.disk.content(&name).expect("a file").len() as u64;
    for at in (64..bytes).step_by(1_009) {
        let damaged = tables.disk.after_kill();
        damaged.flip_bits(&name, at, 0x10);
        let Ok(db) = open(damaged.device(), &tables.clock) else {
            continue;
        };
        let is_found = Tables::text(&db, "t", ROWS - 1).is_err();
        if is_found && Tables::text(&db, "t", 0).is_ok() {
            tables.disk.flip_bits(&name, at, 0x10);
            return name;
        }
    }
    panic!("no byte of {name} belongs to the last block only");
}

#[test]
fn a_damaged_block_stays_with_its_range() {
    let tables = Tables::with_rows(Settings::default(), ROWS);
    let db = &tables.db;
    let file = damage_last_block(&tables);
    for round in 0..40 {
        for k in 0..50 {
            tables
                .set(
                    "t",
                    k,
                    &format!("{round} of t, long enough to fill the log"),
                )
                .expect("t");
            tables
                .set(
                    "u",
                    k,
                    &format!("{round} of u, long enough to fill the log"),
                )
                .expect("u");
        }
        let report = db.checkpoint(true).expect("goes on");
        assert_eq!(report.merged_ranges, 1, "that of u");
        assert!(report.run_records >= 100, "records of both go to runs");
        assert!(log_files(&tables) <= 4, "the log is cut");
    }
    let (count, detail) = counter(db, "ranges_set_aside");
    assert_eq!(count, 1);
    assert!(
        detail.contains("public.t") && detail.contains("range 0"),
        "{detail}"
    );
    assert!(
        detail.contains(&file) && detail.contains("offset"),
        "{detail}"
    );
    assert!(detail.contains("checksum"), "{detail}");
    assert_eq!(counter(db, "tables_behind").0, 0);
    db.check_health().expect("the database serves");
    // What was written is there after a crash.
    let again = open(tables.disk.after_crash(0).device(), &tables.clock).expect("reopen");
    for k in 0..50 {
        for name in ["t", "u"] {
            let expected = format!("39 of {name}, long enough to fill the log");
            assert_eq!(
                Tables::text(&again, name, k).expect("read"),
                expected.as_str().into()
            );
        }
    }
}

#[test]
fn a_file_that_cannot_be_read_for_a_time_is_merged_later() {
    let tables = Tables::new(Settings::default());
    let db = &tables.db;
    tables.set("t", 1, "one").expect("t");
    tables.set("u", 1, "one").expect("u");
    let file = tables.chunk_files("t").remove(0);
    tables.disk.fail_reads(&file);
    assert_eq!(db.checkpoint(true).expect("goes on").merged_ranges, 1);
    assert_eq!(counter(db, "ranges_set_aside").0, 1);
    tables.disk.mend_reads();
    tables.advance(Duration::from_millis(900));
    assert!(!db.merge_due(false).expect("looks"), "a pause is on");
    assert_eq!(counter(db, "ranges_set_aside").0, 1);
    tables.advance(Duration::from_millis(100));
    assert!(db.merge_due(false).expect("works"), "the pause is over");
    assert_eq!(counter(db, "ranges_set_aside"), (0, String::new()));
    assert_eq!(Tables::text(db, "t", 1).expect("read"), "one".into());
    assert!(db.check().expect("check").is_empty());
}

#[test]
fn pauses_grow_while_the_cause_stays() {
    let tables = Tables::new(Settings::default());
    tables.set("t", 1, "one").expect("t");
    tables.disk.fail_reads(&tables.chunk_files("t")[0]);
    tables.db.checkpoint(true).expect("goes on");
    let mut attempts = 0;
    for _ in 0..600 {
        tables.advance(Duration::from_secs(1));
        attempts += u64::from(tables.db.merge_due(false).expect("looks"));
    }
    // After 1, 2, 4, ... seconds.
    assert!(
        (8..=10).contains(&attempts),
        "{attempts} attempts in 10 minutes"
    );
}

#[test]
fn runs_that_cannot_be_read_are_left_as_they_are() {
    let tables = Tables::new(Settings::default());
    let db = &tables.db;
    for (round, text) in ["one", "two", "three"].iter().enumerate() {
        tables.set("t", 5, text).expect("t");
        tables.set("u", 5, text).expect("u");
        if round < 2 {
            db.checkpoint(false).expect("checkpoint");
        }
    }
    let newest = tables.files("run-").into_iter().min().expect("a run");
    tables.disk.fail_reads(&newest);
    // What has been superseded by now expires.
    tables.advance(Duration::from_secs(1));
    db.checkpoint(true).expect("goes on");
    let (count, detail) = counter(db, "unions_set_aside");
    assert_eq!(count, 1, "{detail}");
    assert!(
        detail.contains("public.t") && detail.contains(&newest),
        "{detail}"
    );
    tables.disk.mend_reads();
    tables.advance(LONG);
    db.checkpoint(true).expect("checkpoint");
    assert_eq!(counter(db, "unions_set_aside").0, 0);
    assert_eq!(Tables::text(db, "t", 5).expect("read"), "three".into());
    assert!(db.check().expect("check").is_empty());
}

/// Every device operation of a checkpoint fails once. Whatever that concerns, no commit is lost,
/// no file is left over, and the next checkpoint does what this one could not.
#[test]
fn whatever_operation_of_a_checkpoint_fails_nothing_is_lost() {
    let settings = Settings::default();
    let tables = Tables::new(settings.clone());
    for name in ["t", "u"] {
        tables.set(name, 3, "new").expect("update");
    }
    let mut behind = 0;
    let mut refused = 0;
    for n in 1.. {
        let disk = tables.disk.after_kill();
        let db = open_with(&disk, &tables.clock, &settings);
        disk.fail_operation(n);
        let before = disk.operations();
        let outcome = db.checkpoint(true);
        if disk.operations() - before < n {
            outcome.expect("nothing has failed");
            break;
        }
        for name in ["t", "u"] {
            let text = Tables::text(&db, name, 3).expect("read");
            assert_eq!(text, "new".into(), "operation {n}");
        }
        let is_behind = counter(&db, "tables_behind").0 > 0;
        let is_refused = db.begin(TxnOptions::default()).is_ok() && refuses_writes(&db);
        behind += u32::from(is_behind);
        refused += u32::from(is_refused);
        assert_eq!(
            db.check_health().is_err(),
            outcome.is_err(),
            "operation {n}: {outcome:?}"
        );
        for seed in [0, 1, 2] {
            let again = open(disk.after_crash(seed).device(), &tables.clock).expect("reopen");
            for name in ["t", "u"] {
                let text = Tables::text(&again, name, 3).expect("read");
                assert_eq!(text, "new".into(), "operation {n}, crash {seed}");
            }
            assert!(again.check().expect("check").is_empty(), "operation {n}");
        }
        if is_refused {
            continue;
        }
        db.checkpoint(true).expect("the next one works");
        db.check_health().expect("all is well again");
        let files = data_files(&disk);
        drop(db);
        let db = open_with(&disk, &tables.clock, &settings);
        let kept = data_files(&disk);
        assert!(
            kept.iter().all(|name| files.contains(name)),
            "operation {n}"
        );
        // A checkpoint that succeeds although an operation failed could not remove a file: that one
        // is left to the next open.
        let left = files.len() - kept.len();
        let may_be_left = usize::from(outcome.is_ok());
        assert!(
            left <= may_be_left,
            "operation {n}: files that nobody needs: {files:?}"
        );
        assert!(db.check().expect("check").is_empty());
    }
    assert!(behind > 0 && refused > 0, "{behind} {refused}");
}

fn refuses_writes(db: &Arc<Db>) -> bool {
    let t = named(db, "t");
    let set = [(ColumnId(1), Value::BigInt(7))];
    let written = run(db, |s| s.point_update(&t, 0, &[Value::BigInt(8)], &set));
    written.is_err_and(|e| e.kind() == ErrorKind::Closed)
}

fn data_files(disk: &SimDisk) -> Vec<String> {
    let mut names = strandline_device::Device::list(&*disk.device()).expect("list");
    names.retain(|n| n.starts_with("chunks-") || n.starts_with("run-"));
    names
}

/// A table whose records cannot be written keeps the log; the other's leave it.
#[test]
fn a_table_whose_records_cannot_be_written_stays_as_of_its_last_checkpoint() {
    let settings = Settings::default();
    for n in 1..40 {
        let tables = Tables::new(settings.clone());
        let db = &tables.db;
        // Both are given something that is only in the log, at different times.
        tables.set("t", 3, "t one").expect("update");
        tables.set("u", 3, "u one").expect("update");
        tables.disk.fail_operation(n);
        let failed = db.checkpoint(false);
        let (count, detail) = counter(db, "tables_behind");
        if failed.is_ok() || count == 0 {
            continue;
        }
        let health = db
            .check_health()
            .expect_err("the log cannot be cut")
            .to_string();
        assert!(health.contains("public."), "{health}");
        assert!(detail.contains("writing its records"), "{detail}");
        let backup = Arc::new(strandline_device::MemoryDevice::new()) as Arc<dyn Device>;
        // Makes another checkpoint, in which the table still pauses.
        db.backup(&backup, &|_| true)
            .expect_err("files lack records");
        tables.set("t", 4, "t two").expect("update");
        tables.set("u", 4, "u two").expect("update");
        let _ = db.checkpoint(false);
        for seed in [0, 1] {
            let disk = tables.disk.after_crash(seed);
            let again = open(disk.device(), &tables.clock).expect("reopen");
            for (k, text) in [(3, "one"), (4, "two")] {
                for name in ["t", "u"] {
                    let expected = format!("{name} {text}");
                    let found = Tables::text(&again, name, k).expect("read");
                    assert_eq!(found, expected.as_str().into(), "operation {n}");
                }
            }
            again.checkpoint(true).expect("tried again after opening");
            assert_eq!(counter(&again, "tables_behind").0, 0);
        }
        tables.advance(LONG);
        db.checkpoint(false).expect("tried again");
        assert_eq!(counter(db, "tables_behind").0, 0);
        db.check_health().expect("well");
        return;
    }
    panic!("no failing operation put a table behind");
}

/// Tails that no merge can free do not stop writers of other tables; those of the table are told.
#[test]
fn memory_of_a_range_that_cannot_be_merged_is_its_tables_business() {
    let settings = Settings {
        memory_bytes: Settings::MEMORY_BYTES_MIN,
        ..Settings::default()
    };
    let share = settings.tail_bytes();
    let tables = Tables::new(settings);
    for k in 0..100 {
        tables.set("t", k, "first").expect("t");
    }
    tables.disk.fail_reads(&tables.chunk_files("t")[0]);
    let long = "x".repeat(10_000);
    let mut written = 0;
    let refused = loop {
        match tables.set("t", written % 100, &long) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
        tables
            .set("u", written % 100, &long)
            .expect("writers of u go on");
        assert!(written < 10_000, "t is never refused");
    };
    assert!(
        refused.message().contains("public.t takes no more changes"),
        "{refused}"
    );
    assert_eq!(refused.sqlstate(), SqlState::IO_ERROR);
    for k in 0..(3 * share / long.len()) as i64 {
        tables.set("u", k % 100, &long).expect("writers of u go on");
    }
    tables.disk.mend_reads();
    tables.db.checkpoint(true).expect("checkpoint");
    tables.set("t", 0, "again").expect("t is writable again");
    assert_eq!(
        Tables::text(&tables.db, "t", 99).expect("read"),
        long.as_str().into()
    );
}
