//! Statements in the row executor give what the full path gives.

use super::{database, rows, run};
use datafusion::scalar::ScalarValue;
use strandline::{Connection, Database, Error, ErrorKind, Outcome, SqlState, SqlType, Value};
use strandline_base::rng::Rng;

fn point_runs(database: &Database) -> u64 {
    counter(database, "statements_point")
}

fn counter(database: &Database, name: &str) -> u64 {
    let counters = database.counters();
    let found = counters.iter().find(|(known, _)| *known == name);
    found.expect("a counter").1
}

/// Everything that one sees of a statement.
fn seen(outcome: Result<Outcome<'_>, Error>) -> String {
    let shown = |e: Error| format!("{} {} {:?}", e.sqlstate().0, e.message(), e.detail());
    match outcome {
        Err(error) => shown(error),
        Ok(Outcome::Done(summary)) => {
            // Whether a returned column may be NULL goes by what is known of the new values.
            let returned = summary.result().map(|result| {
                let fields = result.schema().fields().iter();
                let columns = fields.map(|f| (f.name().clone(), f.data_type().clone()));
                (columns.collect::<Vec<_>>(), super::lines(result))
            });
            let (tag, rows) = (summary.command_tag(), summary.rows_affected());
            format!("{tag} {rows} {returned:?}")
        }
        Ok(Outcome::Rows(stream)) => {
            let mut text = String::new();
            for field in stream.schema().fields() {
                text += &format!(
                    "{} {} {}, ",
                    field.name(),
                    field.data_type(),
                    field.is_nullable()
                );
            }
            for batch in stream {
                match batch {
                    Ok(batch) => {
                        for row in 0..batch.num_rows() {
                            let cells = batch.columns().iter();
                            text += &format!(
                                "\n{:?}",
                                cells.map(|c| strandline::cell(c, row)).collect::<Vec<_>>()
                            );
                        }
                    }
                    Err(error) => text += &shown(error),
                }
            }
            text
        }
    }
}

const TABLES: &[&str] = &[
    "CREATE TABLE t (id int PRIMARY KEY, a int, b bigint UNIQUE, n numeric(6,2), s varchar(5), \
     k smallint NOT NULL DEFAULT 7, f double precision, CHECK (a < 100))",
    "CREATE TABLE p (x int, y text, v int DEFAULT 0, at timestamp, PRIMARY KEY (x, y))",
    "CREATE INDEX t_a ON t (a)",
    "CREATE INDEX t_k_n ON t (k, n DESC)",
    "CREATE INDEX t_s_a ON t (s DESC NULLS LAST, a)",
];

