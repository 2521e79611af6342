//! Ours and PostgreSQL with the same tables, and two clients of both: psycopg and pgbench.

use super::case::{Dialect, Statement};
use super::tables::{self, Sizes};
use crate::Result;
use crate::peer::Peer;
use crate::script::{Datum, Draw};
use crate::served::{Served, done};
use serde::Deserialize;
use serde_json::json;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use strandline_base::rng::Rng;

/// What every session sets first.
const SETTINGS: &str = "SET synchronous_commit = off";

/// The way a statement reaches a server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Way {
    PsycopgPrepared,
    PsycopgSimple,
    PgbenchPrepared,
    PgbenchSimple,
}

impl Way {
    /// The client and its protocol.
    pub fn name(self) -> &'static str {
        match self {
            Self::PsycopgPrepared => "psycopg, prepared",
            Self::PsycopgSimple => "psycopg, simple",
            Self::PgbenchPrepared => "pgbench, prepared",
            Self::PgbenchSimple => "pgbench, simple",
        }
    }

    /// The name of the protocol to the client.
    pub fn mode(self) -> &'static str {
        match self {
            Self::PsycopgPrepared | Self::PgbenchPrepared => "prepared",
            Self::PsycopgSimple | Self::PgbenchSimple => "simple",
        }
    }
}

/// Both servers, ours first.
pub struct Servers {
    served: [Served; 2],
    psycopg: Peer,
    directory: PathBuf,
}

/// What one execution gives.
#[derive(Debug, Deserialize, PartialEq)]
pub struct Answer {
    tag: String,
    columns: Vec<String>,
    rows: Vec<Vec<Option<String>>>,
}

impl Servers {
    /// Starts both; our database is `name` in `directory`.
    pub fn start(directory: &Path, name: &str) -> Result<Self> {
        let ours = Served::ours(&directory.join(format!("{name}.strandline")), "4GiB")?;
        let served = [ours, Served::postgres()?];
        let mut psycopg = Peer::psycopg()?;
        for (server, served) in served.iter().enumerate() {
            let port = served.port();
            psycopg.call(json!({
                "op": "connect", "server": server, "port": port, "settings": SETTINGS,
            }))?;
        }
        Ok(Self {
            served,
            psycopg,
            directory: directory.to_path_buf(),
        })
    }

    /// PostgreSQL's name and version.
    pub fn peer(&self) -> &str {
        &self.served[1].name
    }

    /// The name and version of psycopg.
    pub fn psycopg(&self) -> &str {
        &self.psycopg.name
    }

    /// Makes and fills the tables on both, then vacuums, analyses and reads them.
    pub fn load(&mut self, sizes: Sizes) -> Result<()> {
        let mut script = tables::script(Dialect::Server, sizes);
        script.extend(["VACUUM", "ANALYZE", "CHECKPOINT"].map(str::to_string));
        let path = self.directory.join("applications.sql");
        std::fs::write(&path, script.join(";\n") + ";\n")?;
        for served in &self.served {
            let mut psql = served.client("psql");
            psql.env("PGOPTIONS", "-c client_min_messages=warning");
            psql.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-f"]);
            done(psql.arg(&path))?;
        }
        Ok(())
    }

    /// Runs a statement without values on one server: the first row's cells.
    pub fn run(&mut self, server: usize, sql: &str) -> Result<Vec<Option<String>>> {
        let request = json!({ "op": "run", "server": server, "sql": sql });
        let mut answer = self.psycopg.call(request)?;
        let rows: Vec<Vec<Option<String>>> = serde_json::from_value(answer["rows"].take())?;
        Ok(rows.into_iter().next().unwrap_or_default())
    }

    /// Fails unless both servers give the same answers to executions with these values.
    pub fn compare(
        &mut self,
        statement: &Statement,
        way: Way,
        values: &[Vec<Datum>],
    ) -> Result<()> {
        let mut answers = Vec::new();
        for server in 0..2 {
            let sql = &statement.step.sql;
            let mut answer = self.psycopg.call(json!({
                "op": "answers", "server": server, "mode": way.mode(), "sql": sql, "values": values,
            }))?;
            let mut found: Vec<Answer> = serde_json::from_value(answer["answers"].take())?;
            if !statement.is_ordered() {
                found.iter_mut().for_each(|answer| answer.rows.sort());
            }
            answers.push(found);
        }
        for (values, (ours, theirs)) in values.iter().zip(answers[0].iter().zip(&answers[1])) {
            if ours != theirs {
                return Err(format!("{values:?}: {ours:?}, {}: {theirs:?}", self.peer()).into());
            }
            let rows = statement.step.rows;
            if rows.is_some_and(|rows| rows != ours.rows.len()) {
                return Err(format!("{} rows of {rows:?}: {values:?}", ours.rows.len()).into());
            }
        }
        Ok(())
    }

    /// Mean microseconds of the statement on one server, executed by psycopg with each of these
    /// rows of values; the first execution is not counted.
    pub fn psycopg_us(
        &mut self,
        server: usize,
        statement: &Statement,
        way: Way,
        values: &[Vec<Datum>],
    ) -> Result<f64> {
        let step = &statement.step;
        let request = json!({
            "op": "time", "server": server, "mode": way.mode(), "sql": step.sql,
            "values": values, "rows": step.rows,
        });
        self.psycopg.number(request, "us")
    }

    /// Mean microseconds of a script's run by pgbench, of `runs` runs the first of which has the
    /// number `first`, or of a built-in script.
    pub fn pgbench_us(
        &self,
        server: usize,
        script: &Pgbench<'_>,
        way: Way,
        (first, runs): (i64, i64),
    ) -> Result<f64> {
        let mut command = self.pgbench(server, script, way.mode())?;
        command.args([
            "-c",
            "1",
            "-t",
            &runs.to_string(),
            "-D",
            &format!("run={}", first - 1),
        ]);
        let said = done(&mut command)?;
        Ok(1e6 / tps(&said)?)
    }

