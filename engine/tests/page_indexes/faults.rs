//! Crashes, twice in a row, failing writes and syncs, damage: an index in a file has every entry or
//! cannot be used, and its table goes on.
//!
//! `STRANDLINE_CRASH_STRIDE` sets how many operations lie between two crash points.

use crate::common::*;
use crate::files::{file_name, named_files, page_files};
use crate::machine::{BLOCK, Machine, Place, in_places};
use crate::support::*;
use std::sync::Arc;
use strandline_base::ManualClock;
use strandline_base::rng::Rng;
use strandline_engine::catalog::index::IndexId;
use strandline_engine::catalog::{HistoryPolicy, KeyDef, TableDef};
use strandline_engine::*;

/// A table with two indexes and an ordered key.
pub fn begin(seed: u64, place: Place) -> (Machine, Arc<ManualClock>, Arc<Db>) {
    let (disk, wall) = (Machine::new(seed, place), clock());
    let db = disk.open(&wall).expect("open");
    create_table(&db, HistoryPolicy::None);
    create_alone(&db, &index("t_a", vec![part(1)])).expect("create");
    create_alone(&db, &index("t_b", vec![part(2)])).expect("create");
    let key = KeyDef::new("t_ak_key", false, vec![ColumnId(1), ColumnId(0)]);
    alter(&db, |t| {
        t.keys.push(key.clone().with_ordered_index(crate::STORAGE))
    });
    (disk, wall, db)
}

pub fn insert_some(db: &Arc<Db>, keys: std::ops::Range<i64>) -> Result<()> {
    let t = table(db);
    run(db, |s| {
        for k in keys {
            // Long keys: a leaf has few entries, so that nodes are split.
            let text = format!("{}{}", "text ".repeat(80), k % 5);
            s.point_insert(&t, &row(k, k % 4, &text))?;
        }
        Ok(())
    })
}

pub fn update_some(db: &Arc<Db>, to: i64) -> Result<()> {
    let t = table(db);
    run(db, |s| {
        for k in (0..30).step_by(3) {
            let set = [(ColumnId(1), Value::BigInt(to + k))];
            s.point_update(&t, 0, &[Value::BigInt(k)], &set)?;
        }
        Ok(())
    })
}

pub fn workload(db: &Arc<Db>) -> Result<()> {
    insert_some(db, 0..40)?;
    db.checkpoint(true)?;
    update_some(db, 100)?;
    let txn = db.begin(TxnOptions::default())?;
    let statement = txn.begin_statement()?;
    for k in 40..45 {
        statement.point_insert(&table(db), &row(k, 77, "undone"))?;
    }
    statement.finish()?;
    // Its entries become durable with the next commit.
    insert_some(db, 50..60)?;
    txn.rollback();
    db.checkpoint(false)?;
    alter(db, |t| drop_index(t, "t_b"));
    create_online(db, &index("t_b", vec![part(2), part(1)]))?;
    update_some(db, 200)?;
    db.checkpoint(true).map(|_| ())
}

fn stride(place: Place) -> usize {
    let given = std::env::var("STRANDLINE_CRASH_STRIDE").ok();
    let chosen = match place {
        Place::OneDirectory => 17,
        Place::TwoDirectories => 29,
        Place::Cached(_) => 43,
    };
    given
        .and_then(|stride| stride.parse().ok())
        .unwrap_or(chosen)
}

pub fn verify(disk: &Machine, wall: &Arc<ManualClock>, what: &str) {
    let db = disk.open(wall).unwrap_or_else(|e| panic!("{what}: {e}"));
    assert_sound(&db, what);
    assert_eq!(page_files(&*disk.device()), named_files(&db), "{what}");
    // New rows take the places of rows that the crash has ended.
    let rows = run(&db, |s| Ok(scanned(s, &table(&db)))).expect("a scan");
    let keys = rows.iter().filter_map(|row| match row[0] {
        Value::BigInt(k) => Some(k),
        _ => None,
    });
    let next = keys.max().map_or(0, |last| last + 1);
    insert_some(&db, next..next + 5).expect("insert");
    assert_sound(&db, what);
    db.checkpoint(true).expect("checkpoint");
    db.checkpoint(true).expect("a sweep");
    assert_sound(&db, what);
}

