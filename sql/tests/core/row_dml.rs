//! The row executor's expressions, rows and locks: each statement must run there, with the full
//! path's result.

use super::{database, fails, lines, rows, run};
use datafusion::scalar::ScalarValue;
use strandline::{Connection, Database, Prepared, SqlState, SqlType};

fn counter(database: &Database, name: &str) -> u64 {
    let counters = database.counters();
    let found = counters.iter().find(|(known, _)| *known == name);
    found.expect("a counter").1
}

fn point_runs(database: &Database) -> u64 {
    counter(database, "statements_point")
}

fn int(v: i32) -> ScalarValue {
    ScalarValue::Int32(Some(v))
}

fn text(v: &str) -> ScalarValue {
    ScalarValue::from(v)
}

fn prepared(c: &mut Connection, sql: &str) -> Prepared {
    let prepared = c.prepare_typed(sql, &[]);
    prepared.unwrap_or_else(|error| panic!("{sql}: {error:?}"))
}

/// The tag and the rows of a prepared statement.
fn ran(c: &mut Connection, statement: &Prepared, values: &[ScalarValue]) -> String {
    match c.run_prepared(statement, values) {
        Ok(summary) => {
            let rows = summary.result().map(lines);
            format!("{} {rows:?}", summary.command_tag())
        }
        Err(error) => format!("{} {}", error.sqlstate().0, error.message()),
    }
}

const ITEMS: &[&str] = &[
    "CREATE TABLE item (id int PRIMARY KEY, a int, n numeric(8,2), s text, c char(4), \
     d date DEFAULT date '2024-01-31' + 1, at timestamptz, u varchar(6))",
    "CREATE INDEX item_a ON item (a, id)",
    "INSERT INTO item (id, a, n, s, c, u) SELECT i, i % 4, i * 1.25, 's' || i, 'c' || i, 'u' || i \
     FROM generate_series(1, 20) AS g(i)",
    "UPDATE item SET a = NULL, s = NULL WHERE id = 7",
];

/// Statements of applications, with their values.
fn statements() -> Vec<(&'static str, Vec<ScalarValue>)> {
    vec![
        (
            "UPDATE item SET a = CASE WHEN a > $1 THEN 0 ELSE a + 1 END WHERE id = $2",
            vec![int(2), int(3)],
        ),
        (
            "UPDATE item SET n = round(n * 1.1, 1), c = upper(c) WHERE id IN ($1, $2) RETURNING *",
            vec![int(4), int(7)],
        ),
        (
            "UPDATE item SET s = s || $1, u = left(s, 3) WHERE a = $2 AND id % 2 = $3",
            vec![text("!"), int(1), int(1)],
        ),
        (
            "UPDATE item SET (a, s) = (a * 2, coalesce(s, $1)) WHERE a BETWEEN $2 AND $3 \
             RETURNING id, a + 1 AS next, length(s), s || u",
            vec![text("none"), int(1), int(2)],
        ),
        (
            "INSERT INTO item (id, a, s) VALUES ($1, $2 + 1, lower($3)), ($1 + 1, $2 * 2, $3 || 'x') \
             RETURNING id, upper(s), d, d + 1 AS tomorrow",
            vec![int(100), int(5), text("Ab")],
        ),
        (
            "INSERT INTO item (id, a, s) VALUES ($1, 1, 'p'), ($2, 2, 'q'), ($3, 3, 'r') \
             ON CONFLICT (id) DO UPDATE SET s = item.s || excluded.s, a = item.a + excluded.a \
             WHERE item.a IS NOT NULL RETURNING id, a, s || '.'",
            vec![int(2), int(7), int(200)],
        ),
        (
            "INSERT INTO item (id, a) VALUES ($1, 1), ($1, 2), ($2, 3) ON CONFLICT DO NOTHING \
             RETURNING id, a",
            vec![int(300), int(2)],
        ),
        (
            "INSERT INTO item (id, a) VALUES ($1, 1), ($1, 2) \
             ON CONFLICT (id) DO UPDATE SET a = excluded.a",
            vec![int(300)],
        ),
        (
            "SELECT upper(s), n * 2 AS double, c || '|', a FROM item WHERE id = $1",
            vec![int(9)],
        ),
        (
            "SELECT id, a + $1, coalesce(s, $2) FROM item WHERE a = $3 ORDER BY id LIMIT 3",
            vec![int(10), text("none"), int(3)],
        ),
        (
            "SELECT id, s FROM item WHERE id IN ($1, $2, $3) AND (n > 4 OR s LIKE $4) ORDER BY id",
            vec![int(1), int(2), int(9), text("s1%")],
        ),
        (
            "SELECT id, n::text FROM item WHERE id = $1 FOR UPDATE",
            vec![int(9)],
        ),
        (
            "SELECT id FROM item WHERE a = $1 AND length(u) = 2 ORDER BY id DESC LIMIT 2 FOR SHARE",
            vec![int(1)],
        ),
        (
            "DELETE FROM item WHERE a = $1 AND n / 2 > 5 RETURNING id, n / 2",
            vec![int(3)],
        ),
        (
            "DELETE FROM item WHERE id = ANY($1) AND c <> 'C4' RETURNING id",
            vec![text("{1,4,5,NULL}")],
        ),
        // What fails is reported by the full path, and leaves nothing behind.
        (
            "UPDATE item SET a = 10 / (id - 8) WHERE id IN ($1, $2, $3)",
            vec![int(6), int(8), int(10)],
        ),
        (
            "UPDATE item SET u = u || 'too long' WHERE id = $1",
            vec![int(9)],
        ),
        (
            "UPDATE item SET id = NULL WHERE id + 0 = $1 AND id = $1",
            vec![int(9)],
        ),
    ]
}

