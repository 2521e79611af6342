//! A manifest that cannot be written: one state, told to everybody; nothing goes on in vain.

mod common;

use common::*;
use std::sync::Arc;
use strandline_engine::catalog::HistoryPolicy;
use strandline_engine::*;
use strandline_sim::SimDisk;

/// A table with `rows` rows, some in files, some in the log.
fn build(disk: &SimDisk) -> Arc<Db> {
    let db = open(disk.device(), &clock()).expect("open");
    create_table(&db, HistoryPolicy::Forever);
    (0..10).for_each(|k| insert(&db, &row(k, k, "text")));
    db.checkpoint(true).expect("checkpoint");
    (10..20).for_each(|k| insert(&db, &row(k, k, "text")));
    db
}

fn names(disk: &SimDisk) -> Vec<String> {
    Device::list(&*disk.device()).expect("list")
}

fn assert_rows(db: &Arc<Db>, rows: i64, what: &str) {
    for k in 0..rows {
        assert_eq!(get(db, k), Some(row(k, k, "text").to_vec()), "{what}");
    }
    assert_eq!(get(db, rows), None, "{what}");
    assert!(db.check().expect("check").is_empty(), "{what}");
}

/// Makes the manifest edit of a checkpoint fail: `fault` gets the number of the write or sync.
fn refuse_edit(disk: &SimDisk, db: &Arc<Db>, fault: impl Fn(&SimDisk, u64)) -> Error {
    for n in 1..20 {
        let before = (disk.syncs(), disk.writes());
        fault(disk, n);
        let outcome = db.checkpoint(true);
        match outcome {
            Err(error) if error.kind() == ErrorKind::Closed => return error,
            _ => {}
        }
        assert_ne!((disk.syncs(), disk.writes()), before);
        // Takes back a fault that was not met.
        fault(disk, u64::MAX / 2);
        insert(
            db,
            &row(1000 + n as i64, 0, "so that there is something to write"),
        );
    }
    panic!("no fault met the manifest");
}

/// Makes the n-th operation of a kind fail.
type Fault = fn(&SimDisk, u64);

#[test]
fn after_a_failed_sync_of_the_manifest_nothing_is_written_any_more() {
    let disk = SimDisk::new(3);
    let db = build(&disk);
    let refusal = refuse_edit(&disk, &db, |disk, n| disk.fail_sync(n));
    assert_eq!(refusal.sqlstate(), SqlState::IO_ERROR);
    let refused = "refuses writes since its manifest could not be stored";
    assert!(refusal.message().contains(refused), "{refusal}");
    let (files, operations) = (names(&disk), disk.operations());
    for _ in 0..20 {
        let again = db.checkpoint(true).expect_err("refused");
        assert_eq!(again.message(), refusal.message());
        let again = db.merge_due(true).expect_err("refused");
        assert_eq!(again.message(), refusal.message());
        let t = table(&db);
        let write = run(&db, |s| s.point_insert(&t, &row(500, 0, "refused")));
        assert_eq!(write.expect_err("refused").message(), refusal.message());
    }
    assert_eq!((names(&disk), disk.operations()), (files, operations));
    let health = db.check_health().expect_err("not well");
    assert_eq!(health.message(), refusal.message());
    assert_eq!(
        get(&db, 19),
        Some(row(19, 19, "text").to_vec()),
        "reads go on"
    );
}

/// The edit of a checkpoint, and the compaction of the manifest, with every operation failing once:
/// a failed write, a failed sync, a torn write, before or after the switch.
#[test]
fn every_fault_of_append_and_compact_leaves_one_of_two_states() {
    let disk = SimDisk::new(4);
    let db = build(&disk);
    // So many edits that the next one compacts.
    let generation = |disk: &SimDisk| {
        let names = names(disk);
        names
            .into_iter()
            .filter(|n| n.starts_with("manifest-"))
            .max()
            .expect("a manifest")
    };
    let (first, mut rows) = (generation(&disk), 20);
    let mut ready = disk.after_kill();
    while generation(&disk) == first {
        ready = disk.after_kill();
        insert(&db, &row(rows, rows, "text"));
        rows += 1;
        db.checkpoint(false).expect("checkpoint");
    }
    // `ready` is the disk before the insert and the checkpoint that compacts: both are repeated.
    let faults: [(&str, Fault); 3] = [
        ("write", |disk, n| disk.fail_write(n)),
        ("sync", |disk, n| disk.fail_sync(n)),
        ("operation", |disk, n| disk.fail_operation(n)),
    ];
    for (kind, fault) in faults {
        let (mut refused, mut compacted) = (0, 0);
        for n in 1.. {
            let disk = ready.after_kill();
            let db = open(disk.device(), &clock()).expect("open");
            insert(&db, &row(rows - 1, rows - 1, "text"));
            fault(&disk, n);
            let counts = |disk: &SimDisk| match kind {
                "write" => disk.writes(),
                "sync" => disk.syncs(),
                _ => disk.operations(),
            };
            let before = counts(&disk);
            let outcome = db.checkpoint(false);
            if counts(&disk) < before + n {
                outcome.expect("nothing has failed");
                break;
            }
            let what = format!("{kind} {n}: {outcome:?}");
            assert_rows(&db, rows, &what);
            let t = table(&db);
            let write = run(&db, |s| s.point_insert(&t, &row(rows, rows, "text")));
            match &write {
                Ok(_) => {
                    db.checkpoint(true).expect("the next one works");
                    compacted += u32::from(generation(&disk) != first);
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Closed, "{what}");
                    assert_eq!(
                        db.check_health().expect_err("refused").message(),
                        error.message()
                    );
                    refused += 1;
                }
            }
            let known = rows + i64::from(write.is_ok());
            for seed in 0..4 {
                let again = open(disk.after_crash(seed).device(), &clock()).expect("reopen");
                assert_rows(&again, known, &format!("{what}, crash {seed}"));
            }
        }
        assert!(
            refused > 0 && compacted > 0,
            "{kind}: {refused} {compacted}"
        );
    }
}