/// A crash at an operation, then one at an operation of the recovery or behind it.
pub fn indexes_are_whole_after_two_crashes(place: Place) {
    let (disk, _, db) = begin(1, place);
    let first = disk.fast.operations();
    workload(&db).expect("workload without a crash");
    drop(db);
    let operations = disk.fast.operations();
    for point in (first + 1..=operations).step_by(stride(place)) {
        let (disk, wall, db) = begin(1, place);
        disk.fast.crash_at(point);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| workload(&db)));
        drop((outcome, db));
        for seed in [0, 1, 2 + point] {
            let what = format!("crash at {point} of {operations}, outcome {seed}");
            let crashed = disk.after_crash(seed);
            verify(&crashed.after_kill(), &wall, &what);
            let again = crashed.after_crash(1);
            let end = {
                let db = again.open(&wall).unwrap_or_else(|e| panic!("{what}: {e}"));
                insert_some(&db, 80..82).expect("insert");
                drop(db.checkpoint(false));
                again.fast.operations()
            };
            for second in [1 + point % 7, end / 2] {
                let twice = crashed.after_crash(1);
                twice.fast.crash_at(second.max(1));
                if let Ok(db) = twice.open(&wall) {
                    let _ = insert_some(&db, 80..82).and_then(|()| db.checkpoint(false));
                }
                let what = format!("{what}, then at {second} of {end}");
                verify(&twice.after_crash(seed), &wall, &what);
            }
        }
    }
}

/// The syncs of a checkpoint, among them those of page files.
const FAILED_SYNCS: std::ops::Range<u64> = 1..12;

/// Rows, and a checkpoint of which the sync number `n` has failed.
fn after_failed_sync(n: u64, place: Place) -> (Machine, Arc<ManualClock>, Arc<Db>) {
    let (disk, wall, db) = begin(n, place);
    insert_some(&db, 0..40).expect("insert");
    disk.files().fail_sync(n);
    let _ = db.checkpoint(true);
    (disk, wall, db)
}

/// Any file sync of a checkpoint fails. Either the database refuses writes, or it goes on, an index
/// whose file was concerned is unusable, and the log is cut.
fn a_failed_sync_costs_the_index_of_the_file(place: Place) {
    let mut unusable = 0;
    for n in FAILED_SYNCS {
        let (disk, wall, db) = after_failed_sync(n, place);
        let t = table(&db);
        let usable = |name: &str| {
            let id = named(&t, name).id;
            run(&db, |s| Ok(s.has_index(&t, id))).expect("a look")
        };
        if insert_some(&db, 40..45).is_ok() && ["t_a", "t_b"].iter().any(|name| !usable(name)) {
            unusable += 1;
            // What needs the entries fails and says what helps; scans and writers go on.
            let lost = if usable("t_a") { "t_b" } else { "t_a" };
            let error = run(&db, |s| {
                s.index_cursor(
                    &t,
                    named(&t, lost).id,
                    &KeyRange::default(),
                    Direction::Forward,
                )?
                .next_chunk(1, &mut Vec::new())
            });
            let error = error.expect_err("unusable");
            assert_eq!(error.sqlstate(), SqlState::DATA_CORRUPTED, "{error}");
            assert!(
                error.hint().is_some_and(|hint| hint.contains("REINDEX")),
                "{error}"
            );
            assert!(error.message().contains(lost), "{error}");
            assert!(!db.failing_work().is_empty(), "it is told");
            update_some(&db, 300).expect("writers go on");
            db.checkpoint(true).expect("the log is cut");
            assert!(db.check_health().is_ok());
            // The same index again, in a new file.
            let def = named(&t, lost).clone();
            alter(&db, |t| drop_index(t, lost));
            create_online(&db, &def).expect("built again");
            db.checkpoint(true).expect("the unusable one goes");
            assert_sound(&db, "built again");
        }
        drop(db);
        for seed in [0, 1, n] {
            verify(
                &disk.after_crash(seed),
                &wall,
                &format!("sync {n}, outcome {seed}"),
            );
        }
    }
    assert!(unusable >= 2, "{unusable} indexes");
}

