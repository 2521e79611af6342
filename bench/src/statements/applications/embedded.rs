//! The same statements in process, prepared, beside SQLite with the same tables.

use super::case::{Dialect, Statement};
use super::servers::values;
use super::summary::{self, Goals, Ratios};
use super::tables::{self, Sizes};
use super::{Figures, statements};
use crate::Result;
use crate::in_process::{self, Sqlite};
use crate::report::Report;
use crate::rounds::{Side, take_turns};
use crate::script::{Datum, Load, Script, Step};
use std::path::Path;
use strandline::{Connection, Database};

/// The most runs of a round: as many rows are made anew for each.
const ROUND_RUNS: i64 = 10_000;
/// Executions whose rows are compared.
const COMPARED: i64 = 3;
const GOALS: Goals = Goals {
    each: 1.0,
    mean: 1.0,
};

/// Rows of cells as text.
type Rows = Vec<Vec<Option<String>>>;

/// A figure per statement that SQLite has, and their geometric mean.
pub fn run(figures: &Figures, directory: &Path, report: &mut Report) -> Result<()> {
    let database = open(directory, figures.sizes)?;
    let mut sqlite = Sqlite::start(directory)?;
    sqlite.clear()?;
    for sql in tables::script(Dialect::Sqlite, figures.sizes) {
        sqlite.numbers(&sql)?;
    }
    sqlite.numbers("ANALYZE")?;
    let all = statements(figures.sizes);
    let all = all.iter().filter(|statement| statement.sqlite.is_some());
    let mut ratios = Ratios::default();
    let mut same = Vec::new();
    for statement in all {
        match compare(figures, &database, &mut sqlite, statement) {
            Ok(()) => same.push(statement),
            Err(error) => {
                ratios.miss(statement.name);
                let case = format!("{}, in process", statement.name);
                report.verdict(&case, &format!("not measured: {error}"))?;
            }
        }
    }
    for statement in same {
        match measure(figures, &database, &mut sqlite, statement) {
            Ok(times) => {
                ratios.add(statement.name, &times[0], &times[1]);
                let case = format!("{}, in process", statement.name);
                figures.add(report, &case, &sqlite.peer.name, GOALS, &times)?;
            }
            Err(error) => {
                ratios.miss(statement.name);
                let case = format!("{}, in process", statement.name);
                report.verdict(&case, &format!("not measured: {error}"))?;
            }
        }
    }
    ratios.report(report, "in process", &sqlite.peer.name, GOALS)?;
    summary::complete([&ratios].into_iter())
}

/// Our database with the tables, merged.
pub fn open(directory: &Path, sizes: Sizes) -> Result<Database> {
    let path = directory.join("embedded.strandline");
    let database = Database::builder(&path).synchronous_commit(false).build()?;
    let mut connection = database.connect();
    for sql in tables::script(Dialect::Server, sizes) {
        let done = connection.execute(&sql, ());
        done.map_err(|error| format!("{sql}: {error}"))?;
    }
    database.merge_all()?;
    Ok(database)
}

/// Makes the rows that so many runs use up on both sides.
fn refill(
    database: &Database,
    sqlite: &mut Sqlite,
    statement: &Statement,
    (first, runs): (i64, i64),
) -> Result<()> {
    if let Some(refill) = statement.refill {
        let ours = Dialect::Server.refill(refill, first, runs);
        database.connect().execute(&ours, ())?;
        sqlite.numbers(&Dialect::Sqlite.refill(refill, first, runs))?;
    }
    Ok(())
}

/// The rows of our execution of a statement.
pub fn rows(connection: &mut Connection, sql: &str, values: &[Datum]) -> Result<Rows> {
    let prepared = connection.prepare_typed(sql, &[])?;
    let values: Vec<_> = values.iter().map(in_process::scalar).collect();
    let summary = connection.run_prepared(&prepared, &values)?;
    let Some(result) = summary.result() else {
        return Ok(Vec::new());
    };
    let rows = result.rows().map(|row| {
        let cells = (0..row.len()).map(|column| row.text(column));
        cells.collect::<strandline::Result<Vec<_>>>()
    });
    Ok(rows.collect::<strandline::Result<_>>()?)
}