#[test]
fn statements_of_applications_give_the_full_path_s_results() {
    let (fast, full) = (database(), database());
    let (mut a, mut b) = (fast.connect(), full.connect());
    b.use_row_executor(false);
    run(&mut a, ITEMS);
    run(&mut b, ITEMS);
    for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        for (sql, values) in statements() {
            let (x, y) = (prepared(&mut a, sql), prepared(&mut b, sql));
            for block in [false, true] {
                let before = point_runs(&fast);
                let outcome = |c: &mut Connection, statement: &Prepared| {
                    if block {
                        run(
                            c,
                            &[&format!("BEGIN ISOLATION LEVEL {level}"), "SAVEPOINT s"],
                        );
                    }
                    let outcome = ran(c, statement, &values);
                    let state = match block {
                        true => {
                            let all = "SELECT * FROM item ORDER BY id";
                            let changed = c.query(all, ()).map(|result| lines(&result)).ok();
                            run(c, &["ROLLBACK TO s"]);
                            let left = rows(c, all);
                            run(c, &["ROLLBACK"]);
                            (changed, left)
                        }
                        false => (None, Vec::new()),
                    };
                    (outcome, state)
                };
                let (fast_one, full_one) = (outcome(&mut a, &x), outcome(&mut b, &y));
                assert_eq!(fast_one, full_one, "{level} {block}: {sql}");
                let failed = fast_one.0.as_bytes()[0].is_ascii_digit();
                let expected = before + u64::from(!failed);
                assert_eq!(
                    point_runs(&fast),
                    expected,
                    "{level} {block}: {sql}: {fast_one:?}"
                );
            }
        }
        for c in [&mut a, &mut b] {
            run(c, &["DROP TABLE item"]);
            run(c, ITEMS);
        }
    }
}

#[test]
fn values_of_parameters_decide_nothing_but_the_result() {
    let database = database();
    let mut c = database.connect();
    run(&mut c, ITEMS);
    let get = prepared(&mut c, "SELECT a + $1, s || $2 FROM item WHERE id = $3");
    let ask = |c: &mut Connection, values: [ScalarValue; 3]| ran(c, &get, &values);
    assert_eq!(
        ask(&mut c, [int(5), text("x"), int(6)]),
        "SELECT 1 Some([\"7|s6x\"])"
    );
    let null = ScalarValue::Int32(None);
    assert_eq!(
        ask(&mut c, [null, text(""), int(6)]),
        "SELECT 1 Some([\"NULL|s6\"])"
    );
    assert_eq!(
        ask(&mut c, [int(5), ScalarValue::Null, int(7)]),
        "SELECT 1 Some([\"NULL|NULL\"])"
    );
    assert_eq!(
        ask(&mut c, [int(5), text("x"), int(99)]),
        "SELECT 0 Some([])"
    );
    let most = ask(&mut c, [int(i32::MAX), text("x"), int(6)]);
    assert_eq!(most, "22003 integer out of range");
}