    /// Runs per second of a script by several clients, each `runs` times.
    pub fn pgbench_rate(
        &self,
        server: usize,
        script: &Pgbench<'_>,
        clients: i64,
        runs: i64,
    ) -> Result<f64> {
        let mut command = self.pgbench(server, script, "prepared")?;
        command.args([
            "-c",
            &clients.to_string(),
            "-j",
            "2",
            "-t",
            &runs.to_string(),
        ]);
        let said = done(&mut command)?;
        if said.contains(&format!("actually processed: {}/", clients * runs)) {
            return tps(&said);
        }
        Err(format!("pgbench has not run all transactions: {said}").into())
    }

    fn pgbench(
        &self,
        server: usize,
        script: &Pgbench<'_>,
        mode: &str,
    ) -> Result<std::process::Command> {
        let mut command = self.served[server].client("pgbench");
        command.args(["-n", "-M", mode]);
        command.env("PGOPTIONS", "-c synchronous_commit=off");
        match script {
            Pgbench::BuiltIn(name) => command.args(["-b", name]),
            Pgbench::Script(text) => {
                let path = self.directory.join("pgbench.sql");
                std::fs::write(&path, text)?;
                command.arg("-f").arg(path)
            }
        };
        Ok(command)
    }

    /// Makes and fills pgbench's own tables.
    pub fn load_pgbench(&self, scale: u32) -> Result<()> {
        for served in &self.served {
            let mut command = served.client("pgbench");
            done(command.args(["-i", "-q", "-s", &scale.to_string()]))?;
        }
        Ok(())
    }
}

/// What pgbench runs.
pub enum Pgbench<'a> {
    BuiltIn(&'a str),
    Script(&'a str),
}

/// The transactions per second in what pgbench says.
fn tps(said: &str) -> Result<f64> {
    let tps = said.lines().find_map(|line| line.strip_prefix("tps = "));
    let tps = tps.and_then(|rest| rest.split_whitespace().next());
    let tps = tps.ok_or_else(|| format!("pgbench said no tps: {said}"))?;
    Ok(tps.parse()?)
}

/// The values of executions with the run numbers from `first` on.
pub fn values(statement: &Statement, seed: u64, first: i64, runs: i64) -> Vec<Vec<Datum>> {
    let mut rng = Rng::new(seed ^ first as u64);
    let draw = |run| {
        let mut values = Vec::new();
        statement.step.draw(&mut rng, run, 0, &mut values);
        values
    };
    (first..first + runs).map(draw).collect()
}

/// The statement as a script of pgbench, which draws numbers only; None: it has other values.
///
/// The variable `run` begins one below the first run's number.
pub fn pgbench_script(statement: &Statement) -> Option<String> {
    let mut script = String::from("\\set run :run + 1\n");
    let mut sql = statement.step.sql.clone();
    for (no, draw) in statement.step.values.iter().enumerate().rev() {
        let (place, no) = (format!("${}", no + 1), no + 1);
        match draw {
            Draw::Word(word) => sql = sql.replace(&place, &format!("'{word}'")),
            _ => sql = sql.replace(&place, &format!(":p{no}")),
        }
    }
    for (no, draw) in statement.step.values.iter().enumerate() {
        let no = no + 1;
        let value = match draw {
            Draw::Word(_) => continue,
            Draw::Run => ":run".to_string(),
            Draw::RunTimes(times, plus) => format!(":run * {times} + {plus}"),
            Draw::Execution => "0".to_string(),
            Draw::Between(from, to) => format!("random({from}, {})", to - 1),
            Draw::After(plus) => format!(":p{} + {plus}", no - 1),
            Draw::Cents(from, to) => format!("random({from}, {}) / 100.0", to - 1),
            Draw::Text(..) | Draw::RunText(_) | Draw::Moment(..) | Draw::Ints(..) => return None,
        };
        writeln!(script, "\\set p{no} {value}").ok()?;
    }
    Some(format!("{script}{sql};\n"))
}

#[cfg(test)]
mod tests {
    use super::super::case::statement;
    use super::*;

    #[test]
    fn a_script_of_pgbench_draws_numbers() {
        let draws = || {
            let mut draws = vec![Draw::RunTimes(2, 7), Draw::Word("w".into())];
            draws.push(Draw::Between(0, 5));
            draws.extend((4..=10).map(|_| Draw::After(1)));
            draws.extend([Draw::Between(3, 9), Draw::Cents(1, 5)]);
            draws
        };
        let of = |draws| statement("s", "SELECT $1, $2, $10, $11::int, $12", draws, 1);
        let script = pgbench_script(&of(draws())).unwrap();
        let lines: Vec<&str> = script.lines().collect();
        assert_eq!(
            lines[..3],
            [
                r"\set run :run + 1",
                r"\set p1 :run * 2 + 7",
                r"\set p3 random(0, 4)"
            ]
        );
        let end = [
            r"\set p11 random(3, 8)",
            r"\set p12 random(1, 4) / 100.0",
            "SELECT :p1, 'w', :p10, :p11::int, :p12;",
        ];
        assert_eq!(lines[lines.len() - 3..], end);
        let mut text = draws();
        text.push(Draw::RunText("t".into()));
        assert_eq!(pgbench_script(&of(text)), None);
    }

    #[test]
    fn tps_of_pgbench() {
        let said = "latency average = 0.1 ms\ntps = 9512.3 (without initial connection time)\n";
        assert_eq!(tps(said).unwrap(), 9512.3);
        assert!(tps("pgbench: error").is_err());
    }
}
