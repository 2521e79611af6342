//! Strandline's answers.

use super::{Answer, Outcome, Unit};
use crate::pg_types::type_name;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use strandline::wire_format::ColumnType;
use strandline::{Connection, Database, Error, QueryResult, cell};
use strandline_device::MemoryDevice;

/// A database in memory with the tables of a seed. A part of their rows is merged, a part has been
/// updated since.
pub struct Ours {
    database: Database,
    connection: Connection,
}

impl Ours {
    /// A database after the statements of `setup`.
    pub fn new(setup: &[String]) -> Result<Self, Error> {
        let database = Database::on_device(Arc::new(MemoryDevice::new())).build()?;
        let mut connection = database.connect();
        for statement in setup {
            connection.execute(statement, ())?;
        }
        database.merge_all()?;
        for table in ["t1", "t2", "t3", "t4"] {
            let update = format!("UPDATE {table} SET k = k WHERE id % 2 = 0");
            connection.execute(&update, ())?;
        }
        Ok(Self {
            database,
            connection,
        })
    }

    /// The answers to a unit, whose change is undone.
    pub fn ask(&mut self, unit: &Unit) -> Outcome {
        let Some(change) = &unit.change else {
            return Outcome {
                change: None,
                query: self.answer(&unit.query),
            };
        };
        self.answer("BEGIN");
        let change = self.answer(change);
        let query = match change.error() {
            Some(_) => change.clone(),
            None => self.answer(&unit.query),
        };
        self.answer("ROLLBACK");
        Outcome {
            change: Some(change),
            query,
        }
    }

    fn answer(&mut self, sql: &str) -> Answer {
        let connection = &mut self.connection;
        match catch_unwind(AssertUnwindSafe(|| answer(connection, sql))) {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => Answer::Error {
                state: error.sqlstate().0.to_string(),
                message: error.message().to_string(),
            },
            Err(_) => {
                self.connection = self.database.connect();
                Answer::Error {
                    state: "panic".to_string(),
                    message: String::new(),
                }
            }
        }
    }
}

fn answer(connection: &mut Connection, sql: &str) -> Result<Answer, Error> {
    let summary = match connection.run(sql, ())? {
        strandline::Outcome::Rows(stream) => {
            let schema = stream.schema().clone();
            let batches = stream.collect::<Result<Vec<_>, Error>>()?;
            return Ok(rows(&QueryResult::new(schema, batches)));
        }
        strandline::Outcome::Done(summary) => summary,
    };
    Ok(match summary.result() {
        Some(result) => rows(result),
        None => Answer::Count(summary.rows_affected()),
    })
}

fn rows(result: &QueryResult) -> Answer {
    let fields = result.schema().fields().iter();
    let types = fields
        .map(|field| type_name(ColumnType::of(field).oid))
        .collect();
    let mut rows = Vec::new();
    for batch in result.batches() {
        for row in 0..batch.num_rows() {
            let columns = batch.columns().iter();
            rows.push(columns.map(|column| cell(column, row)).collect());
        }
    }
    Answer::Rows { types, rows }
}
