//! Entries of rows that have left their keys, which walks leave out: a queue.

use crate::common::*;
use crate::support::*;
use std::sync::Arc;
use strandline_base::rng::Rng;
use strandline_engine::catalog::HistoryPolicy;
use strandline_engine::catalog::TableDef;
use strandline_engine::*;

/// The column `a` of a waiting job, and of one that was taken.
const WAITING: i64 = 1;
const TAKEN: i64 = 2;

fn queue(jobs: i64, history: HistoryPolicy) -> World {
    let world = World::new(history);
    create_alone(&world.db, &index("t_ak", vec![part(1), part(0)])).expect("create");
    for k in 1..=jobs {
        insert(&world.db, &row(k, WAITING, "x"));
    }
    world
}

fn set_a(db: &Arc<Db>, k: i64, a: i64) {
    let t = table(db);
    run(db, |s| {
        s.point_update(
            &t,
            0,
            &[Value::BigInt(k)],
            &[(ColumnId(1), Value::BigInt(a))],
        )
    })
    .expect("update");
}

/// The keys of the first waiting jobs as of `view`, and how many entries were read.
fn waiting(
    statement: &Statement,
    t: &Arc<TableDef>,
    view: &RowView,
    direction: Direction,
    most: usize,
) -> (Vec<i64>, usize) {
    let id = named(t, "t_ak").id;
    let range = statement.index_keys(t, id).expect("keys");
    let range = range.prefix(&[Value::BigInt(WAITING)]);
    let rows = statement.index_cursor(t, id, &range, direction);
    let mut rows = rows.expect("a cursor").as_of(view.ts());
    let (mut found, mut read) = (Vec::new(), 0);
    let mut gone = GoneEntries::default();
    let (mut chunk, mut is_more) = (Vec::new(), true);
    while found.len() < most && is_more {
        chunk.clear();
        is_more = rows.next_chunk(7, &mut chunk).expect("a chunk");
        for (key, row) in &chunk {
            read += 1;
            let mut values = [Value::Null, Value::Null];
            let columns = [ColumnId(0), ColumnId(1)];
            let is_visible = view.read(*row, &columns, &mut values).expect("read");
            let is_found = is_visible && values[1] == Value::BigInt(WAITING);
            gone.note(key, *row, !is_found);
            if let (true, Value::BigInt(k)) = (is_found && found.len() < most, &values[0]) {
                found.push(*k);
            }
        }
    }
    statement.leave_out(t, id, gone).expect("learned");
    (found, read)
}

fn now(db: &Arc<Db>, direction: Direction, most: usize) -> (Vec<i64>, usize) {
    let t = table(db);
    run(db, |s| {
        let view = s.view(&t)?;
        Ok(waiting(s, &t, &view, direction, most))
    })
    .expect("a walk")
}

#[test]
fn a_queue_does_not_become_slower() {
    let world = queue(600, HistoryPolicy::Forever);
    let mut most_read = 0;
    for k in 1..=500 {
        let (found, read) = now(&world.db, Direction::Forward, 1);
        assert_eq!(found, [k]);
        most_read = most_read.max(read);
        set_a(&world.db, k, TAKEN);
    }
    assert!(most_read <= 48, "{most_read}");
    assert_sound(&world.db, "in the end");
    // Backward, and jobs that are deleted.
    for k in (551..=600).rev() {
        delete(&world.db, k);
    }
    assert_eq!(now(&world.db, Direction::Backward, 1).0, [550]);
    let (found, read) = now(&world.db, Direction::Backward, 1);
    assert_eq!((found, read <= 7), (vec![550], true), "{read}");
    let all: Vec<i64> = (501..=550).collect();
    assert_eq!(now(&world.db, Direction::Forward, 1000).0, all);
}

#[test]
fn the_past_is_read_whole() {
    let world = queue(200, HistoryPolicy::Forever);
    let t = table(&world.db);
    let old = world.db.begin(TxnOptions {
        isolation: Isolation::Snapshot,
        ..TxnOptions::default()
    });
    let old = old.expect("begin");
    let statement = old.begin_statement().expect("a statement");
    let before = statement.snapshot_ts();
    (1..=150).for_each(|k| set_a(&world.db, k, TAKEN));
    assert_eq!(now(&world.db, Direction::Forward, 1).0, [151]);
    assert!(now(&world.db, Direction::Forward, 1).1 <= 7);
    let all: Vec<i64> = (1..=200).collect();
    let view = statement.view(&t).expect("a view");
    assert_eq!(
        waiting(&statement, &t, &view, Direction::Forward, 1000).0,
        all
    );
    let walk = run(&world.db, |s| {
        let view = s.view_as_of(&t, before)?;
        Ok(waiting(s, &t, &view, Direction::Forward, 1000).0)
    });
    assert_eq!(walk.expect("as of"), all);
}

