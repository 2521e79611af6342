//! Statements that differ only in their values: texts with literals, and statements with values of
//! a program. They run in the row executor, and show what they show by the full path.

use super::{database, lines, run};
use datafusion::scalar::ScalarValue;
use strandline::{Connection, Database, Error, QueryResult};

pub const TABLES: &[&str] = &[
    "CREATE TABLE a (id int PRIMARY KEY, big bigint, small smallint, n numeric(10,2), \
     s text, v varchar(12), c char(5), f boolean, r real, d double precision)",
    "CREATE INDEX a_s ON a (s)",
    "CREATE INDEX a_big ON a (big)",
    "CREATE TABLE b (a int, no int, day date, at timestamp, tz timestamptz, t time, \
     long interval, u uuid, raw bytea, j json, PRIMARY KEY (a, no))",
    "CREATE INDEX b_a ON b (a, no)",
    "INSERT INTO a SELECT n, n * 1000000000::bigint, n % 7, n * 1.25, 's' || n % 50, 'v' || n, \
     'c' || n % 9, n % 2 = 0, n / 4.0, n / 8.0 FROM generate_series(1, 200) AS g(n)",
    "INSERT INTO b SELECT n / 3, n % 3, DATE '2024-01-01' + n % 30, \
     TIMESTAMP '2024-01-01 00:00:00' + n * INTERVAL '1 hour', \
     CAST(TIMESTAMP '2024-01-01 00:00:00' + n * INTERVAL '1 hour' AS timestamptz), TIME '10:00:00', \
     n * INTERVAL '1 minute', CAST('00000000-0000-0000-0000-0000000000' || (10 + n % 80) AS uuid), \
     CAST('\\x0' || n % 10 AS bytea), CAST('{\"x\": ' || n || '}' AS json) \
     FROM generate_series(3, 599) AS g(n)",
];

/// What a client sees: names and types of the columns and the rows, or the SQLSTATE.
pub fn seen(result: Result<QueryResult, Error>) -> Result<Vec<String>, String> {
    let result = result.map_err(|error| error.sqlstate().0.to_string())?;
    let fields = result.schema().fields().iter();
    let mut seen: Vec<String> = fields
        .map(|f| format!("{} {} {:?}", f.name(), f.data_type(), f.metadata()))
        .collect();
    seen.extend(lines(&result));
    Ok(seen)
}

/// Executions without the query engine.
pub fn short_runs(database: &Database) -> u64 {
    let counters = database.counters();
    let of = |wanted: &str| counters.iter().find(|(name, _)| *name == wanted);
    let of = |wanted: &str| of(wanted).expect("a counter").1;
    of("short_plans_run") + of("statements_point")
}

/// Compares texts with the row executor and without it, in sessions of their own. Returns how many
/// of them have run in the row executor, and adds what differs.
fn compare(database: &Database, texts: &[String], wrong: &mut Vec<String>) -> u64 {
    let (mut c, mut full) = (database.connect(), database.connect());
    full.use_row_executor(false);
    let before = short_runs(database);
    for text in texts {
        let (short, full) = (seen(c.query(text, ())), seen(full.query(text, ())));
        if short != full {
            wrong.push(format!("{text}\n{short:?}, by the full path {full:?}"));
        }
    }
    short_runs(database) - before
}

/// Texts with values in the places of `{0}`, `{1}`, …
fn texts(template: &str, values: &[&[&str]]) -> Vec<String> {
    let with = |values: &&[&str]| {
        let places = values.iter().enumerate();
        places.fold(template.to_string(), |text, (at, value)| {
            text.replace(&format!("{{{at}}}"), value)
        })
    };
    values.iter().map(with).collect()
}

const KEYS: &[&[&str]] = &[
    &["1"],
    &["7"],
    &["13"],
    &["200"],
    &["0"],
    &["-5"],
    &["2000"],
];