#[test]
fn now_is_the_transaction_s() {
    let database = database();
    let mut c = database.connect();
    run(&mut c, ITEMS);
    let set = prepared(
        &mut c,
        "UPDATE item SET at = now() - interval '1 hour' WHERE id = $1 \
         RETURNING at + interval '1 hour' = now()",
    );
    let before = point_runs(&database);
    run(&mut c, &["BEGIN"]);
    for id in [1, 2] {
        assert_eq!(ran(&mut c, &set, &[int(id)]), "UPDATE 1 Some([\"t\"])");
    }
    assert_eq!(point_runs(&database), before + 2);
    let sql = "SELECT count(DISTINCT at), bool_and(at = now() - interval '1 hour') FROM item \
               WHERE at IS NOT NULL";
    assert_eq!(rows(&mut c, sql), ["1|t"]);
    run(&mut c, &["COMMIT"]);
    assert_eq!(ran(&mut c, &set, &[int(3)]), "UPDATE 1 Some([\"t\"])");
}

#[test]
fn texts_with_other_numbers_share_compiled_expressions() {
    let database = database();
    let mut c = database.connect();
    run(&mut c, ITEMS);
    let mut before = (0, 0);
    for i in 0..20 {
        if i == 3 {
            before = (
                counter(&database, "statements_parsed"),
                point_runs(&database),
            );
        }
        let sql =
            format!("SELECT CASE WHEN id > {i} THEN id * {i} ELSE -{i} END FROM item WHERE id = 9");
        let expected = if 9 > i { 9 * i } else { -i };
        assert_eq!(rows(&mut c, &sql), [expected.to_string()]);
    }
    assert_eq!(counter(&database, "statements_parsed"), before.0);
    assert_eq!(point_runs(&database), before.1 + 17);
    // Another type of literal is another meaning.
    let wide = "SELECT CASE WHEN id > 3000000000 THEN id * 1 ELSE -2 END FROM item WHERE id = 9";
    assert_eq!(rows(&mut c, wide), ["-2"]);
}

#[test]
fn what_depends_on_more_is_left_to_the_full_path() {
    let database = database();
    let mut c = database.connect();
    run(&mut c, ITEMS);
    for sql in [
        "SELECT random() >= 0 FROM item WHERE id = 1",
        "SELECT (SELECT max(id) FROM item) FROM item WHERE id = 1",
        "SELECT id IN (SELECT 1) FROM item WHERE id = 1",
        "SELECT current_user IS NULL FROM item WHERE id = 1",
        "SELECT id FROM item WHERE id = 1 AND EXISTS (SELECT 1)",
        "SELECT unnest(ARRAY[id, 2]) FROM item WHERE id = 1",
        "SELECT row_number() OVER () FROM item WHERE id = 1",
        "SELECT _rowid FROM item WHERE id = 1",
        "SELECT tableoid::regclass FROM item WHERE id = 1",
        "UPDATE item SET s = (SELECT 'x') WHERE id = 1",
        "INSERT INTO item (id, a) VALUES (400, (SELECT 1))",
        "SELECT id FROM item WHERE id = 1 FOR UPDATE OF item FOR SHARE",
    ] {
        let before = point_runs(&database);
        c.execute(sql, ()).unwrap_or_else(|e| panic!("{sql}: {e}"));
        assert_eq!(point_runs(&database), before, "{sql}");
    }
}

