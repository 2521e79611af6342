//! INSERT, UPDATE, DELETE, MERGE and COPY through the public interface, against an engine in
//! memory. One binary, one module per topic.

mod check;
mod copy_from;
mod copy_round_trip;
mod delete;
mod explain;
mod insert;
mod merge;
mod model;
mod own_writes;
mod returning;
mod traps;
mod update;
mod upsert;

use strandline::{Connection, Database, Error, SqlState};

/// A database in memory and a connection to it.
struct Fixture {
    connection: Connection,
    database: Database,
}

impl Fixture {
    /// Runs a script in an empty database.
    fn new(script: &str) -> Self {
        let database = Database::in_memory().expect("an empty database opens");
        let connection = database.connect();
        let mut fixture = Self {
            connection,
            database,
        };
        fixture.script(script);
        fixture
    }

    /// Runs statements that must succeed.
    fn script(&mut self, sql: &str) {
        if let Err(error) = self.connection.execute_script(sql) {
            panic!("{sql}\n{error:?}");
        }
    }

    /// The result of one statement: its rows as `a|b / c|d` with NULL spelled out, or its tag.
    fn run(&mut self, sql: &str) -> Result<String, Error> {
        let summaries = self.connection.execute_script(sql)?;
        let last = summaries.last().expect("a statement has a summary");
        let Some(result) = last.result() else {
            return Ok(last.command_tag().to_string());
        };
        let rows: Vec<String> = result
            .rows()
            .map(|row| {
                let cells: Vec<String> = (0..row.len())
                    .map(|i| {
                        row.text(i)
                            .expect("a cell has text")
                            .unwrap_or("NULL".into())
                    })
                    .collect();
                cells.join("|")
            })
            .collect();
        Ok(rows.join(" / "))
    }

    /// Asserts what a statement returns.
    fn is(&mut self, sql: &str, expected: &str) {
        match self.run(sql) {
            Ok(got) => assert_eq!(got, expected, "{sql}"),
            Err(error) => panic!("{sql}\n{error:?}"),
        }
    }

    /// Asserts that a statement fails with a state and, somewhere in what is shown, a text.
    fn fails(&mut self, sql: &str, state: SqlState, text: &str) {
        match self.run(sql) {
            Ok(got) => panic!("{sql}\nsucceeded: {got}"),
            Err(error) => {
                assert_eq!(error.sqlstate(), state, "{sql}\n{error:?}");
                assert!(error.to_string().contains(text), "{sql}\n{error:?}");
            }
        }
    }
}
