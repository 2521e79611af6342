//! What a failed statement leaves of its transaction block: locks and rows end at the error, not
//! when the client says ROLLBACK.

use super::{database, fails, rows, run};
use strandline::{Connection, Database, Error, SqlState, Started, TransactionStatus, Value};
use strandline_base::Result;

const ABORTED: SqlState = SqlState::IN_FAILED_SQL_TRANSACTION;

/// A table of three rows, and two sessions that give up waiting some time.
fn sessions() -> (Database, Connection, Connection) {
    let database = database();
    let (mut a, mut b) = (database.connect(), database.connect());
    run(
        &mut a,
        &[
            "CREATE TABLE t (id int PRIMARY KEY, n int)",
            "INSERT INTO t VALUES (1, 0), (2, 0), (3, 0)",
        ],
    );
    for session in [&mut a, &mut b] {
        run(session, &["SET lock_timeout = '20s'"]);
    }
    (database, a, b)
}

fn no_waiting(session: &mut Connection) {
    run(session, &["SET lock_timeout = '20ms'"]);
}

fn add(session: &mut Connection, id: i32) -> Result<u64> {
    session.execute("UPDATE t SET n = n + 1 WHERE id = $1", (id,))
}

#[test]
fn the_survivor_of_a_deadlock_goes_on_before_the_victim_ends_its_block() {
    for row_executor in [true, false] {
        let (_database, mut a, mut b) = sessions();
        for session in [&mut a, &mut b] {
            session.use_row_executor(row_executor);
        }
        run(&mut a, &["BEGIN"]);
        run(&mut b, &["BEGIN"]);
        assert_eq!(add(&mut a, 1).expect("free"), 1);
        assert_eq!(add(&mut b, 2).expect("free"), 1);
        let (mine, theirs) = std::thread::scope(|scope| {
            let theirs = scope.spawn(|| add(&mut b, 1));
            (add(&mut a, 2), theirs.join().expect("no panic"))
        });
        let failed: Vec<&Error> = [&mine, &theirs]
            .into_iter()
            .filter_map(|r| r.as_ref().err())
            .collect();
        let states: Vec<SqlState> = failed.iter().map(|e| e.sqlstate()).collect();
        assert_eq!(states, [SqlState::DEADLOCK_DETECTED], "{failed:?}");
        let (survivor, victim) = match mine {
            Ok(_) => (&mut a, &mut b),
            Err(_) => (&mut b, &mut a),
        };
        let done = survivor.execute_script("COMMIT").expect("commits");
        assert_eq!(done[0].command_tag(), "COMMIT");
        assert_eq!(victim.transaction_status(), TransactionStatus::Failed);
        fails(victim, "SELECT 1", ABORTED);
        let done = victim.execute_script("COMMIT").expect("ends");
        assert_eq!(done[0].command_tag(), "ROLLBACK");
        assert_eq!(rows(victim, "SELECT n FROM t ORDER BY id"), ["1", "1", "0"]);
    }
}

#[test]
fn rows_keys_and_definitions_are_free_at_the_error() {
    let (_database, mut a, mut b) = sessions();
    no_waiting(&mut b);
    run(
        &mut a,
        &[
            "BEGIN",
            "UPDATE t SET n = 7 WHERE id = 1",
            "INSERT INTO t VALUES (4, 4)",
            "SELECT n FROM t WHERE id = 3 FOR UPDATE",
            "ALTER TABLE t ADD COLUMN extra text",
            "CREATE TABLE u (a int)",
        ],
    );
    fails(&mut b, "UPDATE t SET n = 1", SqlState::LOCK_NOT_AVAILABLE);
    fails(&mut a, "SELECT 1 / 0", SqlState::DIVISION_BY_ZERO);
    run(
        &mut b,
        &[
            "UPDATE t SET n = n + 1",
            "INSERT INTO t VALUES (4, 40)",
            "ALTER TABLE t ADD COLUMN other text",
            "CREATE TABLE u (b text)",
        ],
    );
    let all = "SELECT * FROM t ORDER BY id";
    let after = ["1|1|NULL", "2|1|NULL", "3|1|NULL", "4|40|NULL"];
    assert_eq!(rows(&mut b, all), after);
    fails(&mut a, all, ABORTED);
    run(&mut a, &["ROLLBACK"]);
    assert_eq!(rows(&mut a, all), after);
}

#[test]
fn an_error_after_a_savepoint_ends_the_locks_taken_since() {
    let (_database, mut a, mut b) = sessions();
    no_waiting(&mut b);
    run(
        &mut a,
        &[
            "BEGIN",
            "UPDATE t SET n = 1 WHERE id = 1",
            "SAVEPOINT s",
            "UPDATE t SET n = 2 WHERE id = 2",
            "SELECT n FROM t WHERE id = 3 FOR SHARE",
            "INSERT INTO t VALUES (4, 4)",
        ],
    );
    fails(&mut a, "SELECT nothing", SqlState::UNDEFINED_COLUMN);
    let first = "UPDATE t SET n = 9 WHERE id = 1";
    fails(&mut b, first, SqlState::LOCK_NOT_AVAILABLE);
    run(
        &mut b,
        &[
            "UPDATE t SET n = 9 WHERE id IN (2, 3)",
            "INSERT INTO t VALUES (4, 9)",
        ],
    );
    fails(&mut a, "SELECT n FROM t", ABORTED);
    run(
        &mut a,
        &[
            "ROLLBACK TO s",
            "UPDATE t SET n = n + 1 WHERE id IN (1, 2)",
            "COMMIT",
        ],
    );
    let all = "SELECT id, n FROM t ORDER BY id";
    assert_eq!(rows(&mut b, all), ["1|2", "2|10", "3|9", "4|9"]);
}