#[test]
fn keys_and_references_are_checked_when_all_rows_are_there() {
    let database = database();
    let mut c = database.connect();
    run(
        &mut c,
        &[
            "CREATE TABLE node (id int PRIMARY KEY, parent int REFERENCES node, rank int UNIQUE)",
            "INSERT INTO node VALUES (1, NULL, 1), (2, 1, 2)",
        ],
    );
    let put = prepared(
        &mut c,
        "INSERT INTO node VALUES ($1, 9, 7), (2, 1, 1), (9, 9, 9), (1, 9, 2) \
         ON CONFLICT (id) DO UPDATE SET parent = excluded.parent, rank = excluded.rank + 0",
    );
    let before = point_runs(&database);
    assert_eq!(ran(&mut c, &put, &[int(5)]), "INSERT 0 4 None");
    assert_eq!(point_runs(&database), before + 1);
    let all = "SELECT * FROM node ORDER BY id";
    assert_eq!(rows(&mut c, all), ["1|9|2", "2|1|1", "5|9|7", "9|9|9"]);
    let swap = prepared(
        &mut c,
        "UPDATE node SET rank = 3 - rank WHERE id IN ($1, $2)",
    );
    assert_eq!(ran(&mut c, &swap, &[int(1), int(2)]), "UPDATE 2 None");
    assert_eq!(rows(&mut c, all), ["1|9|1", "2|1|2", "5|9|7", "9|9|9"]);
    let orphan = prepared(
        &mut c,
        "INSERT INTO node VALUES (1, 77, 1), ($1, NULL, 70) \
         ON CONFLICT (id) DO UPDATE SET parent = excluded.parent + 0",
    );
    let refused = ran(&mut c, &orphan, &[int(50)]);
    assert!(refused.starts_with("23503"), "{refused}");
    assert_eq!(rows(&mut c, all), ["1|9|1", "2|1|2", "5|9|7", "9|9|9"]);
}

#[test]
fn definitions_and_rights_may_change_between_executions() {
    let database = database();
    let mut c = database.connect();
    run(&mut c, ITEMS);
    run(
        &mut c,
        &[
            "CREATE USER ann PASSWORD 'x'",
            "GRANT SELECT, UPDATE ON item TO ann",
        ],
    );
    let mut ann = database.connect_as("ann").expect("connects");
    let lock = prepared(
        &mut ann,
        "SELECT upper(s) FROM item WHERE id = $1 FOR UPDATE",
    );
    let add = prepared(
        &mut ann,
        "UPDATE item SET n = n + length(s) WHERE id IN ($1, 99)",
    );
    let read = prepared(&mut ann, "SELECT upper(s) FROM item WHERE id = $1");
    let before = point_runs(&database);
    let one = |c: &mut Connection, statement: &Prepared| ran(c, statement, &[int(1)]);
    assert_eq!(one(&mut ann, &lock), "SELECT 1 Some([\"S1\"])");
    assert_eq!(one(&mut ann, &add), "UPDATE 1 None");
    assert_eq!(one(&mut ann, &read), "SELECT 1 Some([\"S1\"])");
    assert_eq!(point_runs(&database), before + 3);
    run(&mut c, &["REVOKE UPDATE ON item FROM ann"]);
    let denied = "42501 permission denied for table item";
    assert_eq!(one(&mut ann, &lock), denied);
    assert_eq!(one(&mut ann, &add), denied);
    assert_eq!(one(&mut ann, &read), "SELECT 1 Some([\"S1\"])");
    run(&mut c, &["GRANT UPDATE ON item TO ann"]);
    run(
        &mut c,
        &["ALTER TABLE item ADD CONSTRAINT small CHECK (id > 1 OR n < 5)"],
    );
    // It was 1.25 and is 3.25 after the first execution.
    assert!(one(&mut ann, &add).starts_with("23514"));
    run(
        &mut c,
        &[
            "ALTER TABLE item DROP CONSTRAINT small",
            "DROP INDEX item_a",
        ],
    );
    assert_eq!(one(&mut ann, &add), "UPDATE 1 None");
    run(
        &mut c,
        &[
            "ALTER TABLE item DROP COLUMN s",
            "ALTER TABLE item ADD COLUMN s text DEFAULT 'new'",
        ],
    );
    assert_eq!(one(&mut ann, &read), "SELECT 1 Some([\"NEW\"])");
    run(&mut c, &["REVOKE SELECT ON item FROM ann"]);
    assert_eq!(one(&mut ann, &read), denied);
    run(&mut c, &["DROP TABLE item"]);
    assert!(one(&mut ann, &read).starts_with("42P01"));
}

