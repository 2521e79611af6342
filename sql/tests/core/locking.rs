//! SELECT … FOR UPDATE and its kin.

use super::{database, fails, rows, run};
use strandline::{Connection, Database, SqlState};

/// Two tables; two sessions that give up waiting at once.
fn shop() -> (Database, Connection, Connection) {
    let database = database();
    let (mut a, mut b) = (database.connect(), database.connect());
    run(
        &mut a,
        &[
            "CREATE TABLE job (id int PRIMARY KEY, owner int, done boolean)",
            "INSERT INTO job SELECT g, g % 3, false FROM generate_series(1, 9) s(g)",
            "CREATE TABLE owner (id int, name text)",
            "INSERT INTO owner VALUES (0, 'zero'), (1, 'one'), (2, 'two')",
            "CREATE VIEW open_job AS SELECT id, owner FROM job WHERE NOT done",
        ],
    );
    run(&mut b, &["SET lock_timeout = '20ms'"]);
    (database, a, b)
}

/// The ids of the jobs that `c` can lock.
fn free(c: &mut Connection) -> String {
    let free = "SELECT id FROM job ORDER BY id FOR UPDATE SKIP LOCKED";
    rows(c, free).join(" ")
}

#[test]
fn rows_are_locked_until_the_transaction_ends() {
    let (_database, mut a, mut b) = shop();
    run(&mut a, &["BEGIN"]);
    let two = "SELECT id FROM job WHERE id IN (2, 5) ORDER BY id DESC FOR UPDATE";
    assert_eq!(rows(&mut a, two), ["5", "2"]);
    assert_eq!(free(&mut b), "1 3 4 6 7 8 9");
    let one = "SELECT id FROM job WHERE id = 2 FOR UPDATE";
    fails(&mut b, one, SqlState::LOCK_NOT_AVAILABLE);
    let message = fails(
        &mut b,
        "SELECT id FROM job WHERE id = 2 FOR UPDATE NOWAIT",
        SqlState::LOCK_NOT_AVAILABLE,
    );
    assert_eq!(message, "could not obtain lock on row in relation \"job\"");
    fails(
        &mut b,
        "UPDATE job SET owner = 7 WHERE id = 5",
        SqlState::LOCK_NOT_AVAILABLE,
    );
    // Reading takes no lock; what is locked may be changed by its owner.
    assert_eq!(rows(&mut b, "SELECT count(*) FROM job"), ["9"]);
    run(
        &mut a,
        &["UPDATE job SET done = true WHERE id = 2", "COMMIT"],
    );
    assert_eq!(free(&mut b), "1 2 3 4 5 6 7 8 9");
    // Outside a block locks end with the statement.
    assert_eq!(rows(&mut a, two), ["5", "2"]);
    assert_eq!(free(&mut b), "1 2 3 4 5 6 7 8 9");
    run(&mut a, &["BEGIN", "SAVEPOINT s"]);
    assert_eq!(rows(&mut a, two).len(), 2);
    run(&mut a, &["ROLLBACK TO s"]);
    assert_eq!(free(&mut b), "1 2 3 4 5 6 7 8 9");
}

#[test]
fn a_limit_locks_no_more_rows_than_it_returns() {
    let (_database, mut a, mut b) = shop();
    let next = "SELECT id FROM job ORDER BY id LIMIT 2 FOR UPDATE SKIP LOCKED";
    run(&mut a, &["BEGIN"]);
    assert_eq!(rows(&mut a, next), ["1", "2"]);
    run(&mut b, &["BEGIN"]);
    assert_eq!(rows(&mut b, next), ["3", "4"]);
    let mut c = _database.connect();
    assert_eq!(free(&mut c), "5 6 7 8 9");
    // Those that OFFSET passes over are locked, as in PostgreSQL.
    let offset = "SELECT id FROM job ORDER BY id LIMIT 1 OFFSET 1 FOR UPDATE SKIP LOCKED";
    assert_eq!(rows(&mut b, offset), ["4"]);
    let after = "SELECT id FROM job WHERE id > 6 ORDER BY id LIMIT $1 OFFSET 1 FOR UPDATE";
    let locked = b.query(after, (1i64,)).expect("a parameter");
    assert_eq!(locked.single::<i32>().expect("one row"), 8);
    assert_eq!(free(&mut c), "5 6 9");
}