/// Queries that run without the query engine from their second text on.
const SHORT: &[&str] = &[
    "SELECT id, upper(s), coalesce(v, 'none'), round(n * 1.2, 2) FROM a WHERE id = {0}",
    "SELECT a.id, b.no, b.day FROM a JOIN b ON b.a = a.id WHERE a.id = {0} ORDER BY b.no",
    "SELECT sum(n * small), count(*) FROM a JOIN b ON b.a = a.id WHERE b.a = {0}",
    "SELECT s, count(*), sum(n) FROM a WHERE id = {0} GROUP BY s ORDER BY s",
    "SELECT DISTINCT day FROM b WHERE a = {0} ORDER BY 1",
    "SELECT id, s FROM a WHERE id = {0} UNION ALL SELECT a, 'x' FROM b WHERE a = {0} AND no = 1 ORDER BY 1, 2",
    "SELECT id FROM a AS x WHERE id = {0} AND EXISTS (SELECT 1 FROM b AS y WHERE y.a = x.id)",
    "SELECT EXISTS (SELECT 1 FROM b WHERE a = {0} AND day > '2024-01-05')",
    "SELECT id FROM a WHERE id IN (SELECT a FROM b WHERE a = {0}) ORDER BY id",
    "SELECT id, (SELECT max(at) FROM b WHERE b.a = {0}) FROM a WHERE id = {0}",
    "WITH c AS (SELECT id, s FROM a WHERE id = {0} ORDER BY id LIMIT 2) \
     SELECT c.id, b.no FROM c JOIN b ON b.a = c.id ORDER BY 2",
    "SELECT id FROM a WHERE (id = {0} AND 1=1) LIMIT 2 OFFSET 0",
    "SELECT a.id, b.no FROM a LEFT JOIN b ON b.a = a.id AND b.day = '2024-01-05' WHERE a.id = {0} ORDER BY 2",
    "SELECT a.id, a.c FROM a JOIN b ON b.a = a.id WHERE a.id = {0} AND b.u = '00000000-0000-0000-0000-000000000013'",
];