/// Of a savepoint that has been released the one outside holds.
#[test]
fn an_error_after_a_release_goes_back_to_the_outer_savepoint() {
    let (_database, mut a, mut b) = sessions();
    no_waiting(&mut b);
    run(
        &mut a,
        &[
            "BEGIN",
            "SAVEPOINT outer_one",
            "UPDATE t SET n = 1 WHERE id = 1",
            "SAVEPOINT inner_one",
            "UPDATE t SET n = 2 WHERE id = 2",
            "RELEASE inner_one",
        ],
    );
    fails(&mut a, "ROLLBACK TO inner_one", SqlState::INVALID_SAVEPOINT);
    run(&mut b, &["UPDATE t SET n = 9"]);
    run(&mut a, &["ROLLBACK TO outer_one", "COMMIT"]);
    assert_eq!(rows(&mut a, "SELECT n FROM t"), ["9", "9", "9"]);
}

#[test]
fn a_definition_changed_after_a_savepoint_is_free_at_the_error() {
    let (_database, mut a, mut b) = sessions();
    no_waiting(&mut b);
    run(
        &mut a,
        &[
            "BEGIN",
            "UPDATE t SET n = 1 WHERE id = 1",
            "SAVEPOINT s",
            "CREATE TABLE u (a int)",
            "ALTER TABLE t ADD COLUMN extra text",
            "INSERT INTO t VALUES (4, 4, 'four')",
        ],
    );
    let write = "UPDATE t SET n = 9 WHERE id = 2";
    fails(&mut b, write, SqlState::LOCK_NOT_AVAILABLE);
    fails(&mut a, "SELEC", SqlState::SYNTAX_ERROR);
    run(&mut b, &[write, "CREATE TABLE u (b text)"]);
    // It is still a writer of the table.
    let alter = "ALTER TABLE t ADD COLUMN other text";
    fails(&mut b, alter, SqlState::LOCK_NOT_AVAILABLE);
    run(&mut a, &["ROLLBACK TO s"]);
    fails(&mut a, "CREATE TABLE u (a int)", SqlState("42P07"));
    run(
        &mut a,
        &[
            "ROLLBACK TO s",
            "ALTER TABLE t ADD COLUMN extra int DEFAULT 5",
            "COMMIT",
        ],
    );
    let all = "SELECT * FROM t ORDER BY id";
    assert_eq!(rows(&mut b, all), ["1|1|5", "2|9|5", "3|0|5"]);
}

/// Whether it has begun to wait or not, the other session gets the row while the block is open;
/// then the block may wait for the other session, which is no deadlock.
#[test]
fn a_waiter_gets_what_a_savepoint_gives_back() {
    for back in ["ROLLBACK TO s", "SELECT 1 / 0"] {
        let (_database, mut a, mut b) = sessions();
        run(&mut a, &["BEGIN", "SAVEPOINT s"]);
        assert_eq!(add(&mut a, 1).expect("free"), 1);
        std::thread::scope(|scope| {
            let theirs = scope.spawn(|| {
                run(&mut b, &["BEGIN"]);
                add(&mut b, 2).expect("free");
                add(&mut b, 1).expect("let go of");
                run(&mut b, &["COMMIT"]);
            });
            let _division = a.execute(back, ());
            run(&mut a, &["ROLLBACK TO s"]);
            add(&mut a, 2).expect("after the other one's commit, or before");
            run(&mut a, &["COMMIT"]);
            theirs.join().expect("no panic");
        });
        let all = "SELECT n FROM t ORDER BY id";
        assert_eq!(rows(&mut a, all), ["1", "2", "0"], "{back}");
    }
}

#[test]
fn a_failed_point_transaction_holds_nothing() {
    let (_database, mut a, mut b) = sessions();
    no_waiting(&mut b);
    let t = a.table("t").expect("there");
    let n = t.column("n").expect("there");
    let key = |id| [Value::Integer(id)];
    let set = [(n, Value::Integer(5))];
    for joined in [false, true] {
        if joined {
            run(&mut a, &["BEGIN"]);
        }
        let mut transaction = a.transaction().expect("begins");
        assert!(transaction.update(&t, &key(1), &set).expect("free"));
        let twice = [Value::Integer(2), Value::Integer(2)];
        let error = transaction.insert(&t, &twice).expect_err("taken");
        assert_eq!(error.sqlstate(), SqlState::UNIQUE_VIOLATION);
        assert_eq!(add(&mut b, 1).expect("free again"), 1);
        let error = transaction.update(&t, &key(3), &set).expect_err("failed");
        assert_eq!(error.sqlstate(), ABORTED);
        let error = transaction.commit().expect_err("failed");
        assert_eq!(error.sqlstate(), ABORTED);
        if joined {
            assert_eq!(a.transaction_status(), TransactionStatus::Failed);
            run(&mut a, &["ROLLBACK"]);
        }
    }
    assert_eq!(rows(&mut a, "SELECT n FROM t ORDER BY id"), ["2", "0", "0"]);
}

#[test]
fn rows_left_of_a_query_end_with_its_block() {
    let (_database, mut a, _b) = sessions();
    for (end, state) in [("SELECT 1 / 0", ABORTED), ("COMMIT", SqlState("34000"))] {
        run(&mut a, &["BEGIN"]);
        let query = "SELECT * FROM generate_series(1, 50000)";
        let query = a.prepare_typed(query, &[]).expect("prepares");
        let Started::Rows(mut running) = a.start(&query, &[]).expect("starts") else {
            panic!("rows")
        };
        a.next_batch(&mut running).expect("pulls").expect("rows");
        let _division = a.execute(end, ());
        let error = a.next_batch(&mut running).expect_err("over");
        assert_eq!(error.sqlstate(), state, "{end}");
        let _none = a.execute("ROLLBACK", ());
    }
}