#[test]
fn a_lock_is_waited_for_refused_or_passed_over() {
    let database = database();
    let (mut a, mut b) = (database.connect(), database.connect());
    run(&mut a, ITEMS);
    let next = "SELECT id, a FROM item WHERE a = $1 ORDER BY id LIMIT 2 FOR UPDATE SKIP LOCKED";
    let next = prepared(&mut b, next);
    let at_once = prepared(
        &mut b,
        "SELECT id FROM item WHERE id = $1 FOR NO KEY UPDATE NOWAIT",
    );
    let shared = prepared(&mut b, "SELECT id FROM item WHERE id IN ($1, $2) FOR SHARE");
    let before = point_runs(&database);
    run(
        &mut a,
        &["BEGIN", "SELECT s FROM item WHERE id = 5 FOR UPDATE"],
    );
    assert_eq!(point_runs(&database), before + 1);
    assert_eq!(
        ran(&mut b, &next, &[int(1)]),
        "SELECT 2 Some([\"1|1\", \"9|1\"])"
    );
    assert_eq!(point_runs(&database), before + 2);
    let refused = "55P03 could not obtain lock on row in relation \"item\"";
    assert_eq!(ran(&mut b, &at_once, &[int(5)]), refused);
    assert_eq!(ran(&mut b, &at_once, &[int(6)]), "SELECT 1 Some([\"6\"])");
    run(&mut b, &["SET lock_timeout = '20ms'", "BEGIN"]);
    assert!(ran(&mut b, &shared, &[int(5), int(6)]).starts_with("55P03"));
    fails(&mut b, "SELECT 1", SqlState::IN_FAILED_SQL_TRANSACTION);
    run(&mut b, &["ROLLBACK", "RESET lock_timeout", "BEGIN"]);
    assert_eq!(
        ran(&mut b, &shared, &[int(6), int(7)]),
        "SELECT 2 Some([\"6\", \"7\"])"
    );
    run(&mut a, &["SET lock_timeout = '20ms'"]);
    fails(
        &mut a,
        "UPDATE item SET a = a * 2 WHERE id = 7",
        SqlState::LOCK_NOT_AVAILABLE,
    );
    run(&mut a, &["ROLLBACK"]);
    run(&mut b, &["COMMIT"]);
    // A read-only transaction takes no locks.
    run(&mut b, &["BEGIN READ ONLY"]);
    let message = ran(&mut b, &next, &[int(1)]);
    assert_eq!(
        message,
        "25006 cannot execute SELECT FOR UPDATE in a read-only transaction"
    );
    run(&mut b, &["ROLLBACK"]);
}

/// Runs `work` on 8 threads, each with a connection of its own, and no statement of it on the full
/// path.
fn without_plans(database: &Database, work: impl Fn(i32, &mut Connection) + Sync) {
    let work = &work;
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let database = database.clone();
            scope.spawn(move || work(thread, &mut database.connect()));
        }
    });
}