#[test]
fn texts_share_a_short_plan() {
    let database = database();
    run(&mut database.connect(), TABLES);
    let mut wrong = Vec::new();
    for template in SHORT {
        let texts = texts(template, KEYS);
        let short = compare(&database, &texts, &mut wrong);
        if short < texts.len() as u64 - 2 {
            wrong.push(format!("{short} of {} texts: {template}", texts.len()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Literals that mean more than their type, and texts that fail.
#[test]
fn a_literal_keeps_its_meaning() {
    let database = database();
    run(&mut database.connect(), TABLES);
    let cases: &[(&str, &[&[&str]])] = &[
        // Digits are the type of a numeric, and of an integer beside one.
        (
            "SELECT n * {0}, n + {0}, n / {0} FROM a WHERE id = 7",
            &[
                &["2"],
                &["20"],
                &["1000000000"],
                &["3"],
                &["1.5"],
                &["12.25"],
                &["'3'"],
                &["2"],
            ],
        ),
        (
            "SELECT id FROM a JOIN b ON b.a = a.id WHERE n > {0} AND id = 7 AND no = 0",
            &[
                &["2"],
                &["8.5"],
                &["8.75"],
                &["'8.7'"],
                &["3000000000"],
                &["1"],
            ],
        ),
        // Integers and bigints.
        (
            "SELECT id + {0}, {0} FROM a JOIN b ON b.a = a.id WHERE id = 7 AND no = 1",
            &[
                &["1"],
                &["2"],
                &["3000000000"],
                &["4000000000"],
                &["2147483647"],
                &["5"],
            ],
        ),
        // A number of rows, a number of a column.
        (
            "SELECT id, s FROM a WHERE s = 's3' ORDER BY {0}, id LIMIT {1}",
            &[
                &["1", "3"],
                &["1", "2"],
                &["2", "3"],
                &["2, 1", "0"],
                &["1 DESC", "4"],
                &["9", "1"],
            ],
        ),
        // Strings that take the type of their place.
        (
            "SELECT count(*) FROM a JOIN b ON b.a = a.id WHERE b.day = {0} AND a.id = 4",
            &[
                &["'2024-01-13'"],
                &["'2024-01-14'"],
                &["'13.1.'"],
                &["'2024-01-14'::date"],
                &["NULL"],
                &["'2024-01-15'"],
            ],
        ),
        (
            "SELECT id FROM a WHERE c = {0} AND id < 30 ORDER BY id",
            &[
                &["'c1'"],
                &["'c1   '"],
                &["'c2'"],
                &["'c2'::text"],
                &["'c2'::char(5)"],
                &["'c3 '"],
            ],
        ),
        (
            "SELECT a.id FROM a, b WHERE b.a = a.id AND b.no = 0 AND a.id = {0}",
            &[
                &["3"],
                &["'3'"],
                &["'4'"],
                &["'x'"],
                &["'5'"],
                &["3.0"],
                &["5"],
                &["6"],
            ],
        ),
        (
            "SELECT {0} AS x, a.id FROM a JOIN b ON b.a = a.id WHERE a.id = 5 AND b.no = 1",
            &[
                &["1"],
                &["'1'"],
                &["'2'"],
                &["1.50"],
                &["1.5"],
                &["NULL"],
                &["true"],
                &["3"],
            ],
        ),
        (
            "SELECT at + {0} FROM b WHERE a = 5 AND no IN (0, 1)",
            &[
                &["'1 day'"],
                &["interval '1 day'"],
                &["'2 hours'::interval"],
                &["'1 hour'"],
            ],
        ),
        (
            "SELECT j->>{0} FROM b WHERE a = 5 AND no = 1",
            &[&["'x'"], &["'y'"], &["'x'"]],
        ),
        (
            "SELECT id FROM a WHERE s LIKE {0} AND id IN (1, 2, 3) ORDER BY id",
            &[&["'s%'"], &["'%2'"], &["'s_'"], &["'x'"], &["'s\\'"]],
        ),
        (
            "SELECT id FROM a WHERE id IN ({0}) ORDER BY id",
            &[
                &["1"],
                &["2"],
                &["1, 2"],
                &["3, 4"],
                &["'5', 6"],
                &["7, NULL"],
            ],
        ),
        (
            "SELECT a.id / (a.id - {0}) FROM a JOIN b ON b.a = a.id WHERE a.id = 5 AND b.no = 1",
            &[&["1"], &["2"], &["5"], &["3"]],
        ),
        (
            "SELECT count(*) FROM b WHERE a = 5 AND long > {0} AND t = '10:00'",
            &[&["'1 minute'"], &["'1 day'"], &["'x'"], &["'16 minutes'"]],
        ),
        (
            "SELECT count(*) FROM b, a WHERE a.id = b.a AND b.raw = {0} AND b.a = 5",
            &[&["'\\x05'"], &["'\\x06'"], &["'\\x07'"], &["'x'"]],
        ),
        (
            "SELECT count(*), min(r), max(d) FROM a WHERE r > {0} AND id = 5 GROUP BY s HAVING count(*) < {1}",
            &[&["1", "5"], &["2", "1"], &["'1'", "3"], &["1.5", "5"]],
        ),
        (
            "SELECT id FROM a WHERE id = {0} AND nowhere = 1",
            &[&["1"], &["2"], &["3"]],
        ),
    ];
    let mut wrong = Vec::new();
    for (template, values) in cases {
        let mut texts = texts(template, values);
        texts.extend(texts.clone());
        compare(&database, &texts, &mut wrong);
        texts.reverse();
        compare(&database, &texts, &mut wrong);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn inserted_texts_are_those_of_the_full_path() {
    let databases = [database(), database()];
    let mut sessions = databases.each_ref().map(Database::connect);
    sessions[1].use_row_executor(false);
    for session in &mut sessions {
        run(session, TABLES);
    }
    let row = |n: usize| {
        format!(
            "({n}, {}, '2024-02-01'::date, '2024-02-01 {:02}:00:00'::timestamp, \
             '2024-02-01 00:00:00+0{}'::timestamptz, '1{}:00'::time, '{n} days'::interval, \
             '00000000-0000-0000-0000-0000000000{}'::uuid, '\\x0{}'::bytea, '[{n}]')",
            n % 4,
            n % 24,
            n % 10,
            n % 10,
            n % 80 + 10,
            n % 10
        )
    };
    let mut texts = Vec::new();
    for rows in [1, 5, 20] {
        for first in [1_000, 1_000, 2_000, 3_000, 4_000] {
            let rows: Vec<String> = (0..rows).map(|n| row(first + rows * 30 + n)).collect();
            texts.push(format!("INSERT INTO b VALUES {}", rows.join(", ")));
        }
    }
    let change = |n: usize, at: &str| {
        format!(
            "UPDATE b SET at = '{at}'::timestamp, day = '2024-03-0{n}'::date WHERE a = {n} AND no = 1"
        )
    };
    texts.extend((1..9).map(|n| change(n, &format!("2024-03-0{n} 10:00:00"))));
    texts.push(change(3, "2024-03-32"));
    texts.push(change(4, "2024-03-03"));
    texts.extend((300..306).map(|n| {
        format!("INSERT INTO a (id, small, n, s, v, c) VALUES ({n}, {n}::smallint, '{n}.125', 'x'::text, '{n}'::text, '{n}')")
    }));
    texts.push("INSERT INTO a (id, small) VALUES (400, 70000::smallint)".to_string());
    for text in &texts {
        let done = sessions.each_mut().map(|session| {
            let done = session.execute(text, ());
            done.map_err(|error| error.sqlstate().0)
        });
        assert_eq!(done[0], done[1], "{text}");
    }
    for all in [
        "SELECT * FROM a ORDER BY id",
        "SELECT * FROM b ORDER BY a, no",
    ] {
        let [short, full] = sessions
            .each_mut()
            .map(|session| seen(session.query(all, ())));
        assert_eq!(short, full);
    }
    let short = short_runs(&databases[0]);
    assert!(short >= 3 * 2 + 6 + 4, "{short} of {}", texts.len());
}

pub fn text(text: &str) -> ScalarValue {
    ScalarValue::Utf8(Some(text.to_string()))
}

/// Runs a statement with values without declared types; the last runs in the row executor.
fn often(c: &mut Connection, database: &Database, sql: &str, values: &[Vec<ScalarValue>]) -> u64 {
    let before = short_runs(database);
    for values in values {
        c.use_row_executor(false);
        let full = seen(c.query(sql, values.as_slice()));
        c.use_row_executor(true);
        let short = seen(c.query(sql, values.as_slice()));
        assert_eq!(short, full, "{sql} {values:?}");
    }
    short_runs(database) - before
}

#[test]
fn values_without_types_share_a_short_plan() {
    let database = database();
    let mut c = database.connect();
    run(&mut c, TABLES);
    let int = |v: i64| ScalarValue::Int64(Some(v));
    let sql = "SELECT a.id, b.no, upper(a.s) FROM a JOIN b ON b.a = a.id \
               WHERE a.id = $1 AND b.day >= $2 ORDER BY b.no";
    let mut values: Vec<_> = (3..9).map(|n| vec![int(n), text("2024-01-02")]).collect();
    let short = often(&mut c, &database, sql, &values);
    assert!(short >= 4, "{short}");
    // Values that are no values of the shape.
    values = vec![
        vec![int(3), text("now and then")],
        vec![int(1 << 40), text("2024-01-02")],
        vec![ScalarValue::Null, text("2024-01-02")],
        vec![text("3"), ScalarValue::Date32(Some(3))],
        vec![int(3), text("2024-01-03")],
    ];
    often(&mut c, &database, sql, &values);
    // What a definition is now.
    run(
        &mut c,
        &[
            "ALTER TABLE b DROP COLUMN day",
            "ALTER TABLE b ADD COLUMN day timestamp DEFAULT '2024-01-02 11:00'",
        ],
    );
    values = (3..9)
        .map(|n| vec![int(n), text("2024-01-02 10:00")])
        .collect();
    often(&mut c, &database, sql, &values);
}
