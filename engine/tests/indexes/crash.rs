//! A crash at any device operation of definitions and builds: an index is there with all its
//! entries, or not at all.

use crate::common::*;
use crate::support::*;
use std::sync::Arc;
use strandline_base::ManualClock;
use strandline_engine::catalog::HistoryPolicy;
use strandline_engine::catalog::index::{IndexState, IndexStorage};
use strandline_engine::*;
use strandline_sim::SimDisk;

fn open_disk(disk: &SimDisk, clock: &Arc<ManualClock>) -> Result<Arc<Db>> {
    open_eager(disk.device(), clock, 6)
}

fn insert_some(db: &Arc<Db>, keys: std::ops::Range<i64>) -> Result<()> {
    let t = table(db);
    run(db, |s| {
        for k in keys {
            s.point_insert(&t, &row(k, k % 5, &format!("text {}", k % 3)))?;
        }
        Ok(())
    })
}

fn update_some(db: &Arc<Db>) -> Result<()> {
    let t = table(db);
    run(db, |s| {
        for k in (0..20).step_by(3) {
            let set = [(ColumnId(1), Value::BigInt(100 + k))];
            s.point_update(&t, 0, &[Value::BigInt(k)], &set)?;
        }
        Ok(())
    })
}

/// Definitions of every kind, with writes and checkpoints between them.
fn workload(db: &Arc<Db>, clock: &ManualClock) -> Result<()> {
    insert_some(db, 0..20)?;
    create_online(db, &index("online", vec![part(1)]))?;
    clock.advance(1000);
    update_some(db)?;
    db.checkpoint(true)?;
    create_alone(db, &unique("alone", vec![part(2), part(0)]))?;
    insert_some(db, 20..30)?;
    let txn = db.begin(TxnOptions::default())?;
    create_in(&txn, &index("undone", vec![part(1)]))?;
    txn.rollback();
    let refused = create_online(db, &unique("refused", vec![part(1)]));
    match refused {
        Err(error) if error.sqlstate() == SqlState::UNIQUE_VIOLATION => {}
        other => return other,
    }
    let txn = db.begin(TxnOptions::default())?;
    txn.change_catalog(&mut |catalog| {
        let t = catalog.table("public", "t").expect("t").clone();
        let mut t = catalog::TableDef::clone(&t);
        drop_index(&mut t, "online");
        let key = catalog::KeyDef::new("t_ak_key", false, vec![ColumnId(1), ColumnId(0)]);
        t.keys.push(key.with_ordered_index(crate::STORAGE));
        catalog.put_table(t);
        Ok(())
    })?;
    txn.commit()?;
    insert_some(db, 30..35)?;
    db.checkpoint(true)?;
    create_online(db, &index("last", vec![part(1), part(2)]))
}

fn verify(disk: &SimDisk, clock: &Arc<ManualClock>, what: &str) {
    let db = open_disk(disk, clock).unwrap_or_else(|e| panic!("{what}: recovery failed: {e}"));
    let damage = db.check().expect("check");
    assert!(damage.is_empty(), "{what}: {damage:?}");
    let t = table(&db);
    let unfinished = t
        .indexes
        .iter()
        .find(|def| def.state == IndexState::Building);
    assert!(unfinished.is_none(), "{what}: {unfinished:?}");
    for def in &t.indexes {
        assert!(
            !["undone", "refused"].contains(&def.name.as_str()),
            "{what}: {}",
            def.name
        );
    }
    let statement = db.begin(TxnOptions::default()).expect("begin");
    let statement = statement.begin_statement().expect("statement");
    let rows = scanned(&statement, &t);
    let view = statement.view(&t).expect("view");
    assert_indexes_agree(&statement, &view, &t, &rows, what);
    // It goes on working, and a name that is free can be used.
    insert_some(&db, 50..52).expect("insert");
    create_online(&db, &index("after", vec![part(1)])).expect("create");
    assert_eq!(db.check().expect("check"), Vec::<String>::new(), "{what}");
}

#[test]
fn every_crash_point_leaves_whole_indexes_or_none() {
    let begin = |seed| {
        let (disk, wall) = (SimDisk::new(seed), clock());
        let db = open_disk(&disk, &wall).expect("open");
        create_table(&db, HistoryPolicy::Forever);
        (disk, wall, db)
    };
    at_every_point(begin, workload, verify);
}

/// Crashes a database, as `begin` makes it for a seed, at every device operation of `workload`;
/// `verify` gets the disks that a crash may leave: nothing, everything, or anything of what was not
/// synced. On pages, which make more operations, it gets one of them, in turns.
pub fn at_every_point(
    begin: impl Fn(u64) -> (SimDisk, Arc<ManualClock>, Arc<Db>),
    workload: impl Fn(&Arc<Db>, &ManualClock) -> Result<()>,
    verify: impl Fn(&SimDisk, &Arc<ManualClock>, &str),
) {
    let (disk, wall, db) = begin(1);
    let first = disk.operations();
    workload(&db, &wall).expect("workload without a crash");
    drop(db);
    let operations = disk.operations();
    for point in first + 1..=operations {
        let (disk, wall, db) = begin(1);
        disk.crash_at(point);
        let _ = workload(&db, &wall);
        drop(db);
        let outcomes = [0, 1, 2 + point];
        let verified = match crate::STORAGE {
            IndexStorage::Memory => &outcomes[..],
            IndexStorage::Pages | IndexStorage::Levels | IndexStorage::Blocks(_) => {
                &outcomes[point as usize % 3..][..1]
            }
        };
        for &outcome in verified {
            let what = format!("crash at operation {point} of {operations}, outcome {outcome}");
            verify(&disk.after_crash(outcome), &wall, &what);
        }
    }
}