/// The file of an index is lost while the transaction that creates the index is open. It stays
/// lost when the transaction has committed: no opening takes the file for complete.
fn a_file_that_is_lost_before_its_index_is_committed_is_not_used(place: Place) {
    let mut lost = 0;
    for n in FAILED_SYNCS {
        let (disk, wall, db) = begin(n, place);
        insert_some(&db, 0..40).expect("insert");
        db.checkpoint(true).expect("checkpoint");
        let txn = db.begin(TxnOptions::default()).expect("begin");
        create_in(&txn, &index("t_c", vec![part(2), part(0)])).expect("create");
        let t = txn.catalog().table("public", "t").expect("t").clone();
        let statement = txn.begin_statement().expect("statement");
        let inserted = statement.point_insert(&t, &row(60, 7, "its own"));
        inserted.and_then(|_| statement.finish()).expect("inserted");
        drop(statement);
        disk.files().fail_sync(n);
        let _ = db.checkpoint(true);
        if txn.commit().is_err() {
            continue;
        }
        let t = table(&db);
        let id = named(&t, "t_c").id;
        let has_index = run(&db, |s| Ok(s.has_index(&t, id))).expect("a look");
        for keys in [40..45, 45..50] {
            let _ = insert_some(&db, keys).and_then(|()| db.checkpoint(true));
        }
        lost += u64::from(!has_index);
        drop(db);
        for seed in [0, 1, n] {
            let what = format!("sync {n}, outcome {seed}");
            verify(&disk.after_crash(seed), &wall, &what);
        }
    }
    assert!(lost >= 1);
}

/// The old file of a key is lost while a REINDEX is open, which is then rolled back: from that
/// moment on the index is unusable. What does not need it goes on, and another REINDEX helps.
fn a_reindex_that_brings_a_lost_file_back_leaves_it_unusable(place: Place) {
    let reindex = |t: &mut TableDef| {
        let number = IndexId(t.next_index);
        t.next_index += 1;
        let keys = t.keys.iter_mut().filter_map(|key| key.ordered.as_mut());
        keys.for_each(|def| Arc::make_mut(def).id = number);
    };
    let mut lost = [0; 2];
    for (n, to_savepoint) in FAILED_SYNCS.flat_map(|n| [(n, false), (n, true)]) {
        let (disk, wall, db) = begin(n, place);
        insert_some(&db, 0..40).expect("insert");
        let txn = db.begin(TxnOptions::default()).expect("begin");
        let savepoint = txn.savepoint();
        alter_in(&txn, reindex);
        disk.files().fail_sync(n);
        let _ = db.checkpoint(true);
        match to_savepoint {
            true => txn.rollback_to(&savepoint).expect("back"),
            false => txn.rollback(),
        }
        let (t, what) = (table(&db), format!("sync {n}, savepoint: {to_savepoint}"));
        let key = named(&t, "t_ak_key").id;
        if !run(&db, |s| Ok(s.has_index(&t, key))).expect("a look") {
            lost[usize::from(to_savepoint)] += 1;
            let refused = insert_some(&db, 40..45).expect_err("uniqueness cannot be checked");
            assert_eq!(refused.sqlstate(), SqlState::DATA_CORRUPTED, "{what}");
            assert!(refused.message().contains("t_ak_key"), "{what}: {refused}");
            assert!(!db.failing_work().is_empty(), "{what}: it is told");
            run(&db, |s| s.point_delete(&t, 0, &[Value::BigInt(7)]))
                .unwrap_or_else(|e| panic!("{what}: {e}"));
            txn.rollback();
            alter(&db, reindex);
            insert_some(&db, 40..45).unwrap_or_else(|e| panic!("{what}: {e}"));
            assert_sound(&db, &what);
        }
        txn.rollback();
        drop((txn, db));
        for seed in [0, 1, n] {
            verify(
                &disk.after_crash(seed),
                &wall,
                &format!("{what}, outcome {seed}"),
            );
        }
    }
    assert!(lost.iter().all(|lost| *lost > 0), "{lost:?}");
}

/// A lost file is not opened again, though its pages may look whole: the next opening builds it.
fn a_lost_file_is_not_used_again(place: Place) {
    let mut lost = 0;
    for n in FAILED_SYNCS {
        let (disk, wall, db) = after_failed_sync(n, place);
        let t = table(&db);
        let before = named_files(&db);
        let id = named(&t, "t_a").id;
        if run(&db, |s| Ok(s.has_index(&t, id))).expect("a look") {
            continue;
        }
        lost += 1;
        insert_some(&db, 40..45).expect("passes the index over");
        drop(db);
        for seed in [0, 1] {
            let disk = disk.after_crash(seed);
            let db = disk.open(&wall).expect("open");
            assert_ne!(named_files(&db), before);
            assert_sound(&db, "built by the opening");
        }
    }
    assert!(lost >= 1);
}