/// Statements; each `?` is a value.
const TEMPLATES: &[&str] = &[
    "SELECT * FROM t WHERE id = ?",
    "SELECT a, b AS bb, q.id, a FROM t AS q WHERE ? = q.id",
    "SELECT s, n, f FROM t WHERE (b = ?)",
    "SELECT v, x FROM p WHERE y = ? AND x = ?",
    "SELECT * FROM t WHERE id IN (?, ?, ?)",
    "SELECT id FROM t WHERE id IN (?, ?, ?) AND a >= ? ORDER BY id DESC LIMIT 2",
    "SELECT x, y FROM p WHERE y IN (?, ?) AND x = ?",
    "SELECT * FROM t WHERE a = ? AND k = ?",
    "SELECT id, s, id FROM t WHERE a BETWEEN ? AND ?",
    "SELECT k, n FROM t WHERE k = ? AND n >= ? AND ? > n",
    "SELECT a FROM t WHERE a >= ? ORDER BY a LIMIT 3",
    "SELECT a AS s FROM t WHERE a < ? ORDER BY s DESC LIMIT ? OFFSET 1",
    "SELECT n, k FROM t WHERE k = ? ORDER BY n DESC LIMIT 4",
    "SELECT n FROM t WHERE k = ? ORDER BY k, n NULLS FIRST OFFSET ?",
    "SELECT s, a FROM t ORDER BY s DESC NULLS LAST, 2 LIMIT 5",
    "SELECT s, a FROM t ORDER BY s NULLS FIRST, a DESC LIMIT 5",
    "SELECT s, id FROM t WHERE a = ? ORDER BY s DESC, id LIMIT 4",
    "SELECT min(a), max(a) AS top FROM t",
    "SELECT max(n) FROM t WHERE k = ?",
    "SELECT max(k), min(n) FROM t WHERE a > ?",
    "SELECT count(*), count(n), sum(a), avg(n), min(s), max(b) FROM t WHERE a BETWEEN ? AND ?",
    "SELECT count(s), sum(n) AS total, avg(n), max(s) FROM t WHERE k = ? AND n >= ?",
    "SELECT sum(k), avg(k), sum(b), avg(b), count(1) AS rows FROM t WHERE k = ?",
    "SELECT count(*) FROM t WHERE id IN (?, ?, ?)",
    "SELECT sum(v), min(at), max(y) FROM p WHERE x = ? AND y IN (?, ?)",
    "SELECT a + 1, upper(s) AS u, t.id FROM t WHERE id = ?",
    "SELECT coalesce(a, ?) AS c, n * 2, k::text, now() IS NULL FROM t WHERE id = ?",
    "SELECT a * 2 AS twice, *, length(s) FROM t WHERE id IN (?, ?, ?) ORDER BY id",
    "SELECT CASE WHEN a > ? THEN s END, abs(a) AS b FROM t WHERE a = ? AND k % 2 = 1",
    "SELECT id, a / k FROM t WHERE k = ? AND n * 2 > ? ORDER BY n, 1 LIMIT 3",
    "SELECT id FROM t WHERE a BETWEEN ? AND ? AND (s = ? OR n IS NULL) ORDER BY a, id LIMIT 3",
    "SELECT a AS s, abs(a) || '!' AS a FROM t WHERE a > ? ORDER BY s LIMIT 4",
    "SELECT count(*), sum(a) FROM t WHERE k = ? AND a + ? > 3",
    "SELECT id, a + 1 AS next FROM t WHERE id = ? FOR UPDATE",
    "SELECT * FROM t WHERE id IN (?, ?) ORDER BY id DESC FOR NO KEY UPDATE OF t NOWAIT",
    "SELECT a FROM t WHERE a >= ? ORDER BY a LIMIT 2 FOR UPDATE SKIP LOCKED",
    "SELECT v FROM p WHERE x = ? AND y = ? FOR SHARE",
    "UPDATE t SET a = a + ? WHERE id = ?",
    "UPDATE t SET a = ? - a, k = k * 2 WHERE id = ?",
    "UPDATE t SET n = n - ?, s = ? WHERE id = ?",
    "UPDATE t SET n = n * ? WHERE b = ?",
    "UPDATE t SET b = ? WHERE id = ?",
    "UPDATE t SET id = ?, a = k + 1 WHERE id = ?",
    "UPDATE t SET f = f + ?, k = ? WHERE id = ?",
    "UPDATE t SET f = ?, n = ? WHERE id = ?",
    "UPDATE p SET v = v + 1, y = ? WHERE x = ? AND y = ?",
    "UPDATE t SET a = a + ? WHERE a = ?",
    "UPDATE t SET k = k + 1, n = ? WHERE k = ? AND n < ?",
    "UPDATE t SET s = ?, b = ? WHERE id IN (?, ?)",
    "UPDATE t SET a = CASE WHEN a > ? THEN 0 ELSE a + ? END WHERE id = ?",
    "UPDATE t SET a = a / ?, s = upper(s) || left(s, 1) WHERE id = ?",
    "UPDATE t SET (a, n) = (coalesce(a, 0) % 7, a * 1.5) WHERE id IN (?, ?, ?)",
    "UPDATE t SET k = a, s = n, n = a WHERE a = ? AND (k + 1) % 2 = 0",
    "UPDATE t SET f = sqrt(a), a = NULL WHERE k = ? AND n < ? AND s IS NOT NULL",
    "UPDATE p SET at = timestamp '2024-02-29' + v * interval '1 hour', v = length(y) + ? WHERE x = ? AND y IN (?, ?)",
    "UPDATE t SET a = b WHERE id = ? AND b BETWEEN 1 AND 90 AND f IS NULL",
    "UPDATE p SET v = ? WHERE x = ? AND y IN (?, ?)",
    "DELETE FROM t WHERE id = ?",
    "DELETE FROM t WHERE a = ? AND k = ?",
    "DELETE FROM t WHERE id IN (?, ?)",
    "DELETE FROM t WHERE b = ?",
    "DELETE FROM p WHERE x = ? AND y = ?",
    "DELETE FROM t WHERE a = ? AND coalesce(n, 0) + k > ?",
    "DELETE FROM t WHERE id IN (?, ?) AND (s LIKE 'a%' OR s IS NULL)",
    "DELETE FROM t WHERE id = ? AND 12 / a > 3",
    "INSERT INTO t (id, a, b, n, s) VALUES (?, ?, ?, ?, ?)",
    "INSERT INTO t VALUES (?, ?, ?, ?, ?, ?, ?)",
    "INSERT INTO t (b, id) VALUES (?, ?), (?, ?)",
    "INSERT INTO t (id, a, s) VALUES (?, ?, ?) ON CONFLICT (id) DO NOTHING",
    "INSERT INTO t (id, a, s) VALUES (?, ?, ?) ON CONFLICT (id) DO UPDATE SET a = t.a + excluded.a",
    "INSERT INTO t (id, b) VALUES (?, ?) ON CONFLICT (b) DO UPDATE SET s = ?, f = excluded.f",
    "INSERT INTO p (x, y) VALUES (?, ?) ON CONFLICT (y, x) DO UPDATE SET v = p.v + 1",
    "INSERT INTO p VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
    "INSERT INTO t (id, a, s, f) VALUES (? + 1, ? * 2, upper('ab') || 'c', 2 ^ 3)",
    "INSERT INTO t (id, a, k) VALUES (?, ?, DEFAULT), (?, 5 - 3, ?), (?, length('abc'), 1)",
    "INSERT INTO t (id, a) VALUES (?, ?), (?, ?), (?, 3) ON CONFLICT (id) DO NOTHING",
    "INSERT INTO t (id, a, s) VALUES (?, ?, 'n'), (?, ?, 'm') \
     ON CONFLICT (id) DO UPDATE SET a = coalesce(t.a, 0) + excluded.a, s = t.s || excluded.s",
    "INSERT INTO t (id, a) VALUES (?, ?) ON CONFLICT (id) DO UPDATE \
     SET a = greatest(t.a, excluded.a) WHERE t.a IS DISTINCT FROM excluded.a",
    "INSERT INTO p (x, y, v) VALUES (?, ?, ?), (?, ?, 7) ON CONFLICT (x, y) DO UPDATE \
     SET v = CASE WHEN excluded.v > p.v THEN excluded.v ELSE -p.v END WHERE p.v > ?",
];

