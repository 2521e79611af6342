//! The suite `statements`: the cost of one statement from its text to its result. Commits do not
//! wait for the disk. The first three groups run in process, on one thread.
//!
//! | group | figure | compared with |
//! |---|---|---|
//! | point | µs per statement on one row by key | the target; the same on the full path |
//! | planned | µs per statement that the query engine runs | nothing |
//! | hot | µs per read of rows with many updates of one column | rows never updated |
//! | applications | µs of statements of applications, by psycopg and pgbench | PostgreSQL |
//! | embedded | the same in process | SQLite |
//! | contended | commits/s of 8 clients on 10 rows | PostgreSQL |

mod applications;

use crate::report::{Figure, Goal, Report, config};
use crate::rounds::{Side, Spread, interleave};
use crate::{Group, Result};
use datafusion::scalar::ScalarValue;
use serde_json::json;
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use strandline::{Connection, Database, Settings, Value};
use strandline_base::rng::Rng;

/// Every group, in the order they run.
pub const GROUPS: [(&str, Group<Bench>); 6] = [
    ("point", point),
    ("planned", planned),
    ("hot", hot),
    ("applications", applications::served),
    ("embedded", applications::in_process),
    ("contended", applications::contended),
];

/// Rounds of every case; the figure is their median.
const ROUNDS: usize = 5;
/// Rows of the table, of 10 bigints each.
const ROWS: u64 = 100_000;
/// Rows of the group `hot` that are updated; as many are not.
const HOT_ROWS: u64 = 16;
/// Updates of each hot row.
const HOT_UPDATES: u64 = 20_000;

/// Directories and times of a run.
pub struct Bench {
    directory: PathBuf,
    quick: bool,
    seed: u64,
    /// duration of one round
    round: Duration,
    database: Option<Database>,
}

impl Bench {
    /// A run that keeps its files in `directory`.
    pub fn new(directory: &Path, quick: bool, seed: u64) -> Self {
        Self {
            directory: directory.to_path_buf(),
            quick,
            seed,
            round: Duration::from_millis(if quick { 200 } else { 1_000 }),
            database: None,
        }
    }

    /// A connection to the filled database, which is made on first use.
    fn connect(&mut self) -> Result<Connection> {
        if self.database.is_none() {
            let path = self.directory.join("statements.strandline");
            let database = Database::builder(&path).synchronous_commit(false).build()?;
            fill(&mut database.connect(), self.seed)?;
            database.merge_all()?;
            self.database = Some(database);
        }
        let database = self.database.as_ref().ok_or("the database was not made")?;
        Ok(database.connect())
    }

    /// Times `run` in microseconds; `run` receives a row's number.
    fn time(&self, mut run: impl FnMut(u64) -> Result<()>) -> Result<Spread> {
        let mut rng = Rng::new(self.seed);
        let rounds = (0..ROUNDS).map(|_| self.round(&mut rng, ROWS, &mut run));
        let rounds: Vec<f64> = rounds.collect::<Result<_>>()?;
        Ok(Spread::of(rounds))
    }