#[test]
fn a_queue_hands_every_job_out_once() {
    let (_database, mut a, mut b) = shop();
    let take = "UPDATE job SET done = true WHERE id IN
        (SELECT id FROM job WHERE NOT done ORDER BY id LIMIT 2 FOR UPDATE SKIP LOCKED)
        RETURNING id";
    run(&mut a, &["BEGIN"]);
    run(&mut b, &["BEGIN"]);
    let sorted = |c: &mut Connection| {
        let mut taken = rows(c, take);
        taken.sort();
        taken.join(" ")
    };
    assert_eq!(sorted(&mut a), "1 2");
    assert_eq!(sorted(&mut b), "3 4");
    run(&mut b, &["ROLLBACK"]);
    assert_eq!(sorted(&mut b), "3 4");
    run(&mut a, &["COMMIT"]);
    let left = "SELECT id FROM job WHERE NOT done ORDER BY id";
    assert_eq!(rows(&mut b, left).join(" "), "5 6 7 8 9");
}

#[test]
fn of_names_what_is_locked_in_a_join() {
    let (database, mut a, mut b) = shop();
    let owners = "SELECT name FROM owner ORDER BY name FOR UPDATE SKIP LOCKED";
    let mut c = database.connect();
    run(&mut a, &["BEGIN"]);
    let both = "SELECT j.id, o.name FROM job j JOIN owner o ON o.id = j.owner WHERE j.id < 3
        ORDER BY j.id";
    let of_job = format!("{both} FOR UPDATE OF j");
    assert_eq!(rows(&mut a, &of_job), ["1|one", "2|two"]);
    assert_eq!(free(&mut b), "3 4 5 6 7 8 9");
    assert_eq!(rows(&mut b, owners).len(), 3);
    assert_eq!(rows(&mut a, &format!("{both} FOR NO KEY UPDATE")).len(), 2);
    assert_eq!(rows(&mut b, owners), ["zero"]);
    run(&mut a, &["ROLLBACK", "BEGIN"]);
    // Each with its own clause; `*` shows no hidden column.
    let each = "SELECT * FROM job j, owner o WHERE o.id = j.owner AND j.id = 4
        FOR UPDATE OF o FOR UPDATE OF j NOWAIT";
    assert_eq!(rows(&mut a, each), ["4|1|f|1|one"]);
    assert_eq!(free(&mut b), "1 2 3 5 6 7 8 9");
    assert_eq!(rows(&mut b, owners), ["two", "zero"]);
    run(&mut a, &["ROLLBACK", "BEGIN"]);
    // The rows of a table on the side of an outer join that has them all.
    let outer = "SELECT j.id, o.name FROM job j LEFT JOIN owner o ON o.id = j.id AND o.id = 1
        WHERE j.id < 3 ORDER BY j.id FOR UPDATE OF j";
    assert_eq!(rows(&mut a, outer), ["1|one", "2|NULL"]);
    assert_eq!(free(&mut c), "3 4 5 6 7 8 9");
}