#[test]
fn a_statement_that_waited_runs_again_without_a_plan() {
    let database = database();
    let mut c = database.connect();
    run(
        &mut c,
        &[
            "CREATE TABLE hot (id int PRIMARY KEY, n int NOT NULL, s text DEFAULT '')",
            "INSERT INTO hot (id, n) VALUES (1, 0), (2, 0), (3, 0)",
        ],
    );
    let planned = counter(&database, "statements_planned");
    let before = point_runs(&database);
    without_plans(&database, |thread, c| {
        let both = "UPDATE hot SET n = CASE WHEN n < 0 THEN 0 ELSE n + $1 END WHERE id IN ($2, 2)";
        let both = prepared(c, both);
        let put = "INSERT INTO hot (id, n) VALUES ($1, 1), (3, 1) ON CONFLICT (id) \
                   DO UPDATE SET n = hot.n + excluded.n, s = left(hot.s || 'x', 5)";
        let put = prepared(c, put);
        let look = prepared(c, "SELECT n + 0 FROM hot WHERE id = $1 FOR UPDATE");
        let set = prepared(c, "UPDATE hot SET n = $1 WHERE id = $2");
        for _ in 0..20 {
            assert_eq!(ran(c, &both, &[int(1), int(1)]), "UPDATE 2 None");
            assert_eq!(ran(c, &put, &[int(10 + thread)]), "INSERT 0 2 None");
            run(c, &["BEGIN"]);
            let found = c.run_prepared(&look, &[int(2)]).expect("locks");
            let found = found.result().expect("rows").single::<i32>().expect("one");
            assert_eq!(ran(c, &set, &[int(found + 1), int(2)]), "UPDATE 1 None");
            run(c, &["COMMIT"]);
        }
    });
    assert_eq!(point_runs(&database), before + 8 * 20 * 4);
    assert_eq!(counter(&database, "statements_planned"), planned);
    let all = "SELECT id, n FROM hot WHERE id < 4 ORDER BY id";
    assert_eq!(rows(&mut c, all), ["1|160", "2|320", "3|160"]);
    let own = "SELECT count(*), min(n), max(n) FROM hot WHERE id >= 10";
    assert_eq!(rows(&mut c, own), ["8|20|20"]);
}

#[test]
fn a_queue_hands_every_job_out_once() {
    let database = database();
    let mut c = database.connect();
    run(
        &mut c,
        &[
            "CREATE TABLE job (id int PRIMARY KEY, state text NOT NULL, owner int)",
            "CREATE INDEX job_next ON job (state, id)",
            "INSERT INTO job SELECT g, 'new', NULL FROM generate_series(1, 60) s(g)",
            "CREATE TABLE taken (job int PRIMARY KEY, owner int)",
        ],
    );
    without_plans(&database, |thread, c| {
        let next = "SELECT id FROM job WHERE state = $1 ORDER BY id LIMIT 1 \
                    FOR UPDATE SKIP LOCKED";
        let next = prepared(c, next);
        let done = "UPDATE job SET state = $1, owner = $2 + 0 WHERE id = $3";
        let done = prepared(c, done);
        loop {
            run(c, &["BEGIN"]);
            let found = c.run_prepared(&next, &[text("new")]).expect("looks");
            let found = found.result().expect("rows");
            if found.row_count() == 0 {
                run(c, &["COMMIT"]);
                break;
            }
            let id = found.single::<i32>().expect("an id");
            // A job that is handed out twice violates the key.
            run(c, &[&format!("INSERT INTO taken VALUES ({id}, {thread})")]);
            let set = [text("done"), int(thread), int(id)];
            assert_eq!(ran(c, &done, &set), "UPDATE 1 None");
            run(c, &["COMMIT"]);
        }
    });
    let sql = "SELECT count(*) FROM job JOIN taken ON job = id AND job.owner = taken.owner";
    assert_eq!(rows(&mut c, sql), ["60"]);
    assert_eq!(
        rows(&mut c, "SELECT count(*) FROM job WHERE state <> 'done'"),
        ["0"]
    );
}

#[test]
fn a_serializable_transaction_notes_what_its_conditions_read() {
    let database = database();
    let (mut a, mut b) = (database.connect(), database.connect());
    run(&mut a, ITEMS);
    let count = "SELECT count(*) FROM item WHERE a = 2 AND length(s) > 1";
    for (mine, yours) in [
        (
            "UPDATE item SET n = n + a WHERE id = 1",
            "UPDATE item SET n = n + a WHERE id = 3",
        ),
        (
            "SELECT a + 1 FROM item WHERE id = 1",
            "SELECT a + 1 FROM item WHERE id = 1",
        ),
    ] {
        for c in [&mut a, &mut b] {
            run(c, &["BEGIN ISOLATION LEVEL SERIALIZABLE", count]);
        }
        run(
            &mut a,
            &[
                mine,
                "INSERT INTO item (id, a, s) VALUES (1000 + 1, 2, 'new')",
            ],
        );
        run(
            &mut b,
            &[
                yours,
                "INSERT INTO item (id, a, s) VALUES (1000 + 2, 2, 'new')",
            ],
        );
        run(&mut a, &["COMMIT"]);
        let error = b.execute("COMMIT", ()).expect_err("a phantom");
        assert_eq!(error.sqlstate(), SqlState::SERIALIZATION_FAILURE);
        run(&mut a, &["DELETE FROM item WHERE id > 1000"]);
    }
}