    /// Mean microseconds of `run` in one round; `run` receives the number of a row below `rows`.
    fn round(
        &self,
        rng: &mut Rng,
        rows: u64,
        run: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<f64> {
        let (started, mut count) = (Instant::now(), 0_u32);
        while started.elapsed() < self.round {
            for _ in 0..16 {
                run(rng.below(rows))?;
            }
            count += 16;
        }
        Ok(started.elapsed().as_secs_f64() * 1e6 / f64::from(count))
    }
}

fn fill(connection: &mut Connection, seed: u64) -> Result<()> {
    connection.execute(
        "CREATE TABLE point (id bigint PRIMARY KEY, c1 bigint, c2 bigint, c3 bigint, c4 bigint, \
         c5 bigint, c6 bigint, c7 bigint, c8 bigint, c9 bigint)",
        (),
    )?;
    let mut rng = Rng::new(seed);
    let mut appender = connection.appender("point")?;
    for id in 0..ROWS {
        let mut row = vec![Value::BigInt(id as i64)];
        row.resize_with(10, || Value::BigInt(rng.below(1 << 30) as i64));
        appender.append_row(&row)?;
    }
    appender.finish()?;
    Ok(())
}

/// A statement whose last parameter is the key; the other parameters are `1`.
struct Case {
    name: &'static str,
    sql: &'static str,
    parameters: usize,
    /// the target in µs
    target: Option<f64>,
}

const POINT: [Case; 6] = [
    Case {
        name: "SELECT of 10 columns by key",
        sql: "SELECT * FROM point WHERE id = $1",
        parameters: 1,
        target: Some(3.0),
    },
    Case {
        name: "SELECT of one column by key",
        sql: "SELECT c1 FROM point WHERE id = $1",
        parameters: 1,
        target: Some(3.0),
    },
    Case {
        name: "UPDATE of one column by key",
        sql: "UPDATE point SET c1 = $1 WHERE id = $2",
        parameters: 2,
        target: Some(5.0),
    },
    Case {
        name: "UPDATE c = c + n by key",
        sql: "UPDATE point SET c2 = c2 + $1 WHERE id = $2",
        parameters: 2,
        target: Some(5.0),
    },
    Case {
        name: "upsert of an existing key",
        sql: "INSERT INTO point (c3, id) VALUES ($1, $2) \
              ON CONFLICT (id) DO UPDATE SET c3 = point.c3 + excluded.c3",
        parameters: 2,
        target: None,
    },
    Case {
        name: "DELETE of a key that is not there",
        sql: "DELETE FROM point WHERE id = $1 ",
        parameters: 1,
        target: None,
    },
];

fn values(case: &Case, key: i64) -> Vec<ScalarValue> {
    let mut values = vec![ScalarValue::Int64(Some(1)); case.parameters];
    values[case.parameters - 1] = ScalarValue::Int64(Some(key));
    values
}

/// The statement with its values in its text, like an application's template writes it.
fn with_literals(case: &Case, key: i64) -> String {
    let last = format!("${}", case.parameters);
    let text = case.sql.replace(&last, &key.to_string());
    text.replace("$1", "1")
}

/// Measures statements on one row.
fn point(bench: &mut Bench, report: &mut Report) -> Result<()> {
    let mut connection = bench.connect()?;
    for case in &POINT {
        let is_delete = case.sql.starts_with("DELETE");
        let key = |row: u64| {
            if is_delete {
                -1 - row as i64
            } else {
                row as i64
            }
        };
        let mut by_text = |row| {
            std::hint::black_box(connection.query(case.sql, values(case, key(row)))?);
            Ok(())
        };
        let ours = bench.time(&mut by_text)?;
        let prepared = connection.prepare_typed(case.sql, &[])?;
        let mut by_plan = |row| {
            std::hint::black_box(connection.run_prepared(&prepared, &values(case, key(row)))?);
            Ok(())
        };
        let prepared_us = bench.time(&mut by_plan)?;
        let mut by_literals = |row| {
            std::hint::black_box(connection.query(&with_literals(case, key(row)), ())?);
            Ok(())
        };
        let literals_us = bench.time(&mut by_literals)?;
        connection.use_row_executor(false);
        let mut full = |row| {
            std::hint::black_box(connection.query(case.sql, values(case, key(row)))?);
            Ok(())
        };
        let full_us = bench.time(&mut full)?;
        connection.use_row_executor(true);
        if let Some(target) = case.target.map(Spread::from) {
            let goal = Some(Goal::AtMost(1.0));
            add(report, case.name, ours, ("the target", Some(target), goal))?;
            let prepared = format!("{}, prepared", case.name);
            add(
                report,
                &prepared,
                prepared_us,
                ("the target", Some(target), goal),
            )?;
        }
        add(
            report,
            case.name,
            ours,
            ("strandline, full path", Some(full_us), None),
        )?;
        add(
            report,
            &format!("{}, values in the text", case.name),
            literals_us,
            ("strandline, full path", Some(full_us), None),
        )?;
    }
    Ok(())
}

/// Measures statements of the query engine.
fn planned(bench: &mut Bench, report: &mut Report) -> Result<()> {
    let mut connection = bench.connect()?;
    for (name, sql) in [
        (
            "sum of 10 rows by range",
            "SELECT sum(c1) FROM point WHERE id BETWEEN $1 AND $1 + 9",
        ),
        (
            "SELECT by key with an expression",
            "SELECT c1 + c2 FROM point WHERE id = $1",
        ),
    ] {
        let mut run = |row: u64| {
            std::hint::black_box(connection.query(sql, (row as i64,))?);
            Ok(())
        };
        let ours = bench.time(&mut run)?;
        add(report, name, ours, ("-", None, None))?;
    }
    Ok(())
}

/// Fills a table with [`HOT_ROWS`] rows whose `c1` is updated [`HOT_UPDATES`] times, and as many
/// that are never updated.
fn fill_hot(connection: &mut Connection, database: &Database) -> Result<()> {
    connection.execute(
        "CREATE TABLE hot (id bigint PRIMARY KEY, name text UNIQUE, c1 bigint, c2 bigint, \
         c3 text)",
        (),
    )?;
    for id in 0..2 * HOT_ROWS as i64 {
        let row = (id, format!("the name of row {id}"));
        connection.execute("INSERT INTO hot VALUES ($1, $2, 1, 2, 'three')", row)?;
    }
    database.merge_all()?;
    let update = connection.prepare_typed("UPDATE hot SET c1 = c1 + 1 WHERE id = $1", &[])?;
    for n in 0..HOT_ROWS * HOT_UPDATES {
        let id = ScalarValue::Int64(Some((n % HOT_ROWS) as i64));
        connection.run_prepared(&update, &[id])?;
    }
    Ok(())
}

/// Measures reads of all columns of hot rows by key, in turns with reads of rows that were never
/// updated. Nothing is merged in the meantime.
fn hot(bench: &mut Bench, report: &mut Report) -> Result<()> {
    let path = bench.directory.join("hot.strandline");
    let settings = Settings {
        background_maintenance: false,
        ..Settings::default()
    };
    let builder = Database::builder(&path).settings(settings);
    let database = builder.synchronous_commit(false).build()?;
    let mut connection = database.connect();
    fill_hot(&mut connection, &database)?;
    let key = |by_name: bool, id: u64| match by_name {
        true => ScalarValue::Utf8(Some(format!("the name of row {id}"))),
        false => ScalarValue::Int64(Some(id as i64)),
    };
    for (by_name, case, sql) in [
        (false, "a hot row by key", "SELECT * FROM hot WHERE id = $1"),
        (
            true,
            "a hot row by text key",
            "SELECT * FROM hot WHERE name = $1",
        ),
    ] {
        let read = connection.prepare_typed(sql, &[])?;
        let connection = RefCell::new(&mut connection);
        let side = |first: u64| -> Side<'_> {
            let (bench, connection, read) = (&*bench, &connection, &read);
            Box::new(move |round| {
                let mut rng = Rng::new(bench.seed + round);
                bench.round(&mut rng, HOT_ROWS, &mut |row| {
                    let mut connection = connection.borrow_mut();
                    std::hint::black_box(
                        connection.run_prepared(read, &[key(by_name, first + row)])?,
                    );
                    Ok(())
                })
            })
        };
        let figures = interleave(ROUNDS, vec![side(0), side(HOT_ROWS)])?;
        let config = config([
            ("rows", json!(HOT_ROWS)),
            ("updates_per_row", json!(HOT_UPDATES)),
            ("columns", json!(5)),
            ("rounds", json!(ROUNDS)),
        ]);
        report.add(Figure {
            case: case.to_string(),
            unit: "µs",
            ours: figures[0],
            peer: "strandline, rows without updates".to_string(),
            theirs: Some(figures[1]),
            goal: Some(Goal::AtMost(1.5)),
            config,
        })?;
    }
    Ok(())
}

fn add(
    report: &mut Report,
    case: &str,
    ours: Spread,
    (peer, theirs, goal): (&str, Option<Spread>, Option<Goal>),
) -> Result<()> {
    report.add(Figure {
        case: case.to_string(),
        unit: "µs",
        ours,
        peer: peer.to_string(),
        theirs,
        goal,
        config: config([
            ("rows", json!(ROWS)),
            ("columns", json!(10)),
            ("synchronous_commit", json!(false)),
            ("rounds", json!(ROUNDS)),
        ]),
    })
}