#[test]
fn locks_reach_through_views_derived_tables_and_ctes_with_clauses() {
    let (_database, mut a, mut b) = shop();
    for (query, locked) in [
        (
            "SELECT * FROM open_job v WHERE id = 3 FOR UPDATE",
            "1 2 4 5 6 7 8 9",
        ),
        (
            "SELECT s.n FROM (SELECT id + 1 AS n, owner FROM job j) s WHERE n < 4 FOR UPDATE",
            "3 4 5 6 7 8 9",
        ),
        (
            "WITH job AS (SELECT id FROM job WHERE id > 6 FOR UPDATE)
             SELECT count(*) FROM job",
            "1 2 3 4 5 6",
        ),
        (
            "SELECT id FROM job
             WHERE id IN (WITH job AS (SELECT 4 AS id) SELECT id FROM job) FOR UPDATE",
            "1 2 3 5 6 7 8 9",
        ),
        (
            "WITH c AS (SELECT id FROM job WHERE id > 7 FOR UPDATE)
             SELECT count(*) FROM c",
            "1 2 3 4 5 6 7",
        ),
        (
            "WITH c AS (SELECT max(id) AS m FROM job)
             SELECT j.id FROM job j, c WHERE j.id = c.m FOR UPDATE",
            "1 2 3 4 5 6 7 8",
        ),
        (
            "SELECT id FROM job WHERE id IN (SELECT max(id) FROM job) FOR UPDATE",
            "1 2 3 4 5 6 7 8",
        ),
        (
            "SELECT id, _rowid IS NULL FROM job WHERE owner = 0 ORDER BY done, id LIMIT 1
             FOR UPDATE",
            "1 2 4 5 6 7 8 9",
        ),
        (
            "SELECT g FROM generate_series(1, 3) s(g) FOR UPDATE",
            "1 2 3 4 5 6 7 8 9",
        ),
        (
            "SELECT x.id, y.id FROM job x, job y WHERE x.id = 1 AND y.id = 2 FOR UPDATE OF y",
            "1 3 4 5 6 7 8 9",
        ),
        (
            "SELECT *, job.id + 1 FROM job JOIN owner USING (id) WHERE job.id = 1 FOR UPDATE",
            "2 3 4 5 6 7 8 9",
        ),
        (
            "SELECT s.id FROM (SELECT id FROM job ORDER BY id DESC LIMIT 2) s FOR SHARE",
            "1 2 3 4 5 6 7",
        ),
        (
            "SELECT EXISTS (SELECT 1 FROM job WHERE id = 6 FOR UPDATE)",
            "1 2 3 4 5 7 8 9",
        ),
    ] {
        run(&mut a, &["BEGIN"]);
        assert!(!rows(&mut a, query).is_empty(), "{query}");
        assert_eq!(free(&mut b), locked, "{query}");
        run(&mut a, &["ROLLBACK"]);
    }
    run(
        &mut a,
        &[
            "PREPARE p AS SELECT owner FROM job WHERE id = $1 FOR UPDATE",
            "BEGIN",
        ],
    );
    assert_eq!(rows(&mut a, "EXECUTE p(7)"), ["1"]);
    assert_eq!(free(&mut b), "1 2 3 4 5 6 8 9");
    let plan = rows(
        &mut a,
        "EXPLAIN SELECT * FROM job j LIMIT 3 FOR UPDATE SKIP LOCKED",
    );
    let shown = "LockRows: job FOR UPDATE SKIP LOCKED, fetch=3";
    assert!(plan.iter().any(|line| line.contains(shown)), "{plan:?}");
}

#[test]
fn a_row_that_changed_is_looked_at_again() {
    let (database, mut a, _) = shop();
    let mut b = database.connect();
    run(&mut a, &["BEGIN", "UPDATE job SET owner = 50 WHERE id = 3"]);
    let waiting = std::thread::spawn(move || {
        let found = rows(
            &mut b,
            "SELECT id, owner FROM job WHERE owner IN (0, 50) ORDER BY id FOR UPDATE",
        );
        run(&mut b, &["BEGIN ISOLATION LEVEL REPEATABLE READ"]);
        (b, found)
    });
    run(&mut a, &["COMMIT"]);
    let (mut b, found) = waiting.join().expect("no panic");
    assert_eq!(found, ["3|50", "6|0", "9|0"]);
    assert_eq!(rows(&mut b, "SELECT count(*) FROM job"), ["9"]);
    run(&mut a, &["UPDATE job SET owner = 51 WHERE id = 3"]);
    fails(
        &mut b,
        "SELECT id FROM job WHERE id = 3 FOR SHARE",
        SqlState::SERIALIZATION_FAILURE,
    );
}

