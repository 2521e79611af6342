//! Rival engines in separate processes, controlled over pipes.
//!
//! Requests and answers are one JSON line each; an answer with `error` is a failure. The peers of
//! bench/rivals are built here on first use, so that a build of the benchmarks does not include
//! them. RocksDB takes minutes and is built only on request.

use crate::Result;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A running peer.
pub struct Peer {
    process: Child,
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    /// Engine and version.
    pub name: String,
    /// The engine's settings.
    pub settings: String,
}

impl Peer {
    /// The engine called `name` in bench/rivals. It is compiled now if necessary, with the profile
    /// of this binary.
    pub fn rival(name: &str) -> Result<Self> {
        let mut build = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
        build.args(["build", "--quiet", "--package", "strandline-bench-rivals"]);
        build
            .arg("--manifest-path")
            .arg(workspace().join("Cargo.toml"));
        if !cfg!(debug_assertions) {
            build.arg("--release");
        }
        if name == "rocksdb" {
            build.args(["--features", "rocksdb"]);
        }
        if !build.status()?.success() {
            return Err(format!("the peer {name} does not build (see above)").into());
        }
        let binary = std::env::current_exe()?.with_file_name("strandline-bench-rivals");
        Self::start(Command::new(binary).arg(name))
    }

    /// This program, as `all_ssd`'s engine in a process of its own.
    pub fn ourselves() -> Result<Self> {
        Self::start(Command::new(std::env::current_exe()?).arg("own-process"))
    }

    /// DuckDB in Python.
    pub fn duckdb() -> Result<Self> {
        let script = workspace().join("bench/rivals/duckdb_peer.py");
        Self::start(Command::new("python3").arg(script))
            .map_err(|error| format!("DuckDB: {error} (pip install duckdb)").into())
    }

    /// psycopg in Python, from the environment of `server/tests/clients/install.sh` if it is there.
    pub fn psycopg() -> Result<Self> {
        let clients = std::env::var_os("STRANDLINE_CLIENTS").map(PathBuf::from);
        let home = || {
            std::env::var_os("HOME")
                .map(PathBuf::from)
                .unwrap_or_default()
        };
        let clients = clients.unwrap_or_else(|| home().join(".cache/strandline/clients"));
        let installed = clients.join("venv/bin/python");
        let python = if installed.exists() {
            installed
        } else {
            "python3".into()
        };
        let script = workspace().join("bench/rivals/psycopg_peer.py");
        Self::start(Command::new(python).arg(script)).map_err(|error| {
            format!("psycopg: {error} (server/tests/clients/install.sh installs it)").into()
        })
    }

    fn start(command: &mut Command) -> Result<Self> {
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let requests = process.stdin.take();
        let answers = process
            .stdout
            .take()
            .ok_or("the peer has no standard output")?;
        let (name, settings) = (String::new(), String::new());
        let mut peer = Self {
            process,
            requests,
            answers: BufReader::new(answers),
            name,
            settings,
        };
        let version = peer.call(json!({ "op": "version" }))?;
        let text = |key: &str| version[key].as_str().unwrap_or_default().to_string();
        (peer.name, peer.settings) = (text("version"), text("settings"));
        Ok(peer)
    }

    /// The number of its process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Sends one request and waits for its answer.
    pub fn call(&mut self, request: Value) -> Result<Value> {
        let requests = self.requests.as_mut().ok_or("the peer was told to stop")?;
        writeln!(requests, "{request}")?;
        requests.flush()?;
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            return Err(format!("the peer ended at {request}").into());
        }
        let answer: Value = serde_json::from_str(&line)?;
        match answer.get("error").and_then(Value::as_str) {
            Some(error) => Err(format!("{}: {error}", self.name).into()),
            None => Ok(answer),
        }
    }

    /// Sends `request`; returns the number `key` of the answer.
    pub fn number(&mut self, request: Value, key: &str) -> Result<f64> {
        let answer = self.call(request)?;
        Ok(answer[key]
            .as_f64()
            .ok_or_else(|| format!("no number `{key}` in {answer}"))?)
    }

    /// Sends `request`; returns the list of numbers `key` of the answer.
    pub fn numbers(&mut self, request: Value, key: &str) -> Result<Vec<f64>> {
        let answer = self.call(request)?;
        let list = answer[key]
            .as_array()
            .ok_or_else(|| format!("no list `{key}` in {answer}"))?;
        Ok(list.iter().filter_map(Value::as_f64).collect())
    }

    /// Runs SQL on DuckDB; returns the seconds.
    pub fn sql(&mut self, sql: &str) -> Result<f64> {
        self.number(json!({ "op": "sql", "sql": sql }), "seconds")
    }
}

impl Drop for Peer {
    /// Ends the peer by closing its input.
    fn drop(&mut self) {
        self.requests = None;
        if let Err(error) = self.process.wait() {
            eprintln!("{}: {error}", self.name);
        }
    }
}

/// The workspace of `cargo run`, or else of the build.
fn workspace() -> PathBuf {
    let built = env!("CARGO_MANIFEST_DIR").into();
    let manifest = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or(built));
    manifest
        .parent()
        .expect("bench is a folder of the workspace")
        .to_path_buf()
}