fn pick<'a, T>(rng: &mut Rng, from: &'a [T]) -> &'a T {
    &from[rng.below(from.len() as u64) as usize]
}

/// A value as a parameter and as it is written.
fn value(rng: &mut Rng) -> (ScalarValue, String) {
    let small = rng.below(12) as i64 - 2;
    match rng.below(26) {
        0..=17 => (ScalarValue::Int32(Some(small as i32)), small.to_string()),
        18 => (ScalarValue::Int64(Some(small)), small.to_string()),
        19 => (ScalarValue::Null, "NULL".into()),
        20 => {
            let text = *pick(
                rng,
                &["3", "x", "abcdef", " 4", "5.5", "", "it's", "abc   "],
            );
            (
                ScalarValue::from(text),
                format!("'{}'", text.replace('\'', "''")),
            )
        }
        21 => {
            let big = *pick(
                rng,
                &[2_147_483_647i64, 3_000_000_000, -2_147_483_647, 98, 32_767],
            );
            (ScalarValue::Int64(Some(big)), big.to_string())
        }
        22 | 23 => {
            let v = rng.below(30_000) as i128 - 5_000;
            let shown = format!(
                "{}{}.{:03}",
                if v < 0 { "-" } else { "" },
                v.abs() / 1_000,
                v.abs() % 1_000
            );
            (ScalarValue::Decimal128(Some(v), 20, 3), shown)
        }
        24 => (
            ScalarValue::Float64(Some(1.5)),
            "1.5::double precision".into(),
        ),
        _ => (ScalarValue::Boolean(Some(true)), "true".into()),
    }
}

/// A statement with its values as parameters or in its text, all of them if `as_text`.
fn statement(rng: &mut Rng, as_text: bool) -> (String, Vec<ScalarValue>) {
    let template = pick(rng, TEMPLATES);
    let (mut sql, mut values) = (String::new(), Vec::new());
    for (i, part) in template.split('?').enumerate() {
        if i > 0 {
            let (scalar, text) = value(rng);
            if as_text || rng.below(3) == 0 {
                sql += &text;
            } else {
                values.push(scalar);
                sql += &format!("${}", values.len());
            }
        }
        sql += part;
    }
    if !template.starts_with("SELECT") && rng.below(3) == 0 {
        let clauses = match template.contains(" p ") {
            true => [
                " RETURNING *",
                " RETURNING v AS w, p.y, v",
                " RETURNING x + 1",
                " RETURNING v * 2 AS w, upper(y), p.*",
            ],
            false => [
                " RETURNING *",
                " RETURNING t.b, id, a AS aa",
                " RETURNING n, s, f",
                " RETURNING a + 1, s || k AS sk, CASE WHEN n > 1 THEN b END",
            ],
        };
        sql += *pick(rng, &clauses);
    }
    (sql, values)
}

const STEPS: u64 = 1_500;

#[test]
fn both_paths_agree() {
    agree(4, false);
}

/// Texts whose literals differ share a compiled statement.
#[test]
fn both_paths_agree_on_literals() {
    agree(5, true);
}

fn agree(seed: u64, as_text: bool) {
    let (fast, full) = (database(), database());
    let (mut a, mut b) = (fast.connect(), full.connect());
    b.use_row_executor(false);
    run(&mut a, TABLES);
    run(&mut b, TABLES);
    let mut rng = Rng::new(seed);
    for step in 0..STEPS {
        let control = |rng: &mut Rng, from: &[&str]| ((*pick(rng, from)).to_string(), vec![]);
        let failed = a.transaction_status() == strandline::TransactionStatus::Failed;
        let (sql, values) = match rng.below(30) {
            0 => control(
                &mut rng,
                &[
                    "BEGIN",
                    "BEGIN",
                    "BEGIN ISOLATION LEVEL REPEATABLE READ",
                    "BEGIN ISOLATION LEVEL SERIALIZABLE",
                ],
            ),
            1 | 2 => control(&mut rng, &["COMMIT", "ROLLBACK"]),
            3 => control(&mut rng, &["SAVEPOINT s"]),
            4..=14 if failed => control(&mut rng, &["ROLLBACK TO s", "ROLLBACK"]),
            _ => statement(&mut rng, as_text),
        };
        let typed = !as_text && rng.below(2) == 0;
        let once = |c: &mut Connection| match typed {
            false => seen(c.run(&sql, values.as_slice())),
            true => match c.prepare_typed(&sql, &[]) {
                Err(error) => seen(Err(error)),
                Ok(p) => match c.run_prepared(&p, &values) {
                    Err(error) => seen(Err(error)),
                    Ok(summary) => {
                        let rows = summary.result().map(super::lines);
                        format!("{} {rows:?}", summary.command_tag())
                    }
                },
            },
        };
        let (x, y) = (once(&mut a), once(&mut b));
        assert_eq!(x, y, "step {step}: {sql} {values:?} typed: {typed}");
        if step % 50 == 0 && a.transaction_status() != strandline::TransactionStatus::Failed {
            for table in ["t ORDER BY id", "p ORDER BY x, y"] {
                let all = format!("SELECT * FROM {table}");
                assert_eq!(rows(&mut a, &all), rows(&mut b, &all), "step {step}");
            }
        }
    }
    assert_eq!(point_runs(&full), 0);
    assert!(point_runs(&fast) > STEPS / 5, "{}", point_runs(&fast));
}