/// Fails unless both sides give the same rows.
fn compare(
    figures: &Figures,
    database: &Database,
    sqlite: &mut Sqlite,
    statement: &Statement,
) -> Result<()> {
    refill(database, sqlite, statement, (0, COMPARED))?;
    let mut connection = database.connect();
    let text = statement
        .sqlite
        .as_ref()
        .ok_or("SQLite has no such statement")?;
    for values in values(statement, figures.seed, 0, COMPARED) {
        let mut ours = plain(rows(&mut connection, &statement.step.sql, &values)?);
        let mut theirs = plain(sqlite.rows(text, &values)?);
        if !statement.is_ordered() {
            ours.sort();
            theirs.sort();
        }
        if ours != theirs {
            return Err(format!("{values:?}: {ours:?}, SQLite: {theirs:?}").into());
        }
        let expected = statement.step.rows;
        if expected.is_some_and(|expected| expected != ours.len()) {
            return Err(format!("{} rows of {expected:?}: {values:?}", ours.len()).into());
        }
    }
    Ok(())
}

/// Cells in the form that both sides share: SQLite has no booleans, and its numbers no scale.
fn plain(mut rows: Rows) -> Rows {
    for cell in rows.iter_mut().flatten().flatten() {
        match cell.as_str() {
            "t" | "true" => *cell = "1.000000".to_string(),
            "f" | "false" => *cell = "0.000000".to_string(),
            _ => {
                if let Ok(number) = cell.parse::<f64>() {
                    *cell = format!("{number:.6}");
                }
            }
        }
    }
    rows
}

/// Microseconds of an execution by round: ours, and SQLite's.
fn measure(
    figures: &Figures,
    database: &Database,
    sqlite: &mut Sqlite,
    statement: &Statement,
) -> Result<Vec<Vec<f64>>> {
    let load = |sql: &str, round: u64| Load {
        script: Script {
            steps: vec![Step {
                sql: sql.to_string(),
                ..statement.step.clone()
            }],
            is_transaction: false,
        },
        clients: 1,
        seconds: figures.round.as_secs_f64(),
        seed: figures.seed + round,
        first: (round as i64 + 1) * ROUND_RUNS,
        most: Some(ROUND_RUNS),
    };
    let text = statement
        .sqlite
        .as_ref()
        .ok_or("SQLite has no such statement")?;
    for round in 0..figures.rounds as i64 {
        refill(
            database,
            sqlite,
            statement,
            ((round + 1) * ROUND_RUNS, ROUND_RUNS),
        )?;
    }
    let sides: Vec<Side<'_>> = vec![
        Box::new(|round| {
            let load = load(&statement.step.sql, round);
            Ok(1e6 / in_process::rate(database, &load, false)?)
        }),
        Box::new(|round| Ok(1e6 / sqlite.rate(&load(text, round), false)?)),
    ];
    take_turns(figures.rounds, sides)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What may be missing in our SQL is refused by name, so that a measured statement is a
    /// statement that works.
    #[test]
    fn statements_give_their_rows_or_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let sizes = Sizes {
            customers: 1_000,
            district_customers: 100,
        };
        let database = open(directory.path(), sizes).unwrap();
        let mut connection = database.connect();
        let mut refused = Vec::new();
        for statement in statements(sizes) {
            if let Some(refill) = statement.refill {
                let refill = Dialect::Server.refill(refill, 0, COMPARED);
                connection.execute(&refill, ()).unwrap();
            }
            for values in values(&statement, 7, 0, COMPARED) {
                let context = format!("{}: {values:?}", statement.name);
                match rows(&mut connection, &statement.step.sql, &values) {
                    Ok(rows) => {
                        let expected = statement.step.rows.unwrap_or(rows.len());
                        assert_eq!(rows.len(), expected, "{context}");
                    }
                    Err(error) => {
                        let error = error.downcast::<strandline::Error>().expect(&context);
                        assert_eq!(error.sqlstate().0, "0A000", "{context}: {error}");
                        refused.push(statement.name);
                        break;
                    }
                }
            }
        }
        assert!(refused.len() <= 2, "{refused:?}");
    }

    #[test]
    fn numbers_and_booleans_are_compared_by_value() {
        let row = |cells: [&str; 4]| vec![cells.map(|cell| Some(cell.to_string())).to_vec()];
        let ours = plain(row(["t", "12.50", "x 1.0", "3"]));
        assert_eq!(ours, plain(row(["1", "12.5", "x 1.0", "3.0"])));
        assert_ne!(ours, plain(row(["1", "12.5", "x 1.00", "3"])));
    }
}
