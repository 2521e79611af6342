//! A client of a server, ours or PostgreSQL, that waits for each statement.

use crate::Result;
use crate::served::Served;
use std::collections::HashMap;
use std::time::Instant;
use tokio::runtime::Runtime;
use tokio_postgres::types::ToSql;
use tokio_postgres::{NoTls, Statement};

/// See the module's documentation.
pub struct Client {
    client: tokio_postgres::Client,
    prepared: HashMap<String, Statement>,
    runtime: Runtime,
    served: Served,
}

impl Client {
    /// A connection to the server, which ends with it.
    pub fn connect(served: Served) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let address = format!(
            "host=127.0.0.1 port={} user=postgres dbname=postgres",
            served.port()
        );
        let (client, connection) = runtime.block_on(tokio_postgres::connect(&address, NoTls))?;
        runtime.spawn(connection);
        Ok(Self {
            client,
            prepared: HashMap::new(),
            runtime,
            served,
        })
    }

    /// The server's name.
    pub fn name(&self) -> &str {
        &self.served.name
    }

    /// Runs statements; the seconds they took.
    pub fn run(&self, sql: &str) -> Result<f64> {
        let started = Instant::now();
        let done = self.runtime.block_on(self.client.batch_execute(sql));
        done.map_err(|error| format!("{}: {sql}: {}", self.name(), text(&error)))?;
        Ok(started.elapsed().as_secs_f64())
    }

    /// Runs a statement, prepared on its first use, with these values: the rows it gave.
    pub fn query(&mut self, sql: &str, values: &[i64]) -> Result<usize> {
        if !self.prepared.contains_key(sql) {
            let prepared = self.runtime.block_on(self.client.prepare(sql));
            let prepared =
                prepared.map_err(|error| format!("{}: {sql}: {}", self.name(), text(&error)))?;
            self.prepared.insert(sql.to_string(), prepared);
        }
        let values: Vec<&(dyn ToSql + Sync)> = values.iter().map(|v| v as _).collect();
        let rows = self.client.query(&self.prepared[sql], &values);
        let rows = self.runtime.block_on(rows);
        let rows = rows.map_err(|error| format!("{}: {sql}: {}", self.name(), text(&error)))?;
        Ok(rows.len())
    }
}

fn text(error: &tokio_postgres::Error) -> String {
    error.as_db_error().map_or_else(
        || error.to_string(),
        |error| format!("{}: {}", error.code().code(), error.message()),
    )
}