#[test]
fn texts_that_differ_in_literals_are_parsed_once() {
    let database = database();
    let mut c = database.connect();
    run(&mut c, TABLES);
    let mut before = (0, 0);
    for id in 0..20 {
        if id == 3 {
            before = (
                counter(&database, "statements_parsed"),
                point_runs(&database),
            );
        }
        let add = format!("INSERT INTO p VALUES ({id}, 'it''s {id}', {})", id * 1_000);
        assert_eq!(c.execute(&add, ()).expect("inserts"), 1);
        let get = format!("SELECT v FROM p WHERE y = 'it''s {id}' AND x = {id};");
        assert_eq!(rows(&mut c, &get), [(id * 1_000).to_string()]);
    }
    assert_eq!(counter(&database, "statements_parsed"), before.0);
    assert_eq!(point_runs(&database) - before.1, 2 * 17);
    // A text is what it is by the definitions of now.
    let wide = |id: i32| format!("SELECT * FROM p WHERE x = {id} AND y = 'it''s {id}'");
    let columns =
        |c: &mut Connection, id| c.query(&wide(id), ()).map(|r| r.schema().fields().len());
    for id in 0..4 {
        assert_eq!(columns(&mut c, id).expect("a row"), 4);
    }
    run(&mut c, &["ALTER TABLE p ADD COLUMN more int"]);
    assert_eq!(columns(&mut c, 5).expect("a row"), 5);
    run(&mut c, &["DROP TABLE p"]);
    let error = columns(&mut c, 6).expect_err("no table");
    assert_eq!(error.sqlstate(), SqlState::UNDEFINED_TABLE);
    assert_eq!(error.position(), Some(15));
}

