//! PostgreSQL's answers: a server of our own in a temporary directory, asked through psql.
//!
//! The server listens on a Unix socket only. It refuses to run as root, so root starts it as
//! `postgres`. Each batch of units is one script; `\echo` marks where an answer ends.

use super::{Answer, Outcome, Unit};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs, io};
use tempfile::TempDir;

/// A running server; dropping it stops the server and removes its files.
pub struct Postgres {
    programs: PathBuf,
    directory: TempDir,
    is_root: bool,
}

/// Where the programs of a PostgreSQL are: in PATH or where Debian installs them.
fn programs() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut candidates: Vec<PathBuf> = env::split_paths(&path).collect();
    if let Ok(versions) = fs::read_dir("/usr/lib/postgresql") {
        let mut found: Vec<PathBuf> = versions.flatten().map(|v| v.path().join("bin")).collect();
        found.sort();
        candidates.extend(found.into_iter().rev());
    }
    let is_complete = |p: &PathBuf| {
        ["initdb", "pg_ctl", "psql"]
            .iter()
            .all(|n| p.join(n).exists())
    };
    candidates.into_iter().find(is_complete)
}

impl Postgres {
    /// Starts a server.
    ///
    /// # Errors
    /// If PostgreSQL is not installed or does not start.
    pub fn start() -> io::Result<Self> {
        let Some(programs) = programs() else {
            return Err(io::Error::other("PostgreSQL's initdb is not installed"));
        };
        let user = Command::new("id").arg("-u").output()?;
        let server = Self {
            programs,
            directory: TempDir::new()?,
            is_root: user.stdout.trim_ascii() == b"0",
        };
        if server.is_root {
            let owner = Command::new("chown")
                .arg("postgres")
                .arg(server.path())
                .output()?;
            succeeded(owner)?;
        }
        let data = server.path().join("data");
        let mut initdb = server.program("initdb");
        initdb.arg("-D").arg(&data);
        initdb.args([
            "-A",
            "trust",
            "-U",
            "postgres",
            "--locale=C",
            "-E",
            "UTF8",
            "-N",
        ]);
        succeeded(initdb.output()?)?;
        let socket = server.path().display();
        let options = format!("-k {socket} -c listen_addresses='' -c fsync=off -c jit=off");
        let mut start = server.program("pg_ctl");
        start
            .arg("-D")
            .arg(&data)
            .arg("-l")
            .arg(server.path().join("log"));
        start.args(["-w", "-o", &options, "start"]);
        // The server keeps what it inherits: a pipe would stay open.
        let started = start.stdout(io::stderr()).status()?;
        match started.success() {
            true => Ok(server),
            false => Err(io::Error::other("PostgreSQL does not start")),
        }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn program(&self, name: &str) -> Command {
        let program = self.programs.join(name);
        if !self.is_root {
            return Command::new(program);
        }
        let mut command = Command::new("runuser");
        command.args(["-u", "postgres", "--"]).arg(program);
        command
    }

    /// The answers to `units` over the tables that `setup` makes.
    pub fn ask(&self, setup: &[String], units: &[Unit]) -> io::Result<Vec<Outcome>> {
        let script = self.path().join("script.sql");
        fs::write(&script, text_of(setup, units))?;
        let mut psql = self.program("psql");
        psql.arg("-h").arg(self.path()).arg("-f").arg(&script);
        psql.args([
            "-U", "postgres", "-d", "postgres", "-X", "-q", "-A", "-t", "-F", "\t",
        ]);
        psql.args(["-P", "null=\\N"]);
        let output = psql.output()?;
        let text = String::from_utf8(output.stdout).map_err(io::Error::other)?;
        let parts = text.split("@unit\n").skip(1);
        let answers: Vec<Outcome> = parts.zip(units).map(|(t, u)| outcome(t, u)).collect();
        match answers.len() == units.len() {
            true => Ok(answers),
            false => Err(io::Error::other(String::from_utf8_lossy(&output.stderr))),
        }
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let mut stop = self.program("pg_ctl");
        stop.arg("-D").arg(self.path().join("data"));
        stop.args(["-w", "-m", "immediate", "stop"]);
        // The files go whether it could be stopped or not.
        let _ = stop.output();
    }
}

fn succeeded(output: Output) -> io::Result<()> {
    match output.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(String::from_utf8_lossy(&output.stderr))),
    }
}

/// The script: all tables anew, then unit after unit.
fn text_of(setup: &[String], units: &[Unit]) -> String {
    let mut script = "SET client_min_messages = error; SET statement_timeout = '60s';\n\
                      DROP SCHEMA public CASCADE; CREATE SCHEMA public;\n"
        .to_string();
    for statement in setup {
        writeln!(script, "{statement};").expect("a string takes it");
    }
    for unit in units {
        script.push_str("\\echo @unit\nBEGIN;\n");
        if let Some(change) = &unit.change {
            match change.contains(" RETURNING ") {
                true => ask_rows(&mut script, change),
                false => ask_count(&mut script, change),
            }
        }
        ask_rows(&mut script, &unit.query);
        script.push_str("ROLLBACK;\n");
    }
    script
}

const STATE: &str = "\\echo @state :SQLSTATE :ROW_COUNT :LAST_ERROR_MESSAGE\n";

/// Types, a mark, rows, a mark.
fn ask_rows(script: &mut String, sql: &str) {
    script.push_str(&format!("{sql} \\gdesc\n{STATE}{sql};\n{STATE}"));
}

fn ask_count(script: &mut String, sql: &str) {
    script.push_str(&format!("{sql};\n{STATE}"));
}

/// The answers in what psql has printed of a unit.
fn outcome(text: &str, unit: &Unit) -> Outcome {
    let mut answers = Vec::new();
    let mut types: Option<Vec<String>> = None;
    let mut lines = Vec::new();
    for line in text.lines() {
        let Some(mark) = line.strip_prefix("@state ") else {
            lines.push(line);
            continue;
        };
        let lines = std::mem::take(&mut lines);
        let (state, rest) = mark.split_once(' ').unwrap_or((mark, ""));
        let (count, message) = rest.split_once(' ').unwrap_or((rest, ""));
        if state != "00000" {
            answers.push(Answer::Error {
                state: state.to_string(),
                message: message.to_string(),
            });
            types = None;
        } else if let Some(types) = types.take() {
            // One empty text is an empty line, and so is no row.
            let rows = lines.into_iter().take(count.parse().unwrap_or_default());
            let rows = rows.map(values).collect();
            answers.push(Answer::Rows { types, rows });
        } else if lines.is_empty() {
            answers.push(Answer::Count(count.parse().unwrap_or_default()));
        } else {
            types = Some(lines.into_iter().map(type_of).collect());
        }
    }
    let is_aborted = |a: &Answer| a.error().is_some_and(|(state, _)| state == "25P02");
    answers.retain(|answer| !is_aborted(answer));
    // After a change that fails there is no other answer.
    Outcome {
        change: unit.change.as_ref().and(answers.first().cloned()),
        query: answers.pop().expect("an answer"),
    }
}

/// The type of a line of `\gdesc`, without precision or length.
fn type_of(line: &str) -> String {
    let name = line.rsplit('\t').next().unwrap_or_default();
    let name = name.split('(').next().unwrap_or_default();
    name.to_string()
}

/// The values of a line; none of them has a tab or a line break.
fn values(line: &str) -> Vec<Option<String>> {
    let value = |value: &str| (value != "\\N").then(|| value.to_string());
    line.split('\t').map(value).collect()
}