#[test]
fn jobs_that_come_back_are_found() {
    let world = queue(200, HistoryPolicy::Forever);
    (1..=150).for_each(|k| set_a(&world.db, k, TAKEN));
    now(&world.db, Direction::Forward, 1);
    assert!(now(&world.db, Direction::Forward, 1).1 <= 7);
    // Back under a key that it had, not committed, rolled back, and committed.
    let t = table(&world.db);
    let change = [(ColumnId(1), Value::BigInt(WAITING))];
    for is_committed in [false, true] {
        let txn = world.db.begin(TxnOptions::default()).expect("begin");
        let statement = txn.begin_statement().expect("a statement");
        statement
            .point_update(&t, 0, &[Value::BigInt(70)], &change)
            .expect("update");
        statement.finish().expect("no duplicate");
        assert_eq!(
            now(&world.db, Direction::Forward, 1).0,
            [151],
            "not committed"
        );
        let own = txn.begin_statement().expect("a statement");
        let view = own.view(&t).expect("a view");
        assert_eq!(waiting(&own, &t, &view, Direction::Forward, 2).0, [70, 151]);
        match is_committed {
            true => drop(txn.commit().expect("commit")),
            false => txn.rollback(),
        }
    }
    assert_eq!(now(&world.db, Direction::Forward, 2).0, [70, 151]);
    // New jobs among those that are gone: one, and by a load.
    set_a(&world.db, 70, TAKEN);
    now(&world.db, Direction::Forward, 1);
    insert(&world.db, &row(-1, WAITING, "x"));
    (2..=3).for_each(|k| delete(&world.db, k));
    now(&world.db, Direction::Forward, 1);
    now(&world.db, Direction::Forward, 2);
    assert!(now(&world.db, Direction::Forward, 2).1 <= 14);
    let t = table(&world.db);
    // As many as are put into columns at once.
    let mut rows = vec![(2, Some(WAITING), String::new())];
    rows.extend((1_000..9_000).map(|k| (k, None, String::new())));
    run(&world.db, |s| {
        let mut load = s.bulk_insert(&t)?;
        load.append(&batch(&rows))?;
        load.finish()
    })
    .expect("a load");
    assert_eq!(now(&world.db, Direction::Forward, 3).0, [-1, 2, 151]);
}

fn delete(db: &Arc<Db>, k: i64) {
    let t = table(db);
    run(db, |s| s.point_delete(&t, 0, &[Value::BigInt(k)])).expect("delete");
}

/// What a walk does not find is not dead: rows of later moments, and of open transactions.
#[test]
fn only_dead_entries_are_left_out() {
    let world = queue(100, HistoryPolicy::Forever);
    let t = table(&world.db);
    (1..=60).for_each(|k| set_a(&world.db, k, TAKEN));
    let taken = run(&world.db, |s| Ok(s.snapshot_ts())).expect("a moment");
    (1..=60).for_each(|k| set_a(&world.db, k, WAITING));
    let walk = run(&world.db, |s| {
        let view = s.view_as_of(&t, taken)?;
        Ok(waiting(s, &t, &view, Direction::Forward, 1).0)
    });
    assert_eq!(walk.expect("as of"), [61]);
    let all: Vec<i64> = (1..=100).collect();
    assert_eq!(now(&world.db, Direction::Forward, 1000).0, all);

    let txn = world.db.begin(TxnOptions::default()).expect("begin");
    let statement = txn.begin_statement().expect("a statement");
    let rows = (-9_000..=0).map(|k| (k, Some(WAITING), String::new()));
    let rows: Vec<_> = rows.collect();
    let mut load = statement.bulk_insert(&t).expect("a load");
    load.append(&batch(&rows)).expect("rows");
    load.finish().expect("the end");
    statement.finish().expect("no duplicate");
    assert_eq!(now(&world.db, Direction::Forward, 1).0, [1]);
    txn.commit().expect("commit");
    assert_eq!(now(&world.db, Direction::Forward, 2).0, [-9_000, -8_999]);
    let (found, _) = now(&world.db, Direction::Forward, 10_000);
    assert_eq!(found.len(), 9_101);
}

/// Jobs come, go and come back at random; each walk finds what a scan finds, at its moment.
#[test]
fn walks_find_what_scans_find() {
    for seed in 0..6 {
        let mut rng = Rng::new(seed);
        let world = queue(120, HistoryPolicy::Forever);
        let mut moments = Vec::new();
        for step in 0..400 {
            let k = rng.below(160) as i64;
            let t = table(&world.db);
            let found = run(&world.db, |s| {
                s.point_update(
                    &t,
                    0,
                    &[Value::BigInt(k)],
                    &[(
                        ColumnId(1),
                        Value::BigInt(match rng.below(8) {
                            0 => WAITING,
                            _ => TAKEN,
                        }),
                    )],
                )
            });
            if !found.expect("update") {
                insert(&world.db, &row(k, WAITING, "x"));
            }
            match step % 40 {
                7 => drop(world.db.checkpoint(true).expect("merge")),
                9 => moments.push(run(&world.db, |s| Ok(s.snapshot_ts())).expect("now")),
                _ => {}
            }
            let direction = match rng.below(2) {
                0 => Direction::Forward,
                _ => Direction::Backward,
            };
            let most = [1, 3, 1000][rng.below(3) as usize];
            let as_of = moments
                .get(rng.below(4 * moments.len() as u64 + 1) as usize)
                .copied();
            run(&world.db, |s| {
                let view = match as_of {
                    Some(ts) => s.view_as_of(&t, ts)?,
                    None => s.view(&t)?,
                };
                let (found, _) = waiting(s, &t, &view, direction, most);
                let mut expected: Vec<i64> = scanned_waiting(s, &t, as_of);
                expected.sort_unstable();
                if direction == Direction::Backward {
                    expected.reverse();
                }
                expected.truncate(most);
                assert_eq!(found, expected, "seed {seed}, step {step}, {as_of:?}");
                Ok(())
            })
            .expect("a walk");
        }
        assert_sound(&world.db, "in the end");
    }
}

/// The keys of the rows whose `a` is [`WAITING`], by a scan.
fn scanned_waiting(s: &Arc<Statement>, t: &Arc<TableDef>, as_of: Option<CommitTs>) -> Vec<i64> {
    let scan = match as_of {
        Some(ts) => s.scan_as_of(t, ts, request()),
        None => s.scan(t, request()),
    };
    let rows = scan_all(&scan.expect("a scan"));
    let waiting = rows.into_iter().filter(|(_, (a, _))| *a == Some(WAITING));
    waiting.map(|(k, _)| k).collect()
}
