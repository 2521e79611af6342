//! How long the past is kept, and that it is right as long as it is: policies that change, clocks
//! that go back, snapshots that stay open, every version of a row.

mod common;

use common::*;
use strandline_column::types;
use strandline_engine::catalog::HistoryPolicy;
use strandline_engine::*;

const MINUTE: u64 = 60_000_000;

impl World {
    fn set(&self, a: i64) -> CommitTs {
        let t = table(&self.db);
        let set = [(ColumnId(1), Value::BigInt(a))];
        let found = run(&self.db, |s| {
            s.point_update(&t, 0, &[Value::BigInt(1)], &set)
        });
        assert!(found.expect("update"));
        self.db.stable()
    }
    /// Column `a` of row 1 as of `ts`.
    fn at(&self, ts: CommitTs) -> Result<Option<i64>> {
        let txn = self.db.begin(TxnOptions::default())?;
        let statement = txn.begin_statement()?;
        let catalog = self.db.catalog_at(ts)?;
        let t = catalog.table("public", "t").expect("t").clone();
        let scan = statement.scan_as_of(&t, ts, request())?;
        let found = scan_all(&scan);
        Ok(found.get(&1).and_then(|(a, _)| *a))
    }
    fn check(&self, moments: &[(CommitTs, i64)], must_be_kept: usize) {
        for (i, (ts, a)) in moments.iter().enumerate() {
            match self.at(*ts) {
                Ok(found) => assert_eq!(found, Some(*a), "as of {ts}, moment {i}"),
                Err(e) => {
                    assert_eq!(e.sqlstate(), SqlState::SNAPSHOT_TOO_OLD, "{e}");
                    assert!(i + must_be_kept < moments.len(), "moment {i} is gone: {e}");
                }
            }
        }
    }
}

/// The table's versions, with checkpoints between.
fn moments(world: &World) -> Vec<(CommitTs, i64)> {
    insert(&world.db, &row(1, 0, ""));
    let mut moments = vec![(world.db.stable(), 0)];
    for a in 1..10 {
        world.clock.advance(MINUTE);
        moments.push((world.set(a), a));
        if a % 3 == 0 {
            world.db.checkpoint(true).expect("checkpoint");
        }
    }
    world.clock.advance(MINUTE);
    moments
}

#[test]
fn an_interval_keeps_what_it_promises_and_never_answers_wrongly() {
    for keep in [0, 1, 3, 5, 8, 100] {
        let world = World::new(HistoryPolicy::For(keep * MINUTE + MINUTE / 2));
        let moments = moments(&world);
        for round in 0..3 {
            world.check(&moments, (keep as usize).min(moments.len()));
            world.db.checkpoint(round > 0).expect("checkpoint");
        }
        let world = world.reopen();
        world.check(&moments, (keep as usize).min(moments.len()));
    }
}

#[test]
fn a_policy_that_changes_answers_right_or_not_at_all() {
    let (none, forever) = (HistoryPolicy::None, HistoryPolicy::Forever);
    for (first, second) in [(none, forever), (forever, none)] {
        let world = World::new(first);
        let moments = moments(&world);
        alter(&world.db, |t| t.history = second);
        world.clock.advance(MINUTE);
        world.db.checkpoint(true).expect("checkpoint");
        world.clock.advance(MINUTE);
        world.db.checkpoint(true).expect("checkpoint");
        world.check(&moments, 0);
        let world = world.reopen();
        world.check(&moments, 0);
        // From now on everything is kept if the new policy says so.
        let later = vec![(world.set(77), 77), (world.set(78), 78)];
        world.db.checkpoint(true).expect("checkpoint");
        world.check(&later, if second == forever { 2 } else { 0 });
    }
}

#[test]
fn a_clock_that_goes_back_brings_nothing_back() {
    let world = World::new(HistoryPolicy::For(2 * MINUTE));
    let moments = moments(&world);
    world.clock.advance(60 * MINUTE);
    world.db.checkpoint(true).expect("checkpoint");
    let now = world.db.now_us();
    world.clock.set(now - 65 * MINUTE);
    world.check(&moments, 0);
    let world = world.reopen();
    world.check(&moments, 0);
}

#[test]
fn an_open_snapshot_keeps_what_it_sees_over_many_merges() {
    let world = World::new(HistoryPolicy::None);
    insert(&world.db, &row(1, 0, "before"));
    insert(&world.db, &row(2, 0, "deleted later"));
    let options = TxnOptions {
        isolation: Isolation::Snapshot,
        ..TxnOptions::default()
    };
    let old = world.db.begin(options).expect("begin");
    let statement = old.begin_statement().expect("statement");
    let t = table(&world.db);
    let scan = statement.scan(&t, request()).expect("scan");
    run(&world.db, |s| s.point_delete(&t, 0, &[Value::BigInt(2)])).expect("delete");
    let memory = |db: &Db| {
        db.counters()
            .into_iter()
            .find(|c| c.0 == "tail_bytes")
            .map(|c| c.1)
    };
    let mut bytes_max = 0;
    let mut files_max = 0;
    for round in 1..60 {
        world.clock.advance(MINUTE);
        for a in 0..20 {
            world.set(round * 100 + a);
        }
        world.db.checkpoint(true).expect("checkpoint");
        let seen = scan_all(&scan);
        assert_eq!(seen.len(), 2, "round {round}");
        assert_eq!(seen[&1], (Some(0), "before".to_string()), "round {round}");
        let mut out = Vec::new();
        let found = statement.point_get(&t, 0, &[Value::BigInt(2)], &[ColumnId(2)], &mut out);
        assert!(found.expect("get"));
        assert_eq!(out, [Value::from("deleted later")]);
        bytes_max = bytes_max.max(memory(&world.db).expect("counter"));
        let files = strandline_device::Device::list(&*world.device).expect("list");
        files_max = files_max.max(files.len());
    }
    assert!(bytes_max < 1 << 20, "{bytes_max} bytes of tails");
    assert!(files_max < 60, "{files_max} files");
    // Its writes conflict with what has been merged meanwhile.
    let set = [(ColumnId(1), Value::BigInt(-1))];
    let error = statement
        .point_update(&t, 0, &[Value::BigInt(1)], &set)
        .expect_err("conflict");
    assert_eq!(error.sqlstate(), SqlState::SERIALIZATION_FAILURE);
    let error = statement
        .point_delete(&t, 0, &[Value::BigInt(2)])
        .expect_err("conflict");
    assert_eq!(error.sqlstate(), SqlState::SERIALIZATION_FAILURE);
}

#[test]
fn the_history_of_a_row_has_every_version_once() {
    let world = World::new(HistoryPolicy::Forever);
    let moments = moments(&world);
    let check = |world: &World| {
        let t = table(&world.db);
        let history = run(&world.db, |s| s.history(&t, &[Value::BigInt(1)])).expect("history");
        assert_eq!(history.num_rows(), moments.len());
        for (i, (ts, a)) in moments.iter().enumerate() {
            let value = |at: usize, t| types::value_at(t, history.column(at), i);
            assert_eq!(value(1, SqlType::BigInt), Value::BigInt(*a));
            assert_eq!(
                value(3, SqlType::TimestampTz),
                Value::TimestampTz(ts.0 as i64)
            );
            let end = moments
                .get(i + 1)
                .map(|(ts, _)| Value::TimestampTz(ts.0 as i64));
            assert_eq!(value(4, SqlType::TimestampTz), end.unwrap_or(Value::Null));
        }
    };
    check(&world);
    world.db.checkpoint(true).expect("checkpoint");
    check(&world);
    check(&world.reopen());
}