#[test]
fn statements_on_one_row_take_it_and_others_do_not() {
    let database = database();
    let mut c = database.connect();
    run(&mut c, TABLES);
    let one = ScalarValue::Int32(Some(1));
    let cases: &[(&str, bool)] = &[
        ("INSERT INTO t (id, a) VALUES (1, 2), (3, 4)", true),
        ("SELECT * FROM t WHERE id = 1", true),
        ("SELECT a FROM public.t WHERE t.id = 1", true),
        ("UPDATE t SET a = a + 1 WHERE id = 1", true),
        ("UPDATE t SET a = -(a - 1) WHERE id = 1", true),
        ("UPDATE t SET a = a / 2 WHERE id = 1", true),
        ("UPDATE t SET a = 5 WHERE id = 1 AND a = 3", true),
        ("UPDATE t SET k = 5 WHERE a = 2", true),
        ("UPDATE t SET k = 5 WHERE f = 2", false),
        ("DELETE FROM t WHERE a = 77 AND s = 'x'", true),
        ("UPDATE t SET a = 5 WHERE id = 1 RETURNING a, *", true),
        ("UPDATE t SET a = 5 WHERE id = 1 RETURNING a + 1", true),
        (
            "INSERT INTO t (id) VALUES (77) RETURNING t.id AS new, a",
            true,
        ),
        (
            "INSERT INTO t (id) VALUES (77) ON CONFLICT (id) DO UPDATE SET a = 3 RETURNING a",
            true,
        ),
        ("DELETE FROM t WHERE id = 77 RETURNING id", true),
        (
            "INSERT INTO p (x, y, at) VALUES (1, 'a', CURRENT_TIMESTAMP)",
            true,
        ),
        (
            "INSERT INTO p (x, y) VALUES (1, 'a') ON CONFLICT DO NOTHING",
            true,
        ),
        ("SELECT v FROM p WHERE x = 1", true),
        ("SELECT v FROM p WHERE x = 1 AND y = 'a'", true),
        ("SELECT v FROM p WHERE x = 1 AND y = 'a' AND x = 1", true),
        ("SELECT a + 1 FROM t WHERE id = 1", true),
        ("SELECT a FROM t WHERE id = 1 FOR UPDATE", true),
        ("SELECT a FROM t WHERE id = 1 ORDER BY a", true),
        ("SELECT a FROM t WHERE id IN (1, 2) LIMIT 1", true),
        ("SELECT a FROM t WHERE id IN (SELECT 1)", false),
        ("SELECT a FROM t WHERE a > 1 AND a < 9", true),
        ("SELECT a FROM t WHERE a > 1 ORDER BY a DESC LIMIT 3", true),
        ("SELECT a FROM t ORDER BY a LIMIT 3", true),
        ("SELECT a FROM t ORDER BY a", false),
        ("SELECT a FROM t ORDER BY a + 1 LIMIT 3", false),
        ("SELECT a FROM t ORDER BY a LIMIT 300", false),
        ("SELECT id FROM t WHERE s = 'x' AND a > 3", true),
        (
            "SELECT n FROM t WHERE k = 7 ORDER BY n DESC, id LIMIT 3",
            true,
        ),
        ("SELECT min(a), max(k) FROM t", true),
        ("SELECT min(a), count(*) FROM t", false),
        ("SELECT min(a), count(*), sum(n) FROM t WHERE a > 3", true),
        ("SELECT min(a), count(*) FROM t WHERE f = 3", false),
        ("SELECT count(s), avg(a) FROM t WHERE id = 1", true),
        ("SELECT count(DISTINCT s) FROM t WHERE id = 1", false),
        (
            "SELECT count(*) FILTER (WHERE a > 1) FROM t WHERE id = 1",
            false,
        ),
        ("SELECT sum(f) FROM t WHERE id = 1", false),
        ("SELECT sum(a + 1) FROM t WHERE id = 1", false),
        ("SELECT count(*), a FROM t WHERE id = 1 GROUP BY a", false),
        (
            "SELECT count(*) FROM t WHERE id = 1 HAVING count(*) > 0",
            false,
        ),
        ("SELECT count(*) FROM t WHERE a = 1 LIMIT 1", false),
        ("SELECT min(a) FROM t WHERE f = 1", true),
        ("SELECT min(a) FROM t GROUP BY id", false),
        ("SELECT DISTINCT a FROM t WHERE id = 1", false),
        ("SELECT a FROM t, p WHERE id = 1", false),
        ("SELECT a FROM t WHERE id > 1", false),
        ("SELECT a FROM t WHERE id > 1 AND id < 9", true),
        ("SELECT a FROM t WHERE id > 1 LIMIT 3", false),
        ("SELECT a FROM t WHERE id = 1 OR id = 3", true),
        ("SELECT a FROM t WHERE id = 1 OR f = 3", false),
        (
            "SELECT a FROM t WHERE id = (SELECT max(id) FROM t WHERE id = 1)",
            true,
        ),
        (
            "SELECT a FROM t WHERE id = (SELECT max(f) FROM t WHERE id = 1)",
            false,
        ),
        (
            "SELECT a FROM t FOR SYSTEM_TIME AS OF now() WHERE id = 1",
            false,
        ),
        ("INSERT INTO t (id) SELECT 9", false),
        ("DELETE FROM t WHERE id = 9", true),
    ];
    for (sql, point) in cases {
        let before = point_runs(&database);
        c.execute(sql, ()).unwrap_or_else(|e| panic!("{sql}: {e}"));
        assert_eq!(point_runs(&database) > before, *point, "{sql}");
    }
    let before = point_runs(&database);
    run(
        &mut c,
        &["PREPARE get (int) AS SELECT a FROM t WHERE id = $1"],
    );
    assert_eq!(rows(&mut c, "EXECUTE get(1)").len(), 1);
    assert_eq!(rows(&mut c, "EXECUTE get(NULL)").len(), 0);
    let get = c
        .prepare("SELECT a FROM t WHERE id = $1")
        .expect("prepares");
    assert_eq!(c.query_prepared(&get, [one]).expect("gets").row_count(), 1);
    assert_eq!(point_runs(&database), before + 3);
    let stats = rows(
        &mut c,
        "SELECT value FROM strandline_stats() WHERE name = 'statements_point'",
    );
    assert_eq!(stats, [point_runs(&database).to_string()]);
}

#[test]
fn aggregates_of_few_rows_are_those_of_a_plan() {
    let database = database();
    let (mut few, mut planned) = (database.connect(), database.connect());
    planned.use_row_executor(false);
    run(&mut few, TABLES);
    run(
        &mut few,
        &[
            "INSERT INTO t (id, a, b, n, s, k) SELECT i, i % 7, nullif(i, 4) * 1000000007::bigint, \
           CASE WHEN i % 3 > 0 THEN i * 1.25 END, CASE WHEN i % 5 > 0 THEN 'v' || i END, i % 2 \
           FROM generate_series(1, 60) AS g(i)",
        ],
    );
    for condition in [
        "a = 3",
        "a IN (1, 4)",
        "a = 99",
        "k = 1 AND n > 20",
        "id IN (3, 4, 5)",
        "k >= 0",
    ] {
        for list in [
            "count(*), count(1), count(n), count(s), count(b)",
            "sum(k), sum(a), sum(b), sum(n)",
            "avg(k), avg(a), avg(b) AS mean, avg(n)",
            "min(a), max(n), min(k), max(b), count(*)",
        ] {
            let sql = format!("SELECT {list} FROM t WHERE {condition}");
            let before = point_runs(&database);
            assert_eq!(
                seen(few.run(&sql, ())),
                seen(planned.run(&sql, ())),
                "{sql}"
            );
            assert_eq!(point_runs(&database), before + 1, "{sql}");
        }
    }
    // An overflow is reported by the plan.
    run(&mut few, &["UPDATE t SET b = 9223372036854775807 - id"]);
    let wide = "SELECT sum(b), avg(b) FROM t WHERE a = 3";
    assert_eq!(seen(few.run(wide, ())), seen(planned.run(wide, ())));
    run(
        &mut few,
        &[
            "CREATE TABLE huge (k int, n numeric(38,0))",
            "CREATE INDEX ON huge (k)",
            "INSERT INTO huge VALUES (1, 99999999999999999999999999999999999999), (1, 1)",
        ],
    );
    let huge = "SELECT sum(n) FROM huge WHERE k = 1";
    let failure = seen(few.run(huge, ()));
    assert!(failure.contains("22003"), "{failure}");
    assert_eq!(failure, seen(planned.run(huge, ())));
}