/// A write of a page fails: the log stays, the database goes on, the next checkpoint succeeds.
fn a_failed_write_keeps_the_log_until_it_works_again(place: Place) {
    let mut kept = 0;
    for n in 1..40 {
        let (disk, wall, db) = begin(n, place);
        insert_some(&db, 0..40).expect("insert");
        disk.files().fail_write(n);
        let failed = db.checkpoint(true).is_err();
        let told = db.failing_work();
        if told
            .iter()
            .any(|line| line.contains("writing the files of its indexes"))
        {
            kept += 1;
            assert!(failed, "an operator who asks for a checkpoint is told");
            assert!(db.check_health().is_err(), "the log cannot be cut");
            assert_sound(&db, "beside the failure");
            update_some(&db, 100).expect("writers go on");
            drop(db);
            for seed in [0, 1, n] {
                verify(&disk.after_crash(seed), &wall, &format!("write {n}"));
            }
            let db = disk.after_kill().open(&wall).expect("open");
            db.checkpoint(true).expect("works again");
            assert!(db.check_health().is_ok() && db.failing_work().is_empty());
            continue;
        }
        drop(db);
        verify(&disk.after_crash(n), &wall, &format!("write {n}"));
    }
    assert!(kept >= 3, "{kept} failed writes of pages");
}

/// The file that an index names.
pub fn file_of(db: &Db, name: &str) -> String {
    let file = named(&table(db), name).file_number.expect("a file");
    file_name(file)
}

/// Damage that the opening meets: the index is built from the rows.
fn a_damaged_root_is_built_again_by_the_opening(place: Place) {
    for damaged in ["t_a", "t_ak_key"] {
        let (disk, wall, db) = begin(3, place);
        insert_some(&db, 0..40).expect("insert");
        db.checkpoint(true).expect("checkpoint");
        let file = file_of(&db, damaged);
        db.close().expect("close");
        drop(db);
        let disk = disk.after_crash(0);
        disk.damage(&file);
        let db = disk.open(&wall).expect("open");
        assert_ne!(file_of(&db, damaged), file);
        assert_sound(&db, "built again");
        drop(db);
        verify(&disk.after_crash(1), &wall, damaged);
    }
}

pub fn a_missing_file_is_built_again_by_the_opening(place: Place) {
    let (disk, wall, db) = begin(4, place);
    insert_some(&db, 0..40).expect("insert");
    let (file, key) = (file_of(&db, "t_b"), file_of(&db, "t_ak_key"));
    drop(db);
    let disk = disk.after_kill();
    for name in [&file, &key] {
        disk.device().remove(name).expect("removed");
    }
    verify(&disk, &wall, "missing");
}

/// Keys with nothing in common: some 20 fit in a leaf.
fn insert_many(db: &Arc<Db>, rows: i64) {
    let mut rng = Rng::new(5);
    let mut text = || {
        (0..25)
            .map(|_| format!("{:016x}", rng.next_u64()))
            .collect::<String>()
    };
    let rows: Vec<_> = (0..rows).map(|k| (k, Some(k), text())).collect();
    let (t, on_duplicate) = (table(db), OnInvisibleDuplicate::Violation);
    run(db, |s| s.insert(&t, &batch(&rows), on_duplicate)).expect("insert");
}

/// Damage that a reader meets is an error with file and page; scans and other indexes go on.
fn a_damaged_leaf_fails_what_needs_it(place: Place) {
    const ROWS: i64 = 600;
    let (disk, wall, db) = begin(5, place);
    insert_many(&db, ROWS);
    db.checkpoint(true).expect("checkpoint");
    let file = file_of(&db, "t_b");
    db.close().expect("close");
    drop(db);
    let disk = disk.after_crash(0);
    let pages = disk.files().content(&file).expect("the file").len() as u64 / BLOCK;
    // The opening of an index on pages reads the root, page 1, and a few other nodes.
    let mut found = 0;
    for page in (2..pages).step_by(4) {
        let disk = disk.after_kill();
        if disk.files().content(&file).expect("the file")[(page * BLOCK) as usize] == 0 {
            continue;
        }
        disk.files().flip_bits(&file, page * BLOCK + 100, 8);
        let db = disk.open(&wall).expect("open");
        let t = table(&db);
        if file_of(&db, "t_b") != file {
            continue; // The opening has met it.
        }
        let read = run(&db, |s| {
            let all = KeyRange::default();
            let mut rows = s.index_cursor(&t, named(&t, "t_b").id, &all, Direction::Forward)?;
            let mut found = Vec::new();
            while rows.next_chunk(10, &mut found)? {}
            Ok(found.len())
        });
        let Err(error) = read else { continue };
        found += 1;
        assert_eq!(error.sqlstate(), SqlState::DATA_CORRUPTED);
        assert!(error.message().contains(&file), "{error}");
        assert!(
            db.check()
                .expect("check")
                .iter()
                .any(|line| line.contains(&file))
        );
        let count = run(&db, |s| Ok(scanned(s, &t).len())).expect("a scan");
        assert_eq!(count, ROWS as usize);
        let set = [(ColumnId(1), Value::BigInt(-1))];
        let done = run(&db, |s| s.point_update(&t, 0, &[Value::BigInt(7)], &set));
        assert!(done.expect("other indexes"));
        // A new index helps, and the old file goes.
        let def = named(&t, "t_b").clone();
        alter(&db, |t| drop_index(t, "t_b"));
        create_online(&db, &def).expect("built again");
        for _ in 0..2 {
            db.checkpoint(true).expect("checkpoint");
        }
        assert_sound(&db, "built again");
        assert!(!page_files(&*disk.device()).contains(&file));
    }
    assert!(found >= 1);
}