#[test]
fn explain_names_rows_conditions_and_locks() {
    let database = database();
    let mut c = database.connect();
    run(&mut c, ITEMS);
    for (sql, shown) in [
        (
            "UPDATE item SET a = a / 2 WHERE id IN (1, 2) AND s LIKE 'x%'",
            "RowExecutor: update item, key=item_pkey (id IN (2 values)), filters=[s LIKE 'x%']",
        ),
        (
            "SELECT upper(s) FROM item WHERE id = 1",
            "RowExecutor: select item, key=item_pkey",
        ),
        (
            "SELECT id FROM item WHERE a = 1 ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED",
            "RowExecutor: select item, index=item_a (a =), order=forward, limit, \
             FOR UPDATE SKIP LOCKED",
        ),
        (
            "INSERT INTO item (id) VALUES (1 + 1), (3) ON CONFLICT (id) DO UPDATE SET a = 1",
            "RowExecutor: insert item, rows=2, conflict=item_pkey",
        ),
    ] {
        let plan = rows(&mut c, &format!("EXPLAIN {sql}"));
        assert_eq!(plan[0], shown, "{sql}");
    }
}

#[test]
fn declared_types_decide_what_a_parameter_is() {
    let database = database();
    let mut c = database.connect();
    run(&mut c, ITEMS);
    let sql = "SELECT a + $1, a / $1 FROM item WHERE id = $2";
    let big = c.prepare_typed(sql, &[Some(SqlType::BigInt), Some(SqlType::Integer)]);
    let big = big.expect("prepares");
    let before = point_runs(&database);
    let values = [ScalarValue::Int64(Some(3_000_000_000)), int(6)];
    assert_eq!(
        ran(&mut c, &big, &values),
        "SELECT 1 Some([\"3000000002|0\"])"
    );
    let float = c.prepare_typed(sql, &[Some(SqlType::Double), Some(SqlType::Integer)]);
    let float = float.expect("prepares");
    let values = [ScalarValue::Float64(Some(4.0)), int(6)];
    assert_eq!(ran(&mut c, &float, &values), "SELECT 1 Some([\"6|0.5\"])");
    assert_eq!(point_runs(&database), before + 2);
    let zero = [ScalarValue::Int64(Some(0)), int(6)];
    assert_eq!(ran(&mut c, &big, &zero), "22012 division by zero");
}

/// Jobs in the order of a queue; some were done before.
const JOBS: &[&str] = &[
    "CREATE TABLE job (id int PRIMARY KEY, state text NOT NULL, urgency int NOT NULL, owner int)",
    "CREATE INDEX job_next ON job (state, urgency, id)",
    "INSERT INTO job SELECT g, 'new', g % 3, NULL FROM generate_series(1, 2000) s(g)",
    "UPDATE job SET state = 'done' WHERE id <= 1940",
];