#[test]
fn hot_rows_count_exactly() {
    let database = database();
    let mut c = database.connect();
    run(
        &mut c,
        &[
            "CREATE TABLE t (id int PRIMARY KEY, n bigint)",
            "INSERT INTO t VALUES (1, 0), (2, 0)",
        ],
    );
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let database = database.clone();
            scope.spawn(move || {
                let mut c = database.connect();
                let add = c.prepare_typed("UPDATE t SET n = n + $1 WHERE id = $2", &[]);
                let add = add.expect("prepares");
                for i in 0..60i64 {
                    let values = [ScalarValue::Int64(Some(i)), ScalarValue::Int32(Some(1))];
                    match (thread + i) % 3 {
                        // In a block, between other statements.
                        0 => {
                            run(&mut c, &["BEGIN"]);
                            c.run_prepared(&add, &values).expect("adds");
                            run(&mut c, &["UPDATE t SET n = n - 1 WHERE id = 2", "COMMIT"]);
                        }
                        1 => assert_eq!(
                            c.run_prepared(&add, &values).expect("adds").rows_affected(),
                            1
                        ),
                        // On the full path.
                        _ => {
                            let sql = "UPDATE t SET n = n + $1 WHERE id = 1 AND true";
                            assert_eq!(c.execute(sql, (i,)).expect("adds"), 1);
                        }
                    }
                }
            });
        }
    });
    assert_eq!(
        rows(&mut c, "SELECT n FROM t WHERE id = 1"),
        [(8 * 60 * 59 / 2).to_string()]
    );
    assert_eq!(rows(&mut c, "SELECT n FROM t WHERE id = 2"), ["-160"]);
}

#[test]
fn upserts_of_one_key_count_exactly() {
    let database = database();
    let mut c = database.connect();
    run(
        &mut c,
        &["CREATE TABLE t (id int PRIMARY KEY, n int NOT NULL)"],
    );
    std::thread::scope(|scope| {
        for _ in 0..8 {
            let database = database.clone();
            scope.spawn(move || {
                let mut c = database.connect();
                for key in 0..25i32 {
                    let sql = "INSERT INTO t VALUES ($1, 1) \
                               ON CONFLICT (id) DO UPDATE SET n = t.n + excluded.n";
                    assert_eq!(c.execute(sql, (key,)).expect("counts"), 1);
                }
            });
        }
    });
    let counted = rows(&mut c, "SELECT count(*), min(n), max(n) FROM t");
    assert_eq!(counted, ["25|8|8"]);
}

#[test]
fn definitions_may_change_between_executions() {
    let database = database();
    let (mut c, mut ddl) = (database.connect(), database.connect());
    run(
        &mut c,
        &[
            "CREATE TABLE t (id int PRIMARY KEY, a int)",
            "INSERT INTO t VALUES (1, 10)",
        ],
    );
    let all = "SELECT * FROM t WHERE id = 1";
    let add = "UPDATE t SET a = a + 1 WHERE id = 1";
    assert_eq!(rows(&mut c, all), ["1|10"]);
    run(&mut c, &[add, "BEGIN", add]);
    run(&mut c, &["COMMIT"]);
    run(&mut ddl, &["ALTER TABLE t ADD COLUMN b int DEFAULT 5"]);
    assert_eq!(rows(&mut c, all), ["1|12|5"]);
    run(&mut c, &["BEGIN", all]);
    run(
        &mut ddl,
        &["ALTER TABLE t ADD CONSTRAINT small CHECK (a < 14)"],
    );
    run(&mut c, &[add, "COMMIT"]);
    let violated = c.execute(add, ()).expect_err("checked");
    assert_eq!(violated.sqlstate(), SqlState::CHECK_VIOLATION);
    run(
        &mut ddl,
        &["DROP TABLE t", "CREATE TABLE t (a text, id bigint UNIQUE)"],
    );
    assert_eq!(rows(&mut c, all).len(), 0);
    assert!(c.execute(add, ()).is_err(), "a text has no plus");
    run(&mut c, &["INSERT INTO t VALUES ('x', 1)"]);
    assert_eq!(rows(&mut c, all), ["x|1"]);
    run(&mut ddl, &["DROP TABLE t"]);
    let gone = c.execute(all, ()).expect_err("gone");
    assert_eq!(gone.sqlstate(), SqlState::UNDEFINED_TABLE);
    // A block that changes the definition itself.
    run(
        &mut c,
        &[
            "BEGIN",
            "CREATE TABLE t (id int PRIMARY KEY, a int)",
            "INSERT INTO t VALUES (1, 1)",
            add,
        ],
    );
    assert_eq!(rows(&mut c, all), ["1|2"]);
    run(&mut c, &["ALTER TABLE t DROP COLUMN a"]);
    assert_eq!(rows(&mut c, all), ["1"]);
    run(&mut c, &["ROLLBACK"]);
}