/// More turns than the comparison of all indexes with 600 entries takes.
const COMPARISON_TURNS_MAX: usize = 100;

/// An index whose leaves cannot be read is not walked in every turn of the maintenance. Checkpoints
/// go on.
fn an_index_that_cannot_be_swept_is_set_aside(place: Place) {
    let (disk, wall, db) = begin(7, place);
    insert_many(&db, 600);
    db.checkpoint(true).expect("checkpoint");
    let file = file_of(&db, "t_b");
    db.close().expect("close");
    drop(db);
    let disk = disk.after_crash(0);
    let db = disk.open(&wall).expect("open");
    disk.fail_reads(&file);
    // The entries of the other indexes are compared in some turns before.
    for _ in 0..COMPARISON_TURNS_MAX {
        if db.failing_work().is_empty() {
            db.checkpoint(true).expect("a checkpoint beside it");
        }
    }
    let told = db.failing_work();
    let is_told = |line: &String| line.contains(&format!("sweeping the index in {file}"));
    assert!(told.len() == 1 && told.iter().all(is_told), "{told:?}");
    assert!(db.check_health().is_ok(), "no data is in danger");
    // In the pause nothing looks at it.
    disk.mend_reads();
    wall.advance(900_000);
    db.merge_due(true).expect("a turn");
    assert_eq!(db.failing_work(), told, "a pause is on");
    wall.advance(100_000);
    for _ in 0..COMPARISON_TURNS_MAX {
        db.merge_due(true).expect("a turn");
    }
    assert_eq!(db.failing_work(), Vec::<String>::new(), "the pause is over");
    assert_sound(&db, "works again");
}

/// A range that cannot be read has its rows marked, and the sweep of the index goes on.
fn a_range_that_cannot_be_read_does_not_stop_the_comparison(place: Place) {
    let (disk, wall, db) = begin(8, place);
    insert_many(&db, 600);
    db.checkpoint(true).expect("checkpoint");
    db.close().expect("close");
    drop(db);
    let disk = disk.after_crash(0);
    let db = disk.open(&wall).expect("open");
    let names = disk.device().list().expect("names").into_iter();
    let is_other = |name: &String| {
        ["wal", "manifest", "pages", "levels", "lock"]
            .iter()
            .all(|other| !name.starts_with(other))
    };
    let data: Vec<String> = names.filter(is_other).collect();
    assert!(!data.is_empty());
    data.iter().for_each(|name| disk.fail_reads(name));
    for _ in 0..COMPARISON_TURNS_MAX {
        let _ = db.checkpoint(true);
    }
    let told = db.failing_work();
    assert!(
        !told.iter().any(|line| line.contains("sweeping")),
        "{told:?}"
    );
    // No row counts as due again before others are.
    let (before, _) = (db.merge_due(false), wall.advance(1_000_000));
    before.expect("a turn");
    disk.mend_reads();
    db.checkpoint(true).expect("checkpoint");
    assert_sound(&db, "readable again");
}

in_places! {
    one_directory = Place::OneDirectory,
    two_directories = Place::TwoDirectories;
    [
        indexes_are_whole_after_two_crashes,
        a_failed_sync_costs_the_index_of_the_file,
        a_lost_file_is_not_used_again,
        a_reindex_that_brings_a_lost_file_back_leaves_it_unusable,
        a_file_that_is_lost_before_its_index_is_committed_is_not_used,
        a_failed_write_keeps_the_log_until_it_works_again,
        a_damaged_root_is_built_again_by_the_opening,
        a_missing_file_is_built_again_by_the_opening,
        a_damaged_leaf_fails_what_needs_it,
        an_index_that_cannot_be_swept_is_set_aside,
        a_range_that_cannot_be_read_does_not_stop_the_comparison,
    ]
}
