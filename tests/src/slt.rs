//! Runs sqllogictest files against a database.
//!
//! Every named connection of a file is one connection of the same database. Beside SQL a record
//! may hold a control line:
//!
//! | line | effect |
//! |---|---|
//! | `@checkpoint` | writes a checkpoint |
//! | `@merge` | writes a checkpoint and merges every range |
//! | `@reopen` | ends all connections, closes the database and opens it again |
//! | `@check` | verifies the whole database; damage is the error |
//! | `@clock 2024-01-01 00:00:00` | lets time pass until then; the clock stands still otherwise |
//! | `@jump 2024-01-01 00:00:00` | sets the wall clock wrong, or right again: no time passes |
//!
//! Values are written as PostgreSQL does; a text of nothing but blanks is `(empty)`, NULL is
//! `NULL`.

use arrow::datatypes::DataType;
use sqllogictest::{DB, DBOutput, DefaultColumnType};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use strandline::{Connection, Database, Error, Outcome, QueryResult, TransactionStatus};
use strandline_base::{Clock, ManualClock};

/// Opens the database under test with a clock; called again by `@reopen`.
pub type Open = Box<dyn Fn(Arc<ManualClock>) -> Result<Database, Error> + Send>;

/// When a file's clock starts: 2024-01-01 00:00:00 UTC, in microseconds since 1970.
const START_US: u64 = 1_704_067_200_000_000;

/// A database and the connections that a file has opened to it.
pub struct Session {
    open: Open,
    clock: Arc<ManualClock>,
    database: Option<Database>,
    connections: HashMap<usize, Connection>,
    opened: usize,
    /// a column draws values that a rollback does not give back
    draws_identity: bool,
    /// short statements may run in the row executor; EXPLAIN says that they do in any case
    row_executor: bool,
}

impl Session {
    /// A session on what `open` opens, whose short statements run in the row executor or not.
    pub fn new(open: Open, row_executor: bool) -> Result<Arc<Mutex<Self>>, Error> {
        let clock = Arc::new(ManualClock::new(START_US));
        let database = Some(open(clock.clone())?);
        Ok(Arc::new(Mutex::new(Self {
            open,
            clock,
            database,
            connections: HashMap::new(),
            opened: 0,
            draws_identity: false,
            row_executor,
        })))
    }

    /// A connection of its own for one name of the file.
    pub fn connect(session: &Arc<Mutex<Self>>) -> SltConnection {
        let mut inner = session
            .lock()
            .expect("no test panics while it holds the session");
        inner.opened += 1;
        SltConnection {
            session: Arc::clone(session),
            id: inner.opened,
        }
    }

    fn database(&self) -> Result<&Database, Error> {
        self.database
            .as_ref()
            .ok_or_else(|| Error::internal("the database is being reopened"))
    }

    fn control(&mut self, line: &str) -> Result<(), Error> {
        match line {
            "@checkpoint" => self.database()?.checkpoint().map(|_| ()),
            "@merge" => self.database()?.merge_all().map(|_| ()),
            "@check" => {
                let damage = self.database()?.check()?;
                if damage.is_empty() {
                    return Ok(());
                }
                Err(Error::internal(damage.join("\n")))
            }
            "@reopen" => {
                self.connections.clear();
                if let Some(database) = self.database.take() {
                    database.close()?;
                }
                self.database = Some((self.open)(self.clock.clone())?);
                Ok(())
            }
            other if other.starts_with("@jump ") => {
                self.clock.set(microseconds(&other["@jump ".len()..])?);
                Ok(())
            }
            other => match other.strip_prefix("@clock ") {
                Some(moment) => {
                    let moment = microseconds(moment)?;
                    match moment.checked_sub(self.clock.now_us()) {
                        Some(passes) => self.clock.advance(passes),
                        None => self.clock.set(moment),
                    }
                    Ok(())
                }
                None => Err(Error::internal(format!("there is no control line {other}"))),
            },
        }
    }

    fn run(&mut self, id: usize, sql: &str) -> Result<DBOutput<DefaultColumnType>, Error> {
        if sql.starts_with('@') {
            return self
                .control(sql.trim())
                .map(|()| DBOutput::StatementComplete(0));
        }
        if !self.connections.contains_key(&id) {
            let connection = self.database()?.connect();
            self.connections.insert(id, connection);
        }
        let connection = self.connections.get_mut(&id).expect("just made");
        connection.use_row_executor(self.row_executor || is_explain(sql));
        self.draws_identity |= declares_identity(sql);
        if changes_rows(sql) && !self.draws_identity {
            return run_rehearsed(connection, sql);
        }
        let mut done = run_once(connection, sql)?;
        if may_repeat(sql) {
            // The second run makes a plan that is kept, the third runs by it.
            for _ in 0..2 {
                done = run_once(connection, sql).map_err(|error| {
                    let message = format!("only the first run succeeds: {error}");
                    Error::internal(message)
                })?;
            }
        }
        Ok(done)
    }
}

/// Whether a statement shows a plan.
fn is_explain(sql: &str) -> bool {
    sql.trim_start().to_lowercase().starts_with("explain")
}

/// Whether a statement may declare an identity column.
fn declares_identity(sql: &str) -> bool {
    let text = sql.to_lowercase();
    text.split(|c: char| !c.is_ascii_alphabetic())
        .any(|word| ["identity", "serial", "bigserial", "smallserial"].contains(&word))
}

/// Whether a statement changes rows and nothing else.
fn changes_rows(sql: &str) -> bool {
    let text = sql.trim_start().to_lowercase();
    let changes = ["insert", "update", "delete", "merge"];
    changes.iter().any(|word| text.starts_with(word))
}