#[test]
fn search_path_decides_which_table() {
    let database = database();
    let mut c = database.connect();
    run(
        &mut c,
        &[
            "CREATE SCHEMA other",
            "CREATE TABLE t (id int PRIMARY KEY, a int)",
            "CREATE TABLE other.t (id int PRIMARY KEY, a int)",
            "INSERT INTO t VALUES (1, 1)",
            "INSERT INTO other.t VALUES (1, 2)",
        ],
    );
    let get = "SELECT a FROM t WHERE id = 1";
    assert_eq!(rows(&mut c, get), ["1"]);
    run(&mut c, &["SET search_path = other"]);
    assert_eq!(rows(&mut c, get), ["2"]);
    run(&mut c, &["RESET search_path"]);
    assert_eq!(rows(&mut c, get), ["1"]);
}

#[test]
fn transactions_hold_their_promises() {
    let database = database();
    let (mut c, mut other) = (database.connect(), database.connect());
    run(
        &mut c,
        &[
            "CREATE TABLE t (id int PRIMARY KEY, a int)",
            "INSERT INTO t VALUES (1, 10), (2, 20)",
        ],
    );
    let get = "SELECT a FROM t WHERE id = 1";
    // Own changes, savepoints, failed blocks.
    run(
        &mut c,
        &["BEGIN", "UPDATE t SET a = 11 WHERE id = 1", "SAVEPOINT s"],
    );
    run(
        &mut c,
        &[
            "UPDATE t SET a = 12 WHERE id = 1",
            "DELETE FROM t WHERE id = 2",
        ],
    );
    assert_eq!(rows(&mut c, get), ["12"]);
    assert_eq!(rows(&mut other, get), ["10"]);
    run(&mut c, &["ROLLBACK TO s"]);
    assert_eq!(rows(&mut c, get), ["11"]);
    let duplicate = c
        .execute("INSERT INTO t VALUES (2, 0)", ())
        .expect_err("duplicate");
    assert_eq!(duplicate.sqlstate(), SqlState::UNIQUE_VIOLATION);
    assert_eq!(duplicate.detail(), Some("Key (id)=(2) already exists."));
    let failed = c.execute(get, ()).expect_err("failed");
    assert_eq!(failed.sqlstate(), SqlState::IN_FAILED_SQL_TRANSACTION);
    run(&mut c, &["ROLLBACK"]);
    assert_eq!(rows(&mut c, "SELECT a FROM t ORDER BY id"), ["10", "20"]);
    // Read-only.
    run(&mut c, &["BEGIN READ ONLY"]);
    let refused = c
        .execute("UPDATE t SET a = 0 WHERE id = 1", ())
        .expect_err("read-only");
    assert_eq!(refused.sqlstate(), SqlState::READ_ONLY_SQL_TRANSACTION);
    run(&mut c, &["ROLLBACK"]);
    // One snapshot, first committer wins.
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        run(&mut c, &[&format!("BEGIN ISOLATION LEVEL {level}"), get]);
        run(&mut other, &["UPDATE t SET a = a + 1 WHERE id = 1"]);
        assert_eq!(rows(&mut c, get).len(), 1);
        let conflict = c
            .execute("UPDATE t SET a = a + 1 WHERE id = 1", ())
            .expect_err(level);
        assert_eq!(
            conflict.sqlstate(),
            SqlState::SERIALIZATION_FAILURE,
            "{level}"
        );
        run(&mut c, &["ROLLBACK"]);
    }
    // What a serializable transaction has read is validated.
    run(
        &mut c,
        &[
            "BEGIN ISOLATION LEVEL SERIALIZABLE",
            get,
            "UPDATE t SET a = 1 WHERE id = 2",
        ],
    );
    run(&mut other, &["UPDATE t SET a = a + 1 WHERE id = 1"]);
    let skew = c.execute("COMMIT", ()).expect_err("read what has changed");
    assert_eq!(skew.sqlstate(), SqlState::SERIALIZATION_FAILURE);
}

#[test]
fn waits_end_by_timeout_and_deadlock() {
    let database = database();
    let (mut a, mut b) = (database.connect(), database.connect());
    run(
        &mut a,
        &[
            "CREATE TABLE t (id int PRIMARY KEY, n int)",
            "INSERT INTO t VALUES (1, 0), (2, 0)",
        ],
    );
    run(&mut a, &["BEGIN", "UPDATE t SET n = 1 WHERE id = 1"]);
    run(&mut b, &["SET statement_timeout = '50ms'"]);
    let slow = b
        .execute("UPDATE t SET n = n + 1 WHERE id = 1", ())
        .expect_err("waits");
    assert_eq!(
        slow.message(),
        "canceling statement due to statement timeout"
    );
    run(
        &mut b,
        &[
            "RESET statement_timeout",
            "BEGIN",
            "UPDATE t SET n = 2 WHERE id = 2",
        ],
    );
    std::thread::scope(|scope| {
        let cross = scope.spawn(|| {
            let outcome = b.execute("UPDATE t SET n = n + 1 WHERE id = 1", ());
            let _ = b.execute("ROLLBACK", ());
            outcome
        });
        let mine = a.execute("UPDATE t SET n = n + 1 WHERE id = 2", ());
        let _ = a.execute("ROLLBACK", ());
        let theirs = cross.join().expect("no panic");
        let deadlocks = [&mine, &theirs];
        let deadlocks = deadlocks.iter().filter_map(|r| r.as_ref().err());
        let states: Vec<_> = deadlocks.map(Error::sqlstate).collect();
        assert_eq!(states, [SqlState("40P01")]);
    });
}

