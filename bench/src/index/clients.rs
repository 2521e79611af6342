//! A client of a server, ours or PostgreSQL, that waits for each statement.

use crate::Result;
use crate::script::{Datum, Load, Runner};
use crate::served::Served;
use std::collections::HashMap;
use std::process::Command;
use std::time::Instant;
use tokio::runtime::Runtime;
use tokio_postgres::types::ToSql;
use tokio_postgres::{NoTls, Statement};

/// A server with a connection to it.
pub struct Client {
    connection: Connection,
    served: Served,
}

/// A connection to a server.
struct Connection {
    client: tokio_postgres::Client,
    prepared: HashMap<String, Statement>,
    runtime: Runtime,
    /// the server's name
    name: String,
}

impl Client {
    /// A connection to the server, which ends with it.
    pub fn connect(served: Served) -> Result<Self> {
        let connection = Connection::open(served.name.clone(), served.port())?;
        Ok(Self { connection, served })
    }

    /// The server's name.
    pub fn name(&self) -> &str {
        &self.served.name
    }

    /// A client program of PostgreSQL's that talks to this server.
    pub fn program(&self, program: &str) -> Command {
        self.served.client(program)
    }

    /// Runs statements; the seconds they took.
    pub fn run(&self, sql: &str) -> Result<f64> {
        self.connection.run(sql)
    }

    /// Runs a statement, prepared on its first use, with these values: the rows it gave.
    pub fn query(&mut self, sql: &str, values: &[i64]) -> Result<usize> {
        Ok(self.connection.rows(sql, values)?.len())
    }

    /// Runs of a script per second. Each client has a connection of its own, which runs `settings`
    /// first.
    pub fn rate(&self, load: &Load, settings: &str) -> Result<f64> {
        let (name, port) = (&self.served.name, self.served.port());
        load.rate(|| {
            let connection = Connection::open(name.clone(), port)?;
            connection.run(settings)?;
            let steps = load.script.steps.iter();
            Ok(WireRunner {
                connection,
                steps: steps.map(|step| step.sql.clone()).collect(),
            })
        })
    }

    /// The bigints of a query's rows.
    pub fn numbers(&mut self, sql: &str) -> Result<Vec<i64>> {
        let rows = self.connection.rows(sql, &[])?;
        let numbers = rows.iter().flat_map(|row| {
            let columns = 0..row.len();
            columns.map(|column| row.try_get(column))
        });
        Ok(numbers.collect::<std::result::Result<_, _>>()?)
    }
}

impl Connection {
    /// A connection to the server at this port of the loopback address.
    fn open(name: String, port: u16) -> Result<Self> {
        // The client's own thread reads the socket: no hand-over between threads in a round trip.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let address = format!("host=127.0.0.1 port={port} user=postgres dbname=postgres");
        let (client, connection) = runtime.block_on(tokio_postgres::connect(&address, NoTls))?;
        runtime.spawn(connection);
        Ok(Self {
            client,
            prepared: HashMap::new(),
            runtime,
            name,
        })
    }

    /// Runs statements; the seconds they took.
    fn run(&self, sql: &str) -> Result<f64> {
        let started = Instant::now();
        let done = self.runtime.block_on(self.client.batch_execute(sql));
        done.map_err(|error| self.failed(sql, &error))?;
        Ok(started.elapsed().as_secs_f64())
    }

    fn rows(&mut self, sql: &str, values: &[i64]) -> Result<Vec<tokio_postgres::Row>> {
        if !self.prepared.contains_key(sql) {
            let prepared = self.runtime.block_on(self.client.prepare(sql));
            let prepared = prepared.map_err(|error| self.failed(sql, &error))?;
            self.prepared.insert(sql.to_string(), prepared);
        }
        let values: Vec<&(dyn ToSql + Sync)> = values.iter().map(|v| v as _).collect();
        let rows = self.client.query(&self.prepared[sql], &values);
        let rows = self.runtime.block_on(rows);
        Ok(rows.map_err(|error| self.failed(sql, &error))?)
    }

    fn failed(&self, sql: &str, error: &tokio_postgres::Error) -> String {
        let text = error.as_db_error().map_or_else(
            || error.to_string(),
            |error| format!("{}: {}", error.code().code(), error.message()),
        );
        format!("{}: {sql}: {text}", self.name)
    }
}

/// A connection that runs the steps of a script.
struct WireRunner {
    connection: Connection,
    /// the steps' statements
    steps: Vec<String>,
}

impl Runner for WireRunner {
    fn begin(&mut self) -> Result<()> {
        self.connection.run("BEGIN").map(drop)
    }

    fn commit(&mut self) -> Result<()> {
        self.connection.run("COMMIT").map(drop)
    }

    fn execute(&mut self, step: usize, values: &[Datum]) -> Result<usize> {
        let values: Option<Vec<i64>> = values.iter().map(Datum::int).collect();
        let values = values.ok_or("a value is no bigint")?;
        Ok(self.connection.rows(&self.steps[step], &values)?.len())
    }
}