#[test]
fn shared_locks_are_shared() {
    let (_database, mut a, mut b) = shop();
    for (mine, yours, can) in [
        ("FOR SHARE", "FOR SHARE", true),
        ("FOR KEY SHARE", "FOR SHARE", true),
        ("FOR SHARE", "FOR UPDATE", false),
        ("FOR NO KEY UPDATE", "FOR SHARE", false),
    ] {
        run(&mut a, &["BEGIN"]);
        rows(&mut a, &format!("SELECT * FROM job {mine}"));
        let found = rows(&mut b, &format!("SELECT * FROM job {yours} SKIP LOCKED"));
        assert_eq!(!found.is_empty(), can, "{mine}, then {yours}");
        fails(
            &mut b,
            "UPDATE job SET owner = 1",
            SqlState::LOCK_NOT_AVAILABLE,
        );
        run(&mut a, &["ROLLBACK"]);
    }
}

#[test]
fn what_cannot_be_locked_is_refused_in_postgresql_s_words() {
    let (_database, mut a, _) = shop();
    for (query, message) in [
        (
            "SELECT DISTINCT id FROM job FOR UPDATE",
            "FOR UPDATE is not allowed with DISTINCT clause",
        ),
        (
            "SELECT owner FROM job GROUP BY owner FOR SHARE",
            "FOR SHARE is not allowed with GROUP BY clause",
        ),
        (
            "SELECT 1 FROM job HAVING true FOR SHARE",
            "FOR SHARE is not allowed with HAVING clause",
        ),
        (
            "SELECT count(*) FROM job FOR KEY SHARE",
            "FOR KEY SHARE is not allowed with aggregate functions",
        ),
        (
            "SELECT row_number() OVER () FROM job FOR NO KEY UPDATE",
            "FOR NO KEY UPDATE is not allowed with window functions",
        ),
        (
            "SELECT id FROM job UNION ALL SELECT id FROM job FOR UPDATE",
            "FOR UPDATE is not allowed with UNION/INTERSECT/EXCEPT",
        ),
        (
            "VALUES (1) FOR UPDATE",
            "FOR UPDATE cannot be applied to VALUES",
        ),
        (
            "SELECT * FROM (SELECT count(*) FROM job) s FOR UPDATE",
            "FOR UPDATE is not allowed with aggregate functions",
        ),
        (
            "SELECT * FROM job j LEFT JOIN owner o ON true FOR UPDATE",
            "FOR UPDATE cannot be applied to the nullable side of an outer join",
        ),
        (
            "WITH c AS (SELECT 1) SELECT * FROM job, c FOR UPDATE OF c",
            "FOR UPDATE cannot be applied to a WITH query",
        ),
        (
            "SELECT * FROM job, generate_series(1, 2) g FOR UPDATE OF g",
            "FOR UPDATE cannot be applied to a function",
        ),
        (
            "SELECT * FROM job FOR SYSTEM_TIME AS OF now() FOR UPDATE",
            "FOR UPDATE cannot be applied to the past of a table",
        ),
        (
            "SELECT * FROM job FOR SYSTEM_TIME BETWEEN now() AND now() FOR UPDATE",
            "FOR UPDATE cannot be applied to the past of a table",
        ),
        (
            "CREATE VIEW v AS SELECT * FROM job FOR UPDATE",
            "FOR UPDATE in a view is not supported",
        ),
    ] {
        let text = fails(&mut a, query, SqlState::FEATURE_NOT_SUPPORTED);
        assert!(text.contains(message), "{query}: {text}");
    }
    assert_eq!(
        fails(
            &mut a,
            "SELECT * FROM job j FOR UPDATE OF job",
            SqlState::UNDEFINED_TABLE
        ),
        "relation \"job\" in FOR UPDATE clause not found in FROM clause"
    );
    let qualified = "SELECT * FROM public.job FOR UPDATE OF public.job";
    assert_eq!(
        fails(&mut a, qualified, SqlState::SYNTAX_ERROR),
        "FOR UPDATE must specify unqualified relation names"
    );
    let read_only = SqlState::READ_ONLY_SQL_TRANSACTION;
    run(&mut a, &["BEGIN READ ONLY"]);
    let refused = fails(&mut a, "SELECT * FROM job FOR SHARE", read_only);
    assert_eq!(
        refused,
        "cannot execute SELECT FOR SHARE in a read-only transaction"
    );
    run(&mut a, &["ROLLBACK"]);
}