#[test]
fn a_job_is_taken_in_one_statement() {
    let database = database();
    let mut c = database.connect();
    run(&mut c, JOBS);
    let take = "UPDATE job SET state = 'taken', owner = $1 WHERE id = (SELECT id FROM job \
                WHERE state = 'new' ORDER BY urgency, id LIMIT 1 FOR UPDATE SKIP LOCKED) \
                RETURNING id";
    let first = prepared(&mut c, take);
    run(&mut c, &["BEGIN"]);
    // The entries of jobs that were done are passed over.
    let before = point_runs(&database);
    assert_eq!(ran(&mut c, &first, &[int(0)]), "UPDATE 1 Some([\"1941\"])");
    assert_eq!(point_runs(&database), before + 1);
    let mut other = database.connect();
    let second = prepared(&mut other, take);
    assert_eq!(
        ran(&mut other, &second, &[int(1)]),
        "UPDATE 1 Some([\"1944\"])"
    );
    run(&mut c, &["ROLLBACK"]);
    assert_eq!(
        ran(&mut other, &second, &[int(1)]),
        "UPDATE 1 Some([\"1941\"])"
    );
    // The lock of a job that is not changed ends with the transaction.
    run(&mut c, &["BEGIN"]);
    let none = "UPDATE job SET owner = owner + 1 WHERE urgency = 7 AND id = (SELECT id FROM job \
                WHERE state = 'new' ORDER BY urgency, id LIMIT 1 FOR UPDATE SKIP LOCKED)";
    let none = prepared(&mut c, none);
    assert_eq!(ran(&mut c, &none, &[]), "UPDATE 0 None");
    run(&mut c, &["ROLLBACK"]);
    let before = point_runs(&database);
    let planned = counter(&database, "statements_planned");
    without_plans(&database, |thread, c| {
        let take = prepared(c, take);
        loop {
            let taken = ran(c, &take, &[int(thread)]);
            if taken == "UPDATE 0 Some([])" {
                break;
            }
            assert!(taken.starts_with("UPDATE 1 "), "{taken}");
        }
    });
    assert_eq!(point_runs(&database), before + 58 + 8);
    assert_eq!(counter(&database, "statements_planned"), planned);
    let all = "SELECT count(*), count(owner) FROM job WHERE state = 'taken'";
    assert_eq!(rows(&mut c, all), ["60|60"]);
}

#[test]
fn a_subquery_needs_its_own_rights_and_gives_one_value() {
    let database = database();
    let mut c = database.connect();
    run(&mut c, JOBS);
    run(&mut c, ITEMS);
    run(
        &mut c,
        &[
            "CREATE USER ann PASSWORD 'x'",
            "GRANT SELECT, UPDATE ON item TO ann",
            "GRANT SELECT ON job TO ann",
        ],
    );
    let mut ann = database.connect_as("ann").expect("connects");
    let reads = "UPDATE item SET a = 9 WHERE id = (SELECT id FROM job WHERE state = 'done' \
                 AND urgency = 1 ORDER BY id LIMIT 1) RETURNING id";
    let locks = "UPDATE item SET a = 9 WHERE id = (SELECT id FROM job WHERE state = 'done' \
                 ORDER BY urgency DESC, id DESC LIMIT 1 FOR UPDATE) RETURNING id";
    let many = "UPDATE item SET a = 9 WHERE id = (SELECT id FROM job WHERE urgency = 1 \
                AND state = 'new' FOR UPDATE)";
    // Statements are described when they are prepared, so they need rights then.
    run(&mut c, &["GRANT UPDATE ON job TO ann"]);
    let [reads, locks, many] = [reads, locks, many].map(|sql| prepared(&mut ann, sql));
    run(&mut c, &["REVOKE UPDATE ON job FROM ann"]);
    let both = |ann: &mut Connection, statement: &Prepared| {
        let answers = [true, false].map(|may| {
            ann.use_row_executor(may);
            run(ann, &["BEGIN"]);
            let answer = ran(ann, statement, &[]);
            run(ann, &["ROLLBACK"]);
            answer
        });
        assert_eq!(answers[0], answers[1]);
        answers[0].clone()
    };
    let before = point_runs(&database);
    assert_eq!(both(&mut ann, &reads), "UPDATE 1 Some([\"1\"])");
    assert_eq!(point_runs(&database), before + 1);
    assert!(both(&mut ann, &locks).starts_with("42501"));
    run(&mut c, &["GRANT UPDATE ON job TO ann"]);
    assert_eq!(both(&mut ann, &locks), "UPDATE 0 Some([])");
    assert_eq!(point_runs(&database), before + 2);
    run(&mut c, &["REVOKE SELECT ON job FROM ann"]);
    assert!(both(&mut ann, &reads).starts_with("42501"));
    run(&mut c, &["GRANT SELECT ON job TO ann"]);
    assert!(both(&mut ann, &many).starts_with("21000"));
    let locked = "SELECT count(*) FROM (SELECT id FROM job WHERE urgency = 1 AND state = 'new' \
                  FOR UPDATE NOWAIT) AS q";
    assert_eq!(rows(&mut c, locked), ["20"], "no lock is left");
}