#[test]
fn typed_parameters_reach_their_columns() {
    let database = database();
    let mut c = database.connect();
    run(
        &mut c,
        &[
            "CREATE TABLE t (id uuid PRIMARY KEY, d date, ts timestamptz, x bytea, n numeric(8,2), \
           f double precision, r real, ok boolean, i interval, tm time, s text, k smallint)",
        ],
    );
    let insert = c
        .prepare_typed(
            "INSERT INTO t VALUES ($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12)",
            &[],
        )
        .expect("prepares");
    let interval = ScalarValue::new_interval_mdn(1, 2, 3_000_000_000);
    let values = [
        ScalarValue::FixedSizeBinary(16, Some(vec![9; 16])),
        ScalarValue::Date32(Some(19_723)),
        ScalarValue::TimestampMicrosecond(Some(1), Some("+00:00".into())),
        ScalarValue::BinaryView(Some(vec![1, 255])),
        ScalarValue::Decimal128(Some(12_345), 10, 3),
        ScalarValue::Float64(Some(0.1)),
        ScalarValue::Float32(Some(0.5)),
        ScalarValue::Boolean(Some(false)),
        interval,
        ScalarValue::Time64Microsecond(Some(1_000_000)),
        ScalarValue::Utf8View(Some("é".into())),
        ScalarValue::Int16(Some(-3)),
    ];
    c.run_prepared(&insert, &values).expect("inserts");
    assert_eq!(point_runs(&database), 1);
    let get = c.prepare_typed("SELECT * FROM t WHERE id = $1", &[Some(SqlType::Uuid)]);
    let got = c
        .run_prepared(&get.expect("prepares"), &values[..1])
        .expect("gets");
    assert_eq!(point_runs(&database), 2);
    let got = got.into_result().expect("rows");
    let full = c.query("SELECT * FROM t", ()).expect("all");
    assert_eq!(got.schema(), full.schema());
    assert_eq!(super::lines(&got), super::lines(&full));
    assert!(
        super::lines(&got)[0].contains("12.35"),
        "{:?}",
        super::lines(&got)
    );
    let nulls = vec![ScalarValue::Null; 12];
    let refused = c
        .run_prepared(&insert, &nulls)
        .expect_err("a key is not null");
    assert_eq!(refused.kind(), ErrorKind::Constraint);
    let _ = Value::Null;
}

/// What was compiled for a table does not outlive it, inside of a transaction neither.
#[test]
fn a_table_made_again_in_a_transaction_is_another_one() {
    let database = database();
    let mut c = database.connect();
    c.execute("BEGIN", ()).expect("begins");
    let values = [
        ("integer", ScalarValue::Int32(Some(7)), "7"),
        ("text", ScalarValue::Utf8(Some("seven".into())), "seven"),
        (
            "numeric(10,2)",
            ScalarValue::Decimal128(Some(725), 10, 2),
            "7.25",
        ),
        ("boolean", ScalarValue::Boolean(Some(true)), "true"),
    ];
    for (sql_type, value, shown) in values {
        c.execute(&format!("CREATE TABLE again (v {sql_type})"), ())
            .expect("made");
        for _ in 0..2 {
            let insert = c
                .prepare_typed("INSERT INTO again VALUES ($1)", &[])
                .expect("prepared");
            c.run_prepared(&insert, std::slice::from_ref(&value))
                .expect(sql_type);
        }
        let found = rows(&mut c, "SELECT DISTINCT v::text FROM again");
        assert_eq!(found, [shown], "{sql_type}");
        c.execute("DROP TABLE again", ()).expect("dropped");
    }
    c.execute("COMMIT", ()).expect("commits");
}

/// An upsert that waited for a deletion of the row inserts it.
#[test]
fn an_upsert_inserts_what_another_transaction_deleted() {
    let database = database();
    let (mut a, mut b) = (database.connect(), database.connect());
    run(&mut a, &["CREATE TABLE h (k int PRIMARY KEY, v int)"]);
    let upsert = "INSERT INTO h VALUES (1, 5) ON CONFLICT (k) DO UPDATE SET v = excluded.v \
                  RETURNING v";
    rows(&mut b, upsert);
    for _ in 0..20 {
        run(&mut a, &["BEGIN", "DELETE FROM h WHERE k = 1"]);
        let waiting = std::thread::spawn(move || {
            let returned = rows(&mut b, upsert);
            (b, returned)
        });
        let begun = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE \
                     'INSERT INTO h%'";
        while rows(&mut a, begun) != ["1"] {}
        run(&mut a, &["COMMIT"]);
        let returned;
        (b, returned) = waiting.join().expect("no panic");
        assert_eq!(returned, ["5"]);
        assert_eq!(rows(&mut a, "SELECT k, v FROM h"), ["1|5"]);
    }
}