/// Runs a statement that changes rows twice in vain, so that its last run has a plan that was kept,
/// and asks that each run does the same.
fn run_rehearsed(
    connection: &mut Connection,
    sql: &str,
) -> Result<DBOutput<DefaultColumnType>, Error> {
    let (begin, end): (_, &[_]) = match connection.transaction_status() {
        TransactionStatus::Idle => ("BEGIN", &["ROLLBACK"]),
        TransactionStatus::Open => (
            "SAVEPOINT rehearsal",
            &["ROLLBACK TO rehearsal", "RELEASE rehearsal"],
        ),
        TransactionStatus::Failed => return run_once(connection, sql),
    };
    let mut rehearsed = Vec::new();
    for _ in 0..2 {
        connection.execute(begin, ())?;
        let mut done = run_once(connection, sql);
        if begin == "BEGIN" && done.is_ok() {
            // By itself the statement has its deferred constraints checked at once.
            let checked = connection.execute("SET CONSTRAINTS ALL IMMEDIATE", ());
            done = checked.and(done);
        }
        rehearsed.push(shown(&done));
        for sql in end {
            connection.execute(sql, ())?;
        }
    }
    let done = run_once(connection, sql);
    let last = shown(&done);
    match rehearsed.iter().find(|other| **other != last) {
        Some(other) if !may_differ(sql) => Err(Error::internal(format!(
            "once it gives {other}, once {last}"
        ))),
        _ => done,
    }
}

fn shown(done: &Result<DBOutput<DefaultColumnType>, Error>) -> String {
    match done {
        Ok(DBOutput::Rows { rows, .. }) => format!("{rows:?}"),
        Ok(DBOutput::StatementComplete(rows)) => format!("{rows} rows"),
        Ok(_) => "another result".to_string(),
        Err(error) => format!("{}: {}", error.sqlstate().0, error.message()),
    }
}

/// Whether a statement's result is another each time.
fn may_differ(sql: &str) -> bool {
    let sql = sql.to_lowercase();
    ["random", "clock_timestamp"]
        .iter()
        .any(|word| sql.contains(word))
}

/// Whether a query gives the same rows when it runs again.
fn may_repeat(sql: &str) -> bool {
    let text = sql.trim_start().to_lowercase();
    let reads = ["select", "with", "values", "table", "("];
    let changes = [
        "nextval",
        "for update",
        "for share",
        "for no key",
        "for key",
        "random",
        "insert",
        "update",
        "delete",
        "merge",
        "strandline_stats",
        "strandline_tiers",
        "pg_sleep",
        "gen_random",
    ];
    reads.iter().any(|word| text.starts_with(word))
        && !changes.iter().any(|word| text.contains(word))
}

fn run_once(connection: &mut Connection, sql: &str) -> Result<DBOutput<DefaultColumnType>, Error> {
    let summary = match connection.run(sql, ())? {
        Outcome::Rows(stream) => {
            let schema = stream.schema().clone();
            let batches = stream.collect::<Result<Vec<_>, Error>>()?;
            return output(&QueryResult::new(schema, batches));
        }
        Outcome::Done(summary) => summary,
    };
    match summary.result() {
        Some(result) => output(result),
        None => Ok(DBOutput::StatementComplete(summary.rows_affected())),
    }
}

fn output(result: &QueryResult) -> Result<DBOutput<DefaultColumnType>, Error> {
    let types = result
        .schema()
        .fields()
        .iter()
        .map(|f| column_type(f.data_type()))
        .collect();
    let mut rows = Vec::with_capacity(result.row_count());
    for row in result.rows() {
        let value = |column| {
            let text = row.text(column)?;
            Ok(match text {
                None => "NULL".to_string(),
                Some(text) if text.trim().is_empty() => "(empty)".to_string(),
                Some(text) => text,
            })
        };
        rows.push(
            (0..row.len())
                .map(value)
                .collect::<Result<Vec<_>, Error>>()?,
        );
    }
    Ok(DBOutput::Rows { types, rows })
}

fn column_type(data_type: &DataType) -> DefaultColumnType {
    if data_type.is_integer() {
        DefaultColumnType::Integer
    } else if data_type.is_numeric() {
        DefaultColumnType::FloatingPoint
    } else {
        DefaultColumnType::Text
    }
}

/// One named connection of a file.
pub struct SltConnection {
    session: Arc<Mutex<Session>>,
    id: usize,
}

/// An error as sqllogictest files match it: SQLSTATE, message, detail, hint.
#[derive(Debug)]
pub struct SltError(Error);

impl fmt::Display for SltError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.sqlstate().0, self.0)
    }
}

impl std::error::Error for SltError {}

impl DB for SltConnection {
    type Error = SltError;
    type ColumnType = DefaultColumnType;

    fn run(&mut self, sql: &str) -> Result<DBOutput<DefaultColumnType>, SltError> {
        let mut session = self
            .session
            .lock()
            .expect("no test panics while it holds the session");
        session.run(self.id, sql).map_err(SltError)
    }

    fn engine_name(&self) -> &str {
        "strandline"
    }

    fn error_sql_state(error: &SltError) -> Option<String> {
        Some(error.0.sqlstate().0.to_string())
    }
}

/// The moment that a timestamp names, in microseconds since the epoch.
fn microseconds(moment: &str) -> Result<u64, Error> {
    let sql = "SELECT (extract(epoch FROM $1::timestamptz) * 1000000)::bigint";
    let found: i64 = Database::in_memory()?
        .connect()
        .query(sql, (moment,))?
        .single()?;
    Ok(found as u64)
}
