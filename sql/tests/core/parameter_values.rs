//! Prepared statements whose values are of other types than the parameters: a program has integers,
//! floats and texts.

use super::shapes::{TABLES, seen, short_runs, text};
use super::{database, lines, run};
use datafusion::scalar::ScalarValue;
use strandline::Database;

/// A program has integers, floats and texts, whatever the types of the parameters are.
#[test]
fn values_become_values_of_the_parameters_types() {
    let int = |v: i64| ScalarValue::Int64(Some(v));
    let float = |v: f64| ScalarValue::Float64(Some(v));
    let cases: Vec<(&str, Vec<Vec<ScalarValue>>)> = vec![
        (
            "SELECT s, n FROM a WHERE id = $1",
            vec![
                vec![int(5)],
                vec![text("6")],
                vec![int(1 << 40)],
                vec![text("x")],
                vec![float(7.0)],
                vec![ScalarValue::Null],
            ],
        ),
        (
            "SELECT a.id, b.no FROM a JOIN b ON b.a = a.id WHERE a.id = $1 AND b.no < $2 ORDER BY 2",
            vec![
                vec![int(5), int(2)],
                vec![int(6), text("1")],
                vec![int(1 << 40), int(1)],
                vec![float(7.5), int(1)],
            ],
        ),
        (
            "SELECT count(*) FROM b WHERE a = $1 AND day >= $2 AND at < $3 AND t = $4 AND u > $5",
            vec![vec![
                int(5),
                text("2024-01-01"),
                text("2025-01-01 00:00:00"),
                text("10:00"),
                text("00000000-0000-0000-0000-000000000013"),
            ]],
        ),
        (
            "SELECT count(*), sum(n) FROM a WHERE small = $1 AND n >= $2 AND big > $3 AND id IN (3, 10, 17)",
            vec![
                vec![int(3), float(12.5), int(1)],
                vec![int(3), int(13), text("1")],
                vec![int(70_000), text("1.25"), int(1)],
                vec![int(3), text("NaN"), int(1)],
            ],
        ),
        (
            "SELECT count(*) FROM b, a WHERE a.id = b.a AND b.a = $1 AND long > $2 AND raw < $3",
            vec![
                vec![int(5), text("1 minute"), ScalarValue::Binary(Some(vec![7]))],
                vec![int(5), text("x"), text("\\x08")],
            ],
        ),
        (
            "UPDATE a SET n = n + $1, d = $2, r = $3, small = small + $4, f = $5 WHERE id = $6",
            vec![
                vec![
                    float(1.25),
                    int(3),
                    float(0.1),
                    int(1),
                    ScalarValue::Boolean(Some(true)),
                    int(9),
                ],
                vec![
                    text("0.75"),
                    float(0.5),
                    int(16_777_217),
                    int(1),
                    text("no"),
                    int(9),
                ],
                vec![
                    int(1),
                    text("1e3"),
                    text("0.5"),
                    int(70_000),
                    text("yes"),
                    int(9),
                ],
                vec![int(1), int(1), int(1), int(1), text("perhaps"), int(9)],
            ],
        ),
        (
            "INSERT INTO b (a, no, day, at, long, raw) VALUES ($1, $2, $3, $4, $5, $6)",
            vec![
                vec![
                    int(5000),
                    int(1),
                    text("2024-01-01"),
                    text("2024-01-01 10:00"),
                    text("1 day"),
                    ScalarValue::Binary(Some(vec![1, 2])),
                ],
                vec![
                    int(5000),
                    int(2),
                    ScalarValue::TimestampMicrosecond(Some(86_400_000_000), None),
                    ScalarValue::Date32(Some(3)),
                    text("1 day"),
                    text("\\x01"),
                ],
                vec![
                    int(5000),
                    int(3),
                    text("soon"),
                    ScalarValue::Null,
                    text("1 day"),
                    ScalarValue::Null,
                ],
            ],
        ),
    ];
    let databases = [database(), database()];
    let mut sessions = databases.each_ref().map(Database::connect);
    sessions[1].use_row_executor(false);
    for session in &mut sessions {
        run(session, TABLES);
    }
    for (sql, values) in &cases {
        let prepared = sessions
            .each_mut()
            .map(|c| c.prepare_typed(sql, &[]).expect(sql));
        for values in values.iter().chain(values).chain(values) {
            let mut shown = Vec::new();
            for (c, prepared) in sessions.iter_mut().zip(&prepared) {
                shown.push(match c.run_prepared(prepared, values) {
                    Err(error) => Err(error.sqlstate().0),
                    Ok(done) => Ok((done.command_tag().to_string(), done.result().map(lines))),
                });
            }
            assert_eq!(shown[0], shown[1], "{sql} {values:?}");
        }
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
}

/// How often a prepared statement runs in the row executor in so many executions with values.
fn of_prepared(sql: &str, values: &[ScalarValue], times: u64) -> u64 {
    let database = database();
    let mut c = database.connect();
    run(&mut c, TABLES);
    let prepared = c.prepare_typed(sql, &[]).expect(sql);
    let before = short_runs(&database);
    for _ in 0..times {
        c.run_prepared(&prepared, values).expect(sql);
    }
    short_runs(&database) - before
}

/// What is wrong if another number of 4 executions runs in the row executor.
fn unlike(sql: &str, values: &[ScalarValue], expected: u64) -> Option<String> {
    let runs = of_prepared(sql, values, 4);
    (runs != expected).then(|| format!("{runs} of 4: {sql}"))
}

#[test]
fn values_of_a_program_need_no_query_engine() {
    let int = |v: i64| ScalarValue::Int64(Some(v));
    let mut wrong = Vec::new();
    for (sql, values) in [
        ("SELECT s FROM a WHERE id = $1", vec![int(5)]),
        (
            "UPDATE a SET small = small + $1 WHERE id = $2",
            vec![int(1), int(5)],
        ),
        (
            "UPDATE a SET n = n + $1 WHERE id = $2",
            vec![ScalarValue::Float64(Some(1.5)), int(5)],
        ),
        (
            "UPDATE b SET at = $1 WHERE a = $2 AND no = $3",
            vec![text("2024-01-01 00:00:00"), int(5), int(1)],
        ),
        (
            "DELETE FROM b WHERE a = $1 AND no = $2",
            vec![int(5), int(1)],
        ),
    ] {
        wrong.extend(unlike(sql, &values, 4));
    }
    for (sql, values) in [
        (
            "SELECT a.id, b.no FROM a JOIN b ON b.a = a.id WHERE a.id = $1",
            vec![int(5)],
        ),
        (
            "SELECT a.id FROM a, b WHERE b.a = a.id AND a.id = $1 AND b.t = $2",
            vec![int(5), text("10:00")],
        ),
        (
            "SELECT a.id FROM a, b WHERE b.a = a.id AND a.id = $1 AND b.long > $2",
            vec![int(5), text("1 minute")],
        ),
        (
            "SELECT a.id FROM a, b WHERE b.a = a.id AND a.id = $1 AND b.raw < $2",
            vec![int(5), ScalarValue::Binary(Some(vec![9]))],
        ),
    ] {
        // The plan is made at the second execution.
        wrong.extend(unlike(sql, &values, 2));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
