//! The sides of a comparison in process: a database of ours in this one, SQLite in its peer's.

use crate::Result;
use crate::peer::Peer;
use crate::script::{Datum, Load, Runner, Script};
use datafusion::scalar::ScalarValue;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use strandline::{Connection, Database, Prepared};

/// Runs of a script per second on our database.
pub fn rate(database: &Database, load: &Load, durable: bool) -> Result<f64> {
    load.rate(|| OurRunner::connect(database, &load.script, durable))
}

/// The bigints that a query of ours returns.
pub fn numbers(database: &Database, sql: &str) -> Result<Vec<i64>> {
    let found = database.connect().query(sql, ())?;
    let rows = found.rows();
    let numbers = rows.flat_map(|row| (0..row.len()).map(move |column| row.get(column)));
    Ok(numbers.collect::<strandline::Result<_>>()?)
}

/// A value of a parameter as our API takes it: an array is its text.
pub fn scalar(datum: &Datum) -> ScalarValue {
    /// The start of the year 2026, in microseconds since 1970.
    const YEAR_US: i64 = 1_767_225_600_000_000;
    match datum {
        Datum::Int(number) => ScalarValue::Int64(Some(*number)),
        Datum::Text(text) => ScalarValue::Utf8(Some(text.clone())),
        Datum::Cents(cents) => ScalarValue::Decimal128(Some(i128::from(*cents)), 20, 2),
        Datum::Moment(seconds) => {
            ScalarValue::TimestampMicrosecond(Some(YEAR_US + seconds * 1_000_000), None)
        }
        Datum::Ints(numbers) => {
            let numbers: Vec<String> = numbers.iter().map(i64::to_string).collect();
            ScalarValue::Utf8(Some(format!("{{{}}}", numbers.join(","))))
        }
    }
}

/// A connection with the steps of a script prepared.
struct OurRunner {
    connection: Connection,
    begin: Prepared,
    commit: Prepared,
    steps: Vec<Prepared>,
}

impl OurRunner {
    fn connect(database: &Database, script: &Script, durable: bool) -> Result<Self> {
        let mut connection = database.connect();
        let durability = if durable { "on" } else { "off" };
        connection.execute(&format!("SET synchronous_commit = {durability}"), ())?;
        let mut prepare = |sql: &str| connection.prepare_typed(sql, &[]);
        let (begin, commit) = (prepare("BEGIN")?, prepare("COMMIT")?);
        let steps = script.steps.iter().map(|step| prepare(&step.sql));
        let steps = steps.collect::<strandline::Result<_>>()?;
        Ok(Self {
            connection,
            begin,
            commit,
            steps,
        })
    }
}

impl Runner for OurRunner {
    fn begin(&mut self) -> Result<()> {
        self.connection.run_prepared(&self.begin, &[])?;
        Ok(())
    }

    fn commit(&mut self) -> Result<()> {
        self.connection.run_prepared(&self.commit, &[])?;
        Ok(())
    }

    fn execute(&mut self, step: usize, values: &[Datum]) -> Result<usize> {
        let values: Vec<ScalarValue> = values.iter().map(scalar).collect();
        let summary = self.connection.run_prepared(&self.steps[step], &values)?;
        Ok(summary.result().map_or(0, |result| result.row_count()))
    }
}

/// A database file of SQLite.
pub struct Sqlite {
    pub peer: Peer,
    path: PathBuf,
}

impl Sqlite {
    /// Starts SQLite, whose file will be in `directory`.
    pub fn start(directory: &Path) -> Result<Self> {
        Ok(Self {
            peer: Peer::rival("sqlite")?,
            path: directory.join("bench.sqlite"),
        })
    }

    /// Removes the file.
    pub fn clear(&mut self) -> Result<()> {
        for suffix in ["", "-wal", "-shm"] {
            let path = PathBuf::from(format!("{}{suffix}", self.path.display()));
            if path.exists() {
                std::fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    /// The bigints that statements return.
    pub fn numbers(&mut self, sql: &str) -> Result<Vec<i64>> {
        let request = json!({ "op": "sql", "path": self.path, "sql": sql });
        let answer = self.peer.call(request)?;
        let numbers = answer["numbers"].as_array();
        let numbers = numbers.ok_or_else(|| format!("no list `numbers` in {answer}"))?;
        Ok(numbers.iter().filter_map(Value::as_i64).collect())
    }

    /// The rows of one statement, each value as text.
    pub fn rows(&mut self, sql: &str, values: &[Datum]) -> Result<Vec<Vec<Option<String>>>> {
        let request = json!({ "op": "rows", "path": self.path, "sql": sql, "values": values });
        let mut answer = self.peer.call(request)?;
        Ok(serde_json::from_value(answer["rows"].take())?)
    }

    /// Runs of a script per second.
    pub fn rate(&mut self, load: &Load, durable: bool) -> Result<f64> {
        let mut request = serde_json::to_value(load)?;
        request["op"] = json!("script");
        request["path"] = json!(self.path);
        request["durable"] = json!(durable);
        self.peer.number(request, "rate")
    }
}
